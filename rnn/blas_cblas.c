/*
 * blas_cblas.c - the matrix product by OpenBLAS.
 */
#include "blas.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "check_level.h"

/* OpenBLAS may be built with 64-bit integers; we ask of it no more than 32. */
static const size_t DIMENSION_MAX = INT_MAX;

bool ashlar_gemm_fits(size_t m, size_t n, size_t k) {
    return m <= DIMENSION_MAX && n <= DIMENSION_MAX && k <= DIMENSION_MAX;
}

/* cblas refuses a leading dimension of 0, which an empty matrix has. */
static blasint leading(size_t ld) {
    ASHLAR_ASSERT(ld <= DIMENSION_MAX);
    return ld == 0 ? 1 : (blasint)ld;
}

static CBLAS_TRANSPOSE transposed(bool trans) {
    return trans ? CblasTrans : CblasNoTrans;
}

#define real float
#define REAL(name) name##_f32
#define CBLAS(name) cblas_s##name
#include "blas_cblas_template.h"
#undef real
#undef REAL
#undef CBLAS

#define real double
#define REAL(name) name##_f64
#define CBLAS(name) cblas_d##name
#include "blas_cblas_template.h"
#undef real
#undef REAL
#undef CBLAS

const char *ashlar_blas_name(void) {
    return openblas_get_config();
}

void ashlar_blas_set_threads(int n) {
    ASHLAR_ASSERT(n >= 1);
    openblas_set_num_threads(n);
}

int ashlar_blas_threads(void) {
    return openblas_get_num_threads();
}
