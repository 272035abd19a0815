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

/* The longest pause: short beside a wait that it prolongs. */
enum { ASHLAR_PAUSE_NS_MIN = 1000, ASHLAR_PAUSE_NS_MAX = 200000 };

/* Sleep between two rounds of questions about what cannot be waited for; each time about twice as
 * long. *ns: ASHLAR_PAUSE_NS_MIN at first. */
static inline void ashlar__clock_pause(long *ns) {
    (void)nanosleep(&(struct timespec){.tv_nsec = *ns}, NULL);
    *ns = *ns < ASHLAR_PAUSE_NS_MAX / 2 ? 2 * *ns : ASHLAR_PAUSE_NS_MAX;
}

#endif /* ASHLAR_CLOCK_H */
