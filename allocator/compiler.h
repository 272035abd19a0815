/*
 * compiler.h - the one place that knows compilers (internal).
 */
#ifndef ASHLAR_COMPILER_H
#define ASHLAR_COMPILER_H

#if defined(__GNUC__)
#define ASHLAR_PRINTF(format_idx, args_idx) __attribute__((format(printf, format_idx, args_idx)))
#else
#define ASHLAR_PRINTF(format_idx, args_idx)
#endif

#endif /* ASHLAR_COMPILER_H */
