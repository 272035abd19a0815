/*
 * instruction_set.h - the sets of instructions that loops are compiled for (internal).
 *
 * meson.build defines ASHLAR_SET for each compilation of a loop's file, and ASHLAR_SETS(X), X(set)
 * for every set there is, the best one first, for the file that chooses between them.
 */
#ifndef ASHLAR_INSTRUCTION_SET_H
#define ASHLAR_INSTRUCTION_SET_H

#include <stdbool.h>

#include "arena/compute/element.h"

/* So that a file which chooses can be read and compiled alone. */
#ifndef ASHLAR_SETS
#define ASHLAR_SETS(X) X(baseline)
#endif

/* Whether this processor runs a set. */
#define ASHLAR_RUNS_baseline true
#define ASHLAR_RUNS_avx2 \
    (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)

/* Bytes of a register. */
#define ASHLAR_VECTOR_BYTES ASHLAR_JOIN(ASHLAR_VECTOR_BYTES_, ASHLAR_SET)
#define ASHLAR_VECTOR_BYTES_baseline 16
#define ASHLAR_VECTOR_BYTES_avx2 32

#endif /* ASHLAR_INSTRUCTION_SET_H */
