/*
 * gpu_fixture.h - a CUDA device, real or fake, with a stream and memory of its own, for tests.
 *
 * A program with this fixture exits with 77 where there is no device (gpu_begin()). Nothing here
 * looks into device memory from the host.
 */
#ifndef ASHLAR_GPU_FIXTURE_H
#define ASHLAR_GPU_FIXTURE_H

#include "tests/check.h"

#include <dlfcn.h>
#include <stdint.h>

#include <ashlar/device.h>

#include "allocator/device/device_impl.h"
#include "tests/cuda/fake_cublas.h"

enum { NO_GPU = 77, GPU_BLOCKS = 64, HOST_BLOCKS = 1024 };

static ashlar_device *gpu;
static ashlar_stream gpu_stream;
static void *gpu_blocks[GPU_BLOCKS]; /* of the case */
static size_t gpu_block_count;
static void *host_blocks[HOST_BLOCKS]; /* beside them */
static size_t host_block_count;

/* 0, or the status to exit with. */
static inline int gpu_begin(void) {
    const ashlar_status status = ashlar_device_open("cuda", &gpu);
    if (status == ASHLAR_ENODEVICE) {
        printf("1..0 # SKIP no GPU: %s\n", ashlar_error_detail());
        return NO_GPU;
    }
    if (status != ASHLAR_OK || ashlar_stream_create(gpu, &gpu_stream) != ASHLAR_OK) {
        printf("Bail out! %s\n", ashlar_error_detail());
        return 1;
    }
    return 0;
}

static inline void gpu_end(void) {
    ashlar_stream_destroy(gpu, gpu_stream);
    ashlar_device_close(gpu);
}

/* Whether the driver is the fake one. */
static inline bool gpu_is_fake(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != NULL && dlsym(library, "ashlar_fake_libcuda") != NULL;
}

/* What a test asks of a fake library, which an environment variable names; NULL: a real one. */
static inline void *gpu_fake(const char *variable, const char *symbol) {
    const char *path = getenv(variable);
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library == NULL ? NULL : dlsym(library, symbol);
}

/* Whether every product so far, of the fake cuBLAS, had all the memory that it can use given. */
static inline bool gpu_products_had_work(void) {
    const fake_cublas_control *blas = gpu_fake("ASHLAR_CUBLAS", "fake_cublas");
    return blas == NULL ? !gpu_is_fake()
                        : blas->calls > 0 && blas->unaided == 0 && blas->workspace_bytes >= 4 << 20;
}

static inline void gpu_wait(void) {
    CHECK(ashlar_stream_synchronize(gpu, gpu_stream) == ASHLAR_OK);
}

/* Device memory until gpu_give_all(), filled with 0xFF: no number in any type. */
static inline void *gpu_take(size_t bytes) {
    cu_ptr ptr = 0;
    CHECK(gpu_block_count < GPU_BLOCKS && ashlar__device_enter(gpu) == ASHLAR_OK);
    CHECK(gpu->driver->table.mem_alloc(&ptr, bytes > 0 ? bytes : 1) == CU_SUCCESS);
    ashlar__device_leave(gpu);
    CHECK(ashlar_fill(gpu, ashlar__ptr_out(ptr), 0xFF, bytes, gpu_stream) == ASHLAR_OK);
    gpu_blocks[gpu_block_count++] = ashlar__ptr_out(ptr);
    return ashlar__ptr_out(ptr);
}

/* Host memory until gpu_give_all(). */
static inline void *host_take(size_t bytes) {
    void *block = calloc(bytes > 0 ? bytes : 1, 1);
    CHECK(block != NULL && host_block_count < HOST_BLOCKS);
    host_blocks[host_block_count++] = block;
    return block;
}

static inline void gpu_give_all(void) {
    gpu_wait();
    while (host_block_count > 0) {
        free(host_blocks[--host_block_count]);
    }
    CHECK(ashlar__device_enter(gpu) == ASHLAR_OK);
    while (gpu_block_count > 0) {
        CHECK(gpu->driver->table.mem_free(ashlar__ptr_in(gpu_blocks[--gpu_block_count])) ==
              CU_SUCCESS);
    }
    ashlar__device_leave(gpu);
}

/* A copy of host memory on the device; NULL of NULL. */
static inline void *gpu_send(const void *from, size_t bytes) {
    if (from == NULL) {
        return NULL;
    }
    void *far = gpu_take(bytes);
    CHECK(ashlar_copy_to_device(gpu, far, from, bytes, gpu_stream) == ASHLAR_OK);
    gpu_wait();
    return far;
}

/* A copy of device memory on the host, until gpu_give_all(). */
static inline void *gpu_fetch(const void *far, size_t bytes) {
    void *near = host_take(bytes);
    CHECK(ashlar_copy_to_host(gpu, near, far, bytes, gpu_stream) == ASHLAR_OK);
    gpu_wait();
    return near;
}

/* For programs that are skipped where there is no GPU. */
#define RUN_CASES_ON_GPU()           \
    int main(void) {                 \
        const int why = gpu_begin(); \
        if (why != 0) {              \
            return why;              \
        }                            \
        check_run_cases();           \
        gpu_end();                   \
        return check_report();       \
    }

#endif /* ASHLAR_GPU_FIXTURE_H */
