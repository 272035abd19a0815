/*
 * test_task_tagger.c - the tagger in the training loop: its losses against the same loop written
 * out here, what it learns, and what becomes of memory meanwhile.
 */
#include "tests/rnn/train/task_tagger_fixture.h"

#include <ashlar/plan.h>

/* ---- the same loop, from the parts ---- */

static ashlar_tagger *make_tagger(const ashlar_train_config *c) {
    ashlar_tagger_counts n;
    ashlar_tagger *tagger = NULL;
    ashlar__tagger_corpus_counts(corpus, &n);
    const ashlar_tagger_config config = {.words = n.words,
                                         .characters = n.characters,
                                         .tags = n.tags,
                                         .word_embedding = c->embedding,
                                         .character_embedding = tags_config.character_embedding,
                                         .character_hidden = tags_config.character_hidden,
                                         .hidden = c->hidden,
                                         .layers = c->layers,
                                         .cell = c->cell,
                                         .projection = c->projection,
                                         .dropout = c->dropout,
                                         .directions = tags_config.is_unidirectional ? 1 : 2,
                                         .label_embedding = tags_config.label_embedding};
    CHECK(ashlar__tagger_create(allocator, streams[1], &config, ASHLAR_REGIONS_ALL, &tagger) ==
          ASHLAR_OK);
    CHECK(ashlar__tagger_init_weights(tagger, c->seed) == ASHLAR_OK);
    return tagger;
}

static ashlar_batch_sampler *make_batch_sampler(const ashlar_train_config *c) {
    static ashlar_batch_sampler_item items[SENTENCES];
    ashlar_batch_sampler *batch_sampler = NULL;
    size_t count = 0;
    for (size_t i = 0; i < SENTENCES; i++) {
        const ashlar_tagger_sentence s = ashlar__tagger_corpus_sentence(corpus, i);
        if (!s.is_held_out) {
            items[count++] = (ashlar_batch_sampler_item){i, s.count};
        }
    }
    CHECK(ashlar__batch_sampler_create(items, count, c->batch, ASHLAR_BATCH_SAMPLER_WINDOW, c->seed,
                                       &batch_sampler) == ASHLAR_OK);
    return batch_sampler;
}

/* The sentence's own shape: a batch that the task never has. */
static void predict_sentence(ashlar_tagger *tagger, size_t number, ashlar_tagger_evaluation *sum) {
    static int32_t data[4096], labels[WORDS_MAX];
    ashlar_tagger_bytes sizes;
    double *loss = (double *)(void *)take(sizeof *loss, streams[1]);
    ashlar_tagger_batch batch = {.data = data};
    const size_t count = ashlar__tagger_corpus_sentence(corpus, number).count;
    ashlar__tagger_batch_fill(&batch, corpus, &(ashlar_batch_sampler_item){number, count}, 1);
    batch.device = (int32_t *)(void *)take(sizeof data, streams[1]);
    memcpy(batch.device, data, sizeof data);
    *loss = 0;
    CHECK(ashlar__tagger_sizes(tagger, &batch.shape, &sizes) == ASHLAR_OK);
    CHECK(ashlar__tagger_predict(tagger, &batch, &sizes, loss, labels) == ASHLAR_OK);
    wait_for(streams[1]);
    for (size_t t = 0; t < count; t++) {
        sum->right += labels[t] == ashlar__tagger_corpus_sentence(corpus, number).tokens[t].tag;
    }
    sum->words += count;
    sum->loss += *loss * (double)count;
    give(batch.device);
    give(loss);
}

static void train_by_hand(const ashlar_train_config *c, ashlar_tagger *tagger, double *losses,
                          size_t *lengths) {
    static int32_t data[4096];
    ashlar_optimizer *optimizer = NULL;
    ashlar_batch_sampler *batch_sampler = make_batch_sampler(c);
    ashlar_tagger_batch batch = {.data = data};
    double *loss = (double *)(void *)take(sizeof *loss, streams[1]);
    batch.device = (int32_t *)(void *)take(sizeof data, streams[1]);
    CHECK(ashlar_optimizer_create(tagger->arena, &c->optimizer, streams[1], &optimizer) ==
          ASHLAR_OK);
    tagger->loss_scale = ashlar_optimizer_loss_scale_address(optimizer);
    for (size_t i = 0; i < c->steps; i++) {
        ashlar_tagger_bytes sizes;
        ashlar__tagger_batch_fill(&batch, corpus, ashlar__batch_sampler_next(batch_sampler),
                                  c->batch);
        memcpy(batch.device, data, sizeof data);
        *loss = 0;
        tagger->dropout_seed = c->seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        CHECK(ashlar__tagger_sizes(tagger, &batch.shape, &sizes) == ASHLAR_OK);
        CHECK(ashlar_arena_zero(tagger->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
        CHECK(ashlar__tagger_step(tagger, &batch, &sizes, 0, loss) == ASHLAR_OK);
        CHECK(ashlar_optimizer_step(optimizer, ashlar_schedule_rate(&c->schedule, i + 1), 1,
                                    streams[1]) == ASHLAR_OK);
        wait_for(streams[1]);
        losses[i] = *loss;
        lengths[i] = batch.shape.steps;
    }
    ashlar_optimizer_destroy(optimizer);
    ashlar__batch_sampler_destroy(batch_sampler);
    give(batch.device);
    give(loss);
}

static void check_against_reference(const ashlar_train_config *config) {
    static double losses[STEPS_MAX];
    static size_t lengths[STEPS_MAX];
    ashlar_tagger_evaluation want = {0};
    REQUIRE(open_tags("memory=256MiB,mode=adversarial,seed=9", 7)); /* 42: no whole batches */
    REQUIRE(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    ashlar_tagger *tagger = make_tagger(config);
    train_by_hand(config, tagger, losses, lengths);
    for (size_t i = 6; i < SENTENCES; i += 7) {
        predict_sentence(tagger, i, &want);
    }
    ashlar__tagger_destroy(tagger);
    ashlar_allocator_destroy(allocator);
    REQUIRE(train_once(config) == ASHLAR_OK);
    CHECK_ZU(seen.count, config->steps);
    for (size_t i = 0; i < seen.count; i++) {
        CHECK(seen.steps[i].loss_step == losses[i]);
        CHECK_ZU(seen.steps[i].length, lengths[i]);
    }
    CHECK(test.words == want.words && test.right == want.right);
    CHECK_NEAR(test.loss, want.loss / (double)want.words, 0, 1e-5);
    CHECK(strcmp(report.unit, "word") == 0);
    CHECK_ZU(report.max_length, WORDS_MAX);
    CHECK_ZU(report.sequences, SENTENCES - 42);
    const ashlar_task_tagger_config as = tags_config;
    close_tags();
    tags_config = as;
}

CASE(losses_and_test_are_those_of_the_parts) {
    ashlar_train_config config = small_config(60);
    check_against_reference(&config);
    config.optimizer.loss_scale = 1024;
    check_against_reference(&config);
    config.layers = 2;
    config.dropout = 0.3;
    config.cell = ASHLAR_RNN_GRU;
    check_against_reference(&config);
    tags_config.is_unidirectional = true;
    config.cell = ASHLAR_RNN_LSTM;
    config.projection = 7;
    check_against_reference(&config);
}

CASE(so_they_are_with_labels_fed_back) {
    tags_config.label_embedding = 4;
    const ashlar_train_config config = small_config(40);
    check_against_reference(&config);
}

/* ---- what it learns ---- */

static double share_right(const ashlar_train_config *config) {
    test = (ashlar_tagger_evaluation){0};
    CHECK(train_once(config) == ASHLAR_OK);
    return (double)test.right / (double)test.words;
}

/* A tag is of the word's last letter and the next one's; most words of the test are unknown. */
CASE_WITH(it_learns_from_letters_and_neighbours, open_tags("memory=256MiB", 5)) {
    const ashlar_train_config config = small_config(160);
    CHECK(share_right(&config) > 0.97);
    tags_config.is_unidirectional = true; /* what comes next is a guess then */
    const double one_way = share_right(&config);
    CHECK(one_way > 0.3 && one_way < 0.6);
}

/* ---- files ---- */

CASE_WITH(a_training_goes_on_with_a_file, open_tags("memory=256MiB", 5)) {
    static shown whole, head, tail;
    ashlar_tagger_evaluation want;
    char path[96];
    (void)snprintf(path, sizeof path, "%s/saved", folder);
    ashlar_train_config config = small_config(40);
    REQUIRE(train(&config, NULL, &whole, &report, &want) == ASHLAR_OK);
    config.steps = 25;
    REQUIRE(train(&config, path, &head, &report, &test) == ASHLAR_OK);
    config.steps = 40;
    config.resume_file = path;
    REQUIRE(train(&config, NULL, &tail, &report, &test) == ASHLAR_OK);
    CHECK_ZU(tail.count, 15);
    for (size_t i = 0; i < tail.count; i++) {
        CHECK(tail.steps[i].loss_step == whole.steps[25 + i].loss_step);
        CHECK(tail.steps[i].epoch == whole.steps[25 + i].epoch);
    }
    CHECK(test.right == want.right && test.loss == want.loss);
    (void)unlink(path);
}

CASE_WITH(a_file_of_another_tagger_or_text_is_refused, open_tags("memory=256MiB", 5)) {
    char path[96], other[96];
    (void)snprintf(path, sizeof path, "%s/saved", folder);
    (void)snprintf(other, sizeof other, "/tmp/ashlar-tags-%ld", (long)getpid());
    ashlar_train_config config = small_config(3);
    REQUIRE(train(&config, path, &seen, &report, &test) == ASHLAR_OK);
    CHECK(rename(path, other) == 0);
    config.steps = 6;
    config.resume_file = other;
    tags_config.character_hidden = 9;
    CHECK_FAILS(train_once(&config), ASHLAR_EFORMAT, "ashlar.char_hidden is 8 there, and 9 here");
    usual_tags();
    tags_config.is_unidirectional = true;
    CHECK_FAILS(train_once(&config), ASHLAR_EFORMAT, "ashlar.directions is 2 there, and 1 here");
    close_tags();
    REQUIRE(open_tags("memory=256MiB", 6)); /* the same file, another share held out */
    CHECK_FAILS(train_once(&config), ASHLAR_EFORMAT, "ashlar.text is 300 sentences");
    (void)unlink(other);
}

/* ---- edges and failures ---- */

CASE_WITH(without_held_out_sentences_there_is_nothing_to_test, open_tags("memory=256MiB", 0)) {
    test = (ashlar_tagger_evaluation){.words = 77};
    const ashlar_train_config config = small_config(2);
    REQUIRE(train_once(&config) == ASHLAR_OK);
    CHECK(test.words == 0 && test.right == 0 && test.loss == 0);
    CHECK_ZU(report.sequences, SENTENCES);
}

enum { OF_HOST = -2 }; /* in the place of a function of the driver: host memory */

static void fail_at(int fn, cu_result result, uint64_t n) {
    if (fn == OF_HOST) {
        ashlar__host_fail_at((unsigned long)n);
    } else {
        ashlar__driver_fail_at(driver, n > 0 ? fn : -1, n, n > 0 ? result : CU_SUCCESS);
    }
}

/*
 * A trainer, and its test, with the n-th call failing, up to some that come later still: nothing is
 * left behind. A few failures are no trainer's: one of a cache, or of the last look at padding; and
 * what the software device takes from the host is memory of its own (ENOMEM).
 */
static void check_failures(int fn, cu_result result, uint64_t most, ashlar_status want,
                           size_t least) {
    size_t failures = 0;
    for (uint64_t n = 1; n < most; n += 1 + n / 24) {
        REQUIRE(open_tags("memory=64MiB", 50));
        const ashlar_train_config config = small_config(2);
        fail_at(fn, result, n);
        const ashlar_status status = train_once(&config);
        fail_at(fn, result, 0);
        CHECK(status == ASHLAR_OK || status == want || status == ASHLAR_ENOMEM);
        failures += status != ASHLAR_OK;
        close_tags();
    }
    CHECK(failures >= least);
}

CASE(whatever_call_fails_nothing_is_left_behind) {
    check_failures(OF_HOST, CU_SUCCESS, 400, ASHLAR_EHOSTMEM, 40);
    check_failures(ASHLAR_DRIVER_FN_launch_host_func, CU_UNKNOWN, 120, ASHLAR_EDRIVER, 40);
    check_failures(ASHLAR_DRIVER_FN_memcpy_htod_async, CU_UNKNOWN, 30, ASHLAR_EDRIVER, 7);
    check_failures(ASHLAR_DRIVER_FN_memcpy_dtoh_async, CU_UNKNOWN, 20, ASHLAR_EDRIVER, 7);
    check_failures(ASHLAR_DRIVER_FN_mem_host_alloc, CU_OUT_OF_MEMORY, 4, ASHLAR_ENOMEM, 2);
}

CASE_WITH(batches_that_cannot_be_counted_are_refused, open_tags("memory=64MiB", 5)) {
    ashlar_task *task = NULL;
    ashlar_train_config config = small_config(2);
    config.batch = (size_t)1 << 30;
    CHECK(ashlar__task_tagger_create(corpus, &config, &tags_config, &task) == ASHLAR_EOVERFLOW);
    CHECK(task == NULL);
}

RUN_CASES_AFTER(usual_tags(); check_each = usual_tags)
