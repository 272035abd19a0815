/*
 * test_tagger_batch.c - where a batch's words and characters lie, and what is between them.
 */
#include "rnn/data/tagger_batch.h"

#include "tests/allocator/base/file_fixture.h"

static const char text[] = "ab\tX\nc\tY\n\nabc\tY\n\nb\tX\nb\tX\ncab\tX\n\nzz\tZ\nab\tX\n";

static ashlar_tagger_corpus *open_corpus(void) {
    const ashlar_tagger_corpus_config config = {.max_words = 9, .max_bytes = 9, .held_out = 4};
    const char *paths[] = {path};
    ashlar_tagger_corpus *corpus = NULL;
    write_bytes(text, sizeof text - 1);
    CHECK(ashlar__tagger_corpus_open(paths, 1, &config, &corpus) == ASHLAR_OK);
    return corpus;
}

/* `count` values are those. */
static void check_values(const int32_t *got, size_t count, const int32_t *want) {
    for (size_t i = 0; i < count; i++) {
        CHECK(got[i] == want[i]);
        if (got[i] != want[i]) {
            printf("# value %zu is %d, want %d\n", i, (int)got[i], (int)want[i]);
        }
    }
}

/* ab=1 c=2 abc=3 b=4 cab=5, X=0 Y=1, a=1 b=2 c=3; zz is held out, and unknown. */
CASE(sentences_are_padded_and_time_comes_first) {
    int32_t data[256];
    ashlar_tagger_batch batch = {.data = data};
    ashlar_tagger_corpus *corpus = open_corpus();
    REQUIRE(corpus != NULL);
    memset(data, 0x7f, sizeof data);
    const ashlar_batch_sampler_item items[] = {{2, 3}, {0, 2}};
    ashlar__tagger_batch_fill(&batch, corpus, items, 2);
    CHECK(batch.shape.steps == 3 && batch.shape.batch == 2 && batch.shape.width == 3);
    CHECK_ZU(batch.tokens, 5);
    const ashlar_tagger_arrays at = ashlar__tagger_batch_arrays(&batch.shape, data);
    check_values(at.words, 6, (int32_t[]){4, 1, 4, 2, 5, 0});
    check_values(at.targets, 6, (int32_t[]){0, 0, 0, 1, 0, 0});
    check_values(at.lengths, 2, (int32_t[]){3, 2});
    check_values(at.present, 6, (int32_t[]){1, 1, 1, 1, 1, 0});
    check_values(at.char_counts, 6, (int32_t[]){1, 2, 1, 1, 3, 1});
    check_values(at.characters, 18,
                 (int32_t[]){2, 1, 2, 3, 3, 0, /* first characters */
                             0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0});
    CHECK(data[44] == 0x7f7f7f7f); /* 4*6 + 2 + 18 */
    ashlar__tagger_corpus_destroy(corpus);
}

CASE(a_batch_is_padded_further_if_asked) {
    int32_t data[256];
    ashlar_tagger_batch batch = {.data = data};
    ashlar_tagger_corpus *corpus = open_corpus();
    REQUIRE(corpus != NULL);
    const ashlar_batch_sampler_item items[] = {{2, 3}, {0, 2}};
    ashlar__tagger_batch_fill_padded(&batch, corpus, items, 2, 4, 5);
    CHECK(batch.shape.steps == 4 && batch.shape.batch == 2 && batch.shape.width == 5);
    CHECK_ZU(batch.tokens, 5);
    const ashlar_tagger_arrays at = ashlar__tagger_batch_arrays(&batch.shape, data);
    check_values(at.words, 8, (int32_t[]){4, 1, 4, 2, 5, 0, 0, 0});
    check_values(at.lengths, 2, (int32_t[]){3, 2});
    check_values(at.present, 8, (int32_t[]){1, 1, 1, 1, 1, 0, 0, 0});
    check_values(at.char_counts, 8, (int32_t[]){1, 2, 1, 1, 3, 1, 1, 1});
    ashlar__tagger_batch_fill_padded(&batch, corpus, items, 2, 1, 1);
    CHECK(batch.shape.steps == 3 && batch.shape.width == 3); /* never cut */
    ashlar__tagger_corpus_destroy(corpus);
}

CASE(a_full_batch_has_no_padding) {
    int32_t data[256];
    ashlar_tagger_batch batch = {.data = data};
    memset(data, 0x7f, sizeof data);
    ashlar__tagger_batch_fill_largest(&batch, &(ashlar_tagger_shape){3, 2, 5});
    CHECK(batch.shape.steps == 3 && batch.shape.batch == 2 && batch.shape.width == 5);
    CHECK_ZU(batch.tokens, 6);
    const ashlar_tagger_arrays at = ashlar__tagger_batch_arrays(&batch.shape, data);
    check_values(at.words, 12, (int32_t[12]){0});         /* and targets */
    check_values(at.lengths, 8, (int32_t[]){3, 3, 1, 1, 1, 1, 1, 1}); /* and present */
    check_values(at.char_counts, 6, (int32_t[]){5, 5, 5, 5, 5, 5});
    check_values(at.characters, 30, (int32_t[30]){0});
    CHECK(data[56] == 0x7f7f7f7f);
}

CASE(shapes_that_cannot_be_counted_are_refused) {
    const ashlar_tagger_shape none[] = {{0, 1, 1}, {1, 0, 1}, {1, 1, 0}};
    const ashlar_tagger_shape many[] = {{SIZE_MAX / 2, 3, 1},  {1 << 20, 1 << 20, SIZE_MAX / 8},
                                        {1 << 15, 1 << 15, 2}, {SIZE_MAX / 4, 1, 1},
                                        {SIZE_MAX / 8, 1, 6},  {1 << 14, 1 << 14, 5},
                                        {INT32_MAX, 1, 1}};
    size_t bytes = 77;
    for (size_t i = 0; i < 3; i++) {
        CHECK(ashlar__tagger_batch_bytes(&none[i], &bytes) == ASHLAR_EINVAL);
    }
    for (size_t i = 0; i < 7; i++) {
        CHECK(ashlar__tagger_batch_bytes(&many[i], &bytes) == ASHLAR_EOVERFLOW);
    }
    CHECK_ZU(bytes, 77);
    CHECK(ashlar__tagger_batch_bytes(&(ashlar_tagger_shape){1 << 14, 1 << 14, 2}, &bytes) ==
          ASHLAR_OK);
}

RUN_CASES_IN_FOLDER()
