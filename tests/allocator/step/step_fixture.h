/*
 * step_fixture.h - programs of allocations to be recorded and replayed, and a shadow of every block
 * that is live, for tests.
 *
 * The shadow proves two things of each block that is handed out: that it overlaps no other live
 * one, and, by work that is queued when it comes and when it goes, that nobody who had the memory
 * before is still at it.
 */
#ifndef ASHLAR_STEP_FIXTURE_H
#define ASHLAR_STEP_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/plan.h>

#include "allocator/core/core.h"
#include "allocator/base/random.h"

/* ---- what the allocator says ---- */

static inline ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

static inline uint64_t misses_now(void) {
    const ashlar_plan_stats stats = plans();
    return stats.miss_count;
}

static inline uint64_t driver_calls(void) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    return stats.driver_calls;
}

static inline uint64_t reserved_bytes(void) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    return stats.reserved_bytes;
}

static inline void begin_on(int stream, uint64_t key) {
    CHECK(ashlar_step_begin(allocator, streams[stream], key) == ASHLAR_OK);
}

static inline void begin(uint64_t key) {
    begin_on(0, key);
}

static inline void end(void) {
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

/* ---- random numbers ---- */

static uint64_t random_state;

static inline size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

/* ---- shadows ---- */

enum { SHADOWS = 512, GONE = -1 };

typedef struct shadow {
    unsigned char *ptr; /* NULL: none */
    size_t bytes;
    int stream;   /* of its last use; GONE: that stream is destroyed */
    bool is_home; /* that is the stream that it was taken for */
    bool is_kept; /* no other stream may have it: it is read by several, or a graph's */
    unsigned char value;
} shadow;

static shadow shadows[SHADOWS];
static unsigned char next_value;
static int captured_stream = GONE; /* has a pool: what is taken for it is a graph's */

static inline bool overlaps(const shadow *a, const shadow *b) {
    return a->ptr < b->ptr + b->bytes && b->ptr < a->ptr + a->bytes;
}

static inline void check_apart(const shadow *s) {
    int others = 0;
    for (int i = 0; i < SHADOWS; i++) {
        others += shadows[i].ptr != NULL && &shadows[i] != s && overlaps(&shadows[i], s);
    }
    CHECK(others == 0);
}

static inline void shadow_use(shadow *s) {
    s->value = ++next_value;
    queue_write(streams[s->stream], s->ptr, s->bytes, s->value);
}

/* A new block, or NULL: there is no memory. */
static inline shadow *shadow_take(size_t bytes, ashlar_tag tag, int stream) {
    void *ptr = NULL;
    shadow *s = shadows;
    while (s->ptr != NULL) {
        s++;
    }
    const ashlar_status status = ashlar_alloc_tagged(allocator, bytes, tag, streams[stream], &ptr);
    CHECK(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    if (status != ASHLAR_OK || s == &shadows[SHADOWS - 1]) {
        return NULL;
    }
    *s = (shadow){.ptr = ptr, .bytes = bytes, .stream = stream, .is_home = true};
    s->is_kept = stream == captured_stream;
    check_apart(s);
    shadow_use(s);
    return s;
}

static inline void shadow_verify(const shadow *s) {
    if (s->stream != GONE) {
        queue_verify(streams[s->stream], s->ptr, s->bytes, s->value);
    }
}

/* What is queued on stream `to` from now on comes after everything on `from`. */
static inline void order_streams(int from, int to) {
    const ashlar_driver_table *table = &driver->table;
    cu_event event = NULL;
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(table->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    CHECK(table->event_record(event, streams[from]) == CU_SUCCESS);
    CHECK(table->stream_wait_event(streams[to], event, 0) == CU_SUCCESS);
    CHECK(table->event_destroy(event) == CU_SUCCESS);
    ashlar__device_leave(device);
}

/* Its next use is on another stream, and comes after those before. */
static inline void shadow_move(shadow *s, int stream) {
    if (s->stream == GONE || s->stream == stream || s->is_kept) {
        return;
    }
    shadow_verify(s);
    order_streams(s->stream, stream);
    s->stream = stream;
    s->is_home = false;
    shadow_verify(s);
    shadow_use(s);
}

/* Another stream reads it meanwhile, which the allocator is told of. */
static inline void shadow_share(shadow *s, int stream) {
    if (s->stream == GONE || !s->is_home || s->is_kept) {
        return;
    }
    s->is_kept = true;
    order_streams(s->stream, stream);
    CHECK(ashlar_record_stream(allocator, s->ptr, streams[stream]) == ASHLAR_OK);
    queue_verify(streams[stream], s->ptr, s->bytes, s->value);
}

static inline void shadow_give(shadow *s) {
    shadow_verify(s);
    unsigned char *ptr = s->ptr;
    s->ptr = NULL;
    CHECK((s->is_home || s->stream == GONE
               ? ashlar_free(allocator, ptr)
               : ashlar_free_on(allocator, ptr, streams[s->stream])) == ASHLAR_OK);
}

static inline size_t shadow_count(void) {
    size_t count = 0;
    for (int i = 0; i < SHADOWS; i++) {
        count += shadows[i].ptr != NULL;
    }
    return count;
}

static inline void shadow_give_all(void) {
    for (int i = 0; i < SHADOWS; i++) {
        if (shadows[i].ptr != NULL) {
            shadow_give(&shadows[i]);
        }
    }
}

/* Destroy a stream of the fixture and make another, often by the same handle. */
static inline void renew_stream(int stream) {
    for (int i = 0; i < SHADOWS; i++) {
        shadow *s = &shadows[i];
        if (s->ptr != NULL && s->stream == stream && s->is_home) {
            shadow_verify(s);
            s->stream = GONE;
        } else if (s->ptr != NULL && s->stream == stream) {
            shadow_move(s, (stream + 1) % STREAMS);
        }
    }
    ashlar_stream_destroy(device, streams[stream]);
    CHECK(ashlar_stream_create(device, &streams[stream]) == ASHLAR_OK);
}

/* Everything that was queued has run, and found what its stream had left there. */
static inline void check_payloads(void) {
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
}

/* What set_up_steps() configures, where a case does not say otherwise. */
static inline ashlar_config steps_config(void) {
    ashlar_config config = {0};
    config.cache_bytes = 8 * MIB;
    return config;
}

static inline void tear_down_steps(void) {
    shadow_give_all();
    check_payloads();
    tear_down();
}

/* An adversarial device and an allocator. config: NULL, or as steps_config(), with changes. */
static inline bool set_up_steps(const char *memory, const ashlar_config *config, uint64_t seed) {
    char spec[96];
    const ashlar_config usual = steps_config();
    memset(shadows, 0, sizeof shadows);
    atomic_store(&payload_bad_count, 0);
    random_state = seed;
    (void)snprintf(spec, sizeof spec, "mode=adversarial,seed=%u,memory=%s", (unsigned)seed, memory);
    return set_up_device(spec) &&
           ashlar_allocator_create_with(device, config != NULL ? config : &usual, &allocator) ==
               ASHLAR_OK &&
           check_at_end(tear_down_steps);
}

/* ---- short steps by hand, on the first stream ---- */

#define WORK ASHLAR_TAG_WORKSPACE

static inline void check_misses(ashlar_plan_miss miss, uint64_t count) {
    const ashlar_plan_stats stats = plans();
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        CHECK_ZU(stats.misses[i], i == (int)miss ? count : 0);
    }
}

static inline shadow *get(size_t bytes, ashlar_tag tag) {
    return shadow_take(bytes, tag, 0);
}

static inline void put(shadow *s) {
    shadow_give(s);
}

/* Allocations of one stream after each other, each freed before the next. */
static inline void chain(const size_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put(get(bytes[i], WORK));
    }
}

#define CHAIN(...) \
    chain((const size_t[]){__VA_ARGS__}, sizeof(const size_t[]){__VA_ARGS__} / sizeof(size_t))

static inline bool set_up_plans(void) {
    return set_up_steps("1GiB", NULL, 1);
}

/* ---- programs ---- */

enum { ITEMS = 64, OUTLIVES = ITEMS + 1 };

/* One allocation of a program: freed when `end` of them have been made, or not in this step. */
typedef struct item {
    size_t bytes;
    ashlar_tag tag;
    int stream;
    uint32_t end;
} item;

typedef struct program {
    item items[ITEMS];
    uint32_t count;
} program;

static inline size_t draw_bytes(void) {
    static const size_t most[] = {2048, 16 * KIB, 100 * KIB};
    return 1 + draw(most[draw(3)]);
}

static inline uint32_t draw_end(uint32_t i, uint32_t count) {
    switch (draw(4)) {
    case 0: /* a workspace */
        return i + 1;
    case 1: /* kept by the forward part, freed by the backward one */
        return 2 * i < count ? count - i : i + 1;
    case 2:
        return i + 1 + (uint32_t)draw(count - i);
    default:
        return i + 1 + (uint32_t)draw(count - i < 5 ? count - i : 5);
    }
}

static inline item draw_item(uint32_t i, uint32_t count, int stream_count) {
    return (item){.bytes = draw_bytes(),
                  .tag = (ashlar_tag)draw(3),
                  .stream = (int)draw((size_t)stream_count),
                  .end = draw_end(i, count)};
}

static inline void draw_program(program *p, uint32_t count, int stream_count, size_t outlive_odds) {
    p->count = count;
    for (uint32_t i = 0; i < count; i++) {
        p->items[i] = draw_item(i, count, stream_count);
        if (outlive_odds > 0 && draw(outlive_odds) == 0) {
            p->items[i].end = OUTLIVES;
        }
    }
}

/* What else happens in a step: called before each allocation. */
typedef void (*between_fn)(void);
/* How a block is freed. */
typedef void (*give_fn)(shadow *s);

/* Free what is due when `made` allocations have been made, in any order. */
static inline void give_due(const program *p, shadow **held, uint32_t made, give_fn give_one) {
    const uint32_t first = p->count > 0 ? (uint32_t)draw(p->count) : 0;
    for (uint32_t k = 0; k < p->count; k++) {
        const uint32_t i = (first + k) % p->count;
        if (held[i] != NULL && i < made && p->items[i].end == made) {
            give_one(held[i]);
            held[i] = NULL;
        }
    }
}

/* Run a program as the calling thread's step or part of one. What outlives it stays a shadow. */
static inline void run_program(const program *p, give_fn give_one, between_fn between) {
    shadow *held[ITEMS] = {NULL};
    for (uint32_t i = 0; i <= p->count; i++) {
        give_due(p, held, i, give_one);
        if (between != NULL) {
            between();
        }
        if (i < p->count) {
            held[i] = shadow_take(p->items[i].bytes, p->items[i].tag, p->items[i].stream);
        }
    }
}

#endif /* ASHLAR_STEP_FIXTURE_H */
