/*
 * world_state.h - what the model knows: devices, streams, allocators, blocks, and how each call is
 * told as a line of C.
 *
 * A lane is an order in which work runs: the legacy default stream, each thread's own default
 * stream, and streams made by the program. The program orders all uses of a block by events, but
 * for readers that the allocator is told of; so a block has one last lane, and readers beside it.
 *
 * Nothing here prints: the first thing that is wrong is kept in `failure`, and ends the program.
 */
#ifndef ASHLAR_WORLD_STATE_H
#define ASHLAR_WORLD_STATE_H

#include <stdarg.h>
#include <stdio.h>

#include <ashlar/allocator.h>
#include <ashlar/plan.h>

#include "allocator/base/random.h"
#include "allocator/core/core.h"
#include "allocator/heap/block.h"
#include "tests/allocator/world/world_program.h"
#include "tests/snapshot_sums.h"

typedef struct world_block {
    unsigned char *ptr; /* NULL: the slot is empty */
    size_t bytes, block_bytes;
    uint32_t stamp;
    int store, tag;
    int home;          /* lane it was taken for; NO_LANE: that stream is gone */
    int last;          /* lane that comes after all its uses but the readers'; NO_LANE: gone */
    unsigned readers;  /* bits: lanes that read it since; recorded, but home */
    unsigned recorded; /* bits: lanes given to ashlar_record_stream(), but home */
    unsigned told;     /* the same with home: watched streams live until the free */
    bool is_plain;     /* ashlar_free() will do: the last use is home's, or recorded */
    bool is_frozen;    /* somebody who used it is gone, so nobody here can come behind that */
    bool is_of_pool;   /* taken in a capture whose graph is still there */
    bool is_of_step;   /* taken in a step, so perhaps in the memory of a plan */
} world_block;

enum { WORKS_MAX = 1 << 16, GONE_MAX = 16, GAPS_MAX = 128 };

typedef struct place {
    ashlar_device *device;
    ashlar_stream made[LANES]; /* from LANE_MADE on */
    unsigned names[LANES];     /* of those, in what is told */
    ashlar_event events[LANES];
    unsigned captured; /* bits: lanes that take part in a capture */
    unsigned unasked;  /* bits: those whose event was last recorded in one */
    unsigned stuck;    /* bits: one that waits for what is queued next; world_stuck.h */
} place;

/* Memory whose last uses may not be over, and cannot be asked for now. */
typedef struct world_gap {
    size_t offset, bytes;
    unsigned lanes; /* bits: those that used it */
    bool is_of_pool;
} world_gap;

typedef struct world_capture {
    bool is_on;
    bool is_settled; /* all that was idle when it began was known to be */
    int lane;
    int thread; /* that ends it, too, but in relaxed mode */
    unsigned mode;
    unsigned lanes; /* bits: that and the fork's */
    size_t plan_bytes;
    bool has_moved_plans; /* since it began; what they freed may not be known to be idle */
} world_capture;

typedef struct store {
    ashlar_allocator *allocator;
    place *at;
    ashlar_stats want; /* only what the model knows */
    size_t limit_bytes, reserved_bytes;
    unsigned step_depth[THREADS];
    bool is_sealed, is_refusing, is_watched;
    bool has_planned;     /* a step was begun, so that plans may hold memory */
    unsigned warm_choice; /* of the warm-up that its steps are of; 0: there was none */
    bool is_steady;       /* it was called so, and nothing else happened since */
    uint64_t steady_calls;
    size_t steady_reserved;
    ashlar_graph_pool *pool; /* NULL: there is no graph */
    cu_graph_exec exec;
    int graph_lane; /* comes behind all launches */
    world_capture capture;
    world_gap gaps[GAPS_MAX]; /* freed in captures, or of graphs */
    size_t gap_count;
    bool has_steps; /* no guard mode, and thread caches: else steps are nothing */
} store;

static struct {
    place places[PLACES];
    store stores[STORES];
    world_block blocks[SLOTS];
    void *gone[GONE_MAX]; /* addresses of blocks that were freed */
    size_t gone_count;
    atomic_uint work_count;
    unsigned stream_count; /* that were ever made */
    const setting *set;
    const act *now;
    bool tells;
    size_t refused_count, warm_count, steady_count;
} world;

static world_work works[WORKS_MAX];
static uint32_t next_stamp; /* never the same twice, in all programs of a process */
static char failure[320];   /* "": nothing is wrong so far */

static inline void wrong(const char *format, ...) {
    if (failure[0] == '\0') {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(failure, sizeof failure, format, args);
        va_end(args);
    }
}

static inline const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

#define EXPECT(expr) \
    ((expr) ? (void)0 : wrong("%s (line %d of %s)", #expr, __LINE__, base_name(__FILE__)))
#define EXPECT_OK(call) \
    ((call) == ASHLAR_OK ? (void)0 : wrong("%s: %s", #call, ashlar_error_detail()))

/* ---- telling ---- */

/* One line of C, before the call is made: what comes last is the call that did not return. */
static inline void tell_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("#     ");
    (void)vprintf(format, args);
    printf("\n");
    (void)fflush(stdout);
    va_end(args);
}

#define TELL(...) (world.tells ? tell_line(__VA_ARGS__) : (void)0)

/* A stream's name in what is told; good for the next three calls. */
static inline const char *name_of(const place *at, int lane) {
    static char names[4][24];
    static int turn;
    char *name = names[turn++ % 4];
    if (lane == LANE_LEGACY) {
        return "NULL";
    }
    if (lane < LANE_MADE) {
        return "PER_THREAD";
    }
    (void)snprintf(name, sizeof names[0], "s%u", at->names[lane]);
    return name;
}

static inline bool is_in_any_step(const store *s) {
    return s->has_steps && s->step_depth[0] + s->step_depth[1] + s->step_depth[2] > 0;
}

static inline int store_number(const store *s) {
    return (int)(s - world.stores);
}

static inline int place_number(const place *at) {
    return (int)(at - world.places);
}

static inline int slot_of(const world_block *b) {
    return (int)(b - world.blocks);
}

/* ---- lanes ---- */

static inline ashlar_stream handle_of(const place *at, int lane) {
    return lane == LANE_LEGACY ? NULL
           : lane < LANE_MADE  ? (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD
                               : at->made[lane];
}

static inline unsigned bit_of(int lane) {
    return lane == NO_LANE ? 0 : 1u << lane;
}

static inline bool is_blocking(int lane) {
    return lane >= LANE_MADE && (lane - LANE_MADE) % 2 == 0;
}

/* The lanes that a capture shuts: those in it and, if one of them is a blocking stream, the legacy
 * one. */
static inline unsigned shut_lanes(const place *at) {
    unsigned shut = at->captured;
    for (int lane = LANE_MADE; lane < LANES; lane++) {
        shut |= is_blocking(lane) && (at->captured & bit_of(lane)) != 0 ? bit_of(LANE_LEGACY) : 0;
    }
    return shut;
}

/* A thread's own default stream has a name in that thread only. */
static inline bool can_name(const place *at, int lane, int thread) {
    const bool is_own =
        lane < LANE_OF_THREAD || lane >= LANE_MADE || lane == LANE_OF_THREAD + thread;
    return is_own && (shut_lanes(at) & bit_of(lane)) == 0;
}

/* How many captures forbid the host to wait. */
static inline int strict_captures(void) {
    int count = 0;
    for (int i = 0; i < STORES; i++) {
        const world_capture *c = &world.stores[i].capture;
        count += c->is_on && c->mode != CU_CAPTURE_RELAXED;
    }
    return count;
}

static inline bool is_any_captured(void) {
    return (world.places[0].captured | world.places[1].captured) != 0;
}

/* Another allocator of the device has a capture. A stream in it has no pool of this one's, so that
 * calls that would use the stream may be refused. */
static inline bool is_beside_capture(const store *s) {
    return (s->at->captured & ~s->capture.lanes) != 0;
}

/* What is queued on `to` from now on comes after everything on `from`. */
static inline void order_lanes(place *at, int from, int to) {
    if (from != to) {
        TELL("order_behind(%s, %s);", name_of(at, from), name_of(at, to));
        EXPECT_OK(ashlar_event_record(at->device, at->events[from], handle_of(at, from)));
        at->unasked &= ~bit_of(from);
        at->unasked |= at->captured & bit_of(from);
        EXPECT_OK(ashlar_stream_wait(at->device, handle_of(at, to), at->events[from]));
    }
}

/* Order `lane` behind all `lanes`. False: this thread has no name for one of them. */
static inline bool come_after(place *at, unsigned lanes, int lane, int thread) {
    for (int from = 0; from < LANES; from++) {
        if ((lanes >> from & 1) != 0 && !can_name(at, from, thread)) {
            return false;
        }
    }
    for (int from = 0; from < LANES; from++) {
        if ((lanes >> from & 1) != 0) {
            order_lanes(at, from, lane);
        }
    }
    return true;
}

static inline void wait_all(place *at) {
    TELL("CHECK(ashlar__device_synchronize(device%d) == ASHLAR_OK);", place_number(at));
    EXPECT_OK(ashlar__device_synchronize(at->device));
}

/* A capture of the device, or one that forbids waits, would be spoilt. */
static inline bool may_wait_all(const place *at) {
    return at->captured == 0 && strict_captures() == 0;
}

static inline void make_lane(place *at, int lane) {
    const unsigned flags = is_blocking(lane) ? CU_STREAM_BLOCKING : CU_STREAM_UNORDERED;
    at->names[lane] = world.stream_count++;
    TELL("ashlar_stream %s = new_stream(%s); /* device %d */", name_of(at, lane),
         flags == CU_STREAM_BLOCKING ? "CU_STREAM_BLOCKING" : "CU_STREAM_UNORDERED",
         place_number(at));
    EXPECT_OK(ashlar__device_enter(at->device));
    EXPECT(at->device->driver->table.stream_create(&at->made[lane], flags) == CU_SUCCESS);
    ashlar__device_leave(at->device);
}

/* ---- uses ---- */

static inline void queue_work(place *at, const world_work *w, int lane) {
    const ashlar_stream stream = handle_of(at, lane);
    const unsigned i = atomic_fetch_add(&world.work_count, 1);
    if (i >= WORKS_MAX) {
        wrong("more work than there is room for");
        return;
    }
    works[i] = *w;
    EXPECT_OK(ashlar__device_enter(at->device));
    EXPECT(ASHLAR_DRIVER_CALL(at->device->driver, launch_host_func,
                              (stream, world_work_run, &works[i])) == CU_SUCCESS);
    ashlar__device_leave(at->device);
}

/* The block's first use: whatever was there may be, but with zero=on. */
static inline void queue_first(store *s, const world_block *b) {
    const bool is_clear = world.set->zeroes;
    TELL("queue_%swrite(%s, p[%d], %zu, %u);", is_clear ? "clear_then_" : "",
         name_of(s->at, b->home), slot_of(b), b->bytes, b->stamp % 251);
    queue_work(s->at, &(world_work){b->ptr, b->bytes, 0, b->stamp, is_clear}, b->home);
}

static inline void queue_verify(store *s, const world_block *b, int lane) {
    TELL("queue_verify(%s, p[%d], %zu, %u);", name_of(s->at, lane), slot_of(b), b->bytes,
         b->stamp % 251);
    queue_work(s->at, &(world_work){b->ptr, b->bytes, b->stamp, 0, false}, lane);
}

/* What was written last is found, and something else is written. */
static inline void queue_rewrite(store *s, world_block *b, int lane) {
    const uint32_t before = b->stamp;
    b->stamp = ++next_stamp;
    TELL("queue_verify(%s, p[%d], %zu, %u);", name_of(s->at, lane), slot_of(b), b->bytes,
         before % 251);
    TELL("queue_write(%s, p[%d], %zu, %u);", name_of(s->at, lane), slot_of(b), b->bytes,
         b->stamp % 251);
    queue_work(s->at, &(world_work){b->ptr, b->bytes, before, b->stamp, false}, lane);
}

#endif /* ASHLAR_WORLD_STATE_H */
