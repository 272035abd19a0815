/*
 * cudart_rest.c - functions of CUDA's runtime that PyTorch 2.15 has to find before it begins, and
 * that do nothing here: with LD_PRELOAD beside the small runtime it then takes, copies and fills
 * memory, and captures graphs. Kernels are launched and do nothing.
 */
#include <stddef.h>

#include <ashlar/export.h>

#define NAMES(X)                                              \
    X(__cudaGetKernel)                                        \
    X(__cudaLaunchKernel)                                     \
    X(__cudaPopCallConfiguration)                             \
    X(__cudaPushCallConfiguration)                            \
    X(__cudaRegisterFatBinaryEnd)                             \
    X(__cudaRegisterFunction)                                 \
    X(__cudaRegisterVar)                                      \
    X(__cudaUnregisterFatBinary)                              \
    X(cudaDeviceGetGraphMemAttribute)                         \
    X(cudaDeviceGetPCIBusId)                                  \
    X(cudaDeviceSetGraphMemAttribute)                         \
    X(cudaFuncGetAttributes)                                  \
    X(cudaFuncSetAttribute)                                   \
    X(cudaGetSymbolAddress)                                   \
    X(cudaGraphAddNode)                                       \
    X(cudaGraphConditionalHandleCreate)                       \
    X(cudaGraphGetNodes)                                      \
    X(cudaGraphNodeGetDependencies)                           \
    X(cudaGraphRetainUserObject)                              \
    X(cudaHostRegister)                                       \
    X(cudaHostUnregister)                                     \
    X(cudaIpcGetEventHandle)                                  \
    X(cudaIpcOpenEventHandle)                                 \
    X(cudaKernelSetAttributeForDevice)                        \
    X(cudaLaunchCooperativeKernel)                            \
    X(cudaLaunchKernel)                                       \
    X(cudaLaunchKernelExC)                                    \
    X(cudaLibraryGetGlobal)                                   \
    X(cudaLibraryGetKernel)                                   \
    X(cudaLibraryGetKernelCount)                              \
    X(cudaLibraryGetManaged)                                  \
    X(cudaLibraryGetUnifiedFunction)                          \
    X(cudaLibraryLoadData)                                    \
    X(cudaLibraryLoadFromFile)                                \
    X(cudaLibraryUnload)                                      \
    X(cudaMemPoolSetAccess)                                   \
    X(cudaMemcpyToSymbol)                                     \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessor)          \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    X(cudaProfilerStart)                                      \
    X(cudaProfilerStop)                                       \
    X(cudaStreamAddCallback)                                  \
    X(cudaStreamBeginCaptureToGraph)                          \
    X(cudaStreamUpdateCaptureDependencies)                    \
    X(cudaUserObjectCreate)                                   \
    X(cudaUserObjectRelease)

#define X(name)                 \
    ASHLAR_API int name(void);  \
    int name(void) {            \
        return 0; /* success */ \
    }
NAMES(X)
#undef X

/* What a program registers its kernels with. */
ASHLAR_API void **__cudaRegisterFatBinary(const void *image);

void **__cudaRegisterFatBinary(const void *image) {
    static void *handle[1];
    (void)image;
    return handle;
}

/* Of what it may be asked besides, PyTorch asks nothing. */
ASHLAR_API int cudaStreamIsCapturing(void *stream, int *status);
ASHLAR_API int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id);

int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
    if (id != NULL) {
        *id = 1;
    }
    return cudaStreamIsCapturing(stream, status);
}
