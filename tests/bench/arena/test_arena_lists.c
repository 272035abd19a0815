/*
 * test_arena_lists.c - tensors are cut into lists that cover each element once.
 */
#include "bench/arena/per_tensor.h"

#include "tests/check.h"


enum { CHUNK = ASHLAR_OPTIMIZER_CHUNK };

CASE(lists_end_at_36_tensors_and_at_320_chunks) {
    enum { MANY = 100 };
    static ashlar_optimizer_run runs[MANY];
    const ashlar_arena_list_limits limits = {36, 320, CHUNK};
    ashlar_arena_list lists[8];
    for (size_t i = 0; i < MANY; i++) {
        runs[i].elements = 10;
    }
    CHECK(ashlar__list_limits_36.tensors == 36 && ashlar__list_limits_36.chunks == 320);
    CHECK_ZU(ashlar__list_limits_36.chunk_elements, 65536);
    CHECK_ZU(ashlar__arena_lists_split(runs, MANY, &limits, NULL), 3);
    CHECK_ZU(ashlar__arena_lists_split(runs, MANY, &limits, lists), 3);
    CHECK(lists[1].first == 36 && lists[1].count == 36 && lists[1].skip == 0);
    CHECK(lists[2].first == 72 && lists[2].count == 28 && lists[2].end == 10);

    /* Two whole ones of 150 chunks, 20 chunks of the third; the rest of it and the last. */
    for (size_t i = 0; i < 4; i++) {
        runs[i].elements = 150 * CHUNK - 1;
    }
    CHECK_ZU(ashlar__arena_lists_split(runs, 4, &limits, lists), 2);
    CHECK(lists[0].first == 0 && lists[0].count == 3 && lists[0].end == (size_t)20 * CHUNK);
    CHECK(lists[1].first == 2 && lists[1].count == 2 && lists[1].skip == (size_t)20 * CHUNK);
    CHECK_ZU(lists[1].end, 150 * CHUNK - 1);

    /* The last chunk that is left is used too. */
    runs[0].elements = (size_t)319 * CHUNK;
    CHECK_ZU(ashlar__arena_lists_split(runs, 2, &limits, lists), 2);
    CHECK(lists[0].count == 2 && lists[0].end == CHUNK && lists[1].skip == CHUNK);
}

CASE(a_long_tensor_goes_on_in_the_next_lists) {
    ashlar_optimizer_run run = {.elements = 7 * CHUNK + 5};
    const ashlar_arena_list_limits limits = {36, 3, CHUNK};
    ashlar_arena_list lists[4];
    size_t begin, end;
    CHECK_ZU(ashlar__arena_lists_split(&run, 1, &limits, lists), 3);
    CHECK(lists[1].skip == (size_t)3 * CHUNK && lists[1].end == (size_t)6 * CHUNK);
    ashlar__arena_list_piece(&lists[1], &run, 0, &begin, &end);
    CHECK_ZU(begin, 3 * CHUNK);
    CHECK_ZU(end, 6 * CHUNK);
    ashlar__arena_list_piece(&lists[2], &run, 0, &begin, &end);
    CHECK_ZU(begin, 6 * CHUNK);
    CHECK_ZU(end, 7 * CHUNK + 5);
    ashlar_optimizer_job job = {0};
    (void)ashlar__optimizer_number(&run, 1);
    ashlar__arena_list_cover(&lists[1], &run, &run, &job);
    CHECK(job.first == (size_t)3 * CHUNK && job.end == (size_t)6 * CHUNK);
    CHECK(job.first_chunk == 3 && job.end_chunk == 6 && job.run_count == 1);
    CHECK_ZU(job.elements, 3 * CHUNK);
}

RUN_CASES()
