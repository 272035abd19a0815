/* test_limits.c - how much memory an allocator has: limit, reservation, trim and seal. */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/limits_fixture.h"

/* ---- limit ---- */

CASE_BOTH_WITH(the_limit_binds_at_once_and_exactly, set_up_limits("memory=32MiB")) {
    CHECK(ashlar_allocator_set_limit(allocator, 8 * MIB) == ASHLAR_OK);
    unsigned char *full = take(8 * MIB, streams[0]);
    check_refused(1, "of the device's 33554432 (limit 8388608)");
    CHECK_HAS(ashlar_error_detail(), "raise the limit");
    CHECK(ashlar_allocator_set_limit(allocator, 10 * MIB - 1) == ASHLAR_OK);
    check_refused(1, "limit");
    CHECK(ashlar_allocator_set_limit(allocator, 10 * MIB) == ASHLAR_OK);
    unsigned char *more = take(2 * MIB, streams[0]);
    CHECK_ZU(reserved(), 10 * MIB);
    give(full);
    give(more);
}

CASE_BOTH_WITH(a_limit_below_what_is_in_use_holds_and_says_so, set_up_limits("memory=32MiB")) {
    unsigned char *used = take_filled(8 * MIB, 0x5A), *rest = take(4 * MIB, streams[0]);
    give(rest);
    CHECK_FAILS(ashlar_allocator_set_limit(allocator, 4 * MIB), ASHLAR_ENOMEM,
                "8388608 bytes are reserved");
    CHECK_HAS(ashlar_error_detail(), "4194304");
    CHECK_ZU(reserved(), 8 * MIB); /* what was idle is given back */
    check_refused(4 * MIB, "limit");
    check_filled(used, 8 * MIB, 0x5A);
    give(used);
    used = take(8 * MIB, streams[0]); /* what is there may be used */
    give(used);
    CHECK(ashlar_allocator_set_limit(allocator, 4 * MIB) == ASHLAR_OK);
    CHECK(reserved() <= 4 * MIB);
    check_refused(4 * MIB + 1, "limit");
    give(take(4 * MIB, streams[0]));
}

CASE_BOTH(the_smaller_of_two_limits_binds) {
    const struct {
        size_t bytes;
        double fraction;
        size_t binding;
    } cases[] = {
        {10 * MIB, 1, 10 * MIB}, {10 * MIB, 0.5, 10 * MIB}, {10 * MIB, 0.25, 8 * MIB},
        {0, 0.5, 16 * MIB},      {0, 1, 32 * MIB},
    };
    REQUIRE(set_up_options("memory=32MiB"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.limit_bytes = cases[i].bytes;
        options.limit_fraction = cases[i].fraction;
        REQUIRE(open_allocator());
        check_refused(cases[i].binding + 1, "asked for");
        give(take(cases[i].binding, streams[0]));
        ashlar_allocator_destroy(allocator);
    }
    tear_down_device();
}

/* ---- reserve ---- */

CASE_BOTH_WITH(a_reservation_serves_whoever_comes_first, set_up_limits("memory=32MiB")) {
    size_t calls = taking_calls();
    CHECK(ashlar_allocator_reserve(allocator, 20 * MIB) == ASHLAR_OK);
    CHECK_ZU(taking_calls() - calls, use_vmm ? 10 : 1); /* handles, or one segment */
    CHECK_ZU(reserved(), 20 * MIB);
    CHECK_ZU((size_t)stats_now().reserved_peak_bytes, 20 * MIB);
    CHECK_ZU((size_t)stats_now().spare_bytes, use_vmm ? 20 * MIB : 0);
    calls = taking_calls();
    CHECK(ashlar_allocator_reserve(allocator, 20 * MIB) == ASHLAR_OK);
    CHECK(ashlar_allocator_reserve(allocator, 0) == ASHLAR_OK);
    unsigned char *all = take(20 * MIB, streams[2]);
    CHECK_ZU(taking_calls() - calls, 0);
    CHECK(stats_now().spare_bytes == 0 && stats_now().events_recorded == 0);
    give(all);
    CHECK(take(20 * MIB, streams[2]) == all && stats_now().served_same_stream == 1);
    CHECK(ashlar_allocator_reserve(allocator, 21 * MIB) == ASHLAR_OK);
    CHECK_ZU(reserved(), 22 * MIB);
    give(all);
}

CASE_BOTH_WITH(memory_can_be_reserved_at_creation, set_up_options("memory=32MiB")) {
    options.reserve_bytes = 6 * MIB;
    REQUIRE(open_allocator());
    CHECK_ZU(reserved(), 6 * MIB);
    ashlar_allocator_destroy(allocator);
    options.limit_bytes = 4 * MIB;
    ashlar_allocator *none = NULL;
    CHECK(ashlar_allocator_create_with(device, &options, &none) == ASHLAR_ENOMEM && none == NULL);
    tear_down_device();
}

/* ---- trim ---- */

enum { PIECES = 6, SEEDS = 12 };

/* Without any event before: one that is recorded now and asked at once need not have completed. */
CASE_BOTH(the_first_trim_behind_a_synchronisation_gives_everything_back) {
    for (int seed = 0; seed < SEEDS; seed++) {
        const bool limits = seed % 2 == 1;
        char spec[64];
        (void)snprintf(spec, sizeof spec, "memory=64MiB,mode=adversarial,seed=%d", seed);
        REQUIRE(set_up_options(spec));
        options.cache_bytes = 8 * MIB;
        REQUIRE(open_allocator());
        for (int i = 0; i < STREAMS; i++) {
            unsigned char *ptr = take(4 * MIB, streams[i]), *small = take(1000, streams[i]);
            queue_write(streams[i], ptr, 4 * MIB, 1);
            CHECK(ashlar_record_stream(allocator, small, streams[(i + 1) % STREAMS]) == ASHLAR_OK);
            order_behind(streams[i], streams[(i + 2) % STREAMS]);
            give_on(ptr, i % 2 == 0 ? streams[i] : streams[(i + 2) % STREAMS]);
            give(small);
        }
        const uint64_t events = stats_now().events_recorded;
        REQUIRE(ashlar__device_synchronize(device) == ASHLAR_OK);
        CHECK((limits ? ashlar_allocator_set_limit(allocator, 1)
                      : ashlar_allocator_trim(allocator, 0)) == ASHLAR_OK);
        CHECK(reserved() == 0 && stats_now().shared_bytes == 0);
        CHECK_ZU(free_memory_of(device), 64 * MIB);
        CHECK_ZU((size_t)(stats_now().events_recorded - events), 0);
        tear_down();
    }
}

/* ---- seal ---- */

typedef struct heard {
    int count;
    void *inner; /* taken by the callback */
    char line[160];
} heard;

static void hear(void *user, const char *line) {
    heard *h = user;
    h->count++;
    (void)snprintf(h->line, sizeof h->line, "%s", line);
    /* No lock is held: the allocator may be used, from what there is. */
    if (h->inner == NULL) {
        CHECK(ashlar_alloc(allocator, 512, streams[1], &h->inner) == ASHLAR_OK);
    }
}

CASE_BOTH(warning_tells_who_needed_memory) {
    heard h = {0};
    void *ptr = NULL;
    REQUIRE(set_up_limits("memory=32MiB"));
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_WARN, hear, &h) == ASHLAR_OK);
    unsigned char *first = take(4 * MIB, streams[0]);
    CHECK(h.count == 0); /* not sealed */
    ashlar_allocator_seal(allocator);
    give(first);
    first = take(4 * MIB, streams[0]);
    CHECK(h.count == 0); /* nothing was taken */
    CHECK(ashlar_alloc_tagged(allocator, 4 * MIB - 1000, ASHLAR_TAG_BATCH, streams[0], &ptr) ==
          ASHLAR_OK);
    CHECK(h.count == 1 || h.count == 2); /* the callback's own block may need memory too */
    CHECK(h.inner != NULL);
    if (h.count == 1) {
        CHECK_HAS(h.line, "4193304");
        CHECK_HAS(h.line, "batch");
    }
    give(ptr);
    give(h.inner);
    give(first);
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_WARN, NULL, NULL) == ASHLAR_OK);
    give(take(16 * MIB, streams[0])); /* nobody is told */
}

CASE_BOTH_WITH(refusing_uses_what_there_is_and_creates_nothing, set_up_options("memory=32MiB")) {
    options.seal = ASHLAR_SEAL_ERROR;
    options.reserve_bytes = 8 * MIB;
    REQUIRE(open_allocator());
    ashlar_allocator_seal(allocator);
    const size_t calls = taking_calls();
    unsigned char *first = take(4 * MIB, streams[0]), *second = take(4 * MIB, streams[1]);
    check_refused(512, "sealed");
    CHECK_FAILS(ashlar_allocator_reserve(allocator, 9 * MIB), ASHLAR_ENOMEM, "sealed");
    CHECK(ashlar_allocator_reserve(allocator, 8 * MIB) == ASHLAR_OK); /* it is there */
    give(first);
    give(second);
    unsigned char *whole = take(8 * MIB, streams[2]); /* from both, for a stream that is new */
    CHECK_ZU(taking_calls() - calls, 0);
    CHECK_ZU(reserved(), 8 * MIB);
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_COUNT, NULL, NULL) == ASHLAR_OK);
    unsigned char *more = take(512, streams[0]);
    CHECK(taking_calls() > calls);
    give(whole);
    give(more);
}

RUN_CASES()
