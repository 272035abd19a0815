/* fuzz_options.c - any words as a command line, against a second reading of options.h. */
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

/* ---- the second reading ---- */

static bool read_whole(const char *text, double max, uint64_t *out) {
    uint64_t sum = 0;
    bool is_too_large = false;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9') {
            return false;
        }
        is_too_large |= __builtin_mul_overflow(sum, (uint64_t)10, &sum) ||
                        __builtin_add_overflow(sum, (uint64_t)(*c - '0'), &sum);
    }
    *out = sum;
    return !is_too_large && (max == 0 || (double)sum <= max);
}

static bool read_real(const char *text, double min, double max, double *out) {
    char *end = NULL;
    *out = strtod(text, &end);
    return end > text && *end == '\0' && isfinite(*out) && *out >= min && *out <= max;
}

static bool read_value(const char *name, const char *value, settings *s) {
    uint64_t whole = 0;
    bool is_good = *value != '\0';
    if (!is_good) {
        return false;
    }
    if (strcmp(name, "steps") == 0) {
        is_good = read_whole(value, 1e9, &whole) && whole >= 1;
        s->steps = whole;
    } else if (strcmp(name, "st") == 0) {
        is_good = read_whole(value, 8, &whole);
        s->st = whole;
    } else if (strcmp(name, "seed") == 0) {
        is_good = read_whole(value, 0, &s->seed);
    } else if (strcmp(name, "real") == 0) {
        is_good = read_real(value, -1, 0.5, &s->real);
    } else if (strcmp(name, "wide") == 0) {
        is_good = read_real(value, -DBL_MAX, DBL_MAX, &s->wide);
    } else if (strcmp(name, "text") == 0) {
        s->text = value;
    } else if (strcmp(name, "list") == 0) {
        is_good = s->list.count < ASHLAR_OPTION_LIST_MAX;
        s->list.items[is_good ? s->list.count++ : 0] = value;
    } else {
        is_good = false;
    }
    return is_good;
}

static bool read_words(int count, char **words, settings *s) {
    for (int i = 1; i < count; i++) {
        if (words[i][0] != '-' || words[i][1] != '-') {
            return false;
        }
        if (strcmp(words[i], "--quiet") == 0) {
            s->quiet = true;
            continue;
        }
        char *name = strdup(words[i] + 2), *equals = strchr(words[i], '=');
        FUZZ_CHECK(name != NULL);
        name[strcspn(name, "=")] = '\0';
        const char *value = equals != NULL ? equals + 1 : i + 1 < count ? words[++i] : "";
        const bool is_good = read_value(name, value, s);
        free(name);
        if (!is_good) {
            return false;
        }
    }
    return true;
}

/* ---- */

static void check_same(const settings *a, const settings *b) {
    FUZZ_CHECK(a->steps == b->steps && a->st == b->st && a->seed == b->seed);
    FUZZ_CHECK(memcmp(&a->real, &b->real, sizeof a->real) == 0);
    FUZZ_CHECK(memcmp(&a->wide, &b->wide, sizeof a->wide) == 0);
    FUZZ_CHECK(a->text == b->text && a->quiet == b->quiet && a->list.count == b->list.count);
    for (size_t i = 0; i < a->list.count; i++) {
        FUZZ_CHECK(a->list.items[i] == b->list.items[i]);
    }
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
    settings got = {.steps = 7, .real = 0.25}, want = got;
    ashlar_option options[OPTION_COUNT];
    list_options(&got, options);
    const ashlar_status status = ashlar__options_parse(options, OPTION_COUNT, count, words);
    if (read_words(count, words, &want)) {
        FUZZ_CHECK(status == ASHLAR_OK);
        check_same(&got, &want);
        check_help(options);
    } else {
        FUZZ_CHECK(status == ASHLAR_EINVAL);
        FUZZ_CHECK(*ashlar_error_detail() != '\0');
    }
    free(text);
    return 0;
}
