/*
 * test_bench_arena.c - the arena's benchmark works on what it says, counts as it says, and how its
 * results are told. No timing is judged.
 */
#include "bench/arena/bench_arena.h"

#include "tests/allocator/core/allocator_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include "bench/arena/arena_cases.h"
#include "bench/arena/arena_setup.h"
#include "tests/allocator/base/file_fixture.h"
#include "arena/compute/workers.h"

/* ---- copies ---- */

CASE(every_line_is_copied_by_both_ways_and_nothing_else) {
    enum { BYTES = 5 * (1 << 18) + 3 * ASHLAR_COPY_LINE, GUARD = 64 };
    unsigned char *src = aligned_alloc(ASHLAR_COPY_LINE, BYTES);
    unsigned char *dst = aligned_alloc(ASHLAR_COPY_LINE, BYTES + GUARD);
    REQUIRE(src != NULL && dst != NULL);
    for (size_t i = 0; i < BYTES; i++) {
        src[i] = (unsigned char)(i * 31 + i / 251);
    }
    for (int i = 0; i < 4; i++) {
        const ashlar_copy_work work = {
            .dst = dst, .src = src, .bytes = BYTES, .times = 2, .is_shared = (i & 1) != 0};
        memset(dst, 0, BYTES);
        memset(dst + BYTES, 0xee, GUARD);
        (i < 2 ? ashlar__copy_by_loop : ashlar__copy_by_memcpy)(&work);
        CHECK(memcmp(dst, src, BYTES) == 0);
        CHECK(dst[BYTES] == 0xee);
    }
    free(src);
    free(dst);
}

/* ---- cases and stages ---- */

CASE(cases_are_what_they_say) {
    static const size_t counts[] = {100, 11, 10000, 64};
    static const size_t smoke_elements[] = {1638400, 938240, 0, 64 * 4096};
    size_t count;
    const ashlar_arena_case *all = ashlar__arena_cases(&count);
    REQUIRE(count == 4);
    for (size_t i = 0; i < count; i++) {
        ashlar_arena *one = NULL;
        CHECK(ashlar_arena_create(&one) == ASHLAR_OK);
        CHECK(ashlar__arena_case_declare(&all[i], true, one) == ASHLAR_OK);
        CHECK_ZU(ashlar_arena_tensor_count(one), counts[i]);
        if (smoke_elements[i] != 0) {
            CHECK_ZU(ashlar_arena_elements(one), smoke_elements[i]);
        }
        ashlar_arena_destroy(one);
    }
    ashlar_arena *large = NULL;
    CHECK(ashlar_arena_create(&large) == ASHLAR_OK);
    CHECK(ashlar__arena_case_declare(&all[3], false, large) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_elements(large), (size_t)1 << 25);
    ashlar_arena_destroy(large);
}

CASE(most_of_10000_tensors_have_some_hundred_elements) {
    size_t count, small = 0, large = 0;
    const ashlar_arena_case *all = ashlar__arena_cases(&count);
    ashlar_arena *one = NULL;
    CHECK(ashlar_arena_create(&one) == ASHLAR_OK);
    CHECK(ashlar__arena_case_declare(&all[2], false, one) == ASHLAR_OK);
    for (size_t i = 0; i < ashlar_arena_tensor_count(one); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(one, i, &info);
        small += info.elements >= 64 && info.elements <= 512;
        large += info.elements >= 4096 && info.elements <= 16384;
    }
    CHECK_ZU(small, 9900);
    CHECK_ZU(large, 100);
    ashlar_arena_destroy(one);
}

CASE_WITH(bytes_are_counted_as_the_table_says, set_up("memory=1GiB")) {
    static const double accesses[] = {8, 1, 1, 2, 2, 2};
    size_t count;
    ashlar_arena_setup setup = {0};
    REQUIRE(ashlar__arena_setup_init(&setup, device, &ashlar__arena_cases(&count)[3], true) ==
            ASHLAR_OK);
    for (unsigned i = 0; i < ASHLAR_ARENA_OPERATION_COUNT; i++) {
        const ashlar_arena_operation op = (ashlar_arena_operation)i;
        const double want = 4.0 * 64 * 4096 * accesses[i];
        CHECK(ashlar__arena_setup_bytes(&setup, ASHLAR_ARENA_RUNNER_ARENA, op) == want);
        CHECK(ashlar__arena_setup_bytes(&setup, ASHLAR_ARENA_RUNNER_LISTS, op) == want);
        CHECK(ashlar__arena_setup_bytes(&setup, ASHLAR_ARENA_RUNNER_LOOP, op) == want);
    }
    ashlar__arena_setup_finish(&setup);
    ashlar__arena_setup_finish(&setup); /* zeros */
}

/* Whatever was called: the arena has the scattered parameters, and no replica is left. */
CASE_WITH(every_runner_runs_every_operation_it_has, set_up("memory=1GiB")) {
    size_t count;
    double seconds = -1;
    ashlar_arena_setup setup = {0};
    REQUIRE(ashlar__arena_setup_init(&setup, device, &ashlar__arena_cases(&count)[3], true) ==
            ASHLAR_OK);
    ashlar_stats before, after;
    ashlar_allocator_get_stats(setup.allocator, &before);
    CHECK(!ashlar__arena_setup_has(ASHLAR_ARENA_RUNNER_LISTS, ASHLAR_ARENA_OPERATION_CHECKPOINT));
    for (unsigned op = 0; op < ASHLAR_ARENA_OPERATION_COUNT; op++) {
        for (unsigned r = 0; r < ASHLAR_ARENA_RUNNER_COUNT; r++) {
            if (ashlar__arena_setup_has((ashlar_arena_runner)r, (ashlar_arena_operation)op)) {
                CHECK(ashlar__arena_setup_run(&setup, (ashlar_arena_runner)r,
                                              (ashlar_arena_operation)op, &seconds) == ASHLAR_OK);
                CHECK(seconds >= 0);
            }
        }
    }
    ashlar_allocator_get_stats(setup.allocator, &after);
    CHECK(setup.replica == NULL && after.live_blocks == before.live_blocks);
    CHECK(setup.pointers[3] ==
          ashlar__per_tensor_view(setup.scattered[ASHLAR_ARENA_RUNNER_PER_TENSOR],
                                  ASHLAR_REGION_PARAMETERS, 3)); /* for the next flatten */
    CHECK(access(setup.file, F_OK) == 0);
    char gone[sizeof setup.folder];
    memcpy(gone, setup.folder, sizeof gone);
    ashlar__arena_setup_finish(&setup);
    CHECK(access(gone, F_OK) != 0);
}

CASE(only_known_names_are_taken) {
    static const char *const good[] = {"model", "large/adamw", "10000_tensors/checkpoint"};
    static const char *const bad[] = {"",          "mode",        "models", "large/",
                                      "large/sgd", "large-adamw", "adamw"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const ashlar_bench_arena_config config = {.wanted = {.items = {good[i]}, .count = 1}};
        CHECK(ashlar__bench_arena_check(&config) == ASHLAR_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const ashlar_bench_arena_config config = {.wanted = {.items = {bad[i]}, .count = 1}};
        CHECK(ashlar__bench_arena_check(&config) == ASHLAR_EINVAL);
    }
}

/* ---- rows ---- */

static void add(ashlar_arena_rows *rows, const char *name, ashlar_arena_operation operation,
                size_t subject, double ns) {
    const ashlar_arena_row row = {.case_name = name,
                                  .operation = operation,
                                  .subject = subject,
                                  .ns = ns,
                                  .bytes = 1000,
                                  .copy_bytes_per_s = 2e9,
                                  .memcpy_bytes_per_s = 4e9};
    CHECK(ashlar__arena_rows_add(rows, &row) == ASHLAR_OK);
}

static const char *text_of(void (*print)(FILE *, const ashlar_arena_rows *),
                           const ashlar_arena_rows *rows) {
    static char text[4096];
    FILE *file = tmpfile();
    if (file == NULL) {
        return "no temporary file";
    }
    print(file, rows);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static void print_second(FILE *out, const ashlar_arena_rows *rows) {
    ashlar__arena_rows_print(out, rows, 1);
}

CASE(the_table_has_ratios_to_the_copies_and_the_arena) {
    ashlar_arena_rows rows = {0};
    add(&rows, "model", ASHLAR_ARENA_OPERATION_ADAMW, 0, 500);
    add(&rows, "model", ASHLAR_ARENA_OPERATION_ADAMW, 1, 2000);
    add(&rows, "large", ASHLAR_ARENA_OPERATION_NORM, 2, 1000);
    const char *text = text_of(print_second, &rows);
    CHECK_HAS(text, "model         adamw      per_tensor           2.0     0.50    0.25      0.12 "
                    "    4.00\n");
    CHECK_HAS(text, "large         norm       lists_of_36          1.0     1.00    0.50      0.25 "
                    "       -\n");
    ashlar__arena_rows_finish(&rows);
    CHECK(rows.items == NULL && rows.count == 0);
}

CASE(the_targets_are_judged_where_they_can_be) {
    ashlar_arena_rows rows = {0};
    add(&rows, "large", ASHLAR_ARENA_OPERATION_ADAMW, 0, 625); /* 1.6 GB/s */
    add(&rows, "large", ASHLAR_ARENA_OPERATION_ADAMW, 1, 593);
    add(&rows, "large", ASHLAR_ARENA_OPERATION_ADAMW, 2, 593);
    add(&rows, "10000_tensors", ASHLAR_ARENA_OPERATION_ADAMW, 0, 100);
    add(&rows, "10000_tensors", ASHLAR_ARENA_OPERATION_ADAMW, 1, 299);
    add(&rows, "10000_tensors", ASHLAR_ARENA_OPERATION_ZERO, 0, 100);
    add(&rows, "10000_tensors", ASHLAR_ARENA_OPERATION_ZERO, 1, 95);
    add(&rows, "model", ASHLAR_ARENA_OPERATION_ADAMW, 0, 100);
    add(&rows, "model", ASHLAR_ARENA_OPERATION_ADAMW, 2, 10);
    const char *text = text_of(ashlar__arena_rows_print_targets, &rows);
    CHECK_HAS(text, "met      large         adamw       bytes per second / copy loop's         "
                    "0.800  (at least 0.8)\n");
    CHECK_HAS(text, "NOT MET  large         adamw       per_tensor / arena                     "
                    "0.949  (at least 0.95)\n");
    CHECK_HAS(text, "NOT MET  10000_tensors adamw       per_tensor / arena                     "
                    "2.990  (at least 3)\n");
    CHECK_HAS(text, "met      10000_tensors zero        per_tensor / arena                     "
                    "0.950  (at least 0.95)\n");
    CHECK(strstr(text, "model") == NULL && strstr(text, "1.000") == NULL);
    rows.items[0].ns = 626;
    rows.items[4].ns = 300;
    text = text_of(ashlar__arena_rows_print_targets, &rows);
    CHECK_HAS(text, "NOT MET  large         adamw       bytes per second");
    CHECK_HAS(text, "met      10000_tensors adamw       per_tensor / arena                     "
                    "3.000  (at least 3)\n");
    ashlar__arena_rows_finish(&rows);
}

CASE(json_has_a_row_each) {
    ashlar_arena_rows rows = {0};
    unsigned char text[FILE_MAX_BYTES];
    for (size_t i = 0; i < 70; i++) {
        add(&rows, "model", ASHLAR_ARENA_OPERATION_FLATTEN, 2, 500);
    }
    rows.count = 1;
    CHECK(ashlar__arena_rows_write(path, &rows) == ASHLAR_OK);
    text[read_bytes(text)] = '\0';
    CHECK(strcmp((char *)text, "[\n  {\n    \"case\": \"model\",\n    \"operation\": \"flatten\",\n"
                               "    \"subject\": \"lists_of_36\",\n    \"ns\": 500,\n"
                               "    \"bytes_per_s\": 2000000000,\n"
                               "    \"copy_bytes_per_s\": 2000000000,\n"
                               "    \"over_arena\": null\n  }\n]\n") == 0);
    add(&rows, "model", ASHLAR_ARENA_OPERATION_FLATTEN, 0, 400);
    CHECK(ashlar__arena_rows_write(path, &rows) == ASHLAR_OK);
    text[read_bytes(text)] = '\0';
    CHECK_HAS((char *)text, "\"over_arena\": 1.25\n");
    CHECK(ashlar__arena_rows_write("/nowhere/at/all.json", &rows) == ASHLAR_EIO);
    ashlar__arena_rows_finish(&rows);
}

CASE(without_host_memory_no_row_is_added) {
    ashlar_arena_rows rows = {0};
    const ashlar_arena_row row = {.case_name = "model"};
    HOST_FAILS_AT(1, CHECK(ashlar__arena_rows_add(&rows, &row) == ASHLAR_EHOSTMEM));
    CHECK_ZU(rows.count, 0);
}

int main(void) {
    if (!make_folder()) {
        return 1;
    }
    ashlar__workers_set_count(2);
    check_run_cases();
    remove_folder();
    return check_report();
}
