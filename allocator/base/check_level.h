/*
 * check_level.h - checks for our own bugs. A caller's mistake is an ashlar_status instead.
 *
 *   ASHLAR_ASSERT   level 1  O(1), no memory walk
 *   ASHLAR_CHECK2   level 2  O(1) on a whole structure (list heads, counters)
 *   ASHLAR_CHECK3   level 3  O(n) walks, tests and sanitizer builds only
 *
 * Every expression is compiled in every build, so it cannot rot. It runs only in builds whose
 * debug level is at least its own.
 */
#ifndef ASHLAR_CHECK_LEVEL_H
#define ASHLAR_CHECK_LEVEL_H

#ifndef ASHLAR_DEBUG
#error "build with -DASHLAR_DEBUG=0..3 (meson option debug_level)"
#endif
_Static_assert(ASHLAR_DEBUG >= 0 && ASHLAR_DEBUG <= 3, "the levels that there are");

_Noreturn void ashlar__assert_fail(const char *expr, const char *file, int line);

#define ASHLAR_ASSERT_AT(level, expr) \
    ((ASHLAR_DEBUG < (level) || (expr)) ? (void)0 : ashlar__assert_fail(#expr, __FILE__, __LINE__))
#define ASHLAR_ASSERT(expr) ASHLAR_ASSERT_AT(1, expr)
#define ASHLAR_CHECK2(expr) ASHLAR_ASSERT_AT(2, expr)
#define ASHLAR_CHECK3(expr) ASHLAR_ASSERT_AT(3, expr)

#endif /* ASHLAR_CHECK_LEVEL_H */
