/* torch_blocks.c - blocks of PyTorch's segments, the caches of those that are free, and what is
 * there when a history begins. */
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "bench/replay/torch.h"

/* Addresses of an expandable segment, if the device is not known. */
#define ADDRESS_SPACE (UINT64_C(1) << 44)

typedef ashlar_torch_block block;
typedef ashlar_torch_pool pool;

/* ---- the cache of a pool, and blocks ---- */

static int compare(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int order(const block *a, const block *b) {
    return a->stream != b->stream     ? compare(a->stream, b->stream)
           : a->bytes != b->bytes     ? compare(a->bytes, b->bytes)
           : a->number != b->number   ? compare(a->number, b->number)
           : a->address != b->address ? compare(a->address, b->address)
                                      : compare((uintptr_t)a, (uintptr_t)b); /* overlapping ones */
}

size_t ashlar__torch_lower_bound(const pool *p, const block *key) {
    size_t low = 0, high = p->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (order(p->cached[middle], key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

block *ashlar__torch_take_out(pool *p, size_t i) {
    block *b = p->cached[i];
    p->count--;
    memmove(&p->cached[i], &p->cached[i + 1], (p->count - i) * sizeof(block *));
    return b;
}

void ashlar__torch_erase(block *b) {
    const size_t i = ashlar__torch_lower_bound(b->pool, b);
    ASHLAR_CHECK2(i < b->pool->count && b->pool->cached[i] == b);
    (void)ashlar__torch_take_out(b->pool, i);
}

ashlar_status ashlar__torch_insert(block *b) {
    pool *p = b->pool;
    if (!b->is_mapped) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_GROW(p->cached, &p->capacity, p->count, ASHLAR_TORCH_NO_MEMORY);
    const size_t i = ashlar__torch_lower_bound(p, b);
    memmove(&p->cached[i + 1], &p->cached[i], (p->count - i) * sizeof(block *));
    p->cached[i] = b;
    p->count++;
    b->cached_at = p->searches;
    return ASHLAR_OK;
}

ashlar_status ashlar__torch_new_block(ashlar_torch *t, const block *model, block **out) {
    if (t->spare == NULL) {
        ASHLAR_HOST_NEW(t->spare, 1, ASHLAR_TORCH_NO_MEMORY);
        t->spare->made_before = t->made;
        t->made = t->spare;
    }
    block *b = t->spare, *const made_before = b->made_before;
    t->spare = b->next;
    *b = *model;
    b->made_before = made_before;
    *out = b;
    return ASHLAR_OK;
}

void ashlar__torch_drop_block(ashlar_torch *t, block *b) {
    b->pool = NULL;
    b->next = t->spare;
    t->spare = b;
}

ashlar_status ashlar__torch_cut(ashlar_torch *t, block *b, uint64_t bytes, block **rest) {
    ASHLAR_TRY(ashlar__torch_new_block(t, b, rest));
    (*rest)->address += bytes;
    (*rest)->bytes -= bytes;
    (*rest)->prev = b;
    if (b->next != NULL) {
        b->next->prev = *rest;
    }
    b->next = *rest;
    b->bytes = bytes;
    return ashlar__torch_insert(*rest);
}

/* Let a block, which is not cached, take in a neighbour that is as free and as mapped as it is. */
static void merge(ashlar_torch *t, block *b, block *other) {
    if (other == NULL || other->is_active || other->is_mapped != b->is_mapped) {
        return;
    }
    if (other->is_mapped) {
        ashlar__torch_erase(other);
    }
    const block *left = other == b->prev ? other : b, *right = other == b->prev ? b : other;
    b->address = left->address;
    b->prev = left->prev;
    b->next = right->next;
    if (b->prev != NULL) {
        b->prev->next = b;
    }
    if (b->next != NULL) {
        b->next->prev = b;
    }
    b->bytes += other->bytes;
    ashlar__torch_drop_block(t, other);
}

ashlar_status ashlar__torch_merge(ashlar_torch *t, block *b) {
    merge(t, b, b->prev);
    merge(t, b, b->next);
    return ashlar__torch_insert(b);
}

/* ---- the addresses of expandable segments ---- */

uint64_t ashlar__torch_chunk_bytes(const ashlar_torch *t, const pool *p) {
    return p->is_small ? ASHLAR_TORCH_SMALL_SEGMENT : t->config->settings->large_segment_bytes;
}

uint64_t ashlar__torch_space_bytes(const ashlar_torch *t, const pool *p) {
    const uint64_t device = t->config->device_bytes, chunk = ashlar__torch_chunk_bytes(t, p);
    return ashlar__torch_round_up(device == 0 ? ADDRESS_SPACE : device + device / 8, chunk);
}

/* ---- the beginning and the end ---- */

/* Where an expandable segment begins whose first mapped range is `first`: there, or where the
 * history maps something below it, since the lowest addresses are mapped first. */
static uint64_t find_base(const ashlar_torch *t, const ashlar_event_segment *first,
                          const pool *of) {
    const bool is_lowest = first == t->events->first.segments || first[-1].device != first->device;
    const uint64_t floor = is_lowest ? 0 : first[-1].address + first[-1].bytes;
    uint64_t base = first->address;
    for (size_t i = 0; i < t->events->event_count; i++) {
        const ashlar_history_event *e = &t->events->events[i];
        if (e->action == ASHLAR_EVENT_SEGMENT_MAP && e->device == first->device &&
            e->pool == first->pool && e->stream == first->stream && e->address < base &&
            e->address >= floor && first->address - e->address < ashlar__torch_space_bytes(t, of) &&
            (first->address - e->address) % ashlar__torch_chunk_bytes(t, of) == 0 &&
            (e->bytes == ASHLAR_TORCH_SMALL_SEGMENT) == first->is_small) {
            base = e->address;
        }
    }
    return base;
}

/* The addresses of a segment, unmapped until its blocks are cut out of them. Mapped ranges that can
 * grow, of a pool and stream and with nothing between them, are parts of one segment: `behind` is
 * what is not mapped behind the range before. */
static ashlar_status find_addresses(ashlar_torch *t, const ashlar_event_segment *segment,
                                    block *behind, block **out) {
    block whole = {.address = segment->address,
                   .bytes = segment->bytes,
                   .stream = t->events->streams[segment->stream],
                   .pool = &t->pools[2 * segment->pool + segment->is_small],
                   .can_grow = segment->is_expandable};
    if (whole.can_grow && behind != NULL && behind->pool == whole.pool &&
        behind->stream == whole.stream && whole.address - behind->address < behind->bytes &&
        whole.bytes <= behind->bytes - (whole.address - behind->address)) {
        *out = behind;
        return ASHLAR_OK;
    }
    if (whole.can_grow) {
        const uint64_t space = ashlar__torch_space_bytes(t, whole.pool);
        whole.base = whole.address = find_base(t, segment, whole.pool);
        whole.bytes += segment->address - whole.base;
        whole.bytes = whole.bytes < space ? space : whole.bytes;
    }
    return ashlar__torch_new_block(t, &whole, out);
}

static ashlar_status add_segment(ashlar_torch *t, const ashlar_event_segment *segment,
                                 block **behind) {
    block *b = NULL, *rest = NULL;
    ASHLAR_TRY(find_addresses(t, segment, *behind, &b));
    for (size_t i = 0; i < segment->block_count; i++, b = b->next) {
        const ashlar_event_block *from = &t->events->first.blocks[segment->first_block + i];
        if (b->address < from->address) {
            ASHLAR_TRY(ashlar__torch_cut(t, b, from->address - b->address, &b));
        }
        if (b->bytes > from->bytes) {
            ASHLAR_TRY(ashlar__torch_cut(t, b, from->bytes, &rest));
        }
        b->is_mapped = true;
        b->is_active = from->state != ASHLAR_BLOCK_INACTIVE;
        if (b->is_active) {
            t->blocks[from->allocation] = b;
        }
        ASHLAR_TRY(b->is_active ? ASHLAR_OK : ashlar__torch_insert(b));
    }
    *behind = b;
    t->reserved_bytes += segment->bytes;
    return ASHLAR_OK;
}

ashlar_status ashlar__torch_begin(ashlar_torch *t) {
    const ashlar_events *e = t->events;
    block *behind = NULL;
    ASHLAR_HOST_NEW(t->pools, 2 * e->pool_count, ASHLAR_TORCH_NO_MEMORY);
    for (size_t i = 0; i < 2 * e->pool_count; i++) {
        t->pools[i] = (pool){.number = (uint32_t)(i / 2), .is_small = i % 2 != 0};
    }
    for (size_t i = 0; t->config->is_recorded && i < e->first.segment_count; i++) {
        if (e->first.segments[i].device == t->config->device) {
            ASHLAR_TRY(add_segment(t, &e->first.segments[i], &behind));
        }
    }
    return ASHLAR_OK;
}

void ashlar__torch_end(ashlar_torch *t) {
    for (size_t i = 0; t->pools != NULL && i < 2 * t->events->pool_count; i++) {
        ashlar__host_free((void *)t->pools[i].cached);
    }
    for (block *b = t->made, *next; b != NULL; b = next) {
        next = b->made_before;
        ashlar__host_free(b);
    }
    ashlar__host_free(t->pools);
}
