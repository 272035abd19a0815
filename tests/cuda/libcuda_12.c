/*
 * libcuda_12.c - the way into a driver of CUDA 12 and later: by cuGetProcAddress_v2(), or by the
 * names that cuda.h gives the functions.
 *
 * Those are no functions of C: for most of them nothing is known here but that another has the same
 * parameters, so that a jump is all of their body.
 */
#include <string.h>

#include "libcuda.h"

#if defined(__x86_64__)
#define JUMP "jmp "
#elif defined(__aarch64__)
#define JUMP "b "
#else
#error "libcuda_12.c: the jump of this processor is wanted here"
#endif

#define NAME(symbol, function)                                                 \
    __asm__(".text\n"                                                          \
            ".globl " #symbol "\n"                                             \
            ".type " #symbol ", @function\n" #symbol ":\n" JUMP #function "\n" \
            ".size " #symbol ", . - " #symbol);
#define SOFT(symbol, field) NAME(symbol, ashlar__soft_##field)
#define FAKE(symbol, field) NAME(symbol, ashlar_fake_##field)

FAKE(cuInit, init)
SOFT(cuDriverGetVersion, driver_get_version)
SOFT(cuGetErrorName, get_error_name)
SOFT(cuGetErrorString, get_error_string)
FAKE(cuDeviceGetCount, device_get_count)
SOFT(cuDeviceGet, device_get)
SOFT(cuDeviceGetName, device_get_name)
SOFT(cuDeviceTotalMem_v2, device_total_mem)
FAKE(cuDeviceGetAttribute, device_get_attribute)
FAKE(cuDeviceGetUuid_v2, device_get_uuid)
FAKE(cuCtxGetStreamPriorityRange, stream_priority_range)
SOFT(cuMemGetInfo_v2, mem_get_info)
SOFT(cuDevicePrimaryCtxRetain, primary_ctx_retain)
FAKE(cuDevicePrimaryCtxRelease_v2, primary_ctx_release)
SOFT(cuDevicePrimaryCtxGetState, primary_ctx_get_state)
FAKE(cuDevicePrimaryCtxReset_v2, primary_ctx_reset)
FAKE(cuCtxGetCurrent, ctx_get_current)
FAKE(cuCtxSetCurrent, ctx_set_current)
FAKE(cuCtxGetDevice, ctx_get_device)
FAKE(cuCtxCreate_v2, ctx_create)
FAKE(cuCtxDestroy_v2, ctx_destroy)
SOFT(cuCtxPushCurrent_v2, ctx_push_current)
SOFT(cuCtxPopCurrent_v2, ctx_pop_current)
FAKE(cuCtxSynchronize, ctx_synchronize)
FAKE(cuCtxSynchronize_v2, ctx_synchronize_v2)
FAKE(cuMemAlloc_v2, mem_alloc)
SOFT(cuMemFree_v2, mem_free)
FAKE(cuMemCreate, mem_create)
FAKE(cuMemAllocPitch_v2, mem_alloc_pitch)
FAKE(cuMemAllocManaged, mem_alloc_managed)
FAKE(cuMemAllocAsync, mem_alloc_async)
FAKE(cuMemFreeAsync, mem_free_async)
FAKE(cuMemAllocAsync_ptsz, mem_alloc_async_ptsz)
FAKE(cuMemFreeAsync_ptsz, mem_free_async_ptsz)
FAKE(cuMemAllocFromPoolAsync, mem_alloc_from_pool_async)
FAKE(cuMemAllocFromPoolAsync_ptsz, mem_alloc_from_pool_async_ptsz)
FAKE(cuDeviceGetDefaultMemPool, default_pool)
FAKE(cuDeviceGetMemPool, get_pool)
FAKE(cuDeviceSetMemPool, set_pool)
FAKE(cuMemGetDefaultMemPool, mem_default_pool)
FAKE(cuMemGetMemPool, mem_get_pool)
FAKE(cuMemSetMemPool, mem_set_pool)
FAKE(cuMemPoolCreate, pool_create)
FAKE(cuMemPoolDestroy, pool_destroy)
FAKE(cuMemPoolTrimTo, pool_trim_to)
FAKE(cuMemPoolSetAttribute, pool_set_attribute)
FAKE(cuMemPoolGetAttribute, pool_get_attribute)
SOFT(cuMemGetAllocationGranularity, mem_get_allocation_granularity)
SOFT(cuMemAddressReserve, mem_address_reserve)
SOFT(cuMemAddressFree, mem_address_free)
SOFT(cuMemRelease, mem_release)
SOFT(cuMemMap, mem_map)
SOFT(cuMemUnmap, mem_unmap)
SOFT(cuMemSetAccess, mem_set_access)
SOFT(cuMemcpyPeerAsync, memcpy_peer_async)
SOFT(cuDeviceCanAccessPeer, device_can_access_peer)
SOFT(cuCtxEnablePeerAccess, ctx_enable_peer_access)
FAKE(cuMemGetAddressRange_v2, mem_get_address_range)
FAKE(cuPointerGetAttribute, pointer_get_attribute)
FAKE(cuPointerGetAttributes, pointer_get_attributes)
FAKE(cuMemRetainAllocationHandle, mem_retain_handle)
FAKE(cuIpcGetMemHandle, ipc_get_mem_handle)
FAKE(cuMemHostRegister_v2, mem_host_register)
FAKE(cuMemHostUnregister, mem_host_unregister)
FAKE(cuMemHostGetDevicePointer_v2, mem_host_get_device_pointer)
FAKE(cuMemcpyHtoD_v2, memcpy_htod)
FAKE(cuMemcpyDtoH_v2, memcpy_dtoh)
FAKE(cuMemcpyDtoD_v2, memcpy_dtod)
FAKE(cuMemsetD8_v2, memset_d8)
SOFT(cuMemHostAlloc, mem_host_alloc)
SOFT(cuMemFreeHost, mem_free_host)
FAKE(cuMemcpyHtoDAsync_v2, memcpy_htod_async)
FAKE(cuMemcpyDtoHAsync_v2, memcpy_dtoh_async)
FAKE(cuMemcpyDtoDAsync_v2, memcpy_dtod_async)
FAKE(cuMemsetD8Async, memset_d8_async)
SOFT(cuLaunchHostFunc, launch_host_func)
SOFT(cuStreamCreate, stream_create)
FAKE(cuStreamCreateWithPriority, stream_create_with_priority)
SOFT(cuStreamDestroy_v2, stream_destroy)
SOFT(cuStreamWaitEvent, stream_wait_event)
SOFT(cuStreamSynchronize, stream_synchronize)
SOFT(cuStreamQuery, stream_query)
FAKE(cuStreamAddCallback, stream_add_callback)
FAKE(cuStreamGetCtx, stream_get_ctx)
FAKE(cuStreamGetFlags, stream_get_flags)
FAKE(cuStreamGetPriority, stream_get_priority)
FAKE(cuStreamGetCaptureInfo, stream_get_capture_info)
SOFT(cuStreamGetId, stream_get_id)
FAKE(cuStreamBeginCapture, stream_begin_capture_v1)
SOFT(cuStreamBeginCapture_v2, stream_begin_capture)
SOFT(cuStreamEndCapture, stream_end_capture)
/* For streams that are named: */
FAKE(cuStreamBeginCapture_ptsz, stream_begin_capture_v1)
SOFT(cuStreamBeginCapture_v2_ptsz, stream_begin_capture)
SOFT(cuStreamEndCapture_ptsz, stream_end_capture)
SOFT(cuStreamIsCapturing, stream_is_capturing)
SOFT(cuEventCreate, event_create)
SOFT(cuEventDestroy_v2, event_destroy)
FAKE(cuEventRecord, event_record)
SOFT(cuEventQuery, event_query)
SOFT(cuEventSynchronize, event_synchronize)
FAKE(cuEventElapsedTime, event_elapsed_time)
SOFT(cuThreadExchangeStreamCaptureMode, thread_exchange_capture_mode)
FAKE(cuGraphInstantiateWithFlags, graph_instantiate)
FAKE(cuGraphLaunch, graph_launch)
FAKE(cuGraphExecDestroy, graph_exec_destroy)
SOFT(cuGraphDestroy, graph_destroy)
FAKE(cuModuleLoadData, module_load_data)
FAKE(cuModuleUnload, module_unload)
FAKE(cuModuleGetFunction, module_get_function)
FAKE(cuLaunchKernel, launch_kernel)

ASHLAR_API cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version,
                                         unsigned long long flags, unsigned int *found);

/* As the driver's, it finds itself. */
cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version,
                              unsigned long long flags, unsigned int *found) {
    cu_result (*self)(const char *, void **, int, unsigned long long, unsigned int *) =
        cuGetProcAddress_v2;
    unsigned int unused;
    if (symbol == NULL || address == NULL) {
        return CU_INVALID_VALUE;
    }
    if (strcmp(symbol, "cuGetProcAddress") == 0) {
        memcpy(address, &self, sizeof *address);
        return CU_SUCCESS;
    }
    return ashlar_fake_find(13000, symbol, address, version, flags,
                            found != NULL ? found : &unused);
}
