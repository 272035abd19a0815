/* cudart.c - the functions of CUDA's runtime that CUB's allocator calls, for any ashlar_device. So
 * the benchmark can measure CUB on the software device, as the other allocators. They are linked
 * into the benchmark and never installed; cuda_runtime_api.h declares them. */
#include "bench/peers/peer.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "allocator/device/device_impl.h"
#include "allocator/base/host.h"

/* An event recorded before any work was queued on the device is complete at once, without a call of
 * the driver. CUB therefore pays less for events here than with CUDA's own runtime, which favours
 * it in the comparison. */
struct CUevent_st {
    unsigned int flags;
    cu_event recorded; /* the driver's event, created at the first record that follows work */
    /* The last record used `recorded`, so a query must ask the driver. Atomic: CUB may query while
     * another thread records. */
    _Atomic bool is_pending;
};

static ashlar_device *device_in_use;
static int work_fns[ASHLAR_DRIVER_FN_COUNT]; /* [work_fn_count], the functions that queue work */
static size_t work_fn_count;
static _Thread_local cudaError_t last_error;

void ashlar__cudart_use(ashlar_device *device) {
    device_in_use = device;
    work_fn_count = 0;
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        if (ashlar__driver_fn_kind((ashlar_driver_fn)fn) == ASHLAR_DRIVER_WORK) {
            work_fns[work_fn_count++] = fn;
        }
    }
}

static cudaError_t done(cu_result result) {
    /* CUDA's driver and runtime give the same errors different names but equal numbers. */
    const cudaError_t error = (cudaError_t)result;
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        last_error = error;
    }
    return error;
}

/* Make each call between push() and pop(), so that the calling thread keeps its own context. */
static cu_result push(void) {
    return ASHLAR_DRIVER_CALL(device_in_use->driver, ctx_push_current, (device_in_use->context));
}

static void pop(void) {
    ashlar__device_leave(device_in_use);
}

#define IN_CONTEXT(field, args)                                               \
    do {                                                                      \
        cu_result result_ = push();                                           \
        if (result_ == CU_SUCCESS) {                                          \
            result_ = ASHLAR_DRIVER_CALL(device_in_use->driver, field, args); \
            pop();                                                            \
        }                                                                     \
        return done(result_);                                                 \
    } while (0)

cudaError_t cudaGetDevice(int *device) {
    *device = device_in_use->info.ordinal;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return done(device == device_in_use->info.ordinal ? CU_SUCCESS : CU_INVALID_DEVICE);
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

static cudaError_t malloc_in_context(cu_ptr *ptr, size_t bytes) {
    IN_CONTEXT(mem_alloc, (ptr, bytes));
}

cudaError_t cudaMalloc(void **ptr, size_t bytes) {
    cu_ptr taken = 0;
    const cudaError_t error = malloc_in_context(&taken, bytes);
    if (error == cudaSuccess) {
        *ptr = ashlar__ptr_out(taken);
    }
    return error;
}

cudaError_t cudaFree(void *ptr) {
    if (ptr == NULL) {
        return cudaSuccess;
    }
    IN_CONTEXT(mem_free, (ashlar__ptr_in(ptr)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    struct CUevent_st *created = ashlar__host_calloc(1, sizeof *created);
    if (created == NULL) {
        return done(CU_OUT_OF_MEMORY);
    }
    created->flags = flags;
    *event = created;
    return cudaSuccess;
}

static cudaError_t destroy_recorded(cu_event event) {
    IN_CONTEXT(event_destroy, (event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const cudaError_t error =
        event->recorded != NULL ? destroy_recorded(event->recorded) : cudaSuccess;
    ashlar__host_free(event);
    return error;
}

static bool has_worked(void) {
    uint64_t calls = 0;
    for (size_t i = 0; i < work_fn_count; i++) {
        calls += atomic_load(&device_in_use->driver->calls[work_fns[i]]);
    }
    return calls != 0;
}

static cu_result record(struct CUevent_st *event, cudaStream_t stream) {
    ashlar_driver *driver = device_in_use->driver;
    cu_result result = CU_SUCCESS;
    if (event->recorded == NULL) {
        result = ASHLAR_DRIVER_CALL(driver, event_create, (&event->recorded, event->flags));
    }
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, event_record, (event->recorded, stream));
    }
    return result;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!has_worked()) {
        atomic_store_explicit(&event->is_pending, false, memory_order_release);
        return cudaSuccess;
    }
    cu_result result = push();
    if (result == CU_SUCCESS) {
        result = record(event, stream);
        pop();
    }
    if (result == CU_SUCCESS) {
        atomic_store_explicit(&event->is_pending, true, memory_order_release);
    }
    return done(result);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!atomic_load_explicit(&event->is_pending, memory_order_acquire)) {
        return cudaSuccess;
    }
    IN_CONTEXT(event_query, (event->recorded));
}
