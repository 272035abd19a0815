/* test_closest.c - which name a misspelt word is taken for. */
#include "tests/check.h"

#include "allocator/base/closest.h"

static const char *closest_to(const char *word) {
    static const char *const names[] = {"limit", "trace", "seal", "guard", "x", "leaks", "up"};
    ashlar_closest closest = {.word = ashlar__piece_of(word)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ashlar__closest_offer(&closest, names[i]);
    }
    return closest.name != NULL ? closest.name : "none";
}

CASE(a_letter_too_few_too_many_or_wrong_is_forgiven) {
    CHECK(strcmp(closest_to("limt"), "limit") == 0);
    CHECK(strcmp(closest_to("limmit"), "limit") == 0);
    CHECK(strcmp(closest_to("linit"), "limit") == 0);
    CHECK(strcmp(closest_to("imit"), "limit") == 0);
    CHECK(strcmp(closest_to("sel"), "seal") == 0);
    CHECK(strcmp(closest_to("us"), "up") == 0);
}

CASE(two_letters_that_changed_places_are_one_mistake) {
    CHECK(strcmp(closest_to("trcae"), "trace") == 0);
    CHECK(strcmp(closest_to("gaurd"), "guard") == 0);
    CHECK(strcmp(closest_to("es"), "none") == 0);
}

CASE(the_closest_of_several_is_taken) {
    CHECK(strcmp(closest_to("leals"), "leaks") == 0);
    CHECK(strcmp(closest_to("seals"), "seal") == 0);
    ashlar_closest closest = {.word = ashlar__piece_of("leaks")};
    ashlar__closest_offer(&closest, "leals");
    CHECK(closest.name != NULL && strcmp(closest.name, "leals") == 0);
    ashlar__closest_offer(&closest, "leaks-of-all-that-is-longer-than-any-word-is");
    CHECK(strcmp(closest.name, "leals") == 0);
    ashlar__closest_offer(&closest, "leaks");
    CHECK(strcmp(closest.name, "leaks") == 0);
}

CASE(what_is_far_is_not_guessed) {
    static const char *const words[] = {
        "", "y", "ab", "handle", "guards-of-all", "limitlimitlimitlimitlimitlimitlimit"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        CHECK(strcmp(closest_to(words[i]), "none") == 0);
    }
}

CASE(a_hint_names_the_option_with_its_dashes) {
    char text[ASHLAR_CLOSEST_HINT_BYTES];
    const ashlar_closest found = {.name = "steps"}, none = {0};
    CHECK(strcmp(ashlar__closest_hint(&found, "--", text), "; did you mean --steps?") == 0);
    CHECK(strcmp(ashlar__closest_hint(&none, "--", text), "") == 0);
}

RUN_CASES()
