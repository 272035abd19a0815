/* One step of the model: which buffers it takes when, what it queues, what it gives back. */
#include "model.h"

/* A step's buffers in device memory; NULL where not taken yet, or given back. */
typedef struct buffers {
    void *inputs;  /* int32 [T, B] */
    void *targets; /* int32 [T, B] */
    void *lengths; /* int32 [B] */
    void *x;       /* float [T, B, E] */
    void *y;       /* float [T, B, P] */
    void *logits;  /* float [T, B, V], then their gradient */
    void *dy;      /* float [T, B, P] */
    void *dx;      /* float [T, B, E] */
    void *reserve;
    void *work;
    void *loss_work;
} buffers;

typedef struct step {
    ashlar_model *model;
    const ashlar_batch *batch;
    size_t count; /* B */
    const ashlar_step_sizes *sizes;
    ashlar_step_results *results;
    bool is_rehearsal; /* take and give back every buffer, queue nothing */
    buffers b;
} step;

/* Leave the function with the first status that is no success. */
#define TRY(call)                             \
    do {                                      \
        const ashlar_status status_ = (call); \
        if (status_ != ASHLAR_OK) {           \
            return status_;                   \
        }                                     \
    } while (0)

static ashlar_status take(const step *s, size_t bytes, ashlar_tag tag, void **buffer) {
    return ashlar_alloc_tagged(s->model->allocator, bytes, tag, s->model->stream, buffer);
}

/* Queued work may still use the buffer: the allocator hands it out again in stream order only. */
static ashlar_status give(const step *s, void **buffer) {
    void *ptr = *buffer;
    *buffer = NULL;
    return ashlar_free(s->model->allocator, ptr);
}

static ashlar_status copy(const step *s, void *dst, const void *src, size_t bytes) {
    return s->is_rehearsal
               ? ASHLAR_OK
               : ashlar_copy_to_device(s->model->device, dst, src, bytes, s->model->stream);
}

/* One fill for all: every back end adds weight gradients, and the loss, to what is there. */
static ashlar_status clear_sums(const step *s) {
    ashlar_model *m = s->model;
    if (s->is_rehearsal) {
        return ASHLAR_OK;
    }
    TRY(ashlar_fill(m->device, &s->results->loss, 0, sizeof s->results->loss, m->stream));
    return ashlar_arena_zero(m->arena, ASHLAR_REGION_GRADIENTS, m->stream);
}

static ashlar_status upload(step *s) {
    const size_t grid_bytes = s->batch->steps * s->count * sizeof(int32_t);
    const size_t lengths_bytes = s->count * sizeof(int32_t);
    TRY(take(s, s->sizes->grid, ASHLAR_TAG_BATCH, &s->b.inputs));
    TRY(take(s, s->sizes->grid, ASHLAR_TAG_BATCH, &s->b.targets));
    TRY(take(s, s->sizes->lengths, ASHLAR_TAG_BATCH, &s->b.lengths));
    TRY(copy(s, s->b.inputs, s->batch->inputs, grid_bytes));
    TRY(copy(s, s->b.targets, s->batch->targets, grid_bytes));
    return copy(s, s->b.lengths, s->batch->lengths, lengths_bytes);
}

static ashlar_embedding_args embedding_args(const step *s) {
    return (ashlar_embedding_args){
        .steps = s->batch->steps,
        .batch = s->count,
        .lengths = s->b.lengths,
        .classes = s->model->config.classes,
        .width = s->model->config.embedding,
        .tokens = s->b.inputs,
        .table = s->model->parameters.embedding,
        .out = s->b.x,
        .dout = s->b.dx,
        .dtable = s->model->gradients.embedding,
    };
}

static ashlar_linear_args linear_args(const step *s) {
    return (ashlar_linear_args){
        .rows = s->batch->steps * s->count,
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

static ashlar_loss_args loss_args(const step *s) {
    return (ashlar_loss_args){
        .steps = s->batch->steps,
        .batch = s->count,
        .lengths = s->b.lengths,
        .classes = s->model->config.classes,
        .logits = s->b.logits,
        .targets = s->b.targets,
        .dlogits = s->b.logits,
        .scale = s->model->loss_scale,
        .work = s->b.loss_work,
        .loss = &s->results->loss,
    };
}

static ashlar_rnn_batch rnn_batch(const step *s) {
    return (ashlar_rnn_batch){
        .steps = s->batch->steps,
        .batch = s->count,
        .lengths = s->batch->lengths,
        .dropout_seed = s->model->dropout_seed,
    };
}

static ashlar_rnn_buffers rnn_buffers(const step *s) {
    return (ashlar_rnn_buffers){
        .reserve = s->b.reserve,
        .work = s->b.work,
        .x = s->b.x,
        .weights = s->model->parameters.stack,
        .y = s->b.y,
        .dy = s->b.dy,
        .dx = s->b.dx,
        .dweights = s->model->gradients.stack,
    };
}

typedef ashlar_status (*rnn_pass)(const ashlar_rnn *, const ashlar_rnn_batch *,
                                  const ashlar_rnn_buffers *, ashlar_stream);

/* One pass of the RNN, with a workspace for just that long. */
static ashlar_status run_rnn(step *s, rnn_pass pass) {
    TRY(take(s, s->sizes->work, ASHLAR_TAG_WORKSPACE, &s->b.work));
    if (!s->is_rehearsal) {
        const ashlar_rnn_batch batch = rnn_batch(s);
        const ashlar_rnn_buffers all = rnn_buffers(s);
        TRY(pass(s->model->rnn, &batch, &all, s->model->stream));
    }
    return give(s, &s->b.work);
}

/* From y to the loss and the gradient of the logits. */
static ashlar_status run_loss(step *s) {
    const ashlar_model *m = s->model;
    if (s->sizes->loss_work > 0) {
        TRY(take(s, s->sizes->loss_work, ASHLAR_TAG_WORKSPACE, &s->b.loss_work));
    }
    if (!s->is_rehearsal) {
        const ashlar_linear_args linear = linear_args(s);
        const ashlar_loss_args loss = loss_args(s);
        TRY(ashlar_ops_linear_forward(m->ops, &linear, m->stream));
        TRY(ashlar_ops_loss(m->ops, &loss, m->stream));
    }
    return give(s, &s->b.loss_work);
}

static ashlar_status forward(step *s) {
    const ashlar_model *m = s->model;
    TRY(take(s, s->sizes->x, ASHLAR_TAG_ACTIVATIONS, &s->b.x));
    if (!s->is_rehearsal) {
        const ashlar_embedding_args embedding = embedding_args(s);
        TRY(ashlar_ops_embedding_forward(m->ops, &embedding, m->stream));
    }
    TRY(take(s, s->sizes->reserve, ASHLAR_TAG_RESERVE, &s->b.reserve));
    TRY(take(s, s->sizes->y, ASHLAR_TAG_ACTIVATIONS, &s->b.y));
    /*
     * The logits are taken before the RNN needs its workspace: so they lie beside y, backward
     * gives both back at once, and its workspace fits into the one hole they leave. It does not
     * raise the peak, which is reached when dy takes the place of this workspace.
     */
    TRY(take(s, s->sizes->logits, ASHLAR_TAG_ACTIVATIONS, &s->b.logits));
    TRY(run_rnn(s, ashlar_rnn_forward));
    return run_loss(s);
}

static ashlar_status backward(step *s) {
    const ashlar_model *m = s->model;
    TRY(take(s, s->sizes->y, ASHLAR_TAG_ACTIVATIONS, &s->b.dy));
    if (!s->is_rehearsal) {
        const ashlar_linear_args linear = linear_args(s);
        TRY(ashlar_ops_linear_backward(m->ops, &linear, m->stream));
    }
    TRY(give(s, &s->b.logits));
    if (!ashlar_rnn_backward_reads_output(m->rnn)) {
        TRY(give(s, &s->b.y));
    }
    TRY(take(s, s->sizes->x, ASHLAR_TAG_ACTIVATIONS, &s->b.dx));
    TRY(run_rnn(s, ashlar_rnn_backward_data));
    TRY(give(s, &s->b.dy));
    TRY(run_rnn(s, ashlar_rnn_backward_weights));
    TRY(give(s, &s->b.y));
    if (s->is_rehearsal) {
        return ASHLAR_OK;
    }
    const ashlar_embedding_args embedding = embedding_args(s);
    return ashlar_ops_embedding_backward(m->ops, &embedding, m->stream);
}

/* Give back all that is still held, after success and failure alike. */
static ashlar_status give_all(const step *s, buffers *b) {
    void **const all[] = {&b->inputs, &b->targets, &b->lengths, &b->x,    &b->y,        &b->logits,
                          &b->dy,     &b->dx,      &b->reserve, &b->work, &b->loss_work};
    ashlar_status first = ASHLAR_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const ashlar_status status = give(s, all[i]);
        first = first == ASHLAR_OK ? status : first;
    }
    return first;
}

static ashlar_status run(step *s) {
    ashlar_status status = upload(s);
    if (status == ASHLAR_OK) {
        status = clear_sums(s);
    }
    if (status == ASHLAR_OK) {
        status = forward(s);
    }
    if (status == ASHLAR_OK) {
        status = backward(s);
    }
    const ashlar_status given = give_all(s, &s->b);
    return status == ASHLAR_OK ? given : status;
}

ashlar_status ashlar_model_step(ashlar_model *model, const ashlar_batch *batch, size_t count,
                                const ashlar_step_sizes *sizes, ashlar_step_results *results) {
    step s = {.model = model, .batch = batch, .count = count, .sizes = sizes, .results = results};
    return run(&s);
}

ashlar_status ashlar_model_rehearse(ashlar_model *model, const ashlar_step_sizes *sizes) {
    const ashlar_batch nothing = {0};
    ashlar_step_results unused;
    step s = {.model = model,
              .batch = &nothing,
              .sizes = sizes,
              .results = &unused,
              .is_rehearsal = true};
    return run(&s);
}
