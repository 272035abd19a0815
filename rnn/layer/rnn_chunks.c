/* rnn_chunks.c - cuts a pass over very many time steps into chunks that carry states. */
#include "rnn/layer/rnn_chunks.h"

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { ALIGN = 256 }; /* bytes, of all parts of reserve and work */

/* How a pass is cut. `cells`, `set` and `reserve` are multiples of ALIGN. */
typedef struct chunks {
    size_t count;
    size_t steps, rest; /* steps of each chunk but the last; steps of the last */
    size_t cells, set;  /* offset of c in a set of states, and the set's size */
    size_t reserve, last_reserve;
    size_t work;
} chunks;

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool state_bytes(const ashlar_rnn_layout *l, size_t batch, size_t width, size_t *out) {
    return ashlar__mul(l->pseudo_layers, batch, out) && ashlar__mul(*out, width, out) &&
           ashlar__mul(*out, ashlar_dtype_bytes(l->config.dtype), out) &&
           ashlar__align_up(*out, ALIGN, out);
}

#define TOO_LARGE "rnn: a batch of %zu sequences of %zu steps is too large to address"

static ashlar_status cut(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                         chunks *c) {
    const ashlar_rnn_layout *l = &rnn->layout;
    size_t reserve, work, last_work, cells = 0;
    ASHLAR_FAIL_IF(
        l->config.directions != 1, ASHLAR_ENOTSUP,
        "rnn: %zu time steps; more than %zu need a stack of one direction: cuDNN takes no "
        "more at once, and the reverse direction cannot be cut",
        steps, rnn->most_steps);
    ASHLAR_FAIL_IF(steps > INT32_MAX, ASHLAR_EOVERFLOW, /* lengths are int32 */
                   TOO_LARGE, batch, steps);
    /*
     * Chunks of about equal size: if the last one had only a step or so, the CPU might round
     * differently.
     */
    *c = (chunks){.count = (steps - 1) / rnn->most_steps + 1};
    c->steps = (steps - 1) / c->count + 1;
    c->rest = steps - (c->count - 1) * c->steps;
    ASHLAR_FAIL_IF(!state_bytes(l, batch, l->state, &c->cells) ||
                       (l->config.cell == ASHLAR_RNN_LSTM &&
                        !state_bytes(l, batch, l->config.hidden, &cells)) ||
                       !ashlar__add(c->cells, cells, &c->set),
                   ASHLAR_EOVERFLOW, TOO_LARGE, batch, steps);
    ASHLAR_TRY(rnn->backend->sizes(rnn, c->steps, batch, training, &reserve, &work));
    ASHLAR_TRY(rnn->backend->sizes(rnn, c->rest, batch, training, &c->last_reserve, &last_work));
    ASHLAR_FAIL_IF(!ashlar__align_up(reserve, ALIGN, &c->reserve), ASHLAR_EOVERFLOW, TOO_LARGE,
                   batch, steps);
    c->work = max_of(work, last_work);
    return ASHLAR_OK;
}

ashlar_status ashlar__rnn_chunks_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch,
                                       bool training, size_t *reserve_bytes, size_t *work_bytes) {
    chunks c;
    size_t each, reserve = 0, work;
    ASHLAR_TRY(cut(rnn, steps, batch, training, &c));
    ASHLAR_FAIL_IF(!ashlar__add(c.reserve, c.set, &each) ||
                       !ashlar__mul(each, c.count - 1, &reserve) ||
                       !ashlar__add(reserve, c.last_reserve, &reserve) ||
                       !ashlar__mul(c.set, 2, &work) || !ashlar__add(work, c.work, &work),
                   ASHLAR_EOVERFLOW, TOO_LARGE, batch, steps);
    *reserve_bytes = training ? reserve : 0;
    *work_bytes = work;
    return ASHLAR_OK;
}

/* One pass in chunks. */
typedef struct pass_over {
    const ashlar_rnn *rnn;
    ashlar_rnn_pass pass;
    const ashlar_rnn_batch *batch;
    const ashlar_rnn_buffers *b;
    ashlar_stream stream;
    chunks cut;
    int32_t *lengths; /* [B] of a chunk */
} pass_over;

/* Row 0 of chunk i in a buffer [T, B, width]; NULL stays NULL. */
static void *rows(const pass_over *p, const void *buffer, size_t i, size_t width) {
    const size_t row = p->batch->batch * width * ashlar_dtype_bytes(p->rnn->layout.config.dtype);
    return buffer == NULL ? NULL : (char *)buffer + i * p->cut.steps * row;
}

/* The states behind chunk i: kept in training, otherwise alternating between two sets. */
static char *border(const pass_over *p, size_t i) {
    return p->b->reserve != NULL ? (char *)p->b->reserve + i * p->cut.set
                                 : (char *)p->b->work + i % 2 * p->cut.set;
}

/* The gradients of the states before chunk i. */
static char *gradients(const pass_over *p, size_t i) {
    return (char *)p->b->work + i % 2 * p->cut.set;
}

static ashlar_rnn_buffers buffers_of(const pass_over *p, size_t i) {
    const ashlar_rnn_layout *l = &p->rnn->layout;
    const bool is_last = i + 1 == p->cut.count;
    const bool has_cells = l->config.cell == ASHLAR_RNN_LSTM;
    ashlar_rnn_buffers b = *p->b;
    b.x = rows(p, b.x, i, l->config.input);
    b.dx = rows(p, b.dx, i, l->config.input);
    b.y = rows(p, b.y, i, l->output);
    b.dy = rows(p, b.dy, i, l->output);
    b.work = (char *)b.work + 2 * p->cut.set;
    if (b.reserve != NULL) {
        b.reserve = (char *)b.reserve + (p->cut.count - 1) * p->cut.set + i * p->cut.reserve;
    }
    if (i > 0) {
        b.hx = border(p, i - 1);
        b.cx = has_cells ? border(p, i - 1) + p->cut.cells : NULL;
        b.dhx = gradients(p, i);
        b.dcx = has_cells ? gradients(p, i) + p->cut.cells : NULL;
    }
    if (!is_last) {
        b.hy = border(p, i);
        b.cy = has_cells ? border(p, i) + p->cut.cells : NULL;
        b.dhy = gradients(p, i + 1);
        b.dcy = has_cells ? gradients(p, i + 1) + p->cut.cells : NULL;
    }
    return b;
}

/* Chunks have seeds of their own, so that dropout does not repeat itself. */
static ashlar_status queue_chunk(const pass_over *p, size_t i) {
    const ashlar_rnn_buffers b = buffers_of(p, i);
    ashlar_rnn_batch batch = *p->batch;
    batch.steps = i + 1 == p->cut.count ? p->cut.rest : p->cut.steps;
    batch.lengths = p->lengths;
    batch.padding_is_free = false; /* the next chunk reads the states behind it */
    batch.dropout_seed += i == 0 ? 0 : ashlar__random_mix(i);
    for (size_t s = 0; s < batch.batch; s++) {
        const size_t left = (size_t)p->batch->lengths[s] - i * p->cut.steps;
        p->lengths[s] = (int32_t)(left < batch.steps ? left : batch.steps);
    }
    return p->rnn->backend->queue(p->rnn, p->pass, &batch, &b, p->stream);
}

static ashlar_status check_lengths(const pass_over *p) {
    const size_t before = (p->cut.count - 1) * p->cut.steps;
    for (size_t s = 0; s < p->batch->batch; s++) {
        ASHLAR_FAIL_IF((size_t)p->batch->lengths[s] <= before, ASHLAR_ENOTSUP,
                       "rnn: lengths[%zu] is %d; in a batch of %zu time steps, which is cut into "
                       "chunks of %zu, each must be above %zu",
                       s, (int)p->batch->lengths[s], p->batch->steps, p->cut.steps, before);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__rnn_chunks_queue(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                       const ashlar_rnn_batch *batch,
                                       const ashlar_rnn_buffers *buffers, ashlar_stream stream) {
    pass_over p = {.rnn = rnn, .pass = pass, .batch = batch, .b = buffers, .stream = stream};
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(cut(rnn, batch->steps, batch->batch, buffers->reserve != NULL, &p.cut));
    ASHLAR_TRY(check_lengths(&p));
    ASHLAR_HOST_NEW(p.lengths, batch->batch, "no host memory to queue a batch of %zu",
                    batch->batch);
    for (size_t k = 0; k < p.cut.count && status == ASHLAR_OK; k++) {
        status = queue_chunk(&p, pass == ASHLAR_RNN_FORWARD ? k : p.cut.count - 1 - k);
    }
    ashlar__host_free(p.lengths);
    return status;
}
