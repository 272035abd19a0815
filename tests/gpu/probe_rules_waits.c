/*
 * probe_rules_waits.c - the driver's rules about time: which calls wait for work, and when a copy
 * reads host memory.
 */
#include "tests/gpu/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUSY_HANDLES = 16, FREES = 8 };

static bool is_idle(const probe *p, cu_stream stream) {
    return p->cuda->stream_query(stream) == CU_SUCCESS;
}

/* ---- calls that wait ---- */

static verdict calls_that_wait(const probe *p) {
    const cu_mem_access access = probe_access(p);
    const size_t bytes = BUSY_HANDLES * p->granularity;
    cu_ptr busy, other;
    cu_stream stream = NULL;
    bool was_idle[2];
    if (probe_map(p, bytes, &busy) != CU_SUCCESS ||
        probe_map(p, p->granularity, &other) != CU_SUCCESS ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS) {
        return UNASKED;
    }
    for (int i = 0; i < 2; i++) {
        probe_keep_busy(p, stream, busy, bytes);
        (void)(i == 0 ? p->cuda->mem_set_access(other, p->granularity, &access, 1)
                      : p->cuda->mem_unmap(other, p->granularity));
        was_idle[i] = is_idle(p, stream);
        (void)p->cuda->stream_synchronize(stream);
    }
    (void)printf("behind cuMemSetAccess another stream's work is %s, behind cuMemUnmap %s",
                 was_idle[0] ? "done" : "under way", was_idle[1] ? "done" : "under way");
    return TOLD;
}

/* Free blocks that no work uses, each behind work of a stream. The preload waits so where it may
 * not wait for the device: during a capture. */
static verdict race_frees(const probe *p, size_t free_bytes) {
    const size_t bytes = BUSY_HANDLES * p->granularity;
    cu_stream stream = NULL;
    cu_ptr busy, other;
    int late = 0, done = 0;
    if (probe_map(p, bytes, &busy) != CU_SUCCESS ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS) {
        return UNASKED;
    }
    for (int i = 0; i < FREES; i++) {
        if (p->cuda->mem_alloc(&other, free_bytes) != CU_SUCCESS) {
            return UNASKED;
        }
        probe_keep_busy(p, stream, busy, bytes);
        const bool was_busy = !is_idle(p, stream);
        if (p->cuda->mem_free(other) != CU_SUCCESS) {
            return BROKEN;
        }
        late += was_busy;
        done += was_busy && is_idle(p, stream);
        (void)p->cuda->stream_synchronize(stream);
    }
    (void)printf("of %d times that work was under way, it was done %d times behind the free", late,
                 done);
    return late == 0 ? UNASKED : judge(done == late);
}

static verdict a_small_free_waits_for_all_work(const probe *p) {
    return race_frees(p, 1);
}

static verdict a_large_free_waits_for_all_work(const probe *p) {
    return race_frees(p, BUSY_HANDLES * p->granularity);
}

static verdict a_free_within_a_capture_waits_for_all_work(const probe *p) {
    unsigned int mode = CU_CAPTURE_RELAXED;
    cu_stream captured = NULL;
    cu_graph graph = NULL;
    if (p->cuda->stream_create(&captured, CU_STREAM_UNORDERED) != CU_SUCCESS ||
        p->cuda->stream_begin_capture(captured, CU_CAPTURE_GLOBAL) != CU_SUCCESS ||
        p->cuda->thread_exchange_capture_mode(&mode) != CU_SUCCESS) {
        return UNASKED;
    }
    const verdict found = race_frees(p, 1);
    const cu_result ended = p->cuda->stream_end_capture(captured, &graph);
    (void)printf(", and ending the capture returns %u", ended);
    return ended == CU_SUCCESS ? found : BROKEN;
}

/* ---- host memory ---- */

/* *known: as the library tells them apart, page-locked memory and a device's. */
static cu_result ask_type(const probe *p, const void *ptr, bool *known) {
    unsigned int type = 0;
    const cu_result result =
        p->cuda->pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, (cu_ptr)(uintptr_t)ptr);
    *known = result == CU_SUCCESS && (type == CU_MEMORY_HOST || type == CU_MEMORY_DEVICE);
    return result;
}

static verdict pageable_memory_is_told_apart(const probe *p) {
    static char global[64];
    char local[64];
    void *heap = malloc(64), *locked = NULL;
    bool is_known[4];
    if (heap == NULL || p->cuda->mem_host_alloc(&locked, 64, 0) != CU_SUCCESS) {
        free(heap);
        return UNASKED;
    }
    const cu_result results[] = {ask_type(p, local, &is_known[0]),
                                 ask_type(p, global, &is_known[1]), ask_type(p, heap, &is_known[2]),
                                 ask_type(p, locked, &is_known[3])};
    free(heap);
    (void)printf("asking for the type of the stack returns %u, of a static %u, of the heap %u, of "
                 "page-locked memory %u",
                 results[0], results[1], results[2], results[3]);
    return judge(!is_known[0] && !is_known[1] && !is_known[2] && is_known[3]);
}

/* How many bytes a copy reads after it was queued. The call's source lies behind work of its
 * stream, and changes as soon as the call returns. SIZE_MAX: it failed. */
static size_t count_late(const probe *p, cu_stream stream, cu_ptr dst, cu_ptr busy, size_t bytes,
                         bool *has_waited) {
    unsigned char *src = malloc(bytes), *seen = malloc(bytes);
    size_t late = SIZE_MAX;
    if (src != NULL && seen != NULL) {
        memset(src, 1, bytes);
        probe_keep_busy(p, stream, busy, BUSY_HANDLES * p->granularity);
        const cu_result queued = p->cuda->memcpy_htod_async(dst, src, bytes, stream);
        *has_waited = is_idle(p, stream);
        memset(src, 2, bytes);
        if (queued == CU_SUCCESS && p->cuda->stream_synchronize(stream) == CU_SUCCESS &&
            p->cuda->memcpy_dtoh_async(seen, dst, bytes, stream) == CU_SUCCESS &&
            p->cuda->stream_synchronize(stream) == CU_SUCCESS) {
            late = 0;
            for (size_t i = 0; i < bytes; i++) {
                late += seen[i] != 1;
            }
        }
    }
    free(src);
    free(seen);
    return late;
}

static verdict pageable_memory_is_read_at_the_call(const probe *p) {
    static const size_t sizes[] = {64, 4096, 65536, 65537, (size_t)1 << 20, (size_t)16 << 20};
    const size_t bytes = BUSY_HANDLES * p->granularity;
    cu_ptr dst, busy;
    cu_stream stream = NULL;
    if (probe_map(p, bytes, &dst) != CU_SUCCESS || probe_map(p, bytes, &busy) != CU_SUCCESS ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS) {
        return UNASKED;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && sizes[i] <= bytes; i++) {
        bool has_waited = false;
        const size_t late = count_late(p, stream, dst, busy, sizes[i], &has_waited);
        if (late == SIZE_MAX) {
            return UNASKED;
        }
        (void)printf("%sof %zu bytes %zu are read late and the call %s", i > 0 ? "; " : "",
                     sizes[i], late, has_waited ? "waits" : "does not wait");
    }
    return TOLD;
}

static verdict pageable_memory_in_a_capture(const probe *p) {
    unsigned char src[64];
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    cu_ptr dst;
    if (probe_map(p, p->granularity, &dst) != CU_SUCCESS ||
        p->cuda->stream_create(&stream, CU_STREAM_UNORDERED) != CU_SUCCESS ||
        p->cuda->stream_begin_capture(stream, CU_CAPTURE_RELAXED) != CU_SUCCESS) {
        return UNASKED;
    }
    memset(src, 1, sizeof src);
    const cu_result queued = p->cuda->memcpy_htod_async(dst, src, sizeof src, stream);
    const cu_result ended = p->cuda->stream_end_capture(stream, &graph);
    memset(src, 2, sizeof src);
    const bool has_run = ended == CU_SUCCESS &&
                         p->cuda->graph_instantiate(&exec, graph, 0) == CU_SUCCESS &&
                         p->cuda->graph_launch(exec, stream) == CU_SUCCESS &&
                         p->cuda->stream_synchronize(stream) == CU_SUCCESS;
    (void)printf("the copy returns %u, ending the capture %u; a launch %s", queued, ended,
                 !has_run                 ? "fails"
                 : probe_holds(p, dst, 2) ? "reads what is there then"
                 : probe_holds(p, dst, 1) ? "has what was there at the call"
                                          : "copies something else");
    return TOLD;
}

const probe_rule probe_rules_waits[] = {
    RULE_TOLD(calls_that_wait),
    RULE_JUDGED(a_small_free_waits_for_all_work),
    RULE_JUDGED(a_large_free_waits_for_all_work),
    RULE_JUDGED(a_free_within_a_capture_waits_for_all_work),
    RULE_JUDGED(pageable_memory_is_told_apart),
    RULE_TOLD(pageable_memory_is_read_at_the_call),
    RULE_TOLD(pageable_memory_in_a_capture),
    {NULL, NULL, false},
};
