/*
 * test_accumulate.c - a batch worked off in micro-batches: the gradients of the whole one, in a
 * fraction of its memory.
 */
#include "tests/rnn/train/task_fixture.h"

enum { ELEMENTS_MAX = 1 << 15, STEPS = 12, B = 12 };

static float whole[ELEMENTS_MAX];

static ashlar_train_config config_in(size_t micro) {
    ashlar_train_config config = small_config(STEPS);
    config.batch = B;
    config.accumulate = micro;
    return config;
}

/* Gradients are sums over a few hundred positions, in another order. */
static void check_gradients(void) {
    size_t wrong = 0, used = 0;
    for (size_t i = 0; i < gradients_count(); i++) {
        const float got = gradients_of_task()[i];
        wrong += fabsf(got - whole[i]) <= 1e-6f + 1e-4f * fabsf(whole[i]) ? 0 : 1;
        used += whole[i] != 0;
    }
    CHECK_ZU(wrong, 0);
    CHECK(used > gradients_count() / 8);
}

/* Three batches in a row, each of another length. */
static void check_micro(size_t micro, size_t recompute) {
    for (size_t batch = 0; batch < 3; batch++) {
        double loss = 0;
        for (size_t i = 0; i < 2; i++) {
            ashlar_train_config config = config_in(i == 0 ? 1 : micro);
            config.recompute = i == 0 ? 0 : recompute;
            REQUIRE(open_task(&config));
            ashlar__batch_sampler_skip(task->sampler, batch);
            const ashlar_task_batch drawn = task->table->next(task, 1);
            const ashlar_task_part part = task->table->part(task, 1, 0);
            CHECK(drawn.parts == 1 && part.tokens == drawn.tokens && part.length == drawn.length);
            const double got = run_buffer(1, 77);
            if (i == 0) {
                loss = got;
                REQUIRE(gradients_count() <= ELEMENTS_MAX);
                memcpy(whole, gradients_of_task(), gradients_count() * sizeof whole[0]);
            } else {
                CHECK_NEAR(got, loss, 0, 1e-6);
                check_gradients();
            }
            close_task();
        }
    }
}

CASE_WITH(gradients_are_those_of_the_whole_batch, open_text("memory=256MiB")) {
    for (size_t micro = 1; micro <= B; micro++) {
        if (B % micro == 0) {
            check_micro(micro, 0);
        }
    }
    check_micro(3, 5); /* in chunks too */
}

CASE(a_training_is_the_same_to_tolerance_in_a_fraction_of_the_memory) {
    static shown runs[2];
    ashlar_train_report reports[2];
    for (size_t i = 0; i < 2; i++) {
        const ashlar_train_config config = config_in(i == 0 ? 1 : 4);
        REQUIRE(open_text("memory=256MiB"));
        REQUIRE(train(&config, &runs[i], &reports[i]) == ASHLAR_OK);
        close_text();
        CHECK_ZU(reports[i].training.management, 0);
        CHECK_ZU(reports[i].step_memory.misses, 0);
        CHECK_ZU(reports[i].step_memory.hits, STEPS * 9 * (i == 0 ? 1 : 4));
        CHECK_ZU(reports[i].step_memory.bound_bytes, reports[i].step_bytes);
    }
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_NEAR(runs[1].steps[step].loss_step, runs[0].steps[step].loss_step, 0, 1e-4);
    }
    CHECK(reports[1].step_bytes < reports[0].step_bytes * 3 / 10);
    CHECK_ZU(reports[1].savings_count, 1);
    CHECK(strcmp(reports[1].savings[0].option, "accumulate") == 0);
    CHECK_ZU(reports[1].savings[0].value, 4);
    CHECK_ZU(reports[1].savings[0].bytes, reports[0].step_bytes); /* as it was measured there */
}

/* Of sequences that are all the same, the second half would else lose what the first one does. */
CASE_WITH(each_micro_batch_drops_its_own_outputs, open_text("memory=256MiB")) {
    double found[3];
    for (size_t i = 0; i < 3; i++) {
        ashlar_train_config config = config_in(i == 0 ? 1 : i);
        config.batch = i == 0 ? B / 2 : B;
        config.dropout = 0.5;
        REQUIRE(open_task(&config));
        task->table->make_dummy(task, 0, 9);
        found[i] = run_buffer(0, 77);
        close_task();
    }
    CHECK(fabs(found[2] - found[0]) > 1e-6); /* the halves' mean, and the first of them */
    CHECK(fabs(found[2] - found[1]) > 1e-6);
}

CASE_WITH(a_batch_that_cannot_be_divided_is_refused, open_text("memory=256MiB")) {
    const ashlar_train_config config = config_in(5);
    CHECK_FAILS(train_once(&config), ASHLAR_EINVAL,
                "--accumulate: 5 does not divide the 12 sequences of --batch");
}

RUN_CASES()
