/*
 * test_dry_run.c - steps recorded without memory: the addresses they get, what is recorded of
 * them, and that only the thread of the dry run is concerned.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "tests/allocator/core/helper_fixture.h"
#include "tests/allocator/core/graph_pool_fixture.h"
#include "allocator/core/core.h"
#include "allocator/step/step.h"

static ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

static void begin(void) {
    CHECK(ashlar__dry_run_begin(allocator, streams[0], 1) == ASHLAR_OK);
}

static void end(void) {
    CHECK(ashlar__dry_run_end(allocator) == ASHLAR_OK);
    check_all();
}

static bool has_no_memory(const void *ptr) {
    return (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE;
}

CASE_WITH(addresses_are_recorded_as_blocks_are, set_up_cached("memory=1GiB", 64 * MIB)) {
    begin();
    unsigned char *a = take(MIB, streams[0]), *b = take(2 * MIB, streams[0]);
    CHECK(has_no_memory(a) && has_no_memory(b) && a != b && (uintptr_t)b % 512 == 0);
    give(a);
    unsigned char *c = take(MIB, streams[0]); /* in the place of a */
    give(c);
    give(b);
    CHECK(stats_now().alloc_count == 0 && stats_now().reserved_bytes == 0);
    end();
    const ashlar_plan_stats plan = plans();
    CHECK_ZU(plan.slot_count, 3);
    CHECK_ZU(plan.bound_bytes, 3 * MIB);
    CHECK_ZU(plan.plan_bytes, 3 * MIB);
    begin(); /* there is a plan: it is replayed, with memory */
    a = take(MIB, streams[0]);
    CHECK(!has_no_memory(a));
    queue_write(streams[0], a, MIB, 3);
    give(a);
    unsigned char *more = take(MIB, streams[1]); /* nor is what the plan does not have */
    CHECK(!has_no_memory(more));
    give(more);
    end();
    CHECK_ZU(plans().hits, 1);
    begin();
    end(); /* nothing taken is nothing left */
}

CASE_WITH(a_pointer_that_is_no_live_block_is_refused, set_up_cached("memory=1GiB", 64 * MIB)) {
    unsigned char *real = take(100, streams[0]);
    begin();
    unsigned char *a = take(MIB, streams[0]);
    CHECK_FAILS(ashlar_free(allocator, a + 512), ASHLAR_EPOINTER, "not a block of this dry run");
    CHECK_FAILS(ashlar_free(allocator, a + ((size_t)1 << ASHLAR_DRY_RUN_STRIDE_LOG2)),
                ASHLAR_EPOINTER, "not a block of this dry run");
    CHECK(ashlar_record_stream(allocator, a + 1, streams[1]) == ASHLAR_EPOINTER);
    size_t bytes = 7;
    CHECK(ashlar_usable_bytes(allocator, a + 1, &bytes) == ASHLAR_EPOINTER);
    CHECK_ZU(bytes, 7);
    CHECK(ashlar_usable_bytes(allocator, a, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, MIB);
    CHECK(ashlar_usable_bytes(allocator, real, &bytes) == ASHLAR_OK);
    CHECK(bytes >= 100 && bytes < MIB);
    give(a);
    CHECK(ashlar_usable_bytes(allocator, a, &bytes) == ASHLAR_EPOINTER);
    CHECK_FAILS(ashlar_free(allocator, a), ASHLAR_EPOINTER, "freed before in this dry run");
    CHECK(ashlar_free_on(allocator, a, streams[1]) == ASHLAR_EPOINTER);
    CHECK(ashlar_record_stream(allocator, a, streams[1]) == ASHLAR_EPOINTER);
    give(real); /* one from before has memory, and is freed as ever */
    end();
    CHECK(ashlar_free(allocator, a) == ASHLAR_EPOINTER); /* the dry run is over */
    CHECK(ashlar_record_stream(allocator, a, streams[1]) == ASHLAR_EPOINTER);
}

CASE_WITH(what_further_streams_use_holds_its_slot, set_up_cached("memory=1GiB", 64 * MIB)) {
    begin();
    for (int kind = 0; kind < 5; kind++) {
        unsigned char *ptr = take(MIB, streams[0]);
        if (kind == 0 || kind == 3) {
            CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_OK);
        } else if (kind == 1) {
            CHECK(ashlar_record_stream(allocator, ptr, streams[0]) == ASHLAR_OK); /* its own */
        }
        if (kind == 2 || kind == 3) {
            give_on(ptr, streams[1]);
        } else if (kind == 4) {
            give_on(ptr, streams[0]);
        } else {
            give(ptr);
        }
    }
    end();
    CHECK_ZU(plans().slot_count, 5);
    CHECK_ZU(plans().plan_bytes, 4 * MIB); /* kinds 1 and 4 have one slot's addresses */
    CHECK_ZU(plans().bound_bytes, MIB);
}

CASE(requests_that_no_recording_holds_get_memory_or_an_error) {
    ashlar_stream more[ASHLAR_PLAN_STREAMS_MAX];
    unsigned char *ptrs[ASHLAR_PLAN_STREAMS_MAX];
    void *unused = &unused;
    REQUIRE(set_up_cached("memory=1GiB", 64 * MIB));
    begin();
    for (int i = 0; i < ASHLAR_PLAN_STREAMS_MAX; i++) {
        REQUIRE(ashlar_stream_create(device, &more[i]) == ASHLAR_OK);
        ptrs[i] = take(100, more[i]);
        CHECK(has_no_memory(ptrs[i]));
    }
    unsigned char *other = take(100, streams[0]);
    CHECK(!has_no_memory(other)); /* of a stream too many */
    give(other);
    CHECK(ashlar_alloc(allocator, (size_t)2 << 30, more[0], &unused) == ASHLAR_ENOMEM);
    CHECK(ashlar_alloc(allocator, 0, more[0], &unused) == ASHLAR_EINVAL);
    CHECK(ashlar_alloc_tagged(allocator, 1, ASHLAR_TAG_COUNT, more[0], &unused) == ASHLAR_EINVAL);
    CHECK(unused == &unused);
    for (int i = 0; i < ASHLAR_PLAN_STREAMS_MAX; i++) {
        give(ptrs[i]);
    }
    end();
    CHECK_ZU(plans().slot_count, ASHLAR_PLAN_STREAMS_MAX);
    for (int i = 0; i < ASHLAR_PLAN_STREAMS_MAX; i++) {
        ashlar_stream_destroy(device, more[i]);
    }
}

RUN_CASES()
