/* moves_walk.c - a walk whose buffers move to the host and back: what waits for what. */
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"
#include "rnn/engine/engine.h"

typedef struct moving {
    ashlar_walking *w;
    bool *is_sent, *is_awaited; /* [move_count] is_awaited: by the walk's stream */
} moving;

static ashlar_away_place place_of(const moving *v, size_t move, bool is_back) {
    const ashlar_walk_plan *plan = v->w->plan;
    const ashlar_walk_move *m = &plan->moves[move];
    const ashlar_walk_place *place = &plan->places[m->buffer];
    return (ashlar_away_place){.device = v->w->block + (is_back ? m->back_at : place->offset),
                               .host = v->w->model->away.host + m->host,
                               .bytes = place->bytes,
                               .event = v->w->model->away.events[move]};
}

/* Have a stream wait for all copies out of these addresses. */
static ashlar_status wait_for_space(const moving *v, const char *device, size_t bytes,
                                    ashlar_stream stream) {
    for (size_t i = 0; i < v->w->plan->move_count; i++) {
        const ashlar_away_place out = place_of(v, i, false);
        if (v->is_sent[i] && !v->is_awaited[i] && device < out.device + out.bytes &&
            out.device < device + bytes) {
            v->is_awaited[i] = stream == v->w->stream;
            ASHLAR_TRY(ashlar__away_wait(&v->w->model->away, stream, out.event));
        }
    }
    return ASHLAR_OK;
}

/* What is fetched in a phase comes behind the work before it, which may have used its place. */
static ashlar_status fetch(const moving *v, size_t phase) {
    const ashlar_walk_plan *plan = v->w->plan;
    bool is_first = true;
    for (size_t i = 0; i < plan->move_count; i++) {
        if (plan->moves[i].back_begin == phase) {
            const ashlar_away_place back = place_of(v, i, true);
            ASHLAR_TRY(is_first ? ashlar__away_follow(&v->w->model->away, v->w->stream)
                                : ASHLAR_OK);
            ASHLAR_TRY(wait_for_space(v, back.device, back.bytes, v->w->model->away.back));
            ASHLAR_TRY(ashlar__away_fetch(&v->w->model->away, &back, true));
            is_first = false;
        }
    }
    return ASHLAR_OK;
}

/* Buffers that begin in a phase, and those that it reads again. */
static ashlar_status wait_before(const moving *v, size_t phase) {
    const ashlar_walk_table *t = v->w->table;
    const ashlar_walk_plan *plan = v->w->plan;
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_walk_place *place = &plan->places[i];
        if (t->buffers[i].home == i && t->buffers[i].first == phase && place->bytes > 0) {
            ASHLAR_TRY(wait_for_space(v, v->w->block + place->offset, place->bytes, v->w->stream));
        }
    }
    for (size_t i = 0; i < plan->move_count; i++) {
        if (plan->moves[i].resume == phase) {
            ASHLAR_TRY(
                ashlar__away_wait(&v->w->model->away, v->w->stream, place_of(v, i, true).event));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status send(const moving *v, size_t phase) {
    for (size_t i = 0; i < v->w->plan->move_count; i++) {
        if (v->w->plan->moves[i].pause == phase) {
            const ashlar_away_place out = place_of(v, i, false);
            ASHLAR_TRY(ashlar__away_send(&v->w->model->away, &out, v->w->stream));
            v->is_sent[i] = true;
        }
    }
    return ASHLAR_OK;
}

/* Tell a trace what buffers begin in a phase, or end. */
static void trace(const moving *v, size_t phase, bool is_end) {
    const ashlar_walk_table *t = v->w->table;
    for (size_t i = 0; ashlar__soft_is_traced() && i < t->buffer_count; i++) {
        const ashlar_walk_buffer *b = &t->buffers[i];
        if (b->home == i && (is_end ? b->last : b->first) == phase) {
            ashlar__soft_trace_bytes(v->w->stream, "resident", v->w->plan->places[i].bytes, is_end);
        }
    }
}

static ashlar_status queue_all(const moving *v) {
    for (size_t p = 0; p < v->w->table->phase_count; p++) {
        v->w->phase = p;
        ASHLAR_TRY(fetch(v, p));
        ASHLAR_TRY(wait_before(v, p));
        trace(v, p, false);
        ASHLAR_TRY(ashlar__walk_queue(v->w, p, p + 1));
        trace(v, p, true);
        ASHLAR_TRY(send(v, p));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__moves_queue(ashlar_walking *w) {
    const size_t count = w->plan->move_count;
    moving v = {.w = w};
    ASHLAR_HOST_NEW(v.is_sent, 2 * count, "no host memory for %zu buffers on the host", count);
    v.is_awaited = v.is_sent + count;
    const ashlar_status status = queue_all(&v);
    ashlar__host_free(v.is_sent);
    return status == ASHLAR_OK ? status : ashlar__away_join(&w->model->away, w->stream, status);
}
