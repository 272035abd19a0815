/*
 * cpu_x86.h - whether this processor runs what was compiled for AVX2 and FMA (internal).
 */
#ifndef ASHLAR_CPU_X86_H
#define ASHLAR_CPU_X86_H

#include <stdbool.h>

static inline bool ashlar__cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

#endif /* ASHLAR_CPU_X86_H */
