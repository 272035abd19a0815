/*
 * test_vocabulary.c - words get numbers in the order in which they are first seen.
 */
#include "rnn/data/tagger_corpus.h"

#include "tests/check.h"
#include "allocator/base/host.h"

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

/* Three bytes are enough for 20,000 different words, which lie side by side. */
enum { MANY = 20000, WIDTH = 3 };
static unsigned char many[MANY][WIDTH];

static void make_many(void) {
    for (size_t i = 0; i < MANY; i++) {
        many[i][0] = (unsigned char)(i % 100);
        many[i][1] = (unsigned char)(i / 100 % 100);
        many[i][2] = (unsigned char)(i / 10000);
    }
}

CASE(numbers_stay_while_it_grows) {
    ashlar_vocabulary *v = NULL;
    size_t wrong = 0;
    REQUIRE(ashlar__vocabulary_create(&v) == ASHLAR_OK);
    make_many();
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < MANY; i++) {
            size_t number = 0;
            wrong += ashlar__vocabulary_add(v, many[i], WIDTH, &number) != ASHLAR_OK || number != i;
        }
        CHECK_ZU(wrong, 0);
        CHECK_ZU(ashlar__vocabulary_count(v), MANY);
    }
    ashlar__vocabulary_destroy(v);
}

RUN_CASES()
