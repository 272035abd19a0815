/*
 * test_period.c - that a period is found where there is one, whatever lies around it and small
 * changes in it, and that none is where there is none.
 */
#include "bench/replay/period.h"

#include <stdint.h>

#include "tests/check.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { MAX = 40000 };

static size_t numbers[MAX]; /* of the case; all below 1000 */
static size_t count;
static uint64_t random_state;
static ashlar_period period;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static void start(uint64_t seed) {
    random_state = seed;
    count = 0;
}

static void put(size_t number) {
    if (count < MAX) {
        numbers[count++] = number;
    }
}

static void put_random(size_t how_many, size_t below) {
    for (size_t i = 0; i < how_many; i++) {
        put(draw(below));
    }
}

static size_t number_at(size_t place, size_t what) {
    return (place * place * 7 + place / 3 + what * 131) % 900;
}

/* A step whose numbers all depend on `what` and their place alone; 1 in `rarity` is changed. */
static void put_step(size_t length, size_t what, size_t rarity) {
    for (size_t i = 0; i < length; i++) {
        put(rarity != 0 && draw(rarity) == 0 ? 900 + draw(100) : number_at(i, what));
    }
}

static void put_steps(size_t how_many, size_t length, size_t what, size_t rarity) {
    for (size_t i = 0; i < how_many; i++) {
        put_step(length, what, rarity);
    }
}

/* A head, `layers` equal layers, a tail. */
static void put_layered(size_t layers, size_t layer_length, size_t rarity) {
    put_step(12, 1, rarity);
    put_steps(layers, layer_length, 2, rarity);
    put_step(9, 3, rarity);
}

static void finish(void) {
    ashlar__period_finish(&period);
}

static bool find_with_prefix(size_t prefix) {
    finish();
    period = (ashlar_period){.period = 77};
    /* Enough different numbers for the contract: below count. */
    return count >= 1000 && ashlar__period_find(numbers, count, prefix, &period) == ASHLAR_OK;
}

static bool find(void) {
    return find_with_prefix(0);
}

/* What was found, whole; and each link is where it may be. */
static void check_found(size_t want, size_t begin, size_t end) {
    CHECK_ZU(period.period, want);
    CHECK_ZU(period.begin, begin);
    CHECK_ZU(period.end, end);
    size_t bad = 0;
    for (size_t i = begin + want; period.period == want && i < count; i++) {
        bad +=
            period.links[i] + want + period.drift < i || period.links[i] + want > i + period.drift;
    }
    CHECK_ZU(bad, 0);
}

static void check_none(void) {
    CHECK_ZU(period.period, 0);
    CHECK(period.links == NULL && period.score == 0 && period.begin == 0 && period.end == 0);
}

static void expect_period(size_t want, size_t begin, size_t end) {
    REQUIRE(find());
    check_found(want, begin, end);
}

static void expect_none_with(size_t prefix) {
    REQUIRE(find_with_prefix(prefix));
    check_none();
}

static void expect_none(void) {
    expect_none_with(0);
}

/* ---- found ---- */

CASE(equal_steps_have_their_length_as_period) {
    static const size_t lengths[] = {5, 17, 100, 512, 700};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        start(1);
        while (count < 1400) {
            put_step(lengths[n], n, 0);
        }
        REQUIRE(find());
        CHECK(period.score == 1);
        check_found(lengths[n], 0, count);
    }
}

CASE(what_links_name_is_a_period_before) {
    start(1);
    put_steps(10, 150, 0, 0);
    REQUIRE(find());
    size_t bad = 0;
    for (size_t i = 150; i < count; i++) {
        bad += period.links[i] != i - 150;
    }
    CHECK_ZU(bad, 0);
    CHECK_ZU(period.drift, 8);
}

CASE(layers_within_a_step_are_not_its_period) {
    static const size_t layers[] = {2, 24, 128};
    for (size_t n = 0; n < 3; n++) {
        start(1);
        for (int i = 0; i < 5 || count < 1000; i++) {
            put_layered(layers[n], 50, 0);
        }
        expect_period(21 + layers[n] * 50, 0, count);
    }
}

/* A head as short as a drift: it could be taken for numbers put in between layers. */
CASE(a_short_head_is_a_step_s_all_the_same) {
    start(1);
    for (int i = 0; i < 4; i++) {
        put_step(8, 1, 0);
        put_steps(5, 130, 2, 0);
    }
    expect_period(658, 0, count);
}

CASE(layers_are_the_period_of_what_has_nothing_else) {
    start(1);
    put_steps(24, 53, 2, 0);
    expect_period(53, 0, count);
}

/* The initialisation may be long, if it is said to be one; what follows may not. */
CASE(a_prefix_and_a_tail_are_cut_off) {
    start(2);
    put_random(400, 900);
    put_steps(6, 300, 1, 0);
    put_random(100, 900);
    expect_period(300, 400, 2200);
    start(2);
    put_random(3000, 900);
    put_steps(6, 300, 1, 0);
    expect_none();
    REQUIRE(find_with_prefix(3000));
    check_found(300, 3000, 4800);
    REQUIRE(find_with_prefix(2200));
    check_found(300, 3000, 4800);
    expect_none_with(2000);
    start(2);
    put_steps(2, 300, 1, 0);
    put_random(900, 900);
    expect_none_with(1500); /* what begins at once has no prefix */
}

CASE(changed_numbers_are_forgiven) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        start(seed);
        for (int i = 0; i < 10; i++) {
            put_layered(20, 60, 100);
        }
        REQUIRE(find());
        CHECK(period.score > 0.8 && period.score < 1);
        CHECK_ZU(period.period, 1221);
        CHECK(period.begin < 60 && period.end > count - 60);
    }
}

/* The same for steps of two kinds of layers, in which few runs are there once. */
CASE(changed_numbers_among_many_layers_are_forgiven) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        start(seed);
        for (int i = 0; i < 8; i++) {
            put_step(4, 1, 25);
            for (size_t k = 0; k < 32 * 20; k++) {
                put(draw(25) == 0 ? draw(900) : k % 20 * (k % 20) % 7);
            }
            for (size_t k = 0; k < 32 * 30; k++) {
                put(draw(25) == 0 ? draw(900) : 10 + k % 30 * (k % 30) % 11);
            }
        }
        REQUIRE(find());
        CHECK_ZU(period.period, 1604);
    }
}

/* No short run tells much here: each is one of a layer's. */
CASE(many_kinds_of_layers_are_one_step) {
    start(1);
    for (int i = 0; i < 4; i++) {
        for (size_t kind = 0; kind < 14; kind++) {
            put_steps(6, 60 + 2 * kind, kind, 0);
        }
    }
    expect_period(count / 4, 0, count);
}

CASE(one_step_that_lacks_some_numbers_shifts_no_link) {
    size_t begins[12];
    start(1);
    for (size_t i = 0; i < 12; i++) {
        begins[i] = count;
        for (size_t k = 0; k < 500; k++) {
            if (i != 5 || k < 200 || k >= 206) {
                put(number_at(k, 4));
            }
        }
    }
    REQUIRE(find());
    CHECK(period.period == 500 && period.score > 0.99);
    for (size_t i = 1; i < 12; i++) {
        CHECK_ZU(period.links[begins[i]], begins[i - 1]);
        const size_t shift = i == 5 ? 6 : i == 6 ? (size_t)-6 : 0;
        CHECK_ZU(period.links[begins[i] + 300], begins[i - 1] + 300 + shift);
    }
}

/* Steps differ in length by up to four, each by something put in or left out somewhere. */
CASE(inserted_and_missing_numbers_are_forgiven) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
        size_t begins[12];
        start(seed);
        for (size_t i = 0; i < 12; i++) {
            const size_t place = 20 + draw(460), inserted = draw(5);
            begins[i] = count;
            for (size_t k = 0; k < 500; k++) {
                if (k == place) {
                    put_random(inserted, 900);
                }
                if (k < place || k >= place + i % 3) { /* up to two are missing */
                    put(number_at(k, 4));
                }
            }
        }
        REQUIRE(find());
        CHECK(period.period >= 496 && period.period <= 508 && period.score > 0.9);
        CHECK(period.begin <= period.drift);
        for (size_t i = 1; i < 12; i++) {
            CHECK_ZU(period.links[begins[i]], begins[i - 1]);
        }
    }
}

/* The tenth part of each step is different each time. */
CASE(a_part_that_never_repeats_is_forgiven) {
    start(1);
    for (int i = 0; i < 8; i++) {
        put_step(180, 5, 0);
        put_random(20, 900);
    }
    REQUIRE(find());
    CHECK(period.score > 0.85);
    check_found(200, 0, count - 20);
}

CASE(steps_of_two_kinds_in_turn_have_a_period_of_both) {
    start(1);
    for (int i = 0; i < 6; i++) {
        put_steps(2, 100, 1, 0);
        put_step(160, 7, 0);
    }
    expect_period(360, 0, count);
}

/* Of many equal numbers, those few that differ tell. */
CASE(a_step_of_mostly_one_number_has_a_period) {
    start(1);
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < 120; k++) {
            put(k % 40 == 0 ? k / 40 : 3);
        }
    }
    expect_period(120, 0, count);
}

/* ---- not found ---- */

CASE(noise_has_no_period) {
    static const size_t kinds[] = {2, 3, 4, 16, 900};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            start(seed);
            put_random(3000, kinds[n]);
            expect_none();
        }
    }
}

CASE(mostly_one_number_is_noise_too) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        start(seed);
        for (int i = 0; i < 3000; i++) {
            put(draw(10) == 0);
        }
        expect_none();
    }
}

CASE(one_number_over_and_over_has_no_period) {
    start(1);
    for (int i = 0; i < 2000; i++) {
        put(5);
    }
    expect_none();
    start(1); /* nor each of some */
    for (size_t i = 0; i < 2000; i++) {
        put(i / 100);
    }
    expect_none();
    start(1); /* nor where it is rarely another one */
    for (int i = 0; i < 2000; i++) {
        put(draw(400) == 0 ? draw(900) : 5);
    }
    expect_none();
}

/* As a training has it: layers forward, other layers backward, others again to update. */
CASE(one_step_of_several_kinds_of_layers_has_no_period) {
    start(1);
    put_random(200, 900);
    put_steps(24, 69, 1, 0);
    put_steps(24, 117, 2, 0);
    put_steps(24, 126, 3, 0);
    expect_none();
}

/* Layers of nearly one length: a drift must not join them. */
CASE(two_kinds_of_layers_of_nearly_one_length_are_not_joined) {
    start(1);
    put_steps(24, 117, 2, 0);
    put_steps(24, 121, 3, 0);
    expect_none();
}

/* Two thirds must repeat: one repeat in three does, one in four does not. */
CASE(too_small_a_part_that_repeats_is_none) {
    start(3);
    put_random(500, 900);
    put_steps(2, 501, 1, 0);
    expect_period(501, 500, 1502);
    start(3);
    put_random(510, 900);
    put_steps(2, 501, 1, 0);
    expect_none();
}

CASE(too_much_noise_hides_a_period) {
    start(4);
    put_steps(10, 300, 1, 5);
    expect_none();
}

CASE(less_than_two_steps_have_no_period) {
    start(1);
    put_step(700, 1, 0);
    put_step(630, 1, 0);
    expect_none();
    start(1);
    put_step(700, 1, 0);
    put_step(697, 1, 0); /* as good as two */
    expect_period(700, 0, 1397);
}

CASE(short_sequences_are_no_evidence) {
    static const size_t few[] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0};
    for (size_t n = 0; n <= 21; n++) {
        period = (ashlar_period){.period = 77};
        CHECK(ashlar__period_find(few, n, 0, &period) == ASHLAR_OK);
        check_none();
    }
    CHECK(ashlar__period_find(few, 22, 0, &period) == ASHLAR_OK);
    CHECK_ZU(period.period, 3);
    finish();
    CHECK(ashlar__period_find(NULL, 0, 0, &period) == ASHLAR_OK);
    check_none();
}

/* ---- errors ---- */

CASE(no_host_memory_at_any_call_changes_nothing) {
    start(1);
    put_steps(5, 200, 1, 0);
    period = (ashlar_period){.period = 77};
    FOR_HOST_FAILURES(n, status, ashlar__period_find(numbers, count, 0, &period)) {
        CHECK(status == ASHLAR_OK || (period.period == 77 && period.links == NULL));
        CHECK(status == ASHLAR_OK || ashlar_error_detail()[0] != '\0');
    }
    CHECK(n > 10);
    check_found(200, 0, 1000);
}

RUN_CASES_AFTER(check_each = finish)
