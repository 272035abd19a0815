/* model_step.c - a step of the model: the buffers it takes, the work it queues, its chunks. */
#include "rnn/model/model.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "rnn/layer/rnn_cpu.h"

/* A step's buffers in device memory; NULL while not held. With chunks, T is that of one chunk. */
typedef struct buffers {
    void *x;      /* [T, B, E] */
    void *y;      /* [T, B, P] */
    void *logits; /* [T, B, V], then their gradient */
    void *dy;     /* [T, B, P] */
    void *dx;     /* [T, B, E] */
    void *reserve;
    void *work;
    void *loss_work;
    void *test_work;
    void *states; /* a set after each chunk but the last, then two sets of gradients */
} buffers;

/* The steps that one pass runs on: the whole window, or one chunk of it. `before` and `behind` are
 * the states before its first and after its last step, `dbefore` and `dbehind` their gradients;
 * NULL stands for zeros when read, and for "not wanted" when written. */
typedef struct chunk {
    size_t steps;
    const int32_t *inputs, *targets, *lengths; /* device */
    const int32_t *rnn_lengths;                /* host */
    const int32_t *rnn_lengths_at;             /* device; NULL: read those on the host */
    uint64_t dropout_seed;
    const void *before;
    void *behind;
    const void *dbehind;
    void *dbefore;
} chunk;

typedef struct step {
    ashlar_model *model;
    const ashlar_model_window *window;
    const ashlar_step_sizes *sizes;
    double *loss;
    bool is_dry_run; /* take and give back every buffer, queue nothing */
    bool is_test;    /* queue nothing backward, and drop nothing */
    bool is_backward;
    bool keeps;      /* every buffer is held until the end, and each chunk uses it */
    chunk now;
    buffers b;
} step;

static ashlar_status take(const step *s, const char *name, size_t bytes, ashlar_tag tag,
                          void **buffer) {
    const ashlar_buffer_request r = {name, bytes, tag, s->is_backward};
    return *buffer != NULL ? ASHLAR_OK /* still held from the previous chunk */
                           : ashlar__buffer_take(s->model->source, &r, s->model->allocator,
                                                 s->model->stream, buffer);
}

/* TAG is without its prefix. */
#define TAKE(step, field, name, bytes, TAG) \
    take((step), (name), (bytes), ASHLAR_TAG_##TAG, &(step)->b.field)

static ashlar_status give_back(const step *s, void **buffer) {
    void *ptr = *buffer;
    *buffer = NULL;
    return ashlar__buffer_give(s->model->source, s->model->allocator, ptr);
}

static ashlar_status give(const step *s, void **buffer) {
    return s->keeps ? ASHLAR_OK : give_back(s, buffer);
}

static ashlar_embedding_args embedding_args(const step *s) {
    return (ashlar_embedding_args){
        .steps = s->now.steps,
        .batch = s->window->count,
        .lengths = s->now.lengths,
        .classes = s->model->config.classes,
        .width = s->model->config.embedding,
        .tokens = s->now.inputs,
        .table = s->model->parameters.embedding,
        .out = s->b.x,
        .dout = s->b.dx,
        .dtable = s->model->gradients.embedding,
    };
}

static ashlar_linear_args linear_args(const step *s) {
    return (ashlar_linear_args){
        .rows = s->now.steps * s->window->count,
        .in = ashlar_rnn_layout_of(s->model->rnn)->output,
        .out = s->model->config.classes,
        .x = s->b.y,
        .weight = s->model->parameters.weight,
        .bias = s->model->parameters.bias,
        .y = s->b.logits,
        .dy = s->b.logits,
        .dx = s->b.dy,
        .dweight = s->model->gradients.weight,
        .dbias = s->model->gradients.bias,
    };
}

static ashlar_cross_entropy_args loss_args(const step *s) {
    return (ashlar_cross_entropy_args){
        .steps = s->now.steps,
        .batch = s->window->count,
        .lengths = s->now.lengths,
        .classes = s->model->config.classes,
        .logits = s->b.logits,
        .targets = s->now.targets,
        .weight = s->window->weight,
        .weight_at = s->window->weight_at,
        .dlogits = s->b.logits,
        .scale = s->model->loss_scale,
        .work = s->b.loss_work,
        .loss = s->loss,
    };
}

static size_t chunk_count(const step *s) {
    const ashlar_model_window *w = s->window;
    return w->chunk == 0 ? 1 : (w->steps - 1) / w->chunk + 1;
}

/* padding_is_free: padding has tokens, so its x is finite, and its loss does not count. Not if
 * states are carried on, for those would be the states after the padding. */
static ashlar_rnn_batch rnn_batch(const step *s) {
    return (ashlar_rnn_batch){
        .steps = s->now.steps,
        .batch = s->window->count,
        .lengths = s->now.rnn_lengths,
        .dropout_seed = s->now.dropout_seed,
        .dropout_restarts = chunk_count(s) > 1, /* each chunk but the last runs twice */
        .dropout_first = s->model->dropout_first,
        .dropout_stride = s->model->dropout_stride,
        .padding_is_free = chunk_count(s) == 1 && s->window->last == NULL,
    };
}

/* Where the cells begin in a set of states; NULL if there is no set or the model is no LSTM. */
static void *cells_of(const step *s, const void *set) {
    const bool has_cells = set != NULL && s->model->config.cell == ASHLAR_RNN_LSTM;
    return has_cells ? (char *)(uintptr_t)set + s->sizes->cells : NULL;
}

static ashlar_rnn_buffers rnn_buffers(const step *s) {
    return (ashlar_rnn_buffers){
        .reserve = s->b.reserve,
        .work = s->b.work,
        .x = s->b.x,
        .hx = s->now.before,
        .cx = cells_of(s, s->now.before),
        .weights = s->model->parameters.stack,
        .y = s->b.y,
        .hy = s->now.behind,
        .cy = cells_of(s, s->now.behind),
        .dy = s->b.dy,
        .dhy = s->now.dbehind,
        .dcy = cells_of(s, s->now.dbehind),
        .dx = s->b.dx,
        .dhx = s->now.dbefore,
        .dcx = cells_of(s, s->now.dbefore),
        .dweights = s->model->gradients.stack,
    };
}

/* One pass on the current chunk. */
static ashlar_status queue_rnn(const step *s, ashlar_rnn_pass pass, const ashlar_rnn_buffers *all) {
    const ashlar_model *m = s->model;
    const ashlar_rnn_batch batch = rnn_batch(s);
    if (s->now.rnn_lengths_at != NULL) {
        const ashlar_rnn_varying varying = {s->now.rnn_lengths_at, m->seed_at};
        return ashlar__rnn_queue_varying(m->rnn, pass, &batch, all, &varying, m->stream);
    }
    switch (pass) {
    case ASHLAR_RNN_FORWARD:
        return ashlar_rnn_forward(m->rnn, &batch, all, m->stream);
    case ASHLAR_RNN_BACKWARD_DATA:
        return ashlar_rnn_backward_data(m->rnn, &batch, all, m->stream);
    default:
        return ashlar_rnn_backward_weights(m->rnn, &batch, all, m->stream);
    }
}

/* Inference has no reserve, so it may need a larger workspace. Use the reserve's memory if that is
 * enough; if not, take a buffer that no training step takes. */
static ashlar_status turn_to_inference(step *s, ashlar_rnn_buffers *all) {
    size_t none, need;
    ASHLAR_TRY(
        ashlar_rnn_sizes(s->model->rnn, s->now.steps, s->window->count, false, &none, &need));
    all->reserve = NULL;
    if (need > s->sizes->work && need <= s->sizes->reserve) {
        all->work = s->b.reserve;
    } else if (need > s->sizes->work) {
        ASHLAR_TRY(TAKE(s, test_work, "workspace of the test", need, WORKSPACE));
        all->work = s->b.test_work;
    }
    return ASHLAR_OK;
}

/* One pass of the RNN, with a workspace for its duration. */
static ashlar_status run_rnn(step *s, ashlar_rnn_pass pass) {
    ASHLAR_TRY(TAKE(s, work, "workspace", s->sizes->work, WORKSPACE));
    if (!s->is_dry_run) {
        ashlar_rnn_buffers all = rnn_buffers(s);
        const bool infers = s->is_test && ashlar__model_drops(s->model);
        ASHLAR_TRY(infers ? turn_to_inference(s, &all) : ASHLAR_OK);
        ASHLAR_TRY(queue_rnn(s, pass, &all));
    }
    return give(s, &s->b.work);
}

/* From y to the loss and the gradient of the logits. */
static ashlar_status run_loss(step *s) {
    const ashlar_model *m = s->model;
    if (s->sizes->loss_work > 0) {
        ASHLAR_TRY(TAKE(s, loss_work, "workspace of the loss", s->sizes->loss_work, WORKSPACE));
    }
    if (!s->is_dry_run) {
        const ashlar_linear_args linear = linear_args(s);
        const ashlar_cross_entropy_args loss = loss_args(s);
        ASHLAR_TRY(ashlar_linear_forward(m->ops, &linear, m->stream));
        ASHLAR_TRY(ashlar_cross_entropy(m->ops, &loss, m->stream));
    }
    return give(s, &s->b.loss_work);
}

static ashlar_status forward(step *s) {
    const ashlar_model *m = s->model;
    ASHLAR_TRY(TAKE(s, x, "inputs of the layers", s->sizes->x, ACTIVATIONS));
    if (!s->is_dry_run) {
        const ashlar_embedding_args embedding = embedding_args(s);
        ASHLAR_TRY(ashlar_embedding_forward(m->ops, &embedding, m->stream));
    }
    ASHLAR_TRY(TAKE(s, reserve, "reserve, kept for backward", s->sizes->reserve, SAVED));
    ASHLAR_TRY(TAKE(s, y, "outputs of the layers", s->sizes->y, ACTIVATIONS));
    /* Take the logits before the RNN's workspace, so that they lie beside y. Backward gives y and
     * the logits back together, and its own workspace fits into the hole. This does not raise the
     * peak, which is reached later, when dy takes the place of forward's workspace. */
    ASHLAR_TRY(TAKE(s, logits, "logits, then their gradient", s->sizes->logits, ACTIVATIONS));
    ASHLAR_TRY(run_rnn(s, ASHLAR_RNN_FORWARD));
    return run_loss(s);
}

static ashlar_status backward(step *s) {
    const ashlar_model *m = s->model;
    s->is_backward = true;
    ASHLAR_TRY(TAKE(s, dy, "gradient of the outputs", s->sizes->y, ACTIVATIONS));
    if (!s->is_dry_run) {
        const ashlar_linear_args linear = linear_args(s);
        ASHLAR_TRY(ashlar_linear_backward(m->ops, &linear, m->stream));
    }
    ASHLAR_TRY(give(s, &s->b.logits));
    if (!ashlar_rnn_backward_reads_output(m->rnn)) {
        ASHLAR_TRY(give(s, &s->b.y));
    }
    ASHLAR_TRY(TAKE(s, dx, "gradient of the inputs", s->sizes->x, ACTIVATIONS));
    ASHLAR_TRY(run_rnn(s, ASHLAR_RNN_BACKWARD_DATA));
    ASHLAR_TRY(give(s, &s->b.dy));
    ASHLAR_TRY(run_rnn(s, ASHLAR_RNN_BACKWARD_WEIGHTS));
    ASHLAR_TRY(give(s, &s->b.y));
    if (s->is_dry_run) {
        return ASHLAR_OK;
    }
    const ashlar_embedding_args embedding = embedding_args(s);
    return ashlar_embedding_backward(m->ops, &embedding, m->stream);
}

/* The difference between the dropout seeds of neighbouring chunks, which must drop different
 * outputs. Odd, like the trainer's difference between steps. */
static const uint64_t CHUNK_STRIDE = UINT64_C(0xd1342543de82ef95);

static void *set_at(const step *s, size_t index) {
    return (char *)s->b.states + index * s->sizes->state;
}

/* Make chunk `index` the current one. With n chunks, the states after chunk i are in set i, and the
 * gradient of the states before chunk c goes to set n-1 + c%2. */
static void go_to_chunk(step *s, size_t index) {
    const ashlar_model_window *w = s->window;
    const size_t last = chunk_count(s) - 1, first_step = index * w->chunk;
    const size_t rest = w->steps - first_step, at = first_step * w->count;
    const bool is_first = index == 0, is_last = index == last;
    ASHLAR_CHECK2(index <= last && first_step < w->steps);
    s->now = (chunk){
        .steps = is_last ? rest : w->chunk,
        .inputs = w->inputs + at,
        .targets = w->targets + at,
        .lengths = w->lengths + index * w->count,
        .rnn_lengths = w->rnn_lengths + index * w->count,
        .rnn_lengths_at = w->rnn_lengths_at == NULL ? NULL : w->rnn_lengths_at + index * w->count,
        .dropout_seed = s->model->dropout_seed + index * CHUNK_STRIDE,
        .before = is_first ? w->first : set_at(s, index - 1),
        .behind = is_last ? w->last : NULL,
        .dbehind = is_last ? NULL : set_at(s, last + (index + 1) % 2),
        .dbefore = is_first ? NULL : set_at(s, last + index % 2),
    };
}

/* Compute only the states after a chunk. A forward pass drops outputs only if it has a reserve; so
 * with dropout it gets one, although nobody reads it. */
static ashlar_status run_to_border(step *s, size_t index) {
    const ashlar_model *m = s->model;
    go_to_chunk(s, index);
    s->now.behind = set_at(s, index);
    const ashlar_embedding_args embedding = embedding_args(s);
    ashlar_rnn_buffers all = rnn_buffers(s);
    all.reserve = ashlar__model_drops(m) ? all.reserve : NULL;
    ASHLAR_TRY(ashlar_embedding_forward(m->ops, &embedding, m->stream));
    return queue_rnn(s, ASHLAR_RNN_FORWARD, &all);
}

/* Take all buffers, in an order that does not depend on the number of chunks. A single chunk has no
 * states to keep. */
static ashlar_status take_all(step *s) {
    const ashlar_step_sizes *sizes = s->sizes;
    ASHLAR_TRY(TAKE(s, x, "inputs of the layers", sizes->x, ACTIVATIONS));
    ASHLAR_TRY(TAKE(s, reserve, "reserve, kept for backward", sizes->reserve, SAVED));
    ASHLAR_TRY(TAKE(s, y, "outputs of the layers", sizes->y, ACTIVATIONS));
    ASHLAR_TRY(TAKE(s, logits, "logits, then their gradient", sizes->logits, ACTIVATIONS));
    ASHLAR_TRY(TAKE(s, dy, "gradient of the outputs", sizes->y, ACTIVATIONS));
    ASHLAR_TRY(TAKE(s, dx, "gradient of the inputs", sizes->x, ACTIVATIONS));
    ASHLAR_TRY(TAKE(s, work, "workspace", sizes->work, WORKSPACE));
    if (sizes->loss_work > 0) {
        ASHLAR_TRY(TAKE(s, loss_work, "workspace of the loss", sizes->loss_work, WORKSPACE));
    }
    return sizes->states > 0 ? TAKE(s, states, "states between chunks", sizes->states, ACTIVATIONS)
                             : ASHLAR_OK;
}

static ashlar_status test_chunks(step *s) {
    const size_t count = chunk_count(s);
    for (size_t i = 0; i < count; i++) {
        go_to_chunk(s, i);
        s->now.behind = i + 1 < count ? set_at(s, i) : s->now.behind;
        ASHLAR_TRY(forward(s));
    }
    return ASHLAR_OK;
}

/* Run forward to the last border; then, from the last chunk to the first, forward and backward. */
static ashlar_status run_chunks(step *s) {
    ASHLAR_TRY(take_all(s));
    if (s->is_dry_run) {
        return ASHLAR_OK;
    }
    if (s->is_test) {
        return test_chunks(s);
    }
    const size_t count = chunk_count(s);
    for (size_t i = 0; i + 1 < count; i++) {
        ASHLAR_TRY(run_to_border(s, i));
    }
    for (size_t i = count; i-- > 0;) {
        go_to_chunk(s, i);
        ASHLAR_TRY(forward(s));
        ASHLAR_TRY(backward(s));
    }
    return ASHLAR_OK;
}

static ashlar_status run_at_once(step *s) {
    if (!s->is_dry_run) {
        go_to_chunk(s, 0);
    }
    ASHLAR_TRY(forward(s));
    s->is_dry_run |= s->is_test;
    return backward(s);
}

/* Give back every buffer still held, after success and failure alike. */
static ashlar_status give_all(const step *s, buffers *b) {
    void **const all[] = {&b->x,       &b->y,    &b->logits,    &b->dy,        &b->dx,
                          &b->reserve, &b->work, &b->loss_work, &b->test_work, &b->states};
    ashlar_status first = ASHLAR_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const ashlar_status status = give_back(s, all[i]);
        first = first == ASHLAR_OK ? status : first;
    }
    return first;
}

static ashlar_status run(step *s) {
    const ashlar_status status = s->keeps ? run_chunks(s) : run_at_once(s);
    const ashlar_status given = give_all(s, &s->b);
    return status == ASHLAR_OK ? given : status;
}

ashlar_status ashlar__model_step(ashlar_model *model, const ashlar_model_window *window,
                                 const ashlar_step_sizes *sizes, double *loss) {
    step s = {.model = model,
              .window = window,
              .sizes = sizes,
              .loss = loss,
              .is_test = window->is_test,
              .keeps = window->chunk != 0};
    return run(&s);
}

ashlar_status ashlar__model_dry_run(ashlar_model *model, bool in_chunks,
                                    const ashlar_step_sizes *sizes) {
    step s = {.model = model, .sizes = sizes, .is_dry_run = true, .keeps = in_chunks};
    return run(&s);
}
