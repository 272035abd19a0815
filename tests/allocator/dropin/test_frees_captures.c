/*
 * test_frees_captures.c - which captures are known: of which stream, begun by which thread, and
 * when each is over.
 */
#include "tests/allocator/dropin/frees_fixture.h"

#include <pthread.h>
#include <sched.h>

#include "allocator/dropin/frees.h"

static pthread_barrier_t turn; /* of two threads */

/* Captures that keep the allocator from what would spoil them. */
static size_t known(void) {
    return (size_t)atomic_load(&driver->capture_count);
}

static void begin(ashlar_stream stream) {
    ashlar__frees_begin_capture(frees, stream);
}

CASE_WITH(the_driver_is_asked_of_captures_that_are_on, set_up("memory=16MiB", "cache=0")) {
    cu_graph graph = NULL;
    begin(streams[0]);
    begin(streams[1]);
    CHECK(driver->table.stream_begin_capture(streams[0], CU_CAPTURE_RELAXED) == CU_SUCCESS);
    ashlar__frees_note_capture(streams[0], true);
    (void)ashlar__frees_settle_captures();
    CHECK_ZU(known(), 2); /* one goes on, and one is about to begin */
    CHECK(driver->table.stream_end_capture(streams[0], &graph) == CU_SUCCESS);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_is_capturing, 1, CU_OUT_OF_MEMORY);
    (void)ashlar__frees_settle_captures();
    CHECK_ZU(known(), 2); /* no answer is not its end */
    (void)ashlar__frees_settle_captures();
    CHECK_ZU(known(), 1);
    ashlar__frees_note_capture(streams[1], false);
    CHECK_ZU(known(), 0);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
}

/* ---- two threads ---- */

static void *capture_own(void *own) {
    begin(own);
    (void)pthread_barrier_wait(&turn); /* it has not begun yet */
    (void)pthread_barrier_wait(&turn);
    ashlar__frees_note_capture(own, true);
    (void)pthread_barrier_wait(&turn);
    (void)pthread_barrier_wait(&turn);
    return NULL;
}

/* The same handle, but not the same stream: what a thread says of its own is not said of others',
 * and the driver can be asked about it by its thread only. */
CASE_WITH(the_default_stream_of_a_thread_is_known_until_that_ends,
          set_up("memory=16MiB", "cache=0")) {
    const ashlar_stream own = streams[OWN_STREAMS + 1];
    pthread_t thread;
    REQUIRE(pthread_barrier_init(&turn, NULL, 2) == 0);
    REQUIRE(pthread_create(&thread, NULL, capture_own, own) == 0);
    (void)pthread_barrier_wait(&turn);
    ashlar__frees_note_capture(own, false);
    CHECK_ZU(known(), 1);
    begin(own);
    ashlar__frees_note_capture(own, false);
    CHECK_ZU(known(), 1);
    (void)pthread_barrier_wait(&turn);
    (void)pthread_barrier_wait(&turn);
    begin(own);
    ashlar__frees_note_capture(own, true);
    (void)ashlar__frees_settle_captures(); /* ours is over, and of the other one nobody can tell */
    CHECK_ZU(known(), 1);
    ashlar__frees_drop_captures(frees, &own); /* ours again */
    CHECK_ZU(known(), 1);
    (void)pthread_barrier_wait(&turn);
    REQUIRE(pthread_join(thread, NULL) == 0);
    while (known() > 0) { /* the kernel may take a moment to end it */
        (void)ashlar__frees_settle_captures();
        (void)sched_yield();
    }
    CHECK(pthread_barrier_destroy(&turn) == 0);
}

RUN_CASES()
