/*
 * test_replay_plan.c - that a log is cut into the steps that it has, that these begin and end on
 * their thread where the log has them.
 */
#include "bench/replay/replay.h"

#include <pthread.h>

#include "tests/bench/replay/rmm_fixture.h"

#define MIB ((size_t)1 << 20)

enum { MAX_CALLS = 80 };

/* What was called, in order; b: step_begin, e: step_end, a: alloc, f: free, c: check. */
static char calls[MAX_CALLS + 1];
static pthread_t callers[MAX_CALLS];

static void note(char what) {
    const size_t count = strlen(calls);
    if (count < MAX_CALLS) {
        calls[count] = what;
        callers[count] = pthread_self();
    }
}

static ashlar_status test_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream,
                                void **out) {
    note('a');
    return ashlar_alloc(a, bytes, stream, out);
}

static ashlar_status test_free(ashlar_allocator *a, void *ptr) {
    note('f');
    return ashlar_free(a, ptr);
}

static ashlar_status test_check(ashlar_allocator *a) {
    note('c');
    return ashlar_allocator_check(a);
}

static ashlar_status test_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    note('b');
    return ashlar_step_begin(a, stream, key);
}

static ashlar_status test_end(ashlar_allocator *a) {
    note('e');
    return ashlar_step_end(a);
}

static const ashlar_replay_calls test_calls = {
    .alloc = test_alloc,
    .free = test_free,
    .free_on = ashlar_free_on,
    .check = test_check,
    .step_begin = test_begin,
    .step_end = test_end,
};

static ashlar_replay_plan plan;
static ashlar_replay_result result;

static ashlar_status run_plan(void) {
    const ashlar_replay_config config = {
        .calls = &test_calls, .memory_bytes = 64 * MIB, .passes = plan.passes, .plan = &plan};
    memset(calls, 0, sizeof calls);
    return ashlar__replay_run(log_of, &config, &result);
}

static void finish(void) {
    ashlar__replay_plan_finish(&plan);
    drop_log();
}

/* Parse and find the steps, in the place of those before. */
static bool prepare(const char *text) {
    finish();
    (void)check_at_end(finish);
    return parse(text) == ASHLAR_OK && ashlar__replay_plan_init(log_of, 1, &plan) == ASHLAR_OK;
}

static ashlar_status replay(const char *text) {
    result = (ashlar_replay_result){.allocations = 99};
    return prepare(text) ? run_plan() : ASHLAR_STATUS_COUNT;
}

static bool calls_were(const char *want) {
    if (strcmp(calls, want) != 0) {
        printf("# called %s, not %s\n", calls, want);
    }
    return strcmp(calls, want) == 0;
}

/* ---- a log with steps ---- */

#define STEP(thread) #thread ",0,step,,0,0\n"
#define TAKE(thread, block, bytes) #thread ",0,allocate," #block "," #bytes ",0\n"
#define GIVE(thread, block) #thread ",0,free," #block ",0,0\n"

static const char three_steps[] =
    HEADER TAKE(1, 0x99, 5000) STEP(1) TAKE(1, 0x10, 3000000) TAKE(1, 0x20, 1000) GIVE(1, 0x10)
        GIVE(1, 0x20) STEP(1) TAKE(1, 0x10, 3000000) GIVE(1, 0x10) STEP(1) TAKE(1, 0x10, 3000000)
            TAKE(1, 0x20, 1100) GIVE(1, 0x20) GIVE(1, 0x10) GIVE(1, 0x99);

CASE(the_first_step_is_recorded_and_the_others_are_replayed) {
    REQUIRE(replay(three_steps) == ASHLAR_OK);
    CHECK(calls_were("abaaffebafebaafffec"));
    CHECK(plan.passes == 1 && !plan.is_whole_log);
    CHECK_ZU(plan.steps.count, 3);
    CHECK_ZU(plan.step_allocations, 2);
    CHECK_ZU(result.allocations, 6);
    CHECK_ZU(result.plan.steps_recorded, 1);
    CHECK_ZU(result.plan.steps_replayed, 2);
    CHECK_ZU(result.plan.slot_count, 2);
    CHECK_ZU(result.plan.hits, 2);
    CHECK_ZU(result.plan.misses[ASHLAR_PLAN_MISS_BYTES], 1);
    CHECK(result.plan.bound_bytes == 3000320 + 1024);
}

/* Thread 2 allocates more; thread 1 has the marks, and goes on after its last event. */
CASE(steps_are_of_the_thread_that_allocates_most) {
    static const char log[] = HEADER STEP(1) TAKE(1, 0x10, 1) TAKE(2, 0x20, 2000)
        TAKE(2, 0x30, 3000) GIVE(1, 0x20) GIVE(2, 0x30) GIVE(2, 0x10) STEP(1) TAKE(1, 0x10, 1)
            TAKE(2, 0x20, 2000) TAKE(2, 0x30, 3000) GIVE(2, 0x20) GIVE(1, 0x30) GIVE(1, 0x10);
    REQUIRE(replay(log) == ASHLAR_OK);
    CHECK(calls_were("abaafffaebaafeffc"));
    CHECK_ZU(plan.thread, 1);
    CHECK_ZU(plan.step_allocations, 3);
    CHECK_ZU(result.plan.steps_replayed, 1);
    CHECK_ZU(result.plan.hits, 2);
    for (size_t i = 0; i < strlen(calls); i++) {
        if (calls[i] == 'b' || calls[i] == 'e') {
            CHECK(pthread_equal(callers[i], callers[1]) && !pthread_equal(callers[i], callers[0]));
        }
    }
}

/* ---- a log without ---- */

static const char one_step[] =
    HEADER TAKE(1, 0x10, 3000) "1,0,allocate failure,,7,0\n" TAKE(1, 0x20, 1000) GIVE(1, 0x10)
        TAKE(2, 0x30, 4000);

/* What the log leaves live is freed at its end, on its thread; that belongs to the step. */
CASE(a_log_without_steps_is_one_and_has_two_passes) {
    REQUIRE(replay(one_step) == ASHLAR_OK);
    CHECK(plan.is_whole_log && plan.passes == 2 && plan.steps.count == 1);
    CHECK(plan.steps.boundaries[0] == 0 && plan.steps.boundaries[1] == 7);
    CHECK(calls_were("baafafefcbaafafefc"));
    CHECK(pthread_equal(callers[5], callers[1]) && pthread_equal(callers[7], callers[4]));
    CHECK(!pthread_equal(callers[7], callers[5]));
    CHECK_ZU(plan.step_allocations, 3);
    CHECK_ZU(result.plan.hits, 2);
    CHECK(result.plan.plan_bytes == 3072 + 1024 && result.plan.bound_bytes == 3072 + 1024);
}

RUN_CASES()
