/* instruction_set.h - the instruction sets that loops are compiled for (internal). A file of loops
 * is compiled once for each set; meson.build defines ASHLAR_SET, the set, each time. For the file
 * that chooses between them it defines ASHLAR_SETS(X): X(set) for every set of the build, the best
 * one first. */
#ifndef ASHLAR_INSTRUCTION_SET_H
#define ASHLAR_INSTRUCTION_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "arena/compute/element.h"

/* A default, so that tools can compile a file that uses ASHLAR_SETS by itself. */
#ifndef ASHLAR_SETS
#define ASHLAR_SETS(X) X(baseline)
#endif

/* Whether this processor can run a set. */
#define ASHLAR_RUNS_baseline true
#define ASHLAR_RUNS_avx2 (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)

/* The index in ASHLAR_SETS of the best set that this processor can run. It can always run the last
 * one, baseline. */
#define ASHLAR_RUNS_ROW(set) ASHLAR_RUNS_##set,
static inline size_t ashlar__best_set(void) {
    const bool runs[] = {ASHLAR_SETS(ASHLAR_RUNS_ROW)};
    size_t i = 0;
    while (!runs[i]) {
        i++;
    }
    return i;
}

/* Bytes of a vector register. */
#define ASHLAR_VECTOR_BYTES ASHLAR_JOIN(ASHLAR_VECTOR_BYTES_, ASHLAR_SET)
#define ASHLAR_VECTOR_BYTES_baseline 16
#define ASHLAR_VECTOR_BYTES_avx2 32

#endif /* ASHLAR_INSTRUCTION_SET_H */
