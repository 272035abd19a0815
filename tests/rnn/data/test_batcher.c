/*
 * test_batcher.c - which sequences a batcher hands out, and in which order. Each record of the
 * test corpus names itself, so that a batch can be traced back.
 */
#include "rnn/data/batcher.h"

#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/host.h"

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

/* A batcher, and the batch that it drew last, written out: inputs and targets [T, B]. */
typedef struct fixture {
    ashlar_batcher *batcher;
    struct {
        int32_t *inputs, *targets, *lengths;
        size_t steps, tokens;
        double epoch;
    } batch;
    size_t columns;
    int32_t *image;
} fixture;

static bool set_up_with(fixture *f, const ashlar_batcher_config *config) {
    *f = (fixture){.columns = config->batch};
    if (ashlar__batcher_create(corpus, config, &f->batcher) != ASHLAR_OK) {
        return false;
    }
    const ashlar_batch_split_config whole = {.batch = f->columns};
    const ashlar_batch_split most =
        ashlar__batch_split_make(&whole, ashlar__batcher_max_steps(f->batcher));
    f->image = malloc((most.image + most.extra) * sizeof *f->image);
    return f->image != NULL;
}

static void draw(fixture *f) {
    const ashlar_batch batch = ashlar__batcher_next(f->batcher);
    const ashlar_batch_split_config whole = {.batch = f->columns};
    const ashlar_batch_split split = ashlar__batch_split_make(&whole, batch.steps);
    const ashlar_batch_window at = ashlar__batch_split_window(&split, 0, 0);
    CHECK_ZU(batch.count, f->columns);
    /* Garbage that padding must overwrite. */
    memset(f->image, 0x55, (split.image + split.extra) * sizeof *f->image);
    ashlar__batch_split_fill(&split, corpus, &batch, f->image);
    f->batch.inputs = f->image + at.inputs;
    f->batch.targets = f->image + at.targets;
    f->batch.lengths = f->image + at.lengths;
    f->batch.steps = batch.steps;
    f->batch.tokens = batch.tokens;
    f->batch.epoch = batch.epoch;
}

static bool set_up(fixture *f, size_t batch, size_t max_steps, size_t window, uint64_t seed) {
    const ashlar_batcher_config config = {
        .batch = batch, .max_steps = max_steps, .window = window, .seed = seed};
    return set_up_with(f, &config);
}

static void tear_down(fixture *f) {
    free(f->image);
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
    for (int i = 0; i < 50; i++) {
        draw(&f);
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

/* --- which pieces come when ----------------------------------------------------------------- */

enum { MAX = 9 };

static size_t stride; /* from the beginning of a piece to that of the next */

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
        for (size_t first = 0; first <= record.count; first += stride) {
            if (!taken[i][first] && is_piece(record, first)) {
                taken[i][first] = true;
                return true;
            }
        }
    }
    return false;
}

static size_t pieces_by_hand(size_t steps) {
    return steps <= MAX ? 1 : 1 + (steps - MAX + stride - 1) / stride;
}

/* One piece a batch, for one epoch. */
static void check_pieces(size_t given) {
    const ashlar_batcher_config config = {
        .batch = 1, .max_steps = MAX, .window = 1, .seed = 5, .stride = given};
    static bool taken[RECORDS][LONGEST_RECORD + 1];
    size_t want = 0;
    memset(taken, 0, sizeof taken);
    for (size_t i = 0; i < RECORDS; i++) {
        want += pieces_by_hand(ashlar__corpus_record(corpus, i).count + 1);
    }
    REQUIRE(set_up_with(&f, &config) && check_at_end(close_f));
    CHECK_ZU(ashlar__batcher_piece_count(f.batcher), want);
    CHECK_ZU(ashlar__batcher_max_steps(f.batcher), MAX);
    for (size_t n = 0; n < want; n++) {
        draw(&f);
        CHECK(note_piece(taken));
    }
    CHECK_NEAR(f.batch.epoch, 1, 1e-12, 0);
    for (size_t i = 0; i < RECORDS; i++) { /* none is missing, so none was handed out twice */
        for (size_t k = 0; k < pieces_by_hand(ashlar__corpus_record(corpus, i).count + 1); k++) {
            CHECK(taken[i][k * stride]);
        }
    }
}

CASE(pieces_join_to_their_records) {
    stride = MAX;
    check_pieces(0);
}

CASE(a_stride_makes_pieces_overlap) {
    stride = 4;
    check_pieces(stride);
}

/* The batches of a window, put side by side by their longest, go from the longest to the shortest.
 */
CASE(each_piece_comes_once_an_epoch_with_others_of_its_length) {
    enum { BATCH = 5, WINDOW = 4, WINDOWS = RECORDS / BATCH / WINDOW }; /* none is cut */
    size_t orders = 0;
    REQUIRE(open_f(BATCH, 1000, WINDOW, 2));
    for (size_t epoch = 1; epoch <= 4; epoch++) {
        bool seen[RECORDS] = {false};
        for (size_t i = 0; i < WINDOWS; i++) {
            int32_t first[WINDOW], last[WINDOW];
            for (size_t w = 0; w < WINDOW; w++) {
                draw(&f);
                first[w] = f.batch.lengths[0];
                last[w] = f.batch.lengths[BATCH - 1];
                for (size_t j = 0; j < BATCH; j++) {
                    const int record = record_of_column(BATCH, j);
                    REQUIRE(record >= 0 && !seen[record]);
                    seen[record] = true;
                }
                for (size_t v = 0; v < w; v++) {
                    CHECK(last[w] >= first[v] || last[v] >= first[w]);
                }
            }
            orders += first[0] < first[1]; /* they do not always come longest first */
        }
        CHECK_NEAR(f.batch.epoch, (double)epoch, 1e-12, 0);
    }
    CHECK(orders > 2 && orders < 18);
}

CASE(what_is_skipped_is_what_would_come) {
    fixture other;
    REQUIRE(open_f(RECORDS * 2, 1000, 3, 4)); /* fewer pieces than a batch has: each comes twice */
    REQUIRE(set_up(&other, RECORDS * 2, 1000, 3, 4));
    for (size_t i = 0; i < 5; i++) {
        draw(&other);
    }
    ashlar__batcher_skip(f.batcher, 4);
    draw(&f);
    const ashlar_random a = ashlar__batcher_random(f.batcher);
    const ashlar_random b = ashlar__batcher_random(other.batcher);
    CHECK(memcmp(&a, &b, sizeof a) == 0 && f.batch.epoch == 10);
    CHECK(memcmp(f.batch.inputs, other.batch.inputs,
                 f.batch.steps * RECORDS * 2 * sizeof(int32_t)) == 0);
    tear_down(&other);
}

CASE(a_dummy_has_equal_lengths_and_changes_no_draw) {
    REQUIRE(open_f(5, 1000, 3, 6));
    const ashlar_random before = ashlar__batcher_random(f.batcher);
    const ashlar_batch dummy = ashlar__batcher_dummy(f.batcher, LONGEST_RECORD + 1);
    CHECK(dummy.steps == LONGEST_RECORD + 1 && dummy.tokens == 5 * dummy.steps && dummy.count == 5);
    const ashlar_random after = ashlar__batcher_random(f.batcher);
    CHECK(memcmp(&before, &after, sizeof after) == 0);
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
    CHECK(n == 5);
    ashlar__batcher_destroy(batcher);
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
