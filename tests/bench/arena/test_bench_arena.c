/*
 * test_bench_arena.c - the arena's benchmark works on what it says. No timing is judged.
 */
#include "bench/arena/bench_arena.h"

#include <sys/stat.h>

#include "tests/allocator/core/allocator_fixture.h"

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
    double seconds = -1, launches = 0;
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
                                              (ashlar_arena_operation)op, &seconds,
                                              &launches) == ASHLAR_OK);
                CHECK(seconds >= 0);
                /* 64 norms and updates, their sum, a decision; or all of it */
                CHECK(op != ASHLAR_ARENA_OPERATION_ADAMW || r > ASHLAR_ARENA_RUNNER_PER_TENSOR ||
                      launches == (r == ASHLAR_ARENA_RUNNER_ARENA ? 1 : 2 * 64 + 2));
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

RUN_CASES_AFTER(ashlar__workers_set_count(2))
