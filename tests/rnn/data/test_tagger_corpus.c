/*
 * test_tagger_corpus.c - how column files are read, which words are known, what is refused, and
 * where a batch has its words and characters.
 */
#include "rnn/data/tagger_corpus.h"

#include "allocator/base/host.h"
#include "tests/allocator/base/file_fixture.h"
#include "tests/check.h"

static const ashlar_tagger_corpus_config usual = {.max_words = 6, .max_bytes = 5};

static ashlar_tagger_corpus *c; /* the case's */

static void close_corpus(void) {
    ashlar__tagger_corpus_destroy(c);
    c = NULL;
}

/* A corpus of these files in place of the last. */
static ashlar_status open_files(const char *const *paths, size_t count,
                                const ashlar_tagger_corpus_config *config) {
    close_corpus();
    (void)check_at_end(close_corpus);
    return ashlar__tagger_corpus_open(paths, count, config, &c);
}

static ashlar_status open_bytes(const char *bytes, size_t count,
                                const ashlar_tagger_corpus_config *config) {
    const char *paths[] = {path};
    write_bytes(bytes, count);
    return open_files(paths, 1, config);
}

static bool open_text(const char *text, const ashlar_tagger_corpus_config *config) {
    return open_bytes(text, strlen(text), config) == ASHLAR_OK;
}

static ashlar_tagger_counts counts_now(void) {
    ashlar_tagger_counts counts;
    ashlar__tagger_corpus_counts(c, &counts);
    return counts;
}

/* All sentences as "word:number:tag word:number:tag|..."; a "!" stands before held-out ones. */
static void check_sentences(const char *want) {
    char got[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < counts_now().sentences; i++) {
        const ashlar_tagger_sentence s = ashlar__tagger_corpus_sentence(c, i);
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s", i == 0 ? "" : "|",
                                 s.is_held_out ? "!" : "");
        for (size_t t = 0; t < s.count; t++) {
            used +=
                (size_t)snprintf(got + used, sizeof got - used, "%s%.*s:%d:%d", t == 0 ? "" : " ",
                                 (int)s.tokens[t].count, (const char *)s.tokens[t].bytes,
                                 (int)s.tokens[t].word, (int)s.tokens[t].tag);
        }
    }
    CHECK(strcmp(got, want) == 0);
    if (strcmp(got, want) != 0) {
        printf("# got  %s\n# want %s\n", got, want);
    }
}

CASE(lines_are_words_and_blank_ones_end_sentences) {
    REQUIRE(open_text("the\tD\ncat\tN\n\nthe\tD\nthe\tN\n", &usual));
    check_sentences("the:1:0 cat:2:1|the:1:0 the:1:1");
    const ashlar_tagger_counts n = counts_now();
    CHECK(n.sentences == 2 && n.held_out == 0 && n.tokens == 4 && n.held_out_tokens == 0);
    CHECK(n.words == 3 && n.tags == 2);
    CHECK_ZU(n.characters, 1 + 5); /* t h e c a */
    CHECK(n.longest_sentence == 2 && n.longest_word == 3);
    CHECK(ashlar__tagger_corpus_character(c, 't') == 1 &&
          ashlar__tagger_corpus_character(c, 'h') == 2);
    CHECK(ashlar__tagger_corpus_character(c, 'a') == 5 &&
          ashlar__tagger_corpus_character(c, 'z') == 0);
    ashlar__tagger_corpus_destroy(NULL);
}

CASE(ends_of_lines_and_blank_lines_may_be_of_any_kind) {
    const char *const same[] = {
        "a\tX\nb\tY\n\nc\tX\n",
        "a\tX\r\nb\tY\r\n\r\nc\tX\r\n",
        "\n\n\na\tX\nb\tY\n\n\n  \n\nc\tX",
        "a\tX\nb\tY\n   \r\nc\tX\r\n\n\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        REQUIRE(open_text(same[i], &usual));
        check_sentences("a:1:0 b:2:1|c:3:0");
    }
}

/* Within a line all but TAB, its end and byte 0 is a word's. */
CASE_WITH(words_may_hold_any_other_byte, open_text("a b\tX y\n\xc3\xa9\r!\tY\n", &usual)) {
    check_sentences("a b:1:0 \xc3\xa9\r!:2:1");
    CHECK(ashlar__tagger_corpus_character(c, 0xc3) == 4);
}

CASE(several_files_are_one_after_the_other) {
    char second[96];
    const char *paths[] = {path, second, path};
    (void)snprintf(second, sizeof second, "%s.2", path);
    write_bytes("b\tY\na\tX", 7);
    REQUIRE(rename(path, second) == 0);
    write_bytes("a\tX\n", 4);
    REQUIRE(open_files(paths, 3, &usual) == ASHLAR_OK);
    check_sentences("a:1:0|b:2:1 a:1:0|a:1:0");
    paths[1] = path;
    paths[2] = second;
    REQUIRE(rename(path, second) == 0);
    write_bytes("b\tY\n\na\n", 7);
    paths[0] = second;
    CHECK(open_files(paths, 2, &usual) == ASHLAR_EFORMAT && c == NULL);
    CHECK_HAS(ashlar_error_detail(), ":3: no TAB"); /* of its own file */
    (void)unlink(second);
}

CASE(rare_words_are_unknown) {
    const char *const text = "a\tX\nb\tX\nc\tX\n\nb\tX\na\tX\na\tX\n";
    const struct {
        size_t min_count, words;
        const char *want;
    } cases[] = {
        {0, 4, "a:1:0 b:2:0 c:3:0|b:2:0 a:1:0 a:1:0"},
        {1, 4, "a:1:0 b:2:0 c:3:0|b:2:0 a:1:0 a:1:0"},
        {2, 3, "a:1:0 b:2:0 c:0:0|b:2:0 a:1:0 a:1:0"},
        {3, 2, "a:1:0 b:0:0 c:0:0|b:0:0 a:1:0 a:1:0"},
        {4, 1, "a:0:0 b:0:0 c:0:0|b:0:0 a:0:0 a:0:0"},
    };
    for (size_t i = 0; i < 5; i++) {
        ashlar_tagger_corpus_config config = usual;
        config.min_count = cases[i].min_count;
        REQUIRE(open_text(text, &config));
        check_sentences(cases[i].want);
        CHECK_ZU(counts_now().words, cases[i].words);
        CHECK_ZU(counts_now().characters, 4); /* a rare word's characters are known */
    }
}

/* What is seen in held-out sentences only, or too often there, is not known; tags are. */
CASE(held_out_sentences_teach_no_words) {
    ashlar_tagger_corpus_config config = usual;
    config.held_out = 2;
    config.min_count = 2;
    REQUIRE(open_text("a\tX\nb\tX\n\nxy\tZ\nb\tY\nb\tX\n\na\tY\n\nq\tX\n\nb\tX\na\tX\n", &config));
    check_sentences("a:1:0 b:2:0|!xy:0:1 b:2:2 b:2:0|a:1:2|!q:0:0|b:2:0 a:1:0");
    const ashlar_tagger_counts n = counts_now();
    CHECK(n.held_out == 2 && n.held_out_tokens == 4 && n.tokens == 9);
    CHECK(n.words == 3 && n.characters == 3 && n.tags == 3);
    CHECK(n.longest_sentence == 3 && n.longest_word == 2); /* held out or not */
    CHECK(ashlar__tagger_corpus_character(c, 'x') == 0);
    REQUIRE(open_text("a\tX\na\tX\n\nz\tX\n\nb\tX\nz\tX\n\nq\tX\n\nb\tX\nz\tX\n", &config));
    /* z was first seen where it does not count */
    check_sentences("a:1:0 a:1:0|!z:3:0|b:2:0 z:3:0|!q:0:0|b:2:0 z:3:0");
}

/* ---- what is refused ---- */

static void check_refused(const char *bytes, size_t count, const char *what) {
    CHECK(open_bytes(bytes, count, &usual) == ASHLAR_EFORMAT && c == NULL);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK_HAS(ashlar_error_detail(), what);
}

CASE(bad_lines_are_named) {
    check_refused("a\tX\nb\n", 6, ":2: no TAB");
    check_refused("\n\n\n b\n", 6, ":4: no TAB");
    check_refused("a\tX\tY\n", 6, ":1: a second TAB");
    check_refused("a\tX\n\tY\n", 7, ":2: no word before the TAB");
    check_refused("a\tX\n\t\n", 6, ":2: no word before the TAB");
    check_refused("a\tX\nb\t\n", 7, ":2: no tag after the TAB");
    check_refused("a\tX\nb\t\r\n", 8, ":2: no tag after the TAB");
    check_refused("a\tX\n\nb\0\tY\n", 10, ":3: a byte 0");
    check_refused("a\tX\n\nb\tY\0\n", 10, ":3: a byte 0");
    check_refused("\0", 1, ":1: a byte 0");
    check_refused("", 0, "no sentence");
    check_refused("\n \n\r\n", 5, "no sentence");
}

CASE(what_is_too_long_is_named_with_its_option) {
    const char *const longest = "12345\tX\n1\tX\n1\tX\n1\tX\n1\tX\n1\tX\n";
    check_refused("a\tX\n123456\tX\n", 13, ":2: a word of 6 bytes; allow it with --max-word");
    check_refused("1\tX\n1\tX\n1\tX\n1\tX\n1\tX\n1\tX\n1\tX\n", 28,
                  ":7: word 7 of a sentence; allow it with --max-length");
    REQUIRE(open_bytes(longest, strlen(longest), &usual) == ASHLAR_OK);
    CHECK(counts_now().longest_sentence == 6 && counts_now().longest_word == 5);
}

CASE(what_cannot_be_asked_for_is_refused) {
    const char *paths[] = {"/nowhere/at/all"};
    const ashlar_tagger_corpus_config bad[] = {
        {.max_words = 0, .max_bytes = 5},
        {.max_words = 6, .max_bytes = 0},
        {.max_words = 6, .max_bytes = 5, .held_out = 1},
    };
    for (size_t i = 0; i < 3; i++) {
        CHECK(open_files(paths, 1, &bad[i]) == ASHLAR_EINVAL && c == NULL);
    }
    CHECK(open_files(paths, 0, &usual) == ASHLAR_EINVAL && c == NULL);
    CHECK(open_files(paths, 1, &usual) == ASHLAR_EIO && c == NULL);
    CHECK_HAS(ashlar_error_detail(), "/nowhere/at/all");
    paths[0] = folder;
    CHECK(open_files(paths, 1, &usual) == ASHLAR_EIO && c == NULL);
}

/* More sentences and words than any table begins with. */
static size_t make_long(char *text, size_t sentences) {
    size_t used = 0;
    for (size_t i = 0; i < sentences; i++) {
        used += (size_t)sprintf(text + used, "%zu\t%zu\n%zu\tX\n\n", i, i % 7, i / 2);
    }
    return used;
}

CASE(failing_host_memory_at_any_point_is_told) {
    static char text[FILE_MAX_BYTES];
    const size_t bytes = make_long(text, 200);
    const char *paths[] = {path};
    write_bytes(text, bytes);
    FOR_HOST_FAILURES(n, status, open_files(paths, 1, &usual)) {
        CHECK((status == ASHLAR_OK) == (c != NULL));
    }
    CHECK(n > 13);
    REQUIRE(c != NULL);
    CHECK_ZU(counts_now().tokens, 400);
    CHECK_ZU(counts_now().words, 201);
    CHECK_ZU(counts_now().tags, 8);
}

/* ---- numbers of words ---- */

static size_t number_of(ashlar_vocabulary *v, const void *bytes, size_t count) {
    size_t number = (size_t)-1;
    CHECK(ashlar__vocabulary_add(v, bytes, count, &number) == ASHLAR_OK);
    return number;
}

CASE(numbers_follow_the_order_of_first_sight) {
    ashlar_vocabulary *v = NULL;
    REQUIRE(ashlar__vocabulary_create(&v) == ASHLAR_OK);
    CHECK_ZU(ashlar__vocabulary_count(v), 0);
    CHECK_ZU(number_of(v, "b", 1), 0);
    CHECK_ZU(number_of(v, "a", 1), 1);
    CHECK_ZU(number_of(v, "b", 1), 0);
    CHECK_ZU(number_of(v, "ab", 2), 2);
    CHECK_ZU(number_of(v, "a\0", 2), 3); /* any bytes, and the number of them counts */
    CHECK_ZU(number_of(v, "a\0b", 3), 4);
    CHECK_ZU(number_of(v, "a", 1), 1);
    CHECK_ZU(number_of(v, "", 0), 5);
    CHECK_ZU(number_of(v, "", 0), 5);
    CHECK_ZU(ashlar__vocabulary_count(v), 6);
    ashlar__vocabulary_destroy(v);
    ashlar__vocabulary_destroy(NULL);
}

/* ---- where a batch's words and characters lie ---- */

static bool open_batch_text(void) {
    const ashlar_tagger_corpus_config config = {.max_words = 9, .max_bytes = 9, .held_out = 4};
    return open_text("ab\tX\nc\tY\n\nabc\tY\n\nb\tX\nb\tX\ncab\tX\n\nzz\tZ\nab\tX\n", &config);
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
CASE_WITH(sentences_are_padded_and_time_comes_first, open_batch_text()) {
    int32_t data[256];
    ashlar_tagger_batch batch = {.data = data};
    memset(data, 0x7f, sizeof data);
    const ashlar_batch_sampler_item items[] = {{2, 3}, {0, 2}};
    ashlar__tagger_batch_fill(&batch, c, items, 2);
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
}

CASE_WITH(a_batch_is_padded_further_if_asked, open_batch_text()) {
    int32_t data[256];
    ashlar_tagger_batch batch = {.data = data};
    const ashlar_batch_sampler_item items[] = {{2, 3}, {0, 2}};
    ashlar__tagger_batch_fill_padded(&batch, c, items, 2, 4, 5);
    CHECK(batch.shape.steps == 4 && batch.shape.batch == 2 && batch.shape.width == 5);
    CHECK_ZU(batch.tokens, 5);
    const ashlar_tagger_arrays at = ashlar__tagger_batch_arrays(&batch.shape, data);
    check_values(at.words, 8, (int32_t[]){4, 1, 4, 2, 5, 0, 0, 0});
    check_values(at.lengths, 2, (int32_t[]){3, 2});
    check_values(at.present, 8, (int32_t[]){1, 1, 1, 1, 1, 0, 0, 0});
    check_values(at.char_counts, 8, (int32_t[]){1, 2, 1, 1, 3, 1, 1, 1});
    ashlar__tagger_batch_fill_padded(&batch, c, items, 2, 1, 1);
    CHECK(batch.shape.steps == 3 && batch.shape.width == 3); /* never cut */
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
