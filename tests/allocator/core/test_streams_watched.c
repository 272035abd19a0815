/*
 * test_streams_watched.c - streams that end without a word: no call reaches the driver with their
 * handles, and their memory is used again behind their work, also under a handle that came back.
 */
#include "tests/allocator/core/graph_pool_fixture.h"

#include <unistd.h>

#include "allocator/base/random.h"
#include "allocator/core/core.h"

#define COMES_BACK "," HANDLES_COME_BACK

static bool set_up_watched(const char *memory, uint64_t cache_bytes) {
    if (!set_up_cached_streams(memory, cache_bytes)) {
        return false;
    }
    ashlar_allocator_watch_streams(allocator);
    return true;
}

/* On a driver that knows no identities of streams. */
static bool watch_without_ids(void) {
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_stream_get_id, 1, CU_NOT_SUPPORTED,
                    ashlar_allocator_watch_streams(allocator));
    return !allocator->client.has_stream_ids;
}

static bool set_up_without_ids(const char *memory, uint64_t cache_bytes) {
    return set_up_cached_streams(memory, cache_bytes) && watch_without_ids();
}

/* Nobody is told. Its work goes on. */
static void end_silently(ashlar_stream stream) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_destroy(stream) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static ashlar_stream new_loner(void) {
    ashlar_stream stream = NULL;
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS);
    ashlar__device_leave(device);
    return stream;
}

static unsigned char *take_and_use(size_t bytes, ashlar_stream stream, unsigned char value) {
    unsigned char *ptr = take(bytes, stream);
    use(stream, ptr, bytes, value);
    return ptr;
}

/* ---- memory of streams that are no more ---- */

CASE_WITH(a_wait_that_fails_proves_nothing, set_up_watched("16MiB", 0)) {
    const ashlar_stream doomed = new_loner();
    void *none = NULL;
    give(take_and_use(ALL, doomed, 1));
    end_silently(doomed);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_ctx_synchronize, 1, CU_UNKNOWN,
                    CHECK(ashlar_alloc(allocator, ALL, streams[0], &none) == ASHLAR_ENOMEM));
    check_all();
    check_owned(streams[0], take(ALL, streams[0]), ALL);
}

/* A thread that captures stream 1 for a pool, begun when the other one waits for the device. */
static struct {
    pthread_t thread;
    atomic_bool has_begun, may_end;
    ashlar_status status;
    cu_result result;
} beside;

static void *capture_beside(void *unused) {
    ashlar_graph_pool *begun = NULL;
    cu_graph graph = NULL;
    beside.status = ashlar_graph_pool_begin(allocator, streams[1], NULL, &begun);
    if (beside.status == ASHLAR_OK && ashlar__device_enter(device) == ASHLAR_OK) {
        (void)driver->table.stream_begin_capture(streams[1], CU_CAPTURE_GLOBAL);
        atomic_store(&beside.has_begun, true);
        while (!atomic_load(&beside.may_end)) {
            usleep(1000);
        }
        beside.result = driver->table.stream_end_capture(streams[1], &graph);
        (void)driver->table.graph_destroy(graph);
        ashlar_graph_pool_end(begun);
        beside.status = ashlar_graph_pool_release(begun, streams[1]);
        ashlar__device_leave(device);
    }
    return unused;
}

static void begin_capture_in_wait(ashlar_driver_fn fn) {
    if (fn == ASHLAR_DRIVER_FN_ctx_synchronize) {
        driver->delay = NULL;
        REQUIRE(pthread_create(&beside.thread, NULL, capture_beside, NULL) == 0);
        for (int i = 0; i < 50 && !atomic_load(&beside.has_begun); i++) {
            usleep(1000);
        }
    }
}

/* A strict device ends the process in a wait that would. */
CASE_WITH(a_capture_that_begins_during_the_wait_is_not_spoiled, set_up_watched("16MiB", 0)) {
    const ashlar_stream doomed = new_loner();
    void (*const delay)(ashlar_driver_fn) = driver->delay;
    give(take_and_use(ALL, doomed, 1));
    end_silently(doomed);
    atomic_store(&beside.has_begun, false);
    atomic_store(&beside.may_end, false);
    beside.result = CU_UNKNOWN;
    driver->delay = begin_capture_in_wait;
    unsigned char *all = take(ALL, streams[0]);
    CHECK(driver->delay == NULL);
    atomic_store(&beside.may_end, true);
    REQUIRE(pthread_join(beside.thread, NULL) == 0);
    driver->delay = delay;
    CHECK(beside.status == ASHLAR_OK && beside.result == CU_SUCCESS);
    check_owned(streams[0], all, ALL);
}

CASE_WITH(a_capture_that_is_in_the_way_of_the_wait_is_not_spoiled, set_up_watched("16MiB", 0)) {
    const ashlar_stream doomed = new_loner();
    cu_graph graph = NULL;
    void *none = NULL;
    give(take_and_use(ALL, doomed, 1));
    end_silently(doomed);
    REQUIRE(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_begin_capture(streams[1], CU_CAPTURE_RELAXED) == CU_SUCCESS);
    CHECK(ashlar_alloc(allocator, ALL, streams[0], &none) != ASHLAR_OK);
    CHECK(driver->table.stream_end_capture(streams[1], &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar__device_leave(device);
    driver->capture_count++; /* as drop-in libraries count those that they see */
    CHECK_FAILS(ashlar__watch_settle(allocator), ASHLAR_EINVAL, "during a capture");
    driver->capture_count--;
    check_owned(streams[0], take(ALL, streams[0]), ALL);
}

/* ---- handles that come back ---- */

CASE(a_handle_that_came_back_is_another_stream) {
    for (int has_caches = 0; has_caches < 2; has_caches++) {
        REQUIRE(set_up_watched("64MiB" COMES_BACK, has_caches ? 16 * MIB : 0));
        const ashlar_stream handle = new_loner();
        unsigned char *small = take_and_use(1000, handle, 1), *large = take_and_use(BIG, handle, 2);
        give_on(large, handle);
        give_on(small, handle);
        end_silently(handle);
        const ashlar_stream stream = new_loner();
        REQUIRE(stream == handle);
        unsigned char *again = take(1000, stream), *more = take(BIG, stream);
        CHECK(again != small && more != large);
        check_ordered(stream, again, 1000);
        check_ordered(stream, more, BIG);
        use(stream, more, BIG, 3);
        give_on(more, stream); /* from here on the events are there */
        end_silently(stream);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(new_loner() == handle);
        CHECK(take(BIG, stream) == more); /* of the ended one, without a wait */
        CHECK(stats_now().served_idle == 1 && stats_now().served_after_sync == 0);
        check_owned(stream, more, BIG);
        end_silently(stream);
        tear_down();
    }
}

CASE_WITH(a_stream_whose_identity_cannot_be_asked_is_refused, set_up_watched("16MiB", 0)) {
    unsigned char *ptr = take(BIG, streams[0]);
    void *none = NULL;
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_stream_get_id, 1, CU_UNKNOWN,
                    CHECK(ashlar_alloc(allocator, BIG, streams[0], &none) == ASHLAR_EDRIVER));
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_stream_get_id, 1, CU_UNKNOWN,
                    CHECK(ashlar_free_on(allocator, ptr, streams[0]) == ASHLAR_EDRIVER));
    CHECK(stats_now().live_blocks == 1);
    give_on(ptr, streams[0]);
}

/* ---- at random ---- */

enum { LIVE = 6, STEPS = CHECK_SHARE(400, 100), RANDOM_STREAMS = 3, SEEDS = CHECK_SHARE(24, 12) };

typedef struct walk {
    uint64_t state;
    ashlar_stream streams[RANDOM_STREAMS];
    struct {
        unsigned char *ptr;
        size_t bytes;
        int stream;        /* behind whose work all its uses are; -1: it ended meanwhile */
        bool is_handed_on; /* to a stream that the allocator does not know of */
        int told;          /* by ashlar_record_stream(); -1: none */
    } live[LIVE];
} walk;

static int draw(walk *w, int count) {
    return (int)ashlar__random_step_below(&w->state, (uint64_t)count);
}

static void replace_stream(walk *w, int s) {
    for (int i = 0; i < LIVE; i++) {
        if (w->live[i].ptr != NULL && w->live[i].told == s) {
            return; /* it has to live on */
        }
    }
    end_silently(w->streams[s]);
    w->streams[s] = new_loner();
    for (int i = 0; i < LIVE; i++) {
        w->live[i].stream = w->live[i].stream == s ? -1 : w->live[i].stream;
    }
}

static void take_at(walk *w, int i, int s) {
    void *ptr = NULL;
    w->live[i].bytes =
        draw(w, 2) == 0 ? 512 * (1 + (size_t)draw(w, 8)) : MIB * (1 + (size_t)draw(w, 5));
    CHECK(ashlar_alloc(allocator, w->live[i].bytes, w->streams[s], &ptr) == ASHLAR_OK);
    w->live[i].ptr = ptr;
    w->live[i].stream = s;
    w->live[i].told = -1;
    w->live[i].is_handed_on = false;
    if (ptr != NULL) {
        check_ordered(w->streams[s], ptr, w->live[i].bytes);
        use(w->streams[s], ptr, w->live[i].bytes, (unsigned char)draw(w, 256));
    }
}

/* The block goes over to another stream, behind its work so far. */
static void hand_on(walk *w, int i, int to) {
    const int from = w->live[i].stream;
    if (from < 0 || w->live[i].told >= 0) {
        return;
    }
    order_behind(w->streams[from], w->streams[to]);
    use(w->streams[to], w->live[i].ptr, w->live[i].bytes, 1);
    w->live[i].stream = to;
    w->live[i].is_handed_on = true;
}

static void tell_of(walk *w, int i, int s) {
    if (w->live[i].stream >= 0 && w->live[i].told < 0) {
        hand_on(w, i, s);
        CHECK(ashlar_record_stream(allocator, w->live[i].ptr, w->streams[s]) == ASHLAR_OK);
        w->live[i].told = s;
        w->live[i].is_handed_on = false; /* a plain free suffices */
    }
}

static void give_at(walk *w, int i) {
    const int s = w->live[i].stream, how = draw(w, 8);
    if (s < 0 && w->live[i].is_handed_on) {
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK(ashlar_free(allocator, w->live[i].ptr) == ASHLAR_OK);
    } else if (s < 0 || (how == 0 && !w->live[i].is_handed_on)) {
        CHECK(ashlar_free(allocator, w->live[i].ptr) == ASHLAR_OK);
    } else {
        CHECK(ashlar_free_on(allocator, w->live[i].ptr, w->streams[s]) == ASHLAR_OK);
    }
    w->live[i].ptr = NULL;
}

static void run_walk(uint64_t seed) {
    walk w = {.state = seed};
    for (int s = 0; s < RANDOM_STREAMS; s++) {
        w.streams[s] = new_loner();
    }
    for (int step = 0; step < STEPS; step++) {
        const int what = draw(&w, 24), i = draw(&w, LIVE), s = draw(&w, RANDOM_STREAMS);
        if (what == 0) {
            replace_stream(&w, s);
        } else if (what == 1) {
            wait_for(w.streams[s]);
        } else if (what == 2) {
            CHECK(ashlar_allocator_trim(allocator, 8 * MIB) == ASHLAR_OK);
        } else if (w.live[i].ptr == NULL) {
            take_at(&w, i, s);
        } else if (what == 3) {
            hand_on(&w, i, s);
        } else if (what == 4) {
            tell_of(&w, i, s);
        } else {
            give_at(&w, i);
        }
        if (step % 16 == 0) {
            check_all();
        }
    }
    for (int s = 0; s < RANDOM_STREAMS; s++) {
        end_silently(w.streams[s]);
    }
}

CASE(whatever_ends_when_nothing_is_early_and_nothing_dead_is_asked) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const char *memory = seed % 4 < 2 ? "32MiB" COMES_BACK : "32MiB";
        const uint64_t cache_bytes = seed % 2 == 0 ? 4 * MIB : 0;
        REQUIRE(seed % 3 == 0 ? set_up_without_ids(memory, cache_bytes)
                              : set_up_watched(memory, cache_bytes));
        run_walk(seed);
        CHECK(atomic_load(&payload_bad_count) == 0);
        tear_down();
    }
}

RUN_CASES()
