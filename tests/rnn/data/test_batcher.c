/*
 * test_batcher.c - which sequences a batcher hands out, and in which order. Each record of the
 * test corpus names itself, so that a batch can be traced back.
 */
#include "rnn/data/batcher.h"

#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/host.h"
#include "rnn/data/batch_sampler.h"

enum { RECORDS = 100, LONGEST_RECORD = 60 };

static ashlar_corpus *corpus;

/* Records "<number>:xxxx.." of 4 .. LONGEST_RECORD bytes. */
static bool open_corpus(void) {
    char path[] = "/tmp/ashlar-batcher-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (file == NULL) {
        return false;
    }
    for (int i = 0; i < RECORDS; i++) {
        const int length = 4 + i * 37 % (LONGEST_RECORD - 3);
        (void)fprintf(file, "%03d", i);
        for (int k = 3; k < length; k++) {
            (void)fputc('a' + (i + k) % 26, file);
        }
        (void)fputs("\n\n", file);
    }
    bool opened = fclose(file) == 0;
    const char *const paths[] = {path};
    opened = ashlar__corpus_open(paths, 1, &corpus) == ASHLAR_OK && opened;
    return unlink(path) == 0 && opened;
}

/* A batcher and a batch of buffers of exactly the promised size. */
typedef struct fixture {
    ashlar_batcher *batcher;
    ashlar_batch batch;
} fixture;

static bool set_up_with(fixture *f, const ashlar_batcher_config *config) {
    const size_t batch = config->batch;
    *f = (fixture){0};
    if (ashlar__batcher_create(corpus, config, &f->batcher) != ASHLAR_OK) {
        return false;
    }
    f->batch.inputs = malloc(ashlar__batcher_array_bytes(f->batcher));
    f->batch.targets = malloc(ashlar__batcher_array_bytes(f->batcher));
    f->batch.lengths = malloc(batch * sizeof(int32_t));
    /* Garbage that padding must overwrite. */
    memset(f->batch.inputs, 0x55, ashlar__batcher_array_bytes(f->batcher));
    memset(f->batch.targets, 0x55, ashlar__batcher_array_bytes(f->batcher));
    return true;
}

static bool set_up(fixture *f, size_t batch, size_t max_steps, size_t window, uint64_t seed) {
    const ashlar_batcher_config config = {
        .batch = batch, .max_steps = max_steps, .window = window, .seed = seed};
    return set_up_with(f, &config);
}

static void tear_down(fixture *f) {
    free(f->batch.inputs);
    free(f->batch.targets);
    free(f->batch.lengths);
    ashlar__batcher_destroy(f->batcher);
}

static fixture f; /* of the case */

static void close_f(void) {
    tear_down(&f);
}

static bool open_f(size_t batch, size_t max_steps, size_t window, uint64_t seed) {
    return set_up(&f, batch, max_steps, window, seed) && check_at_end(close_f);
}

/* --- one batch ------------------------------------------------------------------------------ */

/* Column `j` is one whole record, marked at both ends, then padding. Its number, -1 if not. */
static int record_of_column(size_t batch, size_t j) {
    const int32_t *inputs = f.batch.inputs;
    const int32_t *targets = f.batch.targets;
    const size_t steps = (size_t)f.batch.lengths[j];
    const int number = (inputs[1 * batch + j] - '0') * 100 + (inputs[2 * batch + j] - '0') * 10 +
                       (inputs[3 * batch + j] - '0');
    if (number < 0 || number >= RECORDS) {
        return -1;
    }
    const ashlar_record record = ashlar__corpus_record(corpus, (size_t)number);
    bool same = steps == record.count + 1;
    for (size_t t = 0; t < f.batch.steps && same; t++) {
        const int32_t input = t == 0 || t >= steps ? 0 : record.bytes[t - 1];
        const int32_t target = t + 1 >= steps ? 0 : record.bytes[t];
        same = inputs[t * batch + j] == input && targets[t * batch + j] == target;
    }
    return same ? number : -1;
}

CASE(a_batch_is_whole_records_longest_first_and_padded) {
    enum { BATCH = 7 };
    REQUIRE(open_f(BATCH, 1000, 3, 1));
    CHECK_ZU(ashlar__batcher_max_steps(f.batcher), LONGEST_RECORD + 1);
    CHECK_ZU(ashlar__batcher_piece_count(f.batcher), RECORDS);
    CHECK_ZU(ashlar__batcher_array_bytes(f.batcher),
             (LONGEST_RECORD + 1) * BATCH * sizeof(int32_t));
    for (int i = 0; i < 50; i++) {
        ashlar__batcher_next(f.batcher, &f.batch);
        size_t tokens = 0;
        for (size_t j = 0; j < BATCH; j++) {
            CHECK(record_of_column(BATCH, j) >= 0);
            CHECK(j == 0 || f.batch.lengths[j] <= f.batch.lengths[j - 1]);
            tokens += (size_t)f.batch.lengths[j];
        }
        CHECK_ZU(f.batch.steps, (size_t)f.batch.lengths[0]);
        CHECK_ZU(f.batch.tokens, tokens);
        CHECK_NEAR(f.batch.epoch, (i + 1) * BATCH / (double)RECORDS, 1e-12, 0);
    }
}

/* Count the batch's records; false: one of its columns is none. */
static bool count_records(size_t batch, int seen[RECORDS]) {
    for (size_t j = 0; j < batch; j++) {
        const int number = record_of_column(batch, j);
        if (number < 0) {
            return false;
        }
        seen[number]++;
    }
    return true;
}

/* --- the batch sampler ---------------------------------------------------------------------- */

/* With windows that divide the epoch, each window of `RECORDS` sequences is one epoch. */
CASE(every_epoch_has_every_sequence_once) {
    enum { BATCH = 10 };
    REQUIRE(open_f(BATCH, 1000, 5, 3));
    for (int epoch = 0; epoch < 4; epoch++) {
        int seen[RECORDS] = {0};
        for (int i = 0; i < RECORDS / BATCH; i++) {
            ashlar__batcher_next(f.batcher, &f.batch);
            REQUIRE(count_records(BATCH, seen));
        }
        for (int i = 0; i < RECORDS; i++) {
            CHECK(seen[i] == 1);
        }
    }
}

/* 3 windows of 16 * 50 sequences are 24 epochs of 100: a window spans 8 of them. */
CASE(a_window_may_span_epochs) {
    enum { BATCH = 50 };
    REQUIRE(open_f(BATCH, 1000, 0, 4));
    int seen[RECORDS] = {0};
    for (int i = 0; i < 3 * ASHLAR_BATCH_SAMPLER_WINDOW; i++) {
        ashlar__batcher_next(f.batcher, &f.batch);
        REQUIRE(count_records(BATCH, seen));
    }
    for (int i = 0; i < RECORDS; i++) {
        CHECK(seen[i] == 3 * ASHLAR_BATCH_SAMPLER_WINDOW * BATCH / RECORDS);
    }
    CHECK_NEAR(f.batch.epoch, 24, 1e-12, 0);
}

CASE_WITH(two_epochs_are_in_different_order, open_f(1, 1000, 1, 6)) {
    int order[2][RECORDS];
    int moved = 0, places_moved = 0;
    for (int i = 0; i < 2 * RECORDS; i++) {
        ashlar__batcher_next(f.batcher, &f.batch);
        order[i / RECORDS][i % RECORDS] = record_of_column(1, 0);
    }
    for (int i = 0; i < RECORDS; i++) {
        moved += order[0][i] != order[1][i];
        places_moved += order[0][i] != i;
    }
    CHECK(moved > RECORDS / 2);
    CHECK(places_moved > RECORDS / 2);
}

/* In a window the batches are slices of one sorted list: similar inside, different outside. */
CASE(a_window_is_sorted_and_its_batches_are_shuffled) {
    enum { BATCH = 10, WINDOW = 10 };
    REQUIRE(open_f(BATCH, 1000, WINDOW, 7));
    bool rising = false, falling = false;
    int32_t longest[WINDOW], shortest[WINDOW];
    for (int i = 0; i < WINDOW; i++) {
        ashlar__batcher_next(f.batcher, &f.batch);
        longest[i] = f.batch.lengths[0];
        shortest[i] = f.batch.lengths[BATCH - 1];
        rising = rising || (i > 0 && longest[i] > longest[i - 1]);
        falling = falling || (i > 0 && longest[i] < longest[i - 1]);
    }
    CHECK(rising && falling);
    for (int i = 0; i < WINDOW; i++) {
        for (int k = 0; k < WINDOW; k++) {
            CHECK(i == k || shortest[i] >= longest[k] || longest[i] <= shortest[k]);
        }
    }
}

/* Windows must not all be handed out in one order: the first batch's length has to vary. */
CASE(each_window_has_its_own_order) {
    enum { WINDOW = 10 };
    REQUIRE(open_f(10, 1000, WINDOW, 8));
    int32_t first[8];
    int different = 0;
    for (int i = 0; i < 8 * WINDOW; i++) {
        ashlar__batcher_next(f.batcher, &f.batch);
        if (i % WINDOW == 0) {
            first[i / WINDOW] = f.batch.lengths[0];
            different += first[i / WINDOW] != first[0];
        }
    }
    CHECK(different >= 4);
}

/* Cut to 8 steps, one batch of every piece there is: they join to the records again. */
CASE(pieces_join_to_their_records) {
    enum { MAX_STEPS = 8 };
    size_t piece_count = 0, steps_total = 0;
    for (size_t i = 0; i < RECORDS; i++) {
        const size_t steps = ashlar__corpus_record(corpus, i).count + 1;
        piece_count += (steps + MAX_STEPS - 1) / MAX_STEPS;
        steps_total += steps;
    }
    REQUIRE(open_f(piece_count, MAX_STEPS, 1, 9));
    CHECK_ZU(ashlar__batcher_piece_count(f.batcher), piece_count);
    CHECK_ZU(ashlar__batcher_max_steps(f.batcher), MAX_STEPS);
    ashlar__batcher_next(f.batcher, &f.batch);
    CHECK_ZU(f.batch.tokens, steps_total);
    CHECK_NEAR(f.batch.epoch, 1, 1e-12, 0);
    bool *used = calloc(piece_count, sizeof *used);
    for (size_t i = 0; i < RECORDS; i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        for (size_t first = 0; first <= record.count; first += MAX_STEPS) {
            const size_t left = record.count + 1 - first;
            const size_t steps = left < MAX_STEPS ? left : MAX_STEPS;
            bool found = false;
            for (size_t j = 0; j < piece_count && !found; j++) {
                found = !used[j] && (size_t)f.batch.lengths[j] == steps;
                for (size_t t = 0; t < steps && found; t++) {
                    const size_t at = first + t;
                    const int32_t input = at == 0 ? 0 : record.bytes[at - 1];
                    const int32_t target = at == record.count ? 0 : record.bytes[at];
                    found = f.batch.inputs[t * piece_count + j] == input &&
                            f.batch.targets[t * piece_count + j] == target;
                }
                used[j] = used[j] || found;
            }
            CHECK(found);
        }
    }
    free(used);
}

CASE_WITH(one_step_is_enough_for_a_piece, open_f(3, 1, 2, 1)) {
    CHECK_ZU(ashlar__batcher_piece_count(f.batcher), ashlar__corpus_bytes(corpus) + RECORDS);
    ashlar__batcher_next(f.batcher, &f.batch);
    CHECK_ZU(f.batch.steps, 1);
    CHECK_ZU(f.batch.tokens, 3);
}

/* How many of 30 batches are equal under two seeds. */
static int equal_batches(uint64_t seed_a, uint64_t seed_b) {
    enum { BATCH = 8 };
    fixture a, b;
    if (!set_up(&a, BATCH, 20, 4, seed_a) || !set_up(&b, BATCH, 20, 4, seed_b)) {
        return -1;
    }
    int equal = 0;
    for (int i = 0; i < 30; i++) {
        ashlar__batcher_next(a.batcher, &a.batch);
        ashlar__batcher_next(b.batcher, &b.batch);
        const size_t bytes = a.batch.steps * BATCH * sizeof(int32_t);
        equal += a.batch.steps == b.batch.steps && a.batch.tokens == b.batch.tokens &&
                 memcmp(a.batch.inputs, b.batch.inputs, bytes) == 0 &&
                 memcmp(a.batch.targets, b.batch.targets, bytes) == 0;
    }
    tear_down(&a);
    tear_down(&b);
    return equal;
}

enum { MAX = 9, STRIDE = 4 };

/* Whether the one column of the batch is the piece of a record that begins there. */
static bool is_piece(ashlar_record record, size_t first) {
    const size_t steps = f.batch.steps;
    bool same = first + steps == record.count + 1 || (steps == MAX && first + MAX <= record.count);
    for (size_t t = 0; t < steps && same; t++) {
        const size_t at = first + t;
        const int32_t input = at == 0 ? 0 : record.bytes[at - 1];
        const int32_t target = at == record.count ? 0 : record.bytes[at];
        same = f.batch.inputs[t] == input && f.batch.targets[t] == target;
    }
    return same;
}

/* Note the piece in its place, of several that are alike in one that is not taken yet. */
static bool note_piece(bool taken[RECORDS][LONGEST_RECORD + 1]) {
    for (size_t i = 0; i < RECORDS; i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        for (size_t first = 0; first <= record.count; first += STRIDE) {
            if (!taken[i][first] && is_piece(record, first)) {
                taken[i][first] = true;
                return true;
            }
        }
    }
    return false;
}

static size_t pieces_by_hand(size_t steps) {
    return steps <= MAX ? 1 : 1 + (steps - MAX + STRIDE - 1) / STRIDE;
}

/* One piece a batch, for one epoch. */
CASE(a_stride_makes_pieces_overlap) {
    const ashlar_batcher_config config = {
        .batch = 1, .max_steps = MAX, .window = 1, .seed = 5, .stride = STRIDE};
    static bool taken[RECORDS][LONGEST_RECORD + 1];
    size_t want = 0;
    for (size_t i = 0; i < RECORDS; i++) {
        want += pieces_by_hand(ashlar__corpus_record(corpus, i).count + 1);
    }
    REQUIRE(set_up_with(&f, &config) && check_at_end(close_f));
    CHECK_ZU(ashlar__batcher_piece_count(f.batcher), want);
    for (size_t n = 0; n < want; n++) {
        ashlar__batcher_next(f.batcher, &f.batch);
        CHECK(note_piece(taken));
    }
    for (size_t i = 0; i < RECORDS; i++) { /* none is missing, so none was handed out twice */
        for (size_t k = 0; k < pieces_by_hand(ashlar__corpus_record(corpus, i).count + 1); k++) {
            CHECK(taken[i][k * STRIDE]);
        }
    }
}

CASE(the_seed_decides_the_batches) {
    CHECK(equal_batches(11, 11) == 30);
    CHECK(equal_batches(11, 12) == 0);
}

CASE(bad_sizes_are_refused) {
    ashlar_batcher *batcher = NULL;
    ashlar_batcher_config config = {.batch = 0, .max_steps = 5};
    CHECK_FAILS(ashlar__batcher_create(corpus, &config, &batcher), ASHLAR_EINVAL, "batch is 0");
    config = (ashlar_batcher_config){.batch = 5, .max_steps = 0};
    CHECK_FAILS(ashlar__batcher_create(corpus, &config, &batcher), ASHLAR_EINVAL, "max_steps is 0");
    config = (ashlar_batcher_config){.batch = SIZE_MAX / 4, .max_steps = 5};
    CHECK(ashlar__batcher_create(corpus, &config, &batcher) == ASHLAR_EOVERFLOW);
    config = (ashlar_batcher_config){.batch = INT32_MAX / 60, .max_steps = 61, .window = 1};
    CHECK(ashlar__batcher_create(corpus, &config, &batcher) == ASHLAR_EOVERFLOW);
    CHECK(batcher == NULL);
    config = (ashlar_batcher_config){.batch = 1, .max_steps = 5, .stride = 6};
    CHECK_FAILS(ashlar__batcher_create(corpus, &config, &batcher), ASHLAR_EINVAL, "stride of 6");
    CHECK(batcher == NULL);
    config = (ashlar_batcher_config){.batch = 1, .max_steps = SIZE_MAX, .window = 1};
    CHECK(ashlar__batcher_create(corpus, &config, &batcher) == ASHLAR_OK);
    ashlar__batcher_destroy(batcher);
}

CASE(no_host_memory_at_any_call_leaks_nothing) {
    const ashlar_batcher_config config = {.batch = 4, .max_steps = 9};
    ashlar_batcher *batcher = NULL;
    FOR_HOST_FAILURES(n, status, ashlar__batcher_create(corpus, &config, &batcher)) {
        CHECK((status == ASHLAR_OK) == (batcher != NULL));
    }
    CHECK(n == 9);
    ashlar__batcher_destroy(batcher);
}

static bool is_same_batch(const fixture *a, const fixture *b, size_t count) {
    const size_t bytes = a->batch.steps * count * sizeof(int32_t);
    return a->batch.steps == b->batch.steps && a->batch.tokens == b->batch.tokens &&
           a->batch.epoch == b->batch.epoch &&
           memcmp(a->batch.inputs, b->batch.inputs, bytes) == 0 &&
           memcmp(a->batch.targets, b->batch.targets, bytes) == 0 &&
           memcmp(a->batch.lengths, b->batch.lengths, count * sizeof(int32_t)) == 0;
}

static bool is_same_random(const ashlar_batcher *a, const ashlar_batcher *b) {
    const ashlar_random x = ashlar__batch_sampler_random(ashlar__batcher_sampler(a)),
                        y = ashlar__batch_sampler_random(ashlar__batcher_sampler(b));
    return memcmp(&x, &y, sizeof x) == 0;
}

/* Into windows and epochs at every place. */
CASE(passing_over_batches_is_as_handing_them_out) {
    enum { SKIPS = 60, BATCH = 7, WINDOW = 5 };
    for (size_t skipped = 0; skipped < SKIPS; skipped++) {
        fixture one, two;
        REQUIRE(set_up(&one, BATCH, 25, WINDOW, 3) && set_up(&two, BATCH, 25, WINDOW, 3));
        for (size_t i = 0; i < skipped; i++) {
            ashlar__batcher_next(one.batcher, &one.batch);
        }
        CHECK(skipped == 0 || !is_same_random(one.batcher, two.batcher));
        ashlar__batch_sampler_skip(ashlar__batcher_sampler(two.batcher), skipped);
        CHECK(is_same_random(one.batcher, two.batcher));
        for (size_t i = 0; i < 2 * WINDOW; i++) {
            ashlar__batcher_next(one.batcher, &one.batch);
            ashlar__batcher_next(two.batcher, &two.batch);
            CHECK(is_same_batch(&one, &two, BATCH));
        }
        CHECK(skipped < SKIPS - 1 || one.batch.epoch > 2);
        tear_down(&one);
        tear_down(&two);
    }
}

int main(void) {
    if (!open_corpus()) {
        printf("Bail out! no test corpus: %s\n", ashlar_error_detail());
        return 99;
    }
    check_run_cases();
    ashlar__corpus_destroy(corpus);
    return check_report();
}
