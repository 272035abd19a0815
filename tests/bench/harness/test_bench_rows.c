/*
 * test_bench_rows.c - the benchmark's table, its JSON, and what it says of the targets.
 */
#include "bench/harness/bench_rows.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/allocator/base/file_fixture.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"

static ashlar_bench_row row(const char *workload, const char *variant, size_t threads,
                            const char *subject, double ns_pair) {
    return (ashlar_bench_row){
        .workload = workload,
        .variant = variant,
        .threads = threads,
        .subject = subject,
        .ns_pair = ns_pair,
    };
}

static void add(ashlar_bench_rows *rows, ashlar_bench_row item) {
    CHECK(ashlar__bench_rows_add(rows, &item) == ASHLAR_OK);
}

enum { TEXT_BYTES = 8192 };

static const char *text_of(void (*print)(FILE *, const ashlar_bench_rows *),
                           const ashlar_bench_rows *rows) {
    static char text[TEXT_BYTES];
    FILE *file = tmpfile();
    if (file == NULL) {
        return "no temporary file";
    }
    print(file, rows);
    rewind(file);
    text[fread(text, 1, TEXT_BYTES - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

CASE(a_row_is_found_by_all_of_its_names) {
    ashlar_bench_rows rows = {0};
    for (size_t threads = 1; threads <= 100; threads++) {
        add(&rows, row("mix", "reverse", threads, "floor", (double)threads));
    }
    const ashlar_bench_row *found = ashlar__bench_rows_find(&rows, "mix", "reverse", 77, "floor");
    REQUIRE(found != NULL);
    CHECK_NEAR(found->ns_pair, 77, 0, 0);
    CHECK(ashlar__bench_rows_find(&rows, "mix", "reverse", 101, "floor") == NULL);
    CHECK(ashlar__bench_rows_find(&rows, "mix", "reverse", 1, "cub") == NULL);
    CHECK(ashlar__bench_rows_find(&rows, "mix", "shuffled", 1, "floor") == NULL);
    CHECK(ashlar__bench_rows_find(&rows, "random", "reverse", 1, "floor") == NULL);
    ashlar__bench_rows_finish(&rows);
    CHECK(rows.count == 0 && rows.items == NULL);
}

CASE(without_host_memory_no_row_is_added) {
    ashlar_bench_rows rows = {0};
    const ashlar_bench_row item = row("mix", "reverse", 1, "floor", 1);
    ashlar__host_fail_at(1);
    CHECK(ashlar__bench_rows_add(&rows, &item) == ASHLAR_EHOSTMEM);
    CHECK_ZU(rows.count, 0);
    ashlar__host_fail_at(0);
}

static void print_from_second(FILE *out, const ashlar_bench_rows *rows) {
    ashlar__bench_print_rows(out, rows, 1);
}

CASE(the_table_has_ratios_to_the_floor_and_to_ashlar) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("random", "", 1, "ashlar", 40));
    add(&rows, row("random", "", 1, "floor", 16));
    add(&rows, row("random", "", 1, "cub", 100));
    add(&rows, row("random", "", 2, "cub", 55));
    rows.items[2].driver_calls = 1234;
    rows.items[2].reserved_over_live = 3.52;
    const char *text = text_of(print_from_second, &rows);
    CHECK(strstr(text, "ashlar") == NULL);
    CHECK_ZU(count_of(text, "\n"), 3);
    const char *cub = strstr(text, "cub");
    REQUIRE(cub != NULL);
    CHECK_HAS(cub, "100.0      6.25      2.50          1234          3.520\n");
    CHECK_HAS(cub, "55.0         -         -             0              -\n");
    rows.items[3].hides_calls = true;
    CHECK_HAS(text_of(print_from_second, &rows),
              "55.0         -         -             -              -\n");
    ashlar__bench_rows_finish(&rows);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static ashlar_json *write_and_read(const ashlar_bench_rows *rows) {
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_json *document = NULL;
    CHECK(ashlar__bench_rows_write(path, rows) == ASHLAR_OK);
    const size_t count = read_bytes(bytes);
    CHECK(count > 0 && bytes[count - 1] == '\n');
    CHECK(ashlar__json_parse((const char *)bytes, count, &document) == ASHLAR_OK);
    return document;
}

static bool is_text(const ashlar_json *object, const char *key, const char *want) {
    const ashlar_json *value = ashlar__json_member(object, key);
    return value != NULL && value->kind == ASHLAR_JSON_STRING && strcmp(value->text, want) == 0;
}

static bool is_number(const ashlar_json *object, const char *key, double want) {
    const ashlar_json *value = ashlar__json_member(object, key);
    return value != NULL && value->kind == ASHLAR_JSON_NUMBER && fabs(value->number - want) < 1e-12;
}

static bool is_null(const ashlar_json *object, const char *key) {
    const ashlar_json *value = ashlar__json_member(object, key);
    return value != NULL && value->kind == ASHLAR_JSON_NULL;
}

CASE(json_has_a_row_each_and_null_for_what_is_not_known) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("one_size", "4096", 2, "ashlar", 12.5));
    rows.items[0].driver_calls = 3;
    rows.items[0].reserved_over_live = 1.25;
    add(&rows, row("random", "", 1, "glibc", 44));
    add(&rows, row("one_size", "4096-instructions", 1, "floor", 0));
    rows.items[2].instructions = 55.5;
    add(&rows, row("rnn_warm", "", 1, "plan", 20));
    rows.items[3].ns_step = 400;
    rows.items[3].hides_calls = true;
    add(&rows, row("random", "", 1, "floor", 22));
    add(&rows, row("random", "", 1, "ashlar", 11));
    ashlar_json *document = write_and_read(&rows);
    REQUIRE(document != NULL && document->kind == ASHLAR_JSON_ARRAY && document->count == 6);
    const ashlar_json *first = document->item, *second = first->next, *third = second->next;
    CHECK(is_text(first, "workload", "one_size") && is_text(first, "variant", "4096"));
    CHECK(is_text(first, "subject", "ashlar") && is_number(first, "threads", 2));
    CHECK(is_number(first, "ns_pair", 12.5) && is_number(first, "driver_calls", 3));
    CHECK(is_number(first, "reserved_over_live", 1.25));
    CHECK_ZU(first->count, 9);
    CHECK(is_null(first, "over_floor") && is_number(first, "over_ashlar", 1));
    CHECK(is_text(second, "variant", "") && is_number(second, "driver_calls", 0));
    CHECK(is_null(second, "reserved_over_live"));
    CHECK_ZU(second->count, 9);
    CHECK(is_number(second, "over_floor", 2) && is_number(second, "over_ashlar", 4));
    CHECK(is_null(third, "ns_pair") && is_null(third, "driver_calls"));
    CHECK(is_number(third->next, "ns_step", 400));
    CHECK_ZU(third->next->count, 10);
    CHECK(is_null(third->next, "driver_calls")); /* it hides them */
    CHECK(is_null(third, "reserved_over_live") && is_number(third, "instructions", 55.5));
    ashlar__json_free(document);
    ashlar__bench_rows_finish(&rows);
}

CASE(a_folder_that_is_not_there_is_an_error) {
    const ashlar_bench_rows rows = {0};
    CHECK(ashlar__bench_rows_write("/nowhere/at/all.json", &rows) == ASHLAR_EIO);
}

/* --- targets --------------------------------------------------------------------------------- */

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

CASE(one_size_is_held_against_floor_cub_and_one_thread) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("one_size", "4096", 1, "ashlar", 20));
    add(&rows, row("one_size", "4096", 1, "floor", 10));
    add(&rows, row("one_size", "4096", 1, "cub", 99));
    add(&rows, row("one_size", "4096", 2, "ashlar", 22));
    add(&rows, row("one_size", "4096", 2, "floor", 10));
    add(&rows, row("one_size", "4096", 2, "cub", 331));
    const char *text = text_of(ashlar__bench_print_targets, &rows);
    CHECK_ZU(count_of(text, "\n"), 4);
    CHECK(has_line(text, "met", "pair cost / floor", "2.000  (at most 2)"));
    CHECK(has_line(text, "NOT MET", "CUB / ashlar", "4.950  (at least 5)"));
    CHECK(has_line(text, "met", "throughput", "1.818  (at least 1.8)"));
    CHECK(has_line(text, "met", "CUB / ashlar", "15.045  (at least 15)"));
    rows.items[0].ns_pair = 20.1;
    rows.items[3].ns_pair = 22.5;
    text = text_of(ashlar__bench_print_targets, &rows);
    CHECK(has_line(text, "NOT MET", "pair cost / floor", "2.010  (at most 2)"));
    CHECK(has_line(text, "NOT MET", "throughput", "1.787  (at least 1.8)"));
    CHECK(has_line(text, "NOT MET", "CUB / ashlar", "14.711  (at least 15)"));
    ashlar__bench_rows_finish(&rows);
}

CASE(mixed_sizes_are_held_to_memory_too) {
    static const char *const names[][2] = {{"mix", "reverse"}, {"mix", "shuffled"}, {"random", ""}};
    for (size_t i = 0; i < 3; i++) {
        ashlar_bench_rows rows = {0};
        add(&rows, row(names[i][0], names[i][1], 1, "ashlar", 80));
        add(&rows, row(names[i][0], names[i][1], 1, "floor", 10));
        rows.items[0].reserved_over_live = 1.06;
        const char *text = text_of(ashlar__bench_print_targets, &rows);
        CHECK_ZU(count_of(text, "\n"), 2);
        CHECK(has_line(text, "met", "pair cost / floor", "8.000  (at most 8)"));
        CHECK(has_line(text, "NOT MET", "reserved / peak live", "1.060  (at most 1.05)"));
        ashlar__bench_rows_finish(&rows);
    }
}

CASE(rnn_steps_are_held_to_memory_and_driver_calls) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("rnn_warm", "", 1, "ashlar", 80));
    rows.items[0].reserved_over_live = 1.03;
    rows.items[0].driver_calls = 4;
    add(&rows, row("rnn_cold", "", 1, "ashlar", 80));
    rows.items[1].reserved_over_live = 1.05;
    rows.items[1].driver_calls = 400;
    const char *text = text_of(ashlar__bench_print_targets, &rows);
    CHECK_ZU(count_of(text, "\n"), 3);
    CHECK(has_line(text, "NOT MET  rnn_warm", "reserved / peak live", "1.030  (at most 1.02)"));
    CHECK(has_line(text, "NOT MET  rnn_warm", "driver calls", "4.000  (at most 3)"));
    CHECK(has_line(text, "met      rnn_cold", "reserved / peak live", "1.050  (at most 1.05)"));
    ashlar__bench_rows_finish(&rows);
}

CASE(a_plan_is_held_against_the_cache_and_to_memory) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("rnn_step", "64", 1, "ashlar", 20));
    add(&rows, row("rnn_step", "64", 1, "floor", 1));
    add(&rows, row("rnn_step", "64", 1, "plan", 20));
    add(&rows, row("rnn_warm", "", 1, "plan", 20));
    rows.items[3].driver_calls = 1;
    rows.items[3].reserved_over_live = 1.02;
    const char *text = text_of(ashlar__bench_print_targets, &rows);
    CHECK_ZU(count_of(text, "\n"), 3);
    CHECK(has_line(text, "met      rnn_step  64", "replayed pair", "1.000  (at most 1)"));
    CHECK(has_line(text, "met      rnn_warm", "plan's reserved / peak", "1.020  (at most 1.02)"));
    CHECK(has_line(text, "NOT MET  rnn_warm", "driver calls", "1.000  (at most 0)"));
    rows.items[2].ns_pair = 20.1;
    rows.items[3].reserved_over_live = 1.021;
    rows.items[3].driver_calls = 0;
    text = text_of(ashlar__bench_print_targets, &rows);
    CHECK(has_line(text, "NOT MET  rnn_step  64", "replayed pair", "1.005  (at most 1)"));
    CHECK(has_line(text, "NOT MET  rnn_warm", "plan's reserved / peak", "1.021  (at most 1.02)"));
    CHECK(has_line(text, "met      rnn_warm", "driver calls", "0.000  (at most 0)"));
    ashlar__bench_rows_finish(&rows);
}

CASE(instructions_of_a_replay_are_held_to_the_caches) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("one_size", "4096-instructions", 1, "plan", 0));
    rows.items[0].instructions = 130;
    CHECK_ZU(strlen(text_of(ashlar__bench_print_targets, &rows)), 0);
    add(&rows, row("one_size", "4096-instructions", 1, "ashlar", 0));
    rows.items[1].instructions = 100;
    const char *text = text_of(ashlar__bench_print_targets, &rows);
    CHECK_ZU(count_of(text, "\n"), 2);
    CHECK(has_line(text, "NOT MET", "instructions replayed", "1.300  (at most 1)"));
    ashlar__bench_rows_finish(&rows);
}

CASE(what_was_not_measured_is_not_judged) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("one_size", "4096", 1, "ashlar", 20));
    add(&rows, row("one_size", "4096", 1, "jemalloc", 20));
    add(&rows, row("one_size", "4096-fragmented", 1, "ashlar", 100));
    add(&rows, row("one_size", "4096-fragmented", 1, "floor", 10));
    add(&rows, row("one_size", "512", 2, "ashlar", 100));
    add(&rows, row("mix", "reverse", 2, "ashlar", 100));
    add(&rows, row("mix", "reverse", 2, "floor", 1));
    CHECK_ZU(strlen(text_of(ashlar__bench_print_targets, &rows)), 0);
    ashlar__bench_rows_finish(&rows);
}

CASE(instructions_are_held_to_130) {
    ashlar_bench_rows rows = {0};
    add(&rows, row("one_size", "4096-instructions", 1, "ashlar", 0));
    rows.items[0].instructions = 130;
    const char *text = text_of(ashlar__bench_print_targets, &rows);
    CHECK_ZU(count_of(text, "\n"), 1);
    CHECK(has_line(text, "met", "instructions", "130.000  (at most 130)"));
    rows.items[0].instructions = 130.1;
    text = text_of(ashlar__bench_print_targets, &rows);
    CHECK(has_line(text, "NOT MET", "instructions", "130.100  (at most 130)"));
    ashlar__bench_rows_finish(&rows);
}

RUN_CASES_IN_FOLDER()
