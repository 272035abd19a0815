/*
 * compiler.h - the one place that knows compilers (internal).
 */
#ifndef ASHLAR_COMPILER_H
#define ASHLAR_COMPILER_H

#if defined(__GNUC__)
#define ASHLAR_PRINTF(format_idx, args_idx) __attribute__((format(printf, format_idx, args_idx)))
#define ASHLAR_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ASHLAR_NOINLINE __attribute__((noinline))
#define ASHLAR_ALWAYS_INLINE inline __attribute__((always_inline))
/* Have memory brought to the nearest cache, or only to the second one. */
#define ASHLAR_PREFETCH(address) __builtin_prefetch(address)
#define ASHLAR_PREFETCH_FAR(address) __builtin_prefetch(address, 0, 2)
/* A thread-local that is read without a call. Its library must be loaded at start, or find room for
 * it in the few bytes that the C library keeps for later ones. The drop-in libraries do without,
 * since the program that loads one may have used these bytes up. */
#if defined(ASHLAR_DYNAMIC_TLS)
#define ASHLAR_INITIAL_EXEC
#else
#define ASHLAR_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
#endif
/* Where the function around this returns to; NULL: not known. */
#define ASHLAR_RETURN_ADDRESS() __builtin_return_address(0)
#else
#define ASHLAR_PRINTF(format_idx, args_idx)
#define ASHLAR_LIKELY(condition) (condition)
#define ASHLAR_NOINLINE
#define ASHLAR_ALWAYS_INLINE inline
#define ASHLAR_PREFETCH(address) ((void)(address))
#define ASHLAR_PREFETCH_FAR(address) ((void)(address))
#define ASHLAR_INITIAL_EXEC
#define ASHLAR_RETURN_ADDRESS() NULL
#endif

/* Before a loop of at most 32 turns, a number that the compiler knows. */
#if defined(__clang__)
#define ASHLAR_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define ASHLAR_UNROLL _Pragma("GCC unroll 32")
#else
#define ASHLAR_UNROLL
#endif

/* For each turn of a loop that waits for another thread. */
#if defined(__x86_64__) && defined(__GNUC__)
#define ASHLAR_PAUSE() __builtin_ia32_pause()
#else
#define ASHLAR_PAUSE() ((void)0)
#endif

/* A small function that CUDA C compiles for the device too. */
#if defined(__CUDACC__)
#define ASHLAR_SHARED_FN static inline __host__ __device__
#else
#define ASHLAR_SHARED_FN static inline
#endif

/*
 * Behind a table that an enum indexes: it has a row for each of the enum's constants. Declare the
 * table without a length, or a last row that is forgotten is zero and nothing says so.
 */
#define ASHLAR_TABLE_IS_FULL(table, count)                        \
    _Static_assert(sizeof(table) / sizeof((table)[0]) == (count), \
                   #table " has a row for each constant")

/* Data that different threads write lies this far apart, or each write takes the line away. */
#define ASHLAR_CACHE_LINE 64

#endif /* ASHLAR_COMPILER_H */
