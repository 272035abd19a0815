/* instruction_set.h - the instruction sets that loops are compiled for (internal). A file of loops
 * is compiled once for each set; meson.build defines ASHLAR_SET, the set, each time. For the file
 * that chooses between them it defines ASHLAR_SETS(X): X(set) for every set of the build,
 * baseline among them. */
#ifndef ASHLAR_INSTRUCTION_SET_H
#define ASHLAR_INSTRUCTION_SET_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/base.h>

#include "arena/compute/element.h"

/* A default, so that tools can compile a file that uses ASHLAR_SETS by itself. */
#ifndef ASHLAR_SETS
#define ASHLAR_SETS(X) X(baseline)
#endif

/* The sets that there are; a processor's each contain those of it that come before. X(set, bytes of
 * a vector register, vector registers) */
#define ASHLAR_SET_MAP(X) \
    X(baseline, 16, 16)   \
    X(avx2, 32, 16)       \
    X(avx512, 64, 32)     \
    X(neon, 16, 32)

typedef enum ashlar_instruction_set {
#define ASHLAR_SET_NAME(set, bytes, registers) ASHLAR_SET_##set,
    ASHLAR_SET_MAP(ASHLAR_SET_NAME)
#undef ASHLAR_SET_NAME
        ASHLAR_SET_COUNT
} ashlar_instruction_set;

/* The largest set that this processor can run and ASHLAR_ISA=SET in the environment allows. The
 * variable is read once, and ignored if it names no set. Threads: any. */
ashlar_instruction_set ashlar__instruction_set(void);

/* Errors: ASHLAR_EINVAL: ASHLAR_ISA names no set, or one that this processor cannot run. */
ASHLAR_MUST_CHECK ashlar_status ashlar__instruction_set_check(void);

/* The index in ASHLAR_SETS of the best set that is at most ashlar__instruction_set(). */
#define ASHLAR_SET_ROW(set) ASHLAR_SET_##set,
static inline size_t ashlar__best_set(void) {
    static const ashlar_instruction_set sets[] = {ASHLAR_SETS(ASHLAR_SET_ROW)};
    const ashlar_instruction_set most = ashlar__instruction_set();
    size_t best = 0;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        best = sets[i] <= most && (sets[best] > most || sets[i] > sets[best]) ? i : best;
    }
    return best;
}

/* NAME_SET of the set whose loops serve double precision. That is for proving gradients, so AVX2's
 * serve AVX-512, too (a tenth of the library otherwise). */
#define ASHLAR_F64_SET_baseline baseline
#define ASHLAR_F64_SET_avx2 avx2
#define ASHLAR_F64_SET_avx512 avx2
#define ASHLAR_F64_SET_neon neon
#define ASHLAR_F64_NAME(name, set) ASHLAR_JOIN(name, ASHLAR_F64_SET_##set)

/* Bytes of a vector register of the set that a file is compiled for, and how many there are. */
#define ASHLAR_VECTOR_BYTES ASHLAR_JOIN(ASHLAR_VECTOR_BYTES_, ASHLAR_SET)
#define ASHLAR_VECTOR_COUNT ASHLAR_JOIN(ASHLAR_VECTOR_COUNT_, ASHLAR_SET)
enum {
#define ASHLAR_SET_SIZES(set, bytes, registers) \
    ASHLAR_VECTOR_BYTES_##set = (bytes), ASHLAR_VECTOR_COUNT_##set = (registers),
    ASHLAR_SET_MAP(ASHLAR_SET_SIZES)
#undef ASHLAR_SET_SIZES
        ASHLAR_VECTOR_BYTES_MAX = 64
};

#endif /* ASHLAR_INSTRUCTION_SET_H */
