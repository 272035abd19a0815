/*
 * host.h - host memory for the library itself, any request for which a test can make fail; and the
 * host's clock (internal).
 *
 * Threads: any.
 */
#ifndef ASHLAR_HOST_H
#define ASHLAR_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "allocator/base/error.h"

/* Zeroed memory for `count` > 0 items of `bytes` > 0 each. NULL: no memory, or count * bytes does
 * not fit in size_t. */
void *ashlar__host_calloc(size_t count, size_t bytes);

/* object = ashlar__host_calloc(count, sizeof *object); if there is no memory, return
 * ASHLAR_EHOSTMEM with this detail from the enclosing function, which must have nothing to undo. */
#define ASHLAR_HOST_NEW(object, count, ...)                        \
    do {                                                           \
        (object) = ashlar__host_calloc((count), sizeof *(object)); \
        if ((object) == NULL) {                                    \
            return ashlar__fail(ASHLAR_EHOSTMEM, __VA_ARGS__);     \
        }                                                          \
    } while (0)

/* Like realloc(), for `count` items of `bytes` each. On failure it returns NULL and leaves the old
 * block unchanged. */
void *ashlar__host_realloc(void *old, size_t count, size_t bytes);

/*
 * Make room for one more item in a growing array: if the array is full, double its capacity.
 *
 * items      the array, NULL at first
 * capacity   how many items there is room for, 0 at first
 * count      how many items the array has
 *
 * Returns false, and changes nothing, if there is no host memory.
 */
bool ashlar__host_grow(void **items, size_t *capacity, size_t count, size_t item_bytes);

/* ashlar__host_grow() for an array of any type; if there is no memory, return ASHLAR_EHOSTMEM with
 * this detail from the enclosing function. */
#define ASHLAR_HOST_GROW(array, capacity, count, ...)                            \
    do {                                                                         \
        void *grown_ = (array);                                                  \
        if (!ashlar__host_grow(&grown_, (capacity), (count), sizeof *(array))) { \
            return ashlar__fail(ASHLAR_EHOSTMEM, __VA_ARGS__);                   \
        }                                                                        \
        (array) = grown_;                                                        \
    } while (0)

void ashlar__host_free(void *ptr); /* NULL is allowed */

/* Bytes of memory in this machine. If the system does not say: 2^46, more than any machine has. */
size_t ashlar__host_memory_bytes(void);

/* For tests: make the n-th call of ashlar__host_calloc() or ashlar__host_realloc() from now on
 * fail; n counts from 1. 0: let all succeed. */
void ashlar__host_fail_at(unsigned long n);

/* ---- the monotonic clock: it never goes back, and its zero is arbitrary ---- */

static inline uint64_t ashlar__clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail on Linux */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline double ashlar__clock_s(void) {
    return 1e-9 * (double)ashlar__clock_ns();
}

enum { ASHLAR_PAUSE_NS_MIN = 1000, ASHLAR_PAUSE_NS_MAX = 200000 };

/* For a loop that polls: sleep for *ns, and double *ns for the next time, up to
 * ASHLAR_PAUSE_NS_MAX. The caller sets *ns to ASHLAR_PAUSE_NS_MIN before the loop. */
static inline void ashlar__clock_pause(long *ns) {
    (void)nanosleep(&(struct timespec){.tv_nsec = *ns}, NULL);
    *ns = *ns < ASHLAR_PAUSE_NS_MAX / 2 ? 2 * *ns : ASHLAR_PAUSE_NS_MAX;
}

#endif /* ASHLAR_HOST_H */
