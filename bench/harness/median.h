/*
 * median.h - the middle of the rounds, which is what every benchmark reports (internal).
 */
#ifndef ASHLAR_MEDIAN_H
#define ASHLAR_MEDIAN_H

#include <stddef.h>

/* The middle one of `count` > 0 numbers, the mean of the two in the middle; sorts them. */
double ashlar__median(double *numbers, size_t count);

#endif /* ASHLAR_MEDIAN_H */
