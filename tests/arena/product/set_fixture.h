/*
 * set_fixture.h - tests that run once with each instruction set, by ASHLAR_ISA in the environment.
 */
#ifndef ASHLAR_SET_FIXTURE_H
#define ASHLAR_SET_FIXTURE_H

#include "tests/check.h"

#include "arena/compute/element.h"

/* Skipped as a whole where the processor lacks the set that is asked for. */
#define RUN_CASES_OF_SET()                                     \
    int main(void) {                                           \
        if (ashlar__instruction_set_check() != ASHLAR_OK) {    \
            printf("1..0 # SKIP %s\n", ashlar_error_detail()); \
            return 0;                                          \
        }                                                      \
        check_run_cases();                                     \
        return check_report();                                 \
    }

#endif /* ASHLAR_SET_FIXTURE_H */
