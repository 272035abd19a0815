/*
 * cudart.h - what the files of the small CUDA runtime share: the driver, found as NVIDIA's runtime
 * finds it, by dlopen() and cuGetProcAddress().
 *
 * The functions themselves are cuda_runtime_api.h's own, enough of them for host programs in C, for
 * CUB's allocator and for the tests of what stands between a program and the driver. There are no
 * kernels and no arrays.
 */
#ifndef ASHLAR_TESTS_CUDART_H
#define ASHLAR_TESTS_CUDART_H

#include <cuda_runtime_api.h>

#include "allocator/driver/driver.h"
#include "libcuda.h"

typedef cu_result (*cudart_get_proc)(const char *symbol, void **address, int version,
                                     unsigned long long flags, unsigned int *found);

typedef struct cudart_driver {
    cudart_get_proc get_proc;
    ashlar_driver_table table;
#define X(field, symbol, version, params) cu_result(*field) params;
    FAKE_MORE_MAP(X)
#undef X
} cudart_driver;

/*
 * The driver, initialised, with a context current to the calling thread: that of the device it has
 * chosen, unless the program has set one.
 */
cu_result ashlar_cudart_enter(const cudart_driver **driver);
/* The same without a context. */
cu_result ashlar_cudart_driver(const cudart_driver **driver);

/* A driver's result as the runtime's, remembered as the thread's last error if it is one. */
cudaError_t ashlar_cudart_done(cu_result result);

/* Memory that was taken, unless there is an error or no place for it. */
cudaError_t ashlar_cudart_give(cudaError_t error, const cu_ptr *taken, void **ptr);

/* The body of a function that makes one driver call. */
#define CUDART_CALL(field, args)                                                          \
    do {                                                                                  \
        const cudart_driver *driver_;                                                     \
        const cu_result result_ = ashlar_cudart_enter(&driver_);                          \
        return ashlar_cudart_done(result_ == CU_SUCCESS ? driver_->field args : result_); \
    } while (0)

#endif /* ASHLAR_TESTS_CUDART_H */
