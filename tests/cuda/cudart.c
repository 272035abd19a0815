/* cudart.c - the small CUDA runtime: driver, devices, errors. */
#include "cudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { DEVICES_MAX = 16 };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_started;
static cudart_driver started;
static int device_count;
static cu_context contexts[DEVICES_MAX]; /* primary ones, retained when first wanted */
static _Thread_local int chosen_device;
static _Thread_local cudaError_t last_error;

/* ---- the driver ---- */

/* By the version of the signature: a newer one may have other parameters. */
static cu_result find(cudart_get_proc get_proc, const char *symbol, int version, void *function) {
    void *address = NULL;
    unsigned int found;
    const cu_result result = get_proc(symbol, &address, version, 0, &found);
    if (result == CU_SUCCESS) {
        memcpy(function, &address, sizeof address);
    }
    return result;
}

static cu_result fill(cudart_driver *driver) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *address = library == NULL ? NULL : dlsym(library, "cuGetProcAddress_v2");
    if (address == NULL) {
        return CU_NO_DEVICE;
    }
    memcpy(&driver->get_proc, &address, sizeof address);
    cu_result result = CU_SUCCESS;
#define X(field, symbol, version, kind, safety, params)                                  \
    if (result == CU_SUCCESS) {                                                  \
        result = find(driver->get_proc, #symbol, version, &driver->table.field); \
    }
    ASHLAR_DRIVER_MAP(X)
#undef X
#define X(field, symbol, version, params)                                  \
    if (result == CU_SUCCESS) {                                            \
        result = find(driver->get_proc, #symbol, version, &driver->field); \
    }
    FAKE_MORE_MAP(X)
#undef X
    return result;
}

static cu_result start_locked(void) {
    cu_result result = is_started ? CU_SUCCESS : fill(&started);
    if (!is_started && result == CU_SUCCESS) {
        result = started.table.init(0);
    }
    if (!is_started && result == CU_SUCCESS) {
        result = started.table.device_get_count(&device_count);
        is_started = result == CU_SUCCESS;
    }
    return result;
}

cu_result ashlar_cudart_driver(const cudart_driver **driver) {
    pthread_mutex_lock(&start_lock);
    const cu_result result = start_locked();
    pthread_mutex_unlock(&start_lock);
    *driver = &started;
    return result;
}

static cu_result context_of(int device, cu_context *context) {
    cu_result result = device < 0 || device >= device_count ? CU_INVALID_DEVICE : CU_SUCCESS;
    pthread_mutex_lock(&start_lock);
    if (result == CU_SUCCESS && contexts[device] == NULL) {
        result = started.table.primary_ctx_retain(&contexts[device], device);
    }
    if (result == CU_SUCCESS) {
        *context = contexts[device];
    }
    pthread_mutex_unlock(&start_lock);
    return result;
}

static cu_result make_current(int device) {
    cu_context context = NULL;
    const cu_result result = context_of(device, &context);
    return result == CU_SUCCESS ? started.ctx_set_current(context) : result;
}

cu_result ashlar_cudart_enter(const cudart_driver **driver) {
    cu_context current = NULL;
    cu_result result = ashlar_cudart_driver(driver);
    if (result == CU_SUCCESS) {
        result = started.ctx_get_current(&current);
    }
    return result == CU_SUCCESS && current == NULL ? make_current(chosen_device) : result;
}

/* cudaGetDriverEntryPoint...: for programs that want the driver's functions of the runtime. */
static cudaError_t find_for_program(const char *symbol, void **function, int version,
                                    unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    const cudart_driver *driver;
    unsigned int found = 1;
    cu_result result = ashlar_cudart_driver(&driver);
    *function = NULL;
    if (result == CU_SUCCESS) {
        result = driver->get_proc(symbol, function, version, flags, &found);
    }
    if (status != NULL) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
    }
    return result == CU_NOT_FOUND && status != NULL ? cudaSuccess : ashlar_cudart_done(result);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    return find_for_program(symbol, function, (int)version, flags, status);
}

/* ---- errors ---- */

cudaError_t ashlar_cudart_done(cu_result result) {
    /* Where the two differ in name they are equal in number. */
    const cudaError_t error = (cudaError_t)result;
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        last_error = error;
    }
    return error;
}

/* What a context does not recover from. */
static bool is_sticky(cudaError_t error) {
    return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = is_sticky(error) ? error : cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error) {
    const cudart_driver *driver;
    const char *name = NULL;
    if (ashlar_cudart_driver(&driver) == CU_SUCCESS) {
        (void)driver->table.get_error_name((cu_result)error, &name);
    }
    return name == NULL ? "unrecognized error code" : name;
}

const char *cudaGetErrorString(cudaError_t error) {
    const cudart_driver *driver;
    const char *text = NULL;
    if (ashlar_cudart_driver(&driver) == CU_SUCCESS) {
        (void)driver->table.get_error_string((cu_result)error, &text);
    }
    return text == NULL ? "unrecognized error code" : text;
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    const cudart_driver *driver;
    const cu_result result = ashlar_cudart_driver(&driver);
    *count = result == CU_SUCCESS ? device_count : 0;
    return ashlar_cudart_done(result);
}

cudaError_t cudaSetDevice(int device) {
    const cudart_driver *driver;
    cu_result result = ashlar_cudart_driver(&driver);
    if (result == CU_SUCCESS) {
        result = make_current(device);
    }
    if (result == CU_SUCCESS) {
        chosen_device = device;
    }
    return ashlar_cudart_done(result);
}

cudaError_t cudaGetDevice(int *device) {
    *device = chosen_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    CUDART_CALL(table.ctx_synchronize, ());
}

cudaError_t cudaDeviceReset(void) {
    const cudart_driver *driver;
    cu_result result = ashlar_cudart_driver(&driver);
    if (result == CU_SUCCESS) {
        pthread_mutex_lock(&start_lock);
        contexts[chosen_device] = NULL;
        pthread_mutex_unlock(&start_lock);
        result = driver->primary_ctx_reset(chosen_device);
    }
    return ashlar_cudart_done(result);
}

cudaError_t cudaDriverGetVersion(int *version) {
    const cudart_driver *driver;
    const cu_result result = ashlar_cudart_driver(&driver);
    return ashlar_cudart_done(result == CU_SUCCESS ? driver->table.driver_get_version(version)
                                                   : result);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* What a software device can say of itself; the rest is zero. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    const cudart_driver *driver;
    memset(prop, 0, sizeof *prop);
    cu_result result = ashlar_cudart_driver(&driver);
    if (result == CU_SUCCESS) {
        result = driver->table.device_get_name(prop->name, sizeof prop->name, device);
    }
    if (result == CU_SUCCESS) {
        result = driver->table.device_total_mem(&prop->totalGlobalMem, device);
    }
    if (result == CU_SUCCESS) {
        prop->warpSize = 32;
        prop->multiProcessorCount = 1;
        prop->memoryPoolsSupported = 1;
    }
    return ashlar_cudart_done(result);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    CUDART_CALL(table.device_get_attribute, (value, (unsigned int)attribute, device));
}

/* How the host waits is the same for all of them. */
cudaError_t cudaSetDeviceFlags(unsigned int flags) {
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can_access, int device, int peer) {
    CUDART_CALL(table.device_can_access_peer, (can_access, device, peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    const cudart_driver *driver;
    cu_context context = NULL;
    cu_result result = ashlar_cudart_enter(&driver);
    result = result == CU_SUCCESS ? context_of(peer, &context) : result;
    return ashlar_cudart_done(
        result == CU_SUCCESS ? driver->table.ctx_enable_peer_access(context, flags) : result);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t stream) {
    const cudart_driver *driver;
    cu_context to = NULL, from = NULL;
    cu_result result = ashlar_cudart_enter(&driver);
    result = result == CU_SUCCESS ? context_of(dst_device, &to) : result;
    result = result == CU_SUCCESS ? context_of(src_device, &from) : result;
    return ashlar_cudart_done(result == CU_SUCCESS
                                  ? driver->table.memcpy_peer_async((cu_ptr)(uintptr_t)dst, to,
                                                                    (cu_ptr)(uintptr_t)src, from,
                                                                    bytes, stream)
                                  : result);
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device,
                           size_t bytes) {
    const cudaError_t error = cudaMemcpyPeerAsync(dst, dst_device, src, src_device, bytes, NULL);
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}
