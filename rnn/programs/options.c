/* options.c - reads a command line by a table of options, and prints their help. */
#include "rnn/programs/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/closest.h"
#include "allocator/base/error.h"
#include "allocator/base/parse.h"

static ashlar_status bad_value(const ashlar_option *option, const char *text) {
    switch (option->kind) {
    case ASHLAR_OPTION_COUNT:
        return ashlar__fail(ASHLAR_EINVAL, "--%s: \"%.80s\" is no whole number from %.0f to %.0f",
                            option->name, text, option->min, option->max);
    case ASHLAR_OPTION_SEED:
        return ashlar__fail(ASHLAR_EINVAL, "--%s: \"%.80s\" is no whole number from 0 to 2^64-1",
                            option->name, text);
    case ASHLAR_OPTION_REAL:
        return ashlar__fail(ASHLAR_EINVAL, "--%s: \"%.80s\" is no number from %g to %g",
                            option->name, text, option->min, option->max);
    case ASHLAR_OPTION_TEXT:
    case ASHLAR_OPTION_LIST:
    case ASHLAR_OPTION_FLAG:
        break;
    }
    return ashlar__fail(ASHLAR_EINVAL, "--%s: \"%.80s\" cannot be its value", option->name, text);
}

static bool parse_real(const char *text, double *out) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) {
        return false;
    }
    *out = value;
    return true;
}

static ashlar_status set_value(const ashlar_option *option, const char *text) {
    uint64_t whole;
    double real;
    ashlar_option_list *list;
    if (*text == '\0') {
        return bad_value(option, text);
    }
    switch (option->kind) {
    case ASHLAR_OPTION_COUNT:
        if (!ashlar__parse_count(ashlar__piece_of(text), &whole) || (double)whole < option->min ||
            (double)whole > option->max) {
            return bad_value(option, text);
        }
        *(size_t *)option->value = whole;
        break;
    case ASHLAR_OPTION_SEED:
        if (!ashlar__parse_count(ashlar__piece_of(text), option->value)) {
            return bad_value(option, text);
        }
        break;
    case ASHLAR_OPTION_REAL:
        if (!parse_real(text, &real) || real < option->min || real > option->max) {
            return bad_value(option, text);
        }
        *(double *)option->value = real;
        break;
    case ASHLAR_OPTION_TEXT:
        *(const char **)option->value = text;
        break;
    case ASHLAR_OPTION_LIST:
        list = option->value;
        ASHLAR_FAIL_IF(list->count == ASHLAR_OPTION_LIST_MAX, ASHLAR_EINVAL,
                       "--%s: given more than %d times", option->name, ASHLAR_OPTION_LIST_MAX);
        list->items[list->count++] = text;
        break;
    case ASHLAR_OPTION_FLAG:
        return ashlar__fail(ASHLAR_EINVAL, "--%s: takes no value", option->name);
    }
    return ASHLAR_OK;
}

/* The option that a word names. *value: the text after "=" in the word; NULL if it has no "=". */
static const ashlar_option *find(const ashlar_option *options, size_t count, const char *word,
                                 const char **value) {
    const size_t length = strcspn(word, "=");
    *value = word[length] == '=' ? word + length + 1 : NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(options[i].name) == length && memcmp(options[i].name, word, length) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

const char *ashlar__options_given(const char *name, int argc, char **argv) {
    const size_t bytes = strlen(name);
    const char *value = NULL;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, name, bytes) != 0) {
            continue;
        }
        const char *end = argv[i] + 2 + bytes;
        if (*end == '=') {
            value = end + 1;
        } else if (*end == '\0') {
            value = i + 1 < argc ? argv[i + 1] : end;
        }
    }
    return value;
}

int ashlar__options_take_words(const ashlar_option *options, size_t count, int *argc, char **argv,
                               char **words) {
    int kept = 1, taken = 0;
    for (int i = 1; i < *argc; i++) {
        if (argv[i][0] != '-') {
            words[taken++] = argv[i];
            continue;
        }
        argv[kept++] = argv[i];
        const char *value = NULL;
        const ashlar_option *option =
            strncmp(argv[i], "--", 2) == 0 ? find(options, count, argv[i] + 2, &value) : NULL;
        const bool has_next = option != NULL && option->kind != ASHLAR_OPTION_FLAG && value == NULL;
        if (has_next && i + 1 < *argc) {
            argv[kept++] = argv[++i];
        }
    }
    *argc = kept;
    return taken;
}

static ashlar_status fail_unknown(const ashlar_option *options, size_t count, const char *word) {
    char hint[ASHLAR_CLOSEST_HINT_BYTES];
    ashlar_closest closest = {.word = {word + 2, strcspn(word + 2, "=")}};
    for (size_t i = 0; i < count; i++) {
        ashlar__closest_offer(&closest, options[i].name);
    }
    return ashlar__fail(ASHLAR_EINVAL, "%.80s: there is no such option, see --help%s", word,
                        ashlar__closest_hint(&closest, "--", hint));
}

ashlar_status ashlar__options_parse(const ashlar_option *options, size_t count, int argc,
                                    char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *word = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        ASHLAR_FAIL_IF(strncmp(word, "--", 2) != 0, ASHLAR_EINVAL,
                       "%.80s: is no option; options begin with --, see --help", word);
        const char *value;
        const ashlar_option *option = find(options, count, word + 2, &value);
        if (option == NULL) {
            return fail_unknown(options, count, argv[i]);
        }
        if (option->kind == ASHLAR_OPTION_FLAG && value == NULL) {
            *(bool *)option->value = true;
            continue;
        }
        ASHLAR_FAIL_IF(value == NULL && i + 1 == argc, ASHLAR_EINVAL, "--%s: needs a value, %s",
                       option->name, option->argument);
        ASHLAR_TRY(set_value(option, value != NULL ? value : argv[++i]));
    }
    return ASHLAR_OK;
}

static void print_default(FILE *out, const ashlar_option *option) {
    const char *text;
    switch (option->kind) {
    case ASHLAR_OPTION_COUNT:
        fprintf(out, " (%zu)", *(size_t *)option->value);
        break;
    case ASHLAR_OPTION_SEED:
        fprintf(out, " (%llu)", (unsigned long long)*(uint64_t *)option->value);
        break;
    case ASHLAR_OPTION_REAL:
        fprintf(out, " (%g)", *(double *)option->value);
        break;
    case ASHLAR_OPTION_TEXT:
        text = *(const char **)option->value;
        if (text != NULL) {
            fprintf(out, " (%s)", text);
        }
        break;
    case ASHLAR_OPTION_LIST:
    case ASHLAR_OPTION_FLAG:
        break;
    }
}

void ashlar__options_print(FILE *out, const ashlar_option *options, size_t count) {
    enum { NAME_COLUMNS = 20 };
    for (size_t i = 0; i < count; i++) {
        const ashlar_option *option = &options[i];
        char usage[64];
        const bool is_help = strcmp(option->name, "help") == 0;
        snprintf(usage, sizeof usage, "%s--%s%s%s", is_help ? "-h, " : "", option->name,
                 option->argument != NULL ? " " : "",
                 option->argument != NULL ? option->argument : "");
        fprintf(out, "  %-*s  %s", NAME_COLUMNS, usage, option->help);
        print_default(out, option);
        fputc('\n', out);
        if (is_help) {
            fprintf(out, "  %-*s  print the version\n", NAME_COLUMNS, "--version");
        }
    }
}
