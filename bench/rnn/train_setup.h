/* train_setup.h - one case of `ashlar-bench rnn --train`: a text, a model, the same batches and
 * initial weights for each subject, and its training (internal).
 *
 * `ashlar` is the training loop of ashlar-train on the text model: embedding, recurrent layers,
 * output layer, loss, backward, clipping and AdamW, with the defaults of that program. `torch` is
 * the same model in PyTorch's process, which has all batches in memory before its clock starts.
 * Each training begins anew, and set-up, warm-up included, is not in its time. */
#ifndef ASHLAR_BENCH_TRAIN_SETUP_H
#define ASHLAR_BENCH_TRAIN_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>

#include "bench/rnn/rnn_torch.h"
#include "rnn/data/corpus.h"
#include "rnn/train/train.h"

typedef struct ashlar_train_case {
    const char *name; /* made of cell, T, B, E, H, L */
    ashlar_rnn_cell cell;
    size_t length, batch; /* T, of the longest sequence, and B */
    size_t embedding, hidden, layers;
} ashlar_train_case;

/* All cases, in the order of the report. */
const ashlar_train_case *ashlar__train_cases(size_t *count);

/* A training's outcome. */
typedef struct ashlar_train_result {
    size_t count;   /* steps done */
    double seconds; /* that they took */
    double *losses; /* [steps asked for] of each, nats per symbol */
    double *ends;   /* [steps asked for] the second in which each ended */
} ashlar_train_result;

enum { ASHLAR_TRAIN_WAY_BYTES = ASHLAR_TORCH_LINE_BYTES };

/* Zeroes are an empty setup. */
typedef struct ashlar_train_setup {
    const ashlar_train_case *which;
    ashlar_device *device;
    const ashlar_corpus *corpus;
    ashlar_rnn_torch *torch;          /* the caller's; NULL: PyTorch takes no part */
    char way[ASHLAR_TRAIN_WAY_BYTES]; /* PyTorch's fastest */
    size_t steps;                     /* the most of a training: so many batches were drawn */
    size_t *tokens;                   /* [steps] symbols of each batch */
} ashlar_train_setup;

/* Draw the batches, and hand them, with the initial weights, to PyTorch. Call
 * ashlar__train_setup_finish() even after a failure.
 *
 * torch   NULL: none; not asked on a CUDA device
 * tries   whether PyTorch tries its ways; false: it takes the first
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EIO, and those of ashlar__trainer_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_setup_init(
    ashlar_train_setup *setup, ashlar_device *device, const ashlar_corpus *corpus,
    ashlar_rnn_torch *torch, const ashlar_train_case *which, size_t steps, bool tries);
void ashlar__train_setup_finish(ashlar_train_setup *setup);

/* Train from the beginning for `steps` steps, at most setup->steps, or until `seconds` have passed
 * (0: no such end): at least one step is run, and the last ones may end later.
 *
 * result   its arrays are the caller's
 *
 * Errors: those of the trainer; ASHLAR_EIO (PyTorch's process). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_setup_run(ashlar_train_setup *setup, bool is_by_torch,
                                                        size_t steps, double seconds,
                                                        ashlar_train_result *result);

#endif /* ASHLAR_BENCH_TRAIN_SETUP_H */
