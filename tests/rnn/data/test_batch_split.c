/*
 * test_batch_split.c - batches split into micro-batches, parts and chunks: every position of every
 * sequence is in one place, with its length beside it.
 */
#include "tests/check.h"

#include "rnn/data/batcher.h"

enum { STEPS_MAX = 24, BATCH = 6, WORDS_MAX = 1 << 13 };

static int32_t inputs[STEPS_MAX * BATCH], targets[STEPS_MAX * BATCH], lengths[BATCH];
static const int32_t RUNS[][BATCH] = {
    {9, 7, 7, 4, 2, 1}, {9, 9, 9, 9, 9, 9}, {9, 1, 1, 1, 1, 1}, {9, 8, 7, 6, 5, 4}};

/* Each cell its own number, padding -1. */
static ashlar_batch make_batch(const int32_t *of) {
    ashlar_batch batch = {
        .inputs = inputs, .targets = targets, .lengths = lengths, .steps = (size_t)of[0]};
    for (size_t b = 0; b < BATCH; b++) {
        lengths[b] = of[b];
        batch.tokens += (size_t)of[b];
        for (size_t t = 0; t < batch.steps; t++) {
            const bool is_padding = t >= (size_t)of[b];
            inputs[t * BATCH + b] = is_padding ? -1 : (int32_t)(100 * b + t);
            targets[t * BATCH + b] = is_padding ? -1 : (int32_t)(10000 + 100 * b + t);
        }
    }
    return batch;
}

static int32_t image[WORDS_MAX];

/* Every step of a window's sequence, chunk by chunk; `first` is the window's first step. */
static void check_sequence(const ashlar_batch_split *split, const ashlar_batch_window *w,
                           size_t first, size_t column, size_t sequence) {
    for (size_t t = 0; t < w->steps; t++) {
        const size_t at = t * split->count + column;
        CHECK(image[w->inputs + at] == inputs[(first + t) * BATCH + sequence]);
        CHECK(image[w->targets + at] == targets[(first + t) * BATCH + sequence]);
    }
    for (size_t c = 0; c < split->chunks; c++) {
        int32_t within = 0;
        for (size_t t = c * split->chunk; t < (c + 1) * split->chunk && t < split->part; t++) {
            within += first + t < (size_t)lengths[sequence];
        }
        CHECK(image[w->lengths + c * split->count + column] == within);
        CHECK(image[w->rnn_lengths + c * split->count + column] == (within == 0 ? 1 : within));
    }
}

static void check_split(const ashlar_batch_split_config *config, const int32_t *of) {
    const ashlar_batch batch = make_batch(of);
    const ashlar_batch_split split = ashlar__batch_split_make(config, batch.steps);
    REQUIRE(split.image + split.extra < WORDS_MAX);
    image[split.image + split.extra] = 77;
    ashlar__batch_split_fill(&split, &batch, image);
    CHECK(image[split.image + split.extra] == 77);
    size_t tokens = 0, steps = 0;
    for (size_t p = 0; p < split.parts; p++) {
        for (size_t m = 0; m < split.micro; m++) {
            const ashlar_batch_window w = ashlar__batch_split_window(&split, m, p);
            CHECK(w.steps >= 1 && w.steps <= split.part);
            for (size_t b = 0; b < split.count; b++) {
                check_sequence(&split, &w, p * split.part, b, m * split.count + b);
            }
            steps += m == 0 ? w.steps : 0;
        }
        tokens += ashlar__batch_split_tokens(&split, p, lengths, BATCH);
    }
    CHECK_ZU(tokens, batch.tokens);
    CHECK_ZU(steps, batch.steps);
}

/* Shards are told apart by what the batch has in each place. */
CASE(shards_of_any_number_of_ranks_are_the_same_columns) {
    enum { SIX = BATCH, STEPS = 3 };
    int32_t whole[3][STEPS * BATCH], own[3][STEPS * BATCH];
    ashlar_batch from = {
        .inputs = whole[0], .targets = whole[1], .lengths = whole[2], .steps = STEPS};
    for (int32_t i = 0; i < STEPS * BATCH; i++) {
        whole[0][i] = i;
        whole[1][i] = 100 + i;
        whole[2][i] = 200 + i; /* of which the first BATCH are read */
    }
    for (size_t all = 1; all <= SIX; all++) {
        for (size_t count = 1; SIX % all == 0 && count <= all; count++) {
            for (size_t first = 0; first + count <= all; first++) {
                ashlar_batch to = {.inputs = own[0], .targets = own[1], .lengths = own[2]};
                const size_t each = SIX / all, columns = each * count;
                ashlar__batch_take_shards(&from, SIX, all, first, count, &to);
                for (size_t c = 0; c < columns; c++) {
                    const size_t column = first + c / each + c % each * all;
                    CHECK(own[2][c] == 200 + (int32_t)column);
                    for (size_t t = 0; t < STEPS; t++) {
                        CHECK(own[0][t * columns + c] == (int32_t)(t * SIX + column));
                        CHECK(own[1][t * columns + c] == 100 + (int32_t)(t * SIX + column));
                    }
                }
            }
        }
    }
}

CASE(every_position_is_in_one_place) {
    for (size_t run = 0; run < sizeof RUNS / sizeof RUNS[0]; run++) {
        for (size_t i = 0; i < 4 * 11 * 11; i++) {
            const size_t micro[] = {0, 2, 3, 6};
            const ashlar_batch_split_config config = {
                .batch = BATCH, .micro = micro[i % 4], .part = i / 4 % 11, .chunk = i / 44};
            check_split(&config, RUNS[run]);
        }
    }
}

RUN_CASES()
