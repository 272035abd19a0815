/*
 * task_tagger_fixture.h - tagged sentences, made here, and a small training on them, for tests.
 *
 * A case begins with open_tags(spec, held_out); close_tags() runs at its end and checks that the
 * device has its memory back.
 */
#ifndef ASHLAR_TASK_TAGGER_FIXTURE_H
#define ASHLAR_TASK_TAGGER_FIXTURE_H

#include "tests/rnn/train/trainer_fixture.h"

#include <unistd.h>

#include "allocator/base/random.h"

enum { SENTENCES = 300, WORDS_MAX = 9, BATCH = 4 };

static ashlar_tagger_corpus *corpus;
static char folder[64];

/* A test of another kind of tagger changes it, and calls usual_tags() at its end. */
static ashlar_task_tagger_config tags_config;

static inline void usual_tags(void) {
    tags_config = (ashlar_task_tagger_config){.character_embedding = 6, .character_hidden = 8};
}

static inline ashlar_train_config small_config(size_t steps) {
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
static inline void write_sentences(FILE *file) {
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

static inline void close_tags(void) {
    ashlar__tagger_corpus_destroy(corpus);
    (void)rmdir(folder);
    tear_down_device();
    usual_tags();
}

static inline bool open_tags(const char *spec, size_t held_out) {
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

static inline ashlar_status open_trainer(const ashlar_train_config *config) {
    ashlar_task *task = NULL;
    close_trainer();
    const ashlar_status status = ashlar__task_tagger_create(corpus, config, &tags_config, &task);
    return status == ASHLAR_OK ? open_trainer_of(task, config) : status;
}

/* One training, from nothing to its report and its test. */
static inline ashlar_status train(const ashlar_train_config *config, const char *save_as,
                                  shown *to, ashlar_train_report *out,
                                  ashlar_tagger_evaluation *evaluation) {
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

static inline ashlar_status train_once(const ashlar_train_config *config) {
    return train(config, NULL, &seen, &report, &test);
}

#endif /* ASHLAR_TASK_TAGGER_FIXTURE_H */
