/* batch_split.c - splits a batch into micro-batches, parts and chunks, and fills its image. */
#include "rnn/data/batch_split.h"

#include <string.h>

#include "allocator/base/check_level.h"

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

/* `size`, but `all` if `size` is 0 or larger than `all`. */
static size_t piece_of(size_t size, size_t all) {
    return size == 0 ? all : smaller(size, all);
}

ashlar_batch_split ashlar__batch_split_make(const ashlar_batch_split_config *config, size_t steps) {
    ashlar_batch_split split = {.steps = steps, .micro = config->micro == 0 ? 1 : config->micro};
    split.count = config->batch / split.micro;
    split.part = piece_of(config->part, steps);
    split.chunk = piece_of(config->chunk, split.part);
    split.parts = divide_up(steps, split.part);
    split.chunks = divide_up(split.part, split.chunk);
    ASHLAR_CHECK2(split.count * split.micro == config->batch);
    ASHLAR_CHECK2(split.parts * split.part >= steps && split.chunks * split.chunk >= split.part);
    split.extra = split.parts * split.chunks * config->batch;
    split.image = 2 * steps * config->batch + split.extra;
    return split;
}

/* Make each micro-batch's columns contiguous. */
static void fill_tokens(const ashlar_batch_split *split, const int32_t *tokens, int32_t *image) {
    const size_t batch = split->micro * split->count;
    for (size_t m = 0; m < split->micro; m++) {
        for (size_t t = 0; t < split->steps; t++, image += split->count) {
            memcpy(image, tokens + t * batch + m * split->count, split->count * sizeof *image);
        }
    }
}

/* How many steps of a sequence of `length` steps lie in [first, first + room). */
static int32_t length_within(int32_t length, size_t first, size_t room) {
    return (size_t)length <= first ? 0 : (int32_t)smaller((size_t)length - first, room);
}

static void fill_lengths(const ashlar_batch_split *split, const int32_t *lengths, int32_t *image) {
    const size_t batch = split->micro * split->count;
    for (size_t p = 0; p < split->parts; p++) {
        for (size_t b = 0; b < batch; b++) {
            for (size_t c = 0; c < split->chunks; c++) {
                const size_t first = c * split->chunk;
                const size_t room =
                    first < split->part ? smaller(split->chunk, split->part - first) : 0;
                const size_t row = (p * split->micro + b / split->count) * split->chunks + c;
                image[row * split->count + b % split->count] =
                    length_within(lengths[b], p * split->part + first, room);
            }
        }
    }
}

void ashlar__batch_split_fill(const ashlar_batch_split *split, const ashlar_batch *batch,
                              int32_t *image) {
    const size_t tokens = split->steps * split->micro * split->count;
    int32_t *const lengths = image + 2 * tokens, *const again = image + split->image;
    fill_tokens(split, batch->inputs, image);
    fill_tokens(split, batch->targets, image + tokens);
    fill_lengths(split, batch->lengths, lengths);
    for (size_t i = 0; i < split->extra; i++) {
        again[i] = lengths[i] == 0 ? 1 : lengths[i];
    }
}

ashlar_batch_window ashlar__batch_split_window(const ashlar_batch_split *split, size_t micro,
                                               size_t part) {
    const size_t tokens = split->steps * split->micro * split->count, first = part * split->part;
    const size_t row = (part * split->micro + micro) * split->chunks;
    ASHLAR_CHECK2(micro < split->micro && part < split->parts);
    ashlar_batch_window w = {.steps = smaller(split->part, split->steps - first)};
    w.inputs = (micro * split->steps + first) * split->count;
    w.targets = tokens + w.inputs;
    w.lengths = 2 * tokens + row * split->count;
    w.rnn_lengths = split->image + row * split->count;
    return w;
}

size_t ashlar__batch_split_tokens(const ashlar_batch_split *split, size_t part,
                                  const int32_t *lengths, size_t batch) {
    size_t tokens = 0;
    for (size_t b = 0; b < batch; b++) {
        tokens += (size_t)length_within(lengths[b], part * split->part, split->part);
    }
    return tokens;
}

void ashlar__batch_take_shards(const ashlar_batch *from, size_t batch, size_t all, size_t first,
                               size_t count, ashlar_batch *to) {
    const size_t each = batch / all, columns = each * count;
    ASHLAR_CHECK2(each * all == batch && first + count <= all);
    for (size_t c = 0; c < columns; c++) {
        const size_t column = first + c / each + c % each * all;
        to->lengths[c] = from->lengths[column];
        for (size_t step = 0; step < from->steps; step++) {
            to->inputs[step * columns + c] = from->inputs[step * batch + column];
            to->targets[step * columns + c] = from->targets[step * batch + column];
        }
    }
}
