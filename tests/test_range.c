/*
 * test_range.c - reserving addresses and mapping memory into them, step by step.
 */
#include "allocator_fixture.h"

#include "range.h"
#include "soft_state.h"

#define STEP_MAX (64 * MIB)

static ashlar_caller caller;
static ashlar_range range;

static bool set_up_range(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    caller = (ashlar_caller){.device = device};
    return ashlar_range_init(&range, &caller) == ASHLAR_OK;
}

static void tear_down_range(void) {
    ashlar_range_finish(&range);
    CHECK_ZU(ashlar_soft_state.reservations.count, 0);
    tear_down_device();
}

static size_t grow(size_t bytes) {
    size_t grown = 0;
    const size_t before = range.mapped_bytes;
    CHECK(ashlar_range_grow(&range, bytes, &grown) == ASHLAR_OK);
    CHECK(grown >= bytes);
    CHECK_ZU(range.mapped_bytes, before + grown);
    CHECK_ZU(free_memory_of(device), device->info.total_bytes - range.mapped_bytes);
    return grown;
}

/* Growth that fails with `want` and leaves everything as it was. */
static void check_no_growth(size_t bytes, ashlar_status want) {
    size_t grown = 77;
    const ashlar_range before = range;
    const size_t free_before = free_memory_of(device);
    CHECK(ashlar_range_grow(&range, bytes, &grown) == want);
    CHECK_ZU(grown, 77);
    CHECK_ZU(range.mapped_bytes, before.mapped_bytes);
    CHECK_ZU(range.mapping_count, before.mapping_count);
    CHECK_ZU(free_memory_of(device), free_before);
    CHECK(!ashlar_soft_is_accessible((uintptr_t)(range.base + range.mapped_bytes), 1));
}

static void a_new_range_has_addresses_and_no_memory(void) {
    REQUIRE(set_up_range("memory=16MiB"));
    CHECK_ZU(range.bytes, 64 * MIB); /* four times the device's memory */
    CHECK_ZU(range.granularity, 2 * MIB);
    CHECK_ZU(range.device_bytes, 16 * MIB);
    CHECK_ZU(range.mapped_bytes, 0);
    CHECK(range.base % (2 * MIB) == 0);
    CHECK_ZU(ashlar_soft_state.reservations.items[0]->bytes, 64 * MIB);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    CHECK(caller.calls == 3); /* attribute, granularity, reservation */
    tear_down_range();
}

static void memory_is_mapped_upwards_without_gaps(void) {
    REQUIRE(set_up_range("memory=32MiB"));
    static const size_t wants[] = {1, 2097152, 2097153, 6291456, 1};
    static const size_t gets[] = {2, 2, 4, 6, 2};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        CHECK_ZU(grow(wants[i]), gets[i] * MIB);
        CHECK_ZU(range.mapping_count, i + 1);
        CHECK_ZU(range.mappings[i].bytes, gets[i] * MIB);
        CHECK(ashlar_soft_is_accessible((uintptr_t)range.base, range.mapped_bytes));
        CHECK(!ashlar_soft_is_accessible((uintptr_t)range.base, range.mapped_bytes + 1));
    }
    memset(ashlar_ptr_out(range.base), 1, range.mapped_bytes);
    tear_down_range();
}

static void memory_comes_from_the_allocators_device(void) {
    REQUIRE(set_up_device("devices=2,memory=16MiB"));
    ashlar_device *second = NULL;
    size_t grown = 0;
    REQUIRE(ashlar_device_open("soft:1", &second) == ASHLAR_OK);
    caller = (ashlar_caller){.device = second};
    REQUIRE(ashlar_range_init(&range, &caller) == ASHLAR_OK);
    CHECK(ashlar_range_grow(&range, 4 * MIB, &grown) == ASHLAR_OK);
    CHECK_ZU(free_memory_of(second), 12 * MIB);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    ashlar_range_finish(&range);
    CHECK_ZU(free_memory_of(second), 16 * MIB);
    ashlar_device_close(second);
    tear_down_device();
}

static void many_mappings_are_all_returned(void) {
    REQUIRE(set_up_range("memory=256MiB"));
    for (size_t i = 0; i < 70; i++) { /* the list of them doubles from 16 to 128 */
        CHECK_ZU(grow(1), 2 * MIB);
        CHECK_ZU(range.mapping_count, i + 1);
        CHECK_ZU(range.mapping_capacity, i < 16 ? 16 : i < 32 ? 32 : i < 64 ? 64 : 128);
    }
    const size_t unmaps = CALLS(mem_unmap), releases = CALLS(mem_release);
    tear_down_range();
    CHECK_ZU(CALLS(mem_unmap) - unmaps, 70);
    CHECK_ZU(CALLS(mem_release) - releases, 70);
}

static void growth_steps_are_one_64th_of_what_is_mapped(void) {
    REQUIRE(set_up_range("memory=16GiB"));
    CHECK_ZU(grow(254 * MIB), 254 * MIB);
    CHECK_ZU(grow(1), 2 * MIB); /* a 64th is less than 4 MiB: in whole granules 2 MiB */
    CHECK_ZU(grow(1), 4 * MIB);
    CHECK_ZU(grow(4 * MIB), 4 * MIB);
    CHECK_ZU(grow(6 * MIB), 6 * MIB);
    CHECK_ZU(grow(114 * MIB), 114 * MIB); /* 384 MiB in all */
    CHECK_ZU(grow(4 * MIB), 6 * MIB);
    CHECK_ZU(grow(3706 * MIB), 3706 * MIB); /* 4 GiB in all */
    CHECK_ZU(grow(1), STEP_MAX);
    CHECK_ZU(grow(8192 * MIB), 8192 * MIB);
    CHECK_ZU(grow(1), STEP_MAX);
    CHECK_ZU(grow(70 * MIB), 70 * MIB);
    tear_down_range();
}

static void a_step_that_does_not_fit_gives_way_to_what_is_needed(void) {
    REQUIRE(set_up_range("memory=388MiB"));
    CHECK_ZU(grow(384 * MIB), 384 * MIB);
    const size_t creates = CALLS(mem_create);
    CHECK_ZU(grow(1), 2 * MIB);
    CHECK_ZU(CALLS(mem_create) - creates, 2);
    check_no_growth(6 * MIB, ASHLAR_ENOMEM); /* the step is what is needed: asked for once */
    CHECK_ZU(CALLS(mem_create) - creates, 3);
    CHECK_ZU(grow(1), 2 * MIB);
    check_no_growth(1, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "cuMemCreate on the soft device: CUDA_ERROR_OUT_OF_MEMORY");
    tear_down_range();
}

static void a_step_that_fails_otherwise_is_not_tried_again(void) {
    REQUIRE(set_up_range("memory=512MiB"));
    CHECK_ZU(grow(384 * MIB), 384 * MIB);
    const size_t creates = CALLS(mem_create);
    ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_create, 1, CU_UNKNOWN);
    check_no_growth(1, ASHLAR_EDRIVER);
    CHECK_ZU(CALLS(mem_create) - creates, 1);
    CHECK_ZU(grow(1), 6 * MIB);
    tear_down_range();
}

static void the_end_of_the_addresses_is_respected(void) {
    REQUIRE(set_up_range("memory=512MiB"));
    check_no_growth(range.bytes + 1, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "exceed the reserved address range");
    check_no_growth(SIZE_MAX, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "18446744073709551615 bytes exceed the reserved");
    CHECK_ZU(grow(384 * MIB), 384 * MIB);
    const size_t bytes = range.bytes; /* const for everybody else */
    range.bytes = 390 * MIB;
    check_no_growth(6 * MIB + 1, ASHLAR_ENOMEM);
    CHECK_ZU(grow(1), 6 * MIB); /* the step just fits */
    range.bytes = 394 * MIB;
    CHECK_ZU(grow(1), 2 * MIB); /* a step of 6 MiB no longer does */
    CHECK_ZU(grow(2 * MIB), 2 * MIB);
    check_no_growth(1, ASHLAR_ENOMEM);
    range.bytes = bytes;
    tear_down_range();
}

static void a_failing_growth_changes_nothing(void) {
    static const struct {
        ashlar_driver_fn fn;
        const char *name;
        size_t unmaps, releases;
    } steps[] = {
        {ASHLAR_DRIVER_FN_mem_create, "cuMemCreate on", 0, 0},
        {ASHLAR_DRIVER_FN_mem_map, "cuMemMap on", 0, 1},
        {ASHLAR_DRIVER_FN_mem_set_access, "cuMemSetAccess on", 1, 1},
    };
    REQUIRE(set_up_range("memory=16MiB"));
    CHECK_ZU(grow(1), 2 * MIB);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const size_t unmaps = CALLS(mem_unmap), releases = CALLS(mem_release);
        ashlar_driver_fail_at(driver, (int)steps[i].fn, 1, CU_UNKNOWN);
        check_no_growth(1, ASHLAR_EDRIVER);
        CHECK_HAS(ashlar_error_detail(), steps[i].name);
        CHECK_ZU(CALLS(mem_unmap) - unmaps, steps[i].unmaps);
        CHECK_ZU(CALLS(mem_release) - releases, steps[i].releases);
        ashlar_driver_fail_at(driver, (int)steps[i].fn, 1, CU_OUT_OF_MEMORY);
        check_no_growth(1, ASHLAR_ENOMEM);
        CHECK_ZU(grow(1), 2 * MIB);
    }
    tear_down_range();
}

static void missing_host_memory_for_the_list_changes_nothing(void) {
    REQUIRE(set_up_range("memory=64MiB"));
    ashlar_host_fail_at(1);
    check_no_growth(1, ASHLAR_EHOSTMEM);
    CHECK_HAS(ashlar_error_detail(), "a list of 16 mappings");
    for (int i = 0; i < 16; i++) {
        CHECK_ZU(grow(1), 2 * MIB);
    }
    ashlar_host_fail_at(1);
    check_no_growth(1, ASHLAR_EHOSTMEM);
    CHECK_HAS(ashlar_error_detail(), "a list of 32 mappings");
    CHECK_ZU(grow(1), 2 * MIB);
    tear_down_range();
}

/* ---- set-up ---- */

static cu_result reserve_anywhere(cu_ptr *ptr, size_t bytes, size_t align, cu_ptr hint,
                                  unsigned long long flags) {
    CHECK(align == 0 && hint == 0 && flags == 0); /* the driver's own choice */
    return ashlar_soft_mem_address_reserve(ptr, bytes, align, hint, flags);
}

static void addresses_are_left_to_the_driver(void) {
    REQUIRE(set_up_device("memory=16MiB"));
    const ashlar_driver_table table = driver->table;
    driver->table.mem_address_reserve = reserve_anywhere;
    caller = (ashlar_caller){.device = device};
    REQUIRE(ashlar_range_init(&range, &caller) == ASHLAR_OK);
    driver->table = table;
    tear_down_range();
}

static cu_result has_no_virtual_memory(int *value, unsigned int attribute, cu_device of) {
    CHECK(attribute == CU_ATTRIBUTE_VMM_SUPPORTED && of == 0);
    *value = 0;
    return CU_SUCCESS;
}

static size_t most_addresses; /* that the driver below has */

static cu_result reserve_few(cu_ptr *ptr, size_t bytes, size_t align, cu_ptr hint,
                             unsigned long long flags) {
    return bytes > most_addresses ? CU_OUT_OF_MEMORY
                                  : ashlar_soft_mem_address_reserve(ptr, bytes, align, hint, flags);
}

static void where_addresses_are_scarce_fewer_do(void) {
    REQUIRE(set_up_device("memory=16MiB"));
    const ashlar_driver_table table = driver->table;
    driver->table.mem_address_reserve = reserve_few;
    for (size_t factor = 4; factor > 0; factor /= 2) {
        caller = (ashlar_caller){.device = device};
        most_addresses = factor * 16 * MIB;
        REQUIRE(ashlar_range_init(&range, &caller) == ASHLAR_OK);
        CHECK_ZU(range.bytes, factor * 16 * MIB);
        CHECK(caller.calls == (factor == 4 ? 3 : factor == 2 ? 4 : 5));
        CHECK_ZU(grow(16 * MIB), 16 * MIB);
        ashlar_range_finish(&range);
    }
    caller = (ashlar_caller){.device = device};
    most_addresses = 14 * MIB;
    CHECK(ashlar_range_init(&range, &caller) == ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "cuMemAddressReserve on the soft device");
    CHECK(caller.calls == 5);
    driver->table = table;
    tear_down_device();
}

static void a_device_without_virtual_memory_is_refused(void) {
    REQUIRE(set_up_device(""));
    const ashlar_driver_table table = driver->table;
    driver->table.device_get_attribute = has_no_virtual_memory;
    caller = (ashlar_caller){.device = device};
    range = (ashlar_range){.bytes = 77};
    CHECK(ashlar_range_init(&range, &caller) == ASHLAR_ENOTSUP);
    CHECK_HAS(ashlar_error_detail(), "device 0 has no virtual memory management");
    CHECK_ZU(range.bytes, 77);
    driver->table = table;
    tear_down_device();
}

static void a_failing_set_up_reserves_nothing(void) {
    static const struct {
        ashlar_driver_fn fn;
        const char *name;
    } steps[] = {
        {ASHLAR_DRIVER_FN_device_get_attribute, "cuDeviceGetAttribute on"},
        {ASHLAR_DRIVER_FN_mem_get_allocation_granularity, "cuMemGetAllocationGranularity on"},
        {ASHLAR_DRIVER_FN_mem_address_reserve, "cuMemAddressReserve on"},
    };
    REQUIRE(set_up_device(""));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        caller = (ashlar_caller){.device = device};
        range = (ashlar_range){.bytes = 77};
        ashlar_driver_fail_at(driver, (int)steps[i].fn, 1, CU_UNKNOWN);
        CHECK(ashlar_range_init(&range, &caller) == ASHLAR_EDRIVER);
        CHECK_HAS(ashlar_error_detail(), steps[i].name);
        CHECK_ZU(range.bytes, 77);
        CHECK(caller.calls == i + 1);
        CHECK_ZU(ashlar_soft_state.reservations.count, 0);
    }
    tear_down_device();
}

static void a_device_too_large_to_address_is_refused(void) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 4 + 1, SIZE_MAX / 4};
    REQUIRE(set_up_device(""));
    const size_t bytes = device->info.total_bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        device->info.total_bytes = sizes[i];
        caller = (ashlar_caller){.device = device};
        CHECK(ashlar_range_init(&range, &caller) == ASHLAR_EOVERFLOW);
        CHECK_HAS(ashlar_error_detail(), "too many to address");
    }
    device->info.total_bytes = 6 * MIB + 1; /* an odd size: the addresses are whole granules */
    REQUIRE(ashlar_range_init(&range, &caller) == ASHLAR_OK);
    CHECK_ZU(range.bytes, 26 * MIB);
    ashlar_range_finish(&range);
    device->info.total_bytes = bytes;
    tear_down_device();
}

int main(void) {
    RUN(a_new_range_has_addresses_and_no_memory);
    RUN(memory_is_mapped_upwards_without_gaps);
    RUN(memory_comes_from_the_allocators_device);
    RUN(many_mappings_are_all_returned);
    RUN(growth_steps_are_one_64th_of_what_is_mapped);
    RUN(a_step_that_does_not_fit_gives_way_to_what_is_needed);
    RUN(a_step_that_fails_otherwise_is_not_tried_again);
    RUN(the_end_of_the_addresses_is_respected);
    RUN(a_failing_growth_changes_nothing);
    RUN(missing_host_memory_for_the_list_changes_nothing);
    RUN(addresses_are_left_to_the_driver);
    RUN(where_addresses_are_scarce_fewer_do);
    RUN(a_device_without_virtual_memory_is_refused);
    RUN(a_failing_set_up_reserves_nothing);
    RUN(a_device_too_large_to_address_is_refused);
    return check_report();
}
