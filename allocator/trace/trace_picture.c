#include "allocator/trace/trace_picture.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/trace/picture.h"
#include "allocator/trace/trace_pairs.h"

#define GAP_BYTES ((size_t)1 << 30)

static int compare_offsets(const void *a, const void *b) {
    const ashlar_picture_block *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int compare_begins(const void *a, const void *b) {
    const ashlar_picture_block *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static size_t list_blocks(const ashlar_trace_event *events, size_t count,
                          const ashlar_trace_pairs *pairs, ashlar_picture_block *blocks) {
    size_t block_count = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t end = pairs->partners[i];
        if (events[i].action == ASHLAR_TRACE_ALLOC && end != ASHLAR_TRACE_UNPAIRED) {
            blocks[block_count++] = (ashlar_picture_block){
                .begin = i,
                .end = end == ASHLAR_TRACE_LIVE ? count : end,
                .offset = events[i].address,
                .bytes = events[i].bytes,
                .tag = events[i].tag,
            };
        }
    }
    return block_count;
}

/* From addresses to offsets; a segment far from the others would leave no room to see any. */
static void close_gaps(ashlar_picture_block *blocks, size_t count) {
    size_t end = 0, shift = 0; /* end: of all blocks so far, before the shift */
    qsort(blocks, count, sizeof *blocks, compare_offsets);
    for (size_t i = 0; i < count; i++) {
        const size_t begin = blocks[i].offset;
        if (i == 0 || (begin > end && begin - end >= GAP_BYTES)) {
            shift += begin - end;
        }
        if (begin + blocks[i].bytes > end) {
            end = begin + blocks[i].bytes;
        }
        blocks[i].offset -= shift;
    }
    qsort(blocks, count, sizeof *blocks, compare_begins);
}

ashlar_status ashlar__trace_write_svg(const ashlar_trace_event *events, size_t count,
                                      const char *path, uint64_t *left_out) {
    ashlar_trace_pairs pairs = {0};
    ashlar_status status = ashlar__trace_pairs_find(events, count, &pairs);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_picture_block *blocks = ashlar__host_calloc(count + 1, sizeof *blocks); /* may be 0 */
    if (blocks == NULL) {
        status =
            ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to draw a trace of %zu events", count);
    } else {
        const ashlar_picture picture = {
            .title = "Blocks of the allocator, from its trace",
            .time_unit = "events",
            .blocks = blocks,
            .count = list_blocks(events, count, &pairs, blocks),
            .has_tags = true,
        };
        close_gaps(blocks, picture.count);
        status = ashlar__picture_write(&picture, path);
    }
    if (status == ASHLAR_OK) {
        *left_out = pairs.unpaired_count;
    }
    ashlar__host_free(blocks);
    ashlar__trace_pairs_finish(&pairs);
    return status;
}
