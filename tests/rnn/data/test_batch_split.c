/*
 * test_batch_split.c - batches split into shards, micro-batches and parts: every position of every
 * sequence is in one place, with its length beside it.
 */
#include <unistd.h>

#include "tests/check.h"

#include "rnn/data/batcher.h"

enum { STEPS_MAX = 24, BATCH = 6, WORDS_MAX = 1 << 13 };

static ashlar_corpus *corpus;
static ashlar_text_piece of_text[BATCH];
static const size_t RUNS[][BATCH] = {
    {9, 7, 7, 4, 2, 1}, {9, 9, 9, 9, 9, 9}, {9, 1, 1, 1, 1, 1}, {9, 8, 7, 6, 5, 4}};

/* As many records as a batch has sequences, none like another. */
static bool open_records(void) {
    char path[] = "/tmp/ashlar-split-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    for (int i = 0; file != NULL && i < BATCH; i++) {
        for (int t = 0; t < STEPS_MAX; t++) {
            (void)fputc(33 + 13 * i + t % 13, file);
        }
        (void)fputs("\n\n", file);
    }
    const bool is_written = file != NULL && fclose(file) == 0;
    return is_written && ashlar__corpus_open(&(const char *){path}, 1, &corpus) == ASHLAR_OK &&
           unlink(path) == 0;
}

static ashlar_batch make_batch(const size_t *of) {
    ashlar_batch batch = {.pieces = of_text, .count = BATCH, .steps = of[0]};
    for (size_t b = 0; b < BATCH; b++) {
        of_text[b] = (ashlar_text_piece){.record = b, .first = b, .steps = of[b]};
        batch.tokens += of[b];
    }
    return batch;
}

/* Symbol `i` of a sequence; past its end padding. */
static int32_t symbol_of(size_t sequence, size_t step, size_t i) {
    const ashlar_text_piece *p = &of_text[sequence];
    return step >= p->steps || p->first + i == 0
               ? 0
               : ashlar__corpus_record(corpus, sequence).bytes[p->first + i - 1];
}

static int32_t image[WORDS_MAX];

/* Every step of a window's sequence; `first` is the window's first step. */
static void check_sequence(const ashlar_batch_split *split, const ashlar_batch_window *w,
                           size_t first, size_t column, size_t sequence) {
    for (size_t t = 0; t < w->steps; t++) {
        const size_t at = t * split->count + column;
        CHECK(image[w->inputs + at] == symbol_of(sequence, first + t, first + t));
        CHECK(image[w->targets + at] == symbol_of(sequence, first + t, first + t + 1));
    }
    int32_t within = 0;
    for (size_t t = 0; t < split->part; t++) {
        within += first + t < of_text[sequence].steps;
    }
    CHECK(image[w->lengths + column] == within);
    CHECK(image[w->host_lengths + column] == (within == 0 ? 1 : within));
}

/* The columns of micro-batch m. */
static size_t column_of(const ashlar_batch_split_config *c, size_t count, size_t m, size_t i) {
    const size_t shard = c->first + m / c->pieces, within = m % c->pieces * count + i;
    return shard + within * c->shards;
}

static void check_split(const ashlar_batch_split_config *config, const size_t *of) {
    const ashlar_batch batch = make_batch(of);
    const ashlar_batch_split split = ashlar__batch_split_make(config, batch.steps);
    REQUIRE(split.image + split.extra < WORDS_MAX);
    image[split.image + split.extra] = 77;
    memset(image, 0x55, (split.image + split.extra) * sizeof image[0]);
    ashlar__batch_split_fill(&split, corpus, &batch, image);
    CHECK(image[split.image + split.extra] == 77);
    CHECK_ZU(split.count * config->shards * config->pieces, BATCH);
    CHECK_ZU(split.micro, config->own * config->pieces);
    size_t tokens = 0, steps = 0;
    for (size_t p = 0; p < split.parts; p++) {
        for (size_t m = 0; m < split.micro; m++) {
            const ashlar_batch_window w = ashlar__batch_split_window(&split, m, p);
            CHECK(w.steps >= 1 && w.steps <= split.part);
            for (size_t b = 0; b < split.count; b++) {
                check_sequence(&split, &w, p * split.part, b, column_of(config, split.count, m, b));
            }
            steps += m == 0 ? w.steps : 0;
        }
        tokens += ashlar__batch_split_tokens(&split, p, &batch);
    }
    CHECK_ZU(tokens, batch.tokens);
    CHECK_ZU(steps, batch.steps);
}

/* In every division into shards and micro-batches. */
static void check_shards(size_t part, const size_t *of) {
    for (size_t shards = 1; shards <= BATCH; shards++) {
        for (size_t pieces = 1; shards * pieces <= BATCH; pieces++) {
            for (size_t first = 0; BATCH % (shards * pieces) == 0 && first < shards; first++) {
                check_split(&(ashlar_batch_split_config){.batch = BATCH,
                                                         .shards = shards,
                                                         .first = first,
                                                         .own = 1 + (shards - 1 - first) / 2,
                                                         .pieces = pieces,
                                                         .part = part},
                            of);
            }
        }
    }
}

CASE(every_position_is_in_one_place) {
    for (size_t run = 0; run < sizeof RUNS / sizeof RUNS[0]; run++) {
        for (size_t part = 0; part < 11; part++) {
            check_shards(part, RUNS[run]);
        }
    }
}

CASE(zeros_stand_for_one_shard_and_one_piece) {
    const ashlar_batch_split_config config = {.batch = BATCH};
    const ashlar_batch_split split = ashlar__batch_split_make(&config, 3);
    CHECK(split.micro == 1 && split.count == BATCH && split.parts == 1 && split.part == 3);
}

int main(void) {
    if (!open_records()) {
        printf("Bail out! no test corpus: %s\n", ashlar_error_detail());
        return 99;
    }
    check_run_cases();
    ashlar__corpus_destroy(corpus);
    return check_report();
}
