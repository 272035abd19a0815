/*
 * test_soft_threads.c - several threads on one software device, and mode=overlap.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include <stdatomic.h>

#include "tests/thread.h"

enum { THREADS = 4, ROUNDS = 150, CELLS = 64 };

typedef struct hammer {
    int idx;
    cu_ptr cells; /* CELLS bytes of this thread's own */
    cu_event done; /* recorded by this thread, waited for by the next */
    long bad_count;
    long counter; /* only touched by host functions of this thread's stream */
} hammer;

static hammer hammers[THREADS];

static void count_one(void *user_data) {
    ((hammer *)user_data)->counter++;
}

static void *hammer_run(void *user_data) {
    hammer *me = user_data;
    const hammer *neighbour = &hammers[(me->idx + 1) % THREADS];
    unsigned char host[CELLS], back[CELLS] = {0};
    cu_stream stream;
    me->bad_count += !make_current(0) ||
                     soft->stream_create(&stream, (unsigned)me->idx % 2) != CU_SUCCESS;
    for (int round = 0; round < ROUNDS && me->bad_count == 0; round++) {
        memset(host, round, sizeof host);
        cu_ptr scratch;
        me->bad_count += soft->memcpy_htod_async(me->cells, host, CELLS, stream) != CU_SUCCESS;
        me->bad_count += soft->launch_host_func(stream, count_one, me) != CU_SUCCESS;
        me->bad_count += soft->event_record(me->done, stream) != CU_SUCCESS;
        me->bad_count += soft->stream_wait_event(stream, neighbour->done, 0) != CU_SUCCESS;
        me->bad_count += soft->memset_d8_async(me->cells, 200, 1, stream) != CU_SUCCESS;
        me->bad_count += soft->memcpy_dtoh_async(back, me->cells, CELLS, stream) != CU_SUCCESS;
        me->bad_count += soft->stream_synchronize(stream) != CU_SUCCESS;
        me->bad_count += back[0] != 200 || back[1] != round || back[CELLS - 1] != round;
        if (round % 16 == 0) {
            me->bad_count += soft->mem_alloc(&scratch, 10) != CU_SUCCESS ||
                             soft->memset_d8_async(scratch, 1, 10, NULL) != CU_SUCCESS ||
                             soft->mem_free(scratch) != CU_SUCCESS ||
                             soft->stream_destroy(stream) != CU_SUCCESS ||
                             soft->stream_create(&stream, (unsigned)round / 16 % 2) != CU_SUCCESS;
        }
        const cu_result state = soft->event_query(neighbour->done);
        me->bad_count += state != CU_SUCCESS && state != CU_NOT_READY;
    }
    me->bad_count += soft->stream_synchronize(stream) != CU_SUCCESS;
    me->bad_count += soft->ctx_synchronize() != CU_SUCCESS;
    return NULL;
}

static void hammer_all(void) {
    for (int i = 0; i < THREADS; i++) {
        hammers[i] = (hammer){.idx = i, .done = new_event()};
        REQUIRE(soft->mem_alloc(&hammers[i].cells, CELLS) == CU_SUCCESS);
    }
    run_threads(THREADS, hammer_run, hammers, sizeof *hammers);
    for (int i = 0; i < THREADS; i++) {
        CHECK(hammers[i].bad_count == 0);
        CHECK(hammers[i].counter == ROUNDS);
    }
}

CASE(four_threads_hammer_an_adversarial_device) {
    REQUIRE(set_up("memory=64MiB,mode=adversarial,seed=9"));
    hammer_all();
}

static atomic_int meeting;

/* Returns only when another thread's host function runs at the same time. */
static void meet(void *unused) {
    (void)unused;
    atomic_fetch_add(&meeting, 1);
    while (atomic_load(&meeting) < 2) {
    }
}

static void *meet_on_own_stream(void *unused) {
    (void)unused;
    cu_stream stream;
    if (make_current(0) && soft->stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS &&
        soft->launch_host_func(stream, meet, NULL) == CU_SUCCESS) {
        (void)soft->stream_synchronize(stream);
    }
    return NULL;
}

CASE_WITH(two_threads_run_their_streams_in_parallel, set_up("memory=16MiB")) {
    atomic_store(&meeting, 0);
    run_threads(2, meet_on_own_stream, NULL, 0); /* a hang here is the failure */
    CHECK(atomic_load(&meeting) == 2);
}

/* ---- mode=overlap ---- */

static void add_one(void *user_data) {
    atomic_fetch_add((_Atomic int *)user_data, 1);
}

static void meet_at(void *user_data) {
    (void)pthread_barrier_wait(user_data);
}

CASE_WITH(work_runs_beside_the_program_and_other_streams, set_up("memory=16MiB,mode=overlap")) {
    pthread_barrier_t with_caller, with_each_other;
    cu_stream streams[2];
    unsigned char got = 0;
    const cu_ptr ptr = alloc(1);
    pthread_barrier_init(&with_caller, NULL, 2);
    pthread_barrier_init(&with_each_other, NULL, 2);
    for (int i = 0; i < 2; i++) {
        CHECK(soft->stream_create(&streams[i], CU_STREAM_UNORDERED) == CU_SUCCESS);
    }
    CHECK(soft->launch_host_func(streams[0], meet_at, &with_caller) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 5, 1, streams[0]) == CU_SUCCESS); /* behind it */
    CHECK(soft->stream_query(streams[0]) == CU_NOT_READY);
    CHECK(soft->memset_d8_async(ptr, 4, 1, streams[1]) == CU_SUCCESS);
    CHECK(soft->memcpy_dtoh_async(&got, ptr, 1, streams[1]) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(streams[1]) == CU_SUCCESS && got == 4);
    meet_at(&with_caller);
    CHECK(soft->stream_synchronize(streams[0]) == CU_SUCCESS && *bytes_at(ptr) == 5);
    for (int i = 0; i < 2; i++) {
        CHECK(soft->launch_host_func(streams[i], meet_at, &with_each_other) == CU_SUCCESS);
    }
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    pthread_barrier_destroy(&with_caller);
    pthread_barrier_destroy(&with_each_other);
}

CASE_WITH(new_devices_begin_when_work_under_way_is_over, set_up("memory=16MiB,mode=overlap")) {
    static _Atomic int run_count;
    atomic_store(&run_count, 0);
    for (int i = 0; i < 100; i++) {
        CHECK(soft->launch_host_func(NULL, add_one, &run_count) == CU_SUCCESS);
    }
    REQUIRE(set_up("memory=16MiB"));
    const int before = atomic_load(&run_count);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS && before <= 100);
    CHECK_ZU((size_t)atomic_load(&run_count), (size_t)before); /* the others were dropped */
}

RUN_CASES()
