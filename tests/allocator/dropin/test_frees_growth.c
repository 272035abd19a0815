/*
 * test_frees_growth.c - a program whose steps are alike takes its memory in the first of them: what
 * is freed comes back in time.
 */
#include "tests/allocator/dropin/frees_fixture.h"

#define STEP (32 * MIB)

static size_t reserved(void) {
    return (size_t)stats_now().reserved_bytes;
}

static void *take_on(size_t i, size_t bytes) {
    void *ptr = NULL;
    CHECK(ashlar__frees_alloc_on(frees, bytes, streams[i], &ptr) == ASHLAR_OK);
    return ptr;
}

/* Of work that is not over. */
static void give_on(size_t i, void *ptr, size_t bytes) {
    use(ptr, bytes, streams[i]);
    CHECK(ashlar_free_on(allocator, ptr, streams[i]) == ASHLAR_OK);
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

/* What is freed during the wait, and what another stream does then, comes behind it. */
CASE(a_wait_tells_nothing_of_what_is_freed_later) {
    REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
    void *before = take(8 * MIB), *during = take(8 * MIB);
    const uint64_t releases = atomic_load(&allocator->release_count);
    const ashlar_device_wait nothing = ashlar__deferred_begin_wait(allocator);
    give(before);
    const ashlar_device_wait wait = ashlar__deferred_begin_wait(allocator);
    use(during, KIB, streams[0]);
    give(during);
    CHECK(!ashlar__deferred_end_wait(allocator, nothing));
    CHECK(stats_now().shared_bytes == 16 * MIB);
    CHECK(atomic_load(&allocator->release_count) == releases);
    (void)ashlar__deferred_end_wait(allocator, wait);
    CHECK(stats_now().shared_bytes == 8 * MIB);
    CHECK(atomic_load(&allocator->release_count) == releases + 1);
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

CASE(frees_that_wait_for_an_event_get_no_other) {
    REQUIRE(set_up_batch("memory=4GiB,mode=adversarial"));
    use(take(MIB), KIB, streams[0]);
    void *late = take(MIB);
    use(late, KIB, streams[0]);
    const size_t records = CALLS(event_record), queries = CALLS(event_query);
    (void)take(MIB);
    CHECK_ZU(CALLS(event_record), records);
    CHECK_ZU(CALLS(event_query), queries);
}

CASE(few_frees_wait_until_memory_is_wanted) {
    REQUIRE(set_up("memory=4GiB", "cache=0"));
    void *large = take(16 * MIB), *small = take(4 * MIB);
    give(large);
    (void)take(MIB); /* nothing was free before it, and 15 MiB are after it */
    const size_t records = CALLS(event_record);
    give(small);
    (void)take(MIB);
    CHECK_ZU(CALLS(event_record), records);
}

/* To map a handle costs no more than an event and its query, and has to be done once. */
CASE(frees_that_fill_no_handle_have_no_event_while_more_may_be_mapped) {
    REQUIRE(set_up("memory=4GiB", "cache=0"));
    const size_t records = CALLS(event_record);
    (void)take(MIB);
    give(take(MIB));
    give(take(MIB));
    CHECK_ZU(CALLS(event_record), records);
    CHECK_ZU(reserved(), 4 * MIB);
    (void)take(2 * MIB); /* now they fill one */
    CHECK_ZU(CALLS(event_record), records + 1);
    CHECK_ZU(reserved(), 4 * MIB);
}

/*
 * Both streams have work queued whenever they are asked, but of before it all is over: what they
 * freed then is found, side by side.
 */
CASE(streams_that_are_never_at_rest_lend_what_they_are_done_with) {
    REQUIRE(set_up("memory=4GiB,mode=adversarial", "cache=0"));
    void *old[2] = {take_on(0, 10 * MIB), take_on(1, 10 * MIB)};
    void *young[2];
    const size_t own = (16 + 16 + 2) * MIB; /* in whole handles: each stream's, and the others' */
    for (size_t i = 0; i < 2; i++) {        /* with live blocks between */
        (void)take(MIB);
        young[i] = take_on(i, 5 * MIB);
    }
    CHECK_ZU(reserved(), own);
    give_on(0, old[0], 10 * MIB);
    give_on(1, old[1], 10 * MIB);
    void *third = take(16 * MIB), *none = NULL;
    (void)take(16 * MIB);
    const uint64_t events = stats_now().events_recorded;
    give_on(0, young[0], 5 * MIB);
    CHECK(ashlar__alloc_idle(allocator, 16 * MIB, 0, &none) == ASHLAR_ENOMEM);
    CHECK_ZU(stats_now().events_recorded, events + 1); /* the older ones are still waited for */
    CHECK_ZU(reserved(), own + 2 * 16 * MIB);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    use(third, KIB, streams[0]);
    give_on(1, young[1], 5 * MIB);
    (void)take(16 * MIB);
    CHECK_ZU(reserved(), own + 2 * 16 * MIB);
}

static size_t reserved_never_at_rest(void) {
    if (!set_up("memory=4GiB,mode=adversarial", "cache=0")) {
        return SIZE_MAX;
    }
    for (int i = 0; i < 8; i++) {
        void *ptr = take(20 * MIB);
        use(ptr, KIB, streams[0]);
        give(ptr);
    }
    const size_t bytes = reserved();
    CHECK(take(100 * MIB) != NULL); /* a wait does not help */
    return bytes;
}

/* A wait ends after a second, which passes on a machine that has no time for this process. */
CASE(a_device_that_is_never_at_rest_has_bounds) {
    size_t bytes = reserved_never_at_rest();
    for (int i = 0; i < 3 && bytes > (size_t)2 * 20 * MIB; i++) {
        tear_down();
        bytes = reserved_never_at_rest();
    }
    CHECK(bytes <= (size_t)2 * 20 * MIB);
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
