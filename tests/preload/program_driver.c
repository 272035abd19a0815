/*
 * program_driver.c - a program that calls the driver: found by dlopen() and, as the first word on
 * its command line says, by dlsym() ("names") or cuGetProcAddress() ("procs"; "per-thread", for
 * which stream NULL is the calling thread's; "contexts", in contexts that it makes).
 */
#include "program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/driver/cuda_abi.h"

enum {
    VERSION = 12000,
    CONTEXTS_VERSION = 3020,
    DEVICES = 2,
    PER_THREAD_STREAM = 2,
    POINTER_MEMORY_TYPE = 2,
    POINTER_ORDINAL = 9,
    POINTER_IS_IPC_CAPABLE = 10,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12,
    POINTER_HANDLE_TYPES = 14,
    MEMORY_DEVICE = 2,
    POOL_THRESHOLD = 4,
    POOL_RESERVED = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED = 7,
    POOL_USED_HIGH = 8
};

/* What is called: field, cuGetProcAddress's name, the exported name, parameters. */
#define CALLS(X)                                                                                 \
    X(init, cuInit, cuInit, (unsigned int flags))                                                \
    X(retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain,                                \
      (cu_context * context, cu_device device))                                                  \
    X(reset, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (cu_device device))            \
    X(set_current, cuCtxSetCurrent, cuCtxSetCurrent, (cu_context context))                       \
    X(mem_alloc, cuMemAlloc, cuMemAlloc_v2, (cu_ptr * ptr, size_t bytes))                        \
    X(mem_free, cuMemFree, cuMemFree_v2, (cu_ptr ptr))                                           \
    X(mem_alloc_pitch, cuMemAllocPitch, cuMemAllocPitch_v2,                                      \
      (cu_ptr * ptr, size_t * pitch, size_t width, size_t height, unsigned int element))         \
    X(mem_alloc_async, cuMemAllocAsync, cuMemAllocAsync,                                         \
      (cu_ptr * ptr, size_t bytes, cu_stream stream))                                            \
    X(mem_free_async, cuMemFreeAsync, cuMemFreeAsync, (cu_ptr ptr, cu_stream stream))            \
    X(mem_get_info, cuMemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))  \
    X(address_range, cuMemGetAddressRange, cuMemGetAddressRange_v2,                              \
      (cu_ptr * base, size_t * bytes, cu_ptr ptr))                                               \
    X(ipc_get, cuIpcGetMemHandle, cuIpcGetMemHandle, (void *handle, cu_ptr ptr))                 \
    X(pointer_attributes, cuPointerGetAttributes, cuPointerGetAttributes,                        \
      (unsigned int count, unsigned int *attributes, void **values, cu_ptr ptr))                 \
    X(retain_handle, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle,                   \
      (cu_mem_handle * handle, void *ptr))                                                       \
    X(mem_create, cuMemCreate, cuMemCreate,                                                      \
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags)) \
    X(pool_create, cuMemPoolCreate, cuMemPoolCreate, (void **pool, const void *props))           \
    X(pool_default, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool,                        \
      (void **pool, cu_device device))                                                           \
    X(pool_trim, cuMemPoolTrimTo, cuMemPoolTrimTo, (void *pool, size_t kept_bytes))              \
    X(pool_set_attribute, cuMemPoolSetAttribute, cuMemPoolSetAttribute,                          \
      (void *pool, unsigned int attribute, void *value))                                         \
    X(mem_alloc_from_pool, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync,                     \
      (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream))                                \
    X(pool_set, cuDeviceSetMemPool, cuDeviceSetMemPool, (cu_device device, void *pool))          \
    X(pool_get_attribute, cuMemPoolGetAttribute, cuMemPoolGetAttribute,                          \
      (void *pool, unsigned int attribute, void *value))                                         \
    X(pointer_attribute, cuPointerGetAttribute, cuPointerGetAttribute,                           \
      (void *value, unsigned int attribute, cu_ptr ptr))                                         \
    X(fill, cuMemsetD8Async, cuMemsetD8Async,                                                    \
      (cu_ptr ptr, unsigned char value, size_t bytes, cu_stream stream))                         \
    X(copy, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                             \
      (void *dst, cu_ptr src, size_t bytes, cu_stream stream))                                   \
    X(stream_create, cuStreamCreate, cuStreamCreate, (cu_stream * stream, unsigned int flags))   \
    X(stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, (cu_stream stream))                   \
    X(stream_synchronize, cuStreamSynchronize, cuStreamSynchronize, (cu_stream stream))          \
    X(synchronize, cuCtxSynchronize, cuCtxSynchronize, (void))                                   \
    X(begin_capture, cuStreamBeginCapture, cuStreamBeginCapture_v2,                              \
      (cu_stream stream, unsigned int mode))                                                     \
    X(end_capture, cuStreamEndCapture, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))

static struct {
#define X(field, symbol, name, params) cu_result(*field) params;
    CALLS(X)
#undef X
    cu_result (*ctx_create)(cu_context *context, unsigned int flags, cu_device device);
    cu_result (*ctx_destroy)(cu_context context);
} cu;

static bool has_own_contexts;
static cu_context own_contexts[DEVICES];
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;

typedef cu_result (*get_proc_fn)(const char *symbol, void **address, int version,
                                 unsigned long long flags, unsigned int *found);

/*
 * As they were before CUDA 11.4, which has other parameters for the first: a driver that lacks that
 * one answers with the old one.
 */
static bool find_contexts(void *library, get_proc_fn get_proc) {
    void *create = NULL, *newer = NULL, *destroy = NULL;
    unsigned int found;
    if (get_proc("cuCtxCreate", &create, CONTEXTS_VERSION, 0, &found) != CU_SUCCESS ||
        get_proc("cuCtxCreate", &newer, VERSION, 0, &found) != CU_SUCCESS ||
        get_proc("cuCtxDestroy", &destroy, VERSION, 0, &found) != CU_SUCCESS ||
        (create == newer) != (dlsym(library, "cuCtxCreate_v3") == NULL)) {
        return false;
    }
    memcpy(&cu.ctx_create, &create, sizeof create);
    memcpy(&cu.ctx_destroy, &destroy, sizeof destroy);
    return true;
}

static bool find_all(const char *way) {
    const bool by_name = strcmp(way, "names") == 0;
    const unsigned long long flags = strcmp(way, "per-thread") == 0 ? PER_THREAD_STREAM : 0;
    get_proc_fn get_proc = NULL;
    unsigned int found;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *address = library == NULL ? NULL : dlsym(library, "cuGetProcAddress_v2");
    if (address == NULL) {
        return false;
    }
    memcpy(&get_proc, &address, sizeof address);
#define X(field, symbol, name, params)                                              \
    if (by_name) {                                                                  \
        address = dlsym(library, #name);                                            \
    } else if (get_proc(#symbol, &address, VERSION, flags, &found) != CU_SUCCESS) { \
        address = NULL;                                                             \
    }                                                                               \
    if (address == NULL) {                                                          \
        return false;                                                               \
    }                                                                               \
    memcpy(&cu.field, &address, sizeof address);
    CALLS(X)
#undef X
    has_own_contexts = strcmp(way, "contexts") == 0;
    return !has_own_contexts || find_contexts(library, get_proc);
}

static cu_ptr in(const void *ptr) {
    return (cu_ptr)(uintptr_t)ptr;
}

static int out(cu_result result, const cu_ptr *taken, void **ptr) {
    if (result == CU_SUCCESS) {
        *ptr = (void *)(uintptr_t)*taken;
    }
    return (int)result;
}

static int alloc(void **ptr, size_t bytes) {
    cu_ptr taken = 0;
    return out(cu.mem_alloc(&taken, bytes), &taken, ptr);
}

static int give(void *ptr) {
    return (int)cu.mem_free(in(ptr));
}

static int alloc_on(void **ptr, size_t bytes, void *stream) {
    cu_ptr taken = 0;
    return out(cu.mem_alloc_async(&taken, bytes, stream), &taken, ptr);
}

static int give_on(void *ptr, void *stream) {
    return (int)cu.mem_free_async(in(ptr), stream);
}

static int alloc_rows(void **ptr, size_t *pitch, size_t width, size_t height) {
    cu_ptr taken = 0;
    return out(cu.mem_alloc_pitch(&taken, pitch, width, height, 4), &taken, ptr);
}

static int fill(void *ptr, int value, size_t bytes, void *stream) {
    return (int)cu.fill(in(ptr), (unsigned char)value, bytes, stream);
}

static int read_back(void *dst, const void *src, size_t bytes, void *stream) {
    const cu_result result = cu.copy(dst, in(src), bytes, stream);
    return (int)(result == CU_SUCCESS ? cu.stream_synchronize(stream) : result);
}

/* All that is said about a pointer, by one function and another: the block that it points into, as
 * that was asked for; or that there is none. NCCL and UCX ask all of it before they share memory,
 * and use the range that they were told with the handle that they were given: none, if it may be
 * neither retained nor exported. */
static bool is_told(cu_ptr ptr, cu_ptr block, size_t block_bytes) {
    unsigned char handle[64];
    unsigned int attributes[] = {POINTER_MEMORY_TYPE, POINTER_RANGE_START, POINTER_RANGE_SIZE,
                                 POINTER_HANDLE_TYPES, POINTER_IS_IPC_CAPABLE};
    unsigned int type = 9, one_type = 9;
    unsigned long long types = 9;
    cu_ptr base = 0, start = 9, one_start = 9;
    size_t bytes = 0, range = 9;
    bool is_capable = true;
    void *values[] = {&type, &start, &range, &types, &is_capable};
    cu_mem_handle retained = 0;
    const char *words = getenv("ASHLAR_PRELOAD");
    const bool is_one = block != 0;
    const bool is_exported = getenv("LD_PRELOAD") == NULL || strcmp(words ? words : "", "ipc") == 0;
    const cu_result in_range = cu.address_range(&base, &bytes, ptr);
    const cu_result has_type = cu.pointer_attribute(&one_type, POINTER_MEMORY_TYPE, ptr);
    const cu_result has_start = cu.pointer_attribute(&one_start, POINTER_RANGE_START, ptr);
    return cu.pointer_attributes(5, attributes, values, ptr) == CU_SUCCESS && types == 0 &&
           in_range == (is_one ? CU_SUCCESS : CU_NOT_FOUND) && base == block &&
           bytes == block_bytes && start == block && range == block_bytes &&
           type == (is_one ? MEMORY_DEVICE : 0) &&
           has_type == (is_one ? CU_SUCCESS : CU_INVALID_VALUE) && has_start == has_type &&
           (!is_one || (one_type == MEMORY_DEVICE && one_start == block)) &&
           cu.retain_handle(&retained, (void *)(uintptr_t)ptr) == CU_INVALID_VALUE &&
           is_capable == (is_one && is_exported) &&
           cu.ipc_get(handle, ptr) == (!is_one       ? CU_INVALID_VALUE
                                       : is_exported ? CU_SUCCESS
                                                     : CU_NOT_SUPPORTED);
}

/* Here too what a pointer is said to point into. */
static int info(size_t *free_bytes, size_t *total_bytes) {
    cu_ptr ptr = 0, small = 0;
    const size_t bytes = 4 << 20;
    const bool holds = cu.mem_alloc(&ptr, bytes) == CU_SUCCESS && is_told(ptr, ptr, bytes) &&
                       is_told(ptr + bytes - 1, ptr, bytes) && cu.mem_free(ptr) == CU_SUCCESS &&
                       is_told(ptr, 0, 0) && cu.mem_alloc(&small, 2 << 20) == CU_SUCCESS &&
                       is_told(small + 5, small, 2 << 20) && cu.mem_free(small) == CU_SUCCESS &&
                       is_told(small + 5, 0, 0);
    return holds ? (int)cu.mem_get_info(free_bytes, total_bytes) : -1;
}

static int export_block(ipc_handle *handle, void *ptr) {
    return (int)cu.ipc_get(handle, in(ptr));
}

static int make_stream(void **stream, bool is_blocking) {
    cu_stream made = NULL;
    const cu_result result =
        cu.stream_create(&made, is_blocking ? CU_STREAM_BLOCKING : CU_STREAM_UNORDERED);
    *stream = made;
    return (int)result;
}

static int end_stream(void *stream) {
    return (int)cu.stream_destroy(stream);
}

static int wait_for(void *stream) {
    return (int)cu.stream_synchronize(stream);
}

static int wait_for_all(void) {
    return (int)cu.synchronize();
}

static int begin_capture(void *stream, int mode) {
    return (int)cu.begin_capture(stream, (unsigned int)mode);
}

static int end_capture(void *stream) {
    cu_graph graph = NULL;
    return (int)cu.end_capture(stream, &graph);
}

static int use_own(int device) {
    cu_result result = cu.init(0);
    pthread_mutex_lock(&own_lock);
    if (result == CU_SUCCESS && own_contexts[device] == NULL) {
        result = cu.ctx_create(&own_contexts[device], 0, device);
    }
    pthread_mutex_unlock(&own_lock);
    return (int)(result == CU_SUCCESS ? cu.set_current(own_contexts[device]) : result);
}

static int use(int device) {
    if (has_own_contexts) {
        return use_own(device);
    }
    cu_context context = NULL;
    cu_result result = cu.init(0);
    result = result == CU_SUCCESS ? cu.retain(&context, device) : result;
    return (int)(result == CU_SUCCESS ? cu.set_current(context) : result);
}

static int owner(void *ptr, int *device) {
    return (int)cu.pointer_attribute(device, POINTER_ORDINAL, in(ptr));
}

static void *pool;

/* Set it by CUDA 13's function, which only newer programs know. */
static int own_pool(void) {
    const cu_mem_prop props = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
    cu_mem_location place = props.location;
    cu_result (*set)(cu_mem_location * location, unsigned int type, void *of) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuMemSetMemPool");
    memcpy(&set, &address, sizeof address);
    const cu_result result = cu.pool_create(&pool, &props); /* whose properties begin alike */
    return (int)(result == CU_SUCCESS ? set(&place, CU_ALLOCATION_PINNED, pool) : result);
}

static int own_pool_bytes(unsigned long long *bytes) {
    return (int)cu.pool_get_attribute(pool, POOL_USED, bytes);
}

static unsigned long long figure(void *of, unsigned int attribute) {
    unsigned long long value = ~0ULL;
    return cu.pool_get_attribute(of, attribute, &value) == CU_SUCCESS ? value : ~0ULL;
}

static bool set_figure(void *of, unsigned int attribute, unsigned long long value) {
    return cu.pool_set_attribute(of, attribute, &value) == CU_SUCCESS;
}

/* Free a block of 8 MiB, and wait. */
static bool give_and_wait(cu_ptr ptr) {
    return cu.mem_free_async(ptr, NULL) == CU_SUCCESS && cu.synchronize() == CU_SUCCESS;
}

/* The figures of a block of 8 MiB in the pool, while it is there and when it is freed. */
static bool has_true_figures(void *of) {
    const unsigned long long bytes = 8 << 20, all = ~0ULL, used = figure(of, POOL_USED);
    cu_ptr ptr = 0;
    return set_figure(of, POOL_THRESHOLD, all) && figure(of, POOL_THRESHOLD) == all &&
           cu.mem_alloc_async(&ptr, bytes, NULL) == CU_SUCCESS &&
           figure(of, POOL_USED) == used + bytes && figure(of, POOL_USED_HIGH) >= used + bytes &&
           figure(of, POOL_RESERVED) >= used + bytes &&
           figure(of, POOL_RESERVED_HIGH) >= figure(of, POOL_RESERVED) && give_and_wait(ptr) &&
           figure(of, POOL_USED) == used && figure(of, POOL_RESERVED) >= bytes &&
           figure(of, POOL_USED_HIGH) >= used + bytes && set_figure(of, POOL_USED_HIGH, 0) &&
           figure(of, POOL_USED_HIGH) == used;
}

/* What is free goes when the program says so, or sets how much is kept. */
static bool gives_back(void *of) {
    cu_ptr ptr = 0;
    if (cu.pool_trim(of, 0) != CU_SUCCESS || figure(of, POOL_RESERVED) != 0 ||
        !set_figure(of, POOL_RESERVED_HIGH, 0) || figure(of, POOL_RESERVED_HIGH) != 0) {
        return false;
    }
    return cu.mem_alloc_async(&ptr, 8 << 20, NULL) == CU_SUCCESS &&
           set_figure(of, POOL_THRESHOLD, 0) && figure(of, POOL_THRESHOLD) == 0 &&
           give_and_wait(ptr) && figure(of, POOL_RESERVED) == 0;
}

/* It is the default pool by its name, too, and once more after another one was set. */
static bool is_itself(void *of) {
    const unsigned long long used = figure(of, POOL_USED);
    cu_ptr ptr = 0, later = 0;
    return cu.mem_alloc_from_pool(&ptr, 1 << 20, of, NULL) == CU_SUCCESS &&
           figure(of, POOL_USED) == used + (1 << 20) && own_pool() == CU_SUCCESS &&
           cu.pool_set(0, of) == CU_SUCCESS &&
           cu.mem_alloc_async(&later, 1 << 20, NULL) == CU_SUCCESS &&
           figure(of, POOL_USED) == used + (2 << 20) && give_and_wait(ptr) && give_and_wait(later);
}

static int use_default_pool(void) {
    void *of = NULL;
    if (cu.pool_default(&of, 0) != CU_SUCCESS) {
        return -1;
    }
    return !has_true_figures(of) ? 1 : !gives_back(of) ? 2 : !is_itself(of) ? 3 : 0;
}

static int reset(void) {
    const cu_result result = has_own_contexts ? cu.ctx_destroy(own_contexts[0]) : cu.reset(0);
    own_contexts[0] = NULL;
    return result == CU_SUCCESS ? use(0) : (int)result;
}

static int take_physical(size_t bytes) {
    cu_mem_handle handle = 0;
    const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
    return (int)cu.mem_create(&handle, bytes, &prop, 0);
}

int main(int argc, char **argv) {
    static const gpu calls = {GPU_CALLS, .take_physical = take_physical,
                              .use_default_pool = use_default_pool};
    if (argc < 2 || !find_all(argv[1])) {
        printf("libcuda.so.1: functions are missing\n");
        return 2;
    }
    return run_program(&calls, argc - 1, argv + 1);
}
