/*
 * workload_rnn.c - the allocations of training steps of a 2-layer LSTM, as the benchmark's list.
 *
 * Nearly every size is proportional to the step's length, which is drawn anew for each step.
 */
#include "workload.h"

#include "random.h"

enum {
    LAYERS = 2,
    HIDDEN = 256,
    BATCH = 32,
    SYMBOLS = 128, /* classes of the output */
    GATES = 4,
    SEED = 20261121,
};

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

static void record_forward(ashlar_workload *w, uint32_t length, kept *k) {
    k->targets = ashlar_workload_take(w, sequence_bytes(length, 1));
    k->input = ashlar_workload_take(w, sequence_bytes(length, HIDDEN));
    for (int layer = 0; layer < LAYERS; layer++) {
        k->output[layer] = ashlar_workload_take(w, sequence_bytes(length, HIDDEN));
        k->final[layer] = ashlar_workload_take(w, sequence_bytes(2, HIDDEN));
        k->reserve[layer] = ashlar_workload_take(w, sequence_bytes(length, (GATES + 1) * HIDDEN));
        const uint32_t workspace = ashlar_workload_take(w, sequence_bytes(length, GATES * HIDDEN));
        ashlar_workload_give(w, workspace);
    }
}

/* The gradient of the last layer's output. */
static uint32_t record_loss(ashlar_workload *w, uint32_t length) {
    const uint32_t logits = ashlar_workload_take(w, sequence_bytes(length, SYMBOLS));
    const uint32_t row_losses = ashlar_workload_take(w, sequence_bytes(length, 1));
    const uint32_t loss = ashlar_workload_take(w, sizeof(float));
    ashlar_workload_give(w, loss);
    ashlar_workload_give(w, row_losses);
    const uint32_t gradient = ashlar_workload_take(w, sequence_bytes(length, HIDDEN));
    ashlar_workload_give(w, logits);
    return gradient;
}

static void record_backward(ashlar_workload *w, uint32_t length, const kept *k, uint32_t gradient) {
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        const uint32_t below = ashlar_workload_take(w, sequence_bytes(length, HIDDEN));
        const uint32_t gates = ashlar_workload_take(w, sequence_bytes(length, GATES * HIDDEN));
        const uint32_t weights = /* [4H, 2H], of input and recurrence */
            ashlar_workload_take(w, GATES * HIDDEN * 2 * HIDDEN * (uint32_t)sizeof(float));
        ashlar_workload_give(w, k->reserve[layer]);
        ashlar_workload_give(w, k->output[layer]);
        ashlar_workload_give(w, k->final[layer]);
        ashlar_workload_give(w, gates);
        ashlar_workload_give(w, gradient);
        ashlar_workload_give(w, weights);
        gradient = below;
    }
    ashlar_workload_give(w, gradient);
    ashlar_workload_give(w, k->input);
    ashlar_workload_give(w, k->targets);
}

static void record_step(ashlar_workload *w, uint32_t length) {
    kept k;
    record_forward(w, length, &k);
    record_backward(w, length, &k, record_loss(w, length));
}

void ashlar_workload_record_rnn(ashlar_workload *w, uint32_t is_warm) {
    ashlar_random random;
    ashlar_random_init(&random, SEED);
    if (is_warm != 0) {
        record_step(w, ASHLAR_WORKLOAD_RNN_LENGTH_MAX);
    }
    ashlar_workload_begin_body(w);
    for (int i = 0; i < ASHLAR_WORKLOAD_RNN_STEPS; i++) {
        const uint64_t shorter = ashlar_random_below(&random, ASHLAR_WORKLOAD_RNN_LENGTH_MAX);
        record_step(w, 1 + (uint32_t)shorter);
    }
}
