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
    CHECK_HAS(ashlar_error_detail(), " driver, plan, none");
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
