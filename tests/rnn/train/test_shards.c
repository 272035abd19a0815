/*
 * test_shards.c - a batch divided into shards: together they have the gradients, the losses and the
 * dropout of the whole one, and their sums follow a tree.
 */
#include "tests/rnn/train/task_fixture.h"

#include "rnn/train/shards.h"

enum { ELEMENTS_MAX = 1 << 15, B = 16 };

static float whole[ELEMENTS_MAX], sum[ELEMENTS_MAX];

static ashlar_train_config config_in(size_t shards) {
    ashlar_train_config config = small_config(8);
    config.layers = 2;
    config.dropout = 0.4;
    config.batch = B;
    config.shards = shards;
    return config;
}

/* Gradients are sums over a few hundred positions, in another order. */
static void check_sum(void) {
    size_t wrong = 0, used = 0;
    for (size_t i = 0; i < gradients_count(); i++) {
        wrong += fabsf(sum[i] - whole[i]) <= 1e-6f + 1e-4f * fabsf(whole[i]) ? 0 : 1;
        used += whole[i] != 0;
    }
    CHECK_ZU(wrong, 0);
    CHECK(used > gradients_count() / 8);
}

/* Run the batch of one task, shard by shard; returns the loss. */
static double run_shards(const ashlar_train_config *config) {
    const size_t shards = config->shards == 0 ? 1 : config->shards;
    double loss = 0;
    memset(sum, 0, sizeof sum);
    CHECK(open_task(config));
    const ashlar_task_batch drawn = task->table->next(task, 1);
    CHECK_ZU(task->table->part(task, 1, 0).tokens, drawn.tokens);
    for (size_t shard = 0; shard < shards; shard++) {
        task->shard = shard;
        loss += run_buffer(1, 77);
        CHECK(gradients_count() <= ELEMENTS_MAX);
        for (size_t i = 0; i < gradients_count(); i++) {
            sum[i] += gradients_of_task()[i];
        }
    }
    return loss;
}

CASE_WITH(shards_have_the_gradients_of_the_whole_batch_with_dropout, open_text("memory=256MiB")) {
    for (size_t accumulate = 1; accumulate <= 2; accumulate++) {
        ashlar_train_config config = config_in(0);
        config.accumulate = accumulate;
        const double loss = run_shards(&config);
        memcpy(whole, sum, sizeof whole);
        close_task();
        for (config.shards = 1; config.shards <= 8; config.shards *= 2) {
            CHECK_NEAR(run_shards(&config), loss, 0, 1e-6);
            check_sum();
            close_task();
        }
    }
}

CASE(as_many_shards_as_a_batch_allows_are_chosen) {
    CHECK_ZU(ashlar__shards_choose(16, 1), 8);
    CHECK_ZU(ashlar__shards_choose(16, 4), 4);
    CHECK_ZU(ashlar__shards_choose(25, 1), 1);
    CHECK_ZU(ashlar__shards_choose(64, 1), 8);
    CHECK_ZU(ashlar__shards_choose(12, 3), 4);
}

CASE(divisions_that_cannot_be_are_refused) {
    ashlar_train_config config = config_in(3);
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "3 are no power of 2");
    config = config_in(16);
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "16 are more than 8");
    config = config_in(8);
    config.batch = 20;
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "--batch: 20");
    config = config_in(2);
    config.pads = true;
    CHECK_FAILS(ashlar__shards_check(&config), ASHLAR_EINVAL, "--pad");
    config = config_in(2);
    CHECK(ashlar__shards_check(&config) == ASHLAR_OK);
    const ashlar_shards all = ashlar__shards_of(&config);
    CHECK(all.all == 2 && all.first == 0 && all.count == 2);
}

RUN_CASES()
