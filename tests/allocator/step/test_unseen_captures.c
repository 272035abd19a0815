/*
 * test_unseen_captures.c - a capture that another thread has begun in global mode, without a word
 * to the allocator, as CUDA programs do: none of the allocator's calls may spoil it.
 */
#include "tests/allocator/core/streams_fixture.h"

#include <semaphore.h>

#include <ashlar/plan.h>

#include "tests/strict.h"
#include "tests/thread.h"

enum { BLOCKS = 6 };

/* A thread with a capture of its own, on a stream that the allocator never sees. */
typedef struct planted {
    pthread_t thread;
    sem_t begun, may_end;
    cu_result begin, end;
} planted;

static void *hold_a_capture(void *user) {
    planted *p = user;
    const ashlar_driver_table *table = &driver->table;
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    p->begin = table->ctx_push_current(device->context);
    if (p->begin == CU_SUCCESS) {
        p->begin = table->stream_create(&stream, CU_STREAM_UNORDERED);
    }
    if (p->begin == CU_SUCCESS) {
        p->begin = table->stream_begin_capture(stream, CU_CAPTURE_GLOBAL);
    }
    sem_post(&p->begun);
    sem_wait(&p->may_end);
    p->end = table->stream_end_capture(stream, &graph);
    if (graph != NULL) {
        (void)table->graph_destroy(graph);
    }
    (void)table->stream_destroy(stream);
    (void)table->ctx_pop_current(NULL);
    return NULL;
}

static void plant(planted *p) {
    *p = (planted){.begin = CU_UNKNOWN, .end = CU_UNKNOWN};
    sem_init(&p->begun, 0, 0);
    sem_init(&p->may_end, 0, 0);
    driver->has_unseen_captures = true; /* as of every CUDA driver */
    REQUIRE(pthread_create(&p->thread, NULL, hold_a_capture, p) == 0);
    sem_wait(&p->begun);
    CHECK(p->begin == CU_SUCCESS);
}

/* How the capture has ended. */
static cu_result dig_up(planted *p) {
    sem_post(&p->may_end);
    pthread_join(p->thread, NULL);
    sem_destroy(&p->begun);
    sem_destroy(&p->may_end);
    driver->has_unseen_captures = false;
    return p->end;
}

/* More than there is, so that every rung is tried; work is queued on all blocks. */
static void run_out_of_memory(void) {
    unsigned char *blocks[BLOCKS];
    void *out = NULL;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(BIG, streams[i % 3]);
        use(streams[i % 3], blocks[i], BIG, (unsigned char)i);
    }
    CHECK(ashlar_record_stream(allocator, blocks[0], streams[3]) == ASHLAR_OK);
    for (size_t i = 0; i < BLOCKS; i++) {
        give_on(blocks[i], streams[(i + 1) % 3]);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(BIG, streams[2]);
    }
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[1], &out) == ASHLAR_ENOMEM);
    for (size_t i = 0; i < BLOCKS; i++) {
        give(blocks[i]);
    }
}

static void run_steps(void) {
    for (int i = 0; i < 3; i++) {
        CHECK(ashlar_step_begin(allocator, streams[0], 7) == ASHLAR_OK);
        unsigned char *a = take(BIG, streams[0]), *b = take(900, streams[0]);
        give(a);
        give(b);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
}

static void manage(void) {
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK(ashlar_allocator_reserve(allocator, 2 * BIG) == ASHLAR_OK);
    CHECK(ashlar_allocator_forget_stream(allocator, streams[3]) == ASHLAR_OK);
    CHECK(stats_now().driver_calls > 0);
}

/* A strict device ends the process in the call that would spoil it, and names it. */
CASE(no_request_spoils_a_capture_that_nobody_told_of) {
    planted other;
    for (int seed = 1; seed <= 8; seed++) {
        char line[96];
        (void)snprintf(line, sizeof line,
                       "mode=adversarial,clocks=on,memory=%dMiB,seed=%d,waits=%s", 4 * BLOCKS + 4,
                       seed, seed % 2 == 0 ? "on" : "off");
        REQUIRE(set_up_cached(line, 4 * MIB));
        plant(&other);
        run_out_of_memory();
        run_steps();
        manage();
        CHECK(dig_up(&other) == CU_SUCCESS);
        tear_down();
    }
}

/* That the case above could fail. */
CASE_WITH(one_unsafe_call_would_spoil_it, set_up_streams("16MiB," STRICT_NOT_HERE)) {
    planted other;
    cu_event event = NULL;
    CHECK(driver->table.ctx_push_current(device->context) == CU_SUCCESS);
    CHECK(driver->table.event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    plant(&other);
    CHECK(driver->table.event_query(event) == CU_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(dig_up(&other) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(driver->table.event_destroy(event) == CU_SUCCESS);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_SUCCESS);
}

RUN_CASES()
