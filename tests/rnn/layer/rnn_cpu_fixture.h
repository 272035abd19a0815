/*
 * rnn_cpu_fixture.h - RNN problems of every cell and many shapes in both types, for tests.
 *
 * Every batch here has NaN in the padding of x and dy, and NaN in each output before a call: what
 * reaches a result, or was not written, is seen. So is what is written past the memory that a pass
 * asks for, when drop_problems() looks.
 */
#ifndef ASHLAR_RNN_CPU_FIXTURE_H
#define ASHLAR_RNN_CPU_FIXTURE_H

#include "tests/allocator/trace/numbers_fixture.h"

#include "rnn/layer/rnn_cpu.h"

enum {
    MAX_BATCH = 16,
    MAX_TENSORS = 1 << 14,
    MAX_GUARDS = 64,
    GUARD_BYTES = 64,
    GUARD = 0x5a,
};

typedef struct shape {
    size_t layers, steps, batch, input, hidden;
    int32_t lengths[MAX_BATCH];
    bool has_state;
} shape;

static const shape SHAPES[] = {
    {1, 1, 1, 1, 1, {1}, true},
    {1, 4, 1, 3, 2, {4}, false},
    {1, 5, 3, 3, 4, {2, 5, 1}, true},
    {2, 4, 4, 2, 3, {4, 4, 4, 4}, true},
    {2, 6, 4, 5, 3, {1, 4, 2, 4}, false}, /* no sequence reaches T */
    {2, 5, 6, 3, 5, {3, 5, 5, 1, 3, 2}, true},
    {3, 4, 3, 2, 2, {2, 4, 3}, true},
    {3, 3, 2, 4, 3, {3, 1}, false},
    {2, 9, 2, 1, 8, {9, 9}, true}, /* rows much wider than x, then much narrower */
    {2, 9, 2, 40, 1, {9, 9}, true},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

/* What of a stack does not show in its sizes. */
typedef struct kind {
    ashlar_rnn_cell cell;
    ashlar_rnn_bias bias;
    size_t directions;
    bool is_projected; /* to about half of H */
    double dropout;
} kind;

static const kind PLAIN_LSTM = {.cell = ASHLAR_RNN_LSTM, .directions = 1};

/* Every cell, bias mode, number of directions and projection, dropout in turn; KIND_COUNT. */
enum { KIND_COUNT = 40 };
static inline kind kind_at(size_t i) {
    kind k = {.bias = (ashlar_rnn_bias)(i % 4), .directions = 1 + i / 4 % 2};
    const size_t cell = i / 8; /* the fifth is the LSTM with a projection */
    k.cell = cell < 4 ? (ashlar_rnn_cell)cell : ASHLAR_RNN_LSTM;
    k.is_projected = cell == 4;
    k.dropout = i % 3 == 2 ? 0.4 : 0;
    return k;
}

static inline ashlar_rnn_config config_of(const shape *s, const kind *k, ashlar_dtype dtype) {
    return (ashlar_rnn_config){
        .input = s->input,
        .hidden = s->hidden,
        .layers = s->layers,
        .dtype = dtype,
        .cell = k->cell,
        .bias = k->bias,
        .directions = k->directions,
        .projection = k->is_projected ? s->hidden / 2 : 0, /* none of a hidden width of 1 */
        .dropout = s->layers > 1 ? k->dropout : 0,
    };
}

/* One problem in one type: all tensors of ashlar_rnn_cpu_args, exactly as large as needed. */
typedef struct problem {
    ashlar_rnn_layout layout;
    ashlar_rnn_cpu_args args;
    size_t item; /* bytes of an element */
    size_t x_count, y_count;
    size_t state_count, cell_count; /* of h and of c */
} problem;

static void *tensors[MAX_TENSORS]; /* of all problems, until drop_problems() */
static unsigned char *guards[MAX_GUARDS]; /* of GUARD_BYTES each, behind their scratch */
static size_t tensor_count, guard_count;

static inline double get(const void *data, size_t item, size_t i) {
    return item == sizeof(float) ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static inline void set(void *data, size_t item, size_t i, double value) {
    if (item == sizeof(float)) {
        ((float *)data)[i] = (float)value;
    } else {
        ((double *)data)[i] = value;
    }
}

static inline void fill(void *data, size_t item, size_t count, double value) {
    for (size_t i = 0; i < count; i++) {
        set(data, item, i, value);
    }
}

/* Also floats are drawn as floats, so that both types can get the same numbers. */
static inline void *tensor(problem *p, size_t count, double scale) {
    void *data = aligned_alloc(64, (count * p->item + 63) / 64 * 64);
    CHECK(data != NULL && tensor_count < MAX_TENSORS);
    tensors[tensor_count++] = data;
    for (size_t i = 0; i < count; i++) {
        set(data, p->item, i, scale == 0 ? (double)NAN : (double)(float)(scale * random_real()));
    }
    return data;
}

/* Scratch of exactly `bytes`, NaN, with a guard behind it. */
static inline void *scratch(problem *p, size_t bytes) {
    char *const data = tensor(p, (bytes + GUARD_BYTES) / p->item + 1, 0);
    CHECK(guard_count < MAX_GUARDS);
    guards[guard_count] = (unsigned char *)data + bytes;
    memset(guards[guard_count++], GUARD, GUARD_BYTES);
    return data;
}

/* NaN past the lengths of data [T, B, width]. */
static inline void spoil_padding(const problem *p, void *data, size_t width) {
    for (size_t at = 0; at < p->args.steps * p->args.batch; at++) {
        if (at / p->args.batch >= (size_t)p->args.lengths[at % p->args.batch]) {
            for (size_t j = 0; j < width; j++) {
                set(data, p->item, at * width + j, (double)NAN);
            }
        }
    }
}

/* All at once; a case does so at its end. */
static inline void drop_problems(void) {
    size_t touched = 0;
    for (size_t i = 0; i < guard_count * GUARD_BYTES; i++) {
        touched += guards[i / GUARD_BYTES][i % GUARD_BYTES] != GUARD;
    }
    CHECK_ZU(touched, 0);
    guard_count = 0;
    while (tensor_count > 0) {
        free(tensors[--tensor_count]);
    }
}

static inline bool open_problem(problem *p, const shape *s, const kind *k, ashlar_dtype dtype,
                                bool training) {
    const ashlar_rnn_config config = config_of(s, k, dtype);
    size_t reserve_bytes, work_bytes;
    *p = (problem){.item = ashlar_dtype_bytes(dtype)};
    if (ashlar_rnn_layout_init(&p->layout, &config) != ASHLAR_OK ||
        ashlar__rnn_cpu_sizes(&p->layout, s->steps, s->batch, training, &reserve_bytes,
                              &work_bytes) != ASHLAR_OK) {
        return false;
    }
    p->x_count = s->steps * s->batch * s->input;
    p->y_count = s->steps * s->batch * p->layout.output;
    p->state_count = p->layout.pseudo_layers * s->batch * p->layout.state;
    p->cell_count = p->layout.pseudo_layers * s->batch * s->hidden;
    ashlar_rnn_cpu_args *a = &p->args;
    *a = (ashlar_rnn_cpu_args){.layout = &p->layout,
                               .steps = s->steps,
                               .batch = s->batch,
                               .lengths = s->lengths,
                               .dropout_seed = 77};
    random_state = 0x9e3779b97f4a7c15u; /* the same numbers for every type of one shape */
    void *const x = tensor(p, p->x_count, 1);
    void *const dy = tensor(p, p->y_count, 1);
    spoil_padding(p, x, s->input);
    spoil_padding(p, dy, p->layout.output);
    a->b.x = x;
    a->b.dy = dy;
    a->b.weights = tensor(p, p->layout.elements, 0.7);
    a->b.dhy = tensor(p, p->state_count, 1);
    a->b.dcy = tensor(p, p->cell_count, 1);
    a->b.hx = s->has_state ? tensor(p, p->state_count, 1) : NULL;
    a->b.cx = s->has_state ? tensor(p, p->cell_count, 1) : NULL;
    a->b.y = tensor(p, p->y_count, 0);
    a->b.hy = tensor(p, p->state_count, 0);
    a->b.cy = tensor(p, p->cell_count, 0);
    a->b.dx = tensor(p, p->x_count, 0);
    a->b.dhx = tensor(p, p->state_count, 0);
    a->b.dcx = tensor(p, p->cell_count, 0);
    a->b.dweights = tensor(p, p->layout.elements, 0);
    fill(a->b.dweights, p->item, p->layout.elements, 0);
    a->b.reserve = training ? scratch(p, reserve_bytes) : NULL;
    a->b.work = scratch(p, work_bytes);
    return check_at_end(drop_problems);
}

/* A quarter of the weights, so that a ReLU of many units stays small for many steps. */
static inline void lessen_weights(const problem *p) {
    void *const weights = (void *)(uintptr_t)p->args.b.weights;
    for (size_t i = 0; i < p->layout.elements; i++) {
        set(weights, p->item, i, get(weights, p->item, i) / 4);
    }
}

/* The passes that the problem is solved with. */
static inline ashlar_rnn_cpu_pass *const *passes_of(const problem *p) {
    return ashlar__rnn_loops_of(p->layout.config.dtype)->passes;
}

static inline void run_forward(const problem *p) {
    passes_of(p)[ASHLAR_RNN_FORWARD](&p->args);
}

static inline void run_backward(const problem *p) {
    passes_of(p)[ASHLAR_RNN_BACKWARD_DATA](&p->args);
    passes_of(p)[ASHLAR_RNN_BACKWARD_WEIGHTS](&p->args);
}

static inline void run_training(const problem *p) {
    run_forward(p);
    run_backward(p);
}

#endif /* ASHLAR_RNN_CPU_FIXTURE_H */
