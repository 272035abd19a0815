/* compiler.h - everything that depends on the compiler (internal). */
#ifndef ASHLAR_COMPILER_H
#define ASHLAR_COMPILER_H

#define ASHLAR_PRINTF(format_idx, args_idx) __attribute__((format(printf, format_idx, args_idx)))
#define ASHLAR_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ASHLAR_NOINLINE __attribute__((noinline))
#define ASHLAR_ALWAYS_INLINE inline __attribute__((always_inline))
/* Fetch memory into the nearest cache level; _FAR: only into the second one; _ONCE: such that other
 * memory stays in the caches, for what is not read again soon. */
#define ASHLAR_PREFETCH(address) __builtin_prefetch(address)
#define ASHLAR_PREFETCH_FAR(address) __builtin_prefetch(address, 0, 2)
#define ASHLAR_PREFETCH_ONCE(address) __builtin_prefetch(address, 0, 0)
/* For a thread-local variable, to read it without a function call. The library that defines it must
 * be loaded at program start, or its variables must fit into the few bytes that the C library
 * reserves for libraries loaded later. The drop-in libraries do without it (ASHLAR_DYNAMIC_TLS),
 * since the program that loads them may have used up those bytes. */
#if defined(ASHLAR_DYNAMIC_TLS)
#define ASHLAR_INITIAL_EXEC
#else
#define ASHLAR_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
#endif
/* The address that the enclosing function returns to; NULL: not known. */
#define ASHLAR_RETURN_ADDRESS() __builtin_return_address(0)

/* Unroll the next loop: wholly (the compiler must know its number of turns, at most 32), or four
 * turns at a time. Not under AddressSanitizer, whose checks make such a loop take gcc 20 s. */
#if defined(__SANITIZE_ADDRESS__)
#define ASHLAR_UNROLL
#define ASHLAR_UNROLL_4
#elif defined(__clang__)
#define ASHLAR_UNROLL _Pragma("clang loop unroll(full)")
#define ASHLAR_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define ASHLAR_UNROLL _Pragma("GCC unroll 32")
#define ASHLAR_UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* Call this in each turn of a loop that waits for another thread. */
#if defined(__x86_64__)
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

/* Write this after a table that an enum indexes: it checks that each of the enum's `count`
 * constants has a row. Declare the table without a length; with one, a forgotten last row would
 * silently be zero. */
#define ASHLAR_TABLE_IS_FULL(table, count)                        \
    _Static_assert(sizeof(table) / sizeof((table)[0]) == (count), \
                   #table " has a row for each constant")

/* The structure at `given`; NULL stands for one that is all 0. */
#define ASHLAR_OR_ZERO(type, given) ((given) != NULL ? *(given) : (type){0})

/* In bytes. Data that different threads write lies at least this far apart; otherwise each write
 * would take the cache line away from the other threads. */
#define ASHLAR_CACHE_LINE 64

#endif /* ASHLAR_COMPILER_H */
