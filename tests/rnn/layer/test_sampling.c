/*
 * test_sampling.c - temperature, top-k and top-p on made-up logits, against their definitions in
 * double precision, symbol by symbol.
 */
#include "tests/check.h"

#include <float.h>

#include "rnn/layer/sampling.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "arena/compute/convert.h"

enum { CLASSES_MAX = 256 };

static const double almost_one = 1 - 0x1p-53; /* the last number that a generator gives */

static ashlar_sampling sampling;

static void close_sampling(void) {
    ashlar__sampling_finish(&sampling);
}

/* In the place of the one before. */
static bool open_sampling(size_t classes, double temperature, size_t top_k, double top_p) {
    const ashlar_sampling_config config = {temperature, top_k, top_p};
    close_sampling();
    return ashlar__sampling_init(&sampling, classes, &config) == ASHLAR_OK &&
           check_at_end(close_sampling);
}

static int32_t draw(double number) {
    int32_t symbol = -1;
    CHECK(ashlar__sampling_draw(&sampling, number, &symbol) == ASHLAR_OK);
    CHECK(symbol >= 0 && (size_t)symbol < sampling.classes);
    return symbol;
}

/* Steps of 1/4 in -4 .. 4, in no order: of many symbols, several are equal. */
static void make_logits(uint64_t seed) {
    ashlar_random random;
    ashlar__random_init(&random, seed);
    for (size_t i = 0; i < sampling.classes; i++) {
        sampling.logits[i] = (float)ashlar__random_below(&random, 33) / 4 - 4;
    }
}

/* ---- the reference ---- */

static bool is_likelier(size_t a, size_t b) {
    return sampling.logits[a] > sampling.logits[b] ||
           (sampling.logits[a] == sampling.logits[b] && a < b);
}

/* What is likelier than a symbol decides whether it is kept: so many, and with such a share. */
static bool keeps(const double *weights, size_t symbol, size_t top_k, double top_p, double total) {
    size_t likelier = 0;
    double share = 0;
    for (size_t i = 0; i < sampling.classes; i++) {
        if (is_likelier(i, symbol)) {
            likelier++;
            share += weights[i] / total;
        }
    }
    return (top_k == 0 || likelier < top_k) &&
           (top_p >= 1 || share < top_p - 1e-9 || likelier == 0);
}

static double sum_kept(const double *weights, size_t top_k, double top_p, double total) {
    double sum = 0;
    for (size_t i = 0; i < sampling.classes; i++) {
        sum += keeps(weights, i, top_k, top_p, total) ? weights[i] : 0;
    }
    return sum;
}

/* The distribution that a configuration should give for the logits at hand. */
static void expect(double temperature, size_t top_k, double top_p, double *probabilities) {
    double weights[CLASSES_MAX];
    for (size_t i = 0; i < sampling.classes; i++) {
        weights[i] = exp((double)sampling.logits[i] / temperature - 4 / temperature);
    }
    const double total = sum_kept(weights, top_k, 1, 1);
    const double kept = sum_kept(weights, top_k, top_p, total);
    for (size_t i = 0; i < sampling.classes; i++) {
        probabilities[i] = keeps(weights, i, top_k, top_p, total) ? weights[i] / kept : 0;
    }
}

/*
 * Numbers at equal distances: each symbol gets its share of them, one more or less, and they rise
 * with the number.
 */
static void check_draws(const double *want, size_t draws) {
    size_t counts[CLASSES_MAX] = {0};
    int32_t last = 0;
    for (size_t i = 0; i < draws; i++) {
        const int32_t symbol = draw(((double)i + 0.5) / (double)draws);
        CHECK(symbol >= last);
        counts[symbol]++;
        last = symbol;
    }
    for (size_t i = 0; i < sampling.classes; i++) {
        CHECK_NEAR((double)counts[i], want[i] * (double)draws, 1.01, 0);
        CHECK((want[i] > 0) == (sampling.probabilities[i] > 0));
    }
}

static void check_distribution(size_t classes, double temperature, size_t top_k, double top_p) {
    double want[CLASSES_MAX];
    REQUIRE(open_sampling(classes, temperature, top_k, top_p));
    for (uint64_t seed = 1; seed <= 3; seed++) {
        make_logits(seed);
        expect(temperature, top_k, top_p, want);
        check_draws(want, 50);
    }
    check_draws(want, 2000);
}

/* ---- distributions ---- */

CASE(temperature_alone_gives_each_symbol_its_probability) {
    static const double temperatures[] = {0.2, 0.7, 1, 5, 100};
    for (size_t t = 0; t < 5; t++) {
        check_distribution(1, temperatures[t], 0, 1);
        check_distribution(19, temperatures[t], 0, 1);
        check_distribution(256, temperatures[t], 0, 1);
    }
}

CASE(top_k_keeps_the_likeliest_and_their_ratios) {
    static const size_t kept[] = {1, 2, 5, 18, 19, 20, 1000};
    for (size_t k = 0; k < 7; k++) {
        check_distribution(1, 0.7, kept[k], 1);
        check_distribution(2, 0.7, kept[k], 1);
        check_distribution(19, 0.7, kept[k], 1);
        check_distribution(256, 2, kept[k], 1);
    }
}

CASE(top_p_keeps_the_fewest_that_have_the_share) {
    static const double shares[] = {1e-6, 0.1, 0.35, 0.6, 0.9, 0.999};
    for (size_t p = 0; p < 6; p++) {
        check_distribution(1, 0.7, 0, shares[p]);
        check_distribution(3, 0.7, 0, shares[p]);
        check_distribution(19, 0.7, 0, shares[p]);
        check_distribution(256, 2, 0, shares[p]);
    }
}

CASE(top_p_has_its_share_of_what_top_k_left) {
    static const size_t kept[] = {1, 4, 18, 300};
    static const double shares[] = {0.2, 0.55, 0.95};
    for (size_t k = 0; k < 4; k++) {
        for (size_t p = 0; p < 3; p++) {
            check_distribution(19, 1, kept[k], shares[p]);
            check_distribution(256, 3, kept[k], shares[p]);
        }
    }
}

/* ---- the edges of each ---- */

static size_t count_kept(double top_p, size_t top_k) {
    size_t kept = 0;
    CHECK(open_sampling(4, 1, top_k, top_p)); /* equal ones */
    CHECK(draw(0) == 0);
    while (kept < 4 && sampling.probabilities[kept] > 0) {
        kept++;
    }
    CHECK(draw(almost_one) == (int32_t)kept - 1);
    return kept;
}

CASE(of_equal_symbols_the_lower_ones_are_kept) {
    CHECK_ZU(count_kept(1, 0), 4);
    CHECK_ZU(count_kept(1, 3), 3);
    CHECK_ZU(count_kept(0, 0), 1);
    CHECK_ZU(count_kept(0.25, 0), 1); /* a share that is met exactly is enough */
    CHECK_ZU(count_kept(0.26, 0), 2);
    CHECK_ZU(count_kept(0.5, 0), 2);
    CHECK_ZU(count_kept(0.51, 0), 3);
    CHECK_ZU(count_kept(0.75, 0), 3);
    CHECK_ZU(count_kept(0.76, 0), 4);
    CHECK_ZU(count_kept(0.5, 2), 1); /* half of two, not of four */
    CHECK_ZU(count_kept(0.51, 2), 2);
}

CASE_WITH(a_symbol_begins_where_the_one_before_it_ends, open_sampling(4, 1, 0, 1)) {
    CHECK(draw(0.25) == 1 && draw(0.5) == 2 && draw(0.75) == 3);
    CHECK(draw(0.25 - 0x1p-54) == 0 && draw(0.5 - 0x1p-53) == 1 && draw(0.75 - 0x1p-53) == 2);
}

/* 256 equal probabilities are 2^-8; one that is far below rounding's reach counts, too. */
CASE_WITH(a_share_of_1_drops_nothing, open_sampling(CLASSES_MAX, 1, 0, 1)) {
    sampling.logits[7] = -60;
    CHECK(draw(0) == 0);
    CHECK(sampling.probabilities[7] > 0 && sampling.probabilities[7] < 1e-20f);
    sampling.config.top_k = CLASSES_MAX; /* as many as there are */
    CHECK(draw(0) == 0);
    CHECK(sampling.probabilities[7] > 0);
}

CASE(temperature_0_takes_the_likeliest_whatever_the_number) {
    static const double temperatures[] = {0, 1e-300, 0.5 * (double)FLT_MIN};
    static const double numbers[] = {0, 0.5, almost_one};
    for (size_t i = 0; i < 9; i++) {
        REQUIRE(open_sampling(5, temperatures[i / 3], i % 2 * 3, 1));
        memcpy(sampling.logits, (float[]){-1, 2, 0, 2, 1.5f}, 5 * sizeof(float));
        CHECK(draw(numbers[i % 3]) == 1); /* of two the lower one */
        sampling.logits[4] = 2.5f;
        CHECK(draw(numbers[i % 3]) == 4);
        sampling.logits[0] = 3;
        CHECK(draw(numbers[i % 3]) == 0);
    }
}

/* Here 1/temperature is still a float: equal ones share, everything else has nothing left. */
CASE(the_lowest_temperature_that_is_one_draws_among_the_equal) {
    REQUIRE(open_sampling(5, FLT_MIN, 0, 1));
    memcpy(sampling.logits, (float[]){-1, 2, -FLT_MAX, 2, 0}, 5 * sizeof(float));
    CHECK(draw(0) == 1 && draw(0.49) == 1);
    CHECK(draw(0.51) == 3 && draw(almost_one) == 3);
    CHECK(sampling.probabilities[1] == 0.5f && sampling.probabilities[4] == 0);
}

/* At a high temperature these two have the same probability in fp32, and still an order. */
CASE_WITH(one_kept_symbol_is_the_likeliest_by_its_logit, open_sampling(3, 100, 1, 1)) {
    memcpy(sampling.logits, (float[]){1, 1 + FLT_EPSILON, 0}, 3 * sizeof(float));
    CHECK(draw(0) == 1 && draw(almost_one) == 1);
    CHECK(sampling.probabilities[0] == 0);
}

/* Every symbol here has at least 1e-6 of the range, far more than rounding may take off it. */
CASE_WITH(the_last_number_is_the_last_symbol_that_is_kept, open_sampling(CLASSES_MAX, 1, 100, 1)) {
    int before_the_end = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        make_logits(seed);
        int32_t last = CLASSES_MAX - 1;
        (void)draw(0.5);
        while (last > 0 && !(sampling.probabilities[last] > 0)) {
            last--;
        }
        before_the_end += last < CLASSES_MAX - 1;
        CHECK(draw(almost_one) == last);
        CHECK(draw(1) == last); /* as if rounding had gone wrong */
    }
    CHECK(before_the_end > 100);
}

CASE_WITH(what_was_drawn_before_decides_nothing, open_sampling(CLASSES_MAX, 1, 30, 0.9)) {
    static float first[CLASSES_MAX];
    make_logits(5);
    const int32_t symbol = draw(0.7);
    memcpy(first, sampling.probabilities, sizeof first);
    for (uint64_t seed = 6; seed < 10; seed++) {
        make_logits(seed);
        (void)draw(0.3);
    }
    make_logits(5);
    CHECK(draw(0.7) == symbol);
    CHECK(memcmp(first, sampling.probabilities, sizeof first) == 0);
}

/* ---- the public sampler ---- */

CASE(a_sampler_draws_as_its_parts_do_from_logits_of_every_type) {
    const ashlar_sampling_config config = {.temperature = 0.7, .top_k = 9, .top_p = 0.8};
    ashlar_sampler *sampler = NULL;
    REQUIRE(open_sampling(19, 0.7, 9, 0.8));
    REQUIRE(ashlar_sampler_create(&config, 19, &sampler) == ASHLAR_OK);
    make_logits(3); /* quarters: the same number in every type */
    for (int dtype = 0; dtype < ASHLAR_DTYPE_COUNT; dtype++) {
        double room[19];
        ashlar__convert((ashlar_dtype)dtype, room, ASHLAR_F32, sampling.logits, 19);
        for (int i = 0; i < 50; i++) {
            int32_t got = -1;
            CHECK(ashlar_sampler_draw(sampler, (ashlar_dtype)dtype, room, i / 50.0, &got) ==
                  ASHLAR_OK);
            CHECK(got == draw(i / 50.0));
        }
    }
    ashlar_sampler_destroy(sampler);
}

CASE(a_sampler_of_all_zeros_takes_the_likeliest_and_top_p_of_0_keeps_all) {
    const float logits[] = {0, 2, 1, 2};
    ashlar_sampling_config config = {0};
    ashlar_sampler *sampler = NULL;
    int32_t got = -1;
    REQUIRE(ashlar_sampler_create(&config, 4, &sampler) == ASHLAR_OK);
    CHECK(ashlar_sampler_draw(sampler, ASHLAR_F32, logits, 0.99, &got) == ASHLAR_OK && got == 1);
    ashlar_sampler_destroy(sampler);
    config.temperature = 1;
    REQUIRE(ashlar_sampler_create(&config, 4, &sampler) == ASHLAR_OK);
    CHECK(ashlar_sampler_draw(sampler, ASHLAR_F32, logits, 0, &got) == ASHLAR_OK && got == 0);
    CHECK(ashlar_sampler_draw(sampler, ASHLAR_F32, logits, almost_one, &got) == ASHLAR_OK);
    CHECK(got == 3);
    ashlar_sampler_destroy(sampler);
    ashlar_sampler_destroy(NULL);
}

CASE(what_a_sampler_cannot_do_is_refused) {
    static const ashlar_sampling_config bad[] = {
        {.temperature = -1}, {.temperature = NAN}, {.temperature = INFINITY},
        {.top_p = -0.1},     {.top_p = 1.5},       {.top_p = NAN}};
    const ashlar_sampling_config good = {.temperature = 1};
    const float logits[] = {1, 2};
    ashlar_sampler *sampler = NULL;
    int32_t got = 77;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(ashlar_sampler_create(&bad[i], 2, &sampler), ASHLAR_EINVAL,
                    i < 3 ? "temperature" : "top_p");
    }
    CHECK_FAILS(ashlar_sampler_create(&good, 0, &sampler), ASHLAR_EINVAL, "classes");
    for (unsigned long n = 1; n <= 4; n++) {
        HOST_FAILS_AT(n, CHECK(ashlar_sampler_create(&good, 2, &sampler) == ASHLAR_EHOSTMEM));
    }
    CHECK(sampler == NULL);
    REQUIRE(ashlar_sampler_create(&good, 2, &sampler) == ASHLAR_OK);
    CHECK_FAILS(ashlar_sampler_draw(sampler, ASHLAR_F32, logits, 1, &got), ASHLAR_EINVAL, "number");
    CHECK_FAILS(ashlar_sampler_draw(sampler, ASHLAR_F32, logits, NAN, &got), ASHLAR_EINVAL,
                "number");
    CHECK_FAILS(ashlar_sampler_draw(sampler, ASHLAR_DTYPE_COUNT, logits, 0, &got), ASHLAR_EINVAL,
                "type");
    CHECK(got == 77);
    ashlar_sampler_destroy(sampler);
}

/* ---- failures ---- */

CASE(a_logit_that_is_no_number_is_refused_wherever_it_is) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 6; i++) {
        REQUIRE(open_sampling(19, i % 2 == 0 ? 0 : 1, 3, 0.5));
        for (size_t at = 0; at < 19; at++) {
            int32_t symbol = 77;
            sampling.logits[at] = bad[i / 2];
            CHECK(ashlar__sampling_draw(&sampling, 0.5, &symbol) == ASHLAR_EFORMAT && symbol == 77);
            CHECK_HAS(ashlar_error_detail(), "weights are no numbers");
            sampling.logits[at] = 0;
            CHECK(ashlar__sampling_draw(&sampling, 0.5, &symbol) == ASHLAR_OK && symbol != 77);
        }
    }
}

CASE(a_choice_without_host_memory_is_refused_and_takes_none) {
    for (unsigned long n = 1; n <= 3; n++) {
        HOST_FAILS_AT(n, CHECK(!open_sampling(19, 1, 0, 1)));
        CHECK_HAS(ashlar_error_detail(), "19 symbols");
        CHECK(sampling.logits == NULL && sampling.probabilities == NULL &&
              sampling.ranking == NULL);
        ashlar__sampling_finish(&sampling); /* as of a zeroed one */
    }
    ashlar__host_fail_at(4);
    REQUIRE(open_sampling(19, 1, 3, 0.5));
    ashlar__host_fail_at(1);
    CHECK(draw(0) == 0); /* a draw asks for none */
    ashlar__host_fail_at(0);
}

RUN_CASES()
