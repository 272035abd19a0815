/* fuzz_options.c - any words as a command line: refused, or within its table. */
#include "tests/fuzz/fuzz.h"

#include <float.h>
#include <math.h>

#include "rnn/programs/options.h"

const char fuzz_claim[] = "every_command_line_is_refused_or_read_as_its_table_says";

enum { WORD_MAX = 256 };

/* One of each kind, and names of which one begins another. */
typedef struct settings {
    size_t steps, st;
    uint64_t seed;
    double real, wide;
    const char *text;
    ashlar_option_list list;
    bool quiet;
} settings;

enum { OPTION_COUNT = 8 };

static void list_options(settings *s, ashlar_option out[static OPTION_COUNT]) {
    const ashlar_option all[OPTION_COUNT] = {
        {"steps", "N", ASHLAR_OPTION_COUNT, &s->steps, 1, 1e9, "a count"},
        {"st", "N", ASHLAR_OPTION_COUNT, &s->st, 0, 8, "a small one"},
        {"seed", "N", ASHLAR_OPTION_SEED, &s->seed, 0, 0, "a seed"},
        {"real", "X", ASHLAR_OPTION_REAL, &s->real, -1, 0.5, "a number"},
        {"wide", "X", ASHLAR_OPTION_REAL, &s->wide, -DBL_MAX, DBL_MAX, "any number"},
        {"text", "T", ASHLAR_OPTION_TEXT, &s->text, 0, 0, "a text"},
        {"list", "T", ASHLAR_OPTION_LIST, &s->list, 0, 0, "texts"},
        {"quiet", NULL, ASHLAR_OPTION_FLAG, &s->quiet, 0, 0, "a flag"},
    };
    memcpy(out, all, sizeof all);
}

/* The input's lines are the words. */
static const char *const samples[] = {
    "--steps\n10\n--st=8\n--seed=18446744073709551615\n--real\n-0.25\n--text=a=b\n--quiet",
    "--list\na\n--list=b\n--list\n--quiet",
    "--wide=1e308\n--wide\n0x1p-3\n--real=.5\n--seed\n0",
    "--st=9\n--steps=0",
    "--seed=18446744073709551616",
    "--quiet=1",
    "--text=",
    "--steps\n+1",
    "--real=nan\n--wide=inf",
    "--real=0.5000001",
    "steps\n10",
    "--\n--help\n-q",
};

enum { SAMPLE_COUNT = sizeof samples / sizeof samples[0] };

size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {
    static const char once[] = "--list=a\n";
    if (i == SAMPLE_COUNT) { /* one more than a list holds */
        const size_t bytes = (sizeof once - 1) * (ASHLAR_OPTION_LIST_MAX + 1) - 1;
        FUZZ_CHECK(bytes <= cap);
        for (size_t at = 0; at < bytes; at++) {
            out[at] = (uint8_t)once[at % (sizeof once - 1)];
        }
        return bytes;
    }
    if (i > SAMPLE_COUNT) {
        return 0;
    }
    return fuzz_copy(samples[i], out, cap);
}

/* The help is a line for each option, whatever the defaults are. */
static void check_help(const ashlar_option *options) {
    char *text = NULL;
    size_t bytes = 0, lines = 0;
    FILE *out = open_memstream(&text, &bytes);
    FUZZ_CHECK(out != NULL);
    ashlar__options_print(out, options, OPTION_COUNT);
    FUZZ_CHECK(fclose(out) == 0);
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    FUZZ_CHECK(lines == OPTION_COUNT);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = calloc(bytes + 1, 1), program[] = "fuzz";
    char *words[WORD_MAX + 1] = {program}, *rest = text;
    int count = 1;
    FUZZ_CHECK(text != NULL);
    if (bytes > 0) {
        memcpy(text, data, bytes);
    }
    while (bytes > 0 && count < WORD_MAX && rest != NULL) {
        words[count++] = strsep(&rest, "\n");
    }
    settings got = {.steps = 7, .real = 0.25};
    ashlar_option options[OPTION_COUNT];
    list_options(&got, options);
    if (ashlar__options_parse(options, OPTION_COUNT, count, words) == ASHLAR_OK) {
        FUZZ_CHECK(got.steps >= 1 && got.steps <= 1000000000 && got.st <= 8);
        FUZZ_CHECK(got.real >= -1 && got.real <= 0.5 && isfinite(got.wide));
        FUZZ_CHECK(got.text == NULL || *got.text != '\0');
        FUZZ_CHECK(got.list.count <= ASHLAR_OPTION_LIST_MAX);
        check_help(options);
    } else {
        FUZZ_CHECK(*ashlar_error_detail() != '\0');
    }
    free(text);
    return 0;
}
