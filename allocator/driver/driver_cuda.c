/* driver_cuda.c - finding NVIDIA's driver at run time, and filling the driver table from it. */
#include "allocator/driver/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/threads.h"

/* cuGetProcAddress: v2 as of CUDA 12, v1 as of CUDA 11.3. */
typedef cu_result (*get_proc_v2_fn)(const char *symbol, void **address, int version,
                                    unsigned long long flags, unsigned int *found);
typedef cu_result (*get_proc_v1_fn)(const char *symbol, void **address, int version,
                                    unsigned long long flags);

/* CU_GET_PROC_ADDRESS_LEGACY_STREAM: functions that take stream NULL as the legacy default stream,
 * as the driver table requires. */
enum { LEGACY_STREAM_FUNCTIONS = 1 };

typedef struct proc_lookup {
    get_proc_v2_fn v2;
    get_proc_v1_fn v1; /* used only if v2 is NULL */
} proc_lookup;

_Static_assert(sizeof(void *) == sizeof(get_proc_v2_fn), "POSIX: dlsym finds functions too");

static const char stub_detail[] =
    "libcuda.so.1 is the CUDA toolkit's stub for linking, not a driver: take the toolkit's stubs "
    "folder out of LD_LIBRARY_PATH";

/* Set *function, which is a function pointer, by copying: ISO C has no cast to one. */
static void store_function(void *function, const void *address) {
    memcpy(function, &address, sizeof address);
}

static ashlar_status too_old(const char *symbol, int version) {
    return ashlar__fail(
        ASHLAR_ENODEVICE,
        "libcuda.so.1 is too old: it lacks %s of CUDA %d.%d; install a newer NVIDIA "
        "driver",
        symbol, version / 1000, version % 1000 / 10);
}

static ashlar_status open_library(proc_lookup *out) {
    /* Never closed, even after a failure: a driver that has run keeps threads and handlers. */
    static void *library;
    if (library == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    }
    ASHLAR_FAIL_IF(library == NULL, ASHLAR_ENODEVICE,
                   "libcuda.so.1 was not found: install NVIDIA's driver, or use the "
                   "software device with ASHLAR_DEVICE=soft (%s)",
                   dlerror());
    store_function(&out->v2, dlsym(library, "cuGetProcAddress_v2"));
    store_function(&out->v1, dlsym(library, "cuGetProcAddress"));
    return out->v2 == NULL && out->v1 == NULL ? too_old("cuGetProcAddress", 11030) : ASHLAR_OK;
}

/* The stand-in for cuStreamGetId, which a driver may lack. */
static cu_result no_stream_id(cu_stream stream, unsigned long long *id) {
    (void)stream;
    (void)id;
    return CU_NOT_SUPPORTED;
}

/* Set *function to the driver's function `symbol`. If the driver lacks it, *function keeps its
 * stand-in; without a stand-in that is an error. */
static ashlar_status find_function(const proc_lookup *lookup, const char *symbol, int version,
                                   bool has_stand_in, void *function) {
    void *address = NULL;
    unsigned int found = 0;
    const cu_result result =
        lookup->v2 != NULL ? lookup->v2(symbol, &address, version, LEGACY_STREAM_FUNCTIONS, &found)
                           : lookup->v1(symbol, &address, version, LEGACY_STREAM_FUNCTIONS);
    ASHLAR_FAIL_IF(result == CU_STUB_LIBRARY, ASHLAR_ENODEVICE, "%s", stub_detail);
    if (result != CU_SUCCESS || address == NULL) {
        return has_stand_in ? ASHLAR_OK : too_old(symbol, version);
    }
    store_function(function, address);
    return ASHLAR_OK;
}

static bool is_full(const ashlar_driver_table *table) {
#define X(field, symbol, version, kind, safety, params) &&table->field != NULL
    return true ASHLAR_DRIVER_MAP(X);
#undef X
}

static ashlar_status fill_table(ashlar_driver_table *table) {
    proc_lookup lookup = {0};
    ashlar_status status = open_library(&lookup);
    *table = (ashlar_driver_table){.stream_get_id = no_stream_id};
#define X(field, symbol, version, kind, safety, params)                                         \
    if (status == ASHLAR_OK) {                                                                  \
        status = find_function(&lookup, #symbol, version, table->field != NULL, &table->field); \
    }
    ASHLAR_DRIVER_MAP(X)
#undef X
    ASHLAR_CHECK2(status != ASHLAR_OK || is_full(table));
    return status;
}

static ashlar_status start(ashlar_driver *driver) {
    cu_result result = driver->table.init(0);
    const char *call = "cuInit";
    int device_count = 0;
    ASHLAR_FAIL_IF(result == CU_STUB_LIBRARY, ASHLAR_ENODEVICE, "%s", stub_detail);
    if (result == CU_SUCCESS) {
        call = "cuDeviceGetCount";
        result = driver->table.device_get_count(&device_count);
    }
    if (result != CU_NO_DEVICE) {
        ASHLAR_TRY(ashlar__driver_status(driver, call, result));
    }
    ASHLAR_FAIL_IF(device_count == 0, ASHLAR_ENODEVICE,
                   "NVIDIA's driver is installed but sees no device: look at "
                   "CUDA_VISIBLE_DEVICES, or use the software device with "
                   "ASHLAR_DEVICE=soft");
    return ASHLAR_OK;
}

ashlar_status ashlar__driver_open_cuda(ashlar_driver **out) {
    static ashlar_lock open_lock = ASHLAR_LOCK(ASHLAR_LEVEL_DRIVER_OPEN);
    static bool is_open;
    static ashlar_driver driver = {.name = "cuda", .beginnings = PTHREAD_RWLOCK_INITIALIZER};
    ashlar_status status = ASHLAR_OK;
    ashlar__lock_acquire(&open_lock);
    if (!is_open) {
        status = fill_table(&driver.table);
        ASHLAR_THEN(status, start(&driver));
        is_open = status == ASHLAR_OK;
    }
    ashlar__lock_release(&open_lock);
    if (status == ASHLAR_OK) {
        *out = &driver;
    }
    return status;
}
