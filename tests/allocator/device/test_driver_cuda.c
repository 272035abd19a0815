/*
 * test_driver_cuda.c - finding NVIDIA's driver at run time.
 *
 * Run with the folder of the fake libcuda.so.1 (cuda/libcuda.c) first in LD_LIBRARY_PATH. Cases
 * that need the fake are skipped where another libcuda or none is found.
 */
#include "tests/check.h"

#include <dlfcn.h>

#include <ashlar/device.h>

#include "allocator/device/device_impl.h"

#define MIB ((size_t)1 << 20)

static bool has_library(void) {
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
}

static bool has_fake(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != NULL && dlsym(library, "ashlar_fake_libcuda") != NULL;
}

/* Open while FAKE_CUDA is `fault`, expecting failure with `part` in the detail. */
static void check_refused(const char *fault, const char *part) {
    ashlar_driver *driver = NULL;
    setenv("FAKE_CUDA", fault, 1);
    CHECK(ashlar__driver_open_cuda(&driver) == ASHLAR_ENODEVICE);
    CHECK(driver == NULL);
    CHECK_HAS(ashlar_error_detail(), part);
    CHECK(strchr(ashlar_error_detail(), '\n') == NULL);
    unsetenv("FAKE_CUDA");
}

CASE(missing_library_is_named_with_the_remedy) {
    SKIP_IF(has_library(), "this machine has a libcuda.so.1");
    ashlar_driver *driver = NULL;
    CHECK(ashlar__driver_open_cuda(&driver) == ASHLAR_ENODEVICE);
    CHECK(driver == NULL);
    CHECK_HAS(ashlar_error_detail(), "libcuda.so.1 was not found: install NVIDIA's driver");
    CHECK_HAS(ashlar_error_detail(), "ASHLAR_DEVICE=soft");
}

CASE(old_driver_is_refused_by_the_function_it_lacks) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    check_refused("old", "too old");
    check_refused("old", "cuMemCreate of CUDA 10.2");
}

CASE(a_driver_that_starts_without_a_device_is_told_from_one_that_fails) {
    ashlar_driver *driver = NULL;
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    check_refused("absent", "sees no device");
    check_refused("countless", "sees no device");
    setenv("FAKE_CUDA", "uncounted", 1);
    CHECK_FAILS(ashlar__driver_open_cuda(&driver), ASHLAR_EDRIVER, "cuDeviceGetCount");
    CHECK(driver == NULL);
    unsetenv("FAKE_CUDA");
}

CASE(auto_takes_the_software_device_only_where_there_is_no_other) {
    ashlar_device_info info;
    ashlar_device *device = NULL;
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    setenv("FAKE_CUDA", "broken", 1);
    CHECK_FAILS(ashlar_device_open("auto", &device), ASHLAR_EDRIVER, "cuInit");
    CHECK(device == NULL);
    setenv("FAKE_CUDA", "nodevice", 1);
    REQUIRE(ashlar_device_open("auto", &device) == ASHLAR_OK);
    ashlar_device_get_info(device, &info);
    CHECK(info.kind == ASHLAR_DEVICE_SOFT);
    ashlar_device_close(device);
    unsetenv("FAKE_CUDA");
}

CASE(stub_library_is_recognised) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    check_refused("stub", "stub");
}

CASE(driver_without_device_is_refused) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    check_refused("nodevice", "sees no device");
}

CASE(failed_open_is_tried_again_and_then_kept) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    check_refused("nodevice", "no device");
    ashlar_driver *first = NULL, *second = NULL;
    CHECK(ashlar__driver_open_cuda(&first) == ASHLAR_OK);
    setenv("FAKE_CUDA", "nodevice", 1);
    CHECK(ashlar__driver_open_cuda(&second) == ASHLAR_OK);
    unsetenv("FAKE_CUDA");
    CHECK(first != NULL && first == second);
    CHECK(first != NULL && strcmp(first->name, "cuda") == 0);
    ashlar_device *device = NULL;
    ashlar_device_info info;
    REQUIRE(ashlar_device_open("auto", &device) == ASHLAR_OK);
    ashlar_device_get_info(device, &info);
    CHECK(info.kind == ASHLAR_DEVICE_CUDA);
    ashlar_device_close(device);
}

/* The fake of CUDA 11 lacks cuStreamGetId, which came with CUDA 12; the other has it. */
CASE(driver_without_stream_ids_opens_and_refuses_to_name_one) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    ashlar_driver *driver = NULL;
    cu_context context;
    unsigned long long id = 99;
    REQUIRE(ashlar__driver_open_cuda(&driver) == ASHLAR_OK);
    REQUIRE(driver->table.primary_ctx_retain(&context, 0) == CU_SUCCESS);
    REQUIRE(driver->table.ctx_push_current(context) == CU_SUCCESS);
    const cu_result result = driver->table.stream_get_id(NULL, &id);
    if (dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2") != NULL) {
        CHECK(result == CU_SUCCESS && id != 99);
    } else {
        CHECK(result == CU_NOT_SUPPORTED && id == 99);
    }
    CHECK(driver->table.ctx_pop_current(NULL) == CU_SUCCESS);
    CHECK(driver->table.primary_ctx_release(0) == CU_SUCCESS);
}

/* The same with batched copies, which came with CUDA 12.8. */
CASE(driver_without_batches_opens_and_refuses_them) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    ashlar_driver *driver = NULL;
    cu_context context;
    cu_copy_attributes attributes = {.order = CU_COPY_STREAM_ORDER};
    size_t start = 0, failed = 99, size = 1;
    cu_ptr ptr = 0;
    REQUIRE(ashlar__driver_open_cuda(&driver) == ASHLAR_OK);
    REQUIRE(driver->table.primary_ctx_retain(&context, 0) == CU_SUCCESS);
    REQUIRE(driver->table.ctx_push_current(context) == CU_SUCCESS);
    const cu_result result = driver->table.memcpy_batch_async(&ptr, &ptr, &size, 1, &attributes,
                                                              &start, 1, &failed, NULL);
    if (dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2") != NULL) {
        CHECK(result == CU_INVALID_VALUE); /* not on the default stream */
    } else {
        CHECK(result == CU_NOT_SUPPORTED && failed == 99);
    }
    CHECK(driver->table.ctx_pop_current(NULL) == CU_SUCCESS);
    CHECK(driver->table.primary_ctx_release(0) == CU_SUCCESS);
}

/* The public way to them, on the fake and on a real device alike. */
CASE(a_batch_of_copies_arrives) {
    ashlar_device *device = NULL;
    ashlar_stream stream = NULL;
    unsigned char out[64], in[64] = {0};
    cu_ptr ptr = 0;
    SKIP_IF(ashlar_device_open("cuda", &device) != ASHLAR_OK, "no CUDA device, real or fake");
    for (size_t i = 0; i < sizeof out; i++) {
        out[i] = (unsigned char)(i + 1);
    }
    REQUIRE(ashlar__device_enter(device) == ASHLAR_OK);
    REQUIRE(device->driver->table.mem_alloc(&ptr, 128) == CU_SUCCESS);
    REQUIRE(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    unsigned char *to = ashlar__ptr_out(ptr), *from = to + 64;
    const ashlar_copy_span halves[] = {{to + 32, from, 32}, {to, from + 32, 32}};
    CHECK(ashlar_copy_to_device(device, from, out, sizeof out, stream) == ASHLAR_OK);
    CHECK(ashlar_copy_batch(device, halves, 2, stream) == ASHLAR_OK);
    CHECK(ashlar_copy_to_host(device, in, to, sizeof in, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(memcmp(in, out + 32, 32) == 0 && memcmp(in + 32, out, 32) == 0);
    ashlar_stream_destroy(device, stream);
    CHECK(device->driver->table.mem_free(ptr) == CU_SUCCESS);
    ashlar__device_leave(device);
    ashlar_device_close(device);
}

/* Works on the fake and on a real device alike. */
CASE(mapped_memory_is_written_and_read_back_through_a_stream) {
    ashlar_driver *driver;
    SKIP_IF(ashlar__driver_open_cuda(&driver) != ASHLAR_OK, "no CUDA device, real or fake");
    const ashlar_driver_table *cuda = &driver->table;
    const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                              .location = {.type = CU_LOCATION_DEVICE, .id = 0}};
    const cu_mem_access access = {.location = prop.location, .flags = CU_ACCESS_READWRITE};
    unsigned char out[4096], in[4096] = {0};
    for (size_t i = 0; i < sizeof out; i++) {
        out[i] = (unsigned char)(i * 7 + 1);
    }
    cu_context context, popped;
    cu_stream stream;
    cu_ptr ptr;
    cu_mem_handle handle;
    size_t bytes = 0;
    REQUIRE(cuda->primary_ctx_retain(&context, 0) == CU_SUCCESS);
    REQUIRE(cuda->ctx_push_current(context) == CU_SUCCESS);
    CHECK(cuda->mem_get_allocation_granularity(&bytes, &prop, CU_GRANULARITY_MINIMUM) ==
          CU_SUCCESS);
    CHECK_ZU(bytes, 2 * MIB);
    REQUIRE(cuda->mem_address_reserve(&ptr, 4 * bytes, 0, 0, 0) == CU_SUCCESS);
    REQUIRE(cuda->mem_create(&handle, bytes, &prop, 0) == CU_SUCCESS);
    REQUIRE(cuda->mem_map(ptr + bytes, bytes, 0, handle, 0) == CU_SUCCESS);
    CHECK(cuda->mem_set_access(ptr + bytes, bytes, &access, 1) == CU_SUCCESS);
    REQUIRE(cuda->stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS);
    CHECK(cuda->memcpy_htod_async(ptr + bytes, out, sizeof out, stream) == CU_SUCCESS);
    CHECK(cuda->memcpy_dtoh_async(in, ptr + bytes, sizeof in, stream) == CU_SUCCESS);
    CHECK(cuda->stream_synchronize(stream) == CU_SUCCESS);
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(cuda->stream_destroy(stream) == CU_SUCCESS);
    CHECK(cuda->mem_unmap(ptr + bytes, bytes) == CU_SUCCESS);
    CHECK(cuda->mem_release(handle) == CU_SUCCESS);
    CHECK(cuda->mem_address_free(ptr, 4 * bytes) == CU_SUCCESS);
    CHECK(cuda->ctx_pop_current(&popped) == CU_SUCCESS);
    CHECK(popped == context);
    CHECK(cuda->primary_ctx_release(0) == CU_SUCCESS);
}

RUN_CASES()
