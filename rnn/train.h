/*
 * train.h - the training loop, from a corpus to a trained model and a report (internal).
 */
#ifndef ASHLAR_TRAIN_H
#define ASHLAR_TRAIN_H

#include <ashlar/optimizer.h>

#include "batcher.h"
#include "model.h"

typedef struct ashlar_train_config {
    size_t layers, hidden, embedding;
    size_t batch;      /* sequences per step */
    size_t max_length; /* longest sequence in steps; longer ones are cut into pieces */
    size_t steps;
    ashlar_adamw adamw;
    uint64_t seed;
} ashlar_train_config;

/* What one step was, for whoever shows progress. */
typedef struct ashlar_train_progress {
    size_t step, steps; /* this one, from 1; of so many */
    double loss;        /* mean of the recent steps, nats per symbol */
    double epoch;
    size_t length;      /* T of this step */
    double tokens_per_s;
    double seconds;     /* since the first step */
} ashlar_train_progress;

/* What the process asked of the driver in one phase; choosing a context is not counted. */
typedef struct ashlar_phase_calls {
    uint64_t management; /* memory, streams, events, facts: what a warm-up is to end */
    uint64_t work;       /* copies, fills, launches */
    uint64_t wait;       /* the host waited for the device */
} ashlar_phase_calls;

typedef struct ashlar_train_report {
    ashlar_device_info device;
    size_t steps;
    size_t parameters;       /* elements, without padding */
    size_t max_length;       /* steps of the longest sequence there is: what was warmed up */
    size_t lengths_distinct; /* different T among the steps */
    size_t sequences;        /* pieces that one epoch has */
    uint64_t tokens;         /* trained on, padding left out */
    double epochs;
    double loss_first;       /* of the first step */
    double loss_last;        /* mean of the last ASHLAR_TRAIN_RECENT steps, weighted by tokens */
    double seconds;
    double tokens_per_s;
    ashlar_phase_calls setup, warmup, training;
    ashlar_stats stats;      /* at the end of training */
    bool weights_contiguous; /* ashlar_arena_check() */
} ashlar_train_report;

enum { ASHLAR_TRAIN_RECENT = 10 };

typedef struct ashlar_trainer ashlar_trainer;

/*
 * Set everything up: model, weights, page-locked staging; no step yet.
 *
 * Ownership: *out is the caller's; device and corpus must outlive it.
 * Errors:    ASHLAR_EINVAL (config), and those of the parts.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_trainer_create(ashlar_device *device,
                                                      const ashlar_corpus *corpus,
                                                      const ashlar_train_config *config,
                                                      ashlar_trainer **out);
void ashlar_trainer_destroy(ashlar_trainer *trainer); /* NULL is allowed */

/*
 * Warm up, seal, and train. Once per trainer.
 *
 * show   called after every step with `context`; NULL: not wanted
 *
 * Errors: those of the parts; ASHLAR_EFORMAT where the loss stops being a number.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_trainer_run(ashlar_trainer *trainer,
                                                   void (*show)(void *context,
                                                                const ashlar_train_progress *),
                                                   void *context, ashlar_train_report *report);

ashlar_model *ashlar_trainer_model(ashlar_trainer *trainer);

#endif /* ASHLAR_TRAIN_H */
