/*
 * test_pinned_oom.c - one fixed workload on a pool, in which the n-th call of each driver function,
 * or the n-th host allocation, fails: for every n. Nothing may be lost, the next call works, and at
 * the end the driver has its memory back.
 */
#include "tests/allocator/pinned/pinned_fixture.h"

enum { ATTEMPTS = 3, SLOTS = 24 };

static unsigned failures; /* refused calls in this run */
static ashlar_status allowed;

/* A refusal has the status that its cause asks for, and all is as before. */
static bool try_again(ashlar_status status, const ashlar_pinned_stats *before) {
    if (status == ASHLAR_OK) {
        return false;
    }
    const ashlar_pinned_stats after = pinned_now();
    failures++;
    CHECK(status == allowed || status == ASHLAR_ENOMEM);
    CHECK(ashlar_error_detail()[0] != '\0');
    CHECK(after.alloc_count == before->alloc_count && after.free_count == before->free_count);
    CHECK(after.live_bytes == before->live_bytes);
    return true;
}

static unsigned char *take_at_last(size_t bytes) {
    void *ptr = NULL;
    const ashlar_pinned_stats before = pinned_now();
    for (int i = 0; i < ATTEMPTS && try_again(ashlar_pinned_alloc(pool, bytes, &ptr), &before);
         i++) {
        CHECK(ptr == NULL);
    }
    CHECK(ptr != NULL);
    return ptr;
}

static void give_at_last(void *ptr, size_t stream_count) {
    const ashlar_pinned_stats before = pinned_now();
    ashlar_status status = ASHLAR_EDRIVER;
    for (int i = 0; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        status = ashlar_pinned_free_on_all(pool, ptr, streams, stream_count);
        (void)try_again(status, &before);
    }
    CHECK(status == ASHLAR_OK);
}

/* Two ends of a block that a queued write and its verification still use. */
static void use(unsigned char *ptr, size_t bytes, unsigned char value, size_t stream_count) {
    for (size_t i = 0; i < stream_count; i++) {
        const payload p = {ptr + i * 8, bytes - i * 8 < 8 ? 0 : 8, value};
        for (int k = 0; k < 2; k++) {
            ashlar_status status = ASHLAR_EDRIVER;
            for (int n = 0; n < ATTEMPTS && status != ASHLAR_OK; n++) {
                status = ashlar_launch(device, streams[i], k == 0 ? payload_write : payload_verify,
                                       &p, sizeof p);
            }
            CHECK(status == ASHLAR_OK);
        }
    }
}

static void wait_for_all(void) {
    for (int i = 0; i < STREAMS; i++) {
        ashlar_status status = ASHLAR_EDRIVER;
        for (int n = 0; n < ATTEMPTS && status != ASHLAR_OK; n++) {
            status = ashlar_stream_synchronize(device, streams[i]);
        }
        CHECK(status == ASHLAR_OK);
    }
}

static void trim_at_last(void) {
    for (int i = 0; i < ATTEMPTS; i++) {
        const ashlar_status status = ashlar_pinned_trim(pool);
        failures += status != ASHLAR_OK;
        CHECK(status == ASHLAR_OK || status == allowed || status == ASHLAR_ENOMEM);
        wait_for_all();
    }
}

/* Misses, pending blocks, waits at the limit, and a trim: every step of the ladder. */
static void run_rounds(void) {
    static const size_t sizes[] = {40, 1000, 5000, 30 * KIB, 200 * KIB, 1 * MIB};
    unsigned char *slots[SLOTS] = {0};
    for (size_t i = 0; i < SLOTS; i++) {
        const size_t bytes = sizes[i % 6], stream_count = i % 4;
        slots[i] = take_at_last(bytes);
        if (slots[i] == NULL) {
            continue;
        }
        use(slots[i], bytes, (unsigned char)i, stream_count);
        give_at_last(slots[i], stream_count);
    }
    for (size_t i = 0; i < 3; i++) {
        unsigned char *whole = take_at_last(3 * MIB);
        give_at_last(whole, 1);
    }
    wait_for_all();
    trim_at_last();
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.live_blocks == 0 && s.pending_blocks == 0 && s.reserved_bytes == 0);
    CHECK(s.reserved_peak_bytes <= 4 * MIB);
}

static const char spec_of_all[] = "mode=adversarial,seed=5";

static bool run_life(void) {
    const ashlar_pinned_config config = {.limit_bytes = 4 * MIB};
    failures = 0;
    pool = NULL;
    atomic_store(&payload_bad_count, 0);
    for (int i = 0; i < ATTEMPTS && pool == NULL; i++) {
        const ashlar_status status = ashlar_pinned_create(device, &config, &pool);
        failures += status != ASHLAR_OK;
        CHECK((pool != NULL) == (status == ASHLAR_OK));
    }
    CHECK(pool != NULL);
    if (pool != NULL) {
        run_rounds();
    }
    return pool != NULL;
}

CASE(the_workload_climbs_every_step) {
    allowed = ASHLAR_OK;
    REQUIRE(set_up_device(spec_of_all));
    REQUIRE(run_life());
    CHECK(failures == 0);
    const ashlar_pinned_stats s = pinned_now();
    CHECK(s.host_waits > 0 && s.released_count > 0 && s.driver_free_count > 0);
    CHECK(s.deferred_count > 0 && s.deferred_count < s.free_count && s.events_recorded > 2);
    tear_down_pool();
}

/* True where the armed call came. */
static bool run_with_failing_call(int fn, uint64_t n, cu_result result) {
    const bool is_set_up = set_up_device(spec_of_all);
    CHECK(is_set_up);
    if (!is_set_up) {
        return false;
    }
    allowed = result == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER;
    ashlar__driver_fail_at(driver, fn, n, result);
    (void)run_life();
    ashlar_pinned_destroy(pool);
    const bool has_fired = atomic_load(&driver->fail_countdown) == 0;
    ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
    CHECK(atomic_load(&payload_bad_count) == 0);
    /* What the driver refuses to take back it keeps: a call fails that nobody can repeat. */
    const bool may_keep = has_fired && (fn == ASHLAR_DRIVER_FN_mem_free_host ||
                                        fn == ASHLAR_DRIVER_FN_event_destroy ||
                                        fn == ASHLAR_DRIVER_FN_ctx_push_current);
    CHECK(may_keep || (host_blocks() == 0 && live_events() == 0));
    CHECK(host_blocks() + live_events() <= 1);
    tear_down_device();
    return has_fired;
}

CASE(every_driver_call_may_fail) {
    static const ashlar_driver_fn functions[] = {
        ASHLAR_DRIVER_FN_mem_host_alloc, ASHLAR_DRIVER_FN_mem_free_host,
        ASHLAR_DRIVER_FN_event_create,   ASHLAR_DRIVER_FN_event_record,
        ASHLAR_DRIVER_FN_event_query,    ASHLAR_DRIVER_FN_event_synchronize,
        ASHLAR_DRIVER_FN_event_destroy,  ASHLAR_DRIVER_FN_ctx_push_current};
    static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_UNKNOWN};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        for (size_t k = 0; k < 2; k++) {
            uint64_t n = 1;
            while (run_with_failing_call((int)functions[i], n, results[k])) {
                n++;
            }
            CHECK(n > 1);
        }
    }
}

CASE(every_host_allocation_may_fail) {
    bool is_over = false;
    unsigned long n = 0, seen = 0;
    while (!is_over) {
        n++;
        REQUIRE(set_up_device(spec_of_all));
        allowed = ASHLAR_EHOSTMEM;
        ashlar__host_fail_at(n);
        REQUIRE(run_life());
        is_over = is_still_armed(n);
        seen += failures;
        tear_down_pool();
    }
    CHECK(n > 50 && seen > 20);
}

RUN_CASES()
