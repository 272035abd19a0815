/* clock.c - the host's monotonic clock, in two units. */
#include "allocator/base/clock.h"

#include <time.h>

uint64_t ashlar__clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail on Linux */
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

double ashlar__clock_s(void) {
    return 1e-9 * (double)ashlar__clock_ns();
}
