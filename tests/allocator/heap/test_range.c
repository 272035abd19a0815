/*
 * test_range.c - reserving addresses, and mapping memory into them up to the limit.
 */
#include "tests/allocator/heap/range_fixture.h"

CASE_WITH(a_new_range_has_addresses_and_no_memory, set_up_range("memory=16MiB")) {
    CHECK_ZU(range.bytes, 64 * MIB); /* four times the device's memory */
    CHECK_ZU(range.granularity, 2 * MIB);
    CHECK_ZU(range.memory_bytes, 16 * MIB);
    CHECK_ZU(range.limit_bytes, 16 * MIB);
    CHECK_ZU(range.mapped_bytes, 0);
    CHECK(range.base % (2 * MIB) == 0);
    CHECK_ZU(ashlar__soft_state.reservations.items[0]->bytes, 64 * MIB);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    CHECK(client.calls == 3); /* attribute, granularity, reservation */
}

CASE_WITH(memory_is_mapped_where_it_is_wanted, set_up_range("memory=32MiB")) {
    static const size_t wants[][2] = {{0, 2}, {100, 4}, {2, 6}, {104, 2}, {50, 8}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        CHECK_ZU(map(wants[i][0] * MIB, wants[i][1] * MIB), wants[i][0] * MIB);
        CHECK_ZU(range.chunk_count, i + 1);
        memset(ashlar__ptr_out(range.base + wants[i][0] * MIB), 1, wants[i][1] * MIB);
    }
    CHECK_ZU(range.chunks[1].offset, 2 * MIB);
    CHECK_ZU(range.chunks[4].offset, 104 * MIB);
}

CASE_WITH(large_mappings_are_cut_into_chunks_and_opened_at_once, set_up_range("memory=256MiB")) {
    const size_t opened = CALLS(mem_set_access);
    map(0, 32 * MIB);
    CHECK_ZU(range.chunk_count, 1);
    map(64 * MIB, 102 * MIB);
    CHECK_ZU(range.chunk_count, 5);
    for (size_t i = 1; i < 5; i++) {
        CHECK_ZU(range.chunks[i].offset, (32 + 32 * i) * MIB);
        CHECK_ZU(range.chunks[i].bytes, (i < 4 ? 32 : 6) * MIB);
    }
    CHECK_ZU(CALLS(mem_set_access) - opened, 2);
}

CASE_BOTH_WITH(memory_comes_from_the_allocators_device, set_up_device("devices=2,memory=16MiB")) {
    ashlar_device *second = NULL;
    size_t offset = 0;
    REQUIRE(ashlar_device_open("soft:1", &second) == ASHLAR_OK);
    client = (ashlar_driver_client){.device = second};
    REQUIRE(ashlar__range_init(&range, &client, KIND) == ASHLAR_OK);
    CHECK(ashlar__range_map(&range, &offset, 4 * MIB) == ASHLAR_OK);
    CHECK_ZU(free_memory_of(second), 12 * MIB);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    ashlar__range_finish(&range);
    CHECK_ZU(free_memory_of(second), 16 * MIB);
    ashlar_device_close(second);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
}

CASE_BOTH_WITH(many_chunks_are_all_returned, set_up_range("memory=256MiB")) {
    for (size_t i = 0; i < 70; i++) { /* the list of them doubles from 16 to 128 */
        map(i * 2 * MIB, 2 * MIB);
        CHECK_ZU(range.chunk_count, i + 1);
        CHECK_ZU(range.chunk_capacity, i < 16 ? 16 : i < 32 ? 32 : i < 64 ? 64 : 128);
    }
    const size_t unmaps = CALLS(mem_unmap), releases = CALLS(mem_release), frees = CALLS(mem_free);
    tear_down_range();
    CHECK_ZU(CALLS(mem_unmap) - unmaps, use_segments ? 0 : 70);
    CHECK_ZU(CALLS(mem_release) - releases, use_segments ? 0 : 70);
    CHECK_ZU(CALLS(mem_free) - frees, use_segments ? 70 : 0);
}

CASE_WITH(the_list_of_chunks_grows_by_as_many_as_a_mapping_needs, set_up_range("memory=1GiB")) {
    map(0, 17 * 32 * MIB);
    CHECK_ZU(range.chunk_count, 17);
    CHECK_ZU(range.chunk_capacity, 32);
}

CASE_BOTH_WITH(a_step_is_a_part_of_what_is_mapped, set_up_range("memory=16GiB")) {
    const size_t part = use_segments ? 16 : 64;
    CHECK_ZU(ashlar__range_growth_bytes(&range), 0);
    map(0, 2 * part * MIB - 2 * MIB);
    CHECK_ZU(ashlar__range_growth_bytes(&range), 0);
    size_t at = map(8 * part * MIB, 2 * MIB);
    CHECK_ZU(ashlar__range_growth_bytes(&range), 2 * MIB);
    map(at + 64 * part * MIB, 2 * part * MIB - 2 * MIB);
    CHECK_ZU(ashlar__range_growth_bytes(&range), 2 * MIB); /* in whole granules */
    map(at + 128 * part * MIB, 60 * part * MIB + 2 * MIB);
    CHECK_ZU(ashlar__range_growth_bytes(&range), 64 * MIB);
    map(at + 256 * part * MIB, 64 * part * MIB);
    CHECK_ZU(ashlar__range_growth_bytes(&range), 64 * MIB);
}

/* ---- the limit ---- */

CASE_BOTH_WITH(the_limit_is_refused_before_any_driver_call, set_up_range("memory=16MiB")) {
    map(0, 4 * MIB);
    range.limit_bytes = 7 * MIB;
    CHECK_ZU(ashlar__range_left(&range), 3 * MIB);
    const uint64_t calls = client.calls;
    check_no_map(8 * MIB, 4 * MIB, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(),
              "4194304 bytes more than the 4194304 mapped would exceed the limit of 7340032");
    CHECK(client.calls == calls);
    const size_t at = map(8 * MIB, 2 * MIB);
    check_no_map(at + 8 * MIB, 2 * MIB, ASHLAR_ENOMEM);
    range.limit_bytes = 2 * MIB; /* below what is mapped: that stays */
    CHECK_ZU(ashlar__range_left(&range), 0);
    check_no_map(at + 8 * MIB, 2 * MIB, ASHLAR_ENOMEM);
    range.limit_bytes = SIZE_MAX;
    check_no_map(at + 8 * MIB, 12 * MIB, ASHLAR_ENOMEM); /* the device's own refusal */
    CHECK_HAS(ashlar_error_detail(), "CUDA_ERROR_OUT_OF_MEMORY");
}

/* ---- failures ---- */

/* What is done of a mapping of three chunks is undone, whichever call fails. */
CASE(a_failing_mapping_changes_nothing) {
    static const struct {
        ashlar_driver_fn fn;
        size_t calls;
        const char *name;
    } steps[] = {
        {ASHLAR_DRIVER_FN_mem_create, 3, "cuMemCreate on"},
        {ASHLAR_DRIVER_FN_mem_map, 3, "cuMemMap on"},
        {ASHLAR_DRIVER_FN_mem_set_access, 1, "cuMemSetAccess on"},
    };
    REQUIRE(set_up_range("memory=256MiB"));
    map(0, 2 * MIB);
    map(128 * MIB, 2 * MIB);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (size_t n = 1; n <= steps[i].calls; n++) {
            ashlar__driver_fail_at(driver, (int)steps[i].fn, n, CU_UNKNOWN);
            check_no_map(2 * MIB, 70 * MIB, ASHLAR_EDRIVER);
            CHECK_HAS(ashlar_error_detail(), steps[i].name);
            ashlar__driver_fail_at(driver, (int)steps[i].fn, n, CU_OUT_OF_MEMORY);
            check_no_map(2 * MIB, 70 * MIB, ASHLAR_ENOMEM);
        }
    }
    map(2 * MIB, 70 * MIB);
}

CASE_BOTH_WITH(missing_host_memory_for_the_list_changes_nothing, set_up_range("memory=64MiB")) {
    ashlar__host_fail_at(1);
    check_no_map(0, 2 * MIB, ASHLAR_EHOSTMEM);
    CHECK_HAS(ashlar_error_detail(), "a list of 16 chunks");
    for (size_t i = 0; i < 16; i++) {
        map(i * 2 * MIB, 2 * MIB);
    }
    ashlar__host_fail_at(1);
    check_no_map(32 * MIB, 2 * MIB, ASHLAR_EHOSTMEM);
    CHECK_HAS(ashlar_error_detail(), "a list of 32 chunks");
    map(32 * MIB, 2 * MIB);
}

/* ---- set-up ---- */

static cu_result reserve_anywhere(cu_ptr *ptr, size_t bytes, size_t align, cu_ptr hint,
                                  unsigned long long flags) {
    CHECK(align == 0 && hint == 0 && flags == 0); /* the driver's own choice */
    return ashlar__soft_mem_address_reserve(ptr, bytes, align, hint, flags);
}

CASE_WITH(addresses_are_left_to_the_driver, set_up_device("memory=16MiB")) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_address_reserve = reserve_anywhere;
    client = (ashlar_driver_client){.device = device};
    REQUIRE(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
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
    return bytes > most_addresses
               ? CU_OUT_OF_MEMORY
               : ashlar__soft_mem_address_reserve(ptr, bytes, align, hint, flags);
}

CASE_WITH(where_addresses_are_scarce_fewer_do, set_up_device("memory=16MiB")) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_address_reserve = reserve_few;
    for (size_t factor = 4; factor > 0; factor /= 2) {
        client = (ashlar_driver_client){.device = device};
        most_addresses = factor * 16 * MIB;
        REQUIRE(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
        CHECK_ZU(range.bytes, factor * 16 * MIB);
        CHECK(client.calls == (factor == 4 ? 3 : factor == 2 ? 4 : 5));
        map(0, 16 * MIB);
        ashlar__range_finish(&range);
    }
    client = (ashlar_driver_client){.device = device};
    most_addresses = 14 * MIB;
    CHECK_FAILS(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL), ASHLAR_ENOMEM,
                "cuMemAddressReserve on the soft device");
    CHECK(client.calls == 5);
    driver->table = table;
}

CASE_WITH(a_device_without_virtual_memory_has_segments, set_up_device("memory=16MiB")) {
    const ashlar_driver_table table = driver->table;
    driver->table.device_get_attribute = has_no_virtual_memory;
    client = (ashlar_driver_client){.device = device};
    CHECK(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
    CHECK(client.calls == 1 && range.segments != NULL);
    driver->table = table;
    use_segments = true;
    map(0, 2 * MIB);
    use_segments = false;
    tear_down_range();
}

CASE(a_failing_set_up_reserves_nothing) {
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
        client = (ashlar_driver_client){.device = device};
        range = (ashlar_range){.bytes = 77};
        ashlar__driver_fail_at(driver, (int)steps[i].fn, 1, CU_UNKNOWN);
        CHECK_FAILS(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL), ASHLAR_EDRIVER,
                    steps[i].name);
        CHECK_ZU(range.bytes, 77);
        CHECK(client.calls == i + 1);
        CHECK_ZU(ashlar__soft_state.reservations.count, 0);
    }
}

CASE_WITH(a_device_too_large_to_address_is_refused, set_up_device("")) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 4 + 1, SIZE_MAX / 4};
    const size_t bytes = device->info.total_bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        device->info.total_bytes = sizes[i];
        client = (ashlar_driver_client){.device = device};
        CHECK_FAILS(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL), ASHLAR_EOVERFLOW,
                    "too many to address");
    }
    device->info.total_bytes = 6 * MIB + 1; /* an odd size: the addresses are whole granules */
    REQUIRE(ashlar__range_init(&range, &client, ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
    CHECK_ZU(range.bytes, 26 * MIB);
    ashlar__range_finish(&range);
    device->info.total_bytes = bytes;
}

RUN_CASES()
