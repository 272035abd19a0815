/*
 * test_reclaim.c - the last steps of the ladder: the program's callback, scattered memory, other
 * allocators; and what peers may use.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/limits_fixture.h"

#include <pthread.h>

/* ---- the callback ---- */

typedef struct reclaimer {
    int calls;
    size_t bytes;
    void *held;          /* freed by the callback, on a thread of its own */
    ashlar_status inner; /* of a request that the callback makes */
    bool answer;
} reclaimer;

static pthread_barrier_t met;

/* Frees what is held, maybe into this thread's cache; and lives on until it is met. */
static void *free_held(void *user) {
    reclaimer *r = user;
    pthread_barrier_wait(&met);
    CHECK(ashlar_free(allocator, r->held) == ASHLAR_OK);
    r->held = NULL;
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    return NULL;
}

static bool reclaim(void *user, size_t bytes) {
    reclaimer *r = user;
    void *ptr = NULL;
    r->calls++;
    r->bytes = bytes;
    r->inner = ashlar_alloc(allocator, 64 * MIB, streams[0], &ptr);
    if (r->inner == ASHLAR_OK || r->calls > 1) {
        return false;
    }
    r->inner = ashlar_alloc(allocator, 8 * MIB, streams[0], &ptr);
    if (r->held != NULL) {
        pthread_barrier_wait(&met);
        pthread_barrier_wait(&met);
    }
    return r->answer;
}

static bool start(pthread_t *thread, void *(*run)(void *), void *user) {
    return pthread_barrier_init(&met, NULL, 2) == 0 && pthread_create(thread, NULL, run, user) == 0;
}

static void finish(pthread_t thread) {
    pthread_barrier_wait(&met);
    (void)pthread_join(thread, NULL);
    pthread_barrier_destroy(&met);
}

CASE_BOTH(a_callback_frees_blocks_through_another_thread) {
    pthread_t thread;
    reclaimer r = {.answer = true};
    REQUIRE(set_up_limits("memory=16MiB"));
    r.held = take(8 * MIB, streams[0]);
    REQUIRE(start(&thread, free_held, &r));
    unsigned char *rest = take_filled(8 * MIB, 0x77);
    ashlar_allocator_set_reclaim(allocator, reclaim, &r);
    unsigned char *ptr = take(8 * MIB, streams[0]);
    CHECK(r.calls == 1); /* its own request, which fails, does not call it */
    CHECK_ZU(r.bytes, 8 * MIB);
    CHECK(r.inner == ASHLAR_ENOMEM && r.held == NULL);
    CHECK(stats_now().served_reclaimed == 1);
    check_filled(rest, 8 * MIB, 0x77);
    ashlar_allocator_set_reclaim(allocator, NULL, NULL);
    check_refused(512, "asked for");
    CHECK(r.calls == 1);
    finish(thread);
    give(ptr);
    give(rest);
}

/* ---- gathering ---- */

enum { PIECES = 8 };

CASE_BOTH(scattered_memory_is_gathered_without_a_copy) {
    unsigned char *pieces[PIECES];
    REQUIRE(set_up_limits("memory=32MiB"));
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = take_filled(4 * MIB, (unsigned char)(i + 1));
    }
    for (int i = 0; i < PIECES; i += 2) {
        give(pieces[i]);
    }
    const size_t copies = CALLS(memcpy_dtod_async), created = taking_calls();
    unsigned char *large = take_filled(16 * MIB, 0xEE);
    const ashlar_stats s = stats_now();
    CHECK(s.served_gathered == 1);
    CHECK_ZU((size_t)s.reserved_bytes, 32 * MIB);
    CHECK_ZU((size_t)s.reserved_peak_bytes, 32 * MIB);
    CHECK_ZU(CALLS(memcpy_dtod_async) - copies, 0);
    CHECK(!use_vmm || taking_calls() - created <= 1); /* the attempt to map more */
    for (int i = 1; i < PIECES; i += 2) {
        check_filled(pieces[i], 4 * MIB, (unsigned char)(i + 1));
        give(pieces[i]);
    }
    check_filled(large, 16 * MIB, 0xEE);
    give(large);
}

/* ---- several allocators of one device ---- */

static ashlar_allocator *make_second(void) {
    ashlar_config config = {0};
    ashlar_allocator *second = NULL;
    config.shares_memory = use_vmm;
    CHECK(ashlar_allocator_create_with(device, &config, &second) == ASHLAR_OK);
    return second;
}

CASE_WITH(a_sealed_allocator_keeps_its_memory, set_up_limits("memory=16MiB")) {
    ashlar_allocator *second = make_second();
    void *out = NULL;
    give(take(16 * MIB, streams[0]));
    wait_for(streams[0]);
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_ERROR, NULL, NULL) == ASHLAR_OK);
    ashlar_allocator_seal(allocator);
    CHECK_FAILS(ashlar_alloc(second, 4 * MIB, streams[1], &out), ASHLAR_ENOMEM,
                "1 other allocator of the device holds 16777216 bytes, 16777216 of them idle");
    give(take(16 * MIB, streams[0]));
    ashlar_allocator_destroy(second);
}

/* ---- peers ---- */

static ashlar_device *other;

/* What a fill by the other device comes to. */
static cu_result fill_from_other(void *ptr, unsigned char value) {
    CHECK(ashlar__device_enter(other) == ASHLAR_OK);
    cu_result result = driver->table.memset_d8_async(ashlar__ptr_in(ptr), value, 512, NULL);
    if (result == CU_SUCCESS) {
        result = driver->table.ctx_synchronize();
    }
    ashlar__device_leave(other);
    return result;
}

CASE_WITH(a_peer_may_use_what_there_is_and_what_will_be, set_up_limits("memory=32MiB,devices=2")) {
    REQUIRE(ashlar_device_open("soft:1", &other) == ASHLAR_OK);
    unsigned char *early = take(4 * MIB, streams[0]);
    CHECK(fill_from_other(early, 0x11) == CU_INVALID_VALUE);
    CHECK(ashlar_allocator_allow_peer(allocator, 1) == ASHLAR_OK);
    unsigned char *late = take(4 * MIB, streams[0]); /* mapped after the permission */
    CHECK(fill_from_other(early, 0x22) == CU_SUCCESS);
    CHECK(fill_from_other(late, 0x33) == CU_SUCCESS);
    check_filled(early, 512, 0x22);
    check_filled(late, 512, 0x33);
    CHECK(ashlar_allocator_allow_peer(allocator, 1) == ASHLAR_OK); /* again */
    give(early);
    unsigned char *gap = take(12 * MIB, streams[0]);
    CHECK(fill_from_other(gap, 0x44) == CU_SUCCESS);
    CHECK(fill_from_other(gap + 12 * MIB - 512, 0x44) == CU_SUCCESS);
    give(gap);
    give(late);
    ashlar_device_close(other);
}

CASE_WITH(a_peer_that_cannot_is_refused, set_up_limits("memory=32MiB,devices=2,peers=off")) {
    CHECK(ashlar_allocator_allow_peer(allocator, 1) == ASHLAR_ENOTSUP);
    CHECK(ashlar_allocator_allow_peer(allocator, 7) == ASHLAR_ENOTSUP);
    give(take(4 * MIB, streams[0]));
}

CASE(segments_have_no_peers) {
    use_vmm = false;
    REQUIRE(set_up_limits("memory=32MiB,devices=2"));
    CHECK_FAILS(ashlar_allocator_allow_peer(allocator, 1), ASHLAR_ENOTSUP, "virtual memory");
    tear_down();
    use_vmm = true;
}

RUN_CASES()
