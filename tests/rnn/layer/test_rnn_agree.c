/*
 * test_rnn_agree.c - one problem of each kind solved in two ways, which must agree; by any number
 * of threads to the bit.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"

#include "arena/compute/workers.h"
#include "rnn/layer/rnn_cpu.h"
#include "tests/arena/product/set_fixture.h"

/* A case that runs on every kind of stack. */
#define CASE_OF_KINDS(test, k)                                       \
    static void test##_of(const kind *k);                            \
    CASE(test) {                                                     \
        for (size_t i = 0; i < KIND_COUNT; i += CHECK_SHARE(1, 7)) { \
            const kind each = kind_at(i);                            \
            test##_of(&each);                                        \
            drop_problems();                                         \
        }                                                            \
    }                                                                \
    static void test##_of(const kind *k)

/* States, or their gradients, are the same bits; what only the LSTM has is NaN elsewhere. */
static void check_same_states(const problem *p, const void *h, const void *c, const void *other_h,
                              const void *other_c) {
    CHECK(memcmp(h, other_h, p->state_count * p->item) == 0);
    CHECK(memcmp(c, other_c, p->cell_count * p->item) == 0);
    CHECK((p->layout.config.cell == ASHLAR_RNN_LSTM) == !isnan(get(c, p->item, 0)));
}

/* dhx and dcx exist also where hx and cx are NULL: the same as with states of zeros. */
CASE_OF_KINDS(no_initial_state_is_a_state_of_zeros, k) {
    problem with, without;
    shape s = SHAPES[5];
    REQUIRE(open_problem(&with, &s, k, ASHLAR_F64, true));
    fill((void *)(uintptr_t)with.args.b.hx, with.item, with.state_count, 0);
    fill((void *)(uintptr_t)with.args.b.cx, with.item, with.cell_count, 0);
    s.has_state = false;
    REQUIRE(open_problem(&without, &s, k, ASHLAR_F64, true));
    run_training(&with);
    run_training(&without);
    check_same_states(&with, with.args.b.dhx, with.args.b.dcx, without.args.b.dhx,
                      without.args.b.dcx);
    CHECK(memcmp(with.args.b.y, without.args.b.y, with.y_count * with.item) == 0);
}

CASE_OF_KINDS(missing_output_gradients_are_zeros, k) {
    problem zeros, missing;
    REQUIRE(open_problem(&zeros, &SHAPES[5], k, ASHLAR_F64, true));
    REQUIRE(open_problem(&missing, &SHAPES[5], k, ASHLAR_F64, true));
    fill((void *)(uintptr_t)zeros.args.b.dy, zeros.item, zeros.y_count, 0);
    fill((void *)(uintptr_t)zeros.args.b.dcy, zeros.item, zeros.cell_count, 0);
    missing.args.b.dy = NULL;
    missing.args.b.dcy = NULL;
    run_training(&zeros);
    run_training(&missing);
    CHECK(memcmp(zeros.args.b.dx, missing.args.b.dx, zeros.x_count * zeros.item) == 0);
    CHECK(memcmp(zeros.args.b.dhx, missing.args.b.dhx, zeros.state_count * zeros.item) == 0);
    double sum = 0;
    for (size_t i = 0; i < zeros.state_count; i++) {
        sum += fabs(get(zeros.args.b.dhx, zeros.item, i));
    }
    CHECK(sum > 0); /* dhy alone still counts */
}

CASE_OF_KINDS(unwanted_outputs_change_no_other, k) {
    problem all, few;
    REQUIRE(open_problem(&all, &SHAPES[6], k, ASHLAR_F32, true));
    REQUIRE(open_problem(&few, &SHAPES[6], k, ASHLAR_F32, true));
    few.args.b.hy = few.args.b.cy = few.args.b.dx = few.args.b.dhx = few.args.b.dcx = NULL;
    run_training(&all);
    run_training(&few);
    const size_t bytes = all.layout.elements * all.item;
    CHECK(memcmp(all.args.b.y, few.args.b.y, all.y_count * all.item) == 0);
    CHECK(memcmp(all.args.b.dweights, few.args.b.dweights, bytes) == 0);
}

CASE_OF_KINDS(weight_gradients_accumulate, k) {
    problem once, twice;
    REQUIRE(open_problem(&once, &SHAPES[5], k, ASHLAR_F64, true));
    REQUIRE(open_problem(&twice, &SHAPES[5], k, ASHLAR_F64, true));
    run_training(&once);
    for (int i = 0; i < 2; i++) {
        run_training(&twice);
    }
    for (size_t i = 0; i < once.layout.elements; i++) {
        const double want = 2 * get(once.args.b.dweights, once.item, i);
        CHECK_NEAR(get(twice.args.b.dweights, twice.item, i), want, 1e-13, 1e-13);
    }
}

CASE_OF_KINDS(inference_gives_the_bits_of_training, k) {
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        kind undropped = *k;
        undropped.dropout = 0;
        problem training, inference;
        REQUIRE(open_problem(&training, &SHAPES[s], &undropped, ASHLAR_F32, true));
        REQUIRE(open_problem(&inference, &SHAPES[s], &undropped, ASHLAR_F32, false));
        run_forward(&training);
        run_forward(&inference);
        CHECK(memcmp(training.args.b.y, inference.args.b.y, training.y_count * training.item) == 0);
        check_same_states(&training, training.args.b.hy, training.args.b.cy, inference.args.b.hy,
                          inference.args.b.cy);
    }
}

/* A problem with weights in their place, and the same with prepared ones. */
static bool run_prepared(const shape *s, const kind *k, ashlar_dtype dtype, bool training,
                         problem *plain, problem *prepared) {
    if (!open_problem(plain, s, k, dtype, training) ||
        !open_problem(prepared, s, k, dtype, training)) {
        return false;
    }
    void *const weights = (void *)(uintptr_t)prepared->args.b.weights;
    void *const room = scratch(prepared, ashlar__rnn_prepared_bytes(&prepared->layout, false));
    ashlar__rnn_loops_of(dtype)->prepare(
        &(ashlar_prepare_args){.layout = &prepared->layout, .weights = weights, .prepared = room});
    prepared->args.b.prepared = room;
    if (training) { /* backward has no use for them */
        run_training(plain);
        run_training(prepared);
        return true;
    }
    fill(weights, prepared->item, prepared->layout.elements, (double)NAN); /* not read again */
    run_forward(plain);
    run_forward(prepared);
    return true;
}

static void check_prepared(const shape *s, const kind *k, ashlar_dtype dtype, bool training) {
    problem plain, prepared;
    REQUIRE(run_prepared(s, k, dtype, training, &plain, &prepared));
    CHECK(memcmp(plain.args.b.y, prepared.args.b.y, plain.y_count * plain.item) == 0);
    check_same_states(&plain, plain.args.b.hy, plain.args.b.cy, prepared.args.b.hy,
                      prepared.args.b.cy);
    CHECK(!training || memcmp(plain.args.b.dweights, prepared.args.b.dweights,
                              plain.layout.elements * plain.item) == 0);
}

/* Widths of whole panels and others, deep ones, sequences of other lengths than the batch's, and
 * threads that share columns or sequences. */
CASE_OF_KINDS(prepared_weights_give_the_bits_of_plain_ones, k) {
    static const shape shapes[] = {
        {2, 5, 3, 3, 5, {3, 5, 2}, true},
        {1, 4, 1, 300, 64, {4}, false},
        {2, 12, 4, 33, 64, {12, 3, 9, 12}, true},
        {1, 24, 12, 16, 96, {24, 24, 1, 20, 24, 23, 24, 9, 24, 24, 22, 24}, true},
        {1, 5, 2, 9, 264, {5, 3}, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        ashlar__workers_set_count(1 + i % 3);
        check_prepared(&shapes[i], k, i == 0 ? ASHLAR_F64 : ASHLAR_F32, i % 2 == 0);
    }
    ashlar__workers_set_count(0);
}

/* 8 MiB of W are read once, past the caches. */
CASE(so_do_those_that_no_cache_holds) {
    static const shape large = {1, 4, 2, 1056, 512, {4, 3}, true};
    check_prepared(&large, &PLAIN_LSTM, ASHLAR_F32, false);
    drop_problems();
}

CASE_OF_KINDS(states_may_be_updated_in_place, k) {
    problem apart, in_place;
    REQUIRE(open_problem(&apart, &SHAPES[6], k, ASHLAR_F32, false));
    REQUIRE(open_problem(&in_place, &SHAPES[6], k, ASHLAR_F32, false));
    in_place.args.b.hy = (void *)(uintptr_t)in_place.args.b.hx;
    in_place.args.b.cy = (void *)(uintptr_t)in_place.args.b.cx;
    run_forward(&apart);
    run_forward(&in_place);
    if (k->cell != ASHLAR_RNN_LSTM) {
        fill(in_place.args.b.cy, in_place.item, in_place.cell_count, (double)NAN); /* not touched */
    }
    CHECK(memcmp(apart.args.b.y, in_place.args.b.y, apart.y_count * apart.item) == 0);
    check_same_states(&apart, apart.args.b.hy, apart.args.b.cy, in_place.args.b.hy,
                      in_place.args.b.cy);
}

static void check_close(const problem *narrow, const void *got, const problem *wide,
                        const void *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK_NEAR(get(got, narrow->item, i), get(want, wide->item, i), 2e-5, 2e-5);
    }
}

CASE_OF_KINDS(float_agrees_with_double, k) {
    static const shape wide_shape = {2, 20, 5, 37, 50, {20, 3, 11, 20, 7}, true};
    problem f, d;
    REQUIRE(open_problem(&f, &wide_shape, k, ASHLAR_F32, true));
    REQUIRE(open_problem(&d, &wide_shape, k, ASHLAR_F64, true));
    lessen_weights(&f);
    lessen_weights(&d);
    run_training(&f);
    run_training(&d);
    check_close(&f, f.args.b.y, &d, d.args.b.y, f.y_count);
    check_close(&f, f.args.b.hy, &d, d.args.b.hy, f.state_count);
    check_close(&f, f.args.b.dx, &d, d.args.b.dx, f.x_count);
    check_close(&f, f.args.b.dhx, &d, d.args.b.dhx, f.state_count);
    if (k->cell == ASHLAR_RNN_LSTM) {
        check_close(&f, f.args.b.cy, &d, d.args.b.cy, f.cell_count);
        check_close(&f, f.args.b.dcx, &d, d.args.b.dcx, f.cell_count);
    }
    check_close(&f, f.args.b.dweights, &d, d.args.b.dweights, f.layout.elements);
}

/* ---- one thread and several ---- */

/* With shards of the batch (sequences enough), with pieces of each step's product (too few of them,
 * or an R that no cache of one processor holds), with pieces of whole panels, behind which the cell
 * runs, with rows enough that their copies, dropout and sums are shared, too, and with too few
 * steps to pack R. */
static void check_threads(const kind *k) {
    static const shape shapes[] = {
        {1, 24, 12, 16, 96, {24, 24, 1, 20, 24, 23, 24, 9, 24, 24, 22, 24}, true},
        {2, 5, 2, 9, 264, {5, 3}, true},
        {1, 4, 9, 6, 740, {4, 1, 3, 4, 2, 4, 4, 3, 4}, true},
        {1, 5, 2, 9, 256, {5, 3}, true},
        {2, 56, 12, 130, 104, {56, 7, 56, 31, 2, 56, 50, 44, 56, 56, 19, 56}, false},
        {1, 2, 12, 9, 264, {2, 1, 2, 1, 1, 2, 1, 2, 1, 1, 2, 1}, true},
    };
    static const size_t threads[] = {3, 2, 2, 4, 5, 2};
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
    for (size_t i = 0; i < KIND_COUNT; i += CHECK_SANITIZED(5, CHECK_SHARE(13, 27))) {
        const kind k = kind_at(i);
        check_threads(&k);
    }
}

RUN_CASES_OF_SET()
