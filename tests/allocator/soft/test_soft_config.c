/* test_soft_config.c - the ASHLAR_SOFT line, opening the software device, contexts. */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"
#include "tests/child.h"

/* Fresh devices without a current context. */
static bool open_soft(const char *spec) {
    const bool is_open = ashlar__driver_open_soft(&driver) == ASHLAR_OK;
    soft = is_open ? &driver->table : NULL;
    return is_open && ashlar__soft_configure(spec) == ASHLAR_OK;
}

static void find_no_device_yet(void) {
    int count;
    CHECK(ashlar__soft_configure("") == ASHLAR_OK);
    CHECK(ashlar__soft_device_get_count(&count) == CU_NOT_INITIALIZED);
}

CASE(calls_before_init_are_refused) {
    int count = 7;
    CHECK(ashlar__soft_device_get_count(&count) == CU_NOT_INITIALIZED);
    CHECK(ashlar__soft_ctx_synchronize() == CU_NOT_INITIALIZED);
    CHECK(count == 7);
    const char *name = NULL;
    CHECK(ashlar__soft_get_error_name(CU_NOT_INITIALIZED, &name) == CU_SUCCESS);
    CHECK_HAS(name, "CUDA_ERROR_NOT_INITIALIZED");
    CHECK(child_passes(find_no_device_yet)); /* configured is not initialised; it would last here */
}

CASE(bad_environment_fails_the_open_and_a_good_one_repairs_it) {
    ashlar_driver *again = NULL;
    setenv("ASHLAR_SOFT", "devices=0", 1);
    CHECK(ashlar__driver_open_soft(&driver) == ASHLAR_EINVAL);
    CHECK(driver == NULL);
    setenv("ASHLAR_SOFT", "devices=3,memory=5MiB", 1);
    REQUIRE(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    setenv("ASHLAR_SOFT", "devices=1", 1); /* read once: no effect */
    CHECK(ashlar__driver_open_soft(&again) == ASHLAR_OK);
    CHECK(driver == again && strcmp(driver->name, "soft") == 0);
    int count = 0;
    size_t bytes = 0;
    CHECK(driver->table.device_get_count(&count) == CU_SUCCESS && count == 3);
    CHECK(driver->table.device_total_mem(&bytes, 2) == CU_SUCCESS);
    CHECK_ZU(bytes, (size_t)4 << 20);
    CHECK(ashlar__soft_configure(NULL) == ASHLAR_OK); /* anew */
    CHECK(driver->table.device_get_count(&count) == CU_SUCCESS && count == 1);
    unsetenv("ASHLAR_SOFT");
}

CASE(defaults_and_every_key_are_read) {
    soft_config config;
    REQUIRE(ashlar__soft_parse("", &config) == ASHLAR_OK);
    CHECK(config.device_count == 1 && config.mode == SOFT_EAGER && config.seed == 1);
    CHECK(config.has_peers && config.has_vmm && config.has_costs && config.copy_rate == 0);
    CHECK_ZU(config.memory_bytes, (size_t)4 << 30);
    REQUIRE(ashlar__soft_parse("seed=18446744073709551615,mode=adversarial,devices=16,memory=1TiB",
                               &config) == ASHLAR_OK);
    CHECK(config.device_count == 16 && config.mode == SOFT_ADVERSARIAL);
    CHECK(config.seed == UINT64_MAX);
    CHECK_ZU(config.memory_bytes, (size_t)1 << 40);
    REQUIRE(ashlar__soft_parse("costs=off,peers=off,vmm=off", &config) == ASHLAR_OK);
    CHECK(!config.has_peers && !config.has_vmm && !config.has_costs);
    REQUIRE(ashlar__soft_parse("costs=on,peers=on,vmm=on", &config) == ASHLAR_OK);
    CHECK(config.has_peers && config.has_vmm && config.has_costs);
    REQUIRE(ashlar__soft_parse("copy_rate=50000", &config) == ASHLAR_OK);
    CHECK(config.copy_rate == 50000);
    CHECK(ashlar__soft_parse("mode=eager,memory=4194303B", &config) == ASHLAR_OK);
    CHECK(config.mode == SOFT_EAGER);
    CHECK_ZU(config.memory_bytes, (size_t)2 << 20);
    CHECK(ashlar__soft_parse("memory=2048KiB", &config) == ASHLAR_OK);
    CHECK_ZU(config.memory_bytes, (size_t)2 << 20);
    CHECK(ashlar__soft_parse("memory=3GiB", &config) == ASHLAR_OK);
    CHECK_ZU(config.memory_bytes, (size_t)3 << 30);
}

CASE(mistakes_name_the_key_the_value_and_what_is_allowed) {
    static const struct {
        const char *spec, *key, *value, *allowed;
    } bad[] = {
        {"devices=17", "devices", "17", "1 to 16"},
        {"memory=4GB", "memory", "4GB", "GiB"},
        {"memory=1MiB", "memory", "1MiB", "2MiB"},
        {"memory=65TiB", "memory", "65TiB", "64TiB"},
        {"mode=fast", "mode", "fast", "eager, adversarial or overlap"},
        {"seed=-1", "seed", "-1", "unsigned"},
        {"peers=1", "peers", "1", "on or off"},
        {"costs=", "costs", "", "on or off"},
        {"launch=4us", "launch", "4us", "nanoseconds"},
        {"kernel=4294967296", "kernel", "4294967296", "to 4294967295"},
        {"copy_rate=0", "copy_rate", "0", "1 to 1000000"},
        {"copy_rate=25GB", "copy_rate", "25GB", "a microsecond"},
        {"speed=1", "speed", "1", ", seed, "},
        {"devices=1,,seed=2", "unknown key", "", ", devices, "},
        {"devices=1,", "unknown key", "", ", devices, "},
        {"=3", "unknown key", "3", ", devices, "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        soft_config config = {.device_count = 99};
        CHECK(ashlar__soft_parse(bad[i].spec, &config) == ASHLAR_EINVAL);
        CHECK(config.device_count == 99);
        CHECK_HAS(ashlar_error_detail(), "ASHLAR_SOFT");
        CHECK_HAS(ashlar_error_detail(), bad[i].key);
        CHECK_HAS(ashlar_error_detail(), bad[i].value);
        CHECK_HAS(ashlar_error_detail(), bad[i].allowed);
    }
}

CASE(strict_devices_recycle_no_handles_unless_they_are_to) {
    static const struct {
        const char *defaults, *spec;
        bool is_strict;
        soft_recycle recycle;
    } lines[] = {
        {"", "", false, SOFT_RECYCLE_ON},
        {"", "strict=on", true, SOFT_RECYCLE_OFF},
        {"", "recycle=on,strict=on", true, SOFT_RECYCLE_ON},
        {"", "recycle=off", false, SOFT_RECYCLE_OFF},
        {"strict=on", "", true, SOFT_RECYCLE_OFF},
        {"strict=on", "strict=off", false, SOFT_RECYCLE_ON},
        {"strict=on,recycle=on", "memory=1GiB", true, SOFT_RECYCLE_ON},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        soft_config config = {0};
        setenv("ASHLAR_SOFT_DEFAULTS", lines[i].defaults, 1);
        CHECK(ashlar__soft_parse(lines[i].spec, &config) == ASHLAR_OK);
        CHECK(config.is_strict == lines[i].is_strict);
        CHECK(config.recycle == lines[i].recycle);
    }
    soft_config config = {.device_count = 99};
    setenv("ASHLAR_SOFT_DEFAULTS", "strict=very", 1);
    CHECK_FAILS(ashlar__soft_parse("", &config), ASHLAR_EINVAL, "strict=very");
    CHECK(config.device_count == 99);
    setenv("ASHLAR_SOFT_DEFAULTS", "", 1);
}

CASE_WITH(failed_configuration_leaves_the_devices_alone, open_soft("devices=2")) {
    int count = 0;
    CHECK(ashlar__soft_configure("devices=5,mode=x") == ASHLAR_EINVAL);
    CHECK(driver->table.device_get_count(&count) == CU_SUCCESS && count == 2);
    unsigned long n = 1;
    for (; n < 100; n++) { /* every failing allocation in turn */
        ashlar_status status;
        HOST_FAILS_AT(n, status = ashlar__soft_configure("devices=3"));
        if (status == ASHLAR_OK) {
            break;
        }
        CHECK(status == ASHLAR_EHOSTMEM);
        CHECK(driver->table.device_get_count(&count) == CU_SUCCESS && count == 2);
    }
    CHECK(n == 7); /* a stream and a page table for each of three devices */
    CHECK(driver->table.device_get_count(&count) == CU_SUCCESS && count == 3);
}

CASE_WITH(facts_and_their_errors, open_soft("devices=2,memory=1GiB")) {
    int number = 0;
    char name[64] = "";
    cu_device device = 7;
    size_t bytes = 0;
    CHECK(soft->driver_get_version(&number) == CU_SUCCESS && number == 13000);
    CHECK(soft->device_get(&device, 1) == CU_SUCCESS && device == 1);
    CHECK(soft->device_get(&device, 2) == CU_INVALID_DEVICE && device == 1);
    CHECK(soft->device_get(&device, -1) == CU_INVALID_DEVICE);
    CHECK(soft->device_get(NULL, 0) == CU_INVALID_VALUE);
    CHECK(soft->device_get_name(name, 64, 0) == CU_SUCCESS);
    CHECK(strcmp(name, "ashlar software device") == 0);
    CHECK(soft->device_get_name(name, 7, 0) == CU_SUCCESS && strcmp(name, "ashlar") == 0);
    CHECK(soft->device_get_name(name, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->device_total_mem(&bytes, 2) == CU_INVALID_DEVICE);
    CHECK(soft->device_get_attribute(&number, CU_ATTRIBUTE_VMM_SUPPORTED, 1) == CU_SUCCESS);
    CHECK(number == 1);
    CHECK(soft->device_get_attribute(&number, 1, 1) == CU_INVALID_VALUE);
    CHECK(soft->device_get_count(NULL) == CU_INVALID_VALUE);
    CHECK(soft->init(1) == CU_INVALID_VALUE);
    const char *text = NULL;
    CHECK(soft->get_error_name(CU_SUCCESS, &text) == CU_SUCCESS);
    CHECK(text != NULL && strcmp(text, "CUDA_SUCCESS") == 0);
    CHECK(soft->get_error_name(CU_OUT_OF_MEMORY, &text) == CU_SUCCESS);
    CHECK(text != NULL && strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    CHECK(soft->get_error_name(12345, &text) == CU_INVALID_VALUE && text == NULL);
    CHECK(soft->get_error_string(CU_NOT_READY, &text) == CU_SUCCESS && text != NULL);
    CHECK(soft->get_error_string(12345, &text) == CU_INVALID_VALUE && text == NULL);
}

CASE_WITH(contexts_are_counted_and_stacked, open_soft("devices=2,memory=4MiB")) {
    cu_context a, b, same, top;
    CHECK(soft->primary_ctx_release(0) == CU_INVALID_CONTEXT);
    CHECK(soft->primary_ctx_retain(&a, 9) == CU_INVALID_DEVICE);
    REQUIRE(soft->primary_ctx_retain(&a, 0) == CU_SUCCESS);
    REQUIRE(soft->primary_ctx_retain(&same, 0) == CU_SUCCESS);
    REQUIRE(soft->primary_ctx_retain(&b, 1) == CU_SUCCESS);
    CHECK(a == same && a != b);
    CHECK(soft->ctx_push_current(NULL) == CU_INVALID_CONTEXT);
    CHECK(soft->ctx_pop_current(&top) == CU_INVALID_CONTEXT);
    CHECK(soft->ctx_synchronize() == CU_INVALID_CONTEXT);
    CHECK(soft->ctx_push_current(a) == CU_SUCCESS);
    CHECK(soft->ctx_push_current(b) == CU_SUCCESS);
    cu_ptr ptr;
    size_t left = 0, total = 0;
    CHECK(soft->mem_alloc(&ptr, 1) == CU_SUCCESS); /* on device 1 */
    CHECK(soft->mem_get_info(&left, &total) == CU_SUCCESS);
    CHECK_ZU(left, (size_t)2 << 20);
    CHECK(soft->ctx_pop_current(&top) == CU_SUCCESS && top == b);
    CHECK(soft->mem_get_info(&left, &total) == CU_SUCCESS);
    CHECK_ZU(left, (size_t)4 << 20);
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS); /* retained once more */
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(soft->ctx_synchronize() == CU_INVALID_CONTEXT);
    CHECK(soft->ctx_push_current(a) == CU_INVALID_CONTEXT);
    CHECK(soft->primary_ctx_release(0) == CU_INVALID_CONTEXT);
    int depth = 0;
    while (depth < 1000 && soft->ctx_push_current(b) == CU_SUCCESS) {
        depth++;
    }
    CHECK(depth >= 32 && depth < 1000); /* a limit, not an overflow */
    CHECK(soft->ctx_push_current(b) == CU_OUT_OF_MEMORY);
    CHECK(soft->ctx_pop_current(&top) == CU_SUCCESS && top == b);
}

CASE_WITH(last_release_takes_the_contexts_objects_with_it, open_soft("devices=2,memory=4MiB")) {
    cu_stream stream, other;
    cu_event event;
    REQUIRE(make_current(1));
    REQUIRE(soft->stream_create(&other, CU_STREAM_BLOCKING) == CU_SUCCESS);
    REQUIRE(make_current(0));
    REQUIRE(soft->stream_create(&stream, CU_STREAM_BLOCKING) == CU_SUCCESS);
    REQUIRE(soft->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    const cu_ptr ptr = alloc(1);
    void *pinned = alloc_host(100);
    REQUIRE(soft->primary_ctx_release(0) == CU_SUCCESS);
    REQUIRE(make_current(0));
    CHECK(soft->stream_synchronize(stream) == CU_INVALID_HANDLE);
    CHECK(soft->stream_synchronize(other) == CU_SUCCESS);
    CHECK(soft->event_query(event) == CU_INVALID_HANDLE);
    CHECK(soft->mem_free(ptr) == CU_INVALID_VALUE);
    CHECK(soft->mem_free_host(pinned) == CU_INVALID_VALUE);
}

RUN_CASES()
