/*
 * snapshot_sums.h - whether every statistic is the sum over a snapshot, for tests.
 *
 * Both must be of the same moment: no other thread is at work.
 */
#ifndef ASHLAR_SNAPSHOT_SUMS_H
#define ASHLAR_SNAPSHOT_SUMS_H

#include <stdbool.h>

#include <ashlar/trace.h>

static inline void add_snapshot_block(ashlar_stats *sums, uint64_t *free_bytes,
                             const ashlar_snapshot_block *block) {
    switch (block->state) {
    case ASHLAR_SNAPSHOT_LIVE:
        sums->live_blocks++;
        sums->live_bytes += block->requested_bytes;
        sums->block_bytes += block->bytes;
        sums->tags[block->tag].live_bytes += block->requested_bytes;
        break;
    case ASHLAR_SNAPSHOT_PLANNED:
        sums->planned_bytes += block->bytes;
        *free_bytes += block->bytes;
        break;
    case ASHLAR_SNAPSHOT_CACHED:
        sums->cached_bytes += block->bytes;
        break;
    default:
        *free_bytes += block->bytes;
        break;
    }
}

/* Whether the blocks fill the segments, in the order of their addresses. */
static inline bool is_filled(const ashlar_snapshot *snapshot) {
    size_t next = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const ashlar_snapshot_segment *segment = &snapshot->segments[i];
        if (segment->bytes == 0 || segment->address < end) {
            return false;
        }
        end = segment->address + segment->bytes;
        for (uint64_t at = segment->address; at != end; next++) {
            const ashlar_snapshot_block *block = &snapshot->blocks[next];
            if (next == snapshot->block_count || block->address != at || block->bytes == 0 ||
                block->bytes > end - at || block->requested_bytes > block->bytes ||
                (block->requested_bytes != 0) != (block->state == ASHLAR_SNAPSHOT_LIVE)) {
                return false;
            }
            at += block->bytes;
        }
    }
    return next == snapshot->block_count;
}

/* What does not agree, or NULL. */
static inline const char *snapshot_difference(const ashlar_snapshot *snapshot,
                                              const ashlar_stats *stats) {
    ashlar_stats sums = {0};
    uint64_t free_bytes = 0;
    if (!is_filled(snapshot)) {
        return "the snapshot's own invariants";
    }
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        sums.reserved_bytes += snapshot->segments[i].bytes;
    }
    for (size_t i = 0; i < snapshot->block_count; i++) {
        add_snapshot_block(&sums, &free_bytes, &snapshot->blocks[i]);
    }
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        if (sums.tags[tag].live_bytes != stats->tags[tag].live_bytes) {
            return ashlar_tag_name((ashlar_tag)tag);
        }
    }
    return sums.reserved_bytes + stats->spare_bytes != stats->reserved_bytes ? "reserved_bytes"
           : sums.live_blocks != stats->live_blocks                          ? "live_blocks"
           : sums.live_bytes != stats->live_bytes                            ? "live_bytes"
           : sums.block_bytes != stats->block_bytes                          ? "block_bytes"
           : sums.cached_bytes != stats->cached_bytes                        ? "cached_bytes"
           : sums.planned_bytes != stats->planned_bytes                      ? "planned_bytes"
           : free_bytes != stats->reserved_bytes - stats->spare_bytes - stats->block_bytes -
                               stats->cached_bytes
               ? "what is free"
               : NULL;
}

/* The same of a fresh snapshot. */
static inline const char *allocator_difference(ashlar_allocator *allocator) {
    ashlar_stats stats;
    ashlar_snapshot *snapshot = NULL;
    ashlar_allocator_get_stats(allocator, &stats);
    if (ashlar_allocator_take_snapshot(allocator, &snapshot) != ASHLAR_OK) {
        return "there is no snapshot";
    }
    const char *difference = snapshot_difference(snapshot, &stats);
    ashlar_snapshot_free(snapshot);
    return difference;
}

#endif /* ASHLAR_SNAPSHOT_SUMS_H */
