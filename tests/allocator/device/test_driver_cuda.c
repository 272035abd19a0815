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

CASE(a_driver_that_cannot_be_used_is_refused_by_what_it_lacks) {
    static const char *const refused[][2] = {{"old", "too old"},
                                             {"old", "cuMemCreate of CUDA 10.2"},
                                             {"stub", "stub"},
                                             {"nodevice", "sees no device"},
                                             {"absent", "sees no device"},
                                             {"countless", "sees no device"}};
    ashlar_driver *driver = NULL;
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        check_refused(refused[i][0], refused[i][1]);
    }
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
    info = ashlar_device_get_info(device);
    CHECK(info.kind == ASHLAR_DEVICE_SOFT);
    ashlar_device_close(device);
    unsetenv("FAKE_CUDA");
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
    info = ashlar_device_get_info(device);
    CHECK(info.kind == ASHLAR_DEVICE_CUDA);
    ashlar_device_close(device);
}

/* The fake of CUDA 11 lacks cuStreamGetId, of CUDA 12. */
CASE(a_driver_without_a_newer_function_opens_and_refuses_it) {
    SKIP_IF(!has_fake(), "the fake libcuda.so.1 is not the one found");
    ashlar_driver *driver = NULL;
    cu_context context;
    unsigned long long id = 99;
    REQUIRE(ashlar__driver_open_cuda(&driver) == ASHLAR_OK);
    REQUIRE(driver->table.primary_ctx_retain(&context, 0) == CU_SUCCESS);
    REQUIRE(driver->table.ctx_push_current(context) == CU_SUCCESS);
    const cu_result named = driver->table.stream_get_id(NULL, &id);
    if (dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2") != NULL) {
        CHECK(named == CU_SUCCESS && id != 99);
    } else {
        CHECK(named == CU_NOT_SUPPORTED && id == 99);
    }
    CHECK(driver->table.ctx_pop_current(NULL) == CU_SUCCESS);
    CHECK(driver->table.primary_ctx_release(0) == CU_SUCCESS);
}

/* On the fake and on a real device alike. */
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
    CHECK(ashlar__copy_batch(device, halves, 2, stream) == ASHLAR_OK);
    CHECK(ashlar_copy_to_host(device, in, to, sizeof in, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(memcmp(in, out + 32, 32) == 0 && memcmp(in + 32, out, 32) == 0);
    ashlar_stream_destroy(device, stream);
    CHECK(device->driver->table.mem_free(ptr) == CU_SUCCESS);
    ashlar__device_leave(device);
    ashlar_device_close(device);
}

RUN_CASES()
