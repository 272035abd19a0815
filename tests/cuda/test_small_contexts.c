/*
 * test_small_contexts.c - the fake driver is as strict as a real one where a test of ours would
 * otherwise pass that must not: contexts are apart and take memory, as graphs do, calls wait
 * for no more than they must, and mapped memory is told of by its handles and has no CUDA IPC.
 *
 * Run with the folder of the fake libcuda.so.1 first in LD_LIBRARY_PATH.
 */
#include "tests/check.h"

#include <dlfcn.h>
#include <stdint.h>

#include "allocator/driver/cuda_abi.h"

#define MIB ((size_t)1 << 20)
#define PER_THREAD ((cu_stream)(uintptr_t)CU_STREAM_PER_THREAD)
enum {
    POINTER_CONTEXT = 1,
    POINTER_IS_IPC_CAPABLE = 10,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12,
    POINTER_MAPPING_SIZE = 18,
    POINTER_MAPPING_BASE = 19
};

#define CALLS(X)                                                                                 \
    X(init, cuInit, (unsigned int flags))                                                        \
    X(retain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                \
    X(ctx_create, cuCtxCreate_v2, (cu_context * context, unsigned int flags, cu_device device))  \
    X(ctx_destroy, cuCtxDestroy_v2, (cu_context context))                                        \
    X(ctx_set, cuCtxSetCurrent, (cu_context context))                                            \
    X(ctx_synchronize, cuCtxSynchronize, (void))                                                 \
    X(get_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                    \
    X(mem_alloc, cuMemAlloc_v2, (cu_ptr * ptr, size_t bytes))                                    \
    X(mem_alloc_async, cuMemAllocAsync, (cu_ptr * ptr, size_t bytes, cu_stream stream))          \
    X(mem_free, cuMemFree_v2, (cu_ptr ptr))                                                      \
    X(copy_to, cuMemcpyHtoD_v2, (cu_ptr dst, const void *src, size_t bytes))                     \
    X(copy_back, cuMemcpyDtoH_v2, (void *dst, cu_ptr src, size_t bytes))                         \
    X(copy, cuMemcpyDtoD_v2, (cu_ptr dst, cu_ptr src, size_t bytes))                             \
    X(fill, cuMemsetD8_v2, (cu_ptr dst, unsigned char value, size_t bytes))                      \
    X(host_alloc, cuMemHostAlloc, (void **ptr, size_t bytes, unsigned int flags))                \
    X(reserve, cuMemAddressReserve,                                                              \
      (cu_ptr * ptr, size_t bytes, size_t align, cu_ptr hint, unsigned long long flags))         \
    X(create, cuMemCreate,                                                                       \
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags)) \
    X(map, cuMemMap,                                                                             \
      (cu_ptr ptr, size_t bytes, size_t offset, cu_mem_handle handle, unsigned long long flags)) \
    X(set_access, cuMemSetAccess,                                                                \
      (cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count))                     \
    X(address_range, cuMemGetAddressRange_v2, (cu_ptr * base, size_t * bytes, cu_ptr ptr))       \
    X(ipc_get, cuIpcGetMemHandle, (void *handle, cu_ptr ptr))                                    \
    X(pointer, cuPointerGetAttribute, (void *data, unsigned int attribute, cu_ptr ptr))          \
    X(launch_host, cuLaunchHostFunc, (cu_stream stream, cu_host_fn fn, void *user_data))         \
    X(stream_create, cuStreamCreate, (cu_stream * stream, unsigned int flags))                   \
    X(stream_get_ctx, cuStreamGetCtx, (cu_stream stream, cu_context * context))                  \
    X(stream_get_id, cuStreamGetId, (cu_stream stream, unsigned long long *id))                  \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                           \
    X(stream_wait, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned int flags))    \
    X(event_create, cuEventCreate, (cu_event * event, unsigned int flags))                       \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                           \
    X(event_query, cuEventQuery, (cu_event event))                                               \
    X(begin_capture, cuStreamBeginCapture_v2, (cu_stream stream, unsigned int mode))             \
    X(end_capture, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                     \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                            \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                          \
    X(graph_launch, cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                       \
    X(graph_exec_destroy, cuGraphExecDestroy, (cu_graph_exec exec))                              \
    X(module_load, cuModuleLoadData, (cu_module * module, const void *image))                    \
    X(module_unload, cuModuleUnload, (cu_module module))                                         \
    X(get_function, cuModuleGetFunction,                                                         \
      (cu_function * function, cu_module module, const char *name))                              \
    X(launch, cuLaunchKernel,                                                                    \
      (cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,      \
       unsigned int block_x, unsigned int block_y, unsigned int block_z,                         \
       unsigned int shared_bytes, cu_stream stream, void **params, void **extra))

static struct {
#define X(field, name, params) cu_result(*field) params;
    CALLS(X)
#undef X
} cu;

static cu_context made, primary;

static bool set_up(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL || dlsym(library, "ashlar_fake_libcuda") == NULL) {
        return false;
    }
#define X(field, name, params)                       \
    {                                                \
        void *address = dlsym(library, #name);       \
        memcpy(&cu.field, &address, sizeof address); \
        if (address == NULL) {                       \
            return false;                            \
        }                                            \
    }
    CALLS(X)
#undef X
    return cu.init(0) == CU_SUCCESS && cu.retain(&primary, 0) == CU_SUCCESS &&
           cu.ctx_set(primary) == CU_SUCCESS && cu.ctx_create(&made, 0, 0) == CU_SUCCESS;
}

static size_t free_bytes_now(void) {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cu.get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    return free_bytes;
}

static void count_up(void *user_data) {
    ++*(int *)user_data;
}

/* The first case: nothing has been freed yet. */
CASE(contexts_and_modules_take_memory) {
    static const unsigned int image[2] = {0xBA55ED50u}; /* as a compiled one begins */
    cu_module module;
    REQUIRE(set_up());
    const size_t with_two = free_bytes_now();
    CHECK(cu.module_load(&module, image) == CU_SUCCESS);
    CHECK_ZU(free_bytes_now(), with_two - 2 * MIB);
    CHECK(cu.module_unload(module) == CU_SUCCESS);
    CHECK_ZU(free_bytes_now(), with_two);
    CHECK(cu.module_load(&module, image) == CU_SUCCESS); /* goes with its context */
    CHECK(cu.ctx_destroy(made) == CU_SUCCESS && cu.ctx_set(primary) == CU_SUCCESS);
    CHECK_ZU(free_bytes_now(), with_two + 2 * MIB);
    CHECK(cu.module_unload(module) == CU_INVALID_HANDLE);
}

/* NVIDIA's "API synchronization behavior": a stream is done before pageable bytes are staged, which
 * then need not have arrived; the host waits for page-locked ones, and for what it reads. */
CASE(synchronous_calls_wait_for_no_more_than_they_must) {
    unsigned char mine[1] = {5}, *pinned = NULL;
    int ran = 0;
    cu_ptr a = 0, b = 0;
    REQUIRE(set_up() && cu.mem_alloc(&a, 1) == CU_SUCCESS && cu.mem_alloc(&b, 1) == CU_SUCCESS);
    REQUIRE(cu.host_alloc((void **)&pinned, 1, 0) == CU_SUCCESS);
    const unsigned char *const on_a = (void *)(uintptr_t)a, *const on_b = (void *)(uintptr_t)b;
    CHECK(cu.fill(a, 1, 1) == CU_SUCCESS && cu.copy(b, a, 1) == CU_SUCCESS);
    CHECK(*on_a == 0 && *on_b == 0);
    CHECK(cu.launch_host(NULL, count_up, &ran) == CU_SUCCESS);
    CHECK(cu.copy_to(a, mine, 1) == CU_SUCCESS && ran == 1 && *on_a == 1 && *on_b == 1);
    mine[0] = 6;
    *pinned = 7;
    CHECK(cu.copy_to(b, pinned, 1) == CU_SUCCESS && *on_a == 5 && *on_b == 7);
    CHECK(cu.copy(a, b, 1) == CU_SUCCESS && cu.copy_back(mine, a, 1) == CU_SUCCESS);
    CHECK(mine[0] == 7 && cu.ctx_destroy(made) == CU_SUCCESS);
}

/* What the driver says of a pointer, where blocks share a page. */
static bool is_told(cu_ptr ptr, cu_ptr block, size_t block_bytes, cu_ptr page) {
    cu_ptr base = 0, start = 0, mapping = 0;
    size_t bytes = 0, range = 0, mapped = 0;
    return cu.address_range(&base, &bytes, ptr) == CU_SUCCESS &&
           cu.pointer(&start, POINTER_RANGE_START, ptr) == CU_SUCCESS &&
           cu.pointer(&range, POINTER_RANGE_SIZE, ptr) == CU_SUCCESS &&
           cu.pointer(&mapping, POINTER_MAPPING_BASE, ptr) == CU_SUCCESS &&
           cu.pointer(&mapped, POINTER_MAPPING_SIZE, ptr) == CU_SUCCESS && base == block &&
           bytes == block_bytes && start == block && range == block_bytes && mapping == page &&
           mapped == 2 * MIB;
}

CASE(small_blocks_share_pages_of_their_context_and_are_told_of_apart) {
    unsigned char ipc[64];
    cu_ptr first = 0, second = 0, pooled = 0, other = 0, found = 0;
    REQUIRE(set_up());
    const size_t before = free_bytes_now();
    CHECK(cu.mem_alloc(&first, 1000) == CU_SUCCESS && cu.mem_alloc(&second, 3) == CU_SUCCESS);
    CHECK(cu.mem_alloc_async(&pooled, 5, NULL) == CU_SUCCESS && second == first + 1024);
    CHECK_ZU(free_bytes_now(), before - 2 * MIB);
    CHECK(cu.ctx_set(primary) == CU_SUCCESS && cu.mem_alloc(&other, 1) == CU_SUCCESS);
    CHECK_ZU(free_bytes_now(), before - 4 * MIB);
    CHECK(cu.ctx_set(made) == CU_SUCCESS);
    CHECK(is_told(first, first, 1000, first) && is_told(first + 999, first, 1000, first));
    CHECK(is_told(second + 2, second, 3, first) && is_told(pooled, pooled, 5, first));
    CHECK(cu.address_range(&found, NULL, first + 1000) == CU_NOT_FOUND);
    CHECK(cu.pointer(&found, POINTER_RANGE_START, second + 3) == CU_INVALID_VALUE);
    CHECK(cu.ipc_get(ipc, second + 2) == CU_SUCCESS && cu.ipc_get(ipc, second + 3) != CU_SUCCESS);
    CHECK(cu.mem_free(first) == CU_SUCCESS && is_told(second, second, 3, first));
    CHECK(cu.ipc_get(ipc, first) == CU_INVALID_VALUE);
    CHECK(cu.ctx_destroy(made) == CU_SUCCESS && cu.ctx_set(primary) == CU_SUCCESS);
    CHECK_ZU(free_bytes_now(), before); /* other's page, and not the context's own */
    CHECK(cu.address_range(&found, NULL, other) == CU_SUCCESS && found == other);
    CHECK(cu.mem_free(other) == CU_SUCCESS);
}

RUN_CASES()
