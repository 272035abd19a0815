/* batcher.c - cuts records into pieces, draws seeded batches of similar lengths, window by window,
 * and writes a batch's symbols to where a model reads them. */
#include "rnn/data/batcher.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"

typedef ashlar_text_piece piece;

/* Invariants: longest * batch is at most INT32_MAX; batch_order[] is a permutation of 0 ..
 * window - 1; drawn_count <= piece_count; batches_left <= window */
struct ashlar_batcher {
    const ashlar_corpus *corpus;
    size_t batch, window;
    size_t longest; /* steps of the longest piece */
    piece *pieces;  /* in this epoch's order */
    size_t piece_count;
    ashlar_random random;
    size_t drawn_count;  /* pieces drawn in this epoch */
    piece *ready;        /* [window * batch] the window's pieces, longest first; behind them a
                          * dummy's [batch] */
    size_t *batch_order; /* [window] */
    size_t batches_left; /* not handed out yet: the first entries of batch_order */
    double handed_out;   /* pieces handed out in all epochs; exact up to 2^53 */
};

/* Symbol `i` of a record of n bytes, which has n + 2 symbols: a mark before and one after it. */
static int32_t symbol_at(ashlar_record record, size_t i) {
    return i == 0 || i > record.count ? ASHLAR_BATCHER_MARK : record.bytes[i - 1];
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Count the pieces of all records, and store them if batcher->pieces is allocated. Sums cannot
 * overflow: a piece begins before the end of its sequence. */
static size_t cut_records(ashlar_batcher *batcher, const ashlar_batcher_config *config) {
    size_t count = 0;
    for (size_t i = 0; i < ashlar__corpus_count(batcher->corpus); i++) {
        if (ashlar__batcher_is_held_out(config->held_out, i) != config->is_of_held_out) {
            continue;
        }
        const size_t steps = ashlar__corpus_record(batcher->corpus, i).count + 1;
        for (size_t first = 0, end = 0; end < steps; first += config->stride) {
            const size_t take = smaller(steps - first, config->max_steps);
            end = first + take;
            if (batcher->pieces != NULL) {
                batcher->pieces[count] = (piece){i, first, take, count};
            }
            batcher->longest = take > batcher->longest ? take : batcher->longest;
            count++;
        }
    }
    return count;
}

static ashlar_status cut_into_pieces(ashlar_batcher *batcher, const ashlar_batcher_config *config) {
    batcher->piece_count = cut_records(batcher, config);
    size_t elements;
    ASHLAR_FAIL_IF(!ashlar__mul(batcher->longest, batcher->batch, &elements) ||
                       elements > INT32_MAX,
                   ASHLAR_EOVERFLOW,
                   "batcher: %zu sequences of %zu steps are more than 2^31-1 symbols; use a "
                   "smaller batch or max_steps",
                   batcher->batch, batcher->longest);
    ASHLAR_HOST_NEW(batcher->pieces, batcher->piece_count + 1,
                    "batcher: no host memory for %zu pieces", batcher->piece_count);
    const size_t cut = cut_records(batcher, config);
    ASHLAR_ASSERT(cut == batcher->piece_count);
    (void)cut;
    return ASHLAR_OK;
}

/* The order breaks ties, since qsort() is not stable. */
static int longest_first(const void *a, const void *b) {
    const piece *x = a, *y = b;
    if (x->steps != y->steps) {
        return x->steps < y->steps ? 1 : -1;
    }
    return (x->order > y->order) - (x->order < y->order);
}

static ashlar_status take_window(ashlar_batcher *b) {
    size_t places;
    ASHLAR_FAIL_IF(b->piece_count == 0, ASHLAR_EINVAL, "batcher: the text has no piece");
    ASHLAR_FAIL_IF(!ashlar__mul(b->window + 1, b->batch, &places), ASHLAR_EOVERFLOW,
                   "batcher: a window of %zu batches of %zu; use less", b->window, b->batch);
    ASHLAR_HOST_NEW(b->ready, places, "batcher: no host memory for a window of %zu", places);
    ASHLAR_HOST_NEW(b->batch_order, b->window, "batcher: no host memory for %zu batches",
                    b->window);
    for (size_t i = 0; i < b->window; i++) {
        b->batch_order[i] = i;
    }
    b->drawn_count = b->piece_count; /* so that the first draw starts an epoch */
    return ASHLAR_OK;
}

ashlar_status ashlar__batcher_create(const ashlar_corpus *corpus,
                                     const ashlar_batcher_config *config, ashlar_batcher **out) {
    ASHLAR_FAIL_IF(config->batch == 0 || config->max_steps == 0, ASHLAR_EINVAL,
                   "batcher: %s is 0; give at least 1", config->batch == 0 ? "batch" : "max_steps");
    ashlar_batcher_config filled = *config;
    filled.window = config->window != 0 ? config->window : ASHLAR_BATCHER_WINDOW;
    filled.stride = config->stride != 0 ? config->stride : config->max_steps;
    ASHLAR_FAIL_IF(config->held_out == 1, ASHLAR_EINVAL,
                   "batcher: held_out is 1, which leaves nothing; give 0 or at least 2");
    ASHLAR_FAIL_IF(
        filled.stride > config->max_steps, ASHLAR_EINVAL,
        "batcher: a stride of %zu leaves out text between pieces of %zu; give at most that",
        filled.stride, config->max_steps);
    ashlar_batcher *batcher;
    ASHLAR_HOST_NEW(batcher, 1, "batcher: no host memory");
    batcher->corpus = corpus;
    batcher->batch = filled.batch;
    batcher->window = filled.window;
    ashlar__random_init(&batcher->random, config->seed);
    ashlar_status status = cut_into_pieces(batcher, &filled);
    if (status == ASHLAR_OK && config->is_of_held_out) {
        qsort(batcher->pieces, batcher->piece_count, sizeof *batcher->pieces, longest_first);
    } else {
        ASHLAR_THEN(status, take_window(batcher));
    }
    ASHLAR_HAND_OUT(status, batcher, ashlar__batcher_destroy, out);
}

void ashlar__batcher_destroy(ashlar_batcher *batcher) {
    if (batcher == NULL) {
        return;
    }
    ashlar__host_free(batcher->ready);
    ashlar__host_free(batcher->batch_order);
    ashlar__host_free(batcher->pieces);
    ashlar__host_free(batcher);
}

static ashlar_batch batch_of(const piece *pieces, size_t count) {
    ashlar_batch batch = {.pieces = pieces, .count = count, .steps = pieces[0].steps};
    for (size_t i = 0; i < count; i++) {
        ASHLAR_CHECK2(pieces[i].steps <= batch.steps); /* the first piece is the longest */
        batch.tokens += pieces[i].steps;
    }
    return batch;
}

ashlar_batch ashlar__batcher_get(const ashlar_batcher *b, size_t first) {
    ASHLAR_CHECK2(first < b->piece_count);
    const size_t left = b->piece_count - first;
    return batch_of(b->pieces + first, left < b->batch ? left : b->batch);
}

ashlar_batch ashlar__batcher_dummy(ashlar_batcher *b, size_t steps) {
    piece *const pieces = b->ready + b->window * b->batch;
    for (size_t i = 0; i < b->batch; i++) {
        pieces[i] = (piece){.steps = steps};
    }
    return batch_of(pieces, b->batch);
}

/* ---- drawing ---- */

static void shuffle(ashlar_random *random, void *array, size_t count, size_t item_bytes) {
    char *items = array, swap[sizeof(piece)];
    ASHLAR_CHECK2(item_bytes <= sizeof swap);
    for (size_t i = count; i > 1; i--) {
        char *last = items + (i - 1) * item_bytes;
        char *other = items + (size_t)ashlar__random_below(random, i) * item_bytes;
        memcpy(swap, last, item_bytes);
        memmove(last, other, item_bytes); /* `other` may be the last item itself */
        memcpy(other, swap, item_bytes);
    }
}

static void fill_window(ashlar_batcher *b) {
    const size_t places = b->window * b->batch;
    for (size_t i = 0; i < places; i++) {
        if (b->drawn_count == b->piece_count) {
            shuffle(&b->random, b->pieces, b->piece_count, sizeof *b->pieces);
            b->drawn_count = 0;
        }
        b->ready[i] = b->pieces[b->drawn_count++];
        b->ready[i].order = i;
    }
    qsort(b->ready, places, sizeof *b->ready, longest_first);
    shuffle(&b->random, b->batch_order, b->window, sizeof *b->batch_order);
    b->batches_left = b->window;
}

/* The pieces of the next batch. */
static const piece *next(ashlar_batcher *b) {
    if (b->batches_left == 0) {
        fill_window(b);
    }
    ASHLAR_CHECK2(b->batches_left <= b->window && b->drawn_count <= b->piece_count);
    b->handed_out += (double)b->batch;
    return b->ready + b->batch_order[--b->batches_left] * b->batch;
}

ashlar_batch ashlar__batcher_next(ashlar_batcher *b) {
    ashlar_batch batch = batch_of(next(b), b->batch);
    batch.epoch = b->handed_out / (double)b->piece_count;
    return batch;
}

void ashlar__batcher_skip(ashlar_batcher *b, uint64_t batches) {
    for (; batches > 0; batches--) {
        (void)next(b);
    }
}

ashlar_random ashlar__batcher_random(const ashlar_batcher *batcher) {
    return batcher->random;
}

size_t ashlar__batcher_max_steps(const ashlar_batcher *batcher) {
    return batcher->longest;
}

size_t ashlar__batcher_piece_count(const ashlar_batcher *batcher) {
    return batcher->piece_count;
}

/* ---- batch split: micro-batches and parts; the image of a batch ---- */

static size_t divide_up(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

/* `size`, but `all` if `size` is 0 or larger than `all`. */
static size_t piece_of(size_t size, size_t all) {
    return size == 0 ? all : smaller(size, all);
}

ashlar_batch_split ashlar__batch_split_make(const ashlar_batch_split_config *config, size_t steps) {
    ashlar_batch_split split = {.config = *config, .steps = steps};
    ashlar_batch_split_config *c = &split.config;
    c->shards = c->shards == 0 ? 1 : c->shards;
    c->own = c->own == 0 ? c->shards : c->own;
    c->pieces = c->pieces == 0 ? 1 : c->pieces;
    split.micro = c->own * c->pieces;
    split.count = c->batch / (c->shards * c->pieces);
    split.part = piece_of(c->part, steps);
    split.parts = divide_up(steps, split.part);
    ASHLAR_CHECK2(split.count * c->shards * c->pieces == c->batch);
    ASHLAR_CHECK2(split.parts * split.part >= steps);
    split.extra = split.parts * split.micro * split.count;
    split.image = 2 * steps * split.micro * split.count + split.extra;
    return split;
}

/* The batch's column that is column `at` of a micro-batch. */
static size_t column_of(const ashlar_batch_split *split, size_t micro, size_t at) {
    const ashlar_batch_split_config *c = &split->config;
    return c->first + micro / c->pieces + (micro % c->pieces * split->count + at) * c->shards;
}

/* How many steps of a sequence of `length` steps lie in [first, first + room). */
static size_t length_within(size_t length, size_t first, size_t room) {
    return length <= first ? 0 : smaller(length - first, room);
}

/* Write a piece down one of `width` columns. */
static void fill_column(const ashlar_corpus *corpus, const piece *from, size_t width,
                        int32_t *inputs, int32_t *targets) {
    const ashlar_record record = ashlar__corpus_record(corpus, from->record);
    int32_t input = symbol_at(record, from->first);
    for (size_t t = 0; t < from->steps; t++) {
        const int32_t target = symbol_at(record, from->first + t + 1);
        inputs[t * width] = input;
        targets[t * width] = target;
        input = target;
    }
}

void ashlar__batch_split_fill(const ashlar_batch_split *split, const ashlar_corpus *corpus,
                              const ashlar_batch *batch, int32_t *image) {
    const size_t rows = split->micro * split->count, tokens = split->steps * rows;
    ASHLAR_CHECK2(batch->steps == split->steps);
    memset(image, 0, 2 * tokens * sizeof *image);
    for (size_t row = 0; row < rows; row++) {
        const size_t m = row / split->count, i = row % split->count;
        const size_t column = column_of(split, m, i), at = m * split->steps * split->count + i;
        const size_t length = column < batch->count ? batch->pieces[column].steps : 0;
        if (length > 0) {
            fill_column(corpus, &batch->pieces[column], split->count, image + at,
                        image + tokens + at);
        }
        for (size_t p = 0; p < split->parts; p++) {
            int32_t *const within = image + 2 * tokens + p * rows + row;
            *within = (int32_t)length_within(length, p * split->part, split->part);
            within[split->extra] = *within == 0 ? 1 : *within;
        }
    }
}

ashlar_batch_window ashlar__batch_split_window(const ashlar_batch_split *split, size_t micro,
                                               size_t part) {
    const size_t tokens = split->steps * split->micro * split->count, first = part * split->part;
    const size_t row = part * split->micro + micro;
    ASHLAR_CHECK2(micro < split->micro && part < split->parts);
    ashlar_batch_window w = {.steps = smaller(split->part, split->steps - first)};
    w.inputs = (micro * split->steps + first) * split->count;
    w.targets = tokens + w.inputs;
    w.lengths = 2 * tokens + row * split->count;
    w.host_lengths = split->image + row * split->count;
    return w;
}

size_t ashlar__batch_split_tokens(const ashlar_batch_split *split, size_t part,
                                  const ashlar_batch *batch) {
    size_t tokens = 0;
    for (size_t i = 0; i < batch->count; i++) {
        tokens += length_within(batch->pieces[i].steps, part * split->part, split->part);
    }
    return tokens;
}
