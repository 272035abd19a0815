/*
 * clock.h - the host's monotonic clock: it never goes back, and its zero is arbitrary (internal).
 */
#ifndef ASHLAR_CLOCK_H
#define ASHLAR_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ashlar__clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail on Linux */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline double ashlar__clock_s(void) {
    return 1e-9 * (double)ashlar__clock_ns();
}

#endif /* ASHLAR_CLOCK_H */
