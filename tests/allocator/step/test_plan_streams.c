/*
 * test_plan_streams.c - the plan of a step on several streams takes no more memory than the cache
 * does for that step while the device is behind, whatever the streams hand to each other.
 *
 * ASHLAR_SEED in the environment says which step is drawn first.
 */
#include "tests/allocator/step/step_fixture.h"

#include <ashlar/warmup.h>

enum { BLOCKS = 160, STEPS = 24, RUNS = 4 };

/* What becomes of a block: it is freed on its stream, or used on another one first and freed there,
 * or marked for it. */
typedef enum fate { AT_HOME, MOVED, SHARED } fate;

typedef struct made_block {
    size_t bytes, end; /* freed before block number `end` is taken */
    int stream, other;
    fate fate;
} made_block;

static made_block made[BLOCKS];
static void *blocks[BLOCKS];
static int made_streams;

static void make_step(uint64_t seed) {
    random_state = ashlar__random_mix(seed);
    made_streams = 2 + (int)draw(STREAMS - 1);
    const size_t one_in = draw(4), longest = 2 + draw(10); /* 0: no block is shared */
    for (size_t i = 0; i < BLOCKS; i++) {
        made_block *b = &made[i];
        *b = (made_block){.bytes = 128 * KIB + draw(4 * MIB), .end = i + 1 + draw(longest)};
        b->end = b->end < BLOCKS ? b->end : BLOCKS;
        b->stream = (int)draw((size_t)made_streams);
        b->other = (b->stream + 1 + (int)draw((size_t)made_streams - 1)) % made_streams;
        b->fate = one_in > 0 && draw(one_in) == 0 ? (fate)(1 + draw(2)) : AT_HOME;
    }
}

/* ---- a step ---- */

static void do_nothing(void *args) {
    (void)args;
}

static ashlar_status give_made(size_t i, bool works) {
    const made_block *b = &made[i];
    ashlar_status status = ASHLAR_OK;
    if (b->fate != AT_HOME) {
        order_streams(b->stream, b->other);
        CHECK(!works || ashlar_launch(device, streams[b->other], do_nothing, NULL, 0) == ASHLAR_OK);
    }
    if (b->fate == MOVED) {
        return ashlar_free_on(allocator, blocks[i], streams[b->other]);
    }
    if (b->fate == SHARED) {
        status = ashlar_record_stream(allocator, blocks[i], streams[b->other]);
    }
    return status == ASHLAR_OK ? ashlar_free(allocator, blocks[i]) : status;
}

static ashlar_status run_made(bool works) {
    ashlar_status status = ASHLAR_OK;
    for (size_t now = 0; now <= BLOCKS && status == ASHLAR_OK; now++) {
        for (size_t i = 0; i < now && status == ASHLAR_OK; i++) {
            status = made[i].end == now ? give_made(i, works) : status;
        }
        if (now < BLOCKS && status == ASHLAR_OK) {
            const ashlar_stream stream = streams[made[now].stream];
            status = ashlar_alloc(allocator, made[now].bytes, stream, &blocks[now]);
            CHECK(!works || ashlar_launch(device, stream, do_nothing, NULL, 0) == ASHLAR_OK);
        }
    }
    return status;
}

static ashlar_status dry_run(void *user, size_t length) {
    (void)user, (void)length;
    return run_made(false);
}

/* ---- the claim ---- */

static size_t reserved_by_plan(void) {
    const ashlar_warmup_options o = {.stream = streams[0], .max_length = 1, .dry_run = dry_run};
    ashlar_warmup_report report = {0};
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    return report.reserved_bytes;
}

static size_t reserved_by_cache(void) {
    for (int i = 0; i < RUNS; i++) {
        CHECK(run_made(true) == ASHLAR_OK);
        for (int k = 0; k < STREAMS; k++) {
            wait_for(streams[k]);
        }
    }
    return stats_now().reserved_peak_bytes;
}

CASE(a_plan_takes_no_more_than_the_cache_while_the_device_is_behind) {
    const char *text = getenv("ASHLAR_SEED");
    const uint64_t first = text != NULL ? strtoull(text, NULL, 10) : 1;
    double plans = 0, caches = 0;
    for (uint64_t seed = first; seed < first + STEPS; seed++) {
        make_step(seed);
        REQUIRE(set_up_cached("memory=8GiB,mode=adversarial", 64 * MIB));
        const size_t cache = reserved_by_cache();
        tear_down();
        REQUIRE(set_up_cached("memory=8GiB,mode=adversarial", 64 * MIB));
        const size_t plan = reserved_by_plan();
        tear_down();
        plans += (double)plan;
        caches += (double)cache;
        const size_t handles = (size_t)made_streams * 2 * MIB;
        CHECK(plan <= cache + cache / 100 || plan <= cache + handles);
        if (check_failed != 0) {
            printf("# seed %llu: plan %zu, cache %zu\n", (unsigned long long)seed, plan, cache);
            return;
        }
    }
    printf("# %d steps: plans take %.3f of what the cache takes\n", STEPS, plans / caches);
}

RUN_CASES()
