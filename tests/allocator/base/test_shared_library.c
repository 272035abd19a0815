/*
 * test_shared_library.c - a library is found by its names in their order, or by its variable alone;
 * what it lacks is said.
 */
#include "tests/check.h"

#include <stdlib.h>

#include "allocator/base/shared_library.h"

#define VARIABLE "ASHLAR_TEST_LIBRARY"

static const char *const functions[] = {"cosh", "frexp"}, *const missing[] = {"cosh", "nobodys"};

static ashlar_shared_library library; /* of the C library's functions of mathematics */
static ashlar_shared_table once;
static void (*found[2])(void);

static bool set_up_library(const char *first, const char *second) {
    once = (ashlar_shared_table){.lock = ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY)};
    library = (ashlar_shared_library){.what = "mathematics",
                                      .variable = VARIABLE,
                                      .names = {first, second},
                                      .functions = functions,
                                      .function_count = 2};
    found[0] = found[1] = NULL;
    return unsetenv(VARIABLE) == 0;
}

static ashlar_status load(void) {
    return ashlar__shared_load(&once, &library, found);
}

CASE(the_first_name_that_is_there_is_taken) {
    static const char *const names[][2] = {
        {"libm.so.6", NULL}, {"libm.so.6", "libnowhere.so"}, {"libnowhere.so", "libm.so.6"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        REQUIRE(set_up_library(names[i][0], names[i][1]));
        REQUIRE(load() == ASHLAR_OK);
        CHECK(found[0] != NULL && found[1] != NULL && found[0] != found[1]);
        library.functions = missing; /* once is enough */
        CHECK(load() == ASHLAR_OK);
    }
}

CASE_WITH(a_library_that_is_nowhere_is_named_with_the_remedy,
          set_up_library("libnowhere.so", "libnowhere-either.so")) {
    CHECK_FAILS(load(), ASHLAR_ENOTSUP, "mathematics was not found: install it, or set " VARIABLE);
    CHECK_HAS(ashlar_error_detail(), "libnowhere-either.so");
    CHECK(found[0] == NULL && !once.is_filled);
    library.names[1] = "libm.so.6"; /* installed by now */
    CHECK(load() == ASHLAR_OK);
}

CASE_WITH(the_variable_names_the_only_file, set_up_library("libm.so.6", NULL)) {
    CHECK(setenv(VARIABLE, "/nowhere/at/all.so", 1) == 0);
    CHECK_FAILS(load(), ASHLAR_ENOTSUP, "/nowhere/at/all.so");
    library.names[0] = "libnowhere.so";
    CHECK(setenv(VARIABLE, "libm.so.6", 1) == 0);
    CHECK(load() == ASHLAR_OK);
    CHECK(unsetenv(VARIABLE) == 0);
}

CASE_WITH(a_function_that_is_lacking_is_named, set_up_library("libm.so.6", NULL)) {
    library.functions = missing;
    CHECK_FAILS(load(), ASHLAR_ENOTSUP, "mathematics lacks nobodys");
    CHECK(!once.is_filled);
}

RUN_CASES()
