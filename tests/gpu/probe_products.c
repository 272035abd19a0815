/*
 * probe_products.c - what a product in fp32 costs with CUBLAS_COMPUTE_32F_PEDANTIC, which the
 * library asks for, beside CUBLAS_COMPUTE_32F, which PyTorch does.
 *
 * The products are those of a linear layer's forward and backward passes, in the sizes of
 * torch_step.py. Rounds of both take turns; the figures are medians. Rows of the file: {"case",
 * "subject", "m", "n", "k", "ns", "flops_per_s"}, the subject "pedantic" or "plain".
 */
#include "tests/gpu/probe.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/base/shared_library.h"

enum { ROUNDS = 9, REPEATS = 20, SMOKE_ROUNDS = 1, SMOKE_REPEATS = 2, SIZES = 3, KINDS = 3 };
enum { SYMBOLS = 100, SMOKE_PART = 64 };

/* As CUDA's headers number them, which this program does without. */
enum { REAL_32F = 0, COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, DEFAULT_ALGORITHM = -1 };

typedef struct cublas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
} cublas;

typedef struct product {
    const char *pass, *size;
    int m, n, k; /* c [m, n] += a [m, k] b [k, n], each column by column */
} product;

typedef struct products {
    const probe *p;
    cublas blas;
    void *handle;
    cu_ptr parts[3]; /* a, b, c */
    size_t rounds, repeats, row_count;
    FILE *json;
} products;

static ashlar_status open_cublas(cublas *out) {
    static const char *const names[] = {"cublasCreate_v2", "cublasDestroy_v2", "cublasGemmEx"};
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY)};
    static const ashlar_shared_library library = {
        .what = "cuBLAS",
        .variable = "ASHLAR_CUBLAS",
        .names = {"libcublas.so.13", "libcublas.so.12"},
        .functions = names,
        .function_count = sizeof names / sizeof names[0],
    };
    return ashlar__shared_load(&once, &library, out);
}

static bool time_round(const products *t, const product *x, int compute, double *ns) {
    static const float one = 1;
    const void *a = (const void *)t->parts[0], *b = (const void *)t->parts[1];
    bool is_right = t->p->cuda->ctx_synchronize() == CU_SUCCESS;
    const uint64_t begin = ashlar__clock_ns();
    for (size_t i = 0; i < t->repeats; i++) {
        is_right = is_right && t->blas.gemm(t->handle, 0, 0, x->m, x->n, x->k, &one, a, REAL_32F,
                                            x->m, b, REAL_32F, x->k, &one, (void *)t->parts[2],
                                            REAL_32F, x->m, compute, DEFAULT_ALGORITHM) == 0;
    }
    is_right = is_right && t->p->cuda->ctx_synchronize() == CU_SUCCESS;
    *ns = (double)(ashlar__clock_ns() - begin) / (double)t->repeats;
    return is_right;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void write_row(products *t, const product *x, const char *subject, double ns) {
    const double flops = 2.0 * x->m * x->n * x->k;
    (void)printf("%-6s %-15s %-9s %12.0f ns %8.1f GFLOP/s\n", x->size, x->pass, subject, ns,
                 flops / ns);
    (void)fprintf(t->json,
                  "%s\n  {\"case\": \"%s %s\", \"subject\": \"%s\", \"m\": %d, \"n\": %d, "
                  "\"k\": %d, \"ns\": %.0f, \"flops_per_s\": %.4g}",
                  t->row_count++ > 0 ? "," : "", x->size, x->pass, subject, x->m, x->n, x->k, ns,
                  1e9 * flops / ns);
}

/* Behind one round that is not counted. */
static bool add_rows(products *t, const product *x) {
    double plain[ROUNDS + 1], pedantic[ROUNDS + 1];
    for (size_t i = 0; i <= t->rounds; i++) {
        if (!time_round(t, x, COMPUTE_32F_PEDANTIC, &pedantic[i]) ||
            !time_round(t, x, COMPUTE_32F, &plain[i])) {
            (void)printf("%s %s: a call failed\n", x->size, x->pass);
            return false;
        }
    }
    qsort(plain + 1, t->rounds, sizeof plain[0], compare);
    qsort(pedantic + 1, t->rounds, sizeof pedantic[0], compare);
    write_row(t, x, "pedantic", pedantic[1 + t->rounds / 2]);
    write_row(t, x, "plain", plain[1 + t->rounds / 2]);
    return true;
}

/* The passes of a layer of `inputs` by SYMBOLS over `rows`. */
static bool add_size(products *t, const char *size, int rows, int inputs) {
    const product all[KINDS] = {{"forward", size, SYMBOLS, rows, inputs},
                                {"data gradient", size, inputs, rows, SYMBOLS},
                                {"weight gradient", size, inputs, SYMBOLS, rows}};
    bool is_right = true;
    for (size_t i = 0; i < KINDS && is_right; i++) {
        is_right = add_rows(t, &all[i]);
    }
    return is_right;
}

/* A part of the largest product has at most so many numbers. */
static bool open_parts(products *t, size_t numbers) {
    bool is_right = true;
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = numbers * sizeof(float);
        is_right = is_right && t->p->cuda->mem_alloc(&t->parts[i], bytes) == CU_SUCCESS &&
                   t->p->cuda->memset_d8_async(t->parts[i], 1, bytes, NULL) == CU_SUCCESS;
    }
    return is_right && t->blas.create(&t->handle) == 0;
}

static bool run(products *t, bool is_smoke) {
    static const struct {
        const char *name;
        int rows, inputs;
    } sizes[SIZES] = {
        {"small", 64 * 32, 256}, {"medium", 128 * 64, 512}, {"large", 256 * 64, 1536}};
    const int part = is_smoke ? SMOKE_PART : 1;
    const int inputs = sizes[SIZES - 1].inputs / part; /* of the largest */
    const size_t width = (size_t)(inputs > SYMBOLS ? inputs : SYMBOLS);
    bool is_right = open_parts(t, (size_t)(sizes[SIZES - 1].rows / part) * width);
    for (size_t i = 0; i < SIZES && is_right; i++) {
        is_right = add_size(t, sizes[i].name, sizes[i].rows / part, sizes[i].inputs / part);
    }
    return is_right;
}

static void finish(products *t) {
    if (t->handle != NULL) {
        (void)t->blas.destroy(t->handle);
    }
    for (size_t i = 0; i < 3; i++) {
        (void)(t->parts[i] == 0 || t->p->cuda->mem_free(t->parts[i]) == CU_SUCCESS);
    }
}

int probe_products(const probe *p, bool is_smoke, const char *path) {
    products t = {.p = p,
                  .rounds = is_smoke ? SMOKE_ROUNDS : ROUNDS,
                  .repeats = is_smoke ? SMOKE_REPEATS : REPEATS};
    if (open_cublas(&t.blas) != ASHLAR_OK) {
        (void)printf("%s\n", ashlar_error_detail());
        return 77;
    }
    t.json = fopen(path != NULL ? path : "/dev/null", "we");
    if (t.json == NULL) {
        (void)printf("%s cannot be written\n", path);
        return 1;
    }
    (void)fprintf(t.json, "[");
    const bool is_right = run(&t, is_smoke);
    finish(&t);
    (void)fprintf(t.json, "\n]\n");
    (void)printf(is_right ? "%zu rows, two ways for each product\n" : "after %zu rows it failed\n",
                 t.row_count);
    return fclose(t.json) == 0 && is_right ? 0 : 1;
}
