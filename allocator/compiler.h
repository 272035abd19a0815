/*
 * compiler.h - the one place that knows compilers (internal).
 */
#ifndef ASHLAR_COMPILER_H
#define ASHLAR_COMPILER_H

#if defined(__GNUC__)
#define ASHLAR_NOINLINE __attribute__((noinline))
#define ASHLAR_PRINTF(format_idx, args_idx) __attribute__((format(printf, format_idx, args_idx)))
#define ASHLAR_LIKELY(expr) __builtin_expect(!!(expr), 1)
#define ASHLAR_UNLIKELY(expr) __builtin_expect(!!(expr), 0)
#else
#define ASHLAR_NOINLINE
#define ASHLAR_PRINTF(format_idx, args_idx)
#define ASHLAR_LIKELY(expr) (expr)
#define ASHLAR_UNLIKELY(expr) (expr)
#endif

#endif /* ASHLAR_COMPILER_H */
