/* chunks.c - a walk in chunks of time. In training, what a chunk keeps from its forward to its
 * backward pass stays in the walk's block, goes to the host meanwhile, or is computed again. */
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"
#include "rnn/engine/engine.h"
#include "rnn/layer/ops.h"

/*
 * A training first goes through all chunks but the last with what leads to carried states (the
 * phases before the split), then through all from the last to the first with the rest. The block
 * has room for all buffers of one chunk, and slots for what so many others keep:
 *
 *     lengths, states between chunks, a chunk's buffers | slot 0 | slot 1 | ...
 *
 * RESIDENT    keeps in a slot until it has gone back
 * HOST        keeps in a slot until it is copied out; then that is free. Going back, each slot that
 *             is free receives the next chunk that is on the host, until all are back
 * RECOMPUTED  keeps nothing: it goes forward again among the buffers of one chunk, as the last
 *             chunk does for its first time
 *
 * Slots are taken in the order in which they became free; an event says from when on: behind the
 * copy out, or behind the work of the chunk that had it. When a chunk has been copied back, the
 * same event says so. The order in which chunks go back, and so every sum, does not depend on what
 * is kept where.
 */
typedef struct chunks {
    ashlar_walking *w;
    const ashlar_walk_tiers *tiers;
    size_t *slots;            /* [chunks] of those that have one */
    size_t *free;             /* [slot_count] a ring */
    bool *is_pending;         /* [slot_count] its event has to be waited for */
    size_t taken, free_count; /* takes so far; slots that are free */
    size_t away;              /* chunks on the host */
    size_t fetched;           /* the last chunk that was brought back, or their number */
} chunks;

/* Make chunk `index` the present one. Recurrent layers take lengths of 1 and more from the host:
 * what they compute for a sequence that is over is not read. */
static void go_to_chunk(ashlar_walking *w, size_t index) {
    const size_t longest = w->plan->shape.chunk, steps = w->batch.steps;
    const int32_t *lengths = w->batch.lengths;
    ashlar_extent *e = &w->extents[ASHLAR_AXIS_TIME];
    w->chunk = index;
    w->first_step = index * longest;
    e->steps = steps - w->first_step < longest ? steps - w->first_step : longest;
    int32_t *const at = ashlar__walk_at(w, w->table->lengths[ASHLAR_AXIS_TIME]);
    e->lengths_at = at == NULL ? NULL : at + index * e->rows;
    for (size_t b = 0; b < e->rows && lengths != NULL; b++) {
        const int64_t left = (int64_t)lengths[b] - (int64_t)w->first_step;
        w->clipped[b] = left < 1 ? 1 : left < (int64_t)e->steps ? (int32_t)left : (int32_t)e->steps;
    }
    e->lengths = lengths == NULL ? NULL : w->clipped;
}

/* ---- slots ---- */

/* A slot, and where in host memory the chunk that went there as number `number` lies. */
static ashlar_away_place place_of(const chunks *c, size_t slot, size_t number) {
    const ashlar_walk_plan *plan = c->w->plan;
    const ashlar_away *away = &c->w->model->away;
    return (ashlar_away_place){.device = c->w->block + plan->slots_at + slot * plan->kept_bytes,
                               .host = away->host == NULL ? NULL
                                                          : away->host + number * plan->kept_bytes,
                               .bytes = plan->kept_bytes,
                               .event = slot < away->event_count ? away->events[slot] : NULL};
}

static ashlar_status wait_for_slot(chunks *c, size_t slot) {
    const ashlar_walking *w = c->w;
    const bool waits = c->is_pending[slot];
    c->is_pending[slot] = false;
    return waits ? ashlar__away_wait(&w->model->away, w->stream, place_of(c, slot, 0).event)
                 : ASHLAR_OK;
}

static size_t take_slot(chunks *c) {
    ASHLAR_CHECK2(c->free_count > 0);
    c->free_count--;
    return c->free[c->taken++ % c->w->plan->slot_count];
}

static void free_slot(chunks *c, size_t slot) {
    ASHLAR_CHECK2(c->free_count < c->w->plan->slot_count);
    c->free[(c->taken + c->free_count++) % c->w->plan->slot_count] = slot;
}

/* Bring chunks back while there is room. */
static ashlar_status fetch(chunks *c) {
    while (c->away > 0 && c->free_count > 0) {
        do {
            c->fetched--;
        } while (c->tiers->of[c->fetched] != ASHLAR_TIER_HOST);
        const size_t slot = c->slots[c->fetched] = take_slot(c);
        const ashlar_away_place place = place_of(c, slot, --c->away);
        ASHLAR_TRY(ashlar__away_fetch(&c->w->model->away, &place, c->is_pending[slot]));
        c->is_pending[slot] = true;
    }
    return ASHLAR_OK;
}

/* ---- training ---- */

/* Tell a trace of more or fewer bytes of chunks that are kept, or are to be computed again. */
static void trace(const ashlar_walking *w, const char *tier, bool is_less) {
    ashlar__soft_trace_bytes(w->stream, tier, w->plan->kept_bytes, is_less);
}

static ashlar_status go_forward(chunks *c, size_t index) {
    ashlar_walking *w = c->w;
    const ashlar_tier tier = (ashlar_tier)c->tiers->of[index];
    size_t slot = 0;
    go_to_chunk(w, index);
    w->is_early = true;
    w->kept = NULL;
    if (tier != ASHLAR_TIER_RECOMPUTED) {
        c->slots[index] = slot = take_slot(c);
        ASHLAR_TRY(wait_for_slot(c, slot));
        w->kept = place_of(c, slot, 0).device;
    }
    trace(w, tier == ASHLAR_TIER_RECOMPUTED ? "computed again" : "resident", false);
    ASHLAR_TRY(ashlar__walk_queue(w, 0, w->table->split));
    if (tier == ASHLAR_TIER_HOST) {
        const ashlar_away_place place = place_of(c, slot, c->away++);
        ASHLAR_TRY(ashlar__away_send(&w->model->away, &place, w->stream));
        c->is_pending[slot] = true;
        free_slot(c, slot);
    }
    return ASHLAR_OK;
}

static ashlar_status go_backward(chunks *c, size_t index) {
    ashlar_walking *w = c->w;
    go_to_chunk(w, index);
    w->is_early = false;
    w->kept = NULL;
    if (c->tiers->of[index] == ASHLAR_TIER_RECOMPUTED) {
        trace(w, "resident", false);
        if (index + 1 < w->chunk_count) {
            trace(w, "computed again", true);
        }
        const ashlar_status status = ashlar__walk_queue(w, 0, w->table->phase_count);
        trace(w, "resident", true);
        return status;
    }
    const size_t slot = c->slots[index];
    ASHLAR_TRY(wait_for_slot(c, slot));
    w->kept = place_of(c, slot, 0).device;
    ASHLAR_TRY(ashlar__walk_queue(w, w->table->split, w->table->phase_count));
    trace(w, "resident", true);
    if (c->away > 0) {
        ASHLAR_TRY(ashlar__away_record(&w->model->away, place_of(c, slot, 0).event, w->stream));
        c->is_pending[slot] = true;
    }
    free_slot(c, slot);
    return fetch(c);
}

static ashlar_status train(chunks *c) {
    const size_t count = c->w->chunk_count;
    for (size_t i = 0; i < c->w->plan->slot_count; i++) {
        free_slot(c, i);
    }
    for (size_t i = 0; i + 1 < count; i++) {
        ASHLAR_TRY(go_forward(c, i));
    }
    ASHLAR_TRY(c->away > 0 ? ashlar__away_follow(&c->w->model->away, c->w->model->away.out)
                           : ASHLAR_OK);
    c->fetched = count;
    ASHLAR_TRY(fetch(c));
    for (size_t i = count; i-- > 0;) {
        ASHLAR_TRY(go_backward(c, i));
    }
    return ASHLAR_OK;
}

/* ---- the walk ---- */

/* Add up each loss in the order of time, whatever the order and the length of the chunks was: with
 * the bits of one piece. */
static ashlar_status add_losses(const ashlar_walking *w) {
    for (size_t n = 0; n < w->model->node_count; n++) {
        const ashlar_add_losses_args args = {
            .positions = w->batch.steps * w->extents[ASHLAR_AXIS_TIME].rows,
            .losses = ashlar__walk_at(w, w->table->nodes[n].losses),
            .weight = w->batch.weight,
            .weight_at = w->batch.weight_at,
            .factor = w->model->nodes[n]->loss_factor,
            .loss = w->batch.loss};
        ASHLAR_TRY(args.losses == NULL ? ASHLAR_OK
                                       : ashlar__ops_add_losses(w->model->ops, &args, w->stream));
    }
    return ASHLAR_OK;
}

static ashlar_status run(chunks *c) {
    ashlar_walking *w = c->w;
    if (w->table->key.walk == ASHLAR_WALK_TRAIN) {
        ashlar_status status = ashlar__walk_tiers_get(w, &c->tiers);
        ASHLAR_THEN(status, train(c));
        return status == ASHLAR_OK || w->plan->host_bytes == 0
                   ? status
                   : ashlar__away_join(&w->model->away, w->stream, status);
    }
    for (size_t i = 0; i < w->chunk_count; i++) {
        go_to_chunk(w, i);
        ASHLAR_TRY(ashlar__walk_queue(w, 0, w->table->phase_count));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__walk_chunks(ashlar_walking *w) {
    const size_t rows = w->extents[ASHLAR_AXIS_TIME].rows, slots = w->plan->slot_count;
    const size_t indices = (w->chunk_count + slots) * sizeof(size_t);
    char *memory;
    ASHLAR_HOST_NEW(memory, indices + rows * sizeof *w->clipped + slots * sizeof(bool),
                    "no host memory for %zu chunks of %zu sequences", w->chunk_count, rows);
    chunks c = {.w = w, .slots = (size_t *)(void *)memory};
    c.free = c.slots + w->chunk_count;
    w->clipped = (int32_t *)(void *)(memory + indices);
    c.is_pending = (bool *)(w->clipped + rows);
    ashlar_status status = run(&c);
    ASHLAR_THEN(status, add_losses(w));
    ashlar__host_free(memory);
    return status;
}
