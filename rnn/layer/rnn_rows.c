/* rnn_rows.c - what a pass needs before it computes: the sizes of its buffers, of prepared weights
 * and of single steps; the order of a batch's sequences; dropout's random numbers. */
#include <stdint.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/soft/soft.h"
#include "arena/compute/element.h"
#include "arena/compute/workers.h"
#include "arena/product/blas.h"
#include "rnn/layer/dropout.h"
#include "rnn/layer/rnn_cpu.h"

/* Bytes of a cache line: no two parts or buffers share one. */
enum { PART_ALIGN = 64 };

static size_t align_up(size_t bytes) {
    return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* The elements of a matrix in panels. Panels are taken to be as wide as in the widest instruction
 * set, so that sizes are the same on every processor. */
static size_t panel_elements(size_t columns, size_t depth, ashlar_dtype dtype) {
    const size_t wide = 2 * ASHLAR_VECTOR_BYTES_MAX / ashlar_dtype_bytes(dtype);
    return (columns + wide - 1) / wide * wide * depth;
}

/* Bytes of one matrix [depth, columns] in panels, a multiple of 64. */
static size_t rnn_panel_bytes(size_t columns, size_t depth, ashlar_dtype dtype, bool is_bf16) {
    const size_t item = is_bf16 ? sizeof(uint16_t) : ashlar_dtype_bytes(dtype);
    return align_up(panel_elements(columns, depth, dtype) * item);
}

/* The parts of a pseudo-layer's prepared weights: offsets from where these begin. */
static ashlar_prepared_layer layer_at_0(const ashlar_rnn_layout *layout, bool is_bf16,
                                        size_t input) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t rows = ashlar__rnn_gate_rows(layout);
    ashlar_prepared_layer at = {0};
    at.w = align_up(ashlar__rnn_gate_width(layout) * ashlar_dtype_bytes(c->dtype));
    at.r = at.w + rnn_panel_bytes(rows, input, c->dtype, is_bf16);
    at.wp = at.r + rnn_panel_bytes(rows, layout->state, c->dtype, is_bf16);
    at.end = at.wp + rnn_panel_bytes(c->projection, c->hidden, c->dtype, is_bf16);
    return at;
}

ashlar_prepared_layer ashlar__rnn_prepared_layer(const ashlar_rnn_layout *layout, bool is_bf16,
                                                 size_t pseudo_layer) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t directions = c->directions;
    const ashlar_prepared_layer first = layer_at_0(layout, is_bf16, c->input);
    const ashlar_prepared_layer other = layer_at_0(layout, is_bf16, layout->output);
    const bool is_first = pseudo_layer < directions;
    const ashlar_prepared_layer own = is_first ? first : other;
    const size_t begin = is_first
                             ? pseudo_layer * first.end
                             : directions * first.end + (pseudo_layer - directions) * other.end;
    ASHLAR_CHECK2(pseudo_layer < layout->pseudo_layers);
    return (ashlar_prepared_layer){.bias = begin,
                                   .w = begin + own.w,
                                   .r = begin + own.r,
                                   .wp = begin + own.wp,
                                   .end = begin + own.end};
}

size_t ashlar__rnn_prepared_bytes(const ashlar_rnn_layout *layout, bool is_bf16) {
    return ashlar__rnn_prepared_layer(layout, is_bf16, layout->pseudo_layers - 1).end;
}

ashlar_rnn_step_work ashlar__rnn_step_work(const ashlar_rnn_layout *layout, size_t batch) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t row = batch * ashlar_dtype_bytes(c->dtype);
    ashlar_rnn_step_work at = {0};
    at.sums = at.gates + align_up(row * ashlar__rnn_gate_width(layout));
    at.full =
        at.sums + (c->cell == ASHLAR_RNN_GRU ? align_up(row * ashlar__rnn_gate_rows(layout)) : 0);
    at.end = at.full + (c->projection > 0 ? align_up(row * c->hidden) : 0);
    return at;
}

size_t ashlar__linear_prepared_bytes(const ashlar_prepared_linear *l) {
    return rnn_panel_bytes(l->args.out, l->args.in, l->dtype, l->is_bf16);
}

/* With fewer steps than this, packing R would cost more than it saves. */
enum { PACKED_STEPS = 4 };

/* The least work that is worth a thread. SHARD_*: the sequences and the multiplications of a shard,
 * a share of the sequences. PIECE_*: the multiplications of a piece, a share of the columns of a
 * step's product. */
enum { SHARD_ROWS = 4, SHARD_PRODUCTS = 1 << 20, PIECE_PRODUCTS = 1 << 16 };

/* Each shard's thread reads all of R at every step. An R larger than SHARD_BYTES does not stay in a
 * core's own cache. With LONG_SHARD_ROWS sequences that run, the multiplications still take longer
 * than reading it from a last-level cache that holds LONG_SHARD_BYTES. With fewer, threads share
 * its columns instead: each reads, and may keep cached, only a part. */
enum { SHARD_BYTES = 2 << 20, LONG_SHARD_BYTES = 4 << 20, LONG_SHARD_ROWS = 16 };

/* A range in which buffers are placed one after the other. fits: its size has not overflowed. */
typedef struct room {
    size_t used;
    bool fits;
} room;

/* Place rows * cols items of `item` bytes at the end. Returns their offset; 0 rows take no room. */
static size_t place(room *r, size_t rows, size_t cols, size_t item) {
    const size_t offset = r->used;
    size_t bytes, end;
    r->fits = r->fits && ashlar__mul(rows, cols, &bytes) && ashlar__mul(bytes, item, &bytes) &&
              ashlar__add(r->used, bytes, &end) && ashlar__align_up(end, PART_ALIGN, &end);
    r->used = r->fits ? end : r->used;
    return offset;
}

/* Cache lines a multiple of this many bytes apart share at most four sets of the first-level cache,
 * and push each other out of it. */
enum { FEW_SETS_BYTES = 1024 };

/* Elements from one row of `width` elements to the next: a line more than `width` if many rows
 * would else share few sets. */
static size_t stride_of(size_t width, size_t item) {
    return width + (width * item % FEW_SETS_BYTES == 0 ? ASHLAR_CACHE_LINE / item : 0);
}

/* Set the fields that depend only on the layout and the sizes, not on the lengths. */
static ashlar_rnn_rows describe(const ashlar_rnn_layout *layout, size_t steps, size_t batch,
                                bool training) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t gate_rows = ashlar__rnn_gate_rows(layout);
    const size_t split = c->cell == ASHLAR_RNN_GRU ? 2 * c->hidden : gate_rows;
    const bool is_dropping = training && c->dropout > 0;
    return (ashlar_rnn_rows){
        .layout = layout,
        .training = training,
        .is_dropping = is_dropping,
        .is_packed = steps >= PACKED_STEPS,
        .is_joined = is_dropping || c->directions > 1,
        .gate_rows = gate_rows,
        .split = split,
        .gate_width = 2 * gate_rows - split,
        .gate_stride = stride_of(2 * gate_rows - split, ashlar_dtype_bytes(c->dtype)),
        .steps = steps,
        .batch = batch,
    };
}

/* Place a slice's parts. state_rows: the rows of initial states and of states after each step. */
static bool map_slice(ashlar_rnn_rows *b, size_t rows, size_t state_rows) {
    const ashlar_rnn_config *c = &b->layout->config;
    const size_t item = ashlar_dtype_bytes(c->dtype), state = b->layout->state;
    const size_t cell_rows = b->training ? state_rows : 2 * b->batch; /* c before and after it */
    const size_t projected = b->training && c->projection > 0 ? rows : 0;
    ashlar_rnn_map *map = &b->map;
    room slice = {.fits = true};
    map->gates = place(&slice, rows, b->gate_stride, item);
    map->states = place(&slice, state_rows, state, item);
    map->cells = place(&slice, c->cell == ASHLAR_RNN_LSTM ? cell_rows : 0, c->hidden, item);
    map->fulls = place(&slice, projected, c->hidden, item);
    map->doutputs = place(&slice, projected, state, item);
    map->slice_bytes = slice.used;
    return slice.fits;
}

/* Place the panels of a matrix or of its transpose, whichever need more, so that forward and
 * backward have buffers of one size. */
static size_t place_panels(room *r, size_t rows, size_t cols, ashlar_dtype dtype) {
    const size_t plain = panel_elements(cols, rows, dtype);
    const size_t transposed = panel_elements(rows, cols, dtype);
    return place(r, plain > transposed ? plain : transposed, 1, ashlar_dtype_bytes(dtype));
}

static bool map_work(ashlar_rnn_rows *b, size_t rows, size_t width) {
    const ashlar_rnn_config *c = &b->layout->config;
    const size_t item = ashlar_dtype_bytes(c->dtype), batch = b->batch;
    const bool has_cells = c->cell == ASHLAR_RNN_LSTM;
    ashlar_rnn_map *map = &b->map;
    room work = {.fits = true};
    map->order = place(&work, batch, 1, sizeof(size_t));
    map->start = place(&work, b->steps + 1, 1, sizeof(size_t));
    map->rows = place(&work, rows, width, item);
    map->bias = place(&work, b->gate_width, 1, item);
    map->sums = place(&work, b->split < b->gate_rows ? batch : 0, b->gate_rows, item);
    map->full = place(&work, c->projection > 0 ? batch : 0, c->hidden, item);
    map->recurrent =
        place_panels(&work, b->is_packed ? b->gate_rows : 0, b->layout->state, c->dtype);
    map->project = place_panels(&work, b->is_packed ? c->projection : 0, c->hidden, c->dtype);
    map->dh = place(&work, b->training ? batch : 0, b->layout->state, item);
    map->dc = place(&work, b->training && has_cells ? batch : 0, c->hidden, item);
    map->slices = place(&work, b->training ? 0 : c->directions, map->slice_bytes, 1);
    map->work_bytes = work.used;
    return work.fits;
}

static bool map_reserve(ashlar_rnn_rows *b, size_t rows) {
    const ashlar_rnn_config *c = &b->layout->config;
    const size_t item = ashlar_dtype_bytes(c->dtype);
    ashlar_rnn_map *map = &b->map;
    if (!b->training) {
        return true;
    }
    room reserve = {.fits = true}, input = {.fits = true};
    (void)place(&input, b->is_joined ? rows : 0, b->layout->output, item);
    map->input_bytes = input.used;
    map->seed = place(&reserve, 2, 1, sizeof(uint64_t)) + sizeof(uint64_t);
    map->reserve_slices = place(&reserve, b->layout->pseudo_layers, map->slice_bytes, 1);
    map->inputs = place(&reserve, c->layers - 1, map->input_bytes, 1);
    map->reserve_bytes = reserve.used;
    return reserve.fits && input.fits;
}

static bool map_buffers(ashlar_rnn_rows *b) {
    const size_t input = b->layout->config.input, output = b->layout->output;
    const size_t width = input > output ? input : output;
    size_t rows, state_rows;
    return ashlar__mul(b->steps, b->batch, &rows) && ashlar__add(rows, b->batch, &state_rows) &&
           map_slice(b, rows, state_rows) && map_work(b, rows, width) && map_reserve(b, rows);
}

ashlar_status ashlar__rnn_cpu_sizes(const ashlar_rnn_layout *layout, size_t steps, size_t batch,
                                    bool training, size_t *reserve_bytes, size_t *work_bytes) {
    ASHLAR_FAIL_IF(steps == 0 || batch == 0, ASHLAR_EINVAL,
                   "rnn: steps %zu, batch %zu; each must be at least 1", steps, batch);
    ashlar_rnn_rows b = describe(layout, steps, batch, training);
    ASHLAR_FAIL_IF(!map_buffers(&b), ASHLAR_EOVERFLOW,
                   "rnn: %zu steps of %zu sequences, hidden %zu, are more than can be counted; "
                   "lower steps or batch",
                   steps, batch, layout->config.hidden);
    ASHLAR_CHECK2(training || ashlar__rnn_step_work(layout, batch).end <= b.map.work_bytes);
    *reserve_bytes = b.map.reserve_bytes;
    *work_bytes = b.map.work_bytes;
    return ASHLAR_OK;
}

/* Sort the sequences by descending length; equal ones keep their order. These T passes over B
 * lengths cost less than one pass over the T*B rows. */
static void sort_lengths(ashlar_rnn_rows *batch) {
    const int32_t *const lengths = batch->lengths;
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

/* The number of shards: one for each thread if there are enough sequences and work, else 1. Without
 * panels 1, too: the order of a product's sums then depends on its number of rows (blas.h). */
static size_t count_shards(const ashlar_rnn_rows *batch) {
    const size_t threads = ashlar__workers_count(), most = batch->batch / SHARD_ROWS;
    const size_t each = batch->gate_rows * batch->layout->state; /* multiplications for a row */
    const size_t bytes = each * ashlar_dtype_bytes(batch->layout->config.dtype);
    const bool is_long = batch->row_count / batch->steps >= LONG_SHARD_ROWS * threads;
    if (!batch->is_packed || bytes > (is_long ? LONG_SHARD_BYTES : SHARD_BYTES) || most < threads ||
        batch->row_count < SHARD_PRODUCTS / each * threads) {
        return 1;
    }
    return threads;
}

size_t ashlar__rnn_rows_edge(const ashlar_rnn_rows *batch, size_t i) {
    const size_t share = ashlar__blas_edge(batch->row_count, 1, batch->shards, i);
    size_t p = 0;
    for (size_t rows = 0; rows < share; p++) {
        rows += (size_t)batch->lengths[batch->order[p]];
    }
    return p;
}

size_t ashlar__rnn_rows_pieces(const ashlar_rnn_rows *batch, size_t weights) {
    const size_t threads = ashlar__workers_count();
    const size_t worth = weights / PIECE_PRODUCTS * batch->batch;
    if (batch->shards > 1 || worth < 2) {
        return 1;
    }
    return worth < threads ? worth : threads;
}

ashlar_rnn_rows ashlar__rnn_rows_open(const ashlar_rnn_cpu_args *args, bool training) {
    ashlar_rnn_rows batch = describe(args->layout, args->steps, args->batch, training);
    const bool fits = args->steps > 0 && args->batch > 0 && map_buffers(&batch);
    ASHLAR_ASSERT(fits);
    (void)fits;
    char *const work = args->b.work;
    batch.order = (size_t *)(void *)(work + batch.map.order);
    batch.start = (size_t *)(void *)(work + batch.map.start);
    batch.lengths = args->lengths;
    sort_lengths(&batch);
    batch.is_unpadded = args->rows_are_packed || batch.row_count == batch.steps * batch.batch;
    batch.shards = count_shards(&batch);
    return batch;
}

char *ashlar__rnn_rows_slice(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                             size_t pseudo_layer) {
    const ashlar_rnn_map *map = &batch->map;
    return batch->training
               ? (char *)args->b.reserve + map->reserve_slices + pseudo_layer * map->slice_bytes
               : (char *)args->b.work + map->slices +
                     pseudo_layer % batch->layout->config.directions * map->slice_bytes;
}

void ashlar__dropout_draw(const ashlar_dropout_row *row, size_t group,
                          uint32_t draws[ASHLAR_DROPOUT_DRAWS]) {
    enum { LANES = ASHLAR_DROPOUT_LANES };
    uint32_t c[4][LANES];
    for (int k = 0; k < LANES; k++) {
        ashlar__dropout_counter(row, group, k, &c[0][k], &c[1][k], &c[2][k], &c[3][k]);
    }
    for (unsigned i = 0; i < ASHLAR_DROPOUT_ROUNDS; i++) {
        for (int k = 0; k < LANES; k++) {
            ashlar__dropout_round(row->seed, i, &c[0][k], &c[1][k], &c[2][k], &c[3][k]);
        }
    }
    for (int i = 0; i < ASHLAR_DROPOUT_DRAWS; i++) {
        draws[i] = c[i / LANES][i % LANES];
    }
}

/* What the reserve begins with: the pass that it is ready for, as numbers that memory of another
 * use does not hold by chance. */
static const uint64_t READY_FOR_DATA = 0x8f1bbcdca953fd4e, READY_FOR_WEIGHTS = 0x6ed9eba1c1059ed0;

const char *ashlar__rnn_reserve_fault(const void *reserve, ashlar_rnn_pass pass) {
    const uint64_t ready = *(const uint64_t *)reserve;
    if (pass == ASHLAR_RNN_BACKWARD_DATA && ready != READY_FOR_DATA) {
        return "rnn: backward_data of a reserve that is spent, or that no forward has filled; run "
               "a training forward before each backward_data";
    }
    return pass == ASHLAR_RNN_BACKWARD_WEIGHTS && ready != READY_FOR_WEIGHTS
               ? "rnn: backward_weights of a reserve on which backward_data has not run"
               : NULL;
}

bool ashlar__rnn_take_reserve(const ashlar_rnn_cpu_args *args, ashlar_rnn_pass pass) {
    uint64_t *ready = args->b.reserve;
    const char *const fault = ashlar__rnn_reserve_fault(ready, pass);
    if (fault != NULL) {
        ashlar__soft_lose_device(fault);
        return false;
    }
    *ready = pass == ASHLAR_RNN_FORWARD ? READY_FOR_DATA : READY_FOR_WEIGHTS;
    return true;
}
