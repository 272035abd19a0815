/* choice.c - the tiers of a walk's chunks, chosen once for walks of as many; what is told of them.
 */
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "rnn/engine/engine.h"

/* The arrays of a table for n chunks. */
typedef struct arrays {
    ashlar_tiers_moment *moments; /* [2 n - 1] */
    ashlar_tiers_item *items;     /* [n - 1] what each chunk but the last keeps */
    ashlar_tiers_place *places;   /* likewise */
} arrays;

/* Moments are the chunks forward, the last of which goes both ways at once, and then backward. In
 * each is room for all buffers of one chunk, so that what is computed again needs no more. Chunks
 * that keep nothing have no slots, and are all computed again. */
static ashlar_tiers_table fill_chunks(const ashlar_walking *w, const arrays *a) {
    const size_t n = w->chunk_count, kept = w->plan->kept_bytes;
    const size_t one = w->plan->bytes - w->plan->slot_count * kept;
    const size_t split = w->table->split, end = w->table->phase_count;
    const uint64_t early = ashlar__walk_phases_ns(w->model, w->table, w->plan, 0, split);
    const uint64_t late = ashlar__walk_phases_ns(w->model, w->table, w->plan, split, end);
    for (size_t k = 0; k + 1 < 2 * n; k++) {
        a->moments[k] = (ashlar_tiers_moment){(k < n ? early : 0) + (k + 1 < n ? 0 : late), one};
    }
    for (size_t i = 0; i + 1 < n; i++) {
        const size_t back = 2 * n - 2 - i;
        a->items[i] = (ashlar_tiers_item){kept > 0 ? kept : 1, i, i, back, back, early, true};
    }
    ashlar_tiers_table table = {.moments = a->moments,
                                .moment_count = 2 * n - 1,
                                .items = a->items,
                                .item_count = n - 1,
                                .host_bytes = w->plan->host_bytes};
    ashlar__walk_copy_rates(w->model, &table);
    return table;
}

static ashlar_status choose(const ashlar_walking *w, ashlar_walk_tiers *t) {
    const size_t n = w->chunk_count;
    arrays a;
    char *memory;
    ASHLAR_HOST_NEW(memory, n * (2 * sizeof *a.moments + sizeof *a.items + sizeof *a.places),
                    "no host memory for the tiers of %zu chunks", n);
    a.moments = (ashlar_tiers_moment *)(void *)memory;
    a.items = (ashlar_tiers_item *)(void *)(a.moments + 2 * n);
    a.places = (ashlar_tiers_place *)(a.items + n);
    const ashlar_tiers_table table = fill_chunks(w, &a);
    const ashlar_status status = ashlar__tiers_choose(&table, w->plan->bytes, a.places, &t->choice);
    for (size_t i = 0; i < n && status == ASHLAR_OK; i++) {
        t->of[i] = (unsigned char)(i + 1 < n ? a.places[i].tier : ASHLAR_TIER_RECOMPUTED);
    }
    ashlar__host_free(memory);
    return status;
}

static ashlar_status new_tiers(const ashlar_walking *w, ashlar_walk_tiers **out) {
    ashlar_walk_tiers *t = ashlar__host_calloc(1, sizeof *t + w->chunk_count);
    ASHLAR_FAIL_IF(t == NULL, ASHLAR_EHOSTMEM, "no host memory for the tiers of %zu chunks",
                   w->chunk_count);
    t->batch = w->batch.batch;
    t->chunk = w->plan->shape.chunk;
    t->chunk_count = w->chunk_count;
    t->slot_count = w->plan->slot_count;
    ASHLAR_HAND_OUT(choose(w, t), t, ashlar__host_free, out);
}

ashlar_status ashlar__walk_tiers_get(const ashlar_walking *w, const ashlar_walk_tiers **out) {
    ashlar_walk_tiers *t = w->table->tiers;
    while (t != NULL &&
           (t->batch != w->batch.batch || t->chunk != w->plan->shape.chunk ||
            t->chunk_count != w->chunk_count || t->slot_count != w->plan->slot_count)) {
        t = t->next;
    }
    if (t == NULL) {
        ASHLAR_TRY(new_tiers(w, &t));
        t->next = w->table->tiers;
        w->table->tiers = t;
    }
    *out = t;
    return ASHLAR_OK;
}

/* ---- what is said of them ---- */

/* Of a walk that is not cut; nothing moves if it has enough. */
static ashlar_status tell_uncut(const ashlar_walking *w, ashlar_model_tiers *out,
                                ashlar_tiers_choice *choice) {
    *choice = w->plan->choice;
    if (w->plan->move_count == 0) {
        choice->ns = choice->compute_ns =
            ashlar__walk_phases_ns(w->model, w->table, w->plan, 0, w->table->phase_count);
    }
    ASHLAR_TRY(ashlar__moves_least(w, &out->least_bytes, &out->resident_bytes));
    out->resident_bytes -= choice->bytes[ASHLAR_TIER_HOST];
    return ASHLAR_OK;
}

static ashlar_status tell_chunks(const ashlar_walking *w, ashlar_model_tiers *out,
                                 ashlar_tiers_choice *choice) {
    const ashlar_walk_tiers *t;
    const size_t kept = w->plan->kept_bytes;
    ASHLAR_TRY(ashlar__walk_tiers_get(w, &t));
    *choice = t->choice;
    out->least_bytes = w->plan->bytes - w->plan->slot_count * kept;
    out->resident_bytes = choice->bytes[ASHLAR_TIER_RESIDENT] + kept;
    return ASHLAR_OK;
}

ashlar_status ashlar__walk_tiers_tell(const ashlar_walking *w, ashlar_model_tiers *out) {
    ashlar_tiers_choice choice;
    ashlar_tiers_table rates;
    ashlar_model_tiers told = {0};
    ASHLAR_TRY(w->table->key.is_cut ? tell_chunks(w, &told, &choice)
                                    : tell_uncut(w, &told, &choice));
    ashlar__walk_copy_rates(w->model, &rates);
    told.host_bytes = choice.bytes[ASHLAR_TIER_HOST];
    told.recomputed_bytes = choice.bytes[ASHLAR_TIER_RECOMPUTED];
    told.seconds = (double)choice.ns * 1e-9;
    told.time = (double)choice.ns / (double)choice.compute_ns;
    told.copy_bytes =
        1e6 * (double)(rates.out_bytes_per_us < rates.back_bytes_per_us ? rates.out_bytes_per_us
                                                                        : rates.back_bytes_per_us);
    *out = told;
    return ASHLAR_OK;
}
