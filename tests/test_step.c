/* Steps that are recorded and replayed: what a plan serves, and that nothing it serves overlaps. */
#include "allocator_fixture.h"

#include <ashlar/plan.h>

#include "allocator_impl.h"

static ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_read(allocator, &stats);
    return stats;
}

static uint64_t driver_calls(void) {
    ashlar_stats stats;
    ashlar_stats_read(allocator, &stats);
    return stats.driver_calls;
}

static void begin(uint64_t key) {
    CHECK(ashlar_step_begin(allocator, streams[0], key) == ASHLAR_OK);
}

static void end(void) {
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    check_all();
}

/* Forward keeps, backward frees in the opposite order, with a workspace for each layer. */
enum { LAYERS = 6 };

static void train(size_t bytes) {
    void *kept[LAYERS], *work;
    for (int i = 0; i < LAYERS; i++) {
        kept[i] = take(bytes + (size_t)i * 4096, streams[0]);
        work = take(2 * bytes, streams[0]);
        give(work);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        work = take(3 * bytes, streams[0]);
        give(kept[i]);
        give(work);
    }
}

static void a_step_like_the_recorded_one_is_served_from_the_plan(void) {
    REQUIRE(set_up_cached("memory=1GiB", 64 * MIB));
    begin(1);
    train(MIB);
    end();
    CHECK_ZU(plans().plan_count, 1);
    const uint64_t calls = driver_calls();
    for (int i = 0; i < 3; i++) {
        begin(1);
        train(MIB - (size_t)i * 100000);
        end();
    }
    const ashlar_plan_stats stats = plans();
    CHECK_ZU(stats.steps_replayed, 3);
    CHECK_ZU(stats.hits, 3 * 3 * LAYERS);
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        CHECK_ZU(stats.misses[i], 0);
    }
    CHECK_ZU(driver_calls(), calls);
    CHECK(stats.plan_bytes >= stats.bound_bytes && stats.plan_bytes <= stats.region_bytes);
    tear_down();
}

int main(void) {
    RUN(a_step_like_the_recorded_one_is_served_from_the_plan);
    return check_report();
}
