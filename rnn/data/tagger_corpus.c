/* tagger_corpus.c - reads column files and numbers their words, characters and tags. */
#include "rnn/data/tagger_corpus.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"

enum { BYTE_VALUES = 256 };

typedef struct token_span {
    size_t first; /* in corpus->tokens */
    size_t count;
} token_span;

/* Invariants: the sentences' spans follow each other and cover tokens[0, counts.tokens);
 * counts.sentences and counts.tokens are the lengths of sentences[] and tokens[]; the bytes of all
 * tokens lie in texts[] */
struct ashlar_tagger_corpus {
    ashlar_tagger_corpus_config config;
    char **texts; /* [text_count], the files as they were read */
    size_t text_count;
    ashlar_tagger_token *tokens;
    size_t token_capacity;
    token_span *sentences;
    size_t sentence_capacity;
    int32_t characters[BYTE_VALUES]; /* each byte's number; 0: unknown */
    ashlar_tagger_counts counts;
};

/* State while reading. Until number_words() runs, a token's `word` is its number in `words`, which
 * counts rare words, too. */
typedef struct reading {
    ashlar_tagger_corpus *corpus;
    ashlar_vocabulary *words, *tags;
    const char *path;
    size_t line;
    size_t open_count; /* words of the unfinished sentence */
} reading;

static ashlar_status end_sentence(reading *r) {
    ashlar_tagger_corpus *c = r->corpus;
    if (r->open_count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_GROW(c->sentences, &c->sentence_capacity, c->counts.sentences,
                     "tags: no host memory to read %s", r->path);
    c->sentences[c->counts.sentences++] =
        (token_span){c->counts.tokens - r->open_count, r->open_count};
    r->open_count = 0;
    return ASHLAR_OK;
}

static ashlar_status add_token(reading *r, const char *word, size_t word_bytes, const char *tag,
                               size_t tag_bytes) {
    ashlar_tagger_corpus *c = r->corpus;
    size_t word_number, tag_number;
    const unsigned char *bytes = (const unsigned char *)word;
    ASHLAR_HOST_GROW(c->tokens, &c->token_capacity, c->counts.tokens,
                     "tags: no host memory to read %s", r->path);
    ASHLAR_FAIL_IF(c->counts.tokens == INT32_MAX, ASHLAR_EOVERFLOW,
                   "%s:%zu: more than 2^31-1 words; train on less", r->path, r->line);
    ASHLAR_TRY(ashlar__vocabulary_add(r->words, bytes, word_bytes, &word_number));
    ASHLAR_TRY(ashlar__vocabulary_add(r->tags, (const unsigned char *)tag, tag_bytes, &tag_number));
    c->tokens[c->counts.tokens++] =
        (ashlar_tagger_token){bytes, word_bytes, (int32_t)word_number, (int32_t)tag_number};
    r->open_count++;
    return ASHLAR_OK;
}

#define BAD_LINE "%s:%zu: %s; a line is a word, one TAB and its tag, or it is blank"

/* Read one line, given without its line end. */
static ashlar_status read_line(reading *r, const char *line, size_t bytes) {
    const ashlar_tagger_corpus_config *config = &r->corpus->config;
    const char *tab = memchr(line, '\t', bytes);
    ASHLAR_FAIL_IF(memchr(line, '\0', bytes) != NULL, ASHLAR_EFORMAT, BAD_LINE, r->path, r->line,
                   "a byte 0");
    if (tab == NULL) {
        for (size_t i = 0; i < bytes; i++) {
            ASHLAR_FAIL_IF(line[i] != ' ', ASHLAR_EFORMAT, BAD_LINE, r->path, r->line, "no TAB");
        }
        return end_sentence(r);
    }
    const size_t word_bytes = (size_t)(tab - line), tag_bytes = bytes - word_bytes - 1;
    ASHLAR_FAIL_IF(memchr(tab + 1, '\t', tag_bytes) != NULL, ASHLAR_EFORMAT, BAD_LINE, r->path,
                   r->line, "a second TAB");
    ASHLAR_FAIL_IF(word_bytes == 0 || tag_bytes == 0, ASHLAR_EFORMAT, BAD_LINE, r->path, r->line,
                   word_bytes == 0 ? "no word before the TAB" : "no tag after the TAB");
    ASHLAR_FAIL_IF(word_bytes > config->max_bytes, ASHLAR_EFORMAT,
                   "%s:%zu: a word of %zu bytes; allow it with --max-word, or shorten it", r->path,
                   r->line, word_bytes);
    ASHLAR_FAIL_IF(r->open_count == config->max_words, ASHLAR_EFORMAT,
                   "%s:%zu: word %zu of a sentence; allow it with --max-length, or end the "
                   "sentence with a blank line",
                   r->path, r->line, r->open_count + 1);
    return add_token(r, line, word_bytes, tab + 1, tag_bytes);
}

static ashlar_status read_text(reading *r, const char *text, size_t bytes) {
    ashlar_piece rest = {text, bytes};
    for (r->line = 1; rest.bytes > 0; r->line++) {
        ashlar_piece line = ashlar__piece_cut(&rest, '\n');
        line.bytes -= line.bytes > 0 && line.text[line.bytes - 1] == '\r';
        ASHLAR_TRY(read_line(r, line.text, line.bytes));
    }
    return end_sentence(r);
}

static ashlar_status read_file(reading *r, const char *path) {
    ashlar_tagger_corpus *c = r->corpus;
    const size_t sentences = c->counts.sentences;
    size_t bytes;
    ASHLAR_TRY(ashlar__file_read(path, &c->texts[c->text_count], &bytes));
    r->path = path;
    const ashlar_status status = read_text(r, c->texts[c->text_count++], bytes);
    return status == ASHLAR_OK && c->counts.sentences == sentences
               ? ashlar__fail(ASHLAR_EFORMAT,
                              "%s: no sentence in it; give a file of words and tags", path)
               : status;
}

/* Whether sentence i is held out for the test, so that its words are not counted. */
static bool is_held_out(const ashlar_tagger_corpus *c, size_t i) {
    return c->config.held_out > 0 && i % c->config.held_out == c->config.held_out - 1;
}

static void raise_to(size_t *most, size_t value) {
    *most = value > *most ? value : *most;
}

/* Number the characters, and count in `seen` how often each word occurs in sentences that are not
 * held out. */
static void count_seen(ashlar_tagger_corpus *c, size_t *seen) {
    c->counts.characters = 1;
    for (size_t i = 0; i < c->counts.sentences; i++) {
        const ashlar_tagger_sentence s = ashlar__tagger_corpus_sentence(c, i);
        raise_to(&c->counts.longest_sentence, s.count);
        c->counts.held_out += s.is_held_out;
        c->counts.held_out_tokens += s.is_held_out ? s.count : 0;
        for (size_t t = 0; t < s.count; t++) {
            raise_to(&c->counts.longest_word, s.tokens[t].count);
            for (size_t j = 0; !s.is_held_out && j < s.tokens[t].count; j++) {
                int32_t *number = &c->characters[s.tokens[t].bytes[j]];
                *number = *number != 0 ? *number : (int32_t)c->counts.characters++;
            }
            seen[s.tokens[t].word] += !s.is_held_out;
        }
    }
}

/* Renumber tokens: words seen often enough get a number, all others become unknown (0). */
static ashlar_status number_words(ashlar_tagger_corpus *c, size_t different) {
    size_t *seen = ashlar__host_calloc(different, sizeof *seen);
    int32_t *numbers = ashlar__host_calloc(different, sizeof *numbers);
    if (seen == NULL || numbers == NULL) {
        ashlar__host_free(seen);
        ashlar__host_free(numbers);
        return ashlar__fail(ASHLAR_EHOSTMEM, "tags: no host memory to number %zu words", different);
    }
    const size_t least = c->config.min_count > 1 ? c->config.min_count : 1;
    count_seen(c, seen);
    c->counts.words = 1;
    for (size_t i = 0; i < c->counts.sentences; i++) {
        for (size_t t = 0; t < c->sentences[i].count; t++) {
            const int32_t word = c->tokens[c->sentences[i].first + t].word;
            if (!is_held_out(c, i) && numbers[word] == 0 && seen[word] >= least) {
                numbers[word] = (int32_t)c->counts.words++;
            }
        }
    }
    ASHLAR_CHECK2(c->counts.words <= different + 1);
    for (size_t i = 0; i < c->counts.tokens; i++) {
        c->tokens[i].word = numbers[c->tokens[i].word];
    }
    ashlar__host_free(seen);
    ashlar__host_free(numbers);
    return ASHLAR_OK;
}

static ashlar_status read_files(ashlar_tagger_corpus *corpus, const char *const *paths,
                                size_t count) {
    reading r = {.corpus = corpus};
    ashlar_status status = ashlar__vocabulary_create(&r.words);
    ASHLAR_THEN(status, ashlar__vocabulary_create(&r.tags));
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = read_file(&r, paths[i]);
    }
    if (status == ASHLAR_OK) {
        corpus->counts.tags = ashlar__vocabulary_count(r.tags);
        status = number_words(corpus, ashlar__vocabulary_count(r.words));
    }
    ashlar__vocabulary_destroy(r.words);
    ashlar__vocabulary_destroy(r.tags);
    return status;
}

ashlar_status ashlar__tagger_corpus_open(const char *const *paths, size_t count,
                                         const ashlar_tagger_corpus_config *config,
                                         ashlar_tagger_corpus **out) {
    ASHLAR_FAIL_IF(count == 0 || config->max_words == 0 || config->max_bytes == 0 ||
                       config->held_out == 1,
                   ASHLAR_EINVAL,
                   "tags: %zu files, sentences of %zu words of %zu bytes, one of %zu held out; the "
                   "first three are at least 1, the last is 0 or at least 2",
                   count, config->max_words, config->max_bytes, config->held_out);
    ashlar_tagger_corpus *corpus = ashlar__host_calloc(1, sizeof *corpus);
    char **texts = ashlar__host_calloc(count, sizeof *texts);
    if (corpus == NULL || texts == NULL) {
        ashlar__host_free(corpus);
        ashlar__host_free(texts);
        return ashlar__fail(ASHLAR_EHOSTMEM, "tags: no host memory");
    }
    corpus->config = *config;
    corpus->texts = texts;
    ASHLAR_HAND_OUT(read_files(corpus, paths, count), corpus, ashlar__tagger_corpus_destroy, out);
}

void ashlar__tagger_corpus_destroy(ashlar_tagger_corpus *corpus) {
    if (corpus == NULL) {
        return;
    }
    for (size_t i = 0; i < corpus->text_count; i++) {
        ashlar__host_free(corpus->texts[i]);
    }
    ashlar__host_free(corpus->texts);
    ashlar__host_free(corpus->tokens);
    ashlar__host_free(corpus->sentences);
    ashlar__host_free(corpus);
}

void ashlar__tagger_corpus_counts(const ashlar_tagger_corpus *corpus, ashlar_tagger_counts *out) {
    *out = corpus->counts;
}

ashlar_tagger_sentence ashlar__tagger_corpus_sentence(const ashlar_tagger_corpus *corpus,
                                                      size_t i) {
    ASHLAR_ASSERT(i < corpus->counts.sentences);
    const token_span span = corpus->sentences[i];
    return (ashlar_tagger_sentence){corpus->tokens + span.first, span.count,
                                    is_held_out(corpus, i)};
}

int32_t ashlar__tagger_corpus_character(const ashlar_tagger_corpus *corpus, unsigned char byte) {
    return corpus->characters[byte];
}

/* ---- vocabulary: a hash table with open addressing ---- */

typedef struct entry {
    const unsigned char *bytes;
    size_t count;
    uint64_t hash;
} entry;

/* Invariants: place_count is a power of 2, and 2 * count <= place_count; each word has one place,
 * which holds its number + 1: the first free one in a cyclic search from places[hash %
 * place_count] */
struct ashlar_vocabulary {
    entry *entries; /* [place_count / 2], the words by number; `count` are used */
    size_t count;
    size_t *places; /* [place_count], 0: free */
    size_t place_count;
};

enum { FIRST_PLACES = 64 };

/* FNV-1a, 64 bits. */
static uint64_t hash_of(const unsigned char *bytes, size_t count) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static bool is_same(const entry *a, const entry *b) {
    return a->hash == b->hash && a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0;
}

/* The place of a word or, if the word is new, the free place that it would get. */
static size_t *find(const ashlar_vocabulary *v, const entry *word) {
    size_t at = (size_t)word->hash & (v->place_count - 1);
    while (v->places[at] != 0 && !is_same(&v->entries[v->places[at] - 1], word)) {
        at = (at + 1) & (v->place_count - 1);
    }
    return &v->places[at];
}

/* Make room for one more word. */
static ashlar_status grow(ashlar_vocabulary *v) {
    if (2 * (v->count + 1) <= v->place_count) {
        return ASHLAR_OK;
    }
    const size_t place_count = v->place_count > 0 ? 2 * v->place_count : FIRST_PLACES;
    size_t *places = ashlar__host_calloc(place_count, sizeof *places);
    entry *entries = ashlar__host_realloc(v->entries, place_count / 2, sizeof *entries);
    v->entries = entries != NULL ? entries : v->entries;
    if (places == NULL || entries == NULL) {
        ashlar__host_free(places);
        return ashlar__fail(ASHLAR_EHOSTMEM, "vocabulary: no host memory for %zu words",
                            place_count / 2);
    }
    ashlar__host_free(v->places);
    v->places = places;
    v->place_count = place_count;
    for (size_t i = 0; i < v->count; i++) {
        *find(v, &entries[i]) = i + 1;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__vocabulary_create(ashlar_vocabulary **out) {
    ashlar_vocabulary *vocabulary;
    ASHLAR_HOST_NEW(vocabulary, 1, "vocabulary: no host memory");
    *out = vocabulary;
    return ASHLAR_OK;
}

void ashlar__vocabulary_destroy(ashlar_vocabulary *vocabulary) {
    if (vocabulary == NULL) {
        return;
    }
    ashlar__host_free(vocabulary->entries);
    ashlar__host_free(vocabulary->places);
    ashlar__host_free(vocabulary);
}

ashlar_status ashlar__vocabulary_add(ashlar_vocabulary *vocabulary, const unsigned char *bytes,
                                     size_t count, size_t *number) {
    const entry word = {bytes, count, hash_of(bytes, count)};
    if (vocabulary->place_count > 0) { /* first look for the word: a known one needs no room */
        const size_t seen = *find(vocabulary, &word);
        if (seen != 0) {
            *number = seen - 1;
            return ASHLAR_OK;
        }
    }
    ASHLAR_TRY(grow(vocabulary));
    *number = vocabulary->count++;
    vocabulary->entries[*number] = word;
    *find(vocabulary, &word) = vocabulary->count;
    ASHLAR_CHECK2(2 * vocabulary->count <= vocabulary->place_count);
    return ASHLAR_OK;
}

size_t ashlar__vocabulary_count(const ashlar_vocabulary *vocabulary) {
    return vocabulary->count;
}

/* ---- padded batches of tagged sentences ---- */

ashlar_status ashlar__tagger_batch_bytes(const ashlar_tagger_shape *shape, size_t *bytes) {
    size_t words, letters, total;
    ASHLAR_FAIL_IF(
        shape->steps == 0 || shape->batch == 0 || shape->width == 0, ASHLAR_EINVAL,
        "tags: a batch of %zu sentences of %zu words of %zu characters; each is at least 1",
        shape->batch, shape->steps, shape->width);
    /* Since B <= T*B, all arrays but the characters, 4 T*B + B, have at most 5 T*B int32s. */
    ASHLAR_FAIL_IF(!ashlar__mul(shape->steps, shape->batch, &words) ||
                       !ashlar__mul(words, shape->width, &letters) ||
                       !ashlar__mul(words, 5, &total) || !ashlar__add(total, letters, &total) ||
                       total > INT32_MAX,
                   ASHLAR_EOVERFLOW,
                   "tags: %zu sentences of %zu words of %zu characters are too many to count; use "
                   "a smaller batch",
                   shape->batch, shape->steps, shape->width);
    *bytes = (4 * words + shape->batch + letters) * sizeof(int32_t);
    return ASHLAR_OK;
}

ashlar_tagger_arrays ashlar__tagger_batch_arrays(const ashlar_tagger_shape *shape, int32_t *data) {
    const size_t words = shape->steps * shape->batch, batch = shape->batch;
    return (ashlar_tagger_arrays){
        .words = data,
        .targets = data + words,
        .lengths = data + 2 * words,
        .present = data + 2 * words + batch,
        .char_counts = data + 3 * words + batch,
        .characters = data + 4 * words + batch,
    };
}

/* Fill a batch's arrays with padding. */
static ashlar_tagger_arrays clear(ashlar_tagger_batch *batch) {
    const ashlar_tagger_shape *shape = &batch->shape;
    const size_t words = shape->steps * shape->batch;
    const ashlar_tagger_arrays to = ashlar__tagger_batch_arrays(shape, batch->data);
    memset(batch->data, 0, (4 * words + shape->batch + words * shape->width) * sizeof(int32_t));
    for (size_t i = 0; i < words; i++) {
        to.char_counts[i] = 1;
    }
    batch->tokens = 0;
    return to;
}

/* Write a token's word, tag and characters at position `at` of the T*B positions. */
static void fill_word(const ashlar_tagger_batch *batch, const ashlar_tagger_corpus *corpus,
                      const ashlar_tagger_arrays *to, size_t at, const ashlar_tagger_token *token) {
    const size_t words = batch->shape.steps * batch->shape.batch;
    to->words[at] = token->word;
    to->targets[at] = token->tag;
    to->present[at] = 1;
    to->char_counts[at] = (int32_t)token->count;
    for (size_t i = 0; i < token->count; i++) {
        to->characters[i * words + at] = ashlar__tagger_corpus_character(corpus, token->bytes[i]);
    }
}

void ashlar__tagger_batch_fill(ashlar_tagger_batch *batch, const ashlar_tagger_corpus *corpus,
                               const ashlar_batch_sampler_item *items, size_t count) {
    ashlar__tagger_batch_fill_padded(batch, corpus, items, count, 1, 1);
}

void ashlar__tagger_batch_fill_padded(ashlar_tagger_batch *batch,
                                      const ashlar_tagger_corpus *corpus,
                                      const ashlar_batch_sampler_item *items, size_t count,
                                      size_t steps, size_t width) {
    const size_t longest = items[0].length > steps ? items[0].length : steps;
    ashlar_tagger_shape shape = {.steps = longest, .batch = count, .width = width};
    for (size_t b = 0; b < count; b++) {
        const ashlar_tagger_sentence sentence =
            ashlar__tagger_corpus_sentence(corpus, items[b].number);
        for (size_t t = 0; t < sentence.count; t++) {
            const size_t bytes = sentence.tokens[t].count;
            shape.width = bytes > shape.width ? bytes : shape.width;
        }
    }
    batch->shape = shape;
    const ashlar_tagger_arrays to = clear(batch);
    for (size_t b = 0; b < count; b++) {
        const ashlar_tagger_sentence sentence =
            ashlar__tagger_corpus_sentence(corpus, items[b].number);
        ASHLAR_CHECK2(sentence.count <= shape.steps); /* the first sentence is the longest */
        to.lengths[b] = (int32_t)sentence.count;
        batch->tokens += sentence.count;
        for (size_t t = 0; t < sentence.count; t++) {
            fill_word(batch, corpus, &to, t * count + b, &sentence.tokens[t]);
        }
    }
}

void ashlar__tagger_batch_fill_largest(ashlar_tagger_batch *batch,
                                       const ashlar_tagger_shape *shape) {
    const size_t words = shape->steps * shape->batch;
    batch->shape = *shape;
    const ashlar_tagger_arrays to = clear(batch);
    for (size_t b = 0; b < shape->batch; b++) {
        to.lengths[b] = (int32_t)shape->steps;
    }
    for (size_t i = 0; i < words; i++) {
        to.present[i] = 1;
        to.char_counts[i] = (int32_t)shape->width;
    }
    batch->tokens = words;
}
