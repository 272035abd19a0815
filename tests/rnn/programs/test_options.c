/*
 * test_options.c - command lines: every kind of option, its range, its errors, its help.
 */
#include "tests/check.h"

#include "rnn/programs/options.h"

/* What the options are read into; the initial values are the defaults. */
static struct {
    size_t count;
    uint64_t seed;
    double real;
    const char *text, *unset;
    ashlar_option_list list;
    bool flag, other_flag;
} values;

static const ashlar_option OPTIONS[] = {
    {"count", "N", ASHLAR_OPTION_COUNT, &values.count, 3, 12, "a count"},
    {"seed", "N", ASHLAR_OPTION_COUNT, &values.seed, 0, 0, "a seed"},
    {"real", "X", ASHLAR_OPTION_REAL, &values.real, -1.5, 2.5, "a real"},
    {"text", "WORD", ASHLAR_OPTION_TEXT, &values.text, 0, 0, "a text"},
    {"unset", "WORD", ASHLAR_OPTION_TEXT, &values.unset, 0, 0, "a text without a default"},
    {"list", "PATH", ASHLAR_OPTION_LIST, &values.list, 0, 0, "a list"},
    {"flag", NULL, ASHLAR_OPTION_FLAG, &values.flag, 0, 0, "a flag"},
    {"other-flag", NULL, ASHLAR_OPTION_FLAG, &values.other_flag, 0, 0, "another flag"},
    {"countless", "N", ASHLAR_OPTION_COUNT, &values.count, 0, 1e6, "a name that begins as another"},
};
enum { OPTION_COUNT = sizeof OPTIONS / sizeof OPTIONS[0], WORDS_MAX = 80 };

/* Parse the words up to NULL, as a program called "program" gets them, from the defaults. */
static ashlar_status parse(const char *const *words) {
    static char copies[WORDS_MAX][64];
    char *argv[WORDS_MAX + 2] = {"program"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++) {
        (void)snprintf(copies[argc], sizeof copies[argc], "%s", words[argc - 1]);
        argv[argc] = copies[argc];
    }
    memset(&values, 0, sizeof values);
    values.count = 5;
    values.seed = 6;
    values.real = 0.5;
    values.text = "default";
    return ashlar__options_parse(OPTIONS, OPTION_COUNT, argc, argv);
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

/* Refused with a detail that has both; the value that was there stays. */
#define CHECK_REFUSED(part1, part2, ...)                 \
    do {                                                 \
        CHECK(PARSE(__VA_ARGS__) == ASHLAR_EINVAL);      \
        CHECK_HAS(ashlar_error_detail(), part1);         \
        CHECK_HAS(ashlar_error_detail(), part2);         \
        CHECK(values.count == 5 && values.seed == 6);    \
        CHECK(values.real == 0.5 && !values.flag);       \
        CHECK(strcmp(values.text, "default") == 0);      \
    } while (0)

CASE(every_kind_is_read_from_the_next_word_and_behind_an_equals_sign) {
    CHECK(PARSE("--count", "7", "--seed", "8", "--real", "-1.25", "--text", "one", "--unset", "two",
                "--list", "x", "--flag") == ASHLAR_OK);
    CHECK(values.count == 7 && values.seed == 8 && values.real == -1.25);
    CHECK(strcmp(values.text, "one") == 0 && strcmp(values.unset, "two") == 0);
    CHECK(values.list.count == 1 && strcmp(values.list.items[0], "x") == 0);
    for (size_t i = 1; i < ASHLAR_OPTION_LIST_MAX; i++) {
        CHECK(values.list.items[i] == NULL); /* nothing was written beside it */
    }
    CHECK(values.flag && !values.other_flag);
    CHECK(PARSE("--count=9", "--seed=10", "--real=2e-1", "--text=a=b", "--list=--x",
                "--other-flag") == ASHLAR_OK);
    CHECK(values.count == 9 && values.seed == 10 && values.real == 0.2);
    CHECK(strcmp(values.text, "a=b") == 0 && strcmp(values.list.items[0], "--x") == 0);
    CHECK(!values.flag && values.other_flag);
}

CASE(the_last_of_two_counts_and_whole_names_are_compared) {
    CHECK(PARSE("--count", "7", "--count", "8") == ASHLAR_OK);
    CHECK_ZU(values.count, 8);
    CHECK(PARSE("--countless", "1000") == ASHLAR_OK); /* beyond the range of --count */
    CHECK_ZU(values.count, 1000);
}

/* One word, or one and a value. */
CASE(what_is_no_option_or_lacks_its_value_is_named) {
    static const struct {
        const char *word, *value, *part, *other_part;
    } bad[] = {
        {"--coun", "7", "--coun", "no such option"},
        {"--counts", "7", "--counts", "no such option"},
        {"--=7", NULL, "--=7", "no such option"},
        {"--", NULL, "--", "no such option"},
        {"--Count=7", NULL, "--Count", "no such option"},
        {"stray", NULL, "stray", "no option"},
        {"-count", "7", "-count", "no option"},
        {"--count", NULL, "--count: needs a value", "N"},
        {"--text", NULL, "--text: needs a value", "WORD"},
        {"--list", NULL, "--list: needs a value", "PATH"},
        {"--seed", "", "--seed", "\"\""},
        {"--text=", NULL, "--text", "\"\""},
        {"--list=", NULL, "--list", "\"\""},
        {"--flag=true", NULL, "--flag", "takes no value"},
        {"--flag=", NULL, "--flag", "\"\" cannot be its value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_REFUSED(bad[i].part, bad[i].other_part, bad[i].word, bad[i].value);
        CHECK_ZU(values.list.count, 0);
    }
    CHECK_FAILS(PARSE("--flag", "stray"), ASHLAR_EINVAL, "stray");
}

CASE(counts_keep_to_their_range) {
    static const char *const bad[] = {"2",  "13",  "-5", "+5",  " 5",   "5 ",
                                      "5x", "5.0", "x",  "0x5", "1e1", "99999999999999999999999"};
    CHECK(PARSE("--count", "3") == ASHLAR_OK);
    CHECK_ZU(values.count, 3);
    CHECK(PARSE("--count", "12") == ASHLAR_OK);
    CHECK_ZU(values.count, 12);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_REFUSED("--count", "no whole number from 3 to 12", "--count", bad[i]);
        CHECK_HAS(ashlar_error_detail(), bad[i]);
    }
}

CASE(seeds_are_any_64_bits) {
    CHECK(PARSE("--seed", "18446744073709551615") == ASHLAR_OK);
    CHECK(values.seed == UINT64_MAX);
    CHECK(PARSE("--seed", "0") == ASHLAR_OK);
    CHECK(values.seed == 0);
    CHECK(PARSE("--seed", "9") == ASHLAR_OK); /* the last digit there is */
    CHECK(values.seed == 9);
    CHECK_REFUSED("--seed", "from 0 to 2^64-1", "--seed", "18446744073709551616");
    CHECK_REFUSED("--seed", "\"-1\"", "--seed", "-1");
    CHECK_REFUSED("--seed", "\":\"", "--seed", ":"); /* the character behind 9 */
}

CASE(reals_keep_to_their_range_and_are_finite) {
    static const char *const bad[] = {"-1.50001", "2.50001", "nan", "inf", "-inf",
                                      "x",        "1x",      "1e",  "--1", "1e999"};
    CHECK(PARSE("--real", "-1.5") == ASHLAR_OK);
    CHECK(values.real == -1.5);
    CHECK(PARSE("--real", "2.5") == ASHLAR_OK);
    CHECK(values.real == 2.5);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_REFUSED("--real", "no number from -1.5 to 2.5", "--real", bad[i]);
        CHECK_HAS(ashlar_error_detail(), bad[i]);
    }
}

CASE(a_list_takes_64_values_in_their_order) {
    const char *words[ASHLAR_OPTION_LIST_MAX + 2] = {NULL};
    for (size_t i = 0; i < ASHLAR_OPTION_LIST_MAX; i++) {
        words[i] = i % 2 == 0 ? "--list=even" : "--list=odd";
    }
    CHECK(parse(words) == ASHLAR_OK);
    CHECK_ZU(values.list.count, ASHLAR_OPTION_LIST_MAX);
    CHECK(strcmp(values.list.items[62], "even") == 0 && strcmp(values.list.items[63], "odd") == 0);
    words[ASHLAR_OPTION_LIST_MAX] = "--list=more";
    CHECK_FAILS(parse(words), ASHLAR_EINVAL, "--list: given more than 64 times");
    CHECK_ZU(values.list.count, ASHLAR_OPTION_LIST_MAX);
}

CASE(other_words_are_taken_out_in_their_order) {
    char *argv[] = {"program", "one", "--count", "4", "two", "--flag", "three", "--text=x", "four"};
    enum { WORDS = sizeof argv / sizeof argv[0] };
    static const char *const taken[] = {"one", "two", "three", "four"};
    char *words[WORDS] = {NULL};
    CHECK(ashlar__options_parse_words(OPTIONS, OPTION_COUNT, WORDS, argv, words) == ASHLAR_OK);
    CHECK(values.count == 4 && values.flag && strcmp(values.text, "x") == 0);
    for (size_t i = 0; i < 4; i++) {
        CHECK(strcmp(words[i], taken[i]) == 0);
    }
    CHECK(words[4] == NULL);
    argv[2] = "-c";
    CHECK_FAILS(ashlar__options_parse_words(OPTIONS, OPTION_COUNT, WORDS, argv, words),
                ASHLAR_EINVAL, "-c: is no option");
}

CASE(the_help_has_a_line_for_each_option_with_its_default) {
    char *text = NULL;
    size_t bytes = 0;
    CHECK(parse((const char *const[]){NULL}) == ASHLAR_OK);
    values.seed = UINT64_MAX;
    FILE *out = open_memstream(&text, &bytes);
    REQUIRE(out != NULL);
    ashlar__options_print(out, OPTIONS, OPTION_COUNT - 1);
    REQUIRE(fclose(out) == 0);
    CHECK(strcmp(text, "  --count N             a count (5)\n"
                       "  --seed N              a seed (18446744073709551615)\n"
                       "  --real X              a real (0.5)\n"
                       "  --text WORD           a text (default)\n"
                       "  --unset WORD          a text without a default\n"
                       "  --list PATH           a list\n"
                       "  --flag                a flag\n"
                       "  --other-flag          another flag\n"
                       "  -h, --help            print this\n"
                       "  --version             print the version\n") == 0);
    free(text);
}

static const char *given(const char *name, const char *first, const char *second) {
    static char one[32], two[32];
    char *argv[] = {"program", one, two};
    (void)snprintf(one, sizeof one, "%s", first);
    (void)snprintf(two, sizeof two, "%s", second);
    const char *value = ashlar__options_given(name, second[0] == '\0' ? 2 : 3, argv);
    return value != NULL ? value : "none";
}

CASE(what_is_given_is_known_before_the_options_are_read) {
    CHECK(strcmp(given("text", "--text", "a"), "a") == 0);
    CHECK(strcmp(given("text", "--text=b", "c"), "b") == 0);
    CHECK(strcmp(given("text", "--text=b", "--text=c"), "c") == 0);
    CHECK(strcmp(given("text", "--text=", "c"), "") == 0);
    CHECK(strcmp(given("flag", "x", "--flag"), "") == 0);
    CHECK(strcmp(given("flag", "--flag", ""), "") == 0);
    CHECK(strcmp(given("count", "--countless", "3"), "none") == 0);
    CHECK(strcmp(given("countless", "--count", "3"), "none") == 0);
    CHECK(strcmp(given("text", "text", "a"), "none") == 0);
    CHECK(strcmp(given("text", "-text", "a"), "none") == 0);
}

RUN_CASES()
