/*
 * test_replay_plan.c - that a log is cut into the steps that it has, that these begin and end on
 * their thread where the log has them, and what is told of the plan.
 */
#include "bench/replay/replay.h"

#include <pthread.h>

#include "allocator/base/host.h"
#include "tests/bench/replay/rmm_fixture.h"
#include "tests/text.h"

#define MIB ((size_t)1 << 20)

enum { MAX_CALLS = 80 };

/* What was called, in order; b: step_begin, e: step_end, a: alloc, f: free, c: check. */
static char calls[MAX_CALLS + 1];
static pthread_t callers[MAX_CALLS];
static ashlar_stream begun_on;
static size_t bad_call; /* from 1: fails as a driver would; 0: none */

/* ASHLAR_OK, unless it is the bad call. */
static ashlar_status note(char what) {
    const size_t count = strlen(calls);
    if (count < MAX_CALLS) {
        calls[count] = what;
        callers[count] = pthread_self();
    }
    return count + 1 == bad_call ? ashlar__fail(ASHLAR_EDRIVER, "as the test wants it") : ASHLAR_OK;
}

static ashlar_status test_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream,
                                void **out) {
    const ashlar_status status = note('a');
    return status == ASHLAR_OK ? ashlar_alloc(a, bytes, stream, out) : status;
}

static ashlar_status test_free(ashlar_allocator *a, void *ptr) {
    const ashlar_status status = note('f');
    return status == ASHLAR_OK ? ashlar_free(a, ptr) : status;
}

static ashlar_status test_check(ashlar_allocator *a) {
    const ashlar_status status = note('c');
    return status == ASHLAR_OK ? ashlar_allocator_check(a) : status;
}

static ashlar_status test_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    const ashlar_status status = note('b');
    begun_on = stream;
    return status == ASHLAR_OK ? ashlar_step_begin(a, stream, key) : status;
}

static ashlar_status test_end(ashlar_allocator *a) {
    const ashlar_status status = note('e');
    return status == ASHLAR_OK ? ashlar_step_end(a) : status;
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

/* ---- failures ---- */

/* Each call in turn fails; the message has the line of the event that it was made for. */
CASE(a_call_that_fails_ends_the_replay) {
    static const char order[] = "abaaffebafebaafffec";
    static const size_t lines[] = {2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 15, 16, 16};
    for (size_t at = 1; at < sizeof order; at++) {
        char where[32];
        snprintf(where, sizeof where, "stone.csv:%zu: ", at <= 18 ? lines[at - 1] : (size_t)16);
        bad_call = at;
        CHECK(replay(three_steps) == ASHLAR_EDRIVER);
        bad_call = 0;
        CHECK_ZU(strlen(calls), at);
        CHECK_HAS(ashlar_error_detail(), where);
        CHECK_ZU(result.allocations, 99);
    }
    CHECK(replay(three_steps) == ASHLAR_OK); /* the control */
    CHECK(calls_were(order));
}

/* ---- what is told ---- */

static const char *text_of(const ashlar_plan_stats *stats) {
    ashlar__replay_plan_print(text_begin(), &plan, stats);
    return text_end();
}

static const ashlar_plan_stats some_stats = {
    .plan_bytes = 4 * MIB,
    .bound_bytes = 2 * MIB,
    .hits = 11,
    .unplanned = 22,
    .misses = {[ASHLAR_PLAN_MISS_TAG] = 3, [ASHLAR_PLAN_MISS_LIVE] = 4},
};

CASE(the_lines_have_the_figures) {
    plan = (ashlar_replay_plan){.steps = {.count = 5}, .passes = 1, .step_allocations = 6};
    CHECK(strcmp(text_of(&some_stats),
                 "  5 steps, the first of 6 allocations\n"
                 "  plan 4.0 MiB, bound 2.0 MiB, gap 100.000 %\n"
                 "  plan hits 11, misses 7, not planned 22\n"
                 "    missed 3: another tag than recorded\n"
                 "    missed 4: its slot overlaps a block that is still live\n") == 0);
    const ashlar_plan_stats none = {0};
    plan.is_whole_log = true;
    CHECK_HAS(text_of(&none), "6 allocations: the log has none, so each pass is one");
    CHECK_HAS(text_of(&none), "  plan: nothing that ends with its step");
}

static void check_json(const ashlar_plan_stats *stats, const char *want) {
    ashlar_json_writer w;
    const char *text = NULL;
    size_t bytes = 0;
    ashlar__json_writer_init(&w, 0);
    ashlar__json_open_object(&w);
    ashlar__replay_plan_put(&w, &plan, stats);
    ashlar__json_close_object(&w);
    REQUIRE(ashlar__json_writer_text(&w, &text, &bytes) == ASHLAR_OK);
    CHECK_HAS(text, want);
    ashlar__json_writer_finish(&w);
}

CASE(json_has_the_figures) {
    plan = (ashlar_replay_plan){.steps = {.count = 5}, .passes = 2, .step_allocations = 6};
    check_json(&some_stats, "{\"steps\":10,\"step_allocations\":6,\"is_log_repeated\":false,"
                            "\"plan_bytes\":4194304,\"bound_bytes\":2097152,\"gap\":1,"
                            "\"plan_hits\":11,\"plan_misses\":7,\"plan_misses_by_reason\":{"
                            "\"larger than recorded\":0,\"another tag than recorded\":3,"
                            "\"another stream than recorded\":0,"
                            "\"its slot overlaps a block that is still live\":4,"
                            "\"behind the last recorded allocation\":0},\"plan_unplanned\":22}");
}

RUN_CASES()
