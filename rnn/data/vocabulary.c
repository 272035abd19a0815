/* vocabulary.c - numbers words by a hash table with open addressing. */
#include "rnn/data/vocabulary.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

typedef struct entry {
    const unsigned char *bytes;
    size_t count;
    uint64_t hash;
} entry;

/* Invariants: place_count is a power of 2, and 2 * count <= place_count; each word has one place,
 * which holds its number + 1: the first free one in a cyclic search from places[hash %
 * place_count] */
struct ashlar_vocabulary {
    entry *entries; /* [place_count / 2] */
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
    if (vocabulary->place_count > 0) { /* a known word needs no room */
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
