/* padding.c - checks that padding between tensors is still zero: nothing wrote past a tensor. */
#include "arena/layout/arena_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

/* The padding between two tensors, in one region. */
typedef struct gap {
    size_t offset, bytes;
    size_t before; /* the tensor before the gap; tensor_count: none */
    ashlar_region region;
} gap;

/* Every gap of the arena, in the order of regions and addresses. */
typedef struct gaps {
    const ashlar_arena *arena;
    gap *list;
    ashlar_copy_span *spans; /* [count] each for one gap, from it to its place in one block */
    size_t count;
    size_t bytes; /* of all gaps together */
} gaps;

static void add_gap(gaps *g, ashlar_region region, size_t begin, size_t end, size_t before) {
    ASHLAR_CHECK2(begin <= end); /* tensors do not overlap */
    if (begin < end) {
        g->list[g->count++] = (gap){begin, end - begin, before, region};
        g->bytes += end - begin;
    }
}

static void find_gaps(gaps *g, ashlar_region region) {
    const ashlar_arena *arena = g->arena;
    const ashlar_layout layout = ashlar__region_layout(region);
    size_t end = 0, before = arena->tensor_count;
    ASHLAR_CHECK2(arena->regions[region] != NULL);
    for (size_t i = 0; i < arena->tensor_count; i++) {
        const size_t tensor = arena->order[i];
        const ashlar_tensor_info *info = &arena->tensors[tensor].info;
        if (ashlar__layout_has(layout, info->dtype)) {
            add_gap(g, region, end, info->offset[layout], before);
            end = info->offset[layout] + ashlar__arena_tensor_bytes(arena, layout, tensor);
            before = tensor;
        }
    }
    add_gap(g, region, end, arena->bytes[layout], before);
}

/* Fail with a text about byte `i` of a gap: its address and the tensor before it. */
static ashlar_status report(const gaps *g, const gap *at, size_t i, unsigned char value) {
    const ashlar_arena *arena = g->arena;
    const char *base = arena->regions[at->region];
    return ashlar__fail(
        ASHLAR_EDAMAGE,
        "byte %zu of the %s (%p) is 0x%02x, in the padding %s%s; padding is zero: "
        "something wrote past the end of a tensor",
        at->offset + i, ashlar_region_text(at->region), (const void *)(base + at->offset + i),
        value, at->before < arena->tensor_count ? "behind tensor " : "before the first tensor",
        at->before < arena->tensor_count ? arena->tensors[at->before].name : "");
}

static ashlar_status compare(const gaps *g, const unsigned char *bytes) {
    for (size_t i = 0; i < g->count; i++) {
        for (size_t k = 0; k < g->list[i].bytes; k++) {
            if (bytes[k] != 0) {
                return report(g, &g->list[i], k, bytes[k]);
            }
        }
        bytes += g->list[i].bytes;
    }
    return ASHLAR_OK;
}

/* Pack every gap into `block` on the device, and copy the block to `host`. */
static ashlar_status fetch(const gaps *g, char *block, unsigned char *host, ashlar_stream stream) {
    ashlar_device *device = ashlar_allocator_device(g->arena->allocator);
    size_t at = 0;
    for (size_t i = 0; i < g->count; i++) {
        const gap *from = &g->list[i];
        const char *base = g->arena->regions[from->region];
        g->spans[i] = (ashlar_copy_span){block + at, base + from->offset, from->bytes};
        at += from->bytes;
    }
    ASHLAR_CHECK2(at == g->bytes);
    ASHLAR_TRY(ashlar_copy_batch(device, g->spans, g->count, stream));
    ASHLAR_TRY(ashlar_copy_to_host(device, host, block, g->bytes, stream));
    return ashlar_stream_synchronize(device, stream);
}

static ashlar_status fetch_and_compare(const gaps *g, ashlar_stream stream) {
    void *block = NULL;
    unsigned char *host = ashlar__host_calloc(g->bytes, 1);
    ASHLAR_FAIL_IF(host == NULL, ASHLAR_EHOSTMEM, "no host memory for %zu bytes of padding",
                   g->bytes);
    ashlar_status status =
        ashlar_alloc_tagged(g->arena->allocator, g->bytes, ASHLAR_TAG_WORKSPACE, stream, &block);
    if (status == ASHLAR_OK) {
        status = fetch(g, block, host, stream);
        const ashlar_status freed = ashlar_free(g->arena->allocator, block);
        status = status == ASHLAR_OK ? freed : status;
    }
    ASHLAR_THEN(status, compare(g, host));
    ashlar__host_free(host);
    return status;
}

ashlar_status ashlar_arena_check_padding(const ashlar_arena *arena, ashlar_stream stream) {
    ASHLAR_FAIL_IF(arena->allocator == NULL, ASHLAR_EINVAL,
                   "check_padding: the arena is not committed");
    const size_t room = (arena->tensor_count + 1) * ASHLAR_REGION_COUNT;
    gaps g = {.arena = arena,
              .list = ashlar__host_calloc(room, sizeof *g.list),
              .spans = ashlar__host_calloc(room, sizeof *g.spans)};
    ashlar_status status = ASHLAR_OK;
    if (g.list == NULL || g.spans == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu stretches of padding", room);
    }
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT && status == ASHLAR_OK; i++) {
        if (arena->regions[i] != NULL) {
            find_gaps(&g, (ashlar_region)i);
        }
    }
    ASHLAR_CHECK2(g.count <= room);
    if (status == ASHLAR_OK && g.count > 0) {
        status = fetch_and_compare(&g, stream);
    }
    ashlar__host_free(g.list);
    ashlar__host_free(g.spans);
    return status;
}
