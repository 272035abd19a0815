/*
 * check.h - test helpers that speak TAP. Never compiled out, whatever NDEBUG says.
 *
 * A test file is one program: CASE(name) { ... } for each case, and RUN_CASES() at its end. Cases
 * run in the order in which they stand there. One passes only if it ran at least one check and none
 * failed. A program that prepares something writes a main() of its own: that, check_run_cases(),
 * and `return check_report();`.
 *
 * What a case sets up is torn down at its end by itself: the set-up function ends with
 * check_at_end(tear_down_x). A case calls tear_down_x() only in its middle.
 */
#ifndef ASHLAR_CHECK_H
#define ASHLAR_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
/* It guesses where a library that was loaded late has its thread-local variables, and crashes. */
__attribute__((weak, visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "intercept_tls_get_addr=0";
}
#endif

/* How much of a long random case runs where ThreadSanitizer makes all ten times slower. That is for
 * races alone: the other builds run the whole. */
#if defined(__SANITIZE_THREAD__)
#define CHECK_SHARE(whole, of_tsan) (of_tsan)
#else
#define CHECK_SHARE(whole, of_tsan) (whole)
#endif

/* The same where either sanitizer is on, and the case looks for wrong results more than for wrong
 * accesses. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SANITIZED(whole, of_sanitized) (of_sanitized)
#else
#define CHECK_SANITIZED(whole, of_sanitized) (whole)
#endif

static int check_case_count;
static long check_ran;   /* checks in this case */
static int check_failed; /* failures in this case */
static int check_bad_cases;
static const char *check_skipped; /* why this case was skipped, NULL if it was not */

/* Software devices of tests are strict (allocator/soft/soft.h), unless their line or the caller's
 * environment says otherwise: a test that does what CUDA leaves undefined ends there. `./run test
 * all` has them wait and overlap, too. A file that defines CHECK_SOFT_DEFAULTS has those, whatever
 * the environment is; with CHECK_SOFT_AT_ONCE it may say which work is over at which call. */
#define CHECK_SOFT_AT_ONCE "strict=on,mode=eager,waits=off"
#ifdef CHECK_SOFT_DEFAULTS
enum { CHECK_SOFT_IS_FIXED = 1 };
#else
#define CHECK_SOFT_DEFAULTS "strict=on"
enum { CHECK_SOFT_IS_FIXED = 0 };
#endif
__attribute__((constructor)) static void check_be_strict(void) {
    (void)setenv("ASHLAR_SOFT_DEFAULTS", CHECK_SOFT_DEFAULTS, CHECK_SOFT_IS_FIXED);
}

#define CHECK(expr)                                                    \
    do {                                                               \
        check_ran++;                                                   \
        if (!(expr)) {                                                 \
            check_failed++;                                            \
            printf("# %s:%d: CHECK(%s)\n", __FILE__, __LINE__, #expr); \
        }                                                              \
    } while (0)

/* As CHECK, and leaves the case when it fails: for what the rest of the case stands on. */
#define REQUIRE(expr)                                                    \
    do {                                                                 \
        check_ran++;                                                     \
        if (!(expr)) {                                                   \
            check_failed++;                                              \
            printf("# %s:%d: REQUIRE(%s)\n", __FILE__, __LINE__, #expr); \
            return;                                                      \
        }                                                                \
    } while (0)

#define CHECK_ZU(got, want)                                                                  \
    do {                                                                                     \
        const size_t got_ = (got), want_ = (want);                                           \
        check_ran++;                                                                         \
        if (got_ != want_) {                                                                 \
            check_failed++;                                                                  \
            printf("# %s:%d: %s is %zu, want %zu\n", __FILE__, __LINE__, #got, got_, want_); \
        }                                                                                    \
    } while (0)

/* |got - want| <= atol + rtol * |want|; a NaN fails. */
#define CHECK_NEAR(got, want, atol, rtol)                                                        \
    do {                                                                                         \
        const double got_ = (got), want_ = (want);                                               \
        check_ran++;                                                                             \
        if (!(fabs(got_ - want_) <= (atol) + (rtol)*fabs(want_))) {                              \
            check_failed++;                                                                      \
            printf("# %s:%d: %s is %.17g, want %.17g\n", __FILE__, __LINE__, #got, got_, want_); \
        }                                                                                        \
    } while (0)

/* `text` contains `part`: for messages that must name a thing. */
#define CHECK_HAS(text, part)                                                           \
    do {                                                                                \
        const char *text_ = (text), *part_ = (part);                                    \
        check_ran++;                                                                    \
        if (strstr(text_, part_) == NULL) {                                             \
            check_failed++;                                                             \
            printf("# %s:%d: \"%s\" lacks \"%s\"\n", __FILE__, __LINE__, text_, part_); \
        }                                                                               \
    } while (0)

/* The call fails with `status`, and the detail message contains `part`. */
#define CHECK_FAILS(call, status, part)           \
    do {                                          \
        CHECK((call) == (status));                \
        CHECK_HAS(ashlar_error_detail(), (part)); \
    } while (0)

/* A statement during which the n-th host allocation fails; for files that include host.h. */
#define HOST_FAILS_AT(n, statement) \
    do {                            \
        ashlar__host_fail_at(n);    \
        statement;                  \
        ashlar__host_fail_at(0);    \
    } while (0)

/* A failing call is tried again with more; the case fails where it fails in another way. */
static inline bool check_tries_again(bool has_failed, bool has_passed, unsigned long tries) {
    const unsigned long too_many = 5000;
    if (tries > 0 && !(has_failed && tries < too_many)) {
        CHECK(has_passed);
        return false;
    }
    return true;
}

/*
 * `call` with the first host allocation failing, then the second, until it succeeds, which is the
 * n-th time. The block runs after each time; any status but ASHLAR_EHOSTMEM and ASHLAR_OK fails the
 * case. For files that include host.h.
 */
#define FOR_HOST_FAILURES(n, status, call)                                       \
    unsigned long n = 0;                                                         \
    for (ashlar_status status = ASHLAR_OK;                                       \
         check_tries_again(status == ASHLAR_EHOSTMEM, status == ASHLAR_OK, n) && \
         (ashlar__host_fail_at(++n), status = (call), ashlar__host_fail_at(0), true);)

/* Leave this case as skipped. */
#define SKIP(why)              \
    do {                       \
        check_skipped = (why); \
        return;                \
    } while (0)

#define SKIP_IF(condition, why) \
    do {                        \
        if (condition) {        \
            SKIP(why);          \
        }                       \
    } while (0)

typedef struct check_case {
    void (*run)(void);
    const char *name;
    bool *flag; /* NULL, or turned over while the case runs */
    int line;
    struct check_case *next;
} check_case;

static check_case *check_first_case; /* by line */

static inline void check_enlist(check_case *entry) {
    check_case **at = &check_first_case;
    while (*at != NULL && (*at)->line <= entry->line) {
        at = &(*at)->next;
    }
    entry->next = *at;
    *at = entry;
}

#define CHECK_ENLIST(test, as, what)                                   \
    __attribute__((constructor)) static void check_enlist_##as(void) { \
        static check_case entry = {test, #as, what, __LINE__, NULL};   \
        check_enlist(&entry);                                          \
    }

#define CASE(test)                 \
    static void test(void);        \
    CHECK_ENLIST(test, test, NULL) \
    static void test(void)

/* A case that stands on `set_up`: it is required before the first line. */
#define CASE_WITH(test, set_up)    \
    static void test##_body(void); \
    CASE(test) {                   \
        REQUIRE(set_up);           \
        test##_body();             \
    }                              \
    static void test##_body(void)

/* The case, and behind it once more as `as` with the flag turned over. */
#define CASE_TWICE(test, as, flag) \
    static void test(void);        \
    CHECK_ENLIST(test, test, NULL) \
    CHECK_ENLIST(test, as, flag)   \
    static void test(void)

#define CASE_TWICE_WITH(test, as, flag, set_up) \
    static void test##_body(void);              \
    CASE_TWICE(test, as, flag) {                \
        REQUIRE(set_up);                        \
        test##_body();                          \
    }                                           \
    static void test##_body(void)

/* ---- what runs when a case ends ---- */

enum { CHECK_ENDS_MAX = 16 };
static void (*check_ends[CHECK_ENDS_MAX])(void);
static int check_end_count;
static void (*check_each)(void); /* for main(): runs behind every case and its tear-downs */

/*
 * `act` runs once when the case ends, wherever it is left: the last one registered first, and no
 * other that is called by it and takes its registration back. True, so that a set-up can end with
 * it.
 */
static inline bool check_at_end(void (*act)(void)) {
    for (int i = 0; i < check_end_count; i++) {
        if (check_ends[i] == act) {
            return true;
        }
    }
    CHECK(check_end_count < CHECK_ENDS_MAX);
    if (check_end_count < CHECK_ENDS_MAX) {
        check_ends[check_end_count++] = act;
    }
    return true;
}

/* First in a tear-down that stands on no other: `act` is done, and what stood on it is gone. */
static inline void check_forget(void (*act)(void)) {
    for (int i = check_end_count - 1; i >= 0; i--) {
        if (check_ends[i] == act) {
            check_end_count = i;
            break;
        }
    }
}

static inline void check_run(void (*test)(void), const char *name) {
    check_ran = 0;
    check_failed = 0;
    check_skipped = NULL;
    test();
    while (check_end_count > 0) {
        check_ends[--check_end_count]();
    }
    if (check_each != NULL && check_ran > 0) {
        check_each();
    }
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

static inline void check_run_cases(void) {
    for (const check_case *entry = check_first_case; entry != NULL; entry = entry->next) {
        if (entry->flag != NULL) {
            *entry->flag = !*entry->flag;
        }
        check_run(entry->run, entry->name);
        if (entry->flag != NULL) {
            *entry->flag = !*entry->flag;
        }
    }
}

static inline int check_report(void) {
    printf("1..%d\n", check_case_count);
    return check_bad_cases == 0 && check_case_count > 0 ? 0 : 1;
}

#define RUN_CASES_AFTER(begin) \
    int main(void) {           \
        begin;                 \
        check_run_cases();     \
        return check_report(); \
    }

#define RUN_CASES() RUN_CASES_AFTER((void)0)

#endif /* ASHLAR_CHECK_H */
