/*
 * cudart_rest.c - functions of CUDA's runtime that PyTorch 2.11 to 2.15 have to find before they
 * begin, and that do nothing here: with LD_PRELOAD beside the small runtime it then takes, copies
 * and fills memory, and captures graphs. Kernels are launched and do nothing.
 */
#include <stddef.h>
#include <string.h>

#include <ashlar/base.h>

#define NAMES(X)                                              \
    X(__cudaGetKernel)                                        \
    X(__cudaInitModule)                                       \
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
    X(cudaGraphAddEmptyNode)                                  \
    X(cudaGraphAddNode)                                       \
    X(cudaGraphConditionalHandleCreate)                       \
    X(cudaGraphDebugDotPrint)                                 \
    X(cudaGraphGetNodes)                                      \
    X(cudaGraphNodeGetDependencies)                           \
    X(cudaGraphNodeGetType)                                   \
    X(cudaGraphRetainUserObject)                              \
    X(cudaHostRegister)                                       \
    X(cudaHostUnregister)                                     \
    X(cudaIpcCloseMemHandle)                                  \
    X(cudaIpcGetEventHandle)                                  \
    X(cudaIpcOpenEventHandle)                                 \
    X(cudaIpcOpenMemHandle)                                   \
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

/* As PyTorch calls it: of what it may be asked besides, that asks nothing. */
ASHLAR_API int cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                                unsigned int version, unsigned long long flags,
                                                int *found);
ASHLAR_API int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id);

int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) {
    void *address = NULL;
    int found, (*ask)(void *stream, int *status, unsigned long long *id);
    const int result =
        cudaGetDriverEntryPointByVersion("cuStreamGetCaptureInfo", &address, 10010, 0, &found);
    memcpy(&ask, &address, sizeof ask);
    return result == 0 ? ask(stream, status, id) : result;
}
