/* weights.c - declares, binds and draws a model's weights. */
#include "rnn/model/weights.h"

#include <math.h>
#include <stdio.h>

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "arena/compute/convert.h"

double ashlar__weights_bound(size_t width) {
    return 1.0 / sqrt((double)width);
}

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

/* Add `value` to an element of the image of all parameters. */
static void add(ashlar_dtype dtype, char *image, size_t element, double value) {
    char *place = image + element * ashlar_dtype_bytes(dtype);
    double sum = 0;
    ashlar__convert(ASHLAR_F64, &sum, dtype, place, 1);
    sum += value;
    ashlar__convert(dtype, place, ASHLAR_F64, &sum, 1);
}

static void raise_forget_bias(ashlar_dtype dtype, char *image, size_t stack,
                              const ashlar_rnn_layout *layout) {
    const size_t hidden = layout->config.hidden;
    if (layout->config.cell != ASHLAR_RNN_LSTM) {
        return;
    }
    for (size_t p = 0; p < layout->pseudo_layers; p++) {
        const size_t bias = ashlar_rnn_layout_view(layout, p, ASHLAR_RNN_BW).offset;
        for (size_t j = hidden; j < 2 * hidden; j++) { /* gates i f g o */
            add(dtype, image, stack + bias + j, 1);
        }
    }
}

static void draw(const ashlar_weights *w, const ashlar_arena *arena, char *image, uint64_t seed) {
    const size_t item = ashlar_dtype_bytes(w->dtype);
    const char *const start = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    const ashlar_weight *one = w->list;
    ashlar_random random;
    ashlar__random_init(&random, seed);
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        const char *view = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i);
        one += one + 1 < w->list + w->count && view == *one[1].parameter; /* a stack has several */
        const size_t first = info.offset[ASHLAR_LAYOUT_STORAGE] / item;
        for (size_t j = 0; j < info.elements; j++) {
            add(w->dtype, image, first + j, one->bound * (2 * ashlar__random_uniform(&random) - 1));
        }
    }
    for (size_t i = 0; i < w->count; i++) {
        if (w->list[i].rank == 0) {
            raise_forget_bias(w->dtype, image,
                              (size_t)((char *)*w->list[i].parameter - start) / item,
                              ashlar_rnn_layout_of(w->list[i].stack));
        }
    }
}

ashlar_status ashlar__weights_draw(const ashlar_weights *w, const ashlar_arena *arena,
                                   uint64_t seed) {
    ashlar_device *device = ashlar_allocator_device(w->allocator);
    const size_t bytes = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS);
    char *image; /* padding stays zero */
    ASHLAR_HOST_NEW(image, bytes, "no host memory for %zu bytes of weights", bytes);
    draw(w, arena, image, seed);
    ashlar_status status = ashlar_copy_to_device(
        device, ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS), image, bytes, w->stream);
    ASHLAR_THEN(status, ashlar_stream_synchronize(device, w->stream));
    ashlar__host_free(image);
    return status;
}
