/* options_answer.c - what every program answers without doing its work: its version, and bash's
 * completion of its options, made from their table. */
#include <string.h>

#include <ashlar/version.h>

#include "rnn/programs/options.h"

enum { WORD_BYTES = 32 };

/* Whether `word` is given as an option, and not as the value of one. */
static bool is_given(const ashlar_option *options, size_t count, int argc, char **argv,
                     const char *word) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0) {
            return true;
        }
        for (size_t k = 0; k < count; k++) {
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, options[k].name) == 0 &&
                options[k].kind != ASHLAR_OPTION_FLAG) {
                i++;
                break;
            }
        }
    }
    return false;
}

/* The next choice that a help text lists: a word before or after a comma. */
static bool next_choice(const char **text, char word[static WORD_BYTES]) {
    static const char ends[] = " ,;:()";
    for (bool is_behind = false; **text != '\0';) {
        *text += strspn(*text, " ;:()");
        if (**text == ',') {
            is_behind = true;
            ++*text;
            continue;
        }
        const size_t bytes = strcspn(*text, ends);
        const char *start = *text;
        *text += bytes;
        if (bytes > 0 && bytes < WORD_BYTES && (is_behind || **text == ',')) {
            memcpy(word, start, bytes);
            word[bytes] = '\0';
            return true;
        }
        is_behind = false;
    }
    return false;
}

static void print_values(FILE *out, const ashlar_option *o) {
    char word[WORD_BYTES];
    const char *help = o->help, *argument = o->argument;
    if (strcmp(argument, "FILE") == 0 || strcmp(argument, "PATH") == 0) {
        fprintf(out, "    --%s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", o->name);
        return;
    }
    fprintf(out, "    --%s) COMPREPLY=($(compgen -W '", o->name);
    while (strcmp(argument, "NAME") == 0 && next_choice(&help, word)) {
        fprintf(out, "%s ", word);
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
            "--version' -- \"$word\")) ;;\n"
            "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
            "    esac\n"
            "}\n"
            "complete -o filenames -F _%s %s\n",
            program, program);
}

bool ashlar__options_answer(const char *program, const ashlar_option *options, size_t count,
                            int argc, char **argv) {
    if (is_given(options, count, argc, argv, "--version")) {
        printf("%s (ashlar) %s\n", program, ASHLAR_VERSION_TEXT);
        return true;
    }
    if (is_given(options, count, argc, argv, "--completion")) {
        print_completion(stdout, program, options, count);
        return true;
    }
    return false;
}
