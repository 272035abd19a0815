/* test_closest.c - which name a misspelt word is taken for. */
#include "tests/check.h"

#include "allocator/base/parse.h"

CASE(one_letter_is_forgiven_and_no_more) {
    static const char *const names[] = {"limit", "trace", "seal", "guard", "x", "leaks", "up"};
    static const struct {
        const char *word, *name;
    } cases[] = {
        {"limt", "limit"},
        {"limmit", "limit"},
        {"linit", "limit"},
        {"imit", "limit"},
        {"sel", "seal"},
        {"us", "up"},
        {"trcae", "trace"},
        {"gaurd", "guard"},
        {"leals", "leaks"},
        {"seals", "seal"},
        {"es", NULL},
        {"", NULL},
        {"y", NULL},
        {"ab", NULL},
        {"handle", NULL},
        {"guards-of-all", NULL},
        {"limitlimitlimitlimitlimitlimitlimit", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ashlar_closest closest = {.word = ashlar__piece_of(cases[i].word)};
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            ashlar__closest_offer(&closest, names[k]);
        }
        CHECK(cases[i].name == NULL
                  ? closest.name == NULL
                  : closest.name != NULL && strcmp(closest.name, cases[i].name) == 0);
    }
    ashlar_closest closest = {.word = ashlar__piece_of("leaks")};
    ashlar__closest_offer(&closest, "leals");
    ashlar__closest_offer(&closest, "leaks-of-all-that-is-longer-than-any-word-is");
    CHECK(closest.name != NULL && strcmp(closest.name, "leals") == 0);
    ashlar__closest_offer(&closest, "leaks"); /* the word itself comes before a close one */
    CHECK(strcmp(closest.name, "leaks") == 0);
}

CASE(a_hint_names_the_option_with_its_dashes) {
    char text[ASHLAR_CLOSEST_HINT_BYTES];
    const ashlar_closest found = {.name = "steps"}, none = {0};
    CHECK(strcmp(ashlar__closest_hint(&found, "--", text), "; did you mean --steps?") == 0);
    CHECK(strcmp(ashlar__closest_hint(&none, "--", text), "") == 0);
}

RUN_CASES()
