/*
 * test_random.c - that the generators give the published numbers, and every value equally often.
 */
#include "allocator/base/random.h"

#include "tests/check.h"

/* The values that the generators' authors' reference programs print. */
CASE(the_generator_gives_the_published_numbers) {
    ashlar_random random = {{1, 2, 3, 4}};
    CHECK(ashlar__random_next(&random) == 11520);
    CHECK(ashlar__random_next(&random) == 0);
    CHECK(ashlar__random_next(&random) == 1509978240);
    CHECK(ashlar__random_next(&random) == UINT64_C(1215971899390074240));
    ashlar__random_init(&random, 1234567);
    CHECK(random.s[0] == UINT64_C(6457827717110365317));
    CHECK(random.s[1] == UINT64_C(3203168211198807973));
    CHECK(random.s[2] == UINT64_C(9817491932198370423));
    CHECK(random.s[3] == UINT64_C(4593380528125082431));
}

/* 3 * 2^62: a plain remainder would give the lowest third twice as often as the others. */
CASE(a_large_bound_is_without_bias) {
    const uint64_t bound = UINT64_C(3) << 62;
    ashlar_random random;
    ashlar__random_init(&random, 5);
    int low = 0;
    for (int i = 0; i < 30000; i++) {
        low += ashlar__random_below(&random, bound) < bound / 3;
    }
    CHECK_NEAR(low, 10000, 400, 0);
    /* A power of two has no bias to avoid: no number may be thrown away. */
    ashlar_random copy = random;
    for (int i = 0; i < 64; i++) {
        const uint64_t want = ashlar__random_next(&copy) << 1 >> 1;
        CHECK(ashlar__random_below(&random, UINT64_C(1) << 63) == want);
    }
}

RUN_CASES()
