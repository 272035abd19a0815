#include "allocator_impl.h"

#include "error.h"

static ashlar_status miscounted(const char *what, uint64_t counted, uint64_t found) {
    return counted == found
               ? ASHLAR_OK
               : ashlar_fail(ASHLAR_EFORMAT, "allocator check: %s is counted as %llu, found %llu",
                             what, (unsigned long long)counted, (unsigned long long)found);
}

/* The counters against each other: the equations above ashlar_stats. */
static ashlar_status check_equations_locked(const ashlar_allocator *a) {
    const ashlar_stats *s = &a->stats;
    uint64_t at_peak = 0;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_stats *t = &s->tags[tag];
        at_peak += a->is_at_peak ? t->live_bytes : t->at_peak_bytes;
        if (t->peak_bytes < t->live_bytes) {
            return miscounted("the peak of a tag", t->peak_bytes, t->live_bytes);
        }
    }
    if (s->live_bytes > s->live_peak_bytes || s->live_bytes > s->block_bytes ||
        a->heap.range.mapped_bytes > s->reserved_peak_bytes) {
        return ashlar_fail(ASHLAR_EFORMAT, "allocator check: a peak is below its value");
    }
    const uint64_t served = s->served_same_stream + s->served_idle + s->served_completed +
                            s->served_waited + s->served_mapped + s->served_after_sync;
    ashlar_status status = miscounted("the bytes at the peak", at_peak, s->live_peak_bytes);
    if (status == ASHLAR_OK) {
        status = miscounted("the number of allocations", s->alloc_count, served);
    }
    return status == ASHLAR_OK ? miscounted("the number of live blocks", s->live_blocks,
                                            s->alloc_count - s->free_count)
                               : status;
}

/* The counters against what the walk of the heap finds. */
static ashlar_status check_stats_locked(const ashlar_allocator *a) {
    uint64_t live = 0, live_blocks = 0, free_blocks = 0, tags[ASHLAR_TAG_COUNT] = {0};
    for (const ashlar_block *block = a->heap.first; block != NULL; block = block->next) {
        live += block->requested;
        live_blocks += block->requested != 0;
        free_blocks += block->state == ASHLAR_BLOCK_FREE;
        tags[block->tag] += block->requested;
    }
    uint64_t in_bins = ashlar_free_bins_count(&a->heap.idle);
    for (const ashlar_order *order = a->orders; order != NULL; order = order->next) {
        in_bins += ashlar_free_bins_count(&order->free);
        if (order->completed > order->recorded || order->last_tick > order->recorded) {
            return ashlar_fail(ASHLAR_EFORMAT,
                               "allocator check: a stream is ahead of its recordings");
        }
    }
    ashlar_status status = miscounted("live bytes", a->stats.live_bytes, live);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT && status == ASHLAR_OK; tag++) {
        status =
            miscounted(ashlar_tag_name((ashlar_tag)tag), a->stats.tags[tag].live_bytes, tags[tag]);
    }
    const struct {
        const char *what;
        uint64_t counted, found;
    } rest[] = {
        {"live blocks", a->stats.live_blocks, live_blocks},
        {"block bytes", a->stats.block_bytes, a->heap.used_bytes},
        {"free blocks in bins", in_bins, free_blocks},
        {"live blocks in the page map", ashlar_page_map_count(&a->heap.map), live_blocks},
    };
    for (size_t i = 0; i < sizeof rest / sizeof rest[0] && status == ASHLAR_OK; i++) {
        status = miscounted(rest[i].what, rest[i].counted, rest[i].found);
    }
    return status;
}

ashlar_status ashlar_allocator_check(ashlar_allocator *a) {
    pthread_mutex_lock(&a->lock);
    ashlar_status status = ashlar_heap_check(&a->heap);
    if (status == ASHLAR_OK) {
        status = check_stats_locked(a);
    }
    if (status == ASHLAR_OK) {
        status = check_equations_locked(a);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}
