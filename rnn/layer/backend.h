/* backend.h - the functions of a compute back end for an RNN (internal). rnn.c checks all arguments
 * before it calls a back end, so a back end need not check them. */
#ifndef ASHLAR_BACKEND_H
#define ASHLAR_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/rnn.h>

typedef enum ashlar_rnn_pass {
    ASHLAR_RNN_FORWARD,       /* writes what the other passes need into the reserve, if given */
    ASHLAR_RNN_BACKWARD_DATA, /* at most once per forward: it overwrites the reserve's gates */
    ASHLAR_RNN_BACKWARD_WEIGHTS,
    ASHLAR_RNN_PASS_COUNT
} ashlar_rnn_pass;

/* What differs from one training step to the next. It is in device memory and read when the pass
 * runs, so a pass that was captured in a graph can be launched again with other values. */
typedef struct ashlar_rnn_varying {
    const int32_t *lengths; /* [B], each 1..T */
    const uint64_t *seed;   /* added to the batch's dropout_seed */
} ashlar_rnn_varying;

typedef struct ashlar_rnn_backend {
    const char *name;
    /* Whether the back end can run a layout; NULL: it runs every layout that rnn.c accepts. Errors:
     * ASHLAR_ENOTSUP, with a detail that says what it cannot do; ASHLAR_EINVAL, for a bad value in
     * the environment. */
    ashlar_status (*check)(const ashlar_rnn_layout *layout);
    /* Create and destroy rnn->state, which is NULL before. Both are NULL if there is no state. */
    ashlar_status (*create)(ashlar_rnn *rnn);
    void (*destroy)(ashlar_rnn *rnn);
    ashlar_status (*sizes)(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                           size_t *reserve_bytes, size_t *work_bytes);
    /* Queue one pass on `stream`; batch->lengths is copied before the function returns. lengths
     * NULL: every sequence has batch->steps steps. */
    ashlar_status (*queue)(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                           const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                           ashlar_stream stream);
    /* prepared_bytes: the bytes of prepared weights; prepare: queue the work that fills them. Both
     * NULL: the back end reads weights as they are. */
    size_t (*prepared_bytes)(const ashlar_rnn *rnn);
    ashlar_status (*prepare)(const ashlar_rnn *rnn, const void *weights, void *prepared,
                             ashlar_stream stream);
    /* Like queue, but batch->lengths is not read: the pass reads the lengths, and a number that it
     * adds to dropout_seed, from device memory. NULL: the back end cannot do that. */
    ashlar_status (*queue_varying)(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                   const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                                   const ashlar_rnn_varying *varying, ashlar_stream stream);
    /* Queue a restart of dropout's random sequence from `seed`. NULL: there is no such sequence;
     * each pass draws from a seed of its own. */
    ashlar_status (*restart_dropout)(const ashlar_rnn *rnn, uint64_t seed, ashlar_stream stream);
    /* true: backward reads forward's y, hx and cx again; false: it reads only the reserve */
    bool backward_reads_output;
    size_t most_steps; /* of a pass; 0: any number */
} ashlar_rnn_backend;

/* All fields but the last stay as ashlar_rnn_create() has set them, but not what `state` points to.
 */
struct ashlar_rnn {
    ashlar_device *device; /* NULL: none, of the CPU's back end alone */
    const ashlar_rnn_backend *backend;
    ashlar_rnn_layout layout;
    void *state;       /* the back end's; NULL: it has none */
    /* On the CPU, of an fp32 stack: prepared matrices are bf16, which only inference step by step
     * reads (rnn_cpu.h); other passes read the weights themselves. */
    bool prepares_bf16;
};

/* The CPU: passes are host functions in stream order, on a software device's memory. */
extern const ashlar_rnn_backend ashlar__rnn_backend_cpu;

/* CUDA devices: cuDNN 9, found at run time. Built without cuDNN's headers, it refuses every rnn. */
extern const ashlar_rnn_backend ashlar__rnn_backend_cudnn;

/* Like the call of rnn.h for that pass, for a caller that has checked lengths and buffers: none is
 * looked at on the host. batch->lengths NULL: every sequence has batch->steps steps.
 *
 * varying   NULL, or where the lengths and the seed are that are read instead. A back end that can
 *           take lengths only from the host, and so has no queue_varying, runs all sequences for
 * all steps and draws its own dropout seeds: the states hy and cy are those after a sequence's
 *           padding then, and the reverse direction begins with the padding */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_queue(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                                  const ashlar_rnn_batch *batch,
                                                  const ashlar_rnn_buffers *buffers,
                                                  const ashlar_rnn_varying *varying,
                                                  ashlar_stream stream);

/* Call the back end's restart_dropout(), if it has one. `stream` must not be capturing. Replays of
 * a step that was captured before continue the new random sequence. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_restart_dropout(const ashlar_rnn *rnn, uint64_t seed,
                                                            ashlar_stream stream);

/* Whether cuDNN's persistent algorithms accept the stack, whatever its element type. */
static inline bool ashlar__rnn_may_persist(const ashlar_rnn_config *c) {
    return c->bias == ASHLAR_RNN_BIAS_DOUBLE && c->projection == 0;
}

/* Whether every sequence of a batch is as long as the batch. */
static inline bool ashlar__rnn_is_full(const ashlar_rnn_batch *batch) {
    for (size_t b = 0; batch->lengths != NULL && b < batch->batch; b++) {
        if ((size_t)batch->lengths[b] != batch->steps) {
            return false;
        }
    }
    return true;
}

/* Whether every sequence is as long as the batch, or may be computed as if it were. */
static inline bool ashlar__rnn_may_be_full(const ashlar_rnn_config *c,
                                           const ashlar_rnn_batch *batch) {
    return (batch->padding_is_free && c->directions == 1 && c->cell != ASHLAR_RNN_RELU) ||
           ashlar__rnn_is_full(batch);
}

/* Check cuDNN's limits on persistent algorithms. Every back end keeps to them, so that a
 * configuration that runs on the CPU runs on a GPU, too. Errors: ASHLAR_ENOTSUP. */
ashlar_status ashlar__rnn_check_algorithm(const ashlar_rnn_config *config);

#endif /* ASHLAR_BACKEND_H */
