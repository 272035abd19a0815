/*
 * model_world.h - what the model knows of an allocator: who lives where, who may still be at it,
 * and every statistic.
 *
 * A lane is an order in which work runs: the legacy default stream, each thread's own default
 * stream, and streams made by the program. All uses of a block are ordered by events, so a block
 * has one last lane, and readers beside it, which the allocator is told of.
 *
 * Nothing here prints: the first thing that is wrong is kept in `failure`, and ends the run.
 */
#ifndef ASHLAR_MODEL_WORLD_H
#define ASHLAR_MODEL_WORLD_H

#include "tests/check.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ashlar/allocator.h>

#include "allocator/core/allocator_impl.h"
#include "allocator/heap/size_class.h"
#include "tests/snapshot_sums.h"
#include "allocator/soft/soft.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
    DEVICES = 2,
    SLOTS = 96,
    THREADS = 3,
    LANE_LEGACY = 0,
    LANE_OF_THREAD = 1, /* and the next ones */
    LANE_MADE = LANE_OF_THREAD + THREADS,
    LANES = LANE_MADE + 5, /* every other one not ordered with the legacy stream */
    NO_LANE = -1,
};
#define DEVICE_MIB 48

/* What differs between runs. */
typedef struct scene {
    const char *name;
    const char *device;   /* of ASHLAR_SOFT, but for seed and size */
    uint64_t cache_bytes; /* of ashlar_config */
    bool virtual_memory;
    int threads;
    unsigned read_every; /* operations between two readings of the statistics */
    bool reclaims;       /* blocks are freed by a callback when memory is out */
} scene;

typedef struct model_block {
    unsigned char *ptr; /* NULL: the slot is empty */
    size_t bytes, block_bytes;
    int tag;
    int home;          /* lane it was taken for; NO_LANE: that stream is gone */
    int last;          /* lane that comes after all its uses but the readers' */
    unsigned readers;  /* bits: lanes that read it since; recorded, but home */
    unsigned recorded; /* bits: lanes given to ashlar_record_stream() */
    bool is_plain;     /* ashlar_free() will do: the last use is home's, or recorded */
    bool is_moved;     /* the last use was on a lane that is gone, `last` has waited for it */
    uint64_t stamp;
} model_block;

typedef struct world {
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream made[LANES]; /* from LANE_MADE on */
    cu_event events[LANES];
    model_block blocks[SLOTS];
    ashlar_stats want; /* only what the model knows */
    size_t limit_bytes;
    bool is_sealed;
    bool is_refusing; /* policy error */
    uint64_t driver_calls;
} world;

static world worlds[DEVICES];
static const scene *playing;
static char failure[320]; /* "": nothing is wrong so far */
static atomic_long stamp_bad_count;
static uint64_t next_stamp;
static size_t refused_count, warned_count;
static uint64_t peak_lag; /* the largest difference of a peak that was seen, in bytes */

static inline void wrong(const char *format, ...) {
    if (failure[0] == '\0') {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(failure, sizeof failure, format, args);
        va_end(args);
    }
}

#define EXPECT(expr) ((expr) ? (void)0 : wrong("line %d of %s: %s", __LINE__, __FILE__, #expr))

static inline const ashlar_range *range_of(const world *w) {
    return &w->allocator->heap.range;
}

static inline const ashlar_driver_table *table_of(const world *w) {
    return &w->device->driver->table;
}

static inline bool is_eager(void) {
    return strstr(playing->device, "adversarial") == NULL;
}

/* ---- lanes ---- */

static inline ashlar_stream handle_of(const world *w, int lane) {
    return lane == LANE_LEGACY ? NULL
           : lane < LANE_MADE  ? (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD
                               : w->made[lane];
}

/* A thread's own default stream has a name in that thread only. */
static inline bool can_name(int lane, int thread) {
    return lane < LANE_OF_THREAD || lane >= LANE_MADE || lane == LANE_OF_THREAD + thread;
}

/* What is queued on `to` from now on comes after everything on `from`. */
static inline void order_lanes(world *w, int from, int to) {
    if (from == to) {
        return;
    }
    EXPECT(ashlar__device_enter(w->device) == ASHLAR_OK);
    EXPECT(table_of(w)->event_record(w->events[from], handle_of(w, from)) == CU_SUCCESS);
    EXPECT(table_of(w)->stream_wait_event(handle_of(w, to), w->events[from], 0) == CU_SUCCESS);
    ashlar__device_leave(w->device);
}

/* ---- uses: a stamp in every 512 bytes, the unit in which blocks could overlap ---- */

enum { STAMP_STRIDE = 512, STAMP_STRIDE_INSIDE = 16 * 512 };
#define STAMP_EDGE (64 * KIB) /* at either end of a block; between them there are fewer */

typedef struct stamping {
    unsigned char *ptr;
    size_t bytes;
    uint64_t want; /* 0: whatever is there */
    uint64_t set;  /* 0: leave it */
} stamping;

static inline void stamp(void *args) {
    const stamping *s = args;
    long bad = 0;
    for (size_t at = 0; at < s->bytes;) {
        uint64_t found;
        memcpy(&found, s->ptr + at, sizeof found);
        bad += s->want != 0 && found != s->want;
        if (s->set != 0) {
            memcpy(s->ptr + at, &s->set, sizeof s->set);
        }
        const bool is_inside = at >= STAMP_EDGE && at + STAMP_EDGE < s->bytes;
        at += is_inside ? STAMP_STRIDE_INSIDE : STAMP_STRIDE;
    }
    atomic_fetch_add(&stamp_bad_count, bad != 0);
}

static inline void queue_use(world *w, const model_block *block, int lane, uint64_t want,
                             uint64_t set) {
    const stamping s = {block->ptr, block->block_bytes, want, set};
    const ashlar_stream stream = handle_of(w, lane);
    EXPECT(ashlar_launch(w->device, stream, stamp, &s, sizeof s) == ASHLAR_OK);
    if (strstr(playing->device, "clocks=on") != NULL) {
        EXPECT(ashlar__device_enter(w->device) == ASHLAR_OK);
        EXPECT(ashlar__soft_clock_use(ashlar__ptr_in(block->ptr), block->block_bytes, stream) ==
               ASHLAR_OK);
        ashlar__device_leave(w->device);
    }
}

/* The block was handed out for `lane`: all earlier uses come before. */
static inline void prove_owned(world *w, const model_block *block, int lane) {
    bool is_ordered = true;
    if (strstr(playing->device, "clocks=on") != NULL) {
        EXPECT(ashlar__device_enter(w->device) == ASHLAR_OK);
        EXPECT(ashlar__soft_clock_own(ashlar__ptr_in(block->ptr), block->block_bytes,
                                      handle_of(w, lane), &is_ordered) == ASHLAR_OK);
        ashlar__device_leave(w->device);
    }
    EXPECT(is_ordered);
}

/* ---- statistics ---- */

static inline void model_alloc(ashlar_stats *want, const model_block *block) {
    ashlar_tag_stats *const tags = want->tags;
    ashlar_tag_stats *const tag = &tags[block->tag];
    want->alloc_count++;
    want->live_blocks++;
    want->live_bytes += block->bytes;
    want->block_bytes += block->block_bytes;
    tag->live_bytes += block->bytes;
    tag->peak_bytes = tag->live_bytes > tag->peak_bytes ? tag->live_bytes : tag->peak_bytes;
    if (want->live_bytes > want->live_peak_bytes) {
        want->live_peak_bytes = want->live_bytes;
        for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
            tags[i].at_peak_bytes = tags[i].live_bytes;
        }
    }
}

static inline void model_free(ashlar_stats *want, const model_block *block) {
    want->free_count++;
    want->live_blocks--;
    want->live_bytes -= block->bytes;
    want->block_bytes -= block->block_bytes;
    want->tags[block->tag].live_bytes -= block->bytes;
}

/* As counters.h promises. */
static inline uint64_t allowed_lag(const world *w) {
    const uint64_t cache_bytes = w->allocator->cache_bytes;
    const bool is_exact = playing->threads == 1 || playing->read_every == 1;
    return is_exact ? 0 : (uint64_t)(THREADS - 1) * (cache_bytes + cache_bytes / 2);
}

static inline void compare_peak(const world *w, const char *what, uint64_t got, uint64_t want) {
    const uint64_t lag = got > want ? got - want : want - got;
    peak_lag = lag > peak_lag ? lag : peak_lag;
    if (lag > allowed_lag(w)) {
        wrong("the peak of %s is %llu, want %llu", what, (unsigned long long)got,
              (unsigned long long)want);
    }
}

static inline size_t free_memory(const world *w) {
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT(ashlar__device_enter(w->device) == ASHLAR_OK);
    EXPECT(table_of(w)->mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar__device_leave(w->device);
    return free_bytes;
}

static inline void compare_stats(world *w) {
    ashlar_stats got;
    ashlar_stats *want = &w->want;
    ashlar_allocator_get_stats(w->allocator, &got);
    EXPECT(got.live_bytes == want->live_bytes);
    EXPECT(got.block_bytes == want->block_bytes && got.live_blocks == want->live_blocks);
    EXPECT(got.alloc_count == want->alloc_count && got.free_count == want->free_count);
    compare_peak(w, "live bytes", got.live_peak_bytes, want->live_peak_bytes);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const char *name = ashlar_tag_name((ashlar_tag)tag);
        EXPECT(got.tags[tag].live_bytes == want->tags[tag].live_bytes);
        compare_peak(w, name, got.tags[tag].peak_bytes, want->tags[tag].peak_bytes);
        if (allowed_lag(w) == 0) {
            compare_peak(w, name, got.tags[tag].at_peak_bytes, want->tags[tag].at_peak_bytes);
        }
    }
    EXPECT(free_memory(w) == w->device->info.total_bytes - got.reserved_bytes);
    EXPECT(got.reserved_peak_bytes == want->reserved_peak_bytes);
    EXPECT(got.is_sealed == w->is_sealed && got.driver_calls >= w->driver_calls);
    w->driver_calls = got.driver_calls;
}

/* After every operation; growth within it can only have been up to the limit. */
static inline void compare_reserved(world *w) {
    const size_t mapped = range_of(w)->mapped_bytes;
    if (mapped > w->want.reserved_bytes) {
        EXPECT(mapped <= w->limit_bytes);
        EXPECT(!w->is_sealed || !w->is_refusing);
    }
    w->want.reserved_bytes = mapped;
    if (mapped > w->want.reserved_peak_bytes) {
        w->want.reserved_peak_bytes = mapped;
    }
}

static inline void compare_all(world *w) {
    compare_stats(w);
    if (ashlar_allocator_check(w->allocator) != ASHLAR_OK) {
        wrong("%s", ashlar_error_detail());
    }
    const char *difference = allocator_difference(w->allocator);
    if (difference != NULL) {
        wrong("statistics and snapshot disagree: %s", difference);
    }
}

/* ---- addresses ---- */

static inline size_t offset_of(const world *w, const model_block *block) {
    return (size_t)(ashlar__ptr_in(block->ptr) - range_of(w)->base);
}

static inline bool overlaps_live(const world *w, const model_block *block) {
    for (size_t i = 0; i < SLOTS; i++) {
        const model_block *other = &w->blocks[i];
        if (other != block && other->ptr != NULL && block->ptr < other->ptr + other->block_bytes &&
            other->ptr < block->ptr + block->block_bytes) {
            return true;
        }
    }
    return false;
}

/* The first live byte in [from, to), or `to`. */
static inline size_t next_live(const world *w, size_t from, size_t to) {
    for (size_t i = 0; i < SLOTS; i++) {
        const model_block *block = &w->blocks[i];
        const size_t at = block->ptr != NULL ? offset_of(w, block) : SIZE_MAX;
        if (at < to && at + block->block_bytes > from) {
            to = at > from ? at : from;
        }
    }
    return to;
}

/* Where the mapped memory without a hole that starts with handle i of a window ends. */
static inline size_t run_of_handles(const ashlar_window *at, size_t size, size_t i) {
    while (i < at->bytes / size && at->backing[i].is_mapped) {
        i++;
    }
    return at->offset + i * size;
}

/* The largest gap between live blocks in [start, end), which is mapped. */
static inline size_t largest_gap_in(const world *w, size_t start, size_t end) {
    size_t largest = next_live(w, start, end) - start;
    for (size_t k = 0; k < SLOTS; k++) {
        const model_block *block = &w->blocks[k];
        const size_t from = block->ptr != NULL ? offset_of(w, block) + block->block_bytes : 0;
        if (from > start && from < end) {
            const size_t gap = next_live(w, from, end) - from;
            largest = gap > largest ? gap : largest;
        }
    }
    return largest;
}

/* The largest mapped gap between live blocks. */
static inline size_t largest_gap(const world *w) {
    const size_t size = range_of(w)->handle_bytes;
    size_t largest = 0;
    for (const ashlar_window *at = w->allocator->heap.windows; at != NULL; at = at->above) {
        for (size_t i = 0; i < at->bytes / size; i++) {
            if (at->backing[i].is_mapped) {
                const size_t start = at->offset + i * size, end = run_of_handles(at, size, i);
                const size_t gap = largest_gap_in(w, start, end);
                largest = gap > largest ? gap : largest;
                i = (end - at->offset) / size - 1;
            }
        }
    }
    return largest;
}

/* Bytes of the handles, or segments, that no live block touches. */
static inline size_t idle_handle_bytes(const world *w) {
    const ashlar_range *range = range_of(w);
    size_t idle = range->spare_count * range->handle_bytes;
    for (const ashlar_window *at = w->allocator->heap.windows; at != NULL; at = at->above) {
        const size_t step = range->segments != NULL ? at->bytes : range->handle_bytes;
        for (size_t start = at->offset; start < at->offset + at->bytes; start += step) {
            const bool is_mapped =
                at->backing[(start - at->offset) / range->handle_bytes].is_mapped;
            idle += is_mapped && next_live(w, start, start + step) == start + step ? step : 0;
        }
    }
    return idle;
}

/*
 * Whether a request must be served: a gap between live blocks would do, or whole handles without
 * live blocks, together with what may be mapped.
 */
static inline bool must_fit(const world *w, size_t block_bytes) {
    const ashlar_range *range = range_of(w);
    const size_t need = (block_bytes + range->handle_bytes - 1) & ~(range->handle_bytes - 1);
    const size_t left =
        w->limit_bytes > range->mapped_bytes ? w->limit_bytes - range->mapped_bytes : 0;
    const size_t idle = idle_handle_bytes(w);
    if (largest_gap(w) >= block_bytes) {
        return true;
    }
    if (w->is_sealed && w->is_refusing) {
        return false;
    }
    /* Segments cannot move: they have to be freed first. */
    return range->segments != NULL ? range->mapped_bytes - idle + need <= w->limit_bytes
                                     : idle + left >= need;
}

#endif /* ASHLAR_MODEL_WORLD_H */
