/* options.c - reads a command line by a table of options, and prints their help. */
#include "rnn/programs/options.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <ashlar/base.h>

#include "allocator/base/parse.h"
#include "allocator/base/error.h"

/* The names that an option's help lists, with commas between them: all of it, or what is behind its
 * colon. */
static ashlar_piece names_of(const ashlar_option *option) {
    const char *colon = strstr(option->help, ": ");
    return ashlar__piece_of(colon != NULL ? colon + 2 : option->help);
}

static ashlar_piece next_name(ashlar_piece *rest) {
    return ashlar__piece_trim(ashlar__piece_cut(rest, ','));
}

/* The number of the name, or that of all names if it is none. */
static unsigned find_name(const ashlar_option *option, const char *text) {
    ashlar_piece rest = names_of(option);
    unsigned i = 0;
    for (; rest.bytes > 0; i++) {
        const ashlar_piece name = next_name(&rest);
        if (strlen(text) == name.bytes && strncasecmp(text, name.text, name.bytes) == 0) {
            break;
        }
    }
    return i;
}

static ashlar_status refuse(const ashlar_option *o, const char *text) {
    char why[200];
    switch (o->kind) {
    case ASHLAR_OPTION_COUNT:
        (void)(o->max > 0 ? snprintf(why, sizeof why, "is no whole number from %.0f to %.0f",
                                     o->min, o->max)
                          : snprintf(why, sizeof why, "is no whole number from 0 to 2^64-1"));
        break;
    case ASHLAR_OPTION_REAL:
        (void)snprintf(why, sizeof why, "is no number from %g to %g", o->min, o->max);
        break;
    case ASHLAR_OPTION_CHOICE:
        (void)snprintf(why, sizeof why, "is none of %s", names_of(o).text);
        break;
    case ASHLAR_OPTION_TEXT:
    case ASHLAR_OPTION_LIST:
    case ASHLAR_OPTION_FLAG:
        (void)snprintf(why, sizeof why, "cannot be its value");
    }
    return ashlar__fail(ASHLAR_EINVAL, "--%s: \"%.80s\" %s", o->name, text, why);
}

/* Read a value into *option. False: it is none. */
static bool read_value(const ashlar_option *option, const char *text) {
    uint64_t whole;
    double real;
    char *end;
    switch (option->kind) {
    case ASHLAR_OPTION_COUNT:
        if (!ashlar__parse_count(ashlar__piece_of(text), &whole) ||
            (option->max > 0 && ((double)whole < option->min || (double)whole > option->max))) {
            return false;
        }
        *(uint64_t *)option->value = whole;
        return true;
    case ASHLAR_OPTION_REAL:
        real = strtod(text, &end);
        if (end == text || *end != '\0' || !(real >= option->min && real <= option->max)) {
            return false;
        }
        *(double *)option->value = real;
        return true;
    case ASHLAR_OPTION_CHOICE:
        whole = find_name(option, text);
        if (whole == find_name(option, "")) {
            return false;
        }
        *(unsigned *)option->value = (unsigned)whole;
        return true;
    case ASHLAR_OPTION_TEXT:
        *(const char **)option->value = text;
        return true;
    case ASHLAR_OPTION_LIST: {
        ashlar_option_list *const list = option->value;
        list->items[list->count++] = text;
        return true;
    }
    case ASHLAR_OPTION_FLAG:
        break;
    }
    return false;
}

static ashlar_status set_value(const ashlar_option *option, const char *text) {
    const bool is_full = option->kind == ASHLAR_OPTION_LIST &&
                         ((ashlar_option_list *)option->value)->count == ASHLAR_OPTION_LIST_MAX;
    ASHLAR_FAIL_IF(*text != '\0' && option->kind == ASHLAR_OPTION_FLAG, ASHLAR_EINVAL,
                   "--%s: takes no value", option->name);
    ASHLAR_FAIL_IF(is_full, ASHLAR_EINVAL, "--%s: given more than %d times", option->name,
                   ASHLAR_OPTION_LIST_MAX);
    return *text != '\0' && read_value(option, text) ? ASHLAR_OK : refuse(option, text);
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

ashlar_status ashlar__options_parse(const ashlar_option *options, size_t count, int argc,
                                    char **argv) {
    return ashlar__options_parse_words(options, count, argc, argv, NULL);
}

ashlar_status ashlar__options_parse_words(const ashlar_option *options, size_t count, int argc,
                                          char **argv, char **words) {
    for (int i = 1; i < argc; i++) {
        if (words != NULL && argv[i][0] != '-') {
            *words++ = argv[i];
            continue;
        }
        const char *word = argv[i];
        ASHLAR_FAIL_IF(strncmp(word, "--", 2) != 0, ASHLAR_EINVAL,
                       "%.80s: is no option; options begin with --, see --help", word);
        const char *value;
        const ashlar_option *option = find(options, count, word + 2, &value);
        ASHLAR_FAIL_IF(option == NULL, ASHLAR_EINVAL, "%.80s: there is no such option, see --help",
                       argv[i]);
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
    ashlar_piece names = names_of(option), name = {0};
    switch (option->kind) {
    case ASHLAR_OPTION_COUNT:
        fprintf(out, " (%zu)", *(size_t *)option->value);
        break;
    case ASHLAR_OPTION_REAL:
        fprintf(out, " (%g)", *(double *)option->value);
        break;
    case ASHLAR_OPTION_CHOICE:
        for (unsigned i = 0; i <= *(unsigned *)option->value; i++) {
            name = next_name(&names);
        }
        fprintf(out, " (%.*s)", (int)name.bytes, name.text);
        break;
    case ASHLAR_OPTION_TEXT:
        if (*(const char **)option->value != NULL) {
            fprintf(out, " (%s)", *(const char **)option->value);
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
        const char *const argument = option->argument != NULL ? option->argument : "";
        char usage[64];
        (void)snprintf(usage, sizeof usage, "--%s%s%s", option->name, *argument != '\0' ? " " : "",
                       argument);
        fprintf(out, "  %-*s  %s", NAME_COLUMNS, usage, option->help);
        print_default(out, option);
        fputc('\n', out);
    }
    fprintf(out, "  %-*s  print this\n  %-*s  print the version\n", NAME_COLUMNS, "-h, --help",
            NAME_COLUMNS, "--version");
}

/* ---- --version, and --completion: bash's completion, made from the table of options ---- */

static void print_values(FILE *out, const ashlar_option *o) {
    ashlar_piece rest = names_of(o);
    const char *const argument = o->argument;
    if (strcmp(argument, "FILE") == 0 || strcmp(argument, "PATH") == 0) {
        fprintf(out, "    --%s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", o->name);
        return;
    }
    fprintf(out, "    --%s) COMPREPLY=($(compgen -W '", o->name);
    while (strcmp(argument, "NAME") == 0 && rest.bytes > 0) {
        const ashlar_piece name = next_name(&rest);
        fprintf(out, "%.*s ", (int)name.bytes, name.text);
    }
    fprintf(out, "' -- \"$word\")); return ;;\n");
}

static void print_completion(FILE *out, const char *program, const ashlar_option *options,
                             size_t count) {
    fprintf(out,
            "_%s() {\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "    [ \"$word\" != = ] || word=\n"
            "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}\n"
            "    COMPREPLY=()\n"
            "    case $before in\n",
            program);
    for (size_t i = 0; i < count; i++) {
        if (options[i].kind != ASHLAR_OPTION_FLAG) {
            print_values(out, &options[i]);
        }
    }
    fprintf(out, "    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "--%s ", options[i].name);
    }
    fprintf(out,
            "--help --version' -- \"$word\")) ;;\n"
            "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
            "    esac\n"
            "}\n"
            "complete -o filenames -F _%s %s\n",
            program, program);
}

static bool is_help_wanted(int argc, char **argv) {
    bool is_short = false;
    for (int i = 1; i < argc; i++) {
        is_short = is_short || strcmp(argv[i], "-h") == 0;
    }
    return is_short || ashlar__options_given("help", argc, argv) != NULL;
}

bool ashlar__options_answer(const char *program, const char *usage, const char *notes,
                            const ashlar_option *options, size_t count, int argc, char **argv) {
    if (is_help_wanted(argc, argv)) {
        fputs(usage, stdout);
        ashlar__options_print(stdout, options, count);
        fputs(notes, stdout);
    } else if (ashlar__options_given("version", argc, argv) != NULL) {
        printf("%s (ashlar) %s\n", program, ASHLAR_VERSION_TEXT);
    } else if (ashlar__options_given("completion", argc, argv) != NULL) {
        print_completion(stdout, program, options, count);
    } else {
        return false;
    }
    return true;
}
