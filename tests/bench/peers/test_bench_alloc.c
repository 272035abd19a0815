/*
 * test_bench_alloc.c - which workloads and subjects the benchmark takes by name, and what its rows
 * are held to. That it measures them is seen from a shell (shell_bench.sh).
 */
#include "bench/peers/bench_alloc.h"

#include <math.h>

#include <ashlar/device.h>

#include "tests/check.h"
#include "tests/text.h"
#include "allocator/base/error.h"
#include "allocator/soft/soft.h"

static ashlar_bench_request request_of(const char *workload, const char *subject) {
    return (ashlar_bench_request){
        .workloads = {.items = {workload}, .count = workload != NULL},
        .subjects = {.items = {subject}, .count = subject != NULL},
    };
}

CASE(every_list_and_subject_has_its_name) {
    static const char *const good[] = {"one_size/4096-fragmented", "mix/reverse", "rnn_warm",
                                       "streams_512"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const ashlar_bench_request request = request_of(good[i], "floor");
        CHECK(ashlar__benchmark_check(&ashlar__benchmark_alloc, &request) == ASHLAR_OK);
    }
    const ashlar_bench_request step = request_of("rnn_step/64", NULL);
    CHECK(ashlar__benchmark_check(&ashlar__benchmark_plan, &step) == ASHLAR_OK);
    CHECK_FAILS(ashlar__benchmark_check(&ashlar__benchmark_alloc, &step), ASHLAR_EINVAL,
                "rnn_cold"); /* what there is */
    const ashlar_bench_request bad = request_of("mix", "tcmalloc");
    CHECK_FAILS(ashlar__benchmark_check(&ashlar__benchmark_alloc, &bad), ASHLAR_EINVAL, "tcmalloc");
    CHECK_HAS(ashlar_error_detail(), " ashlar, floor");
    CHECK_HAS(ashlar_error_detail(), " driver, cuda_async, plan, none");
}

/* Two driver calls a pair tell how many were run, in whole lists: of 256 pairs of 4 KiB, or of the
 * 3200 of a mix. */
CASE(pairs_alone_are_run_as_often_as_asked) {
    static const char *const lists[] = {NULL, "mix/reverse"};
    static const size_t pairs[] = {768, 3200};
    ashlar_device *device = NULL;
    ashlar_driver_counts before, after;
    REQUIRE(ashlar__soft_configure("memory=64GiB") == ASHLAR_OK);
    REQUIRE(ashlar_device_open("soft", &device) == ASHLAR_OK);
    for (size_t i = 0; i < 2; i++) {
        ashlar_bench_request request = request_of(lists[i], "driver");
        request.pairs = 600;
        request.out = nowhere();
        request.device = "soft";
        ashlar_device_get_counts(device, &before);
        CHECK(ashlar__benchmark_run(&ashlar__benchmark_alloc, &request) == ASHLAR_OK);
        ashlar_device_get_counts(device, &after);
        CHECK_ZU(after.memory - before.memory, 2 * pairs[i]);
    }
    ashlar_device_close(device);
}

/* ---- targets ---- */

static ashlar_rows rows;

static void add(const char *workload, const char *variant, double threads, const char *subject,
                double ns_pair) {
    ashlar_row row = {{
        [ASHLAR_ALLOC_WORKLOAD].text = workload,
        [ASHLAR_ALLOC_VARIANT].text = variant,
        [ASHLAR_ALLOC_THREADS].number = threads,
        [ASHLAR_ALLOC_SUBJECT].text = subject,
    }};
    for (size_t i = ASHLAR_ALLOC_NS_PAIR; i < ASHLAR_ALLOC_COLUMNS; i++) {
        row.cells[i].number = NAN;
    }
    row.cells[ASHLAR_ALLOC_NS_PAIR].number = ns_pair;
    CHECK(ashlar__rows_add(&rows, &row) == ASHLAR_OK);
}

static void set(size_t row, size_t column, double number) {
    rows.items[row].cells[column].number = number;
}

/* Print the targets of all rows, and forget these. */
static const char *judge(void) {
    static char text[8192];
    FILE *file = tmpfile();
    if (file == NULL) {
        return "no temporary file";
    }
    rows.form = ashlar__benchmark_alloc.form;
    ashlar__alloc_fill(&rows, 0);
    ashlar__rows_print_targets(file, &rows);
    ashlar__rows_finish(&rows);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static size_t lines_of(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

/* The whole line, so that verdict and limit are seen together. */
static bool has_line(const char *text, const char *verdict, const char *what, const char *limit) {
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        char copy[256];
        snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
        if (strncmp(copy, verdict, strlen(verdict)) == 0 && strstr(copy, what) != NULL &&
            strstr(copy, limit) != NULL) {
            return true;
        }
    }
    return false;
}

static const char *judge_one_size(double one, double two) {
    add("one_size", "4096", 1, "ashlar", one);
    add("one_size", "4096", 1, "floor", 10);
    add("one_size", "4096", 1, "cub", 99);
    add("one_size", "4096", 2, "ashlar", two);
    add("one_size", "4096", 2, "floor", 10);
    add("one_size", "4096", 2, "cub", 331);
    return judge();
}

CASE(one_size_is_held_against_floor_cub_and_one_thread) {
    const char *text = judge_one_size(20, 22);
    CHECK_ZU(lines_of(text), 4);
    CHECK(has_line(text, "met", "pair cost / floor", "2.000  (at most 2)"));
    CHECK(has_line(text, "NOT MET", "CUB / ashlar", "4.950  (at least 5)"));
    CHECK(has_line(text, "met", "throughput", "1.818  (at least 1.8)"));
    CHECK(has_line(text, "met", "CUB / ashlar", "15.045  (at least 15)"));
    text = judge_one_size(20.1, 22.5);
    CHECK(has_line(text, "NOT MET", "pair cost / floor", "2.010  (at most 2)"));
    CHECK(has_line(text, "NOT MET", "throughput", "1.787  (at least 1.8)"));
    CHECK(has_line(text, "NOT MET", "CUB / ashlar", "14.711  (at least 15)"));
}

CASE(mixed_sizes_are_held_to_memory_too) {
    static const char *const names[][2] = {{"mix", "reverse"}, {"mix", "shuffled"}, {"random", ""}};
    for (size_t i = 0; i < 3; i++) {
        add(names[i][0], names[i][1], 1, "ashlar", 80);
        add(names[i][0], names[i][1], 1, "floor", 10);
        set(0, ASHLAR_ALLOC_RESERVED_OVER_LIVE, 1.06);
        const char *text = judge();
        CHECK_ZU(lines_of(text), 2);
        CHECK(has_line(text, "met", "pair cost / floor", "8.000  (at most 8)"));
        CHECK(has_line(text, "NOT MET", "reserved / peak live", "1.060  (at most 1.05)"));
    }
}

CASE(rnn_steps_are_held_to_memory_and_driver_calls) {
    add("rnn_warm", "", 1, "ashlar", 80);
    set(0, ASHLAR_ALLOC_RESERVED_OVER_LIVE, 1.03);
    set(0, ASHLAR_ALLOC_DRIVER_CALLS, 4);
    add("rnn_cold", "", 1, "ashlar", 80);
    set(1, ASHLAR_ALLOC_RESERVED_OVER_LIVE, 1.05);
    set(1, ASHLAR_ALLOC_DRIVER_CALLS, 400);
    const char *text = judge();
    CHECK_ZU(lines_of(text), 3);
    CHECK(has_line(text, "NOT MET  rnn_warm", "reserved / peak live", "1.030  (at most 1.02)"));
    CHECK(has_line(text, "NOT MET  rnn_warm", "driver calls", "4.000  (at most 3)"));
    CHECK(has_line(text, "met      rnn_cold", "reserved / peak live", "1.050  (at most 1.05)"));
}

static const char *judge_plan(double ns, double reserved, double calls) {
    add("rnn_step", "64", 1, "ashlar", 20);
    add("rnn_step", "64", 1, "floor", 1);
    add("rnn_step", "64", 1, "plan", ns);
    add("rnn_warm", "", 1, "plan", 20);
    set(3, ASHLAR_ALLOC_DRIVER_CALLS, calls);
    set(3, ASHLAR_ALLOC_RESERVED_OVER_LIVE, reserved);
    return judge();
}

CASE(a_plan_is_held_against_the_cache_and_to_memory) {
    const char *text = judge_plan(20, 1.02, 1);
    CHECK_ZU(lines_of(text), 3);
    CHECK(has_line(text, "met      rnn_step      64", "replayed pair", "1.000  (at most 1)"));
    CHECK(has_line(text, "met      rnn_warm", "plan's reserved / peak", "1.020  (at most 1.02)"));
    CHECK(has_line(text, "NOT MET  rnn_warm", "driver calls", "1.000  (at most 0)"));
    text = judge_plan(20.1, 1.021, 0);
    CHECK(has_line(text, "NOT MET  rnn_step      64", "replayed pair", "1.005  (at most 1)"));
    CHECK(has_line(text, "NOT MET  rnn_warm", "plan's reserved / peak", "1.021  (at most 1.02)"));
    CHECK(has_line(text, "met      rnn_warm", "driver calls", "0.000  (at most 0)"));
}

CASE(a_second_thread_is_held_to_a_third_more) {
    static const char *const names[][2] = {{"mix", "reverse"}, {"mix", "shuffled"}, {"random", ""}};
    for (size_t i = 0; i < 3; i++) {
        add(names[i][0], names[i][1], 1, "ashlar", 65);
        add(names[i][0], names[i][1], 2, "ashlar", 100);
        add(names[i][0], names[i][1], 1, "cub", 65);
        add(names[i][0], names[i][1], 2, "cub", 900);
        const char *text = judge();
        CHECK_ZU(lines_of(text), 1);
        CHECK(has_line(text, "met", "throughput", "1.300  (at least 1.3)"));
    }
}

/* Of one run, and each subject's own pair. */
CASE(what_leaves_the_thread_or_its_stream_is_held_to_a_pair_of_4_kib) {
    static const struct {
        const char *name;
        double threads;
        double limit;
    } wanted[] = {{"handoff", 2, 10}, {"streams_64", 1, 4}, {"streams_512", 1, 8}};
    for (size_t i = 0; i < 6; i++) {
        const bool is_met = i % 2 == 0;
        char limit[32];
        snprintf(limit, sizeof limit, "(at most %g)", wanted[i / 2].limit);
        add("one_size", "4096", 1, "ashlar", 20);
        add("one_size", "4096", 1, "cub", 1000);
        add(wanted[i / 2].name, "", wanted[i / 2].threads, "ashlar",
            20 * wanted[i / 2].limit + (is_met ? 0 : 1));
        const char *text = judge();
        CHECK(has_line(text, is_met ? "met" : "NOT MET", "of 4 KiB", limit));
    }
}

CASE(latencies_are_held_to_cubs_and_live_blocks_to_160_bytes) {
    add("latency", "random", 1, "ashlar", 100);
    set(0, ASHLAR_ALLOC_NS_P999, 2000);
    add("latency", "random", 1, "cub", 100);
    set(1, ASHLAR_ALLOC_NS_P999, 1000);
    add("live_1e6", "", 1, "ashlar", 100);
    set(2, ASHLAR_ALLOC_HOST_BYTES, 161);
    add("live_1e6", "", 1, "floor", 100);
    set(3, ASHLAR_ALLOC_HOST_BYTES, 500);
    const char *text = judge();
    CHECK_ZU(lines_of(text), 2);
    CHECK(has_line(text, "met      latency", "99.9th percentile", "2.000  (at most 2)"));
    CHECK(has_line(text, "NOT MET  live_1e6", "host bytes of a live", "161.000  (at most 160)"));
}

CASE(what_was_not_measured_is_not_judged) {
    add("one_size", "4096", 1, "ashlar", 20);
    add("one_size", "4096", 1, "jemalloc", 20);
    add("one_size", "4096-fragmented", 1, "ashlar", 100);
    add("one_size", "4096-fragmented", 1, "floor", 10);
    add("one_size", "512", 2, "ashlar", 100);
    add("mix", "reverse", 2, "ashlar", 100);
    add("mix", "reverse", 2, "floor", 1);
    add("latency", "random", 1, "ashlar", 100);
    CHECK_ZU(strlen(judge()), 0);
}

RUN_CASES()
