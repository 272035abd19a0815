/*
 * driver_cuda_check.c - proof, at compile time, that cuda_abi.h and driver.h agree with CUDA.
 *
 * Built only if CUDA's headers are present; contains no code.
 */
#include "allocator/driver/driver.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#define SAME_SIZE(ours, theirs)                                                          \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), \
                   #ours " and " #theirs)
#define SAME_TYPE(ours, theirs) \
    _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours " and " #theirs)
#define SAME_FIELD(ours, our_field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field), \
                   #ours "." #our_field)
#define SAME_VALUE(ours, theirs) \
    _Static_assert((long long)(ours) == (long long)(theirs), #ours " and " #theirs)

/* Types. */
SAME_TYPE(cu_result, CUresult);
SAME_TYPE(cu_device, CUdevice);
SAME_TYPE(cu_ptr, CUdeviceptr);
SAME_TYPE(cu_mem_handle, CUmemGenericAllocationHandle);
SAME_TYPE(cu_context, CUcontext);
SAME_TYPE(cu_stream, CUstream);
SAME_TYPE(cu_event, CUevent);
SAME_TYPE(cu_graph, CUgraph);
SAME_TYPE(cu_graph_exec, CUgraphExec);
SAME_TYPE(cu_host_fn, CUhostFn);
SAME_TYPE(cu_module, CUmodule);
SAME_TYPE(cu_function, CUfunction);
SAME_SIZE(cu_mem_location, CUmemLocation);
SAME_SIZE(cu_mem_prop, CUmemAllocationProp);
SAME_SIZE(cu_mem_access, CUmemAccessDesc);

SAME_FIELD(cu_mem_location, type, CUmemLocation, type);
SAME_FIELD(cu_mem_location, id, CUmemLocation, id);
SAME_FIELD(cu_mem_prop, type, CUmemAllocationProp, type);
SAME_FIELD(cu_mem_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(cu_mem_prop, location, CUmemAllocationProp, location);
SAME_FIELD(cu_mem_prop, win32_metadata, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(cu_mem_prop, flags, CUmemAllocationProp, allocFlags);
SAME_FIELD(cu_mem_prop, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(cu_mem_prop, flags.rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_FIELD(cu_mem_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_FIELD(cu_mem_prop, flags.reserved, CUmemAllocationProp, allocFlags.reserved);
SAME_FIELD(cu_mem_access, location, CUmemAccessDesc, location);
SAME_FIELD(cu_mem_access, flags, CUmemAccessDesc, flags);

/* Constants. CUDA_SUCCESS is the only result code without ERROR in its name. */
#define CUDA_ERROR_SUCCESS CUDA_SUCCESS
#define X(name, value) SAME_VALUE(CU_##name, CUDA_ERROR_##name);
CU_RESULT_MAP(X)
#undef X
SAME_VALUE(CU_ATTRIBUTE_VMM_SUPPORTED, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(CU_ATTRIBUTE_HANDLE_FILE,
           CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_VALUE(CU_ATTRIBUTE_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME_VALUE(CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME_VALUE(CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME_VALUE(CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(CU_HANDLE_FILE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(CU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME_VALUE(CU_STREAM_BLOCKING, CU_STREAM_DEFAULT);
SAME_VALUE(CU_STREAM_UNORDERED, CU_STREAM_NON_BLOCKING);
SAME_VALUE(CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME_VALUE(CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME_VALUE(CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_VALUE(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_VALUE(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_VALUE(CU_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);

/* Functions: each entry of ASHLAR_DRIVER_MAP has the type that CUDA gives this symbol in this
 * version. For this check CUDA's structs take the place of ours, which were shown equal above. */
#define cu_mem_prop CUmemAllocationProp
#define cu_mem_access CUmemAccessDesc
/* cuda.h defines these names as macros for versioned names, such as cuMemFree_v2. The typedefs
 * below are built from the plain names. */
#undef cuDeviceTotalMem
#undef cuMemGetInfo
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemHostAlloc
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyDtoDAsync
#undef cuMemsetD8Async
#undef cuDevicePrimaryCtxRelease
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuCtxSynchronize
#undef cuStreamDestroy
#undef cuStreamBeginCapture
#undef cuEventDestroy
#define X(field, symbol, version, kind, safety, params) \
    SAME_TYPE(cu_result(*) params, PFN_##symbol##_v##version);
ASHLAR_DRIVER_MAP(X)
#undef X
