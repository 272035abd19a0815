/* snapshot.c - making a snapshot of an allocator's memory, and checking that its blocks fill its
 * segments. */
#include "allocator/trace/snapshot.h"

#include <stdbool.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__snapshot_create(size_t segment_count, size_t block_count,
                                      ashlar_snapshot **out) {
    ashlar_snapshot *snapshot = ashlar__host_calloc(1, sizeof *snapshot);
    if (snapshot != NULL) { /* both counts may be 0 */
        snapshot->segments = ashlar__host_calloc(segment_count + 1, sizeof *snapshot->segments);
        snapshot->blocks = ashlar__host_calloc(block_count + 1, sizeof *snapshot->blocks);
    }
    if (snapshot == NULL || snapshot->segments == NULL || snapshot->blocks == NULL) {
        ashlar_snapshot_free(snapshot);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a snapshot of %zu blocks",
                            block_count);
    }
    snapshot->segment_count = segment_count;
    snapshot->block_count = block_count;
    *out = snapshot;
    return ASHLAR_OK;
}

void ashlar_snapshot_free(ashlar_snapshot *snapshot) {
    if (snapshot != NULL) {
        ashlar__host_free(snapshot->segments);
        ashlar__host_free(snapshot->blocks);
        ashlar__host_free(snapshot);
    }
}

static ashlar_status bad(const char *kind, size_t idx, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "snapshot check: %s %zu %s", kind, idx, what);
}

static ashlar_status check_block(const ashlar_snapshot_block *block, size_t idx) {
    if (block->bytes == 0) {
        return bad("block", idx, "has no bytes");
    }
    if ((unsigned)block->state >= ASHLAR_SNAPSHOT_STATE_COUNT ||
        (unsigned)block->tag >= ASHLAR_TAG_COUNT) {
        return bad("block", idx, "has an unknown state or tag");
    }
    if ((block->requested_bytes != 0) != (block->state == ASHLAR_SNAPSHOT_LIVE) ||
        block->requested_bytes > block->bytes) {
        return bad("block", idx, "has requested bytes that its state or size does not allow");
    }
    return ASHLAR_OK;
}

/* Check that the blocks from *next on fill the segment, and move *next behind them. */
static ashlar_status check_segment(const ashlar_snapshot *snapshot, size_t idx, size_t *next) {
    const ashlar_snapshot_segment *segment = &snapshot->segments[idx];
    if (segment->bytes == 0 || segment->bytes > UINT64_MAX - segment->address) {
        return bad("segment", idx, "has no bytes, or wraps");
    }
    uint64_t filled = 0;
    for (; filled < segment->bytes && *next < snapshot->block_count; ++*next) {
        const ashlar_snapshot_block *block = &snapshot->blocks[*next];
        ASHLAR_CHECK2(*next >= idx); /* each earlier segment has a block */
        ASHLAR_TRY(check_block(block, *next));
        if (block->address != segment->address + filled) {
            return bad("block", *next, "does not begin where the one before it ends");
        }
        if (block->bytes > segment->bytes - filled) {
            return bad("block", *next, "reaches over the end of its segment");
        }
        filled += block->bytes;
        ASHLAR_CHECK2(filled <= segment->bytes);
    }
    return filled == segment->bytes ? ASHLAR_OK : bad("segment", idx, "is not filled by blocks");
}

ashlar_status ashlar__snapshot_check(const ashlar_snapshot *snapshot) {
    size_t next = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        const ashlar_snapshot_segment *segment = &snapshot->segments[i];
        if (segment->address < end) {
            return bad("segment", i, "begins before the end of the one before it");
        }
        ASHLAR_TRY(check_segment(snapshot, i, &next));
        end = segment->address + segment->bytes;
    }
    ASHLAR_CHECK2(next <= snapshot->block_count);
    return next == snapshot->block_count ? ASHLAR_OK : bad("block", next, "is in no segment");
}
