/*
 * test_stream_state.c - one stream's event by itself: what a wait learns while the lock is not
 * held.
 */
#include "tests/allocator/device/device_fixture.h"

#include "allocator/base/lock.h"
#include "allocator/heap/stream_state.h"

static ashlar_driver_client client;
static ashlar_stream_state state;
static uint64_t recorded;
static ashlar_lock lock = ASHLAR_LOCK(ASHLAR_RANK_ALLOCATOR);

static void tear_down_order(void) {
    ashlar__stream_state_finish(&state, &client);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    tear_down_device();
}

static bool set_up_order(void) {
    if (!set_up_device("mode=adversarial,memory=16MiB")) {
        return false;
    }
    client = (ashlar_driver_client){.device = device};
    state = (ashlar_stream_state){.stream = streams[0]};
    recorded = 0;
    return check_at_end(tear_down_order);
}

CASE_WITH(only_a_tick_without_a_later_recording_is_covered_by_a_new_one, set_up_order()) {
    CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
    CHECK(recorded == 1 && state.recorded == 1 && state.event != NULL);
    CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
    CHECK(recorded == 1 && state.recorded == 1);
    CHECK(ashlar__stream_state_cover(&state, &client, 1, &recorded) == ASHLAR_OK);
    CHECK(recorded == 2 && state.recorded == 2 && state.completed == 0);
    CHECK(client.calls == 5); /* one creation, two questions for captures, two recordings */
}

CASE_WITH(a_use_is_past_after_the_recording_behind_it, set_up_order()) {
    CHECK(ashlar__stream_state_is_past(NULL, 0));
    CHECK(!ashlar__stream_state_is_past(&state, 0));
    CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
    CHECK(!ashlar__stream_state_is_past(&state, 0));
    wait_for(streams[0]);
    CHECK(ashlar__stream_state_query(&state, &client) == ASHLAR_OK);
    CHECK(ashlar__stream_state_is_past(&state, 0) && !ashlar__stream_state_is_past(&state, 1));
    CHECK(state.completed == 1);
}

/* What another thread may do meanwhile, done by the work that the host waits for. */
typedef struct meanwhile {
    uint64_t recorded, completed;
} meanwhile;

static bool was_free;

static void act_meanwhile(void *args) {
    const meanwhile *m = args;
    was_free = ashlar__lock_try_acquire(&lock);
    if (was_free) {
        state.recorded = m->recorded;
        state.completed = m->completed;
        ashlar__lock_release(&lock);
    }
}

/* Synchronize with recording 1 while that happens; what is then known to have completed. */
static uint64_t completed_after(meanwhile m) {
    was_free = false;
    CHECK(ashlar_launch(device, streams[0], act_meanwhile, &m, sizeof m) == ASHLAR_OK);
    CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
    const uint64_t calls = client.calls;
    ashlar__lock_acquire(&lock);
    CHECK(ashlar__stream_state_synchronize(&state, &client, &lock) == ASHLAR_OK);
    CHECK(was_free);                         /* the lock was free during the wait */
    CHECK(!ashlar__lock_try_acquire(&lock)); /* and is held again after it */
    ashlar__lock_release(&lock);
    CHECK(client.calls == calls + 1);
    return state.completed;
}

CASE_WITH(a_wait_proves_what_was_recorded_when_it_began, set_up_order()) {
    CHECK(completed_after((meanwhile){.recorded = 1}) == 1);
    tear_down_order();
    REQUIRE(set_up_order()); /* recorded again meanwhile: that is not proven */
    CHECK(completed_after((meanwhile){.recorded = 7}) == 1);
    tear_down_order();
    REQUIRE(set_up_order()); /* recorded again, and seen to have completed */
    CHECK(completed_after((meanwhile){.recorded = 7, .completed = 5}) == 5);
}

CASE(a_refused_wait_proves_nothing_and_keeps_the_lock) {
    static const ashlar_driver_fn fns[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                           ASHLAR_DRIVER_FN_event_synchronize};
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        REQUIRE(set_up_order());
        CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
        ashlar__driver_fail_at(driver, (int)fns[i], 1, CU_UNKNOWN);
        ashlar__lock_acquire(&lock);
        CHECK(ashlar__stream_state_synchronize(&state, &client, &lock) == ASHLAR_EDRIVER);
        CHECK(!ashlar__lock_try_acquire(&lock));
        ashlar__lock_release(&lock);
        CHECK(state.completed == 0);
        tear_down_order();
    }
}

RUN_CASES()
