/*
 * train_fixture.h - a text, made here, and a small training on it, for tests.
 *
 * A case begins with open_text(spec); close_text() runs at its end and checks that the device has
 * its memory back.
 */
#ifndef ASHLAR_TRAIN_FIXTURE_H
#define ASHLAR_TRAIN_FIXTURE_H

#include "tests/rnn/train/trainer_fixture.h"

#include <unistd.h>

#include "rnn/engine/engine.h"
#include "rnn/layer/backend.h"
#include "rnn/model/text_model.h"

enum { RECORDS = 60, MAX_LENGTH = 32, BATCH = 4 };

static ashlar_corpus *corpus;
static char folder[64];

static inline ashlar_train_config small_config(size_t steps) {
    ashlar_train_config config = {.layers = 2,
                                  .hidden = 16,
                                  .embedding = 8,
                                  .batch = BATCH,
                                  .max_length = MAX_LENGTH,
                                  .steps = steps,
                                  .seed = 5};
    config.optimizer = (ashlar_optimizer_config){
        .kind = ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.01, .clip_norm = 1};
    CHECK(ashlar_optimizer_complete(&config.optimizer) == ASHLAR_OK);
    config.schedule.rate = config.optimizer.learning_rate;
    return config;
}

/* The model of such a training. */
static inline ashlar_text_model_config model_config_of(const ashlar_train_config *c) {
    return (ashlar_text_model_config){.classes = 256,
                                      .embedding = c->embedding,
                                      .hidden = c->hidden,
                                      .layers = c->layers,
                                      .cell = c->cell,
                                      .projection = c->projection,
                                      .dropout = c->dropout};
}

/* Records of different lengths, some of them longer than MAX_LENGTH. */
static inline void write_text(const char *path) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int i = 0; file != NULL && i < RECORDS; i++) {
        for (int j = 0; j <= i % 7; j++) {
            fprintf(file, "stone %d; ", (i * 31 + j) % 97);
        }
        fputs("end\n%\n", file);
    }
    CHECK(file != NULL && fclose(file) == 0);
}

static inline void close_text(void) {
    ashlar__corpus_destroy(corpus);
    corpus = NULL;
    (void)rmdir(folder);
    tear_down_device();
}

/* In the place of the text that is open, if one is. */
static inline bool open_text(const char *spec) {
    char path[96];
    if (corpus != NULL) {
        close_trainer();
        close_text();
    }
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-train-XXXXXX");
    if (!set_up_device(spec) || mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/text", folder);
    write_text(path);
    const ashlar_status status = ashlar__corpus_open(&(const char *){path}, 1, &corpus);
    (void)unlink(path);
    return status == ASHLAR_OK && check_at_end(close_text);
}

/* In the place of the trainer before; NULL where it fails. */
static inline ashlar_status open_trainer(const ashlar_train_config *config) {
    close_trainer();
    const ashlar_status status = ashlar__trainer_create(device, corpus, config, &trainer);
    CHECK((status == ASHLAR_OK) == (trainer != NULL));
    (void)check_at_end(close_trainer);
    return status;
}

/* The recurrent layers of a trainer's model: what their operation begins with. */
static inline ashlar_rnn *rnn_of(const ashlar_trainer *of) {
    ashlar_node *const *node = ashlar__trainer_model(of).model->nodes;
    while (strcmp((*node)->operation.name, "rnn") != 0) {
        node++;
    }
    return *(ashlar_rnn **)(*node)->operation.user;
}

/* In the place of a back end's: the gradients of weights are no numbers. */
static inline ashlar_status spoil(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                  const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                                  ashlar_stream stream) {
    ASHLAR_TRY(ashlar__rnn_backend_cpu.queue(rnn, pass, batch, buffers, stream));
    return pass != ASHLAR_RNN_BACKWARD_WEIGHTS
               ? ASHLAR_OK
               : ashlar_fill(device, buffers->dweights, 0xFF, sizeof(float), stream); /* a NaN */
}

/* One training, from nothing to its report. */
static inline ashlar_status train(const ashlar_train_config *config, shown *to,
                                  ashlar_train_report *out) {
    *to = (shown){0};
    ashlar_status status = open_trainer(config);
    if (status == ASHLAR_OK) {
        status = ashlar__trainer_run(trainer, show, to, out);
    }
    close_trainer();
    return status;
}

static inline ashlar_status train_once(const ashlar_train_config *config) {
    return train(config, &seen, &report);
}

#endif /* ASHLAR_TRAIN_FIXTURE_H */
