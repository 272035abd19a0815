/*
 * world_stuck.h - a stream that is stuck: a receive, say, that ends when another stream has sent
 * what is computed next. No request may wait for it, on the host or on its stream, while memory can
 * be had that was freed before, or elsewhere.
 *
 * The stuck work only writes down that it ran. In adversarial mode nothing runs but what somebody
 * waits for, so that it runs exactly if a program would never end; and this one goes on.
 */
#ifndef ASHLAR_WORLD_STUCK_H
#define ASHLAR_WORLD_STUCK_H

#include "tests/allocator/world/world_graphs.h"

static struct {
    ashlar_driver_fn last_call;
    bool has_run, is_waited_for; /* a question may run work, too: nobody had to wait then */
    uintptr_t number;            /* of the act; what is left of earlier ones is not stuck */
} stuck;

static inline void note_call(ashlar_driver_fn fn) {
    if (fn != ASHLAR_DRIVER_FN_thread_exchange_capture_mode) { /* part of the call before it */
        stuck.last_call = fn;
    }
}

static inline void run_stuck(void *number) {
    if ((uintptr_t)number != stuck.number) {
        return;
    }
    stuck.has_run = true;
    stuck.is_waited_for = stuck.last_call != ASHLAR_DRIVER_FN_event_query &&
                          stuck.last_call != ASHLAR_DRIVER_FN_stream_query;
}

static inline void queue_stuck(place *at, int lane) {
    TELL("queue_stuck(%s); /* until what comes below is over */", name_of(at, lane));
    EXPECT_OK(ashlar__device_enter(at->device));
    EXPECT(ASHLAR_DRIVER_CALL(at->device->driver, launch_host_func,
                              (handle_of(at, lane), run_stuck, (void *)stuck.number)) ==
           CU_SUCCESS);
    ashlar__device_leave(at->device);
}

/* Blocks of whole handles, so that memory of several streams has to be gathered. */
static inline void fill_some(store *s, const act *a, uint64_t *random) {
    for (uint64_t left = ashlar__random_step_below(random, 12); left > 0; left--) {
        act one = *a;
        one.lane =
            (uint8_t)(LANE_MADE + ashlar__random_step_below(random, LANES_DRAWN - LANE_MADE));
        one.slot = (uint8_t)ashlar__random_step_below(random, FREE_SLOTS);
        one.bytes = (uint32_t)((1 + ashlar__random_step_below(random, 2)) * 2 * MIB);
        act_alloc(s, &one);
    }
}

/* A block that the stuck stream has last goes behind it; another must have nothing to do with it.
 */
static inline void free_some(const store *s, const act *a, int lane, uint64_t *random) {
    for (uint64_t left = ashlar__random_step_below(random, 6); left > 0; left--) {
        size_t slot = ashlar__random_step_below(random, FREE_SLOTS);
        while (slot < FREE_SLOTS && !is_live(&world.blocks[slot])) {
            slot++;
        }
        world_block *b = &world.blocks[slot % FREE_SLOTS];
        const bool is_apart = ((b->readers | bit_of(b->home)) & bit_of(lane)) == 0;
        if (is_live(b) && world.stores[b->store].at == s->at && (b->last == lane || is_apart)) {
            (void)free_block(b, a->thread, true);
        }
    }
}

/* Whether memory of the device was freed behind the stuck work: a stream may be made to wait for
 * that, since nobody can know that it is stuck. The host may wait for whichever is over first. */
static inline bool has_late_memory(const place *at) {
    bool has_some = false;
    for (int i = 0; i < world.set->store_count; i++) {
        const store *s = &world.stores[i];
        for (size_t k = 0; k < s->gap_count && s->at == at; k++) {
            has_some = has_some || (s->gaps[k].lanes & at->stuck) != 0;
        }
    }
    return has_some;
}

/* One request on another lane. True: its stream had no reason to wait for the stuck one. */
static inline bool ask_beside(store *s, const act *one) {
    const world_view v = view_of(s, one->lane);
    const bool fits = must_fit(&v, bytes_of_block(one->bytes));
    take_block(s, one);
    if (stuck.has_run && stuck.is_waited_for && fits) {
        wrong(
            "a request waits on the host for a stream that is stuck, though other memory is free");
    }
    return fits && !has_late_memory(s->at);
}

/* Several requests on other lanes; returns the lanes of those that need not have waited. */
static inline unsigned ask_some(store *s, const act *a, int lane, uint64_t *random) {
    unsigned free_lanes = 0, other_lanes = 0;
    for (uint64_t left = 1 + ashlar__random_step_below(random, 4); left > 0 && !stuck.has_run;
         left--) {
        act one = *a;
        const size_t most =
            ashlar__random_step_below(random, 2) == 0 ? 2 * MIB : world.set->memory_mib * MIB;
        one.lane = (uint8_t)ashlar__random_step_below(random, LANES_DRAWN);
        one.slot = (uint8_t)ashlar__random_step_below(random, FREE_SLOTS);
        one.bytes = (uint32_t)(16 + ashlar__random_step_below(random, most - 16));
        free_some(s, a, lane, random);
        if (one.lane == lane || !can_name(s->at, one.lane, a->thread) ||
            is_live(&world.blocks[one.slot])) {
            continue;
        }
        *(ask_beside(s, &one) ? &free_lanes : &other_lanes) |= bit_of(one.lane);
    }
    return other_lanes == 0 ? free_lanes : free_lanes & ~other_lanes & ~bit_of(LANE_LEGACY);
}

static inline bool may_be_stuck(const store *s) {
    const setting *set = world.set;
    bool is_watched = false;
    for (int i = 0; i < set->store_count; i++) {
        is_watched = is_watched || world.stores[i].is_watched;
    }
    return set->has_law && set->is_adversarial && !set->overlaps && !set->waits && set->has_vmm &&
           set->guard == 0 && !set->reclaims && !is_watched && !is_any_captured() &&
           !is_in_any_step(s);
}

static inline void act_stuck(store *s, const act *a) {
    const int lane = LANE_MADE + 1 + 2 * (a->lane % 2);
    ashlar_driver *driver = s->at->device->driver;
    uint64_t random = a->choice;
    if (!may_be_stuck(s)) {
        return;
    }
    fill_some(s, a, &random);
    TELL("wait_for(%s);", name_of(s->at, lane));
    EXPECT_OK(ashlar_stream_synchronize(s->at->device, handle_of(s->at, lane)));
    void (*const delay)(ashlar_driver_fn fn) = driver->delay;
    stuck.has_run = stuck.is_waited_for = false;
    stuck.number++;
    queue_stuck(s->at, lane);
    driver->delay = note_call;
    s->at->stuck = bit_of(lane);
    const unsigned lanes = ask_some(s, a, lane, &random);
    for (int i = 0; i < LANES_DRAWN; i++) {
        if ((lanes & bit_of(i)) != 0 && !stuck.has_run) {
            TELL("wait_for(%s);", name_of(s->at, i));
            EXPECT_OK(ashlar_stream_synchronize(s->at->device, handle_of(s->at, i)));
            if (stuck.has_run) {
                wrong("work comes behind a stream that is stuck, though other memory is free");
            }
        }
    }
    s->at->stuck = 0;
    stuck.number++;
    for (int i = 0; i < STORES; i++) {
        forget_gaps(&world.stores[i]);
    }
    driver->delay = delay;
}

#endif /* ASHLAR_WORLD_STUCK_H */
