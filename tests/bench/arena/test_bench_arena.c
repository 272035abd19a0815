/*
 * test_bench_arena.c - the arena's benchmark works on what it says, counts as it says, and how its
 * results are told. No timing is judged.
 */
#include "bench/arena/bench_arena.h"

#include <sys/stat.h>

#include "tests/allocator/core/allocator_fixture.h"
#include "tests/text.h"

#include <unistd.h>

#include "arena/compute/workers.h"

/* ---- copies ---- */

CASE(every_line_is_copied_and_nothing_else) {
    enum { BYTES = 5 * (1 << 18) + 3 * ASHLAR_COPY_LINE, GUARD = 64 };
    unsigned char *src = aligned_alloc(ASHLAR_COPY_LINE, BYTES);
    unsigned char *dst = aligned_alloc(ASHLAR_COPY_LINE, BYTES + GUARD);
    REQUIRE(src != NULL && dst != NULL);
    for (size_t i = 0; i < BYTES; i++) {
        src[i] = (unsigned char)(i * 31 + i / 251);
    }
    for (int i = 0; i < 2; i++) {
        ashlar_copy_work work = {
            .dst = dst, .src = src, .bytes = BYTES, .times = 2, .is_shared = i != 0};
        memset(dst, 0, BYTES);
        memset(dst + BYTES, 0xee, GUARD);
        ashlar__arena_copy(&work);
        CHECK(memcmp(dst, src, BYTES) == 0);
        CHECK(dst[BYTES] == 0xee);
    }
    free(src);
    free(dst);
}

/* ---- cases and stages ---- */

CASE_WITH(every_runner_runs_every_operation_it_has, set_up("memory=1GiB")) {
    size_t count;
    double seconds = -1;
    ashlar_arena_setup setup = {0};
    REQUIRE(ashlar__arena_setup_init(&setup, device, &ashlar__arena_cases(&count)[3], true) ==
            ASHLAR_OK);
    ashlar_stats before, after;
    ashlar_allocator_get_stats(setup.allocator, &before);
    CHECK(!ashlar__arena_setup_has(&setup, ASHLAR_ARENA_RUNNER_PER_TENSOR,
                                   ASHLAR_ARENA_OPERATION_SAVE_STATE));
    CHECK(
        !ashlar__arena_setup_has(&setup, ASHLAR_ARENA_RUNNER_FILE, ASHLAR_ARENA_OPERATION_FLATTEN));
    for (unsigned op = 0; op < ASHLAR_ARENA_OPERATION_COUNT; op++) {
        for (unsigned r = 0; r < ASHLAR_ARENA_RUNNER_COUNT; r++) {
            if (ashlar__arena_setup_has(&setup, (ashlar_arena_runner)r,
                                        (ashlar_arena_operation)op)) {
                CHECK(ashlar__arena_setup_run(&setup, (ashlar_arena_runner)r,
                                              (ashlar_arena_operation)op, &seconds) == ASHLAR_OK);
                CHECK(seconds >= 0);
            }
        }
    }
    ashlar_allocator_get_stats(setup.allocator, &after);
    CHECK(after.live_blocks == before.live_blocks);
    struct stat state, plain; /* as many elements; the checkpoint also has a header */
    CHECK(stat(setup.state_file, &state) == 0 && stat(setup.plain_file, &plain) == 0);
    CHECK_ZU((size_t)plain.st_size, 3 * 4 * (size_t)64 * 4096);
    CHECK(state.st_size > plain.st_size && state.st_size < plain.st_size + 65536);
    char gone[sizeof setup.folder];
    memcpy(gone, setup.folder, sizeof gone);
    ashlar__arena_setup_finish(&setup);
    CHECK(access(gone, F_OK) != 0);
}

static ashlar_bench_request request_of(const char *workload) {
    return (ashlar_bench_request){.is_smoke = true,
                                  .out = nowhere(),
                                  .device = "soft",
                                  .workloads = {.items = {workload}, .count = 1}};
}

/* ---- rows ---- */

/* As add_rows() fills them, but for the speeds. */
static void add(ashlar_rows *rows, const char *name, const char *operation, const char *subject,
                double ns, double over_copy) {
    const ashlar_row row = {{
        [ASHLAR_ARENA_CASE].text = name,
        [ASHLAR_ARENA_OPERATION].text = operation,
        [ASHLAR_ARENA_SUBJECT].text = subject,
        [ASHLAR_ARENA_NS].number = ns,
        [ASHLAR_ARENA_OVER_COPY].number = over_copy,
    }};
    CHECK(ashlar__rows_add(rows, &row) == ASHLAR_OK);
}

static const char *judge(double copied, double scattered) {
    ashlar_rows rows = {.form = ashlar__benchmark_arena.form};
    add(&rows, "large", "adamw", "arena", 625, copied);
    add(&rows, "large", "adamw", "per_tensor", 593, 1);
    add(&rows, "10000_tensors", "adamw", "arena", 100, 0.1);
    add(&rows, "10000_tensors", "adamw", "per_tensor", scattered, 1);
    add(&rows, "10000_tensors", "zero", "arena", 100, 1);
    add(&rows, "10000_tensors", "zero", "per_tensor", 95, 1);
    add(&rows, "10000_tensors", "flatten", "arena", 100, 1);
    add(&rows, "10000_tensors", "flatten", "per_tensor", 9, 1);
    add(&rows, "model", "adamw", "arena", 100, 1);
    ashlar__rows_fill_ratios(&rows, 0, ASHLAR_ARENA_OVER_ARENA, ASHLAR_ARENA_NS, "arena");
    ashlar__rows_print_targets(text_begin(), &rows);
    ashlar__rows_finish(&rows);
    return text_end();
}

CASE(the_targets_are_judged_where_they_can_be) {
    const char *text = judge(0.8, 299);
    CHECK_HAS(text, "met      large         adamw       bytes per second / copy loop's         "
                    "0.800  (at least 0.8)\n");
    CHECK_HAS(text, "NOT MET  large         adamw       per_tensor / arena                     "
                    "0.949  (at least 0.95)\n");
    CHECK_HAS(text, "NOT MET  10000_tensors adamw       per_tensor / arena                     "
                    "2.990  (at least 3)\n");
    CHECK_HAS(text, "met      10000_tensors zero        per_tensor / arena                     "
                    "0.950  (at least 0.95)\n");
    CHECK(strstr(text, "model") == NULL && strstr(text, "flatten") == NULL);
    text = judge(0.799, 300);
    CHECK_HAS(text, "NOT MET  large         adamw       bytes per second");
    CHECK_HAS(text, "met      10000_tensors adamw       per_tensor / arena                     "
                    "3.000  (at least 3)\n");
}

/* Speeds are bytes of the operation per second, and ratios those of the same round's copies. */
CASE_WITH(rows_have_speeds_and_their_ratios, set_up("memory=1GiB")) {
    ashlar_rows rows = {.form = ashlar__benchmark_arena.form};
    const ashlar_bench_request request = request_of("large/norm");
    REQUIRE(ashlar__benchmark_arena.run(&request, device, &rows, NULL) == ASHLAR_OK);
    CHECK_ZU(rows.count, 2);
    const ashlar_rows_cell *arena = rows.items[0].cells;
    for (size_t i = 0; i < rows.count; i++) {
        const ashlar_rows_cell *cells = rows.items[i].cells;
        const double speed = cells[ASHLAR_ARENA_BYTES_PER_S].number;
        CHECK_NEAR(speed * cells[ASHLAR_ARENA_NS].number, 4e9 * 64 * 4096, 0, 1e-9);
        CHECK_NEAR(cells[ASHLAR_ARENA_OVER_COPY].number *
                       cells[ASHLAR_ARENA_COPY_BYTES_PER_S].number,
                   speed, 0, 1e-9);
        CHECK_NEAR(cells[ASHLAR_ARENA_OVER_ARENA].number * arena[ASHLAR_ARENA_NS].number,
                   cells[ASHLAR_ARENA_NS].number, 0, 1e-9);
    }
    ashlar__rows_finish(&rows);
}

RUN_CASES_AFTER(ashlar__workers_set_count(2))
