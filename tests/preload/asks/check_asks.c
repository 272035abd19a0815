/*
 * check_asks.c - under the preload: what NVIDIA's runtimes ask cuGetProcAddress() for, and by which
 * of our functions it is answered. A function of another version has other parameters.
 *
 * The list is what libcudart.so.12 (12.9.79) and libcudart.so.13 (13.5.37) asked a driver for that
 * has all functions, as far as we stand in for the symbol, and what other programs may ask for.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef unsigned int (*get_proc_fn)(const char *symbol, void **address, int version,
                                    unsigned long long flags, unsigned int *found);

enum { PER_THREAD_STREAM = 2 };

/* What is to answer; NULL: the driver itself. */
static const struct {
    const char *symbol;
    int version;
    unsigned long long flags;
    const char *function;
} asks[] = {
    /* libcudart */
    {"cuArray3DCreate", 3020, 0, "cuArray3DCreate_v2"},
    {"cuArrayCreate", 3020, 0, "cuArrayCreate_v2"},
    {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
    {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
    {"cuCtxSynchronize", 2000, 0, "cuCtxSynchronize"},
    {"cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset_v2"},
    {"cuDeviceSetMemPool", 11020, 0, "cuDeviceSetMemPool"},
    {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
    {"cuGreenCtxStreamCreate", 12050, 0, "cuGreenCtxStreamCreate"},
    {"cuIpcGetMemHandle", 4010, 0, "cuIpcGetMemHandle"},
    {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
    {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"},
    {"cuMemAllocAsync", 11020, PER_THREAD_STREAM, "cuMemAllocAsync_ptsz"},
    {"cuMemAllocFromPoolAsync", 11020, 0, "cuMemAllocFromPoolAsync"},
    {"cuMemAllocFromPoolAsync", 11020, PER_THREAD_STREAM, "cuMemAllocFromPoolAsync_ptsz"},
    {"cuMemAllocManaged", 6000, 0, "cuMemAllocManaged"},
    {"cuMemAllocPitch", 3020, 0, "cuMemAllocPitch_v2"},
    {"cuMemFree", 3020, 0, "cuMemFree_v2"},
    {"cuMemFreeAsync", 11020, 0, "cuMemFreeAsync"},
    {"cuMemFreeAsync", 11020, PER_THREAD_STREAM, "cuMemFreeAsync_ptsz"},
    {"cuMemGetAddressRange", 3020, 0, "cuMemGetAddressRange_v2"},
    {"cuMemGetInfo", 3020, 0, "cuMemGetInfo_v2"},
    {"cuMemPoolGetAttribute", 11020, 0, "cuMemPoolGetAttribute"},
    {"cuMemPoolSetAttribute", 11020, 0, "cuMemPoolSetAttribute"},
    {"cuMemPoolTrimTo", 11020, 0, "cuMemPoolTrimTo"},
    {"cuMemSetMemPool", 13000, 0, "cuMemSetMemPool"},
    {"cuMipmappedArrayCreate", 5000, 0, "cuMipmappedArrayCreate"},
    {"cuPointerGetAttribute", 4000, 0, "cuPointerGetAttribute"},
    {"cuPointerGetAttributes", 7000, 0, "cuPointerGetAttributes"},
    {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"},
    {"cuStreamBeginCapture", 10000, PER_THREAD_STREAM, "cuStreamBeginCapture_ptsz"},
    {"cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2"},
    {"cuStreamBeginCapture", 10010, PER_THREAD_STREAM, "cuStreamBeginCapture_v2_ptsz"},
    {"cuStreamBeginCaptureToGraph", 12030, 0, "cuStreamBeginCaptureToGraph"},
    {"cuStreamBeginCaptureToGraph", 12030, PER_THREAD_STREAM, "cuStreamBeginCaptureToGraph_ptsz"},
    {"cuStreamCreate", 2000, 0, "cuStreamCreate"},
    {"cuStreamCreateWithPriority", 5050, 0, "cuStreamCreateWithPriority"},
    {"cuStreamDestroy", 4000, 0, "cuStreamDestroy_v2"},
    {"cuStreamEndCapture", 10000, 0, "cuStreamEndCapture"},
    {"cuStreamEndCapture", 10000, PER_THREAD_STREAM, "cuStreamEndCapture_ptsz"},
    /* Others: by the version of their own headers, and those of old. */
    {"cuCtxCreate", 11030, 0, "cuCtxCreate_v2"},
    {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
    {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
    {"cuCtxDestroy", 13000, 0, "cuCtxDestroy_v2"},
    {"cuCtxSynchronize", 12090, 0, "cuCtxSynchronize"},
    {"cuCtxSynchronize", 13050, 0, "cuCtxSynchronize_v2"},
    {"cuMemAlloc", 2000, 0, NULL}, /* 32-bit addresses */
    {"cuMemAlloc", 13050, PER_THREAD_STREAM, "cuMemAlloc_v2"},
    {"cuMemCreate", 10020, 0, "cuMemCreate"},
    {"cuMemRetainAllocationHandle", 11000, 0, "cuMemRetainAllocationHandle"},
    {"cuMemSetMemPool", 12090, 0, NULL},
    {"cuStreamDestroy", 2000, 0, NULL},
    {"cuStreamQuery", 13000, 0, NULL},
};

int main(void) {
    int bad = 0;
    get_proc_fn get_proc;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *address = library == NULL ? NULL : dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get_proc, &address, sizeof get_proc);
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        unsigned int found;
        Dl_info info = {0};
        if (get_proc == NULL ||
            get_proc(asks[i].symbol, &address, asks[i].version, asks[i].flags, &found) != 0 ||
            dladdr(address, &info) == 0) {
            printf("%s %d: not found\n", asks[i].symbol, asks[i].version);
            return 2;
        }
        const int is_ours = strstr(info.dli_fname, "libashlar-preload.so") != NULL;
        const char *got = is_ours ? info.dli_sname : "the driver";
        const char *want = asks[i].function != NULL ? asks[i].function : "the driver";
        if (got == NULL || strcmp(got, want) != 0) {
            printf("%s %d %llu: answered by %s, not %s\n", asks[i].symbol, asks[i].version,
                   asks[i].flags, got == NULL ? "?" : got, want);
            bad++;
        }
    }
    return bad != 0;
}
