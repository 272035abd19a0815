/* workload.c - records lists of operations, and the lists that are measured. Nearly every size in
 * the training steps of a 2-layer LSTM is proportional to the step's length, which is drawn for
 * each step. */
#include "bench/peers/measure.h"

#include <math.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

/* Take `bytes` > 0 bytes into a free variable, preferably the one given back last, and return it.
 * The block is for the thread's first stream; _on: for stream number `stream`. */
static uint32_t workload_take_on(ashlar_workload *w, uint32_t bytes, uint32_t stream);

/* Make room for one more operation, step and variable. */
static ashlar_status make_room(ashlar_workload *w) {
    static const char message[] = "bench: no host memory for the operations of %s";
    ASHLAR_HOST_GROW(w->ops, &w->capacity, w->count, message, w->name);
    ASHLAR_HOST_GROW(w->variables, &w->variable_capacity, w->variable_count, message, w->name);
    ASHLAR_HOST_GROW(w->steps, &w->step_capacity, w->step_count, message, w->name);
    return ASHLAR_OK;
}

static bool has_room(ashlar_workload *w) {
    w->has_failed = w->has_failed || make_room(w) != ASHLAR_OK;
    return !w->has_failed;
}

static void append(ashlar_workload *w, uint32_t variable, uint32_t bytes) {
    static const uint32_t variable_mask = (1u << ASHLAR_OP_VARIABLE_BITS) - 1;
    static const uint32_t stream_mask = (1u << ASHLAR_OP_STREAM_BITS) - 1;
    const uint32_t stream = w->variables[variable].stream;
    ASHLAR_ASSERT(variable <= variable_mask && stream <= stream_mask);
    w->ops[w->count++] = (ashlar_op){
        .variable = variable & variable_mask, .stream = stream & stream_mask, .bytes = bytes};
}

static uint32_t workload_take(ashlar_workload *w, uint32_t bytes) {
    return workload_take_on(w, bytes, 0);
}

static uint32_t workload_take_on(ashlar_workload *w, uint32_t bytes, uint32_t stream) {
    ASHLAR_ASSERT(bytes > 0 && stream < w->streams);
    if (!has_room(w)) {
        return 0;
    }
    const uint32_t variable =
        w->free_count > 0 ? w->variables[--w->free_count].free : (uint32_t)w->variable_count++;
    w->variables[variable].taken = bytes;
    w->variables[variable].stream = stream;
    append(w, variable, bytes);
    w->live_bytes += bytes;
    const size_t live = w->variable_count - w->free_count;
    w->live_max = live > w->live_max ? live : w->live_max;
    w->peak_bytes = w->live_bytes > w->peak_bytes ? w->live_bytes : w->peak_bytes;
    return variable;
}

static void workload_give(ashlar_workload *w, uint32_t variable) {
    if (has_room(w)) {
        ASHLAR_ASSERT(variable < w->variable_count && w->variables[variable].taken != 0);
        append(w, variable, 0);
        w->live_bytes -= w->variables[variable].taken;
        w->variables[variable].taken = 0;
        w->variables[w->free_count++].free = variable;
    }
}

/* Note that a training step begins here: the benchmark calls begin_step() of peers that have it. */
static void workload_begin_step(ashlar_workload *w) {
    if (has_room(w)) {
        w->steps[w->step_count++] = w->count;
    }
}

static void workload_begin_body(ashlar_workload *w) {
    w->body_begin = w->count;
}

/* End the body here. Without these two calls, the body is the whole list. */
static void workload_end_body(ashlar_workload *w) {
    w->body_end = w->count;
}

ashlar_status ashlar__workload_init(ashlar_workload *out, const ashlar_workload_spec *spec,
                                    bool is_smoke) {
    ashlar_workload w = {.name = spec->name,
                         .variant = spec->variant,
                         .kind = spec->kind,
                         .streams = spec->streams != 0 ? spec->streams : 1};
    ASHLAR_ASSERT(w.streams <= (size_t)1 << ASHLAR_OP_STREAM_BITS);
    spec->record(&w, is_smoke && spec->amount_smoke != 0 ? spec->amount_smoke : spec->amount);
    if (w.has_failed) {
        ashlar__workload_finish(&w);
        return ASHLAR_EHOSTMEM; /* make_room() has set the detail */
    }
    ASHLAR_ASSERT(w.live_bytes == 0);
    ashlar__host_free(w.variables);
    w.variables = NULL;
    if (w.body_end == 0) {
        w.body_end = w.count;
    }
    ASHLAR_CHECK2(w.body_begin < w.body_end && w.body_end <= w.count);
    ASHLAR_CHECK2((w.body_end - w.body_begin) % 2 == 0); /* a give for each take */
    w.body_pairs = (w.body_end - w.body_begin) / 2;
    *out = w;
    return ASHLAR_OK;
}

size_t ashlar__workload_body_steps(const ashlar_workload *w) {
    size_t count = 0;
    for (size_t i = 0; i < w->step_count; i++) {
        count += w->steps[i] >= w->body_begin && w->steps[i] < w->body_end;
    }
    return count;
}

void ashlar__workload_finish(ashlar_workload *w) {
    ashlar__host_free(w->variables);
    ashlar__host_free(w->ops);
    ashlar__host_free(w->steps);
    *w = (ashlar_workload){0};
}

enum {
    LAYERS = 2,
    HIDDEN = 256,
    SMALL_HIDDEN = 128, /* of a small step, whose blocks are all at most 1 MiB */
    SMALL_LENGTH = 12,  /* likewise */
    BATCH = 32,
    SYMBOLS = 128, /* classes of the output */
    GATES = 4,
    SEED = 20261121,
    OTHERS_BYTES = 1 << 30, /* the program's other blocks: with so many live bytes, a thread's cache
                             * may hold all blocks of a step */
};

typedef struct shape {
    uint32_t length, hidden;
} shape;

/* Bytes of an fp32 tensor [length, BATCH, width]. */
static uint32_t sequence_bytes(uint32_t length, uint32_t width) {
    return length * BATCH * width * (uint32_t)sizeof(float);
}

/* The blocks (by variable) that live from a step's forward pass to its backward pass: T is the
 * step's length, B is BATCH, H the hidden size. */
typedef struct kept {
    uint32_t input;           /* [T, B, H] */
    uint32_t targets;         /* [T, B], int32 */
    uint32_t reserve[LAYERS]; /* [T, B, 4H + H]: gates and cell states */
    uint32_t output[LAYERS];  /* [T, B, H] */
    uint32_t final[LAYERS];   /* [2, B, H]: last hidden and cell state */
} kept;

static void record_forward(ashlar_workload *w, shape s, kept *k) {
    k->targets = workload_take(w, sequence_bytes(s.length, 1));
    k->input = workload_take(w, sequence_bytes(s.length, s.hidden));
    for (int layer = 0; layer < LAYERS; layer++) {
        k->output[layer] = workload_take(w, sequence_bytes(s.length, s.hidden));
        k->final[layer] = workload_take(w, sequence_bytes(2, s.hidden));
        k->reserve[layer] = workload_take(w, sequence_bytes(s.length, (GATES + 1) * s.hidden));
        const uint32_t workspace = workload_take(w, sequence_bytes(s.length, GATES * s.hidden));
        workload_give(w, workspace);
    }
}

/* Record the loss. Returns the variable of the gradient of the last layer's output. */
static uint32_t record_loss(ashlar_workload *w, shape s) {
    const uint32_t logits = workload_take(w, sequence_bytes(s.length, SYMBOLS));
    const uint32_t row_losses = workload_take(w, sequence_bytes(s.length, 1));
    const uint32_t loss = workload_take(w, sizeof(float));
    workload_give(w, loss);
    workload_give(w, row_losses);
    const uint32_t gradient = workload_take(w, sequence_bytes(s.length, s.hidden));
    workload_give(w, logits);
    return gradient;
}

static void record_backward(ashlar_workload *w, shape s, const kept *k, uint32_t gradient) {
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        const uint32_t below = workload_take(w, sequence_bytes(s.length, s.hidden));
        const uint32_t gates = workload_take(w, sequence_bytes(s.length, GATES * s.hidden));
        const uint32_t weights = /* [4H, 2H]: gradients of the input's and recurrence's weights */
            workload_take(w, GATES * s.hidden * 2 * s.hidden * (uint32_t)sizeof(float));
        workload_give(w, k->reserve[layer]);
        workload_give(w, k->output[layer]);
        workload_give(w, k->final[layer]);
        workload_give(w, gates);
        workload_give(w, gradient);
        workload_give(w, weights);
        gradient = below;
    }
    workload_give(w, gradient);
    workload_give(w, k->input);
    workload_give(w, k->targets);
}

static void record_step(ashlar_workload *w, shape s) {
    kept k;
    record_forward(w, s, &k);
    record_backward(w, s, &k, record_loss(w, s));
}

/* Record 1000 training steps of random length. If is_warm is 1, a step of full length comes first,
 * before the body. */
static void record_rnn(ashlar_workload *w, uint32_t is_warm) {
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    if (is_warm != 0) {
        workload_begin_step(w);
        record_step(w, (shape){ASHLAR_WORKLOAD_RNN_LENGTH_MAX, HIDDEN});
    }
    workload_begin_body(w);
    for (int i = 0; i < ASHLAR_WORKLOAD_RNN_STEPS; i++) {
        const uint64_t shorter = ashlar__random_below(&random, ASHLAR_WORKLOAD_RNN_LENGTH_MAX);
        workload_begin_step(w);
        record_step(w, (shape){1 + (uint32_t)shorter, HIDDEN});
    }
}

static void record_turns(ashlar_workload *w, uint32_t turns) {
    workload_begin_step(w);
    for (uint32_t i = 0; i < turns; i++) {
        record_step(w, (shape){SMALL_LENGTH, SMALL_HIDDEN});
    }
}

/* Record one step of `turns` small training steps as the body, while a block of OTHERS_BYTES is
 * live. The same step precedes the body, so that caches are filled and a plan is recorded. */
static void record_rnn_step(ashlar_workload *w, uint32_t turns) {
    const uint32_t others = workload_take(w, OTHERS_BYTES);
    record_turns(w, turns);
    workload_begin_body(w);
    record_turns(w, turns);
    workload_end_body(w);
    workload_give(w, others);
}

/* --- lists of pairs, mixes and random sizes -------------------------------------------------- */

#define KIB ((uint32_t)1 << 10)
#define MIB ((uint32_t)1 << 20)

enum {
    PAIRS = 256,        /* in the body of one_size: 4 KiB of operations stay in the CPU's cache */
    HOLES = 2000,       /* free blocks in the fragmented heap */
    TENSORS = 400,      /* blocks in a mix */
    SHUFFLES = 8,       /* how often the body of a mix takes all blocks and gives them back */
    RANDOM_LIVE = 1000, /* the most live blocks in `random` */
    RANDOM_OPS = 20000, /* operations of `random`, before its last blocks are given back */
    TAKES_PER_FIVE = 3, /* of 5 random operations 3 take a block, so mostly nearly
                         * RANDOM_LIVE blocks are live */
    LIVE_PAIRS = 20000, /* pairs in the body of a list with many live blocks */
    ROUNDS_OF_STREAMS = 16, /* pairs on each stream, in a list with many streams */
};

static void record_pairs(ashlar_workload *w, uint32_t bytes) {
    workload_begin_step(w);
    for (int i = 0; i < PAIRS; i++) {
        workload_give(w, workload_take(w, bytes));
    }
}

/* Record pairs on each stream in turn. */
static void record_streams(ashlar_workload *w, uint32_t bytes) {
    for (uint32_t i = 0; i < ROUNDS_OF_STREAMS * w->streams; i++) {
        const uint32_t stream = i % (uint32_t)w->streams;
        workload_give(w, workload_take_on(w, bytes, stream));
    }
}

/* Record that random ones of `count` live blocks, of 512 B to 4 KiB, are given back, each followed
 * by taking a block of the same size. */
static void record_live(ashlar_workload *w, uint32_t count) {
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (uint32_t i = 0; i < count; i++) {
        (void)workload_take(w, 512 * (1 + (uint32_t)ashlar__random_below(&random, 8)));
    }
    workload_begin_body(w);
    for (int i = 0; i < LIVE_PAIRS && !w->has_failed; i++) {
        const uint32_t variable = (uint32_t)ashlar__random_below(&random, count);
        const uint32_t bytes = w->variables[variable].taken;
        workload_give(w, variable);
        (void)workload_take(w, bytes); /* into the variable that has just become free */
    }
    workload_end_body(w);
    for (uint32_t i = 0; i < count; i++) {
        workload_give(w, i);
    }
}

/* Record pairs in a heap where every second of 4000 blocks is free. The blocks have 1 B to 64 KiB,
 * but no size that rounds up to `bytes` in units of 512 B. */
static void record_fragmented(ashlar_workload *w, uint32_t bytes) {
    uint32_t variables[2 * HOLES] = {0};
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (int i = 0; i < 2 * HOLES; i++) {
        uint32_t other = bytes;
        while (other > bytes - 512 && other <= bytes) {
            other = (uint32_t)(1 + ashlar__random_below(&random, 64 * KIB));
        }
        variables[i] = workload_take(w, other);
    }
    for (int i = 0; i < 2 * HOLES; i += 2) {
        workload_give(w, variables[i]);
    }
    workload_begin_body(w);
    record_pairs(w, bytes);
    workload_end_body(w);
    for (int i = 1; i < 2 * HOLES; i += 2) {
        workload_give(w, variables[i]);
    }
}

/* Draw a size of 512 B to 64 MiB, whose logarithm is uniform. */
static uint32_t draw_tensor(ashlar_random *random) {
    return (uint32_t)(512 * exp2(17 * ashlar__random_uniform(random)));
}

/* Record that all blocks are taken, then given back, several times: in reverse or, if is_shuffled,
 * in a new random order each time. */
static void record_mix(ashlar_workload *w, uint32_t is_shuffled) {
    uint32_t bytes[TENSORS] = {0}, variables[TENSORS] = {0};
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (int i = 0; i < TENSORS; i++) {
        bytes[i] = draw_tensor(&random);
    }
    for (int turn = 0; turn < SHUFFLES; turn++) {
        for (int i = 0; i < TENSORS; i++) {
            variables[i] = workload_take(w, bytes[i]);
        }
        for (uint32_t left = TENSORS; left > 0; left--) {
            const uint32_t pick =
                is_shuffled != 0 ? (uint32_t)ashlar__random_below(&random, left) : left - 1;
            workload_give(w, variables[pick]);
            variables[pick] = variables[left - 1];
        }
    }
}

static void record_random(ashlar_workload *w, uint32_t bytes_max) {
    uint32_t variables[RANDOM_LIVE] = {0}, live = 0;
    ashlar_random random;
    ashlar__random_init(&random, SEED);
    for (int i = 0; i < RANDOM_OPS; i++) {
        const bool wants_take = ashlar__random_below(&random, 5) < TAKES_PER_FIVE;
        if (live == 0 || (wants_take && live < RANDOM_LIVE)) {
            const uint32_t bytes = (uint32_t)(1 + ashlar__random_below(&random, bytes_max));
            variables[live++] = workload_take(w, bytes);
        } else {
            const uint32_t pick = (uint32_t)ashlar__random_below(&random, live);
            workload_give(w, variables[pick]);
            variables[pick] = variables[--live];
        }
    }
    while (live > 0) {
        workload_give(w, variables[--live]);
    }
}

#define LIST ASHLAR_WORKLOAD_LIST
#define ONE 1, 1
#define ONE_AND_TWO 1, 2
#define TWO 2, 2

static const ashlar_workload_spec specs[] = {
    {"one_size", "512", LIST, ONE_AND_TWO, 0, record_pairs, 512, 0},
    {"one_size", "4096", LIST, ONE_AND_TWO, 0, record_pairs, 4 * KIB, 0},
    {"one_size", "65536", LIST, ONE_AND_TWO, 0, record_pairs, 64 * KIB, 0},
    {"one_size", "1048576", LIST, ONE_AND_TWO, 0, record_pairs, MIB, 0},
    {"one_size", "67108864", LIST, ONE_AND_TWO, 0, record_pairs, 64 * MIB, 0},
    {"one_size", "4096-fragmented", LIST, ONE_AND_TWO, 0, record_fragmented, 4 * KIB, 0},
    {"mix", "reverse", LIST, ONE_AND_TWO, 0, record_mix, 0, 0},
    {"mix", "shuffled", LIST, ONE_AND_TWO, 0, record_mix, 1, 0},
    {"random", "", LIST, ONE_AND_TWO, 0, record_random, MIB, 0},
    {"latency", "random", ASHLAR_WORKLOAD_LATENCY, ONE, 0, record_random, MIB, 0},
    {"handoff", "", ASHLAR_WORKLOAD_HANDOFF, TWO, 0, record_pairs, 4 * KIB, 0},
    {"streams_64", "", LIST, ONE, 64, record_streams, 4 * KIB, 0},
    {"streams_512", "", LIST, ONE, 512, record_streams, 4 * KIB, 0},
    {"live_1e6", "", ASHLAR_WORKLOAD_LIVE, ONE, 0, record_live, 1000000, 1000},
    {"rnn_warm", "", LIST, ONE, 0, record_rnn, 1, 0},
    {"rnn_cold", "", LIST, ONE, 0, record_rnn, 0, 0},
};

static const ashlar_workload_spec plan_specs[] = {
    {"one_size", "4096", LIST, ONE, 0, record_pairs, 4 * KIB, 0},
    {"rnn_step", "1", LIST, ONE, 0, record_rnn_step, 1, 0},
    {"rnn_step", "64", LIST, ONE, 0, record_rnn_step, 64, 0},
    {"rnn_warm", "", LIST, ONE, 0, record_rnn, 1, 0},
};

const ashlar_workload_spec *ashlar__workload_spec(bool is_of_plans, size_t i) {
    const size_t count =
        is_of_plans ? sizeof plan_specs / sizeof plan_specs[0] : sizeof specs / sizeof specs[0];
    return i >= count ? NULL : is_of_plans ? &plan_specs[i] : &specs[i];
}
