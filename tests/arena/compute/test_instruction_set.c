/*
 * test_instruction_set.c - which instruction set is used, by the processor and the environment.
 */
#define ASHLAR_SETS(X) X(avx2) X(baseline) /* not in their order */
#include "arena/compute/element.h"

#include "tests/child.h"

enum { REFUSED = 50, ALLOWED = 60 }; /* and the set that is used */

static int choose(const void *name) {
    if (name != NULL) {
        setenv("ASHLAR_ISA", name, 1);
    } else {
        unsetenv("ASHLAR_ISA");
    }
    const bool is_allowed = ashlar__instruction_set_check() == ASHLAR_OK;
    if (!is_allowed && (strstr(ashlar_error_detail(), name) == NULL ||
                        strstr(ashlar_error_detail(), "baseline") == NULL)) {
        return 1;
    }
    return (is_allowed ? ALLOWED : REFUSED) + (int)ashlar__instruction_set();
}

#if defined __aarch64__
static const bool is_arm = true;
#else
static const bool is_arm = false;
#endif

CASE(the_environment_lowers_the_set) {
    static const char *const names[] = {"baseline", "avx2", "avx512", "neon"};
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_SET_COUNT);
    const int most = child_returns(choose, NULL) - ALLOWED;
    REQUIRE(most >= 0 && most < ASHLAR_SET_COUNT);
    CHECK((most == ASHLAR_SET_neon) == is_arm);
    for (int i = 0; i < ASHLAR_SET_COUNT; i++) {
        const bool is_ours = i == ASHLAR_SET_baseline || (i == ASHLAR_SET_neon) == is_arm;
        CHECK(child_returns(choose, names[i]) ==
              (is_ours && i <= most ? ALLOWED + i : REFUSED + most));
    }
}

CASE(a_name_that_is_none_is_refused) {
    static const char *const names[] = {"", "sse9", "AVX2", "avx2 ", "avx5120"};
    const int most = child_returns(choose, NULL) - ALLOWED;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK(child_returns(choose, names[i]) == REFUSED + most);
    }
}

static int choose_of_two(const void *name) {
    return choose(name) < ALLOWED ? REFUSED : (int)ashlar__best_set();
}

CASE(a_file_runs_in_the_largest_set_that_it_is_compiled_for_and_may_use) {
    const int most = child_returns(choose, NULL) - ALLOWED;
    CHECK(child_returns(choose_of_two, "baseline") == 1);
    SKIP_IF(is_arm, "the sets of this case are of another processor");
    CHECK(child_returns(choose_of_two, NULL) == (most >= ASHLAR_SET_avx2 ? 0 : 1));
    CHECK(child_returns(choose_of_two, "avx512") == (most >= ASHLAR_SET_avx512 ? 0 : REFUSED));
}

RUN_CASES()
