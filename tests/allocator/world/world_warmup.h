/*
 * world_warmup.h - the warm-up in the middle of everything, and steps of all lengths behind it:
 * what is called steady takes no memory in any order, as long as nothing else happens.
 */
#ifndef ASHLAR_WORLD_WARMUP_H
#define ASHLAR_WORLD_WARMUP_H

#include <ashlar/plan.h>

#include "tests/allocator/world/world_graphs.h"

enum { WARM_BLOCKS = 10, WARM_LENGTHS = 5, WARM_KEY = 64 };

/* One block of a step: which step has it, how large, and who has it last. */
typedef struct warm_block {
    size_t base, slope, least_length;
    int lane, next, third; /* of next and third: -1: the block stays at home, is not marked */
    ashlar_tag tag;
    size_t end; /* freed when so many have been taken */
    void *ptr;
    size_t bytes;
    uint32_t stamp;
} warm_block;

typedef struct warm_program {
    store *at;
    size_t count, lengths;
    warm_block blocks[WARM_BLOCKS];
    bool works;
} warm_program;

static inline int draw_warm_lane(uint64_t *random) {
    return LANE_MADE + (int)ashlar__random_step_below(random, LANES_DRAWN - LANE_MADE);
}

static inline void draw_warm(warm_program *w, store *s, unsigned choice) {
    uint64_t random = ashlar__random_mix(choice);
    *w = (warm_program){.at = s};
    w->count = 1 + ashlar__random_step_below(&random, WARM_BLOCKS);
    w->lengths = 1 + ashlar__random_step_below(&random, WARM_LENGTHS);
    const bool is_large = ashlar__random_step_below(&random, 3) == 0;
    for (size_t i = 0; i < w->count; i++) {
        warm_block *b = &w->blocks[i];
        b->base = 16 + ashlar__random_step_below(&random, is_large ? 2 * MIB : 64 * KIB);
        b->slope = ashlar__random_step_below(&random, 2) * b->base / 3;
        b->least_length = ashlar__random_step_below(&random, 4) == 0 ? 2 : 0;
        b->lane = draw_warm_lane(&random);
        b->next = ashlar__random_step_below(&random, 3) == 0 ? draw_warm_lane(&random) : NO_LANE;
        b->third = ashlar__random_step_below(&random, 3) == 0 ? draw_warm_lane(&random) : NO_LANE;
        b->tag = (ashlar_tag)ashlar__random_step_below(&random, ASHLAR_TAG_COUNT);
        b->end = i + 1 + ashlar__random_step_below(&random, w->count - i);
    }
}

static inline ashlar_status give_warm(warm_program *w, warm_block *b) {
    store *s = w->at;
    place *at = s->at;
    void *ptr = b->ptr;
    const world_work verify = {b->ptr, b->bytes, b->stamp, 0, false};
    ashlar_status status = ASHLAR_OK;
    b->ptr = NULL;
    if (ptr == NULL) {
        return ASHLAR_OK;
    }
    if (w->works) {
        EXPECT(shadow_visit(ptr, b->bytes, SHADOW_LIVE, true, b->stamp | 1u << 31, true, 0));
    }
    if (b->third != NO_LANE) {
        order_lanes(at, b->lane, b->third);
        TELL("CHECK(ashlar_record_stream(a%d, w[%d], %s) == ASHLAR_OK);", store_number(s),
             (int)(b - w->blocks), name_of(at, b->third));
        status = ashlar_record_stream(s->allocator, ptr, handle_of(at, b->third));
        if (w->works) {
            queue_work(at, &verify, b->third);
        }
    }
    const int last = b->next != NO_LANE ? b->next : b->lane;
    order_lanes(at, b->lane, last);
    if (w->works) {
        queue_work(at, &verify, last);
    }
    TELL("CHECK(ashlar_free%s(a%d, w[%d]%s%s) == ASHLAR_OK);", b->next != NO_LANE ? "_on" : "",
         store_number(s), (int)(b - w->blocks), b->next != NO_LANE ? ", " : "",
         b->next != NO_LANE ? name_of(at, last) : "");
    return status != ASHLAR_OK  ? status
           : b->next != NO_LANE ? ashlar_free_on(s->allocator, ptr, handle_of(at, last))
                                : ashlar_free(s->allocator, ptr);
}

static inline ashlar_status take_warm(warm_program *w, warm_block *b, size_t length) {
    store *s = w->at;
    b->bytes = b->base + b->slope * length;
    TELL("CHECK(ashlar_alloc_tagged(a%d, %zu, (ashlar_tag)%d, %s, &w[%d]) == ASHLAR_OK);",
         store_number(s), b->bytes, (int)b->tag, name_of(s->at, b->lane), (int)(b - w->blocks));
    const ashlar_status status =
        ashlar_alloc_tagged(s->allocator, b->bytes, b->tag, handle_of(s->at, b->lane), &b->ptr);
    if (status == ASHLAR_OK && w->works) {
        b->stamp = ++next_stamp;
        EXPECT(shadow_visit(b->ptr, b->bytes, SHADOW_LIVE, true, 0, true, b->stamp | 1u << 31));
        queue_work(s->at, &(world_work){b->ptr, b->bytes, 0, b->stamp, world.set->zeroes}, b->lane);
    }
    return status;
}

/* All of a step of that length; after a failure what it has is freed all the same. */
static inline ashlar_status run_warm(warm_program *w, size_t length) {
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i <= w->count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (w->blocks[k].end == i || (i == w->count)) {
                const ashlar_status freed = give_warm(w, &w->blocks[k]);
                status = status == ASHLAR_OK ? freed : status;
            }
        }
        if (i < w->count && status == ASHLAR_OK && length >= w->blocks[i].least_length) {
            status = take_warm(w, &w->blocks[i], length);
        }
    }
    return status;
}

static inline ashlar_status warm_step(void *user, size_t length) {
    warm_program *w = user;
    w->works = true;
    return run_warm(w, length);
}

static inline ashlar_status warm_dry_run(void *user, size_t length) {
    warm_program *w = user;
    w->works = false;
    return run_warm(w, length);
}

/* What the steps counted is taken over; what is live must be as before. */
static inline void adopt_sums(store *s) {
    ashlar_stats got;
    ashlar_allocator_get_stats(s->allocator, &got);
    EXPECT(got.live_bytes == s->want.live_bytes && got.live_blocks == s->want.live_blocks);
    s->want.alloc_count = got.alloc_count;
    s->want.free_count = got.free_count;
    s->want.live_peak_bytes = got.live_peak_bytes;
    for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
        EXPECT(got.tags[i].live_bytes == s->want.tags[i].live_bytes);
        s->want.tags[i].peak_bytes = got.tags[i].peak_bytes;
        s->want.tags[i].at_peak_bytes = got.tags[i].at_peak_bytes;
    }
}

static inline ashlar_warmup_options warm_options(const store *s, unsigned choice, void *user) {
    return (ashlar_warmup_options){.stream = s->at->made[LANE_MADE],
                                   .min_length = 1,
                                   .max_length = ((const warm_program *)user)->lengths,
                                   .length_range_count = choice / 8 % 3,
                                   .key = WARM_KEY,
                                   .without_plan = choice % 2 == 0,
                                   .step = choice / 2 % 2 == 0 ? warm_step : NULL,
                                   .dry_run = warm_dry_run,
                                   .user = user};
}

static inline bool may_warm_up(const store *s) {
    return !s->is_watched && s->pool == NULL && world.set->guard == 0 && s->has_steps &&
           !is_in_any_step(s) && !is_any_captured();
}

static inline void act_warmup(store *s, const act *a) {
    warm_program w;
    ashlar_warmup_report report = {.is_steady = false};
    if (!may_warm_up(s)) {
        return;
    }
    draw_warm(&w, s, a->choice);
    s->has_planned = true;
    const ashlar_warmup_options options = warm_options(s, a->choice, &w);
    TELL("/* warm a%d up: lengths 1 to %zu, %zu buckets, without_plan %d; the calls of step (%d) "
         "and "
         "dry run: */",
         a->store, options.max_length, options.length_range_count, options.without_plan,
         options.step != NULL);
    const ashlar_status status = ashlar_allocator_warmup(s->allocator, &options, &report);
    if (status != ASHLAR_OK && status != ASHLAR_ENOMEM) {
        wrong("warmup: %s", ashlar_error_detail());
    }
    adopt_sums(s);
    s->reserved_bytes = s->is_sealed ? s->reserved_bytes : range_of(s)->mapped_bytes;
    s->is_sealed = s->is_sealed || status == ASHLAR_OK;
    s->warm_choice = status == ASHLAR_OK ? a->choice : 0;
    world.warm_count += status == ASHLAR_OK;
    world.steady_count += report.is_steady;
    s->is_steady = report.is_steady && !world.set->reclaims;
    s->steady_calls = ashlar__driver_calls(s->at->device->driver, ASHLAR_DRIVER_MEMORY);
    s->steady_reserved = range_of(s)->mapped_bytes;
}

/* A step of some length, of what was warmed up. */
static inline void act_warm_step(store *s, const act *a) {
    warm_program w;
    if (s->warm_choice == 0 || !may_warm_up(s)) {
        return;
    }
    draw_warm(&w, s, s->warm_choice);
    const ashlar_warmup_options options = warm_options(s, s->warm_choice, &w);
    const size_t length = 1 + a->choice % w.lengths;
    TELL("/* a step of length %zu of a%d, steady %d: */", length, a->store, s->is_steady);
    EXPECT_OK(ashlar_step_begin(s->allocator, options.stream, ashlar_warmup_key(&options, length)));
    const ashlar_status status = warm_step(&w, length);
    const ashlar_status ended = ashlar_step_end(s->allocator);
    EXPECT(status == ASHLAR_OK || (status == ASHLAR_ENOMEM && !s->is_steady));
    EXPECT(ended == ASHLAR_OK || (ended == ASHLAR_ENOMEM && !s->is_steady));
    adopt_sums(s);
    if (s->is_steady) {
        const uint64_t calls = ashlar__driver_calls(s->at->device->driver, ASHLAR_DRIVER_MEMORY);
        if (calls != s->steady_calls || range_of(s)->mapped_bytes != s->steady_reserved) {
            wrong("a steady step made %llu calls and took %lld bytes",
                  (unsigned long long)(calls - s->steady_calls),
                  (long long)range_of(s)->mapped_bytes - (long long)s->steady_reserved);
        }
    }
}

/* What else happens ends the promise. */
static inline void end_promises(const act *a) {
    const bool is_quiet = a->kind == ACT_WARM_STEP || a->kind == ACT_WAIT ||
                          a->kind == ACT_WAIT_ALL || a->kind == ACT_ORDER || a->kind == ACT_QUERY ||
                          a->kind == ACT_USE;
    for (int i = 0; i < STORES && !is_quiet; i++) {
        world.stores[i].is_steady = false;
    }
}

#endif /* ASHLAR_WORLD_WARMUP_H */
