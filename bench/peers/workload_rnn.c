/*
 * workload_rnn.c - the allocations of training steps of a 2-layer LSTM, as the benchmark's list.
 *
 * Nearly every size is proportional to the step's length, which is drawn anew for each step.
 */
#include "bench/peers/workload.h"

#include "allocator/base/random.h"

enum {
    LAYERS = 2,
    HIDDEN = 256,
    SMALL_HIDDEN = 128, /* of a step without a block above 1 MiB, and its length: */
    SMALL_LENGTH = 12,
    BATCH = 32,
    SYMBOLS = 128, /* classes of the output */
    GATES = 4,
    SEED = 20261121,
    OTHERS_BYTES = 1 << 30, /* a program's other blocks, which let a thread's cache hold a step's */
};

typedef struct shape {
    uint32_t length, hidden;
} shape;

/* Bytes of fp32 for `width` numbers per time and sequence. */
static uint32_t sequence_bytes(uint32_t length, uint32_t width) {
    return length * BATCH * width * (uint32_t)sizeof(float);
}

/* Blocks of a step that live from the forward to the backward pass. */
typedef struct kept {
    uint32_t input;           /* [T, B, H] */
    uint32_t targets;         /* [T, B], int32 */
    uint32_t reserve[LAYERS]; /* [T, B, 4H + H]: gates and cell states */
    uint32_t output[LAYERS];  /* [T, B, H] */
    uint32_t final[LAYERS];   /* [2, B, H]: last hidden and cell state */
} kept;

static void record_forward(ashlar_workload *w, shape s, kept *k) {
    k->targets = ashlar__workload_take(w, sequence_bytes(s.length, 1));
    k->input = ashlar__workload_take(w, sequence_bytes(s.length, s.hidden));
    for (int layer = 0; layer < LAYERS; layer++) {
        k->output[layer] = ashlar__workload_take(w, sequence_bytes(s.length, s.hidden));
        k->final[layer] = ashlar__workload_take(w, sequence_bytes(2, s.hidden));
        k->reserve[layer] =
            ashlar__workload_take(w, sequence_bytes(s.length, (GATES + 1) * s.hidden));
        const uint32_t workspace =
            ashlar__workload_take(w, sequence_bytes(s.length, GATES * s.hidden));
        ashlar__workload_give(w, workspace);
    }
}

/* The gradient of the last layer's output. */
static uint32_t record_loss(ashlar_workload *w, shape s) {
    const uint32_t logits = ashlar__workload_take(w, sequence_bytes(s.length, SYMBOLS));
    const uint32_t row_losses = ashlar__workload_take(w, sequence_bytes(s.length, 1));
    const uint32_t loss = ashlar__workload_take(w, sizeof(float));
    ashlar__workload_give(w, loss);
    ashlar__workload_give(w, row_losses);
    const uint32_t gradient = ashlar__workload_take(w, sequence_bytes(s.length, s.hidden));
    ashlar__workload_give(w, logits);
    return gradient;
}

static void record_backward(ashlar_workload *w, shape s, const kept *k, uint32_t gradient) {
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        const uint32_t below = ashlar__workload_take(w, sequence_bytes(s.length, s.hidden));
        const uint32_t gates = ashlar__workload_take(w, sequence_bytes(s.length, GATES * s.hidden));
        const uint32_t weights = /* [4H, 2H], of input and recurrence */
            ashlar__workload_take(w, GATES * s.hidden * 2 * s.hidden * (uint32_t)sizeof(float));
        ashlar__workload_give(w, k->reserve[layer]);
        ashlar__workload_give(w, k->output[layer]);
        ashlar__workload_give(w, k->final[layer]);
        ashlar__workload_give(w, gates);
        ashlar__workload_give(w, gradient);
        ashlar__workload_give(w, weights);
        gradient = below;
    }
    ashlar__workload_give(w, gradient);
    ashlar__workload_give(w, k->input);
    ashlar__workload_give(w, k->targets);
}

static void record_step(ashlar_workload *w, shape s) {
    kept k;
    record_forward(w, s, &k);
    record_backward(w, s, &k, record_loss(w, s));
}

void ashlar__workload_record_rnn(ashlar_workload *w, uint32_t is_warm) {
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    if (is_warm != 0) {
        ashlar__workload_begin_step(w);
        record_step(w, (shape){ASHLAR_WORKLOAD_RNN_LENGTH_MAX, HIDDEN});
    }
    ashlar__workload_begin_body(w);
    for (int i = 0; i < ASHLAR_WORKLOAD_RNN_STEPS; i++) {
        const uint64_t shorter = ashlar__random_below(&random, ASHLAR_WORKLOAD_RNN_LENGTH_MAX);
        ashlar__workload_begin_step(w);
        record_step(w, (shape){1 + (uint32_t)shorter, HIDDEN});
    }
}

static void record_turns(ashlar_workload *w, uint32_t turns) {
    ashlar__workload_begin_step(w);
    for (uint32_t i = 0; i < turns; i++) {
        record_step(w, (shape){SMALL_LENGTH, SMALL_HIDDEN});
    }
}

void ashlar__workload_record_rnn_step(ashlar_workload *w, uint32_t turns) {
    const uint32_t others = ashlar__workload_take(w, OTHERS_BYTES);
    record_turns(w, turns);
    ashlar__workload_begin_body(w);
    record_turns(w, turns);
    ashlar__workload_end_body(w);
    ashlar__workload_give(w, others);
}
