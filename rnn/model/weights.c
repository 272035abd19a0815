/* weights.c - declares, binds and draws a model's weights. */
#include "rnn/model/weights.h"

#include <stdio.h>

#include "allocator/base/error.h"

static ashlar_status declare(const ashlar_weights *w, const ashlar_weight *one, ashlar_arena *arena,
                             size_t *tensor) {
    if (one->rank > 0) {
        return ashlar_arena_add(arena, one->name, w->dtype, one->rank,
                                (size_t[]){one->rows, one->cols}, tensor);
    }
    char name[32];
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(one->stack);
    (void)snprintf(name, sizeof name, "%s%s", one->name, ashlar_rnn_cell_name(layout->config.cell));
    return ashlar_rnn_declare(arena, name, layout, tensor);
}

ashlar_status ashlar__weights_open(const ashlar_weights *w, unsigned regions,
                                   ashlar_arena **arena) {
    size_t tensors[ASHLAR_WEIGHTS_MAX];
    ASHLAR_TRY(ashlar_arena_create(arena));
    for (size_t i = 0; i < w->count; i++) {
        ASHLAR_TRY(declare(w, &w->list[i], *arena, &tensors[i]));
    }
    ASHLAR_TRY(ashlar_arena_commit(*arena, w->allocator, w->stream, regions));
    for (size_t i = 0; i < w->count; i++) {
        const ashlar_weight *one = &w->list[i];
        ASHLAR_TRY(ashlar_arena_bind(*arena, ASHLAR_REGION_PARAMETERS, tensors[i], one->parameter));
        if ((regions & ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS)) != 0) {
            ASHLAR_TRY(
                ashlar_arena_bind(*arena, ASHLAR_REGION_GRADIENTS, tensors[i], one->gradient));
        }
    }
    return ASHLAR_OK;
}

/* The number of a weight's tensor, or of a stack's first one. */
static size_t tensor_of(const ashlar_arena *arena, const ashlar_weight *one) {
    size_t i = 0;
    while (ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i) != *one->parameter) {
        i++;
    }
    return i;
}

ashlar_status ashlar__weights_draw(const ashlar_weights *w, ashlar_arena *arena, uint64_t seed) {
    ashlar_part parts[ASHLAR_WEIGHTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < w->count; i++) {
        const ashlar_weight *one = &w->list[i];
        if (one->rank != 1) { /* a bias belongs to the weight before it */
            parts[count++] = (ashlar_part){
                .kind = one->kind,
                .first = tensor_of(arena, one),
                .layout = one->rank == 0 ? ashlar_rnn_layout_of(one->stack) : NULL,
            };
        }
    }
    ASHLAR_TRY(ashlar_init_weights(arena, ASHLAR_INIT_ASHLAR, parts, count, seed, w->stream));
    return ashlar_stream_synchronize(ashlar_allocator_device(w->allocator), w->stream);
}
