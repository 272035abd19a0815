/*
 * test_allocator_traced.c - that random work goes the same way with a trace as without, and again
 * when its trace is replayed.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/allocator_impl.h"
#include "tests/allocator/base/file_fixture.h"
#include "bench/replay/replay.h"
#include "allocator/base/random.h"

/* ---- beside an untraced allocator ---- */

enum { OPERATIONS = 6000, HELD = 60, EVENTS_MAX = 1 << 14 };

typedef struct run {
    size_t offsets[OPERATIONS]; /* of the block that operation took; SIZE_MAX: none */
    ashlar_stats stats;
} run;

static uint64_t random_state;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static size_t draw_bytes(void) {
    const size_t kind = draw(16);
    return kind < 10 ? 500 * (1 + draw(8)) : kind < 14 ? 40000 * (1 + draw(4)) : 1 + draw(3 * MIB);
}

typedef struct slot {
    unsigned char *ptr;
    size_t stream; /* it was taken for */
} slot;

/* Free a block on a stream that comes behind the one that it was taken for. */
static ashlar_status free_behind(const slot *s, size_t stream) {
    if (s->stream != stream) {
        wait_for(streams[s->stream]);
    }
    return ashlar_free_on(allocator, s->ptr, streams[stream]);
}

static void operate(run *r, size_t number, slot *s) {
    const size_t stream = draw(STREAMS), kind = draw(8), bytes = draw_bytes();
    const ashlar_tag tag = (ashlar_tag)draw(ASHLAR_TAG_COUNT);
    void *ptr = NULL;
    r->offsets[number] = SIZE_MAX;
    if (kind == 0) {
        wait_for(streams[stream]);
    } else if (s->ptr == NULL) {
        if (ashlar_alloc_tagged(allocator, bytes, tag, streams[stream], &ptr) == ASHLAR_OK) {
            r->offsets[number] = (size_t)((uintptr_t)ptr - allocator->constants.base);
            queue_write(streams[stream], ptr, 16, 1);
        }
        *s = (slot){ptr, stream};
    } else {
        CHECK((kind == 1 ? free_behind(s, stream) : ashlar_free(allocator, s->ptr)) == ASHLAR_OK);
        s->ptr = NULL;
    }
}

/* Random calls of one thread; leaves the allocator with some blocks live. */
static bool work(run *r, const char *spec, uint64_t cache_bytes, uint64_t capacity) {
    slot held[HELD] = {{0}};
    if (!set_up_traced(spec, cache_bytes, capacity)) {
        return false;
    }
    random_state = 7;
    for (size_t i = 0; i < OPERATIONS; i++) {
        operate(r, i, &held[draw(HELD)]);
    }
    r->stats = stats_now();
    return true;
}

static void compare_runs(const char *spec, uint64_t cache_bytes) {
    static run plain, traced;
    REQUIRE(work(&plain, spec, cache_bytes, 0));
    tear_down();
    REQUIRE(work(&traced, spec, cache_bytes, 50));
    tear_down();
    CHECK(memcmp(plain.offsets, traced.offsets, sizeof plain.offsets) == 0);
    CHECK(memcmp(&plain.stats, &traced.stats, sizeof plain.stats) == 0);
    CHECK(cache_bytes == 0 || plain.stats.served_cached > 0);
    CHECK(plain.stats.served_same_stream > 0);
    CHECK(plain.stats.served_waited + plain.stats.served_completed > 0);
}

CASE(a_trace_changes_no_address_and_no_statistic) {
    compare_runs("memory=20MiB", 0);
    compare_runs("memory=20MiB", 200 * KIB); /* so small that blocks wait for the heap */
    compare_runs("memory=20MiB,mode=adversarial", 600 * KIB);
    compare_runs("memory=20MiB,mode=adversarial", CACHE_AUTO);
    compare_runs("memory=16MiB,mode=adversarial", 1 * MIB); /* some are refused */
}

/* ---- replayed ---- */

CASE(a_written_trace_is_replayed_with_the_same_peak) {
    static run r;
    ashlar_rmm_log *log = NULL;
    ashlar_replay_result result;
    uint64_t missing = 77;
    REQUIRE(work(&r, "memory=16MiB", 1 * MIB, EVENTS_MAX));
    CHECK(ashlar_allocator_write_trace(allocator, ASHLAR_TRACE_RMM_CSV, path, &missing) ==
          ASHLAR_OK);
    CHECK_ZU(missing, 0);
    tear_down();
    REQUIRE(ashlar__rmm_log_read(path, &log) == ASHLAR_OK);
    const ashlar_replay_config config = {
        .calls = &ashlar__replay_calls_of_ashlar, .passes = 1, .memory_bytes = 64 * MIB};
    REQUIRE(ashlar__replay_run(log, &config, &result) == ASHLAR_OK);
    CHECK(log->thread_count == 1 && log->stream_count == 1 + STREAMS);
    CHECK(log->recorded_failures > 0);
    CHECK_ZU(log->event_count, r.stats.alloc_count + r.stats.free_count + log->recorded_failures);
    CHECK(result.failures == 0 && result.allocations == r.stats.alloc_count);
    CHECK_ZU(result.peak_live, r.stats.live_peak_bytes);
    ashlar__rmm_log_free(log);
}

RUN_CASES_IN_FOLDER()
