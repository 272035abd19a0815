#include "rnn/data/cut.h"

#include <string.h>

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

/* `size`, or all where it is 0 or more than there is. */
static size_t piece_of(size_t size, size_t all) {
    return size == 0 ? all : smaller(size, all);
}

ashlar_cut ashlar_cut_of(const ashlar_cut_config *config, size_t steps) {
    ashlar_cut cut = {.steps = steps, .micro = config->micro == 0 ? 1 : config->micro};
    cut.count = config->batch / cut.micro;
    cut.part = piece_of(config->part, steps);
    cut.chunk = piece_of(config->chunk, cut.part);
    cut.parts = divide_up(steps, cut.part);
    cut.chunks = divide_up(cut.part, cut.chunk);
    cut.extra = cut.parts * cut.chunks * config->batch;
    cut.image = 2 * steps * config->batch + cut.extra;
    return cut;
}

/* The columns of a micro-batch. */
static void fill_grid(const ashlar_cut *cut, const int32_t *grid, int32_t *image) {
    const size_t batch = cut->micro * cut->count;
    for (size_t m = 0; m < cut->micro; m++) {
        for (size_t t = 0; t < cut->steps; t++, image += cut->count) {
            memcpy(image, grid + t * batch + m * cut->count, cut->count * sizeof *image);
        }
    }
}

/* Steps that a sequence has among `room` steps from `first` on. */
static int32_t length_within(int32_t length, size_t first, size_t room) {
    return (size_t)length <= first ? 0 : (int32_t)smaller((size_t)length - first, room);
}

static void fill_lengths(const ashlar_cut *cut, const int32_t *lengths, int32_t *image) {
    const size_t batch = cut->micro * cut->count;
    for (size_t p = 0; p < cut->parts; p++) {
        for (size_t b = 0; b < batch; b++) {
            for (size_t c = 0; c < cut->chunks; c++) {
                const size_t first = c * cut->chunk;
                const size_t room = first < cut->part ? smaller(cut->chunk, cut->part - first) : 0;
                const size_t row = (p * cut->micro + b / cut->count) * cut->chunks + c;
                image[row * cut->count + b % cut->count] =
                    length_within(lengths[b], p * cut->part + first, room);
            }
        }
    }
}

void ashlar_cut_fill(const ashlar_cut *cut, const ashlar_batch *batch, int32_t *image) {
    const size_t grid = cut->steps * cut->micro * cut->count;
    int32_t *const lengths = image + 2 * grid, *const again = image + cut->image;
    fill_grid(cut, batch->inputs, image);
    fill_grid(cut, batch->targets, image + grid);
    fill_lengths(cut, batch->lengths, lengths);
    for (size_t i = 0; i < cut->extra; i++) {
        again[i] = lengths[i] == 0 ? 1 : lengths[i];
    }
}

ashlar_cut_window ashlar_cut_window_of(const ashlar_cut *cut, size_t micro, size_t part) {
    const size_t grid = cut->steps * cut->micro * cut->count, first = part * cut->part;
    const size_t row = (part * cut->micro + micro) * cut->chunks;
    ashlar_cut_window w = {.steps = smaller(cut->part, cut->steps - first)};
    w.inputs = (micro * cut->steps + first) * cut->count;
    w.targets = grid + w.inputs;
    w.lengths = 2 * grid + row * cut->count;
    w.rnn_lengths = cut->image + row * cut->count;
    return w;
}

size_t ashlar_cut_tokens(const ashlar_cut *cut, const int32_t *image, size_t part) {
    const size_t each = cut->micro * cut->chunks * cut->count;
    const int32_t *const lengths = image + cut->image - cut->extra + part * each;
    size_t tokens = 0;
    for (size_t i = 0; i < each; i++) {
        tokens += (size_t)lengths[i];
    }
    return tokens;
}
