/* test_pack.c - plans: right, as small as they can be, the same each time, or refused. */

#include "tests/check.h"
#include "allocator/base/host.h"
#include "tests/allocator/pack/pack_fixture.h"

enum { MANY = 400, LARGE = 4000 };

static ashlar_pack_buffer buffers[MANY];
static size_t offsets[MANY], others[MANY];
static ashlar_pack_result result;

/* Pack, and check all that a result promises whatever the problem. */
static bool packs(size_t count, const ashlar_pack_options *options) {
    const size_t alignment = options == NULL || options->alignment == 0 ? 1 : options->alignment;
    size_t highest = 0;
    if (ashlar_pack(buffers, count, options, offsets, &result) != ASHLAR_OK ||
        !is_plan(buffers, count, alignment, offsets)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t end = offsets[i] + buffers[i].bytes;
        highest = end > highest ? end : highest;
    }
    highest = (highest + alignment - 1) / alignment * alignment;
    return result.plan_bytes == highest && result.bound_bytes <= highest &&
           (result.is_optimal || highest > result.bound_bytes) && result.strategy != NULL;
}

/* `count` buffers, most of which live up to `life_max` units of time. */
static void draw_short(ashlar_pack_buffer *out, size_t count, size_t time_max, size_t life_max) {
    draw_buffers(out, count, 5000, time_max);
    for (size_t i = 0; i < count; i++) {
        const uint64_t latest = out[i].begin + pack_draw(1, life_max);
        out[i].end = out[i].end < latest || i % 20 == 0 ? out[i].end : latest;
    }
}

CASE(no_buffers_are_a_plan_of_no_bytes) {
    REQUIRE(ashlar_pack(NULL, 0, NULL, NULL, &result) == ASHLAR_OK);
    CHECK(result.plan_bytes == 0 && result.bound_bytes == 0 && result.is_optimal);
    CHECK(!result.was_stopped && result.strategy != NULL);
}

CASE(the_bound_is_the_peak_of_live_bytes) {
    for (int round = 0; round < 300; round++) {
        const size_t count = pack_draw(1, 40);
        draw_buffers(buffers, count, 100, pack_draw(1, 60));
        REQUIRE(packs(count, NULL));
        CHECK_ZU(result.bound_bytes, peak_of(buffers, count));
    }
}

CASE(lifetimes_are_half_open) {
    buffers[0] = (ashlar_pack_buffer){10, 0, 5};
    buffers[1] = (ashlar_pack_buffer){10, 5, 9};
    buffers[2] = (ashlar_pack_buffer){10, 9, UINT64_MAX};
    REQUIRE(packs(3, NULL));
    CHECK_ZU(result.plan_bytes, 10);
    buffers[1].begin = 4;
    REQUIRE(packs(3, NULL));
    CHECK_ZU(result.plan_bytes, 20);
}

CASE(few_buffers_get_the_smallest_plan_and_its_proof) {
    const ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
    for (int round = 0; round < 700; round++) {
        const size_t count = pack_draw(1, 8);
        draw_buffers(buffers, count, 9, 7);
        REQUIRE(packs(count, &options));
        CHECK_ZU(result.plan_bytes, smallest_plan(buffers, count));
        CHECK_ZU(result.bound_bytes, result.plan_bytes);
        CHECK(result.is_optimal && !result.was_stopped);
    }
}

CASE(a_plan_above_the_bound_is_proven) {
    const ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
    CHECK_ZU(smallest_plan_below(hard, HARD_COUNT, HARD_SMALLEST + 1), HARD_SMALLEST);
    for (size_t unit = 1; unit <= 1000; unit *= 10) {
        memcpy(buffers, hard, sizeof hard);
        for (size_t k = 0; k < HARD_COUNT; k++) {
            buffers[k].bytes *= unit;
        }
        REQUIRE(packs(HARD_COUNT, NULL));
        CHECK(!result.is_optimal && result.plan_bytes > HARD_SMALLEST * unit);
        REQUIRE(packs(HARD_COUNT, &options));
        CHECK_ZU(result.bound_bytes, HARD_SMALLEST * unit); /* the peak is 24 */
        CHECK_ZU(result.plan_bytes, HARD_SMALLEST * unit);
        CHECK(result.is_optimal && !result.was_stopped);
    }
}

/* Each of the orders is the best one of some problem. */
CASE(every_order_has_its_problems) {
    static const char *const names[] = {"fullest section first", "largest area first",
                                        "longest-lived first"};
    enum { COUNT = sizeof names / sizeof names[0] };
    size_t wins[COUNT] = {0};
    pack_seed = 3;
    for (int round = 0; round < 500; round++) {
        draw_buffers(buffers, 60, 5000, 40);
        REQUIRE(packs(60, NULL));
        for (int i = 0; i < COUNT; i++) {
            wins[i] += strcmp(result.strategy, names[i]) == 0;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(wins[i] > 0);
    }
}

/* Small problems by valleys, and the search; large ones by moves. */
CASE(every_method_has_its_problems) {
    static ashlar_pack_buffer many[LARGE];
    static size_t places[LARGE];
    bool by_valleys = false;
    pack_seed = 1;
    for (int round = 0; round < 20; round++) {
        ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
        draw_short(buffers, 200, 100, 30);
        REQUIRE(packs(200, NULL));
        if (!result.is_optimal) {
            options.capacity_bytes = result.plan_bytes - 1;
            REQUIRE(packs(200, &options));
            CHECK(result.plan_bytes <= options.capacity_bytes);
            by_valleys |= strcmp(result.strategy, "lowest valley first") == 0;
        }
    }
    CHECK(by_valleys);
    draw_short(many, LARGE, LARGE / 2, 30);
    REQUIRE(ashlar_pack(many, LARGE, NULL, places, &result) == ASHLAR_OK);
    const ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS,
                                         .capacity_bytes = result.plan_bytes - 1};
    REQUIRE(ashlar_pack(many, LARGE, &options, places, &result) == ASHLAR_OK);
    CHECK(result.plan_bytes <= options.capacity_bytes);
    CHECK(strcmp(result.strategy, "ejection") == 0 && is_plan(many, LARGE, 1, places));
}

/* Whoever changes how a method looks for plans changes these sums, of all offsets. The new ones are
 * what the case says it got, if plans are no larger for it. */
CASE(offsets_are_the_same_on_every_machine_and_by_every_compiler) {
    uint64_t sums[2] = {0};
    pack_seed = 5;
    for (int round = 0; round < 40; round++) {
        const size_t count = pack_draw(20, 160);
        draw_short(buffers, count, pack_draw(20, 200), pack_draw(4, 60));
        REQUIRE(packs(count, NULL));
        const ashlar_pack_options options = {
            .time_budget_ms = NO_HURRY_MS,
            .capacity_bytes = result.bound_bytes + (result.plan_bytes - result.bound_bytes) / 2};
        for (int k = 0; k < 2; k++) {
            for (size_t i = 0; i < count; i++) {
                sums[k] = (sums[k] ^ offsets[i]) * UINT64_C(1099511628211);
            }
            REQUIRE(k == 1 || (packs(count, &options) && !result.was_stopped));
        }
    }
    CHECK_ZU(sums[0], UINT64_C(2769751381195426722));
    CHECK_ZU(sums[1], UINT64_C(3724901333940074088));
}

CASE(offsets_are_aligned) {
    for (size_t alignment = 1; alignment <= 4096; alignment *= 8) {
        const ashlar_pack_options options = {.alignment = alignment, .time_budget_ms = 20};
        draw_buffers(buffers, 60, 3000, 50);
        REQUIRE(packs(60, &options));
        CHECK(result.bound_bytes % alignment == 0 && result.plan_bytes % alignment == 0);
    }
    const ashlar_pack_options aligned = {.alignment = 256};
    buffers[0] = (ashlar_pack_buffer){1, 0, 2};
    buffers[1] = (ashlar_pack_buffer){257, 1, 3};
    REQUIRE(packs(2, &aligned));
    CHECK_ZU(result.bound_bytes, 768);
    CHECK_ZU(result.plan_bytes, 768);
}

CASE(a_capacity_is_met_and_no_more) {
    ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
    int looser = 0;
    for (int round = 0; round < 200; round++) {
        draw_buffers(buffers, 7, 9, 7);
        const size_t smallest = smallest_plan(buffers, 7);
        options.capacity_bytes = smallest;
        REQUIRE(packs(7, &options));
        CHECK_ZU(result.plan_bytes, smallest);
        options.capacity_bytes = 2 * smallest;
        REQUIRE(packs(7, &options));
        CHECK(result.plan_bytes <= 2 * smallest);
        looser += result.plan_bytes > smallest;
        options.capacity_bytes = smallest - 1;
        REQUIRE(packs(7, &options)); /* no failure, and proven */
        CHECK_ZU(result.plan_bytes, smallest);
        CHECK(result.is_optimal);
    }
    CHECK(looser > 0);
}

/* ---- refusals ---- */

static bool refuses(size_t count, size_t alignment, ashlar_status want, const char *text) {
    const ashlar_pack_options options = {.alignment = alignment};
    const ashlar_pack_result before = result;
    memset(offsets, 0x5a, sizeof offsets);
    memcpy(others, offsets, sizeof offsets);
    const ashlar_status got = ashlar_pack(buffers, count, &options, offsets, &result);
    CHECK_HAS(ashlar_error_detail(), text);
    return got == want && memcmp(&before, &result, sizeof before) == 0 &&
           memcmp(offsets, others, sizeof offsets) == 0;
}

CASE(bad_arguments_are_named) {
    memset(&result, 0, sizeof result);
    draw_buffers(buffers, 3, 9, 9);
    CHECK(refuses(3, 3, ASHLAR_EINVAL, "alignment of 3"));
    CHECK(refuses(3, SIZE_MAX, ASHLAR_EINVAL, "power of two"));
    buffers[2].bytes = 0;
    CHECK(refuses(3, 1, ASHLAR_EINVAL, "buffer 2 has 0 bytes"));
    buffers[2] = (ashlar_pack_buffer){1, 4, 4};
    CHECK(refuses(3, 1, ASHLAR_EINVAL, "buffer 2 lives from 4 to 4"));
    buffers[2] = (ashlar_pack_buffer){1, 5, 4};
    CHECK(refuses(3, 1, ASHLAR_EINVAL, "buffer 2 lives from 5 to 4"));
    CHECK(refuses((size_t)1 << 31, 1, ASHLAR_EOVERFLOW, "2147483648 buffers"));
}

CASE(sizes_that_do_not_add_up_are_refused) {
    memset(&result, 0, sizeof result);
    buffers[0] = (ashlar_pack_buffer){SIZE_MAX - 9, 0, 2};
    buffers[1] = (ashlar_pack_buffer){9, 1, 3};
    CHECK(refuses(2, 1, ASHLAR_EOVERFLOW, "buffer 1 of 9 bytes"));
    CHECK(refuses(1, 512, ASHLAR_EOVERFLOW, "buffer 0"));
    buffers[1].bytes = 8;
    REQUIRE(packs(2, NULL));
    CHECK(result.plan_bytes == SIZE_MAX - 1 && result.is_optimal);
}

CASE(without_host_memory_nothing_changes) {
    const ashlar_pack_options options = {.time_budget_ms = NO_HURRY_MS};
    size_t untouched[7];
    memset(untouched, 0x5a, sizeof untouched);
    do { /* one that greedy orders do not solve, so that every strategy has its turn */
        draw_buffers(buffers, 7, 9, 7);
        REQUIRE(packs(7, NULL));
    } while (result.plan_bytes == result.bound_bytes);
    memset(&result, 0, sizeof result);
    memset(offsets, 0x5a, sizeof offsets);
    FOR_HOST_FAILURES(n, status, ashlar_pack(buffers, 7, &options, offsets, &result)) {
        if (status != ASHLAR_OK) {
            CHECK(result.strategy == NULL);
            CHECK_HAS(ashlar_error_detail(), "pack: no host memory");
            CHECK(memcmp(offsets, untouched, sizeof untouched) == 0);
        }
    }
    CHECK(n > 30);
}

RUN_CASES()
