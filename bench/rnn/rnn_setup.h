/* rnn_setup.h - one case of `ashlar-bench rnn`, and a step of each subject (internal).
 *
 * A step's own buffers are its output, reserve, work and the gradient of its input. Subjects differ
 * in where these buffers come from. `ashlar` takes them from an allocator in each step,
 * `driver_each_step` from the driver's plain allocation; `static_buffer` uses one range taken once,
 * which is the least possible cost. `torch` is a network of this kind in PyTorch's process. */
#ifndef ASHLAR_RNN_SETUP_H
#define ASHLAR_RNN_SETUP_H

#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/rnn.h>
#include <ashlar/rnn_layout.h>

#include "bench/rnn/rnn_torch.h"

typedef struct ashlar_rnn_case {
    const char *name; /* made of cell, T, B, I (unless I = H), H, L */
    size_t steps, batch;
    ashlar_rnn_config config;
    bool is_varied;    /* lengths vary from T/4 to T; false: all are T */
    bool is_inference; /* forward only, without a reserve */
    bool is_prepared;  /* the weights are in an order of their own beforehand */
} ashlar_rnn_case;

/* All cases, in the order of the report. */
const ashlar_rnn_case *ashlar__rnn_cases(size_t *count);

/* A case's lengths, [batch]: the same on every machine; one sequence has all T steps. */
void ashlar__rnn_case_lengths(const ashlar_rnn_case *which, int32_t *lengths);

/* What a step of a case has to do at least. */
typedef struct ashlar_rnn_work {
    double flops;       /* multiplications and additions of its matrix products */
    double read_bytes;  /* of weights: recurrent ones in each time step, the others once, in each
                         * pass over the time steps; the gradients of weights read none */
    size_t state_bytes; /* of the recurrent matrix of one layer and direction */
} ashlar_rnn_work;

ashlar_rnn_work ashlar__rnn_case_work(const ashlar_rnn_case *which);

/* Columns: value, text. */
#define ASHLAR_RNN_SUBJECT_MAP(X)           \
    X(ASHLAR, "ashlar")                     \
    X(TORCH, "torch")                       \
    X(DRIVER_EACH_STEP, "driver_each_step") \
    X(STATIC_BUFFER, "static_buffer")

#define ASHLAR_RNN_SUBJECT_ENUM(name, text) ASHLAR_RNN_SUBJECT_##name,
typedef enum ashlar_rnn_subject {
    ASHLAR_RNN_SUBJECT_MAP(ASHLAR_RNN_SUBJECT_ENUM) ASHLAR_RNN_SUBJECT_COUNT
} ashlar_rnn_subject;

const char *ashlar__rnn_subject_name(ashlar_rnn_subject subject);

/* A step's buffers, in the order in which they are taken. */
enum { ASHLAR_RNN_OUTPUT, ASHLAR_RNN_RESERVE, ASHLAR_RNN_WORK, ASHLAR_RNN_DX, ASHLAR_RNN_TAKEN };

/* Zeroes are an empty setup. */
typedef struct ashlar_rnn_setup {
    const ashlar_rnn_case *which;
    ashlar_device *device;
    bool is_cuda; /* PyTorch and the machine's limits, which are of the host, are left out */
    ashlar_allocator *allocator;
    ashlar_stream stream;
    ashlar_rnn *rnn;
    ashlar_rnn_torch *torch; /* the caller's; NULL: no PyTorch, or it has no such network */
    int32_t *lengths;        /* [B] */
    size_t bytes[ASHLAR_RNN_TAKEN];
    void *x, *dy;             /* [T, B, I] and [T, B, D*H]; the same for all subjects and steps */
    void *weights, *dweights; /* of the whole stack */
    void *prepared;           /* of ashlar_rnn_prepare(); NULL: nothing to prepare */
    void *range;              /* of static_buffer */
} ashlar_rnn_setup;

typedef struct ashlar_rnn_times {
    double forward_s, backward_s; /* together one step, with its buffers and the zeroing of
                                   * gradients */
} ashlar_rnn_times;

/* Set up a case on `device`; PyTorch (`torch`; NULL: none) takes part only on a software
 * device. Call ashlar__rnn_setup_finish() even after a failure. Errors: those of the
 * allocator, the RNN and PyTorch's process. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_setup_init(ashlar_rnn_setup *setup,
                                                       ashlar_device *device,
                                                       ashlar_rnn_torch *torch,
                                                       const ashlar_rnn_case *which);
void ashlar__rnn_setup_finish(ashlar_rnn_setup *setup);

/* Whether the subject takes part in this case. */
bool ashlar__rnn_setup_has(const ashlar_rnn_setup *setup, ashlar_rnn_subject subject);

/* Run one step to its end. Errors: those of the subject; nothing stays allocated. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_setup_run(ashlar_rnn_setup *setup,
                                                      ashlar_rnn_subject subject,
                                                      ashlar_rnn_times *times);

#endif /* ASHLAR_RNN_SETUP_H */
