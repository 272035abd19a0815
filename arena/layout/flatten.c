/* flatten.c - gathers tensors that lie scattered in memory into a region. */
#include <ashlar/arena.h>

#include <stdlib.h>
#include <string.h>

#include <ashlar/trace.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"

/* A tensor and the memory from which its values are copied into the region. */
typedef struct piece {
    uintptr_t src;
    size_t bytes;
    size_t tensor;
    size_t block; /* index of the block at `src` in gather.snapshot; set only if there is one */
    void *dst;
} piece;

typedef struct gather {
    ashlar_arena *arena;
    ashlar_region region;
    piece *pieces; /* at first one for each item, in the end one for each tensor to move */
    const piece **by_address;
    size_t count;
    ashlar_copy_span *spans;
    size_t span_count;
    ashlar_snapshot *snapshot; /* blocks of `owner`, the allocator of the sources; NULL: no owner */
    void **freed;              /* [freed_count] blocks of `owner` to be freed */
    size_t freed_count;
    ashlar_flatten_stats stats;
} gather;

static const char *name_of(const gather *g, const piece *p) {
    return g->arena->tensors[p->tensor].name;
}

static ashlar_status read_item(const gather *g, const ashlar_flatten_item *item, piece *out) {
    const ashlar_layout layout = ashlar__region_layout(g->region);
    void *dst = ashlar_arena_view(g->arena, g->region, item->tensor);
    ASHLAR_FAIL_IF(dst == NULL, ASHLAR_EINVAL, "flatten: no tensor %zu in this region",
                   item->tensor);
    *out = (piece){.bytes = ashlar__arena_tensor_bytes(g->arena, layout, item->tensor),
                   .tensor = item->tensor,
                   .dst = dst};
    ASHLAR_FAIL_IF(item->pointer == NULL || *item->pointer == NULL, ASHLAR_EINVAL,
                   "flatten: the pointer to tensor %s is NULL", name_of(g, out));
    out->src = (uintptr_t)*item->pointer;
    return out->src <= UINTPTR_MAX - out->bytes
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL,
                              "flatten: the pointer to tensor %s is %p, no address "
                              "of %zu bytes",
                              name_of(g, out), *item->pointer, out->bytes);
}

static int compare_tensors(const void *x, const void *y) {
    const piece *a = x, *b = y;
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static int compare_addresses(const void *x, const void *y) {
    const piece *a = *(const piece *const *)x, *b = *(const piece *const *)y;
    return (a->src > b->src) - (a->src < b->src);
}

static void sort_by_address(gather *g) {
    for (size_t i = 0; i < g->count; i++) {
        g->by_address[i] = &g->pieces[i];
    }
    qsort(g->by_address, g->count, sizeof *g->by_address, compare_addresses);
}

/* Keep one piece for each tensor; several items may name the same tensor. */
static ashlar_status unite_tied(gather *g) {
    size_t count = 0;
    qsort(g->pieces, g->count, sizeof *g->pieces, compare_tensors);
    for (size_t i = 0; i < g->count; i++) {
        const piece *last = count > 0 ? &g->pieces[count - 1] : NULL;
        if (last == NULL || last->tensor != g->pieces[i].tensor) {
            g->pieces[count++] = g->pieces[i];
        } else if (last->src != g->pieces[i].src) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "flatten: tensor %s is named with two memories, %p and %p; let all "
                                "its pointers point to the one that counts, or declare two tensors",
                                name_of(g, last), (void *)last->src, (void *)g->pieces[i].src);
        }
    }
    g->stats.tied = g->count - count;
    g->count = count;
    return ASHLAR_OK;
}

static void drop_in_place(gather *g) {
    size_t count = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (g->pieces[i].src != (uintptr_t)g->pieces[i].dst) {
            g->pieces[count++] = g->pieces[i];
        }
    }
    g->stats.in_place = g->count - count;
    g->count = count;
}

/* Refuse pieces that overlap each other or the arena. */
static ashlar_status check_apart(const gather *g) {
    for (size_t i = 0; i < g->count; i++) {
        const piece *const p = g->by_address[i];
        const piece *const next = i + 1 < g->count ? g->by_address[i + 1] : NULL;
        if (ashlar__arena_has(g->arena, (const void *)p->src, p->bytes)) {
            char place[ASHLAR_WHERE_BYTES];
            ashlar__arena_describe(g->arena, (const void *)p->src, p->bytes, place);
            return ashlar__fail(ASHLAR_EINVAL,
                                "flatten: the pointer to tensor %s is %p, that is %s; let it point "
                                "to its own memory",
                                name_of(g, p), (void *)p->src, place);
        }
        ASHLAR_FAIL_IF(next != NULL && next->src == p->src, ASHLAR_EINVAL,
                       "flatten: tensors %s and %s have one memory, %p; if they are tied, declare "
                       "one tensor and name it in both items, else give each its own memory",
                       name_of(g, p), name_of(g, next), (void *)p->src);
        ASHLAR_FAIL_IF(next != NULL && next->src - p->src < p->bytes, ASHLAR_EINVAL,
                       "flatten: the memories of tensors %s (%zu bytes at %p) and %s (%p) overlap; "
                       "give each its own",
                       name_of(g, p), p->bytes, (void *)p->src, name_of(g, next),
                       (void *)next->src);
    }
    return ASHLAR_OK;
}

/* List the copies, in the order of the region's addresses: in that of the sources' they would be
 * slower. Tensors that follow each other at both ends are one copy. */
static void merge_copies(gather *g) {
    for (size_t i = 0; i < g->count; i++) {
        const piece *p = &g->pieces[i];
        ashlar_copy_span *last = g->span_count > 0 ? &g->spans[g->span_count - 1] : NULL;
        if (last != NULL && (uintptr_t)last->src + last->bytes == p->src &&
            (char *)last->dst + last->bytes == (char *)p->dst) {
            last->bytes += p->bytes;
        } else {
            g->spans[g->span_count++] = (ashlar_copy_span){p->dst, (const void *)p->src, p->bytes};
        }
        g->stats.copied_bytes += p->bytes;
    }
    g->stats.copies = g->span_count;
    g->stats.merged = g->count - g->span_count;
}

static ashlar_status read_items(gather *g, const ashlar_flatten_item *items, size_t count) {
    for (; g->count < count; g->count++) {
        ASHLAR_TRY(read_item(g, &items[g->count], &g->pieces[g->count]));
    }
    ASHLAR_TRY(unite_tied(g));
    drop_in_place(g);
    merge_copies(g);
    sort_by_address(g);
    return check_apart(g);
}

/* The last block that begins at or before `address`; 0 if there is none. */
static size_t find_block(const ashlar_snapshot *snapshot, uint64_t address) {
    /* Block `low` begins at or before `address`, if one does; block `high`, if any, behind it. */
    size_t low = 0, high = snapshot->block_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (snapshot->blocks[middle].address <= address) {
            low = middle;
        } else {
            high = middle;
        }
    }
    ASHLAR_CHECK2(high == snapshot->block_count || address < snapshot->blocks[high].address);
    return low;
}

static ashlar_status find_blocks(gather *g) {
    const ashlar_snapshot *snapshot = g->snapshot;
    for (size_t i = 0; i < g->count; i++) {
        piece *p = &g->pieces[i];
        p->block = find_block(snapshot, p->src);
        const ashlar_snapshot_block *block = &snapshot->blocks[p->block];
        ASHLAR_FAIL_IF(p->block >= snapshot->block_count || block->state != ASHLAR_SNAPSHOT_LIVE ||
                           p->src < block->address || p->src >= block->address + block->bytes,
                       ASHLAR_EPOINTER,
                       "flatten: the memory of tensor %s (%p) is in no live block of the owner; "
                       "name the allocator it is from, or NULL to free nothing",
                       name_of(g, p), (void *)p->src);
        ASHLAR_FAIL_IF(
            p->bytes > block->address + block->bytes - p->src, ASHLAR_EINVAL,
            "flatten: tensor %s has %zu bytes, its block at %p ends %zu bytes behind its beginning",
            name_of(g, p), p->bytes, (void *)p->src,
            (size_t)(block->address + block->bytes - p->src));
    }
    return ASHLAR_OK;
}

/* Choose the blocks that the region replaces: those whose pieces, which do not overlap, together
 * have as many bytes as were requested for the block. Others are kept. */
static void choose_freed(gather *g) {
    for (size_t i = 0, end; i < g->count; i = end) {
        size_t bytes = 0;
        const piece *const first = g->by_address[i];
        const ashlar_snapshot_block *const block = &g->snapshot->blocks[first->block];
        for (end = i; end < g->count && g->by_address[end]->block == first->block; end++) {
            bytes += g->by_address[end]->bytes;
        }
        ASHLAR_CHECK2(bytes <= block->bytes);
        if (bytes == block->requested_bytes) {
            g->freed[g->freed_count++] = (void *)first->src;
        } else {
            g->stats.kept_blocks++;
        }
    }
    g->stats.freed_blocks = g->freed_count;
}

/* Choose the blocks to free, and mark each as used on `stream`: its next user waits for the copies.
 */
static ashlar_status prepare_blocks(gather *g, ashlar_allocator *owner, ashlar_stream stream) {
    ASHLAR_TRY(ashlar_allocator_take_snapshot(owner, &g->snapshot));
    ASHLAR_TRY(find_blocks(g));
    choose_freed(g);
    for (size_t i = 0; i < g->freed_count; i++) {
        ASHLAR_TRY(ashlar_record_stream(owner, g->freed[i], stream));
    }
    return ASHLAR_OK;
}

/* Free all the chosen blocks, even if one fails. Returns the first failure. */
static ashlar_status free_blocks(const gather *g, ashlar_allocator *owner) {
    ashlar_status first = ASHLAR_OK;
    for (size_t i = 0; i < g->freed_count; i++) {
        const ashlar_status status = ashlar_free(owner, g->freed[i]);
        first = first == ASHLAR_OK ? status : first;
    }
    return first;
}

/* Bind the item's pointer to its tensor. If it is in a view bound to that tensor, this stays bound.
 */
static void repoint(const gather *g, const ashlar_flatten_item *item) {
    ashlar_arena_binding binding = {
        .pointer = item->pointer, .region = g->region, .tensor = item->tensor};
    const ashlar_arena_binding *old = ashlar__arena_find_binding(g->arena, item->pointer);
    if (old != NULL && old->region == binding.region && old->tensor == binding.tensor) {
        binding.view = old->view;
    }
    ashlar__arena_put_binding(g->arena, &binding);
}

/* Do all that may fail before a block is freed or a binding changed: if it fails, neither is. */
static ashlar_status gather_all(gather *g, const ashlar_flatten_item *items, size_t count,
                                ashlar_allocator *owner, ashlar_stream stream) {
    /* Not zeroed: an element is written before it is read. */
    g->pieces = ashlar__host_realloc(NULL, count, sizeof *g->pieces);
    g->by_address = ashlar__host_realloc(NULL, count, sizeof *g->by_address);
    g->spans = ashlar__host_realloc(NULL, count, sizeof *g->spans);
    g->freed = owner == NULL ? NULL : ashlar__host_calloc(count, sizeof *g->freed);
    ASHLAR_FAIL_IF(g->pieces == NULL || g->by_address == NULL || g->spans == NULL ||
                       (owner != NULL && g->freed == NULL) ||
                       !ashlar__arena_reserve_bindings(g->arena, count),
                   ASHLAR_EHOSTMEM, "no host memory to flatten %zu tensors", count);
    ASHLAR_TRY(read_items(g, items, count));
    if (owner != NULL) {
        ASHLAR_TRY(prepare_blocks(g, owner, stream));
    }
    return ashlar__copy_batch(ashlar_allocator_device(g->arena->allocator), g->spans, g->span_count,
                              stream);
}

ashlar_status ashlar_arena_flatten(ashlar_arena *arena, ashlar_region region,
                                   const ashlar_flatten_item *items, size_t count,
                                   ashlar_allocator *owner, ashlar_stream stream,
                                   ashlar_flatten_stats *stats) {
    ASHLAR_FAIL_IF(
        ashlar_arena_region(arena, region) == NULL || count == 0, ASHLAR_EINVAL,
        "flatten: %zu items into region %d; give at least one, and a region of the arena", count,
        (int)region);
    gather g = {.arena = arena, .region = region};
    ashlar_status status = gather_all(&g, items, count, owner, stream);
    if (status == ASHLAR_OK) {
        for (size_t i = 0; i < count; i++) {
            repoint(&g, &items[i]);
        }
        status = free_blocks(&g, owner);
    }
    if (status == ASHLAR_OK && stats != NULL) {
        *stats = g.stats;
    }
    ashlar_snapshot_free(g.snapshot);
    ashlar__host_free(g.pieces);
    ashlar__host_free(g.by_address);
    ashlar__host_free(g.spans);
    ashlar__host_free(g.freed);
    return status;
}
