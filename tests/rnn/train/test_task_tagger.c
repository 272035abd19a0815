/*
 * test_task_tagger.c - the tagger in the training loop: what it learns, how it goes on with a file,
 * and what a failure leaves.
 */
#include "tests/rnn/train/trainer_fixture.h"

#include <unistd.h>

#include "allocator/base/random.h"

enum { SENTENCES = 300, WORDS_MAX = 9, BATCH = 4 };

static ashlar_tagger_corpus *corpus;
static char folder[64];

/* A test of another kind of tagger changes it, and calls usual_tags() at its end. */
static ashlar_task_tagger_config tags_config;

static void usual_tags(void) {
    tags_config = (ashlar_task_tagger_config){.character_embedding = 6, .character_hidden = 8};
}

static ashlar_train_config small_config(size_t steps) {
    ashlar_train_config config = {
        .layers = 1, .hidden = 12, .embedding = 5, .batch = BATCH, .steps = steps, .seed = 5};
    ashlar_optimizer_defaults(ASHLAR_OPTIMIZER_ADAMW, &config.optimizer);
    config.optimizer.learning_rate = 0.02;
    config.optimizer.clip_norm = 1;
    config.schedule.rate = config.optimizer.learning_rate;
    if (tags_config.label_embedding > 0) {
        config.buckets = WORDS_MAX;
    }
    return config;
}

/*
 * Words of two random letters and an ending, -o or -a. The tag is the ending and, of all but a
 * sentence's last word, that of the next one.
 */
static void write_sentences(FILE *file) {
    ashlar_random random;
    ashlar__random_init(&random, 3);
    for (int i = 0; i < SENTENCES; i++) {
        const size_t count = 1 + (size_t)ashlar__random_below(&random, WORDS_MAX);
        char ending = "oa"[ashlar__random_below(&random, 2)];
        for (size_t t = 0; t < count; t++) {
            const char next = t + 1 < count ? "oa"[ashlar__random_below(&random, 2)] : '-';
            fprintf(file, "%c%c%c\t%c%c\n", (int)('b' + ashlar__random_below(&random, 12)),
                    (int)('b' + ashlar__random_below(&random, 12)), ending, ending, next);
            ending = next;
        }
        fputc('\n', file);
    }
}

static void close_tags(void) {
    ashlar__tagger_corpus_destroy(corpus);
    (void)rmdir(folder);
    tear_down_device();
    usual_tags();
}

static bool open_tags(const char *spec, size_t held_out) {
    const ashlar_tagger_corpus_config config = {
        .max_words = WORDS_MAX, .max_bytes = 8, .min_count = 2, .held_out = held_out};
    char path[96];
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-tags-XXXXXX");
    if (!set_up_device(spec) || mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/tags", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return false;
    }
    write_sentences(file);
    CHECK(fclose(file) == 0);
    const ashlar_status status =
        ashlar__tagger_corpus_open(&(const char *){path}, 1, &config, &corpus);
    (void)unlink(path);
    return status == ASHLAR_OK && check_at_end(close_tags);
}

static ashlar_status open_trainer(const ashlar_train_config *config) {
    ashlar_task *task = NULL;
    close_trainer();
    const ashlar_status status = ashlar__task_tagger_create(corpus, config, &tags_config, &task);
    return status == ASHLAR_OK ? open_trainer_of(task, config) : status;
}

/* One training, from nothing to its report and its test. */
static ashlar_status train(const ashlar_train_config *config, const char *save_as, shown *to,
                           ashlar_train_report *out, ashlar_tagger_evaluation *evaluation) {
    *to = (shown){0};
    ashlar_status status = open_trainer(config);
    if (status == ASHLAR_OK) {
        status = ashlar__trainer_run(trainer, show, to, out);
    }
    if (status == ASHLAR_OK && save_as != NULL) {
        status = ashlar__trainer_save(trainer, save_as);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__task_tagger_evaluate(trainer, evaluation);
    }
    close_trainer();
    return status;
}

static ashlar_tagger_evaluation test; /* of the last train_once() */

static ashlar_status train_once(const ashlar_train_config *config) {
    return train(config, NULL, &seen, &report, &test);
}

/* ---- what it learns ---- */

static double share_right(const ashlar_train_config *config) {
    test = (ashlar_tagger_evaluation){0};
    CHECK(train_once(config) == ASHLAR_OK);
    CHECK_ZU(report.training.management, 0); /* after the warm-up */
    CHECK_ZU(report.step_memory.misses, 0);
    return (double)test.right / (double)test.words;
}

/* A tag is of the word's last letter and the next one's; most words of the test are unknown. */
CASE_WITH(it_learns_from_letters_and_neighbours, open_tags("memory=256MiB", 5)) {
    const ashlar_train_config config = small_config(160);
    CHECK(share_right(&config) > 0.97);
    tags_config.is_unidirectional = true; /* what comes next is a guess then */
    const double one_way = share_right(&config);
    CHECK(one_way > 0.3 && one_way < 0.6);
    tags_config.label_embedding = 3; /* four blocks for every token */
    const ashlar_train_config fed = small_config(40);
    CHECK(share_right(&fed) > 0.3);
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
