/*
 * test_blas.c - the matrix product against three plain loops, for every set of instructions.
 */
#include "arena/product/blas.h"


#include <ashlar/device.h>
#include <ashlar/model.h>

#include "tests/allocator/trace/numbers_fixture.h"
#include "tests/arena/product/set_fixture.h"
#include "arena/compute/workers.h"

enum { ROOM = 101 * 1024 };

static const double GUARD = 12345; /* between the rows of c, where nothing may be written */

typedef struct product {
    bool trans_a, trans_b;
    size_t m, n, k, lda, ldb, ldc;
    bool adds;
} product;

static double a64[ROOM], b64[ROOM], c64[ROOM], before[ROOM];
static float a32[ROOM], b32[ROOM], c32[ROOM];

/* NaN in c where it is not added to: it must not be read. */
static void fill(const product *p) {
    draw(a32, a64, ROOM);
    draw(b32, b64, ROOM);
    for (size_t i = 0; i < ROOM; i++) {
        c32[i] = (float)GUARD;
    }
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            c32[i * p->ldc + j] = p->adds ? (float)random_real() : NAN;
        }
    }
    widen(c32, c64, ROOM);
    widen(c32, before, ROOM);
}

static double reference(const product *p, size_t i, size_t j) {
    double sum = 0;
    for (size_t q = 0; q < p->k; q++) {
        sum += a64[p->trans_a ? q * p->lda + i : i * p->lda + q] *
               b64[p->trans_b ? j * p->ldb + q : q * p->ldb + j];
    }
    return sum + (p->adds ? before[i * p->ldc + j] : 0);
}

static void check_product(const product *p) {
    fill(p);
    ashlar__gemm_f64(p->trans_a, p->trans_b, p->m, p->n, p->k, a64, p->lda, b64, p->ldb, p->adds,
                     c64, p->ldc);
    ashlar__gemm_f32(p->trans_a, p->trans_b, p->m, p->n, p->k, a32, p->lda, b32, p->ldb, p->adds,
                     c32, p->ldc);
    int bad = 0, trampled = 0;
    for (size_t at = 0; at < ROOM; at++) {
        const size_t i = p->ldc == 0 ? 0 : at / p->ldc;
        const size_t j = p->ldc == 0 ? at : at % p->ldc;
        if (p->ldc == 0 || i >= p->m || j >= p->n) {
            trampled += c64[at] != GUARD || c32[at] != (float)GUARD;
            continue;
        }
        const double want = reference(p, i, j);
        bad += !(fabs(c64[at] - want) <= 1e-12 * (double)(p->k + 1));
        bad += !(fabs((double)c32[at] - want) <= 1e-6 * (double)(p->k + 1));
    }
    CHECK(bad == 0);
    CHECK(trampled == 0);
    if (bad != 0 || trampled != 0) {
        printf("# trans %d %d m %zu n %zu k %zu adds %d\n", p->trans_a, p->trans_b, p->m, p->n,
               p->k, p->adds);
    }
}

static product make_product(int trans, size_t m, size_t n, size_t k, size_t extra) {
    const bool trans_a = (trans & 1) != 0, trans_b = (trans & 2) != 0;
    return (product){
        .trans_a = trans_a,
        .trans_b = trans_b,
        .m = m,
        .n = n,
        .k = k,
        .lda = (trans_a ? m : k) + extra,
        .ldb = (trans_b ? k : n) + extra,
        .ldc = n + extra,
    };
}

CASE(products_match_plain_loops_for_all_transposes) {
    static const size_t sizes[][3] = {{1, 1, 1},
                                      {1, 7, 5},
                                      {7, 1, 5},
                                      {5, 7, 1},
                                      {2, 3, 4},
                                      {17, 9, 33},
                                      {64, 128, 64},
                                      {65, 129, 66},
                                      {3, 130, 140},
                                      {130, 5, 131},
                                      {1, 140, 130},
                                      /* more rows, columns and depth than are packed at once */
                                      {193, 21, 260},
                                      {9, 270, 33},
                                      {4, 17, 530},
                                      {2, 40, 300}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int trans = 0; trans < 4; trans++) {
            product p = make_product(trans, sizes[s][0], sizes[s][1], sizes[s][2], s % 3);
            check_product(&p);
            p.adds = true;
            check_product(&p);
        }
    }
}

/* A left factor stored transposed with its rows a multiple of 4 KiB apart is packed. */
CASE(rows_pages_apart_match_too) {
    for (int trans = 0; trans < 4; trans++) {
        product p = make_product(trans, 101, 37, 70, 0);
        p.lda = 1024;
        check_product(&p);
        p.m = 24;
        p.adds = true;
        check_product(&p);
    }
}

CASE(an_empty_dimension_is_legal) {
    for (int trans = 0; trans < 4; trans++) {
        for (int empty = 1; empty < 8; empty++) {
            product p = make_product(trans, (empty & 1) != 0 ? 0 : 6, (empty & 2) != 0 ? 0 : 7,
                                     (empty & 4) != 0 ? 0 : 5, 0);
            check_product(&p);
            p.adds = true;
            check_product(&p);
        }
    }
}

CASE(nan_in_one_row_stays_in_that_row) {
    enum { M = 9, N = 33, K = 20 };
    const product p = make_product(2, M, N, K, 0);
    fill(&p);
    a32[4 * K + 3] = NAN;
    ashlar__gemm_f32(false, true, M, N, K, a32, K, b32, K, false, c32, N);
    int wrong = 0;
    for (size_t i = 0; i < M; i++) {
        for (size_t j = 0; j < N; j++) {
            wrong += isnan(c32[i * N + j]) != (i == 4);
        }
    }
    CHECK(wrong == 0);
}

CASE(the_implementation_has_a_name_and_counts_its_threads) {
    CHECK(strlen(ashlar_cpu_get_info().products) > 0);
    CHECK(ashlar_set_threads(1, NULL) == ASHLAR_OK);
    CHECK(ashlar_cpu_get_info().threads == 1);
    printf("# %s\n", ashlar_cpu_get_info().products);
}

RUN_CASES_OF_SET()
