/*
 * cuda_abi.h - the part of the CUDA driver API's binary interface that ashlar uses (internal).
 *
 * These are our own declarations, so that a build has the same types with or without CUDA's
 * headers. In builds with cuda.h, driver_cuda_check.c proves that they agree with it. CUDA's enums
 * are unsigned int here, since all known compilers represent them so.
 */
#ifndef ASHLAR_CUDA_ABI_H
#define ASHLAR_CUDA_ABI_H

#include <stddef.h>

typedef unsigned int cu_result;
typedef int cu_device;               /* an ordinal */
typedef unsigned long long cu_ptr;   /* a device address */
typedef unsigned long long cu_mem_handle;
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream; /* NULL: the legacy default stream */
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;          /* what a capture has recorded */
typedef struct CUgraphExec_st *cu_graph_exec; /* a copy of a graph that can be launched */
typedef struct CUmod_st *cu_module;           /* compiled kernels, loaded into a context */
typedef struct CUfunc_st *cu_function;        /* a kernel of a module */
typedef void (*cu_host_fn)(void *user_data);

/* The result codes that ashlar uses: name without CUDA_ERROR_, CUDA's value. */
#define CU_RESULT_MAP(X)                \
    X(SUCCESS, 0)                       \
    X(INVALID_VALUE, 1)                 \
    X(OUT_OF_MEMORY, 2)                 \
    X(NOT_INITIALIZED, 3)               \
    X(DEINITIALIZED, 4)                 \
    X(STUB_LIBRARY, 34)                 \
    X(NO_DEVICE, 100)                   \
    X(INVALID_DEVICE, 101)              \
    X(INVALID_CONTEXT, 201)             \
    X(NO_BINARY_FOR_GPU, 209)           \
    X(PEER_ACCESS_UNSUPPORTED, 217)     \
    X(UNSUPPORTED_PTX_VERSION, 222)     \
    X(OPERATING_SYSTEM, 304)            \
    X(ILLEGAL_STATE, 401)               \
    X(INVALID_HANDLE, 400)              \
    X(NOT_FOUND, 500)                   \
    X(NOT_READY, 600)                   \
    X(ILLEGAL_ADDRESS, 700)             \
    X(PEER_ACCESS_ALREADY_ENABLED, 704) \
    X(LAUNCH_FAILED, 719)               \
    X(NOT_PERMITTED, 800)               \
    X(NOT_SUPPORTED, 801)               \
    X(STREAM_CAPTURE_UNSUPPORTED, 900)  \
    X(STREAM_CAPTURE_INVALIDATED, 901)  \
    X(STREAM_CAPTURE_MERGE, 902)        \
    X(STREAM_CAPTURE_UNMATCHED, 903)    \
    X(STREAM_CAPTURE_UNJOINED, 904)     \
    X(STREAM_CAPTURE_ISOLATION, 905)    \
    X(STREAM_CAPTURE_IMPLICIT, 906)     \
    X(CAPTURED_EVENT, 907)              \
    X(STREAM_CAPTURE_WRONG_THREAD, 908) \
    X(UNKNOWN, 999)

enum {
#define X(name, value) CU_##name = (value),
    CU_RESULT_MAP(X)
#undef X
};

enum {
    CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
    CU_ATTRIBUTE_VMM_SUPPORTED = 102, /* ...VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    CU_ATTRIBUTE_HANDLE_FILE = 103,   /* ...HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
    CU_ATTRIBUTE_RDMA = 110,          /* ...GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
    CU_POINTER_MEMORY_TYPE = 2,       /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE; its two values: */
    CU_MEMORY_HOST = 1,               /* CU_MEMORYTYPE_HOST: page-locked host memory */
    CU_MEMORY_DEVICE = 2,
    CU_ALLOCATION_PINNED = 1,
    CU_LOCATION_DEVICE = 1,
    CU_ACCESS_NONE = 0,
    CU_ACCESS_READWRITE = 3,
    CU_HANDLE_FILE = 1, /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
    CU_GRANULARITY_MINIMUM = 0,
    CU_GRANULARITY_RECOMMENDED = 1,
    CU_STREAM_LEGACY = 1,     /* a stream handle, not a flag: means the same as NULL */
    CU_STREAM_PER_THREAD = 2, /* a stream handle: the calling thread's default stream */
    CU_STREAM_BLOCKING = 0,   /* CU_STREAM_DEFAULT: ordered with the legacy stream */
    CU_STREAM_UNORDERED = 1,  /* CU_STREAM_NON_BLOCKING */
    CU_EVENT_NO_TIMING = 2,   /* CU_EVENT_DISABLE_TIMING */
    CU_HOST_PORTABLE = 1,     /* CU_MEMHOSTALLOC_PORTABLE */
    CU_CAPTURE_GLOBAL = 0,    /* CU_STREAM_CAPTURE_MODE_...: which threads' calls it forbids */
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_CAPTURE_RELAXED = 2,
    CU_CAPTURE_NONE = 0, /* CU_STREAM_CAPTURE_STATUS_... */
    CU_CAPTURE_ACTIVE = 1,
    CU_CAPTURE_INVALIDATED = 2,
};

typedef struct cu_mem_location {
    unsigned int type; /* CU_LOCATION_DEVICE */
    int id;            /* device ordinal */
} cu_mem_location;

typedef struct cu_mem_prop {
    unsigned int type;           /* CU_ALLOCATION_PINNED */
    unsigned int handle_types;   /* CU_HANDLE_...; 0: not shareable */
    cu_mem_location location;
    void *win32_metadata;
    struct {
        unsigned char compression;
        unsigned char rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} cu_mem_prop;

typedef struct cu_mem_access {
    cu_mem_location location;
    unsigned int flags; /* CU_ACCESS_READWRITE */
} cu_mem_access;

/* Sizes in CUDA's 64-bit binary interface; builds without its headers check them as well. */
_Static_assert(sizeof(cu_result) == 4 && sizeof(cu_ptr) == 8, "enums are 32 bits, addresses 64");
_Static_assert(sizeof(void *) <= sizeof(cu_ptr), "a pointer goes through cu_ptr and back");
_Static_assert(sizeof(cu_mem_location) == 8 && sizeof(cu_mem_access) == 12, "no padding");
_Static_assert(sizeof(void *) != 8 || sizeof(cu_mem_prop) == 32, "no padding");

#endif /* ASHLAR_CUDA_ABI_H */
