/*
 * test_allocator_host.c - allocators of page-locked host memory: the host writes to a block as soon
 * as it has it, so no queued work may still use that memory.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/plan.h>

#include "allocator/base/random.h"

enum { ROUNDS = 300, BLOCKS = 4 };

static ashlar_status make(uint64_t limit_bytes) {
    const ashlar_config config = {.limit_bytes = limit_bytes};
    return ashlar_allocator_create_host(device, &config, &allocator);
}

/* On a device that lets queued work run as late as it may. */
static bool set_up_host(uint64_t limit_bytes) {
    atomic_store(&payload_bad_count, 0);
    return set_up_device("memory=64MiB,mode=adversarial,seed=7") &&
           make(limit_bytes) == ASHLAR_OK && check_at_end(tear_down);
}

/* The host writes to the block; work on the stream, which runs later, wants what it wrote. */
static void use(unsigned char *block, size_t bytes, ashlar_stream stream, int value) {
    memset(block, value, bytes);
    queue_verify(stream, block, bytes, (unsigned char)value);
}

static void wait_for_all(void) {
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
}

CASE_WITH(blocks_are_page_locked_and_aligned, set_up_host(0)) {
    for (size_t bytes = 1; bytes <= 8 * MIB; bytes *= 7) {
        unsigned int type = 0;
        unsigned char *block = take(bytes, streams[0]);
        CHECK((uintptr_t)block % 512 == 0);
        memset(block, 1, bytes);
        CHECK(driver->table.pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE,
                                                  ashlar__ptr_in(block)) == CU_SUCCESS);
        CHECK(type == CU_MEMORY_HOST);
        give(block);
    }
}

/* Freed behind the work, on the stream it was taken for or on others, and taken anew at once. */
CASE_WITH(the_host_gets_no_block_that_queued_work_reads, set_up_host(0)) {
    ashlar_random random;
    ashlar__random_init(&random, 3);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            const size_t bytes = 1 + (size_t)ashlar__random_below(&random, 256 * KIB);
            const ashlar_stream stream = streams[ashlar__random_below(&random, STREAMS)];
            blocks[i] = take(bytes, stream);
            use(blocks[i], bytes, stream, round * BLOCKS + i);
            if (i == 1) {
                CHECK(ashlar_record_stream(allocator, blocks[i], streams[2]) == ASHLAR_OK);
                queue_verify(streams[2], blocks[i], bytes, (unsigned char)(round * BLOCKS + i));
            }
        }
        for (int i = 0; i < BLOCKS; i++) {
            if (i == 3) {
                give_on(blocks[i], streams[1]);
            } else {
                give(blocks[i]);
            }
        }
    }
    wait_for_all();
    CHECK(stats_now().served_mapped < ROUNDS / 4); /* most are served from what was freed */
}

CASE_WITH(at_the_limit_the_host_waits_for_the_work, set_up_host(8 * MIB)) {
    for (int i = 0; i < 12; i++) {
        unsigned char *block = take(3 * MIB, streams[i % STREAMS]);
        use(block, 3 * MIB, streams[i % STREAMS], i);
        give(block);
    }
    CHECK(stats_now().reserved_peak_bytes <= 8 * MIB && stats_now().served_after_sync > 0);
    unsigned char *first = take(4 * MIB, streams[0]);
    void *more = NULL;
    CHECK(ashlar_alloc(allocator, 5 * MIB, streams[0], &more) == ASHLAR_ENOMEM && more == NULL);
    give(first);
    wait_for_all();
}

CASE_WITH(a_trim_gives_all_back_once_the_work_is_over, set_up_host(0)) {
    for (int i = 0; i < 10; i++) {
        unsigned char *block = take((size_t)(1 + i) * 300 * KIB, streams[i % STREAMS]);
        use(block, 300 * KIB, streams[i % STREAMS], i);
        give(block);
    }
    wait_for_all();
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK_ZU(stats_now().reserved_bytes, 0);
}

CASE_WITH(a_step_plans_nothing_of_it, set_up_host(0)) {
    for (int step = 0; step < 3; step++) {
        CHECK(ashlar_step_begin(allocator, streams[0], 1) == ASHLAR_OK);
        unsigned char *block = take(MIB, streams[0]);
        use(block, MIB, streams[0], step);
        give(block);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    ashlar_plan_stats plans;
    ashlar_plan_get_stats(allocator, &plans);
    CHECK_ZU(plans.slot_count, 0);
    wait_for_all();
}

CASE_WITH(without_host_memory_a_request_loses_nothing_oom, set_up_host(0)) {
    give(take(MIB, streams[0]));
    wait_for_all();
    for (size_t at = 1; at <= 4; at++) {
        const uint64_t live = stats_now().live_blocks;
        void *block = NULL;
        ashlar_status status = ASHLAR_OK;
        HOST_FAILS_AT(at, status = ashlar_alloc(allocator, MIB, streams[1], &block));
        CHECK(status == ASHLAR_OK ? block != NULL : status == ASHLAR_EHOSTMEM && block == NULL);
        CHECK_ZU(stats_now().live_blocks, live + (status == ASHLAR_OK));
        give(block);
    }
}

CASE(options_of_device_memory_are_refused) {
    static const ashlar_config refused[] = {
        {.guard = ASHLAR_GUARD_FILL}, {.zero_blocks = true}, {.tells_nvtx = true}};
    REQUIRE(set_up_device("memory=8MiB"));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        ashlar_allocator *made = NULL;
        CHECK_FAILS(ashlar_allocator_create_host(device, &refused[i], &made), ASHLAR_EINVAL,
                    "device memory");
        CHECK(made == NULL);
    }
    tear_down_device();
}

RUN_CASES()
