/*
 * test_sampling.c - temperature, top-k and top-p on made-up logits, against their definitions in
 * double precision, symbol by symbol.
 */
#include "tests/check.h"

#include <float.h>

#include "rnn/layer/sampling.h"
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

/* Of few symbols at one temperature, of many at another, where fewer of them are left out. */
CASE(each_symbol_gets_its_share_of_what_is_kept) {
    static const struct {
        double few, many;
        size_t top_k;
        double top_p;
    } rows[] = {{0.2, 0.2, 0, 1},  {0.7, 0.7, 0, 1},   {1, 1, 0, 1},      {5, 5, 0, 1},
                {100, 100, 0, 1},  {0.7, 2, 1, 1},     {0.7, 2, 2, 1},    {0.7, 2, 5, 1},
                {0.7, 2, 18, 1},   {0.7, 2, 19, 1},    {0.7, 2, 20, 1},   {0.7, 2, 1000, 1},
                {0.7, 2, 0, 1e-6}, {0.7, 2, 0, 0.1},   {0.7, 2, 0, 0.35}, {0.7, 2, 0, 0.6},
                {0.7, 2, 0, 0.9},  {0.7, 2, 0, 0.999}, {1, 3, 1, 0.55},   {1, 3, 4, 0.2},
                {1, 3, 4, 0.55},   {1, 3, 4, 0.95},    {1, 3, 18, 0.2},   {1, 3, 18, 0.55},
                {1, 3, 18, 0.95},  {1, 3, 300, 0.2},   {1, 3, 300, 0.55}, {1, 3, 300, 0.95}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_distribution(1, rows[i].few, rows[i].top_k, rows[i].top_p);
        check_distribution(3, rows[i].few, rows[i].top_k, rows[i].top_p);
        check_distribution(19, rows[i].few, rows[i].top_k, rows[i].top_p);
        check_distribution(256, rows[i].many, rows[i].top_k, rows[i].top_p);
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

/* ---- the public sampler ---- */

static ashlar_status draw_one(ashlar_sampler *sampler, ashlar_dtype dtype, const void *logits,
                              double number, int32_t *out) {
    return ashlar_sampler_draw(&sampler, 1, dtype, logits, &number, out);
}

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
            CHECK(draw_one(sampler, (ashlar_dtype)dtype, room, i / 50.0, &got) == ASHLAR_OK);
            CHECK(got == draw(i / 50.0));
        }
    }
    ashlar_sampler_destroy(sampler);
}

CASE(many_rows_are_drawn_as_each_alone) {
    enum { ROWS = 3, V = 4 };
    float logits[ROWS][V] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 1, 1, 1}};
    const double numbers[ROWS] = {0.1, 0.6, 0.9};
    ashlar_sampler *samplers[ROWS];
    int32_t all[ROWS], one;
    for (size_t i = 0; i < ROWS; i++) {
        REQUIRE(ashlar_sampler_create(&(ashlar_sampling_config){.temperature = 1}, V,
                                      &samplers[i]) == ASHLAR_OK);
    }
    CHECK(ashlar_sampler_draw(samplers, ROWS, ASHLAR_F32, logits, numbers, all) == ASHLAR_OK);
    for (size_t i = 0; i < ROWS; i++) {
        CHECK(draw_one(samplers[i], ASHLAR_F32, logits[i], numbers[i], &one) == ASHLAR_OK);
        CHECK(all[i] == one);
    }
    logits[1][2] = NAN;
    CHECK_FAILS(ashlar_sampler_draw(samplers, ROWS, ASHLAR_F32, logits, numbers, all),
                ASHLAR_EFORMAT, "a logit is not finite");
    for (size_t i = 0; i < ROWS; i++) {
        ashlar_sampler_destroy(samplers[i]);
    }
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
    CHECK_FAILS(draw_one(sampler, ASHLAR_F32, logits, 1, &got), ASHLAR_EINVAL, "number");
    CHECK_FAILS(draw_one(sampler, ASHLAR_F32, logits, NAN, &got), ASHLAR_EINVAL, "number");
    CHECK_FAILS(draw_one(sampler, ASHLAR_DTYPE_COUNT, logits, 0, &got), ASHLAR_EINVAL, "type");
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

RUN_CASES()
