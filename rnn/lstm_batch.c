/*
 * lstm_batch.c - the sizes of an LSTM call and the order of its batch; no arithmetic on elements.
 */
#include "lstm_batch.h"

#include <stdint.h>

#include "blas.h"
#include "check_level.h"
#include "checked.h"
#include "error.h"

/* One cache line, so that rows of different buffers never share one. */
enum { BUFFER_ALIGN = 64 };

/* Place rows * cols items of `item` bytes at the end of *used; false when it does not fit. */
static bool place(size_t *used, size_t rows, size_t cols, size_t item, size_t *offset) {
    size_t bytes, end;
    if (!ashlar_mul(rows, cols, &bytes) || !ashlar_mul(bytes, item, &bytes) ||
        !ashlar_add(*used, bytes, &end) || !ashlar_align_up(end, BUFFER_ALIGN, &end)) {
        return false;
    }
    *offset = *used;
    *used = end;
    return true;
}

static bool map_buffers(ashlar_lstm_map *map, const ashlar_rnn_config *config, size_t steps,
                        size_t batch, bool training) {
    const size_t item = ashlar_dtype_bytes(config->dtype);
    const size_t hidden = config->hidden;
    const size_t width = config->input > hidden ? config->input : hidden;
    size_t rows, state_rows, gates;
    *map = (ashlar_lstm_map){0};
    if (!ashlar_mul(steps, batch, &rows) || !ashlar_add(rows, batch, &state_rows) ||
        !ashlar_mul(hidden, ASHLAR_LSTM_GATES, &gates) || !ashlar_gemm_fits(rows, gates, width)) {
        return false;
    }
    const size_t cell_rows = training ? state_rows : 2 * batch; /* 2B <= B + T*B */
    size_t *const slice = &map->slice_bytes;
    size_t *const work = &map->work_bytes;
    if (!place(slice, rows, gates, item, &map->gates) ||
        !place(slice, state_rows, hidden, item, &map->hidden) ||
        !place(slice, cell_rows, hidden, item, &map->cells) ||
        !place(work, batch, 1, sizeof(size_t), &map->order) ||
        !place(work, steps + 1, 1, sizeof(size_t), &map->start) ||
        !place(work, rows, width, item, &map->rows) ||
        !place(work, gates, 1, item, &map->bias)) {
        return false;
    }
    if (!training) {
        return place(work, *slice, 1, 1, &map->slice);
    }
    return place(work, batch, hidden, item, &map->dh) &&
           place(work, batch, hidden, item, &map->dc) &&
           ashlar_mul(*slice, config->layers, &map->reserve_bytes);
}

ashlar_status ashlar_lstm_sizes(const ashlar_rnn_layout *layout, size_t steps, size_t batch,
                                bool training, size_t *reserve_bytes, size_t *work_bytes) {
    if (steps == 0 || batch == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "lstm: steps %zu, batch %zu; each must be at least 1",
                           steps, batch);
    }
    ashlar_lstm_map map;
    if (!map_buffers(&map, &layout->config, steps, batch, training)) {
        return ashlar_fail(ASHLAR_EOVERFLOW,
                           "lstm: %zu steps of %zu sequences, hidden %zu, are more than can be "
                           "counted; lower steps or batch",
                           steps, batch, layout->config.hidden);
    }
    *reserve_bytes = map.reserve_bytes;
    *work_bytes = map.work_bytes;
    return ASHLAR_OK;
}

/* T passes over B lengths: less than one pass over the rows themselves, and stable. */
static void sort_lengths(ashlar_lstm_batch *batch, const int32_t *lengths) {
    size_t placed = 0;
    for (size_t length = batch->steps; length > 0; length--) {
        for (size_t b = 0; b < batch->batch; b++) {
            if ((size_t)lengths[b] == length) {
                batch->order[placed++] = b;
            }
        }
    }
    ASHLAR_ASSERT(placed == batch->batch); /* every length in 1..T */
    size_t active = batch->batch;
    batch->start[0] = 0;
    for (size_t t = 0; t < batch->steps; t++) {
        while (active > 0 && (size_t)lengths[batch->order[active - 1]] <= t) {
            active--;
        }
        batch->start[t + 1] = batch->start[t] + active;
    }
    batch->row_count = batch->start[batch->steps];
}

ashlar_lstm_batch ashlar_lstm_batch_open(const ashlar_lstm_args *args, bool training) {
    const ashlar_rnn_config *config = &args->layout->config;
    ashlar_lstm_batch batch = {
        .training = training,
        .input = config->input,
        .hidden = config->hidden,
        .layers = config->layers,
        .steps = args->steps,
        .batch = args->batch,
    };
    const bool fits = args->steps > 0 && args->batch > 0 &&
                      map_buffers(&batch.map, config, args->steps, args->batch, training);
    ASHLAR_ASSERT(fits);
    (void)fits;
    char *const work = args->work;
    batch.order = (size_t *)(void *)(work + batch.map.order);
    batch.start = (size_t *)(void *)(work + batch.map.start);
    sort_lengths(&batch, args->lengths);
    return batch;
}

ashlar_lstm_slice ashlar_lstm_slice_at(const ashlar_lstm_batch *batch,
                                       const ashlar_lstm_args *args, size_t layer) {
    const ashlar_lstm_map *map = &batch->map;
    char *const base = batch->training ? (char *)args->reserve + layer * map->slice_bytes
                                       : (char *)args->work + map->slice;
    return (ashlar_lstm_slice){
        .gates = base + map->gates,
        .hidden = base + map->hidden,
        .cells = base + map->cells,
    };
}
