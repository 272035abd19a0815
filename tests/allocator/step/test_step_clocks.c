/*
 * test_step_clocks.c - steps whose streams come and go, and plans that lend their memory, with
 * vector clocks: whatever is handed out, every earlier use comes before.
 */
#include "tests/allocator/step/step_fixture.h"
#include "tests/allocator/soft/soft_probe.h"

/* ---- blocks whose uses the clocks know ---- */

static void note_use(void *ptr, size_t bytes, ashlar_stream stream) {
    CHECK(ashlar_fill(device, ptr, 1, bytes, stream) == ASHLAR_OK);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_use(ashlar__ptr_in(ptr), bytes, stream) == ASHLAR_OK);
    ashlar__device_leave(device);
}

/* A block, used at once. */
static void *take_proven(size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    bool is_ordered = false;
    CHECK(ashlar_alloc(allocator, bytes, stream, &ptr) == ASHLAR_OK);
    if (ptr == NULL) {
        return NULL;
    }
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(ashlar__soft_clock_own(ashlar__ptr_in(ptr), bytes, stream, &is_ordered) == ASHLAR_OK);
    ashlar__device_leave(device);
    CHECK(is_ordered);
    note_use(ptr, bytes, stream);
    return ptr;
}

static void give_back(void *ptr) {
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
}

static bool set_up_clocks(const char *memory, unsigned seed) {
    char spec[96];
    (void)snprintf(spec, sizeof spec, "mode=adversarial,seed=%u,memory=%s", seed, memory);
    return set_up_cached(spec, 8 * MIB);
}

enum { SEEDS = 6 };

/* ---- streams that come and go ---- */

/* A stream is made, used and destroyed in each step; the handles come again. */
CASE(what_a_stream_of_the_step_used_is_not_planned) {
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        REQUIRE(set_up_clocks("64MiB", seed));
        for (uint64_t i = 0; i < 8; i++) {
            ashlar_stream side = NULL;
            begin(1);
            void *first = take_proven(100 * KIB, streams[0]);
            CHECK(ashlar_stream_create(device, &side) == ASHLAR_OK);
            void *beside = take_proven(3 * MIB, side);
            void *second = take_proven(2 * MIB, streams[0]);
            give_back(first);
            give_back(beside);
            CHECK(ashlar_allocator_forget_stream(allocator, side) == ASHLAR_OK);
            ashlar_stream_destroy(device, side);
            give_back(second);
            end();
        }
        CHECK_ZU(plans().steps_recorded, 1);
        CHECK_ZU(plans().hits, 7 * 2);
        CHECK_ZU(plans().unplanned, 7);
        CHECK_ZU(misses_now(), 0);
        CHECK(plans().memory_bytes < 3 * MIB);
        tear_down();
    }
}

/* Its plan was to be made while nobody could name the stream. */
CASE(steps_of_a_stream_that_is_gone_are_planned_when_they_go_on) {
    const ashlar_plan_options by_hand = {.build_after = ASHLAR_PLAN_BUILD_NEVER};
    REQUIRE(set_up_clocks("64MiB", 1));
    CHECK(ashlar_plan_set_options(allocator, &by_hand) == ASHLAR_OK);
    for (int i = 0; i < 3; i++) {
        begin(1);
        give_back(take_proven(2 * MIB, streams[0]));
        end();
        if (i == 0) {
            ashlar_stream_destroy(device, streams[0]);
        }
        CHECK(ashlar_plan_build(allocator) == ASHLAR_OK);
        CHECK_ZU(plans().plan_count, i == 0 ? 0 : 1);
        CHECK_ZU(plans().memory_bytes, i == 0 ? 0 : 2 * MIB);
        if (i == 0) {
            CHECK(ashlar_stream_create(device, &streams[0]) == ASHLAR_OK);
        }
    }
    CHECK_ZU(plans().steps_recorded, 2);
    CHECK_ZU(plans().hits, 1);
    tear_down();
}

static void step_of_two(ashlar_stream stream) {
    CHECK(ashlar_step_begin(allocator, stream, 1) == ASHLAR_OK);
    void *a = take_proven(1 * MIB, stream), *b = take_proven(2 * MIB, stream);
    give_back(a);
    give_back(b);
    end();
}

/*
 * A planned block outlives its step, is used on a further stream too, and then its own stream ends
 * while the steps go on on another: on one that used the block (0), on one that did not (1), or so
 * that both streams of the block have ended (2).
 */
static void carry_over(unsigned seed, int variant) {
    ashlar_stream side = NULL;
    REQUIRE(set_up_clocks("64MiB", seed));
    CHECK(ashlar_stream_create(device, &side) == ASHLAR_OK);
    step_of_two(streams[0]);
    begin(1);
    void *carried = take_proven(1 * MIB, streams[0]);
    end();
    const ashlar_stream other = variant == 0 ? streams[1] : side;
    order_streams(0, 1);
    CHECK(ashlar_record_stream(allocator, carried, other) == ASHLAR_OK);
    note_use(carried, 1 * MIB, other);
    CHECK(ashlar_allocator_forget_stream(allocator, streams[0]) == ASHLAR_OK);
    ashlar_stream_destroy(device, streams[0]);
    if (variant == 2) {
        CHECK(ashlar_allocator_forget_stream(allocator, side) == ASHLAR_OK);
        ashlar_stream_destroy(device, side);
    }
    step_of_two(streams[1]);
    step_of_two(streams[1]);
    give_back(carried);
    for (int i = 0; i < 4; i++) {
        step_of_two(streams[1]);
    }
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    const uint64_t before = plans().hits;
    step_of_two(streams[1]);
    CHECK_ZU(plans().hits, before + 2);
    CHECK_ZU(plans().steps_recorded, 1);
    CHECK_ZU(stats_now().shared_bytes, 0);
    CHECK(ashlar_stream_create(device, &streams[0]) == ASHLAR_OK);
    if (variant != 2) {
        ashlar_stream_destroy(device, side);
    }
    tear_down();
}

CASE(a_block_carried_over_the_end_of_its_stream_comes_back) {
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        for (int variant = 0; variant < 3; variant++) {
            carry_over(seed, variant);
        }
    }
}

/* ---- a block of another stream's zone ---- */

/* The stream that has the block frees it, while the one whose memory it is reads it. */
CASE(a_borrowed_block_that_its_home_reads_is_not_served_at_once) {
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        REQUIRE(set_up_clocks("4MiB", seed));
        give_back(take_proven(2 * MIB, streams[1]));
        CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        void *rest = take_proven(2 * MIB, streams[0]), *borrowed = take_proven(2 * MIB, streams[0]);
        CHECK(ashlar_record_stream(allocator, borrowed, streams[1]) == ASHLAR_OK);
        note_use(borrowed, 2 * MIB, streams[1]);
        give_back(borrowed);
        give_back(take_proven(2 * MIB, streams[0]));
        give_back(rest);
        tear_down();
    }
}

/* ---- memory that plans lend ---- */

/* Blocks of a step that are live together. */
static void step_of(int stream, uint64_t key, int count, size_t bytes) {
    void *blocks[8];
    begin_on(stream, key);
    for (int i = 0; i < count; i++) {
        blocks[i] = take_proven(bytes, streams[stream]);
    }
    for (int i = 0; i < count; i++) {
        give_back(blocks[i]);
    }
    end();
}

/* Either needs most of the device. */
CASE(training_and_evaluation_take_turns_on_one_devices_memory) {
    enum { ROUNDS = 6 };
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        const int eval_stream = (int)seed % 2;
        REQUIRE(set_up_clocks("24MiB", seed));
        for (int round = 0; round < ROUNDS; round++) {
            step_of(0, 1, 3, 6 * MIB);
            step_of(0, 1, 3, 6 * MIB);
            step_of(eval_stream, 2, 2, 8 * MIB);
        }
        CHECK_ZU(plans().steps_recorded, 2);
        CHECK_ZU(plans().steps_declined, 0);
        CHECK_ZU(plans().hits, 3 * (2 * ROUNDS - 1) + 2 * (ROUNDS - 1));
        CHECK_ZU(misses_now(), 0);
        CHECK(stats_now().reserved_bytes <= 24 * MIB);
        tear_down();
    }
}

/* The evaluation goes the ordinary way, with blocks that stay for a while. */
CASE(memory_of_a_plan_serves_what_is_no_step) {
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        REQUIRE(set_up_clocks("24MiB", seed));
        step_of(0, 1, 3, 6 * MIB);
        for (int round = 0; round < 4; round++) {
            void *a = take_proven(10 * MIB, streams[1]), *b = take_proven(10 * MIB, streams[2]);
            CHECK_ZU(plans().memory_bytes, 0);
            CHECK_ZU(plans().plan_count, 1);
            const uint64_t declined = plans().steps_declined;
            begin(1);
            give_back(take_proven(1 * MIB, streams[0]));
            end();
            CHECK_ZU(plans().steps_declined, declined + 1);
            give_back(a);
            give_back(b);
            step_of(0, 1, 3, 6 * MIB);
            CHECK_ZU(plans().hits, 3 * ((uint64_t)round + 1));
        }
        CHECK_ZU(plans().steps_recorded, 1);
        CHECK_ZU(misses_now(), 0);
        tear_down();
    }
}

RUN_CASES()
