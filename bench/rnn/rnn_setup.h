/*
 * rnn_setup.h - one case of `ashlar-bench rnn`, and a step of each subject (internal).
 *
 * A step's own buffers are its output, reserve, work and the gradient of its input. Subjects differ
 * in where these come from: `ashlar` from an allocator and `driver_each_step` from the driver's
 * plain allocation, taken and given back in each step; `static_buffer` from one range taken once,
 * the least that any memory management can cost. `onednn` brings its own network.
 */
#ifndef ASHLAR_RNN_SETUP_H
#define ASHLAR_RNN_SETUP_H

#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/rnn.h>
#include <ashlar/rnn_layout.h>

#include "bench/rnn/rnn_onednn.h"

typedef struct ashlar_rnn_case {
    const char *name; /* cell, T, B, I where it is not H, H, L */
    size_t steps, batch;
    ashlar_rnn_config config;
    bool is_varied;    /* lengths from T/4 to T, else all are T */
    bool is_inference; /* forward only, without a reserve */
} ashlar_rnn_case;

/* All of them, in the order of the report. */
const ashlar_rnn_case *ashlar__rnn_cases(size_t *count);

/* A case's lengths, [batch]: the same on every machine; one sequence has all T steps. */
void ashlar__rnn_case_lengths(const ashlar_rnn_case *which, int32_t *lengths);

/* Value, text. */
#define ASHLAR_RNN_SUBJECT_MAP(X)           \
    X(ASHLAR, "ashlar")                     \
    X(ONEDNN, "onednn")                     \
    X(DRIVER_EACH_STEP, "driver_each_step") \
    X(STATIC_BUFFER, "static_buffer")

#define ASHLAR_RNN_SUBJECT_ENUM(name, text) ASHLAR_RNN_SUBJECT_##name,
typedef enum ashlar_rnn_subject {
    ASHLAR_RNN_SUBJECT_MAP(ASHLAR_RNN_SUBJECT_ENUM) ASHLAR_RNN_SUBJECT_COUNT
} ashlar_rnn_subject;

const char *ashlar__rnn_subject_name(ashlar_rnn_subject subject);

/* A step's buffers, in the order in which they are taken. */
enum { ASHLAR_RNN_OUTPUT, ASHLAR_RNN_RESERVE, ASHLAR_RNN_WORK, ASHLAR_RNN_DX, ASHLAR_RNN_TAKEN };

/* Starts as zeros. */
typedef struct ashlar_rnn_setup {
    const ashlar_rnn_case *which;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_rnn *rnn;
    ashlar_onednn *onednn; /* NULL: it has no such network */
    int32_t *lengths;      /* [B] */
    size_t bytes[ASHLAR_RNN_TAKEN];
    void *x, *dy;             /* [T, B, I], [T, B, D*H] the same for all subjects and steps */
    void *weights, *dweights; /* the stack */
    void *range;              /* of static_buffer */
} ashlar_rnn_setup;

typedef struct ashlar_rnn_times {
    double forward_s, backward_s; /* together the step, its buffers and zeroed gradients included */
} ashlar_rnn_times;

/*
 * Set up a case on `device`, which must be a software device. Finish it also after a failure.
 *
 * Errors: ASHLAR_ENOTSUP (a CUDA device), those of the allocator, the RNN and oneDNN.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_setup_init(ashlar_rnn_setup *setup,
                                                       ashlar_device *device,
                                                       const ashlar_rnn_case *which);
void ashlar__rnn_setup_finish(ashlar_rnn_setup *setup);

/* Whether the subject takes part. */
bool ashlar__rnn_setup_has(const ashlar_rnn_setup *setup, ashlar_rnn_subject subject);

/* One step, to its end. Errors: those of the subject; nothing stays taken. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_setup_run(ashlar_rnn_setup *setup,
                                                      ashlar_rnn_subject subject,
                                                      ashlar_rnn_times *times);

#endif /* ASHLAR_RNN_SETUP_H */
