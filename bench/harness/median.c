/* median.c - the middle of the rounds. */
#include "bench/harness/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ashlar__median(double *numbers, size_t count) {
    qsort(numbers, count, sizeof numbers[0], by_value);
    return count % 2 == 1 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}
