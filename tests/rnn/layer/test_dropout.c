/*
 * test_dropout.c - the numbers that decide what is dropped: the generator's known answers, and how
 * often and how independently they drop.
 */
#include "tests/check.h"

#include "rnn/layer/dropout.h"

/* Block 0 of a group has the counter {group * lanes, sequence, step, layer}. */
static void check_answer(const uint32_t counter[4], const uint32_t key[2], const uint32_t want[4]) {
    const ashlar_dropout_row row = {.seed = (uint64_t)key[1] << 32 | key[0],
                                    .sequence = counter[1],
                                    .step = counter[2],
                                    .layer = counter[3]};
    uint32_t draws[ASHLAR_DROPOUT_DRAWS];
    ashlar__dropout_draw(&row, counter[0] / ASHLAR_DROPOUT_LANES, draws);
    const size_t lane = counter[0] % ASHLAR_DROPOUT_LANES;
    for (size_t i = 0; i < 4; i++) {
        CHECK_ZU(draws[i * ASHLAR_DROPOUT_LANES + lane], want[i]);
    }
}

/* The known answers of Philox 4x32-10 that its authors publish. */
CASE(the_generator_gives_its_known_answers) {
    check_answer((uint32_t[]){0, 0, 0, 0}, (uint32_t[]){0, 0},
                 (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_answer((uint32_t[]){0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                 (uint32_t[]){0xffffffff, 0xffffffff},
                 (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_answer((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                 (uint32_t[]){0xa4093822, 0x299f31d0},
                 (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

enum { WORDS = 1024 };

/* Which of WORDS numbers at a place are dropped. */
static void draw_mask(ashlar_dropout_row row, double rate, bool mask[WORDS]) {
    for (size_t i = 0; i < WORDS; i += ASHLAR_DROPOUT_DRAWS) {
        uint32_t draws[ASHLAR_DROPOUT_DRAWS];
        ashlar__dropout_draw(&row, i / ASHLAR_DROPOUT_DRAWS, draws);
        for (size_t j = 0; j < ASHLAR_DROPOUT_DRAWS; j++) {
            mask[i + j] = draws[j] < ashlar__dropout_threshold(rate);
        }
    }
}

/* Bounds of five standard deviations; the numbers are always the same. */
CASE(as_many_are_dropped_as_the_rate_says) {
    static const double rates[] = {0, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-9};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const double rate = rates[i];
        size_t dropped = 0;
        for (size_t t = 0; t < 256; t++) {
            bool mask[WORDS];
            draw_mask((ashlar_dropout_row){.seed = 5, .layer = 1, .step = t}, rate, mask);
            for (size_t j = 0; j < WORDS; j++) {
                dropped += mask[j];
            }
        }
        const double count = 256.0 * WORDS;
        CHECK(fabs((double)dropped - rate * count) <= 5 * sqrt(count * rate * (1 - rate)) + 1);
    }
}

/* Masks that differ in one thing only agree by chance: in half of their places. */
CASE(every_coordinate_changes_the_mask) {
    const ashlar_dropout_row base = {.seed = 5, .layer = 1, .step = 2, .sequence = 3};
    ashlar_dropout_row others[] = {base, base, base, base, base};
    others[0].seed++;
    others[1].seed += UINT64_C(1) << 32;
    others[2].layer++;
    others[3].step++;
    others[4].sequence++;
    bool mask[WORDS], other[WORDS];
    draw_mask(base, 0.5, mask);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        size_t same = 0, shifted = 0;
        draw_mask(others[i], 0.5, other);
        for (size_t j = 0; j < WORDS; j++) {
            same += mask[j] == other[j];
            shifted += mask[j] == mask[(j + 1 + i) % WORDS];
        }
        CHECK(fabs((double)same - WORDS / 2) <= 80);
        CHECK(fabs((double)shifted - WORDS / 2) <= 80);
    }
}

CASE(the_threshold_is_the_rate_in_32_bits) {
    CHECK_ZU(ashlar__dropout_threshold(0), 0);
    CHECK_ZU(ashlar__dropout_threshold(0.25), 0x40000000);
    CHECK_ZU(ashlar__dropout_threshold(1 - 0x1p-53), 0xffffffff);
}

RUN_CASES()
