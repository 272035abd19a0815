/*
 * test_stream_state.c - one stream's events by themselves: which of them is asked or awaited, and
 * what a wait learns while the lock is not held.
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
    CHECK(recorded == 1 && state.recorded == 1 && state.event_count == 1);
    CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
    CHECK(recorded == 1 && state.recorded == 1);
    CHECK(ashlar__stream_state_cover(&state, &client, 1, &recorded) == ASHLAR_OK);
    CHECK(recorded == 2 && state.recorded == 2 && state.completed == 0);
    CHECK(state.pending_count == 2); /* neither is given up for the other */
    CHECK(client.calls == 6);        /* two creations, two questions for captures, two recordings */
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

static void nothing(void *unused) {
    (void)unused;
}

/* Queue work, and an event behind it; its number. */
static uint64_t record_behind_work(void) {
    CHECK(ashlar_launch(device, streams[0], nothing, NULL, 0) == ASHLAR_OK);
    CHECK(ashlar__stream_state_cover(&state, &client, state.recorded, &recorded) == ASHLAR_OK);
    CHECK(ashlar__stream_state_is_sound(&state));
    return state.recorded;
}

/*
 * Ask, with recording number `pending` not over yet: in this mode a question may run some work, so
 * the answer is given here.
 */
static void query_up_to(uint64_t pending) {
    const uint64_t n = pending - state.completed;
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, n, CU_NOT_READY);
    CHECK(ashlar__stream_state_query(&state, &client) == ASHLAR_OK);
    CHECK(atomic_load(&driver->fail_countdown) == 0);
}

/* Run the stream's work up to the recording, and nothing behind it. */
static void run_up_to(uint64_t number) {
    const ashlar_numbered_event *at = state.events;
    while (at->number < number) {
        at++;
    }
    CHECK(at < state.events + state.pending_count && at->number == number);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.event_synchronize(at->event) == CU_SUCCESS);
    ashlar__device_leave(device);
}

CASE_WITH(on_a_busy_stream_older_recordings_complete_before_newer_ones, set_up_order()) {
    for (uint64_t i = 1; i <= 4; i++) {
        CHECK(record_behind_work() == i);
    }
    run_up_to(2);
    const size_t queries = CALLS(event_query);
    query_up_to(3);
    CHECK(CALLS(event_query) == queries + 3); /* two that have completed, and one that has not */
    CHECK(state.completed == 2 && state.recorded == 4 && state.pending_count == 2);
    CHECK(ashlar__stream_state_is_past(&state, 1) && !ashlar__stream_state_is_past(&state, 2));
    const size_t created = CALLS(event_create);
    CHECK(record_behind_work() == 5 && record_behind_work() == 6);
    CHECK(CALLS(event_create) == created && state.event_count == 4); /* they are used again */
    wait_for(streams[0]);
    CHECK(ashlar__stream_state_query(&state, &client) == ASHLAR_OK);
    CHECK(state.completed == 6 && state.pending_count == 0);
}

CASE_WITH(asking_records_behind_a_new_use_and_keeps_the_older_recordings, set_up_order()) {
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1, CU_NOT_READY);
    CHECK(ashlar__stream_state_ask(&state, &client, 0, &recorded) == ASHLAR_OK);
    CHECK(state.completed == 0 && recorded == 1);
    run_up_to(1);
    CHECK(record_behind_work() == 2 && record_behind_work() == 3);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 2, CU_NOT_READY);
    CHECK(ashlar__stream_state_ask(&state, &client, 3, &recorded) == ASHLAR_OK);
    CHECK(recorded == 4 && state.completed == 1 && state.pending_count == 3);
    run_up_to(2);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 2, CU_NOT_READY);
    CHECK(ashlar__stream_state_ask(&state, &client, 2, &recorded) == ASHLAR_OK);
    CHECK(recorded == 4 && state.completed == 2); /* one comes after the use: none is recorded */
    const uint64_t calls = client.calls;
    CHECK(ashlar__stream_state_ask(&state, &client, 1, &recorded) == ASHLAR_OK);
    CHECK(client.calls == calls); /* that is known */
}

CASE_WITH(of_too_many_pending_recordings_the_newest_moves_on, set_up_order()) {
    const size_t created = CALLS(event_create);
    for (uint64_t i = 1; i <= ASHLAR_EVENTS_MAX + 4; i++) {
        const bool are_many = i > ASHLAR_EVENTS_FEW; /* then the oldest is asked first */
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1, CU_NOT_READY);
        CHECK(record_behind_work() == i);
        CHECK((atomic_load(&driver->fail_countdown) == 0) == are_many);
    }
    CHECK(CALLS(event_create) == created + ASHLAR_EVENTS_MAX &&
          state.pending_count == ASHLAR_EVENTS_MAX);
    CHECK(state.events[0].number == 1);
    CHECK(state.events[ASHLAR_EVENTS_MAX - 2].number == ASHLAR_EVENTS_MAX - 1);
    CHECK(state.events[ASHLAR_EVENTS_MAX - 1].number == ASHLAR_EVENTS_MAX + 4);
    run_up_to(1);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 2, CU_NOT_READY);
    CHECK(record_behind_work() == ASHLAR_EVENTS_MAX + 5); /* finds out that one has completed */
    CHECK(state.completed == 1 && state.pending_count == ASHLAR_EVENTS_MAX);
    CHECK(state.events[ASHLAR_EVENTS_MAX - 2].number == ASHLAR_EVENTS_MAX + 4);
    wait_for(streams[0]);
    CHECK(ashlar__stream_state_query(&state, &client) == ASHLAR_OK);
    CHECK(state.completed == ASHLAR_EVENTS_MAX + 5);
}

static atomic_int done_count;

static void count_done(void *unused) {
    (void)unused;
    atomic_fetch_add(&done_count, 1);
}

static ashlar_status wait_on_host(void) {
    ashlar_stream_state *const states[] = {&state};
    return ashlar__stream_states_wait(states, 1, &client, &lock);
}

CASE_WITH(a_stream_waits_for_the_oldest_recording_that_is_enough, set_up_order()) {
    atomic_store(&done_count, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(ashlar_launch(device, streams[0], count_done, NULL, 0) == ASHLAR_OK);
        CHECK(ashlar__stream_state_cover(&state, &client, state.recorded, &recorded) == ASHLAR_OK);
    }
    CHECK(ashlar__stream_state_wait_on(&state, &client, streams[1], 1) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK(atomic_load(&done_count) == 2); /* recording 2 comes after tick 1; 3 is not needed */
    query_up_to(3);
    CHECK(state.completed == 2);
    const uint64_t calls = client.calls;
    CHECK(ashlar__stream_state_wait_on(&state, &client, streams[1], 1) == ASHLAR_OK);
    CHECK(client.calls == calls); /* no wait for what has completed */
    ashlar__lock_acquire(&lock);
    CHECK(wait_on_host() == ASHLAR_OK);
    ashlar__lock_release(&lock);
    CHECK(atomic_load(&done_count) == 3 && state.completed == 3);
}

CASE_WITH(the_host_waits_for_the_oldest_pending_recording, set_up_order()) {
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK(record_behind_work() == i);
    }
    ashlar__lock_acquire(&lock);
    CHECK(wait_on_host() == ASHLAR_OK);
    ashlar__lock_release(&lock);
    CHECK(state.completed == 1 && state.pending_count == 2);
}

CASE_WITH(a_lost_stream_takes_no_event, set_up_order()) {
    CHECK(record_behind_work() == 1);
    state.is_gone = state.is_lost = true;
    state.last_tick = 1;
    const size_t calls = client.calls;
    CHECK(ashlar__stream_state_is_sound(&state));
    CHECK(ashlar__stream_state_is_closed(&state, &client));
    CHECK(ashlar__stream_state_stamp(&state) == 1);
    CHECK_FAILS(ashlar__stream_state_cover(&state, &client, 1, &recorded), ASHLAR_EINVAL,
                "destroyed");
    CHECK(client.calls == calls && recorded == 1);
}

CASE_WITH(a_stream_that_may_be_dead_is_not_shown_to_the_driver, set_up_order()) {
    client.watches_streams = true;
    CHECK(ashlar__stream_state_is_silent(&state, &client));
    CHECK(!ashlar__stream_state_is_closed(&state, &client)); /* nothing was freed */
    (void)ashlar__stream_state_next(&state);
    CHECK(ashlar__stream_state_is_closed(&state, &client));
    const size_t calls = client.calls;
    CHECK_FAILS(ashlar__stream_state_cover(&state, &client, 0, &recorded), ASHLAR_EINVAL,
                "may have been destroyed");
    CHECK(client.calls == calls && recorded == 0);
    state.caller_count = 1; /* a call names it */
    CHECK(!ashlar__stream_state_is_silent(&state, &client));
    CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
    state.is_replaced = true; /* the handle means another */
    CHECK(ashlar__stream_state_is_silent(&state, &client));
    CHECK(!ashlar__stream_state_is_closed(&state, &client)); /* its event is there */
    state.is_replaced = false;
    state.caller_count = 0;
}

CASE_WITH(a_wait_for_the_device_covers_what_was_freed_before_it, set_up_order()) {
    for (unsigned with_event = 0; with_event < 2; with_event++) {
        const uint64_t wait = 2 * (uint64_t)with_event + 1;
        if (with_event) {
            (void)record_behind_work();
        }
        const uint64_t before = ashlar__stream_state_next(&state);
        ashlar__stream_state_begin_settling(&state, wait, 0);
        ashlar__stream_state_settle(&state, wait);
        CHECK(state.completed >= before && ashlar__stream_state_is_quiet(&state));
        ashlar__stream_state_begin_settling(&state, wait + 1, 0);
        const uint64_t behind = ashlar__stream_state_next(&state); /* another thread, meanwhile */
        ashlar__stream_state_settle(&state, wait + 1);
        CHECK(state.completed < behind && !ashlar__stream_state_is_quiet(&state));
    }
}

CASE_WITH(an_event_recorded_during_a_wait_for_the_device_is_asked_for, set_up_order()) {
    (void)ashlar__stream_state_next(&state);
    ashlar__stream_state_begin_settling(&state, 1, 0);
    const uint64_t number = record_behind_work();
    ashlar__stream_state_settle(&state, 1);
    CHECK(state.completed < number && state.pending_count == 1);
    ashlar__stream_state_begin_settling(&state, 2, 0);
    ashlar__stream_state_begin_settling(&state, 3, 0);
    ashlar__stream_state_settle(&state, 2); /* the later wait will tell */
    CHECK(state.completed < number);
    ashlar__stream_state_settle(&state, 3);
    CHECK(state.completed == number && state.pending_count == 0);
}

CASE_WITH(an_idle_stream_needs_no_event, set_up_order()) {
    CHECK(record_behind_work() == 1 && record_behind_work() == 2);
    CHECK(ashlar_launch(device, streams[0], nothing, NULL, 0) == ASHLAR_OK);
    CHECK(ashlar__stream_state_next(&state) == 3); /* a use that ends behind both */
    wait_for(streams[0]);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_query, 1, CU_UNKNOWN);
    CHECK(ashlar__stream_state_ask_idle(&state, &client, &recorded) == ASHLAR_EDRIVER);
    CHECK(!ashlar__stream_state_is_quiet(&state) && state.pending_count == 2);
    CHECK(ashlar__stream_state_ask_idle(&state, &client, &recorded) == ASHLAR_OK);
    CHECK(ashlar__stream_state_is_quiet(&state) && state.pending_count == 0);
    CHECK(recorded == 2 && state.event_count == 2); /* no event was recorded */
    CHECK(!ashlar__stream_state_is_past(&state, state.recorded));
    CHECK(record_behind_work() == 4 && state.event_count == 2); /* by one of the two */
}

CASE_WITH(a_busy_stream_has_an_event_recorded_behind_its_work, set_up_order()) {
    for (int i = 0; i < 64; i++) { /* more than the questions let run */
        CHECK(ashlar_launch(device, streams[0], nothing, NULL, 0) == ASHLAR_OK);
    }
    (void)ashlar__stream_state_next(&state);
    CHECK(ashlar__stream_state_ask_idle(&state, &client, &recorded) == ASHLAR_OK);
    CHECK(!ashlar__stream_state_is_quiet(&state));
    CHECK(recorded == 1 && state.pending_count == 1);
}

CASE_WITH(a_recording_that_fails_changes_nothing, set_up_order()) {
    static const ashlar_driver_fn fns[] = {ASHLAR_DRIVER_FN_stream_is_capturing,
                                           ASHLAR_DRIVER_FN_event_create,
                                           ASHLAR_DRIVER_FN_event_record};
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        ashlar__driver_fail_at(driver, (int)fns[i], 1, CU_UNKNOWN);
        CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_EDRIVER);
        CHECK(recorded == 0 && state.recorded == 0 && state.pending_count == 0);
        CHECK(ashlar__stream_state_is_sound(&state));
    }
    CHECK(record_behind_work() == 1 && state.event_count == 1);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1, CU_UNKNOWN);
    CHECK(ashlar__stream_state_query(&state, &client) == ASHLAR_EDRIVER);
    CHECK(state.completed == 0 && state.pending_count == 1);
}

CASE_WITH(the_check_finds_events_out_of_order, set_up_order()) {
    CHECK(record_behind_work() == 1 && record_behind_work() == 2);
    const ashlar_stream_state sound = state;
    CHECK(ashlar__stream_state_is_sound(&state));
    state.completed = 1; /* recording 1 is still pending */
    CHECK(!ashlar__stream_state_is_sound(&state));
    state = sound;
    state.events[0].number = 2;
    CHECK(!ashlar__stream_state_is_sound(&state));
    state = sound;
    state.pending_count = 1; /* recording 2 is nowhere */
    CHECK(!ashlar__stream_state_is_sound(&state));
    state = sound;
    state.pending_count = 3;
    CHECK(!ashlar__stream_state_is_sound(&state));
    state = sound;
    state.last_tick = 3;
    CHECK(!ashlar__stream_state_is_sound(&state));
    state = sound;
    state.last_tick = 2;
    CHECK(ashlar__stream_state_is_sound(&state));
    state.is_gone = true;
    CHECK(!ashlar__stream_state_is_sound(&state));
    state = sound;
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
        state.recorded = state.events[0].number = m->recorded;
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
    CHECK(wait_on_host() == ASHLAR_OK);
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

CASE_WITH(a_state_that_contradicts_itself_is_found, set_up_order()) {
    CHECK(record_behind_work() == 1 && record_behind_work() == 2);
    REQUIRE(state.pending_count == 2 && ashlar__stream_state_is_sound(&state));
    ashlar_stream_state right = state, *const s = &state;
    ashlar_cache *const somebody = (ashlar_cache *)(void *)&right;
    const cu_event event = s->events[1].event;
    s->pending_count = s->event_count + 1;
    CHECK(!ashlar__stream_state_is_sound(s));
    s->pending_count = 2;
    s->event_count = ASHLAR_EVENTS_MAX + 1;
    CHECK(!ashlar__stream_state_is_sound(s));
    s->event_count = right.event_count;
    s->events[1].event = NULL;
    CHECK(!ashlar__stream_state_is_sound(s));
    s->events[1].event = event;
    s->events[1].number = 1; /* not behind the first */
    CHECK(!ashlar__stream_state_is_sound(s));
    s->events[1].number = 2;
    s->recorded = 3; /* by no event */
    CHECK(!ashlar__stream_state_is_sound(s));
    s->recorded = 2;
    s->last_tick = 3; /* a use in the future, unless a holder is writing it */
    CHECK(!ashlar__stream_state_is_sound(s));
    atomic_store(&s->holder, somebody);
    CHECK(ashlar__stream_state_is_sound(s));
    atomic_store(&s->holder, NULL);
    s->last_tick = 2; /* behind the last recording of a stream that is gone */
    s->is_gone = true;
    CHECK(!ashlar__stream_state_is_sound(s));
    s->is_lost = true;
    CHECK(ashlar__stream_state_is_sound(s));
    s->is_gone = false; /* and lost streams are gone */
    CHECK(!ashlar__stream_state_is_sound(s));
    s->is_lost = false;
    s->last_tick = right.last_tick;
    CHECK(ashlar__stream_state_is_sound(s));
}

CASE(a_refused_wait_proves_nothing_and_keeps_the_lock) {
    static const ashlar_driver_fn fns[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                           ASHLAR_DRIVER_FN_event_synchronize};
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        REQUIRE(set_up_order());
        CHECK(ashlar__stream_state_cover(&state, &client, 0, &recorded) == ASHLAR_OK);
        ashlar__driver_fail_at(driver, (int)fns[i], 1, CU_UNKNOWN);
        ashlar__lock_acquire(&lock);
        CHECK(wait_on_host() == ASHLAR_EDRIVER);
        CHECK(!ashlar__lock_try_acquire(&lock));
        ashlar__lock_release(&lock);
        CHECK(state.completed == 0);
        tear_down_order();
    }
}

RUN_CASES()
