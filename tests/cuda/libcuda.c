/*
 * libcuda.c - a libcuda.so.1 for tests: the software device behind NVIDIA's way in, which is
 * libcuda_12.c or libcuda_11.c.
 *
 * Linked with its own copy of the software device. The environment variable FAKE_CUDA makes it
 * misbehave: "nodevice" (a driver without a device), "stub" (the toolkit's library for linking),
 * "old" (a driver without cuMemCreate), "broken" (cuInit fails), "nobinary" and "oldptx" (a module
 * that is for other devices, or newer drivers), "wrong" and "wronggraph" (Adam writes a wrong
 * byte, always or in graphs). `newest` is the CUDA version of the driver that it plays. Kernels are
 * libcuda_kernels.c.
 */
#include "libcuda.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/soft/soft_state.h"
#include "tests/cuda/fake_driver.h"

/* Flags of cuGetProcAddress: what stream NULL means to the function. */
enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

/* What a test looks for to know that it has found this library and not a real driver. */
extern ASHLAR_API const int ashlar_fake_libcuda;
const int ashlar_fake_libcuda = 1;

static _Atomic unsigned long long memory_calls;

unsigned long long ashlar_fake_memory_calls(void) {
    return atomic_load(&memory_calls);
}

static _Atomic unsigned long long event_records;

unsigned long long ashlar_fake_event_records(void) {
    return atomic_load(&event_records);
}

/* Calls that map memory or ask about the order of work, beside those counted above. */
#define COUNTED_MAP(X)                                                                           \
    X(mem_release, (cu_mem_handle handle), (handle))                                             \
    X(mem_map,                                                                                   \
      (cu_ptr ptr, size_t bytes, size_t offset, cu_mem_handle handle, unsigned long long flags), \
      (ptr, bytes, offset, handle, flags))                                                       \
    X(mem_set_access, (cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count),     \
      (ptr, bytes, access, count))                                                               \
    X(event_query, (cu_event event), (event))                                                    \
    X(stream_query, (cu_stream stream), (stream))                                                \
    X(stream_is_capturing, (cu_stream stream, unsigned int *status), (stream, status))

static _Atomic unsigned long long other_calls;

#define X(field, params, args)                \
    static cu_result counted_##field params { \
        atomic_fetch_add(&other_calls, 1);    \
        return ashlar__soft_##field args;     \
    }
COUNTED_MAP(X)
#undef X

unsigned long long ashlar_fake_calls(void) {
    return atomic_load(&memory_calls) + atomic_load(&event_records) + atomic_load(&other_calls);
}

cu_result ashlar_fake_event_record(cu_event event, cu_stream stream) {
    atomic_fetch_add(&event_records, 1);
    return ashlar__soft_event_record(event, stream);
}

static bool fake_is(const char *name) {
    const char *value = getenv("FAKE_CUDA");
    return value != NULL && strcmp(value, name) == 0;
}

cu_result ashlar_fake_init(unsigned int flags) {
    return fake_is("stub")     ? CU_STUB_LIBRARY
           : fake_is("broken") ? CU_UNKNOWN
           : fake_is("absent") ? CU_NO_DEVICE
                               : ashlar__soft_init(flags);
}

cu_result ashlar_fake_device_get_count(int *count) {
    if (fake_is("uncounted") || fake_is("countless")) {
        return fake_is("uncounted") ? CU_UNKNOWN : CU_NO_DEVICE;
    }
    const cu_result result = ashlar__soft_device_get_count(count);
    if (result == CU_SUCCESS && fake_is("nodevice")) {
        *count = 0;
    }
    return result;
}

cu_result ashlar_fake_mem_alloc(cu_ptr *ptr, size_t bytes) {
    atomic_fetch_add(&memory_calls, 1);
    return ashlar__soft_mem_alloc(ptr, bytes);
}

cu_result ashlar_fake_mem_create(cu_mem_handle *handle, size_t bytes, const cu_mem_prop *prop,
                                 unsigned long long flags) {
    atomic_fetch_add(&memory_calls, 1);
    return ashlar__soft_mem_create(handle, bytes, prop, flags);
}

static ashlar_fake_unmap_fn *_Atomic on_unmap;

void ashlar_fake_on_unmap(ashlar_fake_unmap_fn *fn) {
    atomic_store(&on_unmap, fn);
}

cu_result ashlar_fake_mem_unmap(cu_ptr ptr, size_t bytes) {
    ashlar_fake_unmap_fn *fn = atomic_load(&on_unmap);
    atomic_fetch_add(&other_calls, 1);
    if (fn != NULL) {
        fn(ptr, bytes);
    }
    return ashlar__soft_mem_unmap(ptr, bytes);
}

static ashlar_driver_table make_table(void) {
    ashlar_driver_table table = {
#define X(field, symbol, version, kind, safety, params) .field = ashlar__soft_##field,
        ASHLAR_DRIVER_DEVICE_MAP(X)
#undef X
    };
#define X(field, params, args) table.field = counted_##field;
    COUNTED_MAP(X)
#undef X
    table.init = ashlar_fake_init;
    table.device_get_count = ashlar_fake_device_get_count;
    table.device_get_attribute = ashlar_fake_device_get_attribute;
    table.primary_ctx_release = ashlar_fake_primary_ctx_release;
    table.ctx_synchronize = ashlar_fake_ctx_synchronize;
    table.mem_alloc = ashlar_fake_mem_alloc;
    table.mem_create = ashlar_fake_mem_create;
    table.mem_unmap = ashlar_fake_mem_unmap;
    table.event_record = ashlar_fake_event_record;
    table.pointer_get_attribute = ashlar_fake_pointer_get_attribute;
    table.memset_d8_async = ashlar_fake_memset_d8_async;
    table.memcpy_htod_async = ashlar_fake_memcpy_htod_async;
    table.memcpy_dtoh_async = ashlar_fake_memcpy_dtoh_async;
    table.memcpy_dtod_async = ashlar_fake_memcpy_dtod_async;
    table.graph_instantiate = ashlar_fake_graph_instantiate;
    table.graph_launch = ashlar_fake_graph_launch;
    table.graph_exec_destroy = ashlar_fake_graph_exec_destroy;
    table.module_load_data = ashlar_fake_module_load_data;
    table.module_unload = ashlar_fake_module_unload;
    table.module_get_function = ashlar_fake_module_get_function;
    table.launch_kernel = ashlar_fake_launch_kernel;
    return table;
}

/* With per-thread default streams it has only what programs need that allocate so. */
static void *find_per_thread(const char *symbol) {
    cu_result (*alloc)(cu_ptr *, size_t, cu_stream) = ashlar_fake_mem_alloc_async_ptsz;
    cu_result (*give)(cu_ptr, cu_stream) = ashlar_fake_mem_free_async_ptsz;
    void *address = NULL;
    if (strcmp(symbol, "cuMemAllocAsync") == 0) {
        memcpy(&address, &alloc, sizeof address);
    } else if (strcmp(symbol, "cuMemFreeAsync") == 0) {
        memcpy(&address, &give, sizeof address);
    }
    return address;
}

static cu_result cannot(void) {
    return CU_NOT_SUPPORTED;
}

/* What PyTorch's expandable segments want to be there, and do not call. */
static void *find_uncalled(const char *symbol) {
    static const char *const symbols[] = {
        "cuMemExportToShareableHandle",   "cuMemGetAllocationPropertiesFromHandle",
        "cuMemImportFromShareableHandle", "cuMemsetD32Async",
        "cuStreamWriteValue32",
    };
    cu_result (*function)(void) = cannot;
    void *address = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (strcmp(symbol, symbols[i]) == 0) {
            memcpy(&address, &function, sizeof address);
        }
    }
    return address;
}

/* A driver answers with the newest version that is not newer than the one asked for. */
static void *find(const char *symbol, int version, int newest) {
    const ashlar_driver_table table = make_table();
    const struct {
        const char *symbol;
        int version;
        const void *function; /* where its address is stored */
    } functions[] = {
#define X(field, name, introduced, kind, safety, params) {#name, introduced, &table.field},
        ASHLAR_DRIVER_MAP(X)
#undef X
    };
    const int limit = version < newest ? version : newest;
    void *address = NULL;
    int best = 0;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(symbol, functions[i].symbol) == 0 && functions[i].version <= limit) {
            best = functions[i].version;
            memcpy(&address, functions[i].function, sizeof address);
        }
    }
#define X(field, name, introduced, params)                                            \
    if (strcmp(symbol, #name) == 0 && (introduced) <= limit && (introduced) > best) { \
        cu_result(*function) params = ashlar_fake_##field;                            \
        best = introduced;                                                            \
        memcpy(&address, &function, sizeof address);                                  \
    }
    FAKE_MORE_MAP(X)
#undef X
    return address;
}

cu_result ashlar_fake_find(int newest, const char *symbol, void **address, int version,
                           unsigned long long flags, unsigned int *found) {
    *address = NULL;
    *found = 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    if (flags > PER_THREAD_STREAM) {
        return CU_INVALID_VALUE;
    }
    if (fake_is("old") && strcmp(symbol, "cuMemCreate") == 0) {
        return CU_NOT_FOUND;
    }
    if (flags == PER_THREAD_STREAM) {
        *address = find_per_thread(symbol);
    }
    if (*address == NULL) {
        *address = find(symbol, version, newest);
    }
    if (*address == NULL) {
        *address = find_uncalled(symbol);
    }
    *found = *address == NULL;
    return *address == NULL ? CU_NOT_FOUND : CU_SUCCESS;
}
