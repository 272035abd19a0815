/*
 * test_device.c - opening devices by name and by environment: what is found, refused, given back.
 */
#include "tests/check.h"

#include "allocator/device/device_impl.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

/* Opened and closed again; the ordinal, or -1 where it was refused. */
static int ordinal_of(const char *name) {
    ashlar_device *device = NULL;
    if (ashlar_device_open(name, &device) != ASHLAR_OK) {
        return -1;
    }
    const ashlar_device_info info = ashlar_device_get_info(device);
    ashlar_device_close(device);
    return info.ordinal;
}

static void check_refused(const char *name, ashlar_status want, const char *part) {
    ashlar_device *device = NULL;
    const ashlar_status status = ashlar_device_open(name, &device);
    CHECK(status == want);
    CHECK(device == NULL);
    CHECK_HAS(ashlar_error_detail(), part);
}

/* The first case: later the software devices are there, whatever the environment says. */
CASE(bad_soft_environment_is_refused_and_read_again_next_time) {
    setenv("ASHLAR_SOFT", "devices=none", 1);
    check_refused("soft", ASHLAR_EINVAL, "ASHLAR_SOFT: devices=none");
    setenv("ASHLAR_SOFT", "devices=3,memory=16MiB", 1);
    CHECK(ordinal_of("soft:2") == 2);
    unsetenv("ASHLAR_SOFT");
}

CASE(a_device_says_what_it_is) {
    ashlar_device *device = NULL;
    ashlar_device_info info;
    REQUIRE(ashlar__soft_configure("devices=2,memory=16MiB") == ASHLAR_OK);
    REQUIRE(ashlar_device_open("soft:1", &device) == ASHLAR_OK);
    info = ashlar_device_get_info(device);
    CHECK(info.kind == ASHLAR_DEVICE_SOFT);
    CHECK(info.ordinal == 1);
    CHECK(strcmp(info.name, "ashlar software device") == 0);
    CHECK_ZU(info.total_bytes, (size_t)16 << 20);
    ashlar_device_close(device);
    ashlar_device_close(NULL);
}

CASE(an_ordinal_picks_the_device) {
    REQUIRE(ashlar__soft_configure("devices=12") == ASHLAR_OK);
    CHECK(ordinal_of("soft") == 0);
    CHECK(ordinal_of("soft:0") == 0);
    CHECK(ordinal_of("soft:1") == 1);
    CHECK(ordinal_of("soft:9") == 9);
    CHECK(ordinal_of("soft:11") == 11);
    CHECK(ordinal_of("soft:007") == 7);
}

CASE(an_ordinal_beyond_the_devices_is_refused_with_their_number) {
    REQUIRE(ashlar__soft_configure("devices=2") == ASHLAR_OK);
    check_refused("soft:2", ASHLAR_ENODEVICE,
                  "soft:2: there are only 2 such devices, numbered from 0");
    check_refused("soft:1023", ASHLAR_ENODEVICE, "soft:1023");
    check_refused("soft:1024", ASHLAR_ENODEVICE, "soft:1024");
    REQUIRE(ashlar__soft_configure("devices=1") == ASHLAR_OK);
    check_refused("soft:1", ASHLAR_ENODEVICE,
                  "soft:1: there is only 1 such device, numbered from 0");
    check_refused("cuda:1000", ASHLAR_ENODEVICE, "");
}

CASE(a_name_of_no_device_is_refused) {
    static const char *const names[] = {"",        "soft:",  "soft:x",   "soft:1x",
                                        "soft1",   "soft:-1", "soft: 1", "soft::1",
                                        "softer",  "cuda:",  "cuda1",    "gpu",
                                        "soft:/",  "soft:1:", "Soft",    "auto:0",
                                        "softx1",  "cuda-0", "soft1:",   "soft:1 ",
                                        "soft:99999999999999999999",     "automatic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char part[64];
        (void)snprintf(part, sizeof part, "device: \"%s\" is no device", names[i]);
        check_refused(names[i], ASHLAR_EINVAL, part);
    }
}

CASE(auto_takes_the_first_cuda_device_or_else_the_software_device) {
    ashlar_driver *cuda;
    ashlar_device *device = NULL;
    const bool has_cuda = ashlar__driver_open_cuda(&cuda) == ASHLAR_OK;
    REQUIRE(ashlar_device_open("auto", &device) == ASHLAR_OK);
    CHECK(device->info.kind == (has_cuda ? ASHLAR_DEVICE_CUDA : ASHLAR_DEVICE_SOFT));
    CHECK(strcmp(device->driver->name, has_cuda ? "cuda" : "soft") == 0);
    CHECK(device->info.ordinal == 0);
    ashlar_device_close(device);
    if (has_cuda) {
        REQUIRE(ashlar_device_open("cuda", &device) == ASHLAR_OK);
        CHECK(device->info.kind == ASHLAR_DEVICE_CUDA);
        ashlar_device_close(device);
    } else {
        check_refused("cuda", ASHLAR_ENODEVICE, "libcuda");
        check_refused("cuda:0", ASHLAR_ENODEVICE, "libcuda");
    }
}

CASE(without_a_name_the_environment_decides) {
    ashlar_device *by_name = NULL, *by_default = NULL;
    REQUIRE(ashlar__soft_configure("devices=2") == ASHLAR_OK);
    setenv("ASHLAR_DEVICE", "soft:1", 1);
    CHECK(ordinal_of(NULL) == 1);
    CHECK(ordinal_of("soft:0") == 0); /* a name goes before it */
    setenv("ASHLAR_DEVICE", "bogus", 1);
    check_refused(NULL, ASHLAR_EINVAL, "ASHLAR_DEVICE: \"bogus\" is no device");
    check_refused("rubbish", ASHLAR_EINVAL, "device: \"rubbish\" is no device");
    REQUIRE(ashlar_device_open("auto", &by_name) == ASHLAR_OK);
    for (int is_empty = 0; is_empty < 2; is_empty++) {
        unsetenv("ASHLAR_DEVICE");
        if (is_empty) {
            setenv("ASHLAR_DEVICE", "", 1);
        }
        REQUIRE(ashlar_device_open(NULL, &by_default) == ASHLAR_OK);
        CHECK(by_default->info.kind == by_name->info.kind && by_default->info.ordinal == 0);
        ashlar_device_close(by_default);
    }
    unsetenv("ASHLAR_DEVICE");
    ashlar_device_close(by_name);
}

CASE(a_failing_driver_is_reported_and_nothing_is_kept) {
    static const struct {
        ashlar_driver_fn fn;
        const char *part;
    } steps[] = {
        {ASHLAR_DRIVER_FN_device_get_count, "cuDeviceGetCount on the soft device: CUDA_ERROR_UNK"},
        {ASHLAR_DRIVER_FN_device_get, "cuDeviceGet on the soft device"},
        {ASHLAR_DRIVER_FN_device_get_name, "cuDeviceGetName on the soft device"},
        {ASHLAR_DRIVER_FN_device_total_mem, "cuDeviceTotalMem on the soft device"},
        {ASHLAR_DRIVER_FN_primary_ctx_retain, "cuDevicePrimaryCtxRetain on the soft device"},
    };
    ashlar_driver *driver;
    REQUIRE(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    REQUIRE(ashlar__soft_configure("") == ASHLAR_OK);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ashlar__driver_fail_at(driver, (int)steps[i].fn, 1, CU_UNKNOWN);
        check_refused("soft", ASHLAR_EDRIVER, steps[i].part);
        CHECK(ashlar__soft_state.devices[0].retains == 0);
        CHECK(ordinal_of("soft") == 0);
    }
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_primary_ctx_retain, 1, CU_OUT_OF_MEMORY);
    check_refused("soft", ASHLAR_ENOMEM, "CUDA_ERROR_OUT_OF_MEMORY");
    HOST_FAILS_AT(1, check_refused("soft", ASHLAR_EHOSTMEM, "no host memory for a device"));
}

RUN_CASES()
