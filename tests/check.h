/*
 * check.h - test helpers that speak TAP. Never compiled out, whatever NDEBUG says.
 *
 * A test file is one program, tests/test_<module>.c. Its main() is RUN(case) lines and
 * `return check_report();`. A case passes only if it ran at least one check and none failed.
 */
#ifndef ASHLAR_CHECK_H
#define ASHLAR_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int check_case_count;
static long check_ran;      /* checks in this case */
static int check_failed;    /* failures in this case */
static int check_bad_cases;
static const char *check_skipped; /* why this case was skipped, NULL if it was not */

#define CHECK(expr)                                                          \
    do {                                                                     \
        check_ran++;                                                         \
        if (!(expr)) {                                                       \
            check_failed++;                                                  \
            printf("# %s:%d: CHECK(%s)\n", __FILE__, __LINE__, #expr);       \
        }                                                                    \
    } while (0)

/* As CHECK, and leaves the case when it fails: for what the rest of the case stands on. */
#define REQUIRE(expr)                                                        \
    do {                                                                     \
        check_ran++;                                                         \
        if (!(expr)) {                                                       \
            check_failed++;                                                  \
            printf("# %s:%d: REQUIRE(%s)\n", __FILE__, __LINE__, #expr);     \
            return;                                                          \
        }                                                                    \
    } while (0)

#define CHECK_ZU(got, want)                                                  \
    do {                                                                     \
        const size_t got_ = (got), want_ = (want);                           \
        check_ran++;                                                         \
        if (got_ != want_) {                                                 \
            check_failed++;                                                  \
            printf("# %s:%d: %s is %zu, want %zu\n", __FILE__, __LINE__,     \
                   #got, got_, want_);                                       \
        }                                                                    \
    } while (0)

/* |got - want| <= atol + rtol * |want|; a NaN fails. */
#define CHECK_NEAR(got, want, atol, rtol)                                    \
    do {                                                                     \
        const double got_ = (got), want_ = (want);                           \
        check_ran++;                                                         \
        if (!(fabs(got_ - want_) <= (atol) + (rtol) * fabs(want_))) {        \
            check_failed++;                                                  \
            printf("# %s:%d: %s is %.17g, want %.17g\n", __FILE__, __LINE__, \
                   #got, got_, want_);                                       \
        }                                                                    \
    } while (0)

/* `text` contains `part`: for messages that must name a thing. */
#define CHECK_HAS(text, part)                                                \
    do {                                                                     \
        const char *text_ = (text), *part_ = (part);                         \
        check_ran++;                                                         \
        if (strstr(text_, part_) == NULL) {                                  \
            check_failed++;                                                  \
            printf("# %s:%d: \"%s\" lacks \"%s\"\n", __FILE__, __LINE__,     \
                   text_, part_);                                            \
        }                                                                    \
    } while (0)

/* Leave this case as skipped. */
#define SKIP(why)                \
    do {                         \
        check_skipped = (why);   \
        return;                  \
    } while (0)

#define RUN(test) check_run(test, #test)

static inline void check_run(void (*test)(void), const char *name) {
    check_ran = 0;
    check_failed = 0;
    check_skipped = NULL;
    test();
    check_case_count++;
    if (check_skipped != NULL) {
        printf("ok %d - %s # SKIP %s\n", check_case_count, name, check_skipped);
    } else {
        const bool passed = check_failed == 0 && check_ran > 0;
        if (check_ran == 0) {
            printf("# no check ran\n");
        }
        check_bad_cases += !passed;
        printf("%s %d - %s\n", passed ? "ok" : "not ok", check_case_count, name);
    }
    fflush(stdout);
}

static inline int check_report(void) {
    printf("1..%d\n", check_case_count);
    return check_bad_cases == 0 && check_case_count > 0 ? 0 : 1;
}

#endif /* ASHLAR_CHECK_H */
