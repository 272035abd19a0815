/*
 * cudart_12.c - functions of CUDA 12's runtime that have another name there than in CUDA 13's, or
 * another structure: for PyTorch of CUDA 12, with LD_PRELOAD before the small runtime. They have
 * the version of their library, so that programs of CUDA 13 do not find them.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include <ashlar/base.h>

enum { BYTES_OF_13 = 4096 }; /* no structure of CUDA 13 that is used here has more */

ASHLAR_API int cudaGetDriverEntryPoint(const char *symbol, void **function,
                                       unsigned long long flags, int *found);
ASHLAR_API int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id);

/* Of the small runtime. */
ASHLAR_API int cudaGetDeviceProperties(void *properties, int device);
ASHLAR_API int cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                                unsigned int version, unsigned long long flags,
                                                int *found);
ASHLAR_API int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id);

int cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                            int *found) {
    return cudaGetDriverEntryPointByVersion(symbol, function, 12000, flags, found);
}

int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id) {
    return cudaStreamGetCaptureInfo(stream, status, id);
}

/* cudaDeviceProp, of which 348 bytes are as in CUDA 13. */
typedef struct properties_12 {
    union {
        char bytes[348];
        size_t alignment;
    } same;
    char between[36];
    int processor_count;
    char rest[640];
} properties_12;

_Static_assert(offsetof(properties_12, processor_count) == 388 && sizeof(properties_12) == 1032,
               "cuda_runtime_api.h of CUDA 12");

ASHLAR_API int cudaGetDeviceProperties_v2(properties_12 *properties, int device);

int cudaGetDeviceProperties_v2(properties_12 *properties, int device) {
    char of_13[BYTES_OF_13];
    const int result = cudaGetDeviceProperties(of_13, device);
    *properties = (properties_12){.processor_count = 1};
    memcpy(&properties->same, of_13, sizeof properties->same.bytes);
    return result;
}

/* cudaPointerAttributes, which CUDA 13 has room behind. */
typedef struct attributes_12 {
    int type, device;
    void *device_pointer, *host_pointer;
} attributes_12;

ASHLAR_API int cudaPointerGetAttributes(attributes_12 *attributes, const void *ptr);

int cudaPointerGetAttributes(attributes_12 *attributes, const void *ptr) {
    char of_13[BYTES_OF_13];
    void *address = dlsym(RTLD_NEXT, "cudaPointerGetAttributes");
    int (*ask)(void *attributes, const void *ptr);
    memcpy(&ask, &address, sizeof ask);
    const int result = ask(of_13, ptr);
    memcpy(attributes, of_13, sizeof *attributes);
    return result;
}
