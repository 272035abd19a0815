#include "batcher.h"

#include <stdlib.h>
#include <string.h>

#include "check_level.h"
#include "checked.h"
#include "error.h"
#include "host.h"
#include "random.h"

/* Steps first .. first + steps - 1 of a record's sequence. */
typedef struct piece {
    size_t record;
    size_t first;
    size_t steps;
} piece;

/* A place in the window. */
typedef struct drawn_piece {
    size_t piece;
    size_t steps;
    size_t draw; /* its place in the supply, for ties: the order must not depend on qsort */
} drawn_piece;

/*
 * Invariants: order is a permutation of 0 .. piece_count-1, batch_order of 0 .. window-1
 *             drawn_count <= piece_count, batches_left <= window
 *             longest * batch <= INT32_MAX
 */
struct ashlar_batcher {
    const ashlar_corpus *corpus;
    size_t batch;
    size_t window;
    size_t longest; /* steps of the longest piece */
    ashlar_random random;
    piece *pieces;
    size_t piece_count;
    size_t *order;       /* [piece_count], this epoch's */
    size_t drawn_count;  /* pieces of `order` that were drawn */
    drawn_piece *drawn;  /* [window * batch] */
    size_t *batch_order; /* [window] */
    size_t batches_left; /* of the window, from the end of batch_order */
    double handed_out;   /* pieces; a double counts exactly to 2^53 */
};

/* The symbol at place `i` of the record's n + 2. */
static int32_t symbol_at(ashlar_record record, size_t i) {
    return i == 0 || i > record.count ? ASHLAR_BATCHER_MARK : record.bytes[i - 1];
}

static size_t sequence_steps(ashlar_record record) {
    return record.count + 1; /* a record is a part of an object in memory: no overflow */
}

static void shuffle(ashlar_random *random, size_t *items, size_t count) {
    for (size_t i = count; i > 1; i--) {
        const size_t j = (size_t)ashlar_random_below(random, i);
        const size_t swap = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swap;
    }
}

/* --- setting up ----------------------------------------------------------------------------- */

/* The piece of a sequence of `steps` that begins at `first`, and whether it is its last. */
static bool cut_piece(const ashlar_batcher_config *config, size_t steps, size_t first,
                      size_t *take) {
    const size_t left = steps - first;
    *take = left < config->max_steps ? left : config->max_steps;
    return *take == left;
}

/* Of all records; into batcher->pieces where they are allocated. Strides do not overflow, for
 * another piece begins before the sequence's end. */
static size_t cut_records(ashlar_batcher *batcher, const ashlar_batcher_config *config) {
    size_t count = 0;
    for (size_t i = 0; i < ashlar_corpus_count(batcher->corpus); i++) {
        const size_t steps = sequence_steps(ashlar_corpus_record(batcher->corpus, i));
        bool is_last = false;
        for (size_t first = 0; !is_last; first += config->stride) {
            size_t take;
            is_last = cut_piece(config, steps, first, &take);
            if (batcher->pieces != NULL) {
                batcher->pieces[count] = (piece){i, first, take};
            }
            batcher->longest = take > batcher->longest ? take : batcher->longest;
            count++;
        }
    }
    return count;
}

static ashlar_status allocate(ashlar_batcher *batcher) {
    size_t places;
    if (!ashlar_mul(batcher->window, batcher->batch, &places)) {
        return ashlar_fail(ASHLAR_EOVERFLOW, "batcher: a window of %zu batches of %zu; use less",
                           batcher->window, batcher->batch);
    }
    const size_t count = batcher->piece_count;
    batcher->pieces = ashlar_host_calloc(count, sizeof *batcher->pieces);
    batcher->order = ashlar_host_calloc(count, sizeof *batcher->order);
    batcher->drawn = ashlar_host_calloc(places, sizeof *batcher->drawn);
    batcher->batch_order = ashlar_host_calloc(batcher->window, sizeof *batcher->batch_order);
    if (batcher->pieces == NULL || batcher->order == NULL || batcher->drawn == NULL ||
        batcher->batch_order == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM,
                           "batcher: no host memory for %zu pieces and a window of %zu", count,
                           places);
    }
    return ASHLAR_OK;
}

static ashlar_status set_up(ashlar_batcher *batcher, const ashlar_batcher_config *config) {
    batcher->piece_count = cut_records(batcher, config);
    const ashlar_status status = allocate(batcher);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t cut = cut_records(batcher, config);
    ASHLAR_ASSERT(cut == batcher->piece_count);
    (void)cut;
    size_t elements;
    if (!ashlar_mul(batcher->longest, batcher->batch, &elements) || elements > INT32_MAX) {
        return ashlar_fail(ASHLAR_EOVERFLOW,
                           "batcher: %zu sequences of %zu steps are more than 2^31-1 symbols; use "
                           "a smaller batch or max_steps",
                           batcher->batch, batcher->longest);
    }
    for (size_t i = 0; i < batcher->piece_count; i++) {
        batcher->order[i] = i;
    }
    for (size_t i = 0; i < batcher->window; i++) {
        batcher->batch_order[i] = i;
    }
    batcher->drawn_count = batcher->piece_count; /* so that the first draw starts an epoch */
    return ASHLAR_OK;
}

ashlar_status ashlar_batcher_create(const ashlar_corpus *corpus,
                                    const ashlar_batcher_config *config, ashlar_batcher **out) {
    if (config->batch == 0 || config->max_steps == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "batcher: %s is 0; give at least 1",
                           config->batch == 0 ? "batch" : "max_steps");
    }
    ashlar_batcher_config filled = *config;
    filled.window = config->window != 0 ? config->window : ASHLAR_BATCHER_WINDOW;
    filled.stride = config->stride != 0 ? config->stride : config->max_steps;
    if (filled.stride > config->max_steps) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "batcher: a stride of %zu leaves out text between pieces of %zu; give "
                           "at most that",
                           filled.stride, config->max_steps);
    }
    ashlar_batcher *batcher = ashlar_host_calloc(1, sizeof *batcher);
    if (batcher == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "batcher: no host memory");
    }
    batcher->corpus = corpus;
    batcher->batch = filled.batch;
    batcher->window = filled.window;
    ashlar_random_init(&batcher->random, filled.seed);
    const ashlar_status status = set_up(batcher, &filled);
    if (status != ASHLAR_OK) {
        ashlar_batcher_destroy(batcher);
        return status;
    }
    *out = batcher;
    return ASHLAR_OK;
}

void ashlar_batcher_destroy(ashlar_batcher *batcher) {
    if (batcher == NULL) {
        return;
    }
    ashlar_host_free(batcher->pieces);
    ashlar_host_free(batcher->order);
    ashlar_host_free(batcher->drawn);
    ashlar_host_free(batcher->batch_order);
    ashlar_host_free(batcher);
}

/* --- the supply ----------------------------------------------------------------------------- */

static size_t draw_piece(ashlar_batcher *batcher) {
    if (batcher->drawn_count == batcher->piece_count) {
        shuffle(&batcher->random, batcher->order, batcher->piece_count);
        batcher->drawn_count = 0;
    }
    return batcher->order[batcher->drawn_count++];
}

static int longest_first(const void *a, const void *b) {
    const drawn_piece *x = a;
    const drawn_piece *y = b;
    if (x->steps != y->steps) {
        return x->steps < y->steps ? 1 : -1;
    }
    return (x->draw > y->draw) - (x->draw < y->draw);
}

static void fill_window(ashlar_batcher *batcher) {
    const size_t places = batcher->window * batcher->batch;
    for (size_t i = 0; i < places; i++) {
        const size_t index = draw_piece(batcher);
        batcher->drawn[i] = (drawn_piece){index, batcher->pieces[index].steps, i};
    }
    qsort(batcher->drawn, places, sizeof *batcher->drawn, longest_first);
    shuffle(&batcher->random, batcher->batch_order, batcher->window);
    batcher->batches_left = batcher->window;
}

/* Write one piece down column `column` of the batch. */
static void fill_column(const ashlar_batcher *batcher, ashlar_batch *batch, size_t column,
                        const piece *from) {
    const ashlar_record record = ashlar_corpus_record(batcher->corpus, from->record);
    int32_t input = symbol_at(record, from->first);
    for (size_t t = 0; t < from->steps; t++) {
        const int32_t target = symbol_at(record, from->first + t + 1);
        batch->inputs[t * batcher->batch + column] = input;
        batch->targets[t * batcher->batch + column] = target;
        input = target;
    }
}

/* Hand out a batch: its number in the window. */
static size_t take_batch(ashlar_batcher *batcher) {
    if (batcher->batches_left == 0) {
        fill_window(batcher);
    }
    batcher->handed_out += (double)batcher->batch;
    return batcher->batch_order[--batcher->batches_left];
}

void ashlar_batcher_next(ashlar_batcher *batcher, ashlar_batch *batch) {
    const size_t which = take_batch(batcher);
    const drawn_piece *drawn = batcher->drawn + which * batcher->batch;
    batch->steps = drawn[0].steps;
    batch->tokens = 0;
    const size_t grid_bytes = batch->steps * batcher->batch * sizeof(int32_t);
    memset(batch->inputs, 0, grid_bytes);
    memset(batch->targets, 0, grid_bytes);
    for (size_t i = 0; i < batcher->batch; i++) {
        fill_column(batcher, batch, i, &batcher->pieces[drawn[i].piece]);
        batch->lengths[i] = (int32_t)drawn[i].steps;
        batch->tokens += drawn[i].steps;
    }
    batch->epoch = batcher->handed_out / (double)batcher->piece_count;
}

void ashlar_batcher_skip(ashlar_batcher *batcher, uint64_t batches) {
    for (; batches > 0; batches--) {
        (void)take_batch(batcher);
    }
}

ashlar_random ashlar_batcher_random(const ashlar_batcher *batcher) {
    return batcher->random;
}

size_t ashlar_batcher_max_steps(const ashlar_batcher *batcher) {
    return batcher->longest;
}

size_t ashlar_batcher_piece_count(const ashlar_batcher *batcher) {
    return batcher->piece_count;
}

size_t ashlar_batcher_grid_bytes(const ashlar_batcher *batcher) {
    return batcher->longest * batcher->batch * sizeof(int32_t);
}
