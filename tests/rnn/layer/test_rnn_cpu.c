/*
 * test_rnn_cpu.c - the memory that the CPU's passes need, and that they stay inside it.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"
#include "tests/rnn/product/set_fixture.h"

static void check_guards(const problem *p) {
    for (size_t i = 0; i < 2; i++) {
        size_t touched = 0;
        for (size_t at = 0; p->guards[i] != NULL && at < GUARD_BYTES; at++) {
            touched += p->guards[i][at] != GUARD;
        }
        CHECK_ZU(touched, 0);
    }
}

CASE(no_call_writes_past_its_scratch) {
    for (size_t i = 0; i < (size_t)KIND_COUNT * SHAPE_COUNT * 2; i++) {
        const kind k = kind_at(i / 2 % KIND_COUNT);
        const bool training = i % 2 == 0;
        problem p;
        REQUIRE(open_problem(&p, &SHAPES[i / 2 / KIND_COUNT], &k, ASHLAR_F32, training));
        run_forward(&p);
        if (training) {
            run_backward(&p);
        }
        check_guards(&p);
        drop_problems();
    }
}

static void check_sizes_grow(const kind *k) {
    const shape s = {.layers = 2, .input = 5, .hidden = 7};
    const ashlar_rnn_config config = config_of(&s, k, ASHLAR_F32);
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    for (size_t steps = 1; steps < 20; steps++) {
        for (size_t batch = 1; batch < 20; batch++) {
            for (int training = 0; training < 2; training++) {
                size_t reserve[3], work[3];
                const bool keeps = training != 0;
                REQUIRE(ashlar__rnn_cpu_sizes(&layout, steps, batch, keeps, &reserve[0],
                                              &work[0]) == ASHLAR_OK);
                REQUIRE(ashlar__rnn_cpu_sizes(&layout, steps + 1, batch, keeps, &reserve[1],
                                              &work[1]) == ASHLAR_OK);
                REQUIRE(ashlar__rnn_cpu_sizes(&layout, steps, batch + 1, keeps, &reserve[2],
                                              &work[2]) == ASHLAR_OK);
                CHECK(reserve[1] >= reserve[0] && reserve[2] >= reserve[0]);
                CHECK(work[1] >= work[0] && work[2] >= work[0]);
                CHECK((reserve[0] > 0) == keeps);
            }
        }
    }
}

CASE(sizes_never_shrink_when_a_batch_grows) {
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const kind k = kind_at(i);
        check_sizes_grow(&k);
    }
}

CASE(impossible_sizes_are_refused_and_write_nothing) {
    const ashlar_rnn_config config = {.input = 5, .hidden = 8, .layers = 1, .dtype = ASHLAR_F64};
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &config) == ASHLAR_OK);
    const struct {
        size_t steps, batch;
        ashlar_status want;
    } cases[] = {
        {0, 1, ASHLAR_EINVAL},
        {1, 0, ASHLAR_EINVAL},
        {SIZE_MAX, 1, ASHLAR_EOVERFLOW},
        {1, SIZE_MAX, ASHLAR_EOVERFLOW},
        {1, SIZE_MAX / 2 + 1, ASHLAR_EOVERFLOW},
        {SIZE_MAX / 2 + 1, 2, ASHLAR_EOVERFLOW},
        {(size_t)1 << 32, (size_t)1 << 32, ASHLAR_EOVERFLOW},
        {(size_t)1 << 31, (size_t)1 << 30, ASHLAR_EOVERFLOW}, /* 2^61 rows of 8 or 32 elements */
        {(size_t)1 << 28, (size_t)1 << 28, ASHLAR_EOVERFLOW}, /* 2^61 gates of 8 bytes */
        {(size_t)1 << 31, 1, ASHLAR_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int training = 0; training < 2; training++) {
            size_t reserve = 11, work = 22;
            CHECK(ashlar__rnn_cpu_sizes(&layout, cases[i].steps, cases[i].batch, training != 0,
                                        &reserve, &work) == cases[i].want);
            CHECK((reserve == 11 && work == 22) == (cases[i].want != ASHLAR_OK));
        }
    }
    CHECK_HAS(ashlar_error_detail(), "lower steps");
}

RUN_CASES_OF_SET()
