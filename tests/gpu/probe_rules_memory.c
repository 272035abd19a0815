/*
 * probe_rules_memory.c - the driver's rules about virtual memory: large reservations, handles,
 * mappings side by side, and work that goes across them.
 */
#include "tests/gpu/probe.h"

#include <stdio.h>

#include "allocator/base/host.h"

enum { HANDLES = 64, RESERVATIONS = 8, ADDRESS_FACTOR = 32 };

/* ---- addresses ---- */

/* An allocator reserves 32 times the memory, and fewer where that is refused. */
static verdict large_reservations(const probe *p) {
    cu_ptr bases[RESERVATIONS];
    size_t total = 0, count = 0;
    cu_result result = p->cuda->device_total_mem(&total, p->device);
    const size_t bytes = total / p->granularity * p->granularity * ADDRESS_FACTOR;
    const uint64_t begin = ashlar__clock_ns();
    while (result == CU_SUCCESS && count < RESERVATIONS) {
        result = p->cuda->mem_address_reserve(&bases[count], bytes, p->granularity, 0, 0);
        count += result == CU_SUCCESS;
    }
    (void)printf("%zu of %d reservations of %.2f TiB, the last call returns %u, %.2f ms in all",
                 count, RESERVATIONS, (double)bytes / 0x1p40, result,
                 (double)(ashlar__clock_ns() - begin) / 1e6);
    while (count > 0) {
        (void)p->cuda->mem_address_free(bases[--count], bytes);
    }
    return TOLD;
}

/* ---- one handle ---- */

static verdict part_of_a_mapping_stays(const probe *p) {
    cu_ptr ptr;
    if (probe_map(p, 2 * p->granularity, &ptr) != CU_SUCCESS) {
        return UNASKED;
    }
    const cu_result result = p->cuda->mem_unmap(ptr, p->granularity);
    (void)printf("cuMemUnmap of half a handle returns %u", result);
    return TOLD;
}

static verdict handle_is_mapped_whole(const probe *p) {
    const cu_mem_prop prop = probe_prop(p);
    cu_mem_handle handle;
    cu_ptr ptr;
    if (p->cuda->mem_create(&handle, 2 * p->granularity, &prop, 0) != CU_SUCCESS ||
        p->cuda->mem_address_reserve(&ptr, 2 * p->granularity, 0, 0, 0) != CU_SUCCESS) {
        return UNASKED;
    }
    const cu_result result = p->cuda->mem_map(ptr, p->granularity, p->granularity, handle, 0);
    (void)printf("cuMemMap at an offset returns %u", result);
    return judge(result != CU_SUCCESS);
}

static verdict mapping_keeps_a_released_handle(const probe *p) {
    cu_ptr ptr;
    if (probe_map(p, p->granularity, &ptr) != CU_SUCCESS) {
        return UNASKED;
    }
    const bool is_kept = p->cuda->memset_d8_async(ptr, 7, p->granularity, NULL) == CU_SUCCESS &&
                         probe_holds(p, ptr + p->granularity - 1, 7);
    (void)printf("its bytes are %s", is_kept ? "there" : "gone");
    return judge(is_kept);
}

/* ---- handles side by side ---- */

/* Map `count` handles next to each other, and open all of them by one call. */
static bool map_row(const probe *p, size_t count, cu_ptr *base, cu_mem_handle *handles) {
    const cu_mem_prop prop = probe_prop(p);
    const cu_mem_access access = probe_access(p);
    const size_t bytes = p->granularity;
    bool is_mapped = p->cuda->mem_address_reserve(base, count * bytes, 0, 0, 0) == CU_SUCCESS;
    for (size_t i = 0; i < count && is_mapped; i++) {
        is_mapped = p->cuda->mem_create(&handles[i], bytes, &prop, 0) == CU_SUCCESS &&
                    p->cuda->mem_map(*base + i * bytes, bytes, 0, handles[i], 0) == CU_SUCCESS;
    }
    return is_mapped && p->cuda->mem_set_access(*base, count * bytes, &access, 1) == CU_SUCCESS;
}

/* Whether each handle of a row has that value at both ends. */
static bool row_holds(const probe *p, size_t count, cu_ptr base, unsigned char value) {
    bool is_so = true;
    for (size_t i = 0; i < count && is_so; i++) {
        const cu_ptr at = base + i * p->granularity;
        is_so = probe_holds(p, at, value) && probe_holds(p, at + p->granularity - 1, value);
    }
    return is_so;
}

static verdict one_call_opens_many_handles(const probe *p) {
    cu_mem_handle handles[HANDLES];
    cu_ptr base = 0;
    bool is_kept = map_row(p, HANDLES, &base, handles);
    for (size_t i = 0; i < HANDLES && is_kept; i++) {
        is_kept = p->cuda->memset_d8_async(base + i * p->granularity, 7, p->granularity, NULL) ==
                  CU_SUCCESS;
    }
    is_kept = is_kept && row_holds(p, HANDLES, base, 7);
    (void)printf("%d handles are %s", HANDLES, is_kept ? "open" : "not all open");
    return judge(is_kept);
}

static verdict fills_and_copies_cross_handles(const probe *p) {
    cu_mem_handle handles[HANDLES];
    cu_ptr base = 0;
    const size_t half = HANDLES / 2 * p->granularity;
    const bool is_kept = map_row(p, HANDLES, &base, handles) &&
                         p->cuda->memset_d8_async(base, 5, half, NULL) == CU_SUCCESS &&
                         p->cuda->memcpy_dtod_async(base + half, base, half, NULL) == CU_SUCCESS &&
                         row_holds(p, HANDLES, base, 5);
    (void)printf("a fill and a copy of %d handles each are %s", HANDLES / 2,
                 is_kept ? "whole" : "not whole");
    return judge(is_kept);
}

static verdict graphs_cross_handles(const probe *p) {
    cu_mem_handle handles[HANDLES];
    cu_ptr base = 0;
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    const size_t half = HANDLES / 2 * p->granularity;
    const bool is_kept =
        map_row(p, HANDLES, &base, handles) &&
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS &&
        p->cuda->stream_begin_capture(stream, CU_CAPTURE_RELAXED) == CU_SUCCESS &&
        p->cuda->memset_d8_async(base, 3, half, stream) == CU_SUCCESS &&
        p->cuda->memcpy_dtod_async(base + half, base, half, stream) == CU_SUCCESS &&
        p->cuda->stream_end_capture(stream, &graph) == CU_SUCCESS &&
        p->cuda->graph_instantiate(&exec, graph, 0) == CU_SUCCESS &&
        p->cuda->graph_launch(exec, stream) == CU_SUCCESS &&
        p->cuda->stream_synchronize(stream) == CU_SUCCESS && row_holds(p, HANDLES, base, 3);
    (void)printf("a captured fill and copy of %d handles each are %s", HANDLES / 2,
                 is_kept ? "whole" : "not whole");
    return judge(is_kept);
}

/* The middle one of three moves while the others are in use. All keep their bytes. */
static verdict a_handle_moves_while_its_neighbours_work(const probe *p) {
    const cu_mem_access access = probe_access(p);
    const size_t bytes = p->granularity;
    cu_mem_handle handles[3];
    cu_ptr base = 0, other = 0;
    cu_stream stream = NULL;
    if (!map_row(p, 3, &base, handles) ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS ||
        p->cuda->mem_address_reserve(&other, bytes, 0, 0, 0) != CU_SUCCESS ||
        p->cuda->memset_d8_async(base + bytes, 7, bytes, NULL) != CU_SUCCESS ||
        p->cuda->ctx_synchronize() != CU_SUCCESS) {
        return UNASKED;
    }
    probe_keep_busy(p, stream, base, bytes);
    probe_keep_busy(p, stream, base + 2 * bytes, bytes);
    const cu_result gone = p->cuda->mem_unmap(base + bytes, bytes);
    const cu_result mapped = p->cuda->mem_map(other, bytes, 0, handles[1], 0);
    const cu_result opened = p->cuda->mem_set_access(other, bytes, &access, 1);
    const cu_result ended = p->cuda->stream_synchronize(stream);
    const bool is_kept = gone == CU_SUCCESS && mapped == CU_SUCCESS && opened == CU_SUCCESS &&
                         ended == CU_SUCCESS && row_holds(p, 1, other, 7) &&
                         row_holds(p, 1, base, PROBE_FILLS - 1) &&
                         row_holds(p, 1, base + 2 * bytes, PROBE_FILLS - 1);
    (void)printf("unmapping it returns %u, mapping %u, opening %u, their work %u", gone, mapped,
                 opened, ended);
    return judge(is_kept);
}

const probe_rule probe_rules_memory[] = {
    RULE_TOLD(large_reservations),
    RULE_TOLD(part_of_a_mapping_stays),
    RULE_JUDGED(handle_is_mapped_whole),
    RULE_JUDGED(mapping_keeps_a_released_handle),
    RULE_JUDGED(one_call_opens_many_handles),
    RULE_JUDGED(fills_and_copies_cross_handles),
    RULE_JUDGED(graphs_cross_handles),
    RULE_JUDGED(a_handle_moves_while_its_neighbours_work),
    {NULL, NULL, false},
};
