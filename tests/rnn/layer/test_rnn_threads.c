/*
 * test_rnn_threads.c - the CPU's passes on one thread and on several.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"
#include "tests/rnn/product/set_fixture.h"

#include "arena/compute/workers.h"

/* With shards of the batch (sequences enough), with pieces of each step's product (too few of them,
 * or an R that no cache of one processor holds), with pieces of whole panels, behind which the cell
 * runs, and with rows enough that their copies, dropout and sums are shared, too. */
static void check_threads(const kind *k) {
    static const shape shapes[] = {
        {1, 24, 12, 16, 96, {24, 24, 1, 20, 24, 23, 24, 9, 24, 24, 22, 24}, true},
        {2, 5, 2, 9, 264, {5, 3}, true},
        {1, 4, 9, 6, 740, {4, 1, 3, 4, 2, 4, 4, 3, 4}, true},
        {1, 5, 2, 9, 256, {5, 3}, true},
        {2, 56, 12, 130, 104, {56, 7, 56, 31, 2, 56, 50, 44, 56, 56, 19, 56}, false},
    };
    static const size_t threads[] = {3, 2, 2, 4, 5};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        problem one, many;
        REQUIRE(open_problem(&one, &shapes[i], k, ASHLAR_F32, true));
        REQUIRE(open_problem(&many, &shapes[i], k, ASHLAR_F32, true));
        lessen_weights(&one);
        lessen_weights(&many);
        ashlar__workers_set_count(1);
        run_training(&one);
        ashlar__workers_set_count(threads[i]);
        run_training(&many);
        ashlar__workers_set_count(0);
        CHECK(memcmp(one.args.b.y, many.args.b.y, one.y_count * one.item) == 0);
        CHECK(memcmp(one.args.b.dx, many.args.b.dx, one.x_count * one.item) == 0);
        CHECK(memcmp(one.args.b.dweights, many.args.b.dweights, one.layout.elements * one.item) ==
              0);
        CHECK(memcmp(one.args.b.hy, many.args.b.hy, one.state_count * one.item) == 0);
        CHECK(memcmp(one.args.b.dhx, many.args.b.dhx, one.state_count * one.item) == 0);
        CHECK(memcmp(one.args.b.cy, many.args.b.cy, one.cell_count * one.item) == 0);
        CHECK(memcmp(one.args.b.dcx, many.args.b.dcx, one.cell_count * one.item) == 0);
        drop_problems();
    }
}

/* Every cell, both directions, every bias mode, with dropout and without. */
CASE(any_number_of_threads_gives_the_same_bits) {
    for (size_t i = 0; i < KIND_COUNT; i += CHECK_SANITIZED(5, 13)) {
        const kind k = kind_at(i);
        check_threads(&k);
    }
}

RUN_CASES_OF_SET()
