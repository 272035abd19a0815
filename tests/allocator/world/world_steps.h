/*
 * world_steps.h - the acts on steps and plans, and those that only wait, ask, or are mistakes.
 */
#ifndef ASHLAR_WORLD_STEPS_H
#define ASHLAR_WORLD_STEPS_H

#include "tests/allocator/world/world_stuck.h"
#include "tests/allocator/world/world_warmup.h"

static inline void act_step_begin(store *s, const act *a) {
    if (!can_name(s->at, a->lane, a->thread)) {
        return;
    }
    TELL("CHECK(ashlar_step_begin(a%d, %s, %d) == ASHLAR_OK);", a->store, name_of(s->at, a->lane),
         a->key);
    EXPECT_OK(ashlar_step_begin(s->allocator, handle_of(s->at, a->lane), a->key));
    s->step_depth[a->thread]++;
    s->has_planned = true;
}

/* Without a step an error; and where memory is out the plan is left for later. */
static inline void act_step_end(store *s, const act *a) {
    TELL("(void)ashlar_step_end(a%d);", a->store);
    const ashlar_status status = ashlar_step_end(s->allocator);
    if (s->step_depth[a->thread] == 0) {
        EXPECT(status == (s->has_steps ? ASHLAR_EINVAL : ASHLAR_OK));
        return;
    }
    s->step_depth[a->thread]--;
    if (status != ASHLAR_OK && status != ASHLAR_ENOMEM) {
        wrong("step_end: %s", ashlar_error_detail());
    }
}

static inline void act_plan_build(store *s, const act *a) {
    TELL("(void)ashlar_plan_build(a%d);", a->store);
    const ashlar_status status = ashlar_plan_build(s->allocator);
    EXPECT(is_in_any_step(s) ? status == ASHLAR_EINVAL
                             : status == ASHLAR_OK || status == ASHLAR_ENOMEM);
}

static inline void act_plan_drop(store *s, const act *a) {
    TELL("(void)ashlar_plan_drop(a%d);", a->store);
    const ashlar_status status = ashlar_plan_drop(s->allocator);
    EXPECT(status == (is_in_any_step(s) ? ASHLAR_EINVAL : ASHLAR_OK));
}

static inline void act_plan_options(store *s, const act *a) {
    const ashlar_plan_options options = {.search_ms = 1,
                                         .build_after = a->choice % 4 == 0 ? ASHLAR_PLAN_BUILD_NEVER
                                                                           : a->choice % 4,
                                         .rerecord_after = a->choice / 4 % 2 == 0 ? 0 : 3};
    TELL("(void)ashlar_plan_set_options(a%d, &(ashlar_plan_options){.search_ms = 1, .build_after = "
         "%u, "
         ".rerecord_after = %u});",
         a->store, options.build_after, options.rerecord_after);
    EXPECT(ashlar_plan_set_options(s->allocator, &options) == ASHLAR_OK);
}

static inline void act_record_next(store *s, const act *a) {
    TELL("ashlar_plan_record_next(a%d, %d);", a->store, a->key);
    ashlar_plan_record_next(s->allocator, a->key);
}

/* ---- waits and questions ---- */

static inline void act_wait(store *s, const act *a) {
    if (can_name(s->at, a->lane, a->thread) && strict_captures() == 0) {
        TELL("wait_for(%s);", name_of(s->at, a->lane));
        EXPECT_OK(ashlar_stream_synchronize(s->at->device, handle_of(s->at, a->lane)));
    }
}

static inline void act_query(store *s, const act *a) {
    bool is_done;
    if (strict_captures() > 0 || (s->at->unasked & bit_of(a->lane)) != 0) {
        return;
    }
    TELL("/* query the event of %s */", name_of(s->at, a->lane));
    EXPECT_OK(ashlar_event_query(s->at->device, s->at->events[a->lane], &is_done));
}

static inline void act_order(store *s, const act *a) {
    if (can_name(s->at, a->lane, a->thread) && can_name(s->at, a->other, a->thread)) {
        order_lanes(s->at, a->other, a->lane);
    }
}

/* ---- mistakes ---- */

static inline bool is_some_block(const store *s, const void *ptr) {
    for (size_t i = 0; i < SLOTS; i++) {
        if (is_of(s, &world.blocks[i]) && world.blocks[i].ptr == ptr) {
            return true;
        }
    }
    return false;
}

/* What is no block's address: freed before, inside a block, nobody's. */
static inline void *draw_no_block(const store *s, const act *a) {
    const world_block *b = &world.blocks[a->slot];
    if (a->choice % 4 < 2) {
        return world.gone[a->choice / 4 % GONE_MAX];
    }
    return a->choice % 4 == 2 && is_of(s, b) && b->bytes > 512 ? (void *)(b->ptr + 512)
                                                               : (void *)&world;
}

static inline void act_illegal(store *s, const act *a) {
    void *ptr = draw_no_block(s, a), *out = NULL;
    if (ptr == NULL || is_some_block(s, ptr) || !can_name(s->at, a->lane, a->thread)) {
        return;
    }
    const ashlar_stream stream = handle_of(s->at, a->lane);
    TELL("/* frees and marks of what is no block of a%d: %p, on %s */", a->store, ptr,
         name_of(s->at, a->lane));
    EXPECT(ashlar_free(s->allocator, ptr) == ASHLAR_EPOINTER);
    EXPECT(ashlar_free_on(s->allocator, ptr, stream) == ASHLAR_EPOINTER);
    EXPECT(ashlar_record_stream(s->allocator, ptr, stream) == ASHLAR_EPOINTER);
    EXPECT(ashlar_alloc(s->allocator, 0, stream, &out) == ASHLAR_EINVAL && out == NULL);
}

/* ---- one act ---- */

/* At the program's end: the thread's steps end, and it frees what it can. */
static inline void act_close(store *unused, const act *a) {
    (void)unused;
    for (int i = 0; i < world.set->store_count; i++) {
        store *s = &world.stores[i];
        act end = *a;
        end.store = (uint8_t)i;
        act_capture_end(s, &end);
        while (s->step_depth[a->thread] > 0 && !is_beside_capture(s)) {
            act_step_end(s, &end);
        }
        act_release(s, &end);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (is_live(&world.blocks[i])) {
            (void)free_block(&world.blocks[i], a->thread, i % 2 == 0);
        }
    }
}

static inline bool moves_plans(const act *a) {
    return a->kind == ACT_STEP_BEGIN || a->kind == ACT_STEP_END || a->kind == ACT_PLAN_BUILD ||
           a->kind == ACT_PLAN_DROP;
}

/* What another allocator's capture may have refused, see is_beside_capture(). */
static inline bool may_be_refused(const act *a) {
    return a->kind == ACT_TRIM || a->kind == ACT_LIMIT || a->kind == ACT_RESERVE || moves_plans(a);
}

static inline void act_wait_all(store *s, const act *unused) {
    (void)unused;
    if (may_wait_all(s->at)) {
        wait_all(s->at);
    }
}

static inline void act_check(store *s, const act *unused) {
    (void)unused;
    compare_store(s);
}

/* The end of a thread: world_run.h. */
static inline void act_nothing(store *unused, const act *a) {
    (void)unused, (void)a;
}

static inline void perform(const act *a) {
    static void (*const performers[ACT_COUNT])(store *, const act *) = {
#define X(name, share, perform) perform,
        WORLD_ACT_MAP(X)
#undef X
    };
    store *s = &world.stores[a->store];
    if (may_be_refused(a) && is_beside_capture(s)) {
        return;
    }
    s->capture.has_moved_plans = s->capture.has_moved_plans || moves_plans(a);
    performers[a->kind](s, a);
}

static inline void perform_and_compare(const act *a, size_t number) {
    ashlar_device *abroad =
        world.stores[a->store].at == world.places ? world.places[1].device : world.places[0].device;
    const bool is_abroad = world.set->goes_abroad && a->choice % 3 == 0;
    world.now = a;
    end_promises(a);
    EXPECT(!is_abroad || ashlar__device_enter(abroad) == ASHLAR_OK);
    perform(a);
    if (is_abroad) {
        ashlar__device_leave(abroad);
    }
    compare_reserved(&world.stores[a->store]);
    if (number % 256 == 0) {
        compare_sums(&world.stores[a->store]);
    }
    const uint32_t bad = atomic_load_explicit(&world_bad_stamp, memory_order_relaxed);
    if (bad != 0) {
        wrong("work of the device found memory changed (of the block with %u in it)", bad % 251);
    }
}

#endif /* ASHLAR_WORLD_STEPS_H */
