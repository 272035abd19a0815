/*
 * test_frees_growth.c - a program whose steps are alike takes its memory in the first of them: what
 * is freed comes back in time.
 */
#include "tests/allocator/dropin/frees_fixture.h"

#define STEP (32 * MIB)

static size_t reserved(void) {
    return (size_t)stats_now().reserved_bytes;
}

/* Where memory cannot be moved: each step is a call that waits for the device. */
CASE_WITH(segments_are_taken_in_large_steps_of_a_large_device,
          set_up("memory=4GiB", "cache=0,vmm=off")) {
    (void)take(KIB);
    CHECK_ZU(reserved(), STEP);
    tear_down();
    REQUIRE(set_up("memory=4GiB", "cache=0"));
    (void)take(KIB);
    CHECK_ZU(reserved(), 2 * MIB);
    tear_down();
    REQUIRE(set_up("memory=64MiB", "cache=0"));
    (void)take(KIB);
    CHECK_ZU(reserved(), 2 * MIB);
    CHECK_ZU(allocator->heap.range.growth_min_bytes, MIB); /* 1/64 of the device */
    (void)take(60 * MIB);
}

CASE(what_is_freed_before_a_wait_is_free_after_it) {
    for (int is_told = 0; is_told < 2; is_told++) {
        REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
        void *first = take(24 * MIB);
        use(first, KIB, streams[0]);
        give(first);
        const size_t records = CALLS(event_record);
        const ashlar_device_wait wait = ashlar__deferred_begin_wait(allocator);
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        if (is_told) {
            (void)ashlar__deferred_end_wait(allocator, wait);
            CHECK(!ashlar__has_deferred(allocator));
        }
        use(take(4 * MIB), KIB, streams[0]);
        (void)take(20 * MIB);
        CHECK((CALLS(event_record) == records) == is_told);
        CHECK(!is_told || reserved() == 24 * MIB); /* else an event may have to run first */
        tear_down();
    }
}

/* 32 MiB are freed, and 4 MiB beside them are free. */
static bool set_up_batch(const char *spec) {
    if (!set_up(spec, "cache=0")) {
        return false;
    }
    void *large[2] = {take(16 * MIB), take(16 * MIB)}, *small = take(4 * MIB);
    give(small);
    const ashlar_device_wait wait = ashlar__deferred_begin_wait(allocator);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    CHECK(ashlar__deferred_end_wait(allocator, wait) && reserved() == 36 * MIB);
    give(large[0]);
    give(large[1]);
    return true;
}

/* Else the block would lie beside what they leave, and the event behind the block's own work. */
CASE(many_frees_have_their_event_before_the_next_request_is_placed) {
    REQUIRE(set_up_batch("memory=4GiB"));
    const size_t records = CALLS(event_record);
    void *first = take(3 * MIB);
    CHECK_ZU(CALLS(event_record), records + 1);
    CHECK(!ashlar__has_deferred(allocator));
    use(first, KIB, streams[0]);
    (void)take(33 * MIB);
    CHECK_ZU(CALLS(event_record), records + 1);
    CHECK_ZU(reserved(), 36 * MIB);
}

CASE(with_zero_on_memory_for_all_streams_is_clear_when_the_call_returns) {
    REQUIRE(set_up("memory=16MiB,mode=adversarial,seed=5", "zero=on"));
    for (int round = 0; round < 6; round++) {
        unsigned char *ptr = take(12 * MIB); /* the next one has some of it */
        size_t others = 0;
        for (size_t i = 0; i < 12 * MIB; i++) {
            others += ptr[i] != 0; /* on the host, behind no stream's work */
        }
        CHECK_ZU(others, 0);
        CHECK(ashlar_fill(device, ptr, 0x5A, 12 * MIB, streams[0]) == ASHLAR_OK);
        give(ptr);
    }
}

RUN_CASES()
