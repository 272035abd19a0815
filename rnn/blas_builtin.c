/*
 * blas_builtin.c - a matrix product that needs no BLAS: small and correct, several times slower.
 */
#include "blas.h"

/* A block of doubles is 64 KiB: it fits a level-2 cache and a small thread's stack. */
enum { BLOCK_K = 64, BLOCK_N = 128 };

#define real float
#define REAL(name) name##_f32
#include "blas_builtin_template.h"
#undef real
#undef REAL

#define real double
#define REAL(name) name##_f64
#include "blas_builtin_template.h"
#undef real
#undef REAL

bool ashlar_gemm_fits(size_t m, size_t n, size_t k) {
    (void)m;
    (void)n;
    (void)k;
    return true;
}

const char *ashlar_blas_name(void) {
    return "built-in";
}

void ashlar_blas_set_threads(int n) {
    (void)n;
}

int ashlar_blas_threads(void) {
    return 1;
}
