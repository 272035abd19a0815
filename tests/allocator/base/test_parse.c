/* test_parse.c - cutting text into pieces, and reading and writing numbers in any locale. */
#include "tests/check.h"

#include <float.h>
#include <stdint.h>

#include "tests/allocator/base/locale_fixture.h"
#include "allocator/base/parse.h"
#include "allocator/base/random.h"

static ashlar_piece of(const char *text) {
    return ashlar__piece_of(text);
}

static uint64_t draw(uint64_t *state) {
    return ashlar__random_step(state);
}

CASE(a_piece_is_trimmed_on_both_sides) {
    CHECK(ashlar__piece_is(ashlar__piece_trim(of(" \t a b\r")), "a b"));
    CHECK(ashlar__piece_is(ashlar__piece_trim(of("ab")), "ab"));
    CHECK(ashlar__piece_is(ashlar__piece_trim(of("\r \t")), ""));
    CHECK(ashlar__piece_is(ashlar__piece_trim(of("\na")), "\na"));
}

CASE(what_is_shown_is_short_and_printable) {
    char shown[ASHLAR_SHOWN_BYTES + 1];
    memset(shown, '#', sizeof shown);
    CHECK(ashlar__piece_show(of("a\x1b[2J\x80 ~\x7f"), shown) == shown);
    CHECK(strcmp(shown, "a?[2J? ~?") == 0);
    (void)ashlar__piece_show(of("0123456789012345678901234567890123456789x"), shown);
    CHECK(strcmp(shown, "0123456789012345678901234567890123456789") == 0);
    CHECK(shown[ASHLAR_SHOWN_BYTES] == '#');
    (void)ashlar__piece_show(of("012345678901234567890123456789012345678"), shown);
    CHECK_ZU(strlen(shown), 39);
}

CASE(counts_are_digits_of_64_bits) {
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1x",
                                      "0x1",
                                      "1.0",
                                      "1e1",
                                      ":",
                                      "/",
                                      "18446744073709551616",
                                      "18446744073709551620",
                                      "99999999999999999999"};
    uint64_t value = 1;
    CHECK(ashlar__parse_count(of("0"), &value) && value == 0);
    CHECK(ashlar__parse_count(of("0019"), &value) && value == 19);
    CHECK(ashlar__parse_count(of("18446744073709551615"), &value) && value == UINT64_MAX);
    const ashlar_piece part = {"12345", 3};
    CHECK(ashlar__parse_count(part, &value) && value == 123);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!ashlar__parse_count(of(bad[i]), &value));
        CHECK(value == 123);
    }
}

CASE(bytes_have_a_unit_and_64_bits) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"00", 0},
        {"0B", 0},
        {"0TiB", 0},
        {"3KiB", 3072},
        {"5MiB", (uint64_t)5 << 20},
        {"7GiB", (uint64_t)7 << 30},
        {"9TiB", (uint64_t)9 << 40},
        {"18446744073709551615B", UINT64_MAX},
        {"18014398509481983KiB", UINT64_MAX - 1023},
        {"16777215TiB", (uint64_t)16777215 << 40},
        {"1.5GiB", (uint64_t)3 << 29},
        {"0.5KiB", 512},
        {"0.1MiB", 104857},
        {"16777215.75TiB", ((uint64_t)16777215 << 40) + ((uint64_t)3 << 38)},
    };
    static const char *const bad[] = {"",
                                      "1",
                                      "B",
                                      "KiB",
                                      "1K",
                                      "1KB",
                                      "1kib",
                                      "1 KiB",
                                      "1KiBs",
                                      "-1B",
                                      "1.5B",
                                      "1.GiB",
                                      ".5GiB",
                                      "1.5.5GiB",
                                      "1.5",
                                      "0.5",
                                      "1PiB",
                                      "0x",
                                      "18446744073709551616B",
                                      "18014398509481984KiB",
                                      "16777216TiB"};
    uint64_t value = 1;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(ashlar__parse_bytes(of(good[i].text), &value) && value == good[i].bytes);
    }
    value = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!ashlar__parse_bytes(of(bad[i]), &value));
        CHECK(value == 77);
    }
}

CASE(written_bytes_have_the_largest_unit_and_are_read_back) {
    static const struct {
        uint64_t bytes;
        const char *text;
    } known[] = {
        {0, "0"},
        {1, "1B"},
        {1023, "1023B"},
        {1024, "1KiB"},
        {1025, "1025B"},
        {(uint64_t)2 << 20, "2MiB"},
        {(uint64_t)3 << 30, "3GiB"},
        {(uint64_t)1 << 40, "1TiB"},
        {(uint64_t)1 << 50, "1024TiB"},
        {UINT64_MAX, "18446744073709551615B"},
    };
    char text[ASHLAR_NUMBER_BYTES];
    uint64_t state = 1, value;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        ashlar__write_bytes(known[i].bytes, text);
        CHECK(strcmp(text, known[i].text) == 0);
    }
    for (int i = 0; i < 10000; i++) {
        const uint64_t right = draw(&state) % 64, left = draw(&state) % 64;
        const uint64_t bytes = draw(&state) >> right << left;
        ashlar__write_bytes(bytes, text);
        REQUIRE(ashlar__parse_bytes(of(text), &value) && value == bytes);
        ashlar__write_count(bytes, text);
        REQUIRE(ashlar__parse_count(of(text), &value) && value == bytes);
    }
}

CASE(reals_are_decimal_and_finite) {
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"0", 0},       {"1", 1},         {"0.9", 0.9},
        {"00.50", 0.5}, {"25e-2", 0.25},  {"5E2", 500},
        {"1.5e+1", 15}, {"1e308", 1e308}, {"4.9406564584124654e-324", 4.9406564584124654e-324},
        {"1e-999", 0},
    };
    static const char *const bad[] = {"",    ".5",  ".",   "-1",   "+1",    " 1",   "1 ",  "0x1",
                                      "inf", "nan", "1e",  "1e+",  "e1",    "1e1x", "1,5", "1e999",
                                      "1.",  "1.e", "1..", "1e1.", "1e--1", "1f"};
    double value = -1;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(ashlar__parse_real(of(good[i].text), &value) && value == good[i].value);
    }
    const ashlar_piece part = {"0.75", 3};
    CHECK(ashlar__parse_real(part, &value) && value == 0.7);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!ashlar__parse_real(of(bad[i]), &value));
        CHECK(value == 0.7);
    }
}

CASE(written_reals_are_short_and_read_back) {
    static const struct {
        double value;
        const char *text;
    } known[] = {{0.1, "0.1"}, {1, "1"}, {0.9, "0.9"}, {1.0 / 3, "0.33333333333333331"}};
    char text[ASHLAR_NUMBER_BYTES];
    double value;
    uint64_t state = 2;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        ashlar__write_real(known[i].value, text);
        CHECK(strcmp(text, known[i].text) == 0);
    }
    for (int i = 0; i < 10000; i++) {
        const uint64_t bits = draw(&state) % UINT64_C(0x7ff0000000000000); /* finite, >= 0 */
        double want;
        memcpy(&want, &bits, sizeof want);
        ashlar__write_real(want, text);
        REQUIRE(ashlar__parse_real(of(text), &value) && value == want);
    }
}

CASE(a_decimal_comma_of_the_locale_does_not_matter) {
    SKIP_IF(!enter_comma_locale(), "localedef makes no locale here");
    char text[ASHLAR_NUMBER_BYTES];
    double value = 0;
    const bool is_read = ashlar__parse_real(of("0.75"), &value);
    const bool is_comma_read = ashlar__parse_real(of("0,75"), &value);
    ashlar__write_real(0.1 + 0.2, text);
    char own[8];
    (void)snprintf(own, sizeof own, "%.1f", 1.5);
    leave_comma_locale();
    CHECK(is_read && value == 0.75 && !is_comma_read);
    CHECK(strcmp(text, "0.30000000000000004") == 0);
    CHECK(strcmp(own, "1,5") == 0); /* the program's locale is as it was */
}

RUN_CASES()
