/*
 * program_wrong.c - a program that calls the driver with what is wrong or unusual, in a process
 * with a context, without one, in a thread that has none, and in a forked child. It prints each
 * result: shell_preload.sh compares what it prints with and without libashlar-preload.so. With an
 * argument it calls as a program does that is linked with the driver: by names in the global scope.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/driver/cuda_abi.h"

enum {
    VERSION = 12000,
    OLD_VERSION = 2000,
    PER_THREAD_STREAM = 2,
    POINTER_RANGE_START = 11,
    POOL_REUSE = 1,
    POOL_THRESHOLD = 4,
    POOL_USED = 7,
    POOL_NONE = 9
};

static void *library;

/* The result of one call, or that there is no such function. */
#define TRY(name, params, args)                                                           \
    do {                                                                                  \
        cu_result(*function_) params;                                                     \
        *(void **)(void *)&function_ = dlsym(library, #name);                             \
        printf("%s%s: %d\n", #name, #args, function_ != NULL ? (int)function_ args : -1); \
        (void)fflush(stdout);                                                             \
    } while (0)

static void take_wrongly(cu_stream stream) {
    cu_ptr ptr = 0;
    size_t pitch = 0;
    TRY(cuMemAlloc_v2, (cu_ptr *, size_t), (NULL, 64));
    TRY(cuMemAlloc_v2, (cu_ptr *, size_t), (&ptr, 0));
    TRY(cuMemAlloc_v2, (cu_ptr *, size_t), (&ptr, SIZE_MAX / 4));
    TRY(cuMemAllocAsync, (cu_ptr *, size_t, cu_stream), (NULL, 64, stream));
    TRY(cuMemAllocAsync, (cu_ptr *, size_t, cu_stream), (&ptr, 0, stream));
    TRY(cuMemAllocAsync, (cu_ptr *, size_t, cu_stream), (&ptr, SIZE_MAX / 4, stream));
    TRY(cuMemAllocPitch_v2, (cu_ptr *, size_t *, size_t, size_t, unsigned), (&ptr, NULL, 64, 4, 4));
    TRY(cuMemAllocPitch_v2, (cu_ptr *, size_t *, size_t, size_t, unsigned),
        (&ptr, &pitch, 64, 4, 3));
    TRY(cuMemAllocPitch_v2, (cu_ptr *, size_t *, size_t, size_t, unsigned),
        (&ptr, &pitch, SIZE_MAX, 4, 8));
    TRY(cuMemAllocPitch_v2, (cu_ptr *, size_t *, size_t, size_t, unsigned),
        (&ptr, &pitch, SIZE_MAX / 4, SIZE_MAX / 4, 16));
}

static void give_wrongly(cu_stream stream) {
    const cu_ptr nobodys = 4096;
    TRY(cuMemFree_v2, (cu_ptr), (0));
    TRY(cuMemFree_v2, (cu_ptr), (nobodys));
    TRY(cuMemFreeAsync, (cu_ptr, cu_stream), (0, stream));
    TRY(cuMemFreeAsync, (cu_ptr, cu_stream), (nobodys, stream));
}

/* As it should be, of every width of element; the answers about a block may be left out. */
static void take_rightly(cu_stream stream) {
    cu_ptr ptr = 0, base = 0;
    size_t pitch = 0, bytes = 0, total = 0;
    for (unsigned element = 4; element <= 16; element *= 2) {
        TRY(cuMemAllocPitch_v2, (cu_ptr *, size_t *, size_t, size_t, unsigned),
            (&ptr, &pitch, 100, 4, element));
        TRY(cuMemGetAddressRange_v2, (cu_ptr *, size_t *, cu_ptr), (&base, NULL, ptr));
        TRY(cuMemGetAddressRange_v2, (cu_ptr *, size_t *, cu_ptr), (NULL, &bytes, ptr));
        TRY(cuMemFree_v2, (cu_ptr), (ptr));
    }
    TRY(cuMemGetAddressRange_v2, (cu_ptr *, size_t *, cu_ptr), (&base, &bytes, 4096));
    TRY(cuMemAllocAsync, (cu_ptr *, size_t, cu_stream), (&ptr, 1 << 20, stream));
    TRY(cuMemFreeAsync, (cu_ptr, cu_stream), (ptr, stream));
    TRY(cuMemGetInfo_v2, (size_t *, size_t *), (&bytes, &total));
}

/* What a program does not want to know. The answers about a live block are the same as the
 * driver's, where there is none. */
static void leave_out(cu_stream stream) {
    cu_ptr ptr = 0;
    size_t bytes = 0, pitch = 0;
    unsigned attributes[] = {POINTER_RANGE_START};
    void *nowhere[] = {NULL}, *array = NULL;
    TRY(cuMemAlloc_v2, (cu_ptr *, size_t), (&ptr, 1 << 20));
    TRY(cuMemGetInfo_v2, (size_t *, size_t *), (NULL, &bytes));
    TRY(cuMemGetInfo_v2, (size_t *, size_t *), (&bytes, NULL));
    TRY(cuMemGetInfo_v2, (size_t *, size_t *), (NULL, NULL));
    TRY(cuMemGetAddressRange_v2, (cu_ptr *, size_t *, cu_ptr), (NULL, NULL, ptr));
    TRY(cuPointerGetAttribute, (void *, unsigned, cu_ptr), (NULL, POINTER_RANGE_START, ptr));
    TRY(cuPointerGetAttributes, (unsigned, unsigned *, void **, cu_ptr), (0, NULL, NULL, ptr));
    TRY(cuPointerGetAttributes, (unsigned, unsigned *, void **, cu_ptr), (1, NULL, nowhere, ptr));
    TRY(cuPointerGetAttributes, (unsigned, unsigned *, void **, cu_ptr),
        (1, attributes, NULL, ptr));
    TRY(cuPointerGetAttributes, (unsigned, unsigned *, void **, cu_ptr),
        (1, attributes, nowhere, ptr));
    TRY(cuMemRetainAllocationHandle, (cu_mem_handle *, void *), (NULL, (void *)(uintptr_t)ptr));
    TRY(cuIpcGetMemHandle, (void *, cu_ptr), (NULL, ptr));
    TRY(cuMemFree_v2, (cu_ptr), (ptr));
    TRY(cuMemAllocPitch_v2, (cu_ptr *, size_t *, size_t, size_t, unsigned),
        (NULL, &pitch, 64, 4, 4));
    TRY(cuMemAllocManaged, (cu_ptr *, size_t, unsigned), (NULL, 64, 1));
    TRY(cuMemCreate, (cu_mem_handle *, size_t, const cu_mem_prop *, unsigned long long),
        (NULL, 2 << 20, NULL, 0));
    TRY(cuArrayCreate_v2, (void **, const void *), (NULL, NULL));
    TRY(cuArray3DCreate_v2, (void **, const void *), (&array, NULL));
    TRY(cuMipmappedArrayCreate, (void **, const void *, unsigned), (NULL, NULL, 1));
    TRY(cuStreamCreateWithPriority, (cu_stream *, unsigned, int), (NULL, CU_STREAM_UNORDERED, 0));
    TRY(cuStreamBeginCapture_v2, (cu_stream, unsigned), (stream, 0));
    TRY(cuStreamEndCapture, (cu_stream, cu_graph *), (stream, NULL));
    TRY(cuStreamEndCapture, (cu_stream, cu_graph *), (stream, (cu_graph *)&array));
}

/* The same of contexts and pools. */
static void leave_out_more(cu_device device, void *pool) {
    cu_ptr ptr = 0;
    unsigned long long value = 0;
    void *address = NULL;
    TRY(cuCtxCreate_v2, (cu_context *, unsigned, cu_device), (NULL, 0, device));
    TRY(cuMemAllocFromPoolAsync, (cu_ptr *, size_t, void *, cu_stream), (NULL, 64, pool, NULL));
    TRY(cuMemSetMemPool, (cu_mem_location *, unsigned, void *), (NULL, CU_ALLOCATION_PINNED, pool));
    TRY(cuMemPoolGetAttribute, (void *, unsigned, void *), (NULL, POOL_USED, &value));
    TRY(cuMemPoolGetAttribute, (void *, unsigned, void *), (pool, POOL_USED, NULL));
    TRY(cuMemPoolSetAttribute, (void *, unsigned, void *), (NULL, POOL_THRESHOLD, &value));
    TRY(cuMemPoolSetAttribute, (void *, unsigned, void *), (pool, POOL_THRESHOLD, NULL));
    TRY(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, unsigned *),
        ("cuMemAlloc", &address, VERSION, 0, NULL));
    TRY(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, unsigned *),
        ("cuNobodysCall", &address, VERSION, 0, NULL));
    TRY(cuMemAlloc_v2, (cu_ptr *, size_t), (&ptr, 64));
    TRY(cuMemFree_v2, (cu_ptr), (ptr));
}

/* Functions that are not there, for versions that had none. */
static void find_wrongly(void) {
    void *address = NULL;
    unsigned found = 0;
    const char *const names[] = {"cuMemAlloc", "cuStreamBeginCapture", "cuNobodysCall"};
    for (int i = 0; i < 3; i++) {
        for (int version = OLD_VERSION; version <= VERSION; version += 5000) {
            TRY(cuGetProcAddress, (const char *, void **, int, unsigned long long),
                (names[i], &address, version, PER_THREAD_STREAM));
            TRY(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, unsigned *),
                (names[i], &address, version, PER_THREAD_STREAM, &found));
        }
    }
    printf("none by name: %d\n", dlsym(library, "cuNobodysCall") == NULL);
    TRY(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, unsigned *),
        (NULL, &address, VERSION, 0, &found));
    TRY(cuGetProcAddress_v2, (const char *, void **, int, unsigned long long, unsigned *),
        ("cuMemAlloc", NULL, VERSION, 0, &found));
}

static void use_streams(void) {
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    TRY(cuStreamCreate, (cu_stream *, unsigned), (NULL, CU_STREAM_UNORDERED));
    TRY(cuStreamCreateWithPriority, (cu_stream *, unsigned, int),
        (&stream, CU_STREAM_UNORDERED, 0));
    take_wrongly(stream);
    give_wrongly(stream);
    take_rightly(stream);
    leave_out(stream);
    TRY(cuStreamEndCapture, (cu_stream, cu_graph *), (stream, &graph));
    TRY(cuStreamBeginCapture_v2, (cu_stream, unsigned), (NULL, 0));
    TRY(cuStreamDestroy_v2, (cu_stream), (stream));
    TRY(cuStreamDestroy_v2, (cu_stream), (NULL));
    TRY(cuCtxSynchronize, (void), ());
}

/* NULL is a stream everywhere; without a context it is an error. */
static void *use_all(void *unused) {
    (void)unused;
    take_wrongly(NULL);
    give_wrongly(NULL);
    take_rightly(NULL);
    use_streams();
    TRY(cuCtxDestroy_v2, (cu_context), (NULL));
    return NULL;
}

static void use_child(void) {
    int status = -1;
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        (void)use_all(NULL);
        exit(0); /* with what a library does at the end of a process */
    }
    printf("child: %d\n", waitpid(child, &status, 0) == child ? status : -1);
}

static void use_pools(cu_device device) {
    cu_ptr ptr = 0;
    void *pool = NULL;
    unsigned long long value = 0;
    TRY(cuDeviceGetDefaultMemPool, (void **, cu_device), (&pool, device));
    TRY(cuMemPoolGetAttribute, (void *, unsigned, void *), (pool, POOL_USED, &value));
    TRY(cuMemPoolGetAttribute, (void *, unsigned, void *), (pool, POOL_REUSE, &value));
    TRY(cuMemPoolGetAttribute, (void *, unsigned, void *), (pool, POOL_NONE, &value));
    TRY(cuMemPoolSetAttribute, (void *, unsigned, void *), (pool, POOL_REUSE, &value));
    TRY(cuMemPoolSetAttribute, (void *, unsigned, void *), (pool, POOL_THRESHOLD, &value));
    TRY(cuMemPoolSetAttribute, (void *, unsigned, void *), (pool, POOL_NONE, &value));
    TRY(cuMemPoolTrimTo, (void *, size_t), (NULL, 0));
    TRY(cuMemPoolTrimTo, (void *, size_t), (pool, 0));
    TRY(cuMemAllocFromPoolAsync, (cu_ptr *, size_t, void *, cu_stream), (&ptr, 64, NULL, NULL));
    TRY(cuMemAllocFromPoolAsync_ptsz, (cu_ptr *, size_t, void *, cu_stream),
        (&ptr, 64, NULL, NULL));
    TRY(cuMemAllocFromPoolAsync_ptsz, (cu_ptr *, size_t, void *, cu_stream),
        (&ptr, 64, pool, NULL));
    TRY(cuMemFreeAsync_ptsz, (cu_ptr, cu_stream), (ptr, NULL));
    TRY(cuDeviceSetMemPool, (cu_device, void *), (device, NULL));
    cu_mem_location here = {.type = CU_LOCATION_DEVICE, .id = device}, nowhere = {.type = 9};
    TRY(cuMemSetMemPool, (cu_mem_location *, unsigned, void *),
        (&here, CU_ALLOCATION_PINNED, pool));
    TRY(cuMemSetMemPool, (cu_mem_location *, unsigned, void *),
        (&nowhere, CU_ALLOCATION_PINNED, pool));
    leave_out_more(device, pool);
    TRY(cuCtxSynchronize, (void), ());
}

int main(int argc, char **argv) {
    pthread_t thread;
    cu_context context = NULL;
    (void)argv;
    library = dlopen("libcuda.so.1", RTLD_NOW | (argc > 1 ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == NULL) {
        return 2;
    }
    library = argc > 1 ? RTLD_DEFAULT : library;
    TRY(cuInit, (unsigned), (0));
    (void)use_all(NULL);
    TRY(cuDevicePrimaryCtxReset_v2, (cu_device), (1000));
    TRY(cuDevicePrimaryCtxRetain, (cu_context *, cu_device), (&context, 0));
    TRY(cuCtxSetCurrent, (cu_context), (context));
    (void)use_all(NULL);
    find_wrongly();
    use_pools(0);
    TRY(cuCtxSynchronize_v2, (cu_context), (context));
    TRY(cuCtxSynchronize_v2, (cu_context), (NULL));
    if (pthread_create(&thread, NULL, use_all, NULL) == 0) {
        (void)pthread_join(thread, NULL);
    }
    use_child();
    return 0;
}
