#include "heap.h"

#include "check_level.h"
#include "error.h"
#include "host.h"
#include "size_class.h"

/* Block nodes come in chunks, and go back to the host only with the heap. */
enum { CHUNK_NODES = 256 };

struct ashlar_node_chunk {
    ashlar_node_chunk *next;
    unsigned char room[(CHUNK_NODES + 1) * sizeof(ashlar_block)]; /* from a line's start */
};

static void push_spare(ashlar_heap *heap, ashlar_block *node) {
    *node = (ashlar_block){.next = heap->spare};
    heap->spare = node;
    heap->spare_count++;
}

static ashlar_block *pop_spare(ashlar_heap *heap) {
    ashlar_block *node = heap->spare;
    ASHLAR_ASSERT(node != NULL);
    heap->spare = node->next;
    heap->spare_count--;
    *node = (ashlar_block){.state = ASHLAR_BLOCK_FREE};
    return node;
}

/* Nodes are fetched before anything is changed, so that no change can be left half done. */
static ashlar_status reserve_node(ashlar_heap *heap) {
    if (heap->spare_count > 0) {
        return ASHLAR_OK;
    }
    ashlar_node_chunk *chunk = ashlar_host_calloc(1, sizeof *chunk);
    if (chunk == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for block descriptors");
    }
    chunk->next = heap->chunks;
    heap->chunks = chunk;
    const uintptr_t lines = ((uintptr_t)chunk->room + ASHLAR_CACHE_LINE - 1) / ASHLAR_CACHE_LINE;
    ashlar_block *nodes = (ashlar_block *)(lines * ASHLAR_CACHE_LINE);
    for (int i = CHUNK_NODES - 1; i >= 0; i--) {
        push_spare(heap, &nodes[i]);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_heap_init(ashlar_heap *heap, ashlar_caller *caller) {
    *heap = (ashlar_heap){0};
    ashlar_status status = ashlar_range_init(&heap->range, caller);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = ashlar_page_map_init(&heap->map, heap->range.bytes);
    if (status != ASHLAR_OK) {
        ashlar_range_finish(&heap->range);
    }
    return status;
}

void ashlar_heap_finish(ashlar_heap *heap) {
    ashlar_range_finish(&heap->range);
    ashlar_page_map_finish(&heap->map);
    while (heap->chunks != NULL) {
        ashlar_node_chunk *next = heap->chunks->next;
        ashlar_host_free(heap->chunks);
        heap->chunks = next;
    }
}

static bool is_free(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_FREE;
}

static ashlar_free_bins *bins_of(ashlar_heap *heap, const ashlar_block *block) {
    return block->order != NULL ? &block->order->free : &heap->idle;
}

static void link_after(ashlar_heap *heap, ashlar_block *block, ashlar_block *prev) {
    block->prev = prev;
    block->next = prev != NULL ? prev->next : heap->first;
    *(prev != NULL ? &prev->next : &heap->first) = block;
    *(block->next != NULL ? &block->next->prev : &heap->last) = block;
}

static void unlink_block(ashlar_heap *heap, ashlar_block *block) {
    *(block->prev != NULL ? &block->prev->next : &heap->first) = block->next;
    *(block->next != NULL ? &block->next->prev : &heap->last) = block->prev;
}

ashlar_status ashlar_heap_take(ashlar_heap *heap, ashlar_block *block, size_t bytes) {
    ASHLAR_ASSERT(is_free(block) && bytes > 0 && bytes <= block->bytes);
    ASHLAR_ASSERT(bytes % ASHLAR_BLOCK_ALIGN == 0);
    ashlar_status status = ashlar_page_map_reserve(&heap->map, block->offset);
    if (status == ASHLAR_OK && bytes < block->bytes) {
        status = reserve_node(heap);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_free_bins_remove(bins_of(heap, block), block);
    if (bytes < block->bytes) {
        ashlar_block *rest = pop_spare(heap);
        rest->offset = block->offset + bytes;
        rest->bytes = block->bytes - bytes;
        rest->order = block->order;
        rest->tick = block->tick;
        link_after(heap, rest, block);
        ashlar_free_bins_insert(bins_of(heap, rest), rest);
        block->bytes = bytes;
    }
    block->state = ASHLAR_BLOCK_LIVE;
    ashlar_page_map_set(&heap->map, block->offset, block);
    heap->used_bytes += bytes;
    heap->free_bytes -= bytes;
    ASHLAR_CHECK2(heap->used_bytes + heap->free_bytes == heap->range.mapped_bytes);
    return ASHLAR_OK;
}

/*
 * Whether two free stamps may become one, which then is the later of both. A past stamp yields to
 * the other; two different streams that may both still be busy have no common stamp.
 */
static bool merge_stamps(const ashlar_block *a, const ashlar_block *b, ashlar_order **order,
                         uint64_t *tick) {
    const bool a_past = ashlar_order_is_past(a->order, a->tick);
    const bool b_past = ashlar_order_is_past(b->order, b->tick);
    if (a_past && b_past) {
        *order = NULL;
        *tick = 0;
    } else if (a_past || b_past) {
        *order = a_past ? b->order : a->order;
        *tick = a_past ? b->tick : a->tick;
    } else if (a->order == b->order) {
        *order = a->order;
        *tick = a->tick > b->tick ? a->tick : b->tick;
    } else {
        return false;
    }
    return true;
}

/* Let `block`, which is in no bin, swallow its neighbour `other`, which is in one. */
static bool try_merge(ashlar_heap *heap, ashlar_block *block, ashlar_block *other) {
    if (other == NULL || !is_free(other)) {
        return false;
    }
    ashlar_order *order;
    uint64_t tick;
    if (!merge_stamps(block, other, &order, &tick)) {
        return false;
    }
    ashlar_free_bins_remove(bins_of(heap, other), other);
    if (other->offset < block->offset) {
        block->offset = other->offset;
    }
    block->bytes += other->bytes;
    block->order = order;
    block->tick = tick;
    unlink_block(heap, other);
    push_spare(heap, other);
    return true;
}

/* Put a free block that is in no bin where it belongs, merged as far as it goes. */
static void settle(ashlar_heap *heap, ashlar_block *block) {
    if (ashlar_order_is_past(block->order, block->tick)) {
        block->order = NULL;
        block->tick = 0;
    }
    /* Again from the start after each merge: it may have changed the stamp. */
    while (try_merge(heap, block, block->prev) || try_merge(heap, block, block->next)) {
    }
    ashlar_free_bins_insert(bins_of(heap, block), block);
}

void ashlar_heap_put(ashlar_heap *heap, ashlar_block *block, ashlar_order *order, uint64_t tick) {
    ASHLAR_ASSERT(block->state == ASHLAR_BLOCK_LIVE || block->state == ASHLAR_BLOCK_CACHED);
    ashlar_page_map_set(&heap->map, block->offset, NULL);
    heap->used_bytes -= block->bytes;
    heap->free_bytes += block->bytes;
    block->state = ASHLAR_BLOCK_FREE;
    block->requested = 0;
    block->order = order;
    block->tick = tick;
    settle(heap, block);
    ASHLAR_CHECK2(heap->used_bytes + heap->free_bytes == heap->range.mapped_bytes);
}

/* The free block at the top that growth may extend for work on `order`, or NULL. */
static ashlar_block *extensible(const ashlar_heap *heap, const ashlar_order *order) {
    ashlar_block *last = heap->last;
    if (last == NULL || !is_free(last)) {
        return NULL;
    }
    return last->order == order || ashlar_order_is_past(last->order, last->tick) ? last : NULL;
}

ashlar_status ashlar_heap_grow(ashlar_heap *heap, ashlar_order *order, size_t bytes,
                               ashlar_block **out) {
    ashlar_block *last = extensible(heap, order);
    const size_t had = last != NULL ? last->bytes : 0;
    ASHLAR_ASSERT(had < bytes);
    ashlar_status status = reserve_node(heap);
    size_t grown = 0;
    if (status == ASHLAR_OK) {
        status = ashlar_range_grow(&heap->range, bytes - had, &grown);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    heap->free_bytes += grown;
    if (last != NULL) {
        ashlar_free_bins_remove(bins_of(heap, last), last);
        last->bytes += grown;
    } else {
        ashlar_block *fresh = pop_spare(heap);
        fresh->offset = heap->range.mapped_bytes - grown;
        fresh->bytes = grown;
        link_after(heap, fresh, heap->last);
        last = fresh;
    }
    /*
     * No settle() here: it would let the fresh memory take on the stamp of another stream's block
     * below it, and `order` would have to wait for that stream.
     */
    ashlar_free_bins_insert(bins_of(heap, last), last);
    *out = last;
    return ASHLAR_OK;
}

void ashlar_heap_sweep(ashlar_heap *heap) {
    for (ashlar_block *block = heap->first; block != NULL; block = block->next) {
        if (is_free(block) && ashlar_order_is_past(block->order, block->tick)) {
            ashlar_free_bins_remove(bins_of(heap, block), block);
            settle(heap, block);
        }
    }
}

const ashlar_block *ashlar_heap_find(const ashlar_heap *heap, size_t offset) {
    const ashlar_block *block = heap->first;
    while (block != NULL && block->offset + block->bytes <= offset) {
        block = block->next;
    }
    return block;
}
