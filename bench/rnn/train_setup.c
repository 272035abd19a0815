/* train_setup.c - the cases of `ashlar-bench rnn --train`, and a training of each subject. */
#include "bench/rnn/train_setup.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/data/batcher.h"
#include "rnn/train/tasks.h"

enum { TRAIN_SEED = 1, NO_TARGET = -1, QUESTION_BYTES = 512 };
static const double learning_rate = 0.004, clip_norm = 1;

const ashlar_train_case *ashlar__train_cases(size_t *count) {
    static const ashlar_train_case cases[] = {
        {"lstm_T64_B32_E64_H256_L2", ASHLAR_RNN_LSTM, 64, 32, 64, 256, 2},
        {"lstm_T64_B32_E128_H512_L1", ASHLAR_RNN_LSTM, 64, 32, 128, 512, 1},
        {"gru_T64_B16_E64_H256_L2", ASHLAR_RNN_GRU, 64, 16, 64, 256, 2},
        {"lstm_T32_B16_E256_H1024_L1", ASHLAR_RNN_LSTM, 32, 16, 256, 1024, 1},
    };
    *count = sizeof cases / sizeof cases[0];
    return cases;
}

static ashlar_train_config config_of(const ashlar_train_setup *s) {
    const ashlar_train_case *const one = s->which;
    ashlar_train_config c = {
        .layers = one->layers,
        .hidden = one->hidden,
        .embedding = one->embedding,
        .cell = one->cell,
        .dtype = ASHLAR_F32,
        .batch = one->batch,
        .max_length = one->length,
        .accumulate = 1,
        .steps = s->steps,
        .seed = TRAIN_SEED,
    };
    ashlar_optimizer_defaults(ASHLAR_OPTIMIZER_ADAMW, &c.optimizer);
    c.optimizer.learning_rate = learning_rate;
    c.optimizer.clip_norm = clip_norm;
    c.schedule = (ashlar_schedule){.rate = learning_rate, .total_steps = s->steps};
    return c;
}

static ashlar_status open_trainer(const ashlar_train_setup *s, const ashlar_train_config *config,
                                  ashlar_trainer **out) {
    ashlar_task *task;
    ASHLAR_TRY(ashlar__task_text_create(s->corpus, config, &task));
    return ashlar__trainer_create(s->device, task, config, out);
}

/* ---- PyTorch ---- */

/* Send a tensor of the model as its name and size, and its numbers. */
static ashlar_status send_tensor(const ashlar_train_setup *s, ashlar_trainer *trainer, size_t i) {
    const ashlar_arena *arena = ashlar__trainer_task(trainer)->arena;
    const void *device = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i);
    ashlar_tensor_info info;
    char line[QUESTION_BYTES];
    float *values;
    ashlar_arena_tensor(arena, i, &info);
    ASHLAR_HOST_NEW(values, info.elements, "bench: no host memory for %zu numbers", info.elements);
    const int used = snprintf(line, sizeof line, "%s %zu\n", info.name, info.bytes);
    ASHLAR_CHECK2(used < QUESTION_BYTES && info.bytes == info.elements * sizeof *values);
    ashlar_status status = ashlar_copy_to_host(s->device, values, device, info.bytes, NULL);
    ASHLAR_THEN(status, ashlar_stream_synchronize(s->device, NULL));
    ASHLAR_THEN(status, ashlar__rnn_torch_send(s->torch, line, (size_t)used));
    ASHLAR_THEN(status, ashlar__rnn_torch_send(s->torch, values, info.bytes));
    ashlar__host_free(values);
    return status;
}

static ashlar_status send_tensors(const ashlar_train_setup *s, ashlar_trainer *trainer,
                                  bool tries) {
    const ashlar_train_case *const one = s->which;
    const ashlar_arena *arena = ashlar__trainer_task(trainer)->arena;
    const size_t count = ashlar_arena_tensor_count(arena);
    const ashlar_train_config config = config_of(s);
    char question[QUESTION_BYTES];
    const int used = snprintf(question, sizeof question,
                              "train %s %zu %zu %zu %d %zu %.17g %.17g %.17g %d %zu %zu\n",
                              ashlar_rnn_cell_name(one->cell), one->layers, one->embedding,
                              one->hidden, ASHLAR_BATCHER_SYMBOLS, one->batch, learning_rate,
                              config.optimizer.weight_decay, clip_norm, tries, count, s->steps);
    ASHLAR_CHECK2(used < QUESTION_BYTES);
    ASHLAR_TRY(ashlar__rnn_torch_send(s->torch, question, (size_t)used));
    for (size_t i = 0; i < count; i++) {
        ASHLAR_TRY(send_tensor(s, trainer, i));
    }
    return ASHLAR_OK;
}

static ashlar_status send_batch(const ashlar_train_setup *s, const ashlar_batch *batch) {
    const size_t cells = batch->steps * s->which->batch;
    char line[32];
    const int used = snprintf(line, sizeof line, "%zu\n", batch->steps);
    for (size_t i = 0; i < cells; i++) {
        if (i / s->which->batch >= (size_t)batch->lengths[i % s->which->batch]) {
            batch->targets[i] = NO_TARGET;
        }
    }
    ASHLAR_TRY(ashlar__rnn_torch_send(s->torch, line, (size_t)used));
    ASHLAR_TRY(ashlar__rnn_torch_send(s->torch, batch->inputs, cells * sizeof *batch->inputs));
    return ashlar__rnn_torch_send(s->torch, batch->targets, cells * sizeof *batch->targets);
}

/* Begin the question with the weights that the training loop begins with. */
static ashlar_status begin_question(const ashlar_train_setup *s, bool tries) {
    const ashlar_train_config config = config_of(s);
    ashlar_trainer *trainer = NULL;
    ASHLAR_TRY(open_trainer(s, &config, &trainer));
    const ashlar_status status = send_tensors(s, trainer, tries);
    ashlar__trainer_destroy(trainer);
    return status;
}

/* ---- batches ---- */

/* Draw the batches that the training loop draws, count their symbols, and send them to PyTorch. */
static ashlar_status draw_all(ashlar_train_setup *s, ashlar_batcher *batcher, ashlar_batch *batch) {
    for (size_t i = 0; i < s->steps; i++) {
        ashlar__batcher_next(batcher, batch);
        s->tokens[i] = batch->tokens;
        ASHLAR_TRY(s->torch != NULL ? send_batch(s, batch) : ASHLAR_OK);
    }
    return s->torch != NULL ? ashlar__rnn_torch_hear(s->torch, s->way) : ASHLAR_OK;
}

static ashlar_status draw_batches(ashlar_train_setup *s) {
    const ashlar_batcher_config config = {
        .batch = s->which->batch, .max_steps = s->which->length, .seed = TRAIN_SEED};
    ashlar_batcher *batcher = NULL;
    ASHLAR_TRY(ashlar__batcher_create(s->corpus, &config, &batcher));
    const size_t cells = ashlar__batcher_array_bytes(batcher) / sizeof(int32_t);
    int32_t *words = ashlar__host_calloc(2 * cells + config.batch, sizeof *words);
    ashlar_batch batch = {.inputs = words, .targets = words + cells, .lengths = words + 2 * cells};
    const ashlar_status status =
        words != NULL ? draw_all(s, batcher, &batch)
                      : ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for a batch");
    ashlar__host_free(words);
    ashlar__batcher_destroy(batcher);
    return status;
}

ashlar_status ashlar__train_setup_init(ashlar_train_setup *s, ashlar_device *device,
                                       const ashlar_corpus *corpus, ashlar_rnn_torch *torch,
                                       const ashlar_train_case *which, size_t steps, bool tries) {
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    *s = (ashlar_train_setup){.which = which,
                              .device = device,
                              .corpus = corpus,
                              .torch = info.kind == ASHLAR_DEVICE_CUDA ? NULL : torch,
                              .steps = steps};
    ASHLAR_HOST_NEW(s->tokens, steps, "bench: no host memory for %zu steps", steps);
    ASHLAR_TRY(s->torch != NULL ? begin_question(s, tries) : ASHLAR_OK);
    return draw_batches(s);
}

void ashlar__train_setup_finish(ashlar_train_setup *s) {
    ashlar__host_free(s->tokens);
    *s = (ashlar_train_setup){0};
}

/* ---- a training ---- */

typedef struct watch {
    ashlar_train_result *result;
    double seconds; /* 0: no limit */
    volatile sig_atomic_t stop;
} watch;

static void show(void *context, const ashlar_train_progress *progress) {
    watch *w = context;
    ashlar_train_result *r = w->result;
    r->losses[r->count] = progress->loss_step;
    r->ends[r->count] = progress->seconds;
    r->count++;
    w->stop = w->stop || (w->seconds > 0 && progress->seconds > w->seconds);
}

static ashlar_status run_ashlar(const ashlar_train_setup *s, size_t steps, double seconds,
                                ashlar_train_result *result) {
    watch w = {.result = result, .seconds = seconds};
    ashlar_train_config config = config_of(s);
    ashlar_trainer *trainer = NULL;
    ashlar_train_report report;
    config.steps = steps;
    config.stop = &w.stop;
    ASHLAR_TRY(open_trainer(s, &config, &trainer));
    const ashlar_status status = ashlar__trainer_run(trainer, show, &w, &report);
    ashlar__trainer_destroy(trainer);
    result->seconds = status == ASHLAR_OK ? report.seconds : 0;
    return status;
}

static ashlar_status run_torch(const ashlar_train_setup *s, size_t steps, double seconds,
                               ashlar_train_result *r) {
    char text[ASHLAR_TORCH_LINE_BYTES];
    size_t count = 0;
    (void)snprintf(text, sizeof text, "run %zu %.9g\n", steps, seconds);
    ASHLAR_TRY(ashlar__rnn_torch_ask(s->torch, text, text));
    ASHLAR_FAIL_IF(sscanf(text, "%lf %zu", &r->seconds, &count) != 2 || count < 1 || count > steps,
                   ASHLAR_EIO, "bench: PyTorch's process says '%s' of a training", text);
    for (; r->count < count; r->count++) {
        ASHLAR_TRY(ashlar__rnn_torch_hear(s->torch, text));
        ASHLAR_FAIL_IF(sscanf(text, "%lf %lf", &r->losses[r->count], &r->ends[r->count]) != 2,
                       ASHLAR_EIO, "bench: PyTorch's process says '%s' of a step", text);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__train_setup_run(ashlar_train_setup *s, bool is_by_torch, size_t steps,
                                      double seconds, ashlar_train_result *result) {
    ASHLAR_ASSERT(steps >= 1 && steps <= s->steps && (!is_by_torch || s->torch != NULL));
    result->count = 0;
    return is_by_torch ? run_torch(s, steps, seconds, result)
                       : run_ashlar(s, steps, seconds, result);
}
