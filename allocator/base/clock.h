/*
 * clock.h - a clock that only moves on, from no particular moment (internal).
 */
#ifndef ASHLAR_CLOCK_H
#define ASHLAR_CLOCK_H

#include <stdint.h>

uint64_t ashlar__clock_ns(void);
double ashlar__clock_s(void);

#endif /* ASHLAR_CLOCK_H */
