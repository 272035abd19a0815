/*
 * test_away.c - blocks freed while other streams may still use them: when they go home, and who may
 * have them before. The device runs work at once, so a recording is over as soon as it is asked
 * about, unless a case has the driver say otherwise.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/heap/heap_fixture.h"

static ashlar_stream_state state_c;

static void tear_down_away(void) {
    ashlar__stream_state_finish(&state_c, &client);
}

/* Home is state_a throughout. */
static bool set_up_away(void) {
    if (!set_up_heap("memory=64MiB")) {
        return false;
    }
    init_state(&state_c, streams[2]);
    return check_at_end(tear_down_away);
}

/* A live block of state_a's that further streams use. */
static ashlar_block *take_used(size_t bytes, ashlar_stream_state *one, ashlar_stream_state *two) {
    ashlar_block *block = take(&state_a, bytes);
    CHECK(one == NULL || ashlar__away_add_use(&heap, block, one) == ASHLAR_OK);
    CHECK(two == NULL || ashlar__away_add_use(&heap, block, two) == ASHLAR_OK);
    return block;
}

static ashlar_block *free_on(ashlar_block *block, ashlar_stream_state *state) {
    block->requested = 0;
    ashlar__release_block_locked(&heap, block, state);
    check_heap();
    return block;
}

static ashlar_block *take_and_free_on(ashlar_stream_state *state, size_t bytes) {
    return free_on(take(&state_a, bytes), state);
}

static bool is_home(const ashlar_block *block) {
    return gap_at(block->offset) != NULL || block->state == ASHLAR_BLOCK_FREE;
}

/* Find out that all recordings of a stream are over. */
static void learn(ashlar_stream_state *state) {
    CHECK(ashlar__stream_state_query(state, &client) == ASHLAR_OK);
    CHECK(state->completed == state->recorded);
}

static size_t queue_length(const ashlar_stream_state *state) {
    size_t count = 0;
    for (const ashlar_block *at = state->oldest_away; at != NULL; at = at->older) {
        count++;
    }
    return count;
}

/* ---- going home ---- */

CASE_WITH(a_block_that_only_its_home_uses_never_goes_away, set_up_away()) {
    ashlar_block *block = take(&state_a, 1 * MIB);
    const uint64_t calls = client.calls;
    CHECK(ashlar__away_add_use(&heap, block, &state_a) == ASHLAR_OK &&
          !ashlar__block_is_shared(block));
    free_on(block, &state_a);
    CHECK(is_home(block) && client.calls == calls && heap.awaited == NULL);
}

CASE_WITH(a_block_freed_on_another_stream_waits_for_that_streams_work, set_up_away()) {
    set_events(&state_a, 4, 4);
    ashlar_block *block = take_and_free_on(&state_b, 1 * MIB);
    CHECK(!is_home(block) && block->stream_state == &state_b && ashlar__block_is_away(block));
    CHECK(heap.away_bytes == 1 * MIB && state_a.away_count == 1 && state_b.away_count == 0);
    CHECK(state_b.recorded == 1 && events_recorded == 1); /* covered at once */
    CHECK(heap.awaited == &state_b && queue_length(&state_b) == 1);
    CHECK(!ashlar__away_settle(&heap)); /* not known to be over */
    set_events(&state_a, 6, 4);
    learn(&state_b);
    CHECK(ashlar__away_settle(&heap) && !ashlar__away_settle(&heap));
    CHECK(is_home(block) && heap.away_bytes == 0 && state_a.away_count == 0);
    CHECK(heap.awaited == NULL && !state_b.is_awaited);
    CHECK(ashlar__heap_tick_at(&heap, block->window, block->offset, 512) ==
          4); /* the home's last use: the free */
    check_heap();
}

/* Else the whole handle would wait for work of the home's that never touched it. */
CASE_WITH(a_block_that_was_borrowed_leaves_no_stamp, set_up_away()) {
    set_events(&state_a, 4, 4);
    ashlar_block *block = take(&state_a, 1 * MIB);
    block->stream_state = &state_b;
    block->marks |= ASHLAR_BLOCK_BORROWED;
    free_on(block, &state_b);
    CHECK(!is_home(block) && state_a.away_count == 1);
    learn(&state_b);
    CHECK(ashlar__away_settle(&heap) && is_home(block));
    CHECK(ashlar__heap_is_past_at(&heap, block->window, block->offset, 1 * MIB));
    check_heap();
}

CASE_WITH(a_block_with_two_uses_goes_home_when_both_are_past, set_up_away()) {
    for (int i = 0; i < 4; i++) { /* freed at home or on the second; which one is over first */
        ashlar_stream_state *first = i % 2 == 0 ? &state_b : &state_c;
        ashlar_stream_state *second = i % 2 == 0 ? &state_c : &state_b;
        ashlar_block *block = take_used(2 * MIB, &state_b, i < 2 ? &state_c : NULL);
        free_on(block, i < 2 ? &state_a : &state_c);
        CHECK(!is_home(block) && state_a.away_count == 1);
        learn(first);
        CHECK(!ashlar__away_settle(&heap) && !is_home(block));
        check_heap();
        learn(second);
        CHECK(ashlar__away_settle(&heap) && is_home(block));
        CHECK(!ashlar__block_is_shared(block) && heap.awaited == NULL);
        check_heap();
    }
}

CASE_WITH(a_use_is_noted_once_or_not_at_all, set_up_away()) {
    ashlar_block *block = take(&state_a, 1 * MIB);
    HOST_FAILS_AT(1, CHECK_FAILS(ashlar__away_add_use(&heap, block, &state_b), ASHLAR_EHOSTMEM,
                                 "a further stream of a block"));
    CHECK(!ashlar__block_is_shared(block) && ashlar__away_find_use(block, &state_b) == NULL);
    CHECK(ashlar__away_add_use(&heap, block, &state_b) == ASHLAR_OK);
    HOST_FAILS_AT(1, CHECK(ashlar__away_add_use(&heap, block, &state_b) == ASHLAR_OK));
    CHECK(ashlar__away_find_use(block, &state_b) != NULL && block->uses->next == NULL);
    HOST_FAILS_AT(1, free_on(block, &state_c)); /* a free on one more stream needs no memory */
    CHECK(block->uses->stream_state == &state_c && block->uses->next->stream_state == &state_b);
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK && !is_home(block)); /* now it waits for b */
    CHECK(ashlar__away_ask(&heap, 9) == ASHLAR_OK && is_home(block));
}

CASE_WITH(work_of_an_ended_stream_that_is_over_is_not_waited_for, set_up_away()) {
    CHECK(ashlar__stream_state_cover(&state_b, &client, 0, &events_recorded) == ASHLAR_OK);
    learn(&state_b);
    state_b.is_gone = true;
    const uint64_t calls = client.calls;
    CHECK(is_home(free_on(take_used(1 * MIB, &state_b, NULL), &state_a)));
    CHECK(client.calls == calls + 3); /* a handle, which was created, mapped and opened */
}

CASE_WITH(blocks_go_home_in_the_order_of_their_frees, set_up_away()) {
    ashlar_block *blocks[4];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = take(&state_a, 1 * MIB);
    }
    for (size_t i = 0; i < 4; i++) {
        free_on(blocks[i], &state_b);
        CHECK(state_b.newest_away == blocks[i] && state_b.oldest_away == blocks[0]);
    }
    CHECK(state_b.recorded == 4); /* one behind each */
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_query, 3, CU_NOT_READY,
                    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK));
    CHECK(is_home(blocks[0]) && is_home(blocks[1]) && !is_home(blocks[2]) && !is_home(blocks[3]));
    CHECK(state_b.oldest_away == blocks[2] && heap.away_bytes == 2 * MIB);
    check_heap();
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK && is_home(blocks[2]) && is_home(blocks[3]));
}

/* ---- asking ---- */

static cu_event asked[16];
static size_t asked_count;

static cu_result is_not_ready(cu_event event) {
    asked[asked_count++ % 16] = event;
    return CU_NOT_READY;
}

static cu_result is_not_idle(cu_stream stream) {
    (void)stream;
    return CU_NOT_READY;
}

CASE_WITH(asking_costs_the_same_however_many_blocks_are_away, set_up_away()) {
    enum { CALLS_MOST = 7 }; /* is it captured, is it idle; once more, create, record, query */
    const ashlar_driver_table table = driver->table;
    driver->table.event_query = is_not_ready;
    driver->table.stream_query = is_not_idle;
    static ashlar_block *blocks[1000];
    for (size_t i = 0; i < 1000; i++) {
        blocks[i] = take(&state_a, 512);
    }
    for (size_t i = 0; i < 1000; i++) {
        const uint64_t calls = client.calls;
        blocks[i]->requested = 0;
        ashlar__release_block_locked(&heap, blocks[i], &state_b);
        CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK);
        CHECK(client.calls - calls <= CALLS_MOST);
    }
    CHECK_ZU(queue_length(&state_b), 1000);
    driver->table = table;
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK);
    CHECK(heap.awaited == NULL && ashlar__heap_used_bytes(&heap) == 0);
}

CASE_WITH(streams_that_were_not_asked_are_asked_next, set_up_away()) {
    const ashlar_driver_table table = driver->table;
    ashlar_stream_state state_d;
    init_state(&state_d, streams[3]);
    take_and_free_on(&state_b, 1 * MIB);
    take_and_free_on(&state_c, 1 * MIB);
    take_and_free_on(&state_d, 1 * MIB);
    driver->table.event_query = is_not_ready;
    asked_count = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK);
    }
    CHECK(asked_count == 4 && asked[0] == asked[3]);
    CHECK(asked[0] != asked[1] && asked[1] != asked[2] && asked[2] != asked[0]);
    CHECK(ashlar__away_ask(&heap, 2) == ASHLAR_OK && ashlar__away_ask(&heap, 9) == ASHLAR_OK);
    CHECK(asked[4] == asked[1] && asked[5] == asked[2] && asked[6] == asked[0] && asked_count == 9);
    driver->table = table;
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 2, CU_UNKNOWN);
    CHECK_FAILS(ashlar__away_ask(&heap, 3), ASHLAR_EDRIVER, "cuEventQuery on");
    check_heap();
    CHECK_ZU(heap.away_bytes, 2 * MIB); /* what the first answer was about is settled */
    CHECK(ashlar__away_ask(&heap, 3) == ASHLAR_OK && heap.awaited == NULL);
    ashlar__stream_state_finish(&state_d, &client);
}

CASE_WITH(a_stream_under_capture_is_not_asked, set_up_away()) {
    ashlar_stream_state pool = {.is_pool = true};
    ashlar_block *block = take_used(1 * MIB, &pool, NULL);
    const uint64_t calls = client.calls;
    free_on(block, &state_a);
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK && ashlar__away_cover(&heap) == ASHLAR_OK);
    CHECK(client.calls == calls && !is_home(block));
    ashlar__away_move_queue(&heap, &pool, &state_a);
    CHECK(is_home(block));
}

CASE_WITH(an_event_that_fails_at_a_free_is_recorded_later, set_up_away()) {
    ashlar_block *block = take(&state_a, 1 * MIB);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN, free_on(block, &state_b));
    CHECK(state_b.recorded == 0 && queue_length(&state_b) == 1);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN,
                    CHECK(ashlar__away_cover(&heap) == ASHLAR_EDRIVER));
    CHECK(ashlar__away_cover(&heap) == ASHLAR_OK && state_b.recorded == 1);
    const uint64_t calls = client.calls;
    CHECK(ashlar__away_cover(&heap) == ASHLAR_OK && client.calls == calls);
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK && is_home(block));
}

/* ---- serving a stream before that ---- */

CASE_WITH(a_stream_takes_what_waits_for_it_alone, set_up_away()) {
    ashlar_block *two = free_on(take_used(2 * MIB, &state_b, &state_c), &state_a);
    ashlar_block *small = take_and_free_on(&state_b, 1 * MIB);
    ashlar_block *block = take_and_free_on(&state_b, 2 * MIB);
    ashlar_stream_state *both = two->uses->stream_state;
    CHECK(ashlar__away_take_own(&heap, &state_a, 2 * MIB) == NULL);
    CHECK(ashlar__away_take_own(&heap, &state_b, 2 * MIB - 512) == NULL);
    CHECK(ashlar__away_take_own(&heap, &state_b, 2 * MIB) == block);
    CHECK(state_b.newest_away == small && !ashlar__block_is_shared(block));
    CHECK(state_a.away_count == 2 && heap.away_bytes == 3 * MIB);
    CHECK(ashlar__away_take_own(&heap, &state_b, 2 * MIB) == NULL);
    block->requested = 1;
    CHECK(ashlar__away_take_own(&heap, &state_b, 1 * MIB) == small);
    CHECK(state_b.oldest_away == (both == &state_b ? two : NULL));
    CHECK(state_b.newest_away == state_b.oldest_away);
    check_heap();
    free_on(small, &state_b);
    free_on(block, &state_a); /* used at home from then on */
    CHECK(is_home(block) && !is_home(small));
}

CASE_WITH(only_the_oldest_few_of_a_queue_are_looked_at, set_up_away()) {
    for (int i = 0; i < 16; i++) {
        take_and_free_on(&state_b, 512);
    }
    ashlar_block *block = take_and_free_on(&state_b, 1 * MIB);
    bool found = true;
    CHECK(ashlar__away_take_own(&heap, &state_b, 1 * MIB) == NULL);
    CHECK(ashlar__away_wait(&heap, &state_a, 1 * MIB, false, &found) == ASHLAR_OK && !found);
    CHECK(ashlar__away_take_own(&heap, &state_b, 512) != NULL);
    CHECK(ashlar__away_take_own(&heap, &state_b, 1 * MIB) == block);
    CHECK_ZU(queue_length(&state_b), 15);
}

CASE_WITH(a_home_can_wait_for_the_uses_of_its_block, set_up_away()) {
    bool found = true;
    take_and_free_on(&state_b, 1 * MIB);
    ashlar_block *block = take_used(2 * MIB, &state_b, &state_c);
    free_on(block, &state_a);
    CHECK(ashlar__stream_state_cover(&state_a, &client, 0, &events_recorded) == ASHLAR_OK);
    learn(&state_a);
    CHECK(ashlar__away_wait(&heap, &state_b, 1 * MIB, false, &found) == ASHLAR_OK && !found);
    CHECK(ashlar__away_wait(&heap, &state_a, 3 * MIB, false, &found) == ASHLAR_OK && !found);
    const size_t waits = CALLS(stream_wait_event);
    for (size_t n = 1; n <= 2; n++) {
        DRIVER_FAILS_AT(
            ASHLAR_DRIVER_FN_stream_wait_event, n, CU_UNKNOWN,
            CHECK(ashlar__away_wait(&heap, &state_a, 2 * MIB, false, &found) == ASHLAR_EDRIVER));
        CHECK(!found && !is_home(block));
        check_heap();
    }
    CHECK(ashlar__away_wait(&heap, &state_a, 2 * MIB, false, &found) == ASHLAR_OK && found);
    CHECK(CALLS(stream_wait_event) == waits + 3 + 2); /* of the failed ones 1 and 2 */
    CHECK(is_home(block) && heap.away_bytes == 1 * MIB && state_a.away_count == 1);
    /* Its home's work that is over came before the wait. */
    CHECK(!ashlar__heap_is_past(&heap, gap_at(block->offset), 512));
    check_heap();
}

CASE_WITH(nothing_waits_for_a_stream_under_capture, set_up_away()) {
    ashlar_stream_state pool = {.is_pool = true};
    bool found = true;
    ashlar_block *block = free_on(take_used(1 * MIB, &pool, NULL), &state_b);
    CHECK(ashlar__away_wait(&heap, &state_a, 1 * MIB, false, &found) == ASHLAR_OK && !found);
    CHECK(ashlar__away_ask(&heap, 9) == ASHLAR_OK && pool.oldest_away == block);
    CHECK(ashlar__away_wait(&heap, &state_a, 1 * MIB, false, &found) == ASHLAR_OK && !found);
    ashlar__away_move_queue(&heap, &pool, &state_b); /* the capture has ended */
    CHECK(ashlar__away_wait(&heap, &state_a, 1 * MIB, false, &found) == ASHLAR_OK && found);
    CHECK(is_home(block));
}

CASE_WITH(a_slot_block_is_vacated_where_another_would_go_home, set_up_away()) {
    ashlar_block *memory = take(&state_a, 4 * MIB);
    ashlar_block slot = {.bytes = 1 * MIB,
                         .requested = 1,
                         .state = ASHLAR_BLOCK_USED,
                         .marks = ASHLAR_BLOCK_OF_SLOT,
                         .stream_state = &state_a,
                         .prev = memory};
    bool found = true;
    CHECK(ashlar__block_home(&slot) == &state_a);
    slot.requested = ASHLAR_SLOT_BLOCK_AWAITED;
    ashlar__release_block_locked(&heap, &slot, &state_b);
    CHECK(state_a.away_count == 1 && heap.away_bytes == 1 * MIB && slot.stream_state == &state_b);
    CHECK(ashlar__away_take_own(&heap, &state_b, 1 * MIB) == NULL); /* only its slot may have it */
    CHECK(ashlar__away_wait(&heap, &state_a, 1 * MIB, false, &found) == ASHLAR_OK && !found);
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK);
    CHECK(slot.requested == 0 && slot.stream_state == &state_a && !ashlar__block_is_shared(&slot));
    CHECK(state_a.away_count == 0 && heap.away_bytes == 0 &&
          ashlar__heap_used_bytes(&heap) == 4 * MIB);
}

/* ---- queues that change hands ---- */

CASE_WITH(what_waits_for_one_stream_can_wait_for_another, set_up_away()) {
    ashlar_block *alone = take_and_free_on(&state_b, 1 * MIB);
    ashlar_block *both = take_used(1 * MIB, &state_c, NULL);
    free_on(both, &state_b); /* first state_b, then state_c */
    set_events(&state_c, 3, 3);
    for (ashlar_use *use = both->uses; use != NULL; use = use->next) {
        CHECK(use->next == NULL || use->stream_state == &state_b);
    }
    ashlar__away_move_queue(&heap, &state_b, &state_c);
    check_heap();
    CHECK(queue_length(&state_b) == 0 && state_b.newest_away == NULL);
    CHECK(state_c.oldest_away == alone && alone->older == both && state_c.newest_away == both);
    CHECK(alone->uses->tick == 3 && both->uses->tick == 3 && both->uses->next == NULL);
    CHECK(heap.awaited == &state_c && state_c.next_awaited == NULL && !state_b.is_awaited);
    set_events(&state_a, 7, 7);
    ashlar__away_move_queue(&heap, &state_c, &state_a); /* home */
    CHECK(ashlar__heap_tick_at(&heap, (gap_at(alone->offset))->window,
                               (gap_at(alone->offset))->offset, 512) == 7);
    CHECK(is_home(alone) && is_home(both) && heap.away_bytes == 0 && state_a.away_count == 0);
    CHECK(heap.awaited == NULL && !state_c.is_awaited); /* either state may be deleted now */
    check_heap();
    state_c.recorded = state_c.completed = state_c.event_count; /* what set_events() said is over */
}

CASE_WITH(a_block_that_is_away_stays_so_when_its_home_moves, set_up_away()) {
    ashlar_block *block = take_and_free_on(&state_b, 1 * MIB);
    ashlar_zone *to = &state_c.zones[ASHLAR_ZONE_LARGE];
    ashlar__zone_move(&heap, block->window->zone, to, true);
    check_heap();
    CHECK(state_a.away_count == 0 && state_c.away_count == 1);
    CHECK(ashlar__away_ask(&heap, 1) == ASHLAR_OK && state_c.away_count == 0);
    CHECK(is_home(block) && block->window->zone == to);
}

/* ---- checking ---- */

CASE_WITH(broken_queues_are_found, set_up_away()) {
    ashlar_block *older = take_and_free_on(&state_b, 1 * MIB);
    ashlar_block *newer = take_and_free_on(&state_b, 1 * MIB);
    const char *const wrong = "is in the wrong queue";
    newer->requested = 1;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT, wrong);
    newer->requested = 0;
    older->marks = 0;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT, "block at offset 0 is in the wrong");
    older->marks = ASHLAR_BLOCK_SHARED;
    newer->uses->stream_state = &state_c;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT, "block at offset 1048576 is in the");
    newer->uses->stream_state = &state_b;
    state_b.is_awaited = false;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT, wrong);
    state_b.is_awaited = true;
    ashlar_use *const uses = newer->uses;
    newer->uses = NULL;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT, wrong);
    newer->uses = uses;
    state_b.newest_away = older;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT, "a queue does not end where it says");
    state_b.newest_away = newer;
    heap.away_bytes += 512;
    CHECK_FAILS(ashlar__away_check(&heap), ASHLAR_EFORMAT,
                "2097152 bytes are away, counted 2097664");
    heap.away_bytes -= 512;
    check_heap();
}

RUN_CASES()
