/*
 * quota.c - a library to be preloaded beside ours, as those that share a GPU by quotas: its dlsym()
 * and cuGetProcAddress() give functions of its own, which refuse what exceeds QUOTA bytes.
 *
 * It finds what is behind them in libcuda.so.1 by the C library's dlsym() or, with
 * QUOTA_BEHIND=next, in the next library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/base.h>

#include "allocator/driver/cuda_abi.h"

enum { PIECES = 4096 };

typedef void *(*dlsym_fn)(void *handle, const char *name);

ASHLAR_API void *dlsym(void *restrict handle, const char *restrict name);

/* Name, cuGetProcAddress()'s name, parameters, arguments. */
#define HOOKED_MAP(X)                                                                            \
    X(cuMemAlloc_v2, cuMemAlloc, (cu_ptr * ptr, size_t bytes), (ptr, bytes))                     \
    X(cuMemAllocManaged, cuMemAllocManaged, (cu_ptr * ptr, size_t bytes, unsigned int flags),    \
      (ptr, bytes, flags))                                                                       \
    X(cuMemAllocAsync, cuMemAllocAsync, (cu_ptr * ptr, size_t bytes, cu_stream stream),          \
      (ptr, bytes, stream))                                                                      \
    X(cuMemCreate, cuMemCreate,                                                                  \
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags), \
      (handle, bytes, prop, flags))                                                              \
    X(cuMemFree_v2, cuMemFree, (cu_ptr ptr), (ptr))                                              \
    X(cuMemFreeAsync, cuMemFreeAsync, (cu_ptr ptr, cu_stream stream), (ptr, stream))             \
    X(cuMemRelease, cuMemRelease, (cu_mem_handle handle), (handle))                              \
    X(cuGetProcAddress_v2, cuGetProcAddress,                                                     \
      (const char *symbol, void **address, int version, unsigned long long flags,                \
       unsigned int *found),                                                                     \
      (symbol, address, version, flags, found))

#define X(name, symbol, params, args) \
    ASHLAR_API cu_result name params; \
    static cu_result(*const own_##name) params = name;
HOOKED_MAP(X)
#undef X

/* ---- what is behind ---- */

static dlsym_fn c_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    dlsym_fn function;
    void *address = NULL;
    for (size_t i = 0; address == NULL && i < sizeof versions / sizeof versions[0]; i++) {
        address = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    memcpy(&function, &address, sizeof function);
    return function;
}

static void *find_behind(const char *name) {
    const char *where = getenv("QUOTA_BEHIND");
    const dlsym_fn find = c_dlsym();
    void *address = where != NULL && strcmp(where, "next") == 0 ? find(RTLD_NEXT, name) : NULL;
    return address != NULL ? address : find(dlopen("libcuda.so.1", RTLD_NOW), name);
}

#define X(name, symbol, params, args)                  \
    static cu_result behind_##name params {            \
        cu_result(*function_) params;                  \
        void *found_ = find_behind(#name);             \
        memcpy(&function_, &found_, sizeof function_); \
        return function_ args;                         \
    }
HOOKED_MAP(X)
#undef X

/* ---- the quota ---- */

static struct {
    unsigned long long key;
    size_t bytes;
} pieces[PIECES];
static size_t used_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t quota(void) {
    const char *text = getenv("QUOTA");
    return text == NULL ? 0 : strtoul(text, NULL, 10);
}

static bool take(size_t bytes) {
    pthread_mutex_lock(&lock);
    const bool is_allowed = bytes <= quota() && used_bytes <= quota() - bytes;
    used_bytes += is_allowed ? bytes : 0;
    pthread_mutex_unlock(&lock);
    return is_allowed;
}

/* Put `bytes` back, or note which piece has them. */
static cu_result note(cu_result result, unsigned long long key, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (result != CU_SUCCESS) {
        used_bytes -= bytes;
    }
    for (int i = 0; i < PIECES && result == CU_SUCCESS; i++) {
        if (pieces[i].bytes == 0) {
            pieces[i].key = key;
            pieces[i].bytes = bytes;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static cu_result forget(cu_result result, unsigned long long key) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PIECES && result == CU_SUCCESS; i++) {
        if (pieces[i].bytes != 0 && pieces[i].key == key) {
            used_bytes -= pieces[i].bytes;
            pieces[i].bytes = 0;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#define TAKES(name, params, args, key)                                                     \
    cu_result name params {                                                                \
        if (!take(bytes)) {                                                                \
            return CU_OUT_OF_MEMORY;                                                       \
        }                                                                                  \
        const cu_result result = behind_##name args;                                       \
        return note(result, result == CU_SUCCESS ? (unsigned long long)*(key) : 0, bytes); \
    }
TAKES(cuMemAlloc_v2, (cu_ptr * ptr, size_t bytes), (ptr, bytes), ptr)
TAKES(cuMemAllocManaged, (cu_ptr * ptr, size_t bytes, unsigned int flags), (ptr, bytes, flags), ptr)
TAKES(cuMemAllocAsync, (cu_ptr * ptr, size_t bytes, cu_stream stream), (ptr, bytes, stream), ptr)
TAKES(cuMemCreate,
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags),
      (handle, bytes, prop, flags), handle)

cu_result cuMemFree_v2(cu_ptr ptr) {
    return forget(behind_cuMemFree_v2(ptr), ptr);
}

cu_result cuMemFreeAsync(cu_ptr ptr, cu_stream stream) {
    return forget(behind_cuMemFreeAsync(ptr, stream), ptr);
}

cu_result cuMemRelease(cu_mem_handle handle) {
    return forget(behind_cuMemRelease(handle), handle);
}

/* ---- how a program finds the functions ---- */

void *dlsym(void *restrict handle, const char *restrict name) {
    void *address = c_dlsym()(handle, name);
#define X(own, symbol, params, args)                                         \
    if (address != NULL && handle != RTLD_NEXT && strcmp(name, #own) == 0) { \
        memcpy(&address, &own_##own, sizeof address);                        \
    }
    HOOKED_MAP(X)
#undef X
    return address;
}

cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version,
                              unsigned long long flags, unsigned int *found) {
    const cu_result result = behind_cuGetProcAddress_v2(symbol, address, version, flags, found);
#define X(own, of, params, args)                            \
    if (result == CU_SUCCESS && strcmp(symbol, #of) == 0) { \
        memcpy(address, &own_##own, sizeof *address);       \
    }
    HOOKED_MAP(X)
#undef X
    return result;
}
