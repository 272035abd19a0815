/*
 * fake_cublas.c - a cuBLAS for tests: products by plain loops, queued on the fake driver's streams.
 */
#pragma GCC visibility push(default) /* its functions are this library's interface */
#include <cublas_v2.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdlib.h>

#include "tests/cuda/fake_cublas.h"
#include "tests/cuda/fake_driver.h"
#include "arena/compute/convert.h"

struct cublasContext {
    cu_stream stream;
    void *workspace;
    size_t workspace_bytes;
};

enum { WORKSPACE_ALIGN = 256, WORKSPACE_STRIDE = 4096 };

fake_cublas_control fake_cublas;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of it */

static bool admit(void) {
    pthread_mutex_lock(&lock);
    fake_cublas.calls++;
    const bool is_good = fake_cublas.fail_at == 0 || --fake_cublas.fail_at != 0;
    pthread_mutex_unlock(&lock);
    return is_good;
}

#define ENTER()                                             \
    do {                                                    \
        if (!admit()) {                                     \
            return (cublasStatus_t)fake_cublas.fail_status; \
        }                                                   \
    } while (0)

const char *cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                    : "CUBLAS_STATUS_FAKE";
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    ENTER();
    if (!fake_has_context()) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = calloc(1, sizeof **handle);
    fake_cublas.live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    fake_cublas.live--;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    ENTER();
    *handle = (struct cublasContext){.stream = (cu_stream)stream}; /* it ends the workspace */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    ENTER();
    if ((uintptr_t)workspace % WORKSPACE_ALIGN != 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

typedef struct matrix {
    const void *data;
    int stride;
    bool is_transposed;
} matrix;

typedef struct job {
    int m, n, k, ldc;
    cudaDataType type;
    double alpha, beta;
    matrix a, b;
    void *c;
    char *workspace;
    size_t workspace_bytes;
} job;

static double get(cudaDataType type, const void *data, size_t i) {
    switch (type) {
    case CUDA_R_32F:
        return (double)((const float *)data)[i];
    case CUDA_R_64F:
        return ((const double *)data)[i];
    case CUDA_R_16F:
        return (double)ashlar__float_from_f16(((const uint16_t *)data)[i]);
    default:
        return (double)ashlar__float_from_bf16(((const uint16_t *)data)[i]);
    }
}

static void put(cudaDataType type, void *data, size_t i, double value) {
    switch (type) {
    case CUDA_R_32F:
        ((float *)data)[i] = (float)value;
        break;
    case CUDA_R_64F:
        ((double *)data)[i] = value;
        break;
    case CUDA_R_16F:
        ((uint16_t *)data)[i] = ashlar__f16_from_float((float)value);
        break;
    default:
        ((uint16_t *)data)[i] = ashlar__bf16_from_float((float)value);
        break;
    }
}

/* Element (i, j) of op(m), by columns. */
static double element(const job *o, const matrix *m, int i, int j) {
    const size_t row = (size_t)(m->is_transposed ? j : i), col = (size_t)(m->is_transposed ? i : j);
    return get(o->type, m->data, row + col * (size_t)m->stride);
}

/* With a beta of 0, c is not read. Whatever the workspace held is lost, from end to end. */
static void run(void *user_data) {
    const job *o = user_data;
    for (size_t i = 0; i < o->workspace_bytes; i += WORKSPACE_STRIDE) {
        o->workspace[i] = (char)~o->workspace[i];
    }
    if (o->workspace_bytes > 0) {
        o->workspace[o->workspace_bytes - 1] = -1;
    }
    for (int j = 0; j < o->n; j++) {
        for (int i = 0; i < o->m; i++) {
            const size_t at = (size_t)i + (size_t)j * (size_t)o->ldc;
            double sum = 0;
            for (int l = 0; l < o->k; l++) {
                sum += element(o, &o->a, i, l) * element(o, &o->b, l, j);
            }
            put(o->type, o->c, at,
                o->alpha * sum + (o->beta == 0 ? 0 : o->beta * get(o->type, o->c, at)));
        }
    }
}

static bool is_combination(cudaDataType type, cublasComputeType_t compute) {
    switch (type) {
    case CUDA_R_32F:
        return compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    case CUDA_R_64F:
        return compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
    default:
        return compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    }
}

static double scalar(cudaDataType type, const void *value) {
    return type == CUDA_R_64F ? *(const double *)value : (double)*(const float *)value;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType a_type, int lda, const void *b, cudaDataType b_type,
                            int ldb, const void *beta, void *c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    ENTER();
    const int a_rows = op_a == CUBLAS_OP_N ? m : k, b_rows = op_b == CUBLAS_OP_N ? k : n;
    if (!fake_has_context() || a_type != b_type || a_type != c_type ||
        !is_combination(a_type, compute) || algorithm != CUBLAS_GEMM_DEFAULT || lda < a_rows ||
        ldb < b_rows || ldc < m || m < 0 || n < 0 || k < 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    job *o = fake_keep(sizeof *o);
    *o = (job){.m = m, .n = n, .k = k, .ldc = ldc, .type = a_type, .c = c};
    o->alpha = scalar(a_type, alpha);
    o->beta = scalar(a_type, beta);
    o->a = (matrix){a, lda, op_a == CUBLAS_OP_T};
    o->b = (matrix){b, ldb, op_b == CUBLAS_OP_T};
    o->workspace = handle->workspace;
    o->workspace_bytes = handle->workspace_bytes;
    pthread_mutex_lock(&lock);
    fake_cublas.compute_type = (int)compute;
    fake_cublas.unaided += handle->workspace == NULL;
    fake_cublas.workspace = handle->workspace;
    fake_cublas.workspace_bytes = handle->workspace_bytes;
    pthread_mutex_unlock(&lock);
    return fake_launch(handle->stream, run, o) == CU_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                             : CUBLAS_STATUS_EXECUTION_FAILED;
}
