/*
 * test_rows.c - rows by the columns of a form: the table, which targets are judged and how; and
 * names of workloads and subjects.
 */
#include "bench/harness/harness.h"

#include "tests/check.h"
#include "tests/text.h"

enum { LIST, THREADS, SUBJECT, COST, RATIO, NOTE, GOOD, COLUMNS };

static const ashlar_rows_column columns[] = {
    [LIST] = {"list", "list", ASHLAR_ROWS_TEXT, 6, 0, 0},
    [THREADS] = {"threads", "threads", ASHLAR_ROWS_NUMBER, 7, 0, 0},
    [SUBJECT] = {"subject", "subject", ASHLAR_ROWS_TEXT, 7, 0, 0},
    [COST] = {"cost", "us", ASHLAR_ROWS_NUMBER, 8, 2, 1e-3},
    [RATIO] = {NULL, "x a", ASHLAR_ROWS_NUMBER, 5, 1, 0},
    [NOTE] = {"note", NULL, ASHLAR_ROWS_OPTIONAL, 0, 0, 0},
    [GOOD] = {"good", NULL, ASHLAR_ROWS_BOOL, 0, 0, 0},
};

static const ashlar_rows_target targets[] = {
    {.what = "cost", .column = COST, .names = {"mix"}, .subject = "a", .limit = 2000},
    {.what = "b / a",
     .column = COST,
     .subject = "b",
     .base = "a",
     .threads = 2,
     .except = "odd",
     .limit = 1.5,
     .is_at_least = true},
    {.what = "note", .column = NOTE, .limit = 7},
};

static const ashlar_rows_form form = {columns, COLUMNS, SUBJECT, targets, 3};

static ashlar_rows rows = {.form = &form};

static void add(const char *list, double threads, const char *subject, double cost) {
    const ashlar_row row = {{
        [LIST].text = list,
        [THREADS].number = threads,
        [SUBJECT].text = subject,
        [COST].number = cost,
        [RATIO].number = NAN,
        [NOTE].number = NAN,
        [GOOD].number = NAN,
    }};
    CHECK(ashlar__rows_add(&rows, &row) == ASHLAR_OK);
}

static const char *text_of(void (*print)(FILE *, const ashlar_rows *)) {
    print(text_begin(), &rows);
    return text_end();
}

static void print_from_second(FILE *out, const ashlar_rows *of) {
    ashlar__rows_print(out, of, 1);
}

CASE(the_table_has_a_line_for_each_row_and_a_dash_for_what_is_not_known) {
    add("mix", 1, "a", 1500);
    add("mix", 1, "b", 3000);
    add("odd", 12, "b", NAN);
    ashlar__rows_fill_ratios(&rows, 1, RATIO, COST, "a");
    CHECK(strcmp(text_of(ashlar__rows_print_head), "list   threads subject       us   x a\n") == 0);
    CHECK(strcmp(text_of(print_from_second), "mix          1 b           3.00   2.0\n"
                                             "odd         12 b              -     -\n") == 0);
    ashlar__rows_finish(&rows);
}

CASE(targets_are_judged_where_they_are_meant) {
    add("mix", 1, "a", 2000);
    add("mix", 1, "b", 9000); /* threads */
    add("odd", 1, "a", 9000); /* another list */
    add("random", 2, "a", 1000);
    add("random", 2, "b", 1500);
    add("odd", 2, "a", 1000); /* left out */
    add("odd", 2, "b", 1500);
    add("alone", 2, "b", 1500); /* nothing to compare with */
    CHECK(strcmp(text_of(ashlar__rows_print_targets),
                 "met      mix    threads 1  cost                                2000.000  "
                 "(at most 2000)\n"
                 "met      random threads 2  b / a                                  1.500  "
                 "(at least 1.5)\n") == 0);
    rows.items[0].cells[COST].number = 2001;
    rows.items[4].cells[COST].number = 1499;
    rows.items[7].cells[NOTE].number = 7.5;
    CHECK(strcmp(text_of(ashlar__rows_print_targets),
                 "NOT MET  mix    threads 1  cost                                2001.000  "
                 "(at most 2000)\n"
                 "NOT MET  random threads 2  b / a                                  1.499  "
                 "(at least 1.5)\n"
                 "NOT MET  alone  threads 2  note                                   7.500  "
                 "(at most 7)\n") == 0);
    ashlar__rows_finish(&rows);
}

/* ---- names ---- */

static bool workload(size_t i, ashlar_bench_name *out) {
    static const ashlar_bench_name names[] = {
        {"mix", "up"}, {"mix", "down"}, {"mixed", "up"}, {"random", ""}, {"plain", NULL}};
    if (i < 5) {
        *out = names[i];
    }
    return i < 5;
}

static const char *subject(size_t i) {
    static const char *const names[] = {"a", "b"};
    return i < 2 ? names[i] : NULL;
}

static ashlar_status check_names(const char *of_workload, const char *of_subject) {
    const ashlar_benchmark b = {.workload = workload, .subject = subject};
    const ashlar_bench_request request = {
        .workloads = {.items = {"random", of_workload}, .count = of_workload != NULL ? 2 : 1},
        .subjects = {.items = {"b", of_subject}, .count = of_subject != NULL ? 2 : 1}};
    return ashlar__benchmark_check(&b, &request);
}

CASE(a_workload_has_a_name_and_may_have_a_variant) {
    static const char *const good[] = {"mix", "mix/down", "mixed", "random", "random/", "plain"};
    static const char *const bad[] = {"mi",       "mix/",   "mix/u", "mixes",
                                      "random/x", "plain/", "",      "up"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(check_names(good[i], NULL) == ASHLAR_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(check_names(bad[i], NULL), ASHLAR_EINVAL, bad[i]);
        CHECK_HAS(ashlar_error_detail(),
                  "there are mix, mixed, random, plain, alone or with a / and one of up, down");
    }
    CHECK(check_names(NULL, "a") == ASHLAR_OK);
    CHECK_FAILS(check_names(NULL, "c"), ASHLAR_EINVAL, "\"c\" in this build; there are a, b");
    const ashlar_option_list none = {.count = 0}, mix = {.items = {"mix"}, .count = 1};
    CHECK(ashlar__bench_wants(&none, (ashlar_bench_name){"mixed", "up"}));
    CHECK(ashlar__bench_wants(&mix, (ashlar_bench_name){"mix", "up"}));
    CHECK(!ashlar__bench_wants(&mix, (ashlar_bench_name){"mixed", "up"}));
}

RUN_CASES()
