/*
 * fake_libcuda.c - a libcuda.so.1 for tests: the software device behind NVIDIA's way in, which is
 * fake_cuda12.c or fake_cuda11.c.
 *
 * Linked with its own copy of the software device. The environment variable FAKE_CUDA makes it
 * misbehave: "nodevice" (a driver without a device), "stub" (the toolkit's library for linking),
 * "old" (a driver without cuMemCreate), "broken" (cuInit fails), "nobinary" and "oldptx" (a module
 * that is for other devices, or newer drivers). `newest` is the CUDA version of the driver that it
 * plays. Kernels are fake_kernels.c.
 */
#include <stdlib.h>
#include <string.h>

#include "fake_libcuda.h"
#include "soft_state.h"

/* What a test looks for to know that it has found this library and not a real driver. */
extern ASHLAR_API const int ashlar_fake_libcuda;
const int ashlar_fake_libcuda = 1;

static bool fake_is(const char *name) {
    const char *value = getenv("FAKE_CUDA");
    return value != NULL && strcmp(value, name) == 0;
}

static cu_result fake_init(unsigned int flags) {
    return fake_is("stub")     ? CU_STUB_LIBRARY
           : fake_is("broken") ? CU_UNKNOWN
                               : ashlar_soft_init(flags);
}

static cu_result fake_device_get_count(int *count) {
    const cu_result result = ashlar_soft_device_get_count(count);
    if (result == CU_SUCCESS && fake_is("nodevice")) {
        *count = 0;
    }
    return result;
}

cu_result ashlar_fake_find(int newest, const char *symbol, void **address, int version,
                           unsigned long long flags, unsigned int *found) {
    ashlar_driver_table table = {
#define X(field, symbol, version, kind, params) .field = ashlar_soft_##field,
        ASHLAR_DRIVER_MAP(X)
#undef X
    };
    table.init = fake_init;
    table.device_get_count = fake_device_get_count;
    table.module_load_data = ashlar_fake_module_load_data;
    table.module_unload = ashlar_fake_module_unload;
    table.module_get_function = ashlar_fake_module_get_function;
    table.launch_kernel = ashlar_fake_launch_kernel;
    *address = NULL;
    *found = 1;       /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    if (flags != 1) { /* CU_GET_PROC_ADDRESS_LEGACY_STREAM: the table's meaning of stream NULL */
        return CU_INVALID_VALUE;
    }
    if (fake_is("old") && strcmp(symbol, "cuMemCreate") == 0) {
        return CU_NOT_FOUND;
    }
    /* A driver answers with the newest version that is not newer than the one asked for. */
#define X(field, name, introduced, kind, params)                                           \
    if (strcmp(symbol, #name) == 0 && version >= (introduced) && newest >= (introduced)) { \
        memcpy(address, &table.field, sizeof *address);                                    \
        *found = 0;                                                                        \
    }
    ASHLAR_DRIVER_MAP(X)
#undef X
    return *address == NULL ? CU_NOT_FOUND : CU_SUCCESS;
}
