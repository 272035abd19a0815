/*
 * test_range.c - opening a range, its limit, handles that are spare, mapped and unmapped, segments.
 */
#include "tests/allocator/heap/range_fixture.h"

/* ---- opening ---- */

CASE_WITH(a_new_range_has_addresses_and_no_memory,
          set_up_range("memory=16MiB", ASHLAR_RANGE_VIRTUAL)) {
    CHECK_ZU(range.bytes, 512 * MIB); /* 32 times the device's memory */
    CHECK_ZU(range.handle_bytes, ASHLAR_HANDLE_BYTES);
    CHECK_ZU(range.memory_bytes, 16 * MIB);
    CHECK_ZU(range.limit_bytes, 16 * MIB);
    CHECK_ZU(range.mapped_bytes, 0);
    CHECK_ZU(ashlar__soft_state.reservations.items[0]->bytes, 512 * MIB);
    CHECK(range.base % ASHLAR_HANDLE_BYTES == 0 && !is_open(0));
    CHECK(client.calls == 3); /* attribute, granularity, reservation */
}

CASE_WITH(a_handles_size_is_rounded_up_to_what_the_driver_can, set_up_device("memory=96MiB")) {
    static const size_t sizes[][2] = {{0, ASHLAR_HANDLE_BYTES}, {1, 2 * MIB},
                                      {2 * MIB, 2 * MIB},       {2 * MIB + 1, 4 * MIB},
                                      {9 * MIB, 16 * MIB},      {64 * MIB, 64 * MIB}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL, sizes[i][0]) == ASHLAR_OK);
        CHECK_ZU(range.handle_bytes, sizes[i][1]);
        CHECK(range.base % range.handle_bytes == 0 && range.bytes % range.handle_bytes == 0);
        make_spare(1);
        CHECK_ZU(range.mapped_bytes, sizes[i][1]);
        ashlar__range_finish(&range);
    }
    CHECK_FAILS(open_range(ASHLAR_RANGE_VIRTUAL, SIZE_MAX), ASHLAR_ENOMEM,
                "cuMemAddressReserve on the soft device");
}

static size_t most_addresses;    /* that the driver below has, ... */
static cu_result says_of_scarce; /* ... and its result where more are asked for */

static cu_result reserve_few(cu_ptr *ptr, size_t bytes, size_t align, cu_ptr hint,
                             unsigned long long flags) {
    CHECK(align == 2 * MIB && hint == 0 && flags == 0); /* where: the driver's own choice */
    return bytes > most_addresses
               ? says_of_scarce
               : ashlar__soft_mem_address_reserve(ptr, bytes, align, hint, flags);
}

CASE_WITH(where_addresses_are_scarce_fewer_do, set_up_device("memory=16MiB")) {
    static const struct {
        cu_result result;
        ashlar_status status;
    } refusals[] = {{CU_OUT_OF_MEMORY, ASHLAR_ENOMEM},
                    {CU_INVALID_VALUE, ASHLAR_EDRIVER},
                    {CU_OPERATING_SYSTEM, ASHLAR_EDRIVER},
                    {CU_UNKNOWN, ASHLAR_EDRIVER}};
    const ashlar_driver_table table = driver->table;
    driver->table.mem_address_reserve = reserve_few;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        says_of_scarce = refusals[i].result;
        for (size_t factor = 32, calls = 3; factor > 0; factor /= 2, calls++) {
            most_addresses = factor * 16 * MIB;
            REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL, 0) == ASHLAR_OK);
            CHECK_ZU(range.bytes, factor * 16 * MIB);
            CHECK_ZU(client.calls, calls);
            ashlar__range_finish(&range);
        }
        most_addresses = 14 * MIB;
        range = (ashlar_range){.bytes = 77};
        CHECK_FAILS(open_range(ASHLAR_RANGE_VIRTUAL, 0), refusals[i].status,
                    "cuMemAddressReserve on the soft device");
        CHECK_ZU(range.bytes, 77);
    }
    driver->table = table;
}

static cu_result has_no_virtual_memory(int *value, unsigned int attribute, cu_device of) {
    CHECK(attribute == CU_ATTRIBUTE_VMM_SUPPORTED && of == 0);
    *value = 0;
    return CU_SUCCESS;
}

CASE_WITH(a_device_without_virtual_memory_has_segments, set_up_device("memory=16MiB")) {
    const ashlar_driver_table table = driver->table;
    driver->table.device_get_attribute = has_no_virtual_memory;
    mapped_count = 0;
    REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL, 0) == ASHLAR_OK);
    driver->table = table;
    CHECK(client.calls == 1 && range.segments != NULL);
    take_segment(2 * MIB);
    tear_down_range();
}

CASE(a_failing_set_up_reserves_nothing) {
    static const struct {
        ashlar_driver_fn fn;
        const char *name;
    } steps[] = {
        {ASHLAR_DRIVER_FN_device_get_attribute, "cuDeviceGetAttribute on"},
        {ASHLAR_DRIVER_FN_mem_get_allocation_granularity, "cuMemGetAllocationGranularity on"},
    };
    REQUIRE(set_up_device(""));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        range = (ashlar_range){.bytes = 77};
        ashlar__driver_fail_at(driver, (int)steps[i].fn, 1, CU_UNKNOWN);
        CHECK_FAILS(open_range(ASHLAR_RANGE_VIRTUAL, 0), ASHLAR_EDRIVER, steps[i].name);
        CHECK_ZU(range.bytes, 77);
        CHECK(client.calls == i + 1);
        CHECK_ZU(ashlar__soft_state.reservations.count, 0);
    }
}

CASE_WITH(a_device_too_large_to_address_is_refused, set_up_device("")) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 32 + 1, SIZE_MAX / 32};
    const size_t bytes = device->info.total_bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        device->info.total_bytes = sizes[i];
        CHECK_FAILS(open_range(ASHLAR_RANGE_VIRTUAL, 0), ASHLAR_EOVERFLOW, "too many to address");
    }
    device->info.total_bytes = 6 * MIB + 1; /* an odd size: the addresses are whole handles */
    REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL, 0) == ASHLAR_OK);
    CHECK_ZU(range.bytes, 194 * MIB);
    ashlar__range_finish(&range);
    device->info.total_bytes = bytes;
}

CASE_WITH(memory_comes_from_the_ranges_device, set_up_device("devices=2,memory=16MiB")) {
    ashlar_device *second = NULL;
    size_t segment = 0;
    REQUIRE(ashlar_device_open("soft:1", &second) == ASHLAR_OK);
    for (int kind = ASHLAR_RANGE_VIRTUAL; kind <= ASHLAR_RANGE_SEGMENTS; kind++) {
        client = (ashlar_driver_client){.device = second};
        REQUIRE(ashlar__range_init(&range, &client, (ashlar_range_kind)kind, 0) == ASHLAR_OK);
        CHECK(ashlar__range_reserve_spare(&range, 1) == ASHLAR_OK);
        CHECK((kind == ASHLAR_RANGE_VIRTUAL
                   ? ashlar__range_create(&range)
                   : ashlar__range_take_segment(&range, 2 * MIB, &segment)) == ASHLAR_OK);
        CHECK_ZU(free_memory_of(second), 14 * MIB);
        CHECK_ZU(free_memory_of(device), 16 * MIB);
        CHECK(kind == ASHLAR_RANGE_VIRTUAL ||
              ashlar__range_free_segment(&range, segment, 2 * MIB) == ASHLAR_OK);
        ashlar__range_finish(&range);
        CHECK_ZU(free_memory_of(second), 16 * MIB);
    }
    ashlar_device_close(second);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
}

/* ---- the limit ---- */

CASE_WITH(the_limit_is_refused_before_any_driver_call,
          set_up_range("memory=16MiB", ASHLAR_RANGE_VIRTUAL)) {
    make_spare(2);
    map(0, 1);
    range.limit_bytes = 5 * MIB;
    CHECK_ZU(ashlar__range_left(&range), 1 * MIB); /* spare handles count as well */
    const uint64_t calls = client.calls;
    CHECK_FAILS(ashlar__range_create(&range), ASHLAR_ENOMEM,
                "2097152 bytes more than the 4194304 mapped would exceed the limit of 5242880");
    CHECK(client.calls == calls);
    range.limit_bytes = 2 * MIB; /* below what was taken: that stays */
    CHECK_ZU(ashlar__range_left(&range), 0);
    range.limit_bytes = SIZE_MAX;
    make_spare(7);
    CHECK_FAILS(ashlar__range_create(&range), ASHLAR_ENOMEM, "CUDA_ERROR_OUT_OF_MEMORY");
    check_range();
}

CASE_WITH(a_segment_above_the_limit_is_refused_before_any_driver_call,
          set_up_range("memory=16MiB", ASHLAR_RANGE_SEGMENTS)) {
    size_t offset = 77;
    take_segment(4 * MIB);
    range.limit_bytes = 7 * MIB;
    const uint64_t calls = client.calls;
    CHECK_FAILS(ashlar__range_take_segment(&range, 4 * MIB, &offset), ASHLAR_ENOMEM,
                "4194304 bytes more than the 4194304 mapped would exceed the limit of 7340032");
    CHECK(client.calls == calls && offset == 77);
    take_segment(2 * MIB);
    range.limit_bytes = SIZE_MAX;
    CHECK_FAILS(ashlar__range_take_segment(&range, 12 * MIB, &offset), ASHLAR_ENOMEM,
                "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(offset == 77);
    check_range();
}

/* ---- handles ---- */

CASE_WITH(the_newest_spare_handles_are_mapped_oldest_first,
          set_up_range("memory=64MiB", ASHLAR_RANGE_VIRTUAL)) {
    make_spare(5);
    cu_mem_handle handles[5];
    memcpy(handles, range.spare, sizeof handles);
    map(0, 5);
    for (int i = 0; i < 5; i++) { /* mark each handle's memory with its number */
        memset(ashlar__ptr_out(range.base + (cu_ptr)i * range.handle_bytes), i, 2 * MIB);
    }
    for (size_t i = 0; i < 5; i++) {
        unmap(0); /* the first, then the last one up to the second */
    }
    CHECK(range.spare[0] == handles[0] && range.spare[1] == handles[4]);
    const size_t opened = CALLS(mem_set_access);
    map(100 * MIB, 3);
    CHECK_ZU(CALLS(mem_set_access) - opened, 1); /* one for the run */
    CHECK(is_open(100 * MIB) && is_open(106 * MIB - 1) && !is_open(106 * MIB));
    for (int i = 0; i < 3; i++) {
        const unsigned char *at = ashlar__ptr_out(range.base + 100 * MIB + (cu_ptr)i * 2 * MIB);
        CHECK(mapped[i].handle == handles[3 - i] && at[0] == 3 - i && at[2 * MIB - 1] == 3 - i);
    }
    CHECK(range.spare_count == 2 && range.spare[1] == handles[4]);
}

CASE_WITH(an_unmapped_handle_is_spare_and_can_be_mapped_elsewhere,
          set_up_range("memory=64MiB", ASHLAR_RANGE_VIRTUAL)) {
    make_spare(3);
    map(0, 3);
    memset(ashlar__ptr_out(range.base + 2 * MIB), 7, 2 * MIB);
    const cu_mem_handle middle = mapped[1].handle;
    const size_t creates = CALLS(mem_create);
    unmap(1);
    CHECK(range.spare_count == 1 && range.spare[0] == middle && is_open(0) && is_open(4 * MIB));
    map(400 * MIB, 1);
    CHECK(CALLS(mem_create) == creates);
    const unsigned char *moved = ashlar__ptr_out(range.base + 400 * MIB);
    CHECK(moved[0] == 7 && moved[2 * MIB - 1] == 7); /* the same memory */
}

CASE_WITH(the_newest_spare_handle_is_returned_first,
          set_up_range("memory=16MiB", ASHLAR_RANGE_VIRTUAL)) {
    make_spare(3);
    const cu_mem_handle oldest = range.spare[0];
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_release, 1, CU_UNKNOWN);
    CHECK_FAILS(ashlar__range_release(&range), ASHLAR_EDRIVER, "cuMemRelease on");
    CHECK_ZU(range.spare_count, 3);
    check_range();
    CHECK(ashlar__range_release(&range) == ASHLAR_OK && ashlar__range_release(&range) == ASHLAR_OK);
    CHECK(range.spare_count == 1 && range.spare[0] == oldest);
    check_range();
}

CASE_WITH(a_call_that_the_driver_refuses_changes_nothing,
          set_up_range("memory=16MiB", ASHLAR_RANGE_VIRTUAL)) {
    make_spare(1);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_create, 1, CU_UNKNOWN);
    CHECK_FAILS(ashlar__range_create(&range), ASHLAR_EDRIVER, "cuMemCreate on");
    CHECK_ZU(range.spare_count, 1);
    map(0, 1);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_unmap, 1, CU_UNKNOWN);
    CHECK_FAILS(ashlar__range_unmap(&range, 0, mapped[0].handle), ASHLAR_EDRIVER, "cuMemUnmap on");
    CHECK_ZU(range.spare_count, 0);
    check_range();
}

CASE(a_mapping_is_done_as_a_whole_or_not_at_all) {
    static const struct {
        ashlar_driver_fn fn;
        size_t calls;
        const char *name;
    } steps[] = {
        {ASHLAR_DRIVER_FN_mem_map, 3, "cuMemMap on"},
        {ASHLAR_DRIVER_FN_mem_set_access, 1, "cuMemSetAccess on"},
    };
    REQUIRE(set_up_range("memory=16MiB", ASHLAR_RANGE_VIRTUAL));
    make_spare(5);
    map(0, 1);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (size_t n = 1; n <= steps[i].calls; n++) {
            ashlar__driver_fail_at(driver, (int)steps[i].fn, n, CU_UNKNOWN);
            CHECK_FAILS(ashlar__range_map(&range, 2 * MIB, 3), ASHLAR_EDRIVER, steps[i].name);
            ashlar__driver_fail_at(driver, (int)steps[i].fn, n, CU_OUT_OF_MEMORY);
            CHECK(ashlar__range_map(&range, 2 * MIB, 3) == ASHLAR_ENOMEM);
            CHECK_ZU(range.spare_count, 4);
            CHECK(!is_open(2 * MIB) && !is_open(4 * MIB) && !is_open(6 * MIB));
            check_range();
        }
    }
    map(2 * MIB, 3);
}

CASE_WITH(the_list_of_spare_handles_grows_or_stays_as_it_was,
          set_up_range("memory=64MiB", ASHLAR_RANGE_VIRTUAL)) {
    HOST_FAILS_AT(1, CHECK_FAILS(ashlar__range_reserve_spare(&range, 1), ASHLAR_EHOSTMEM,
                                 "a list of 16 handles"));
    CHECK_ZU(range.spare_capacity, 0);
    make_spare(16);
    CHECK_ZU(range.spare_capacity, 16);
    HOST_FAILS_AT(1, CHECK_FAILS(ashlar__range_reserve_spare(&range, 17), ASHLAR_EHOSTMEM,
                                 "a list of 32 handles"));
    CHECK_ZU(range.spare_capacity, 16);
    check_range();
    HOST_FAILS_AT(1, CHECK(ashlar__range_reserve_spare(&range, 16) == ASHLAR_OK));
    make_spare(32);
    CHECK_ZU(range.spare_capacity, 32);
    const size_t releases = CALLS(mem_release);
    tear_down_range();
    CHECK_ZU(CALLS(mem_release) - releases, 32);
}

/* ---- peers ---- */

static struct {
    cu_ptr ptr;
    size_t bytes, count;
    int last; /* the last of the `count` devices */
    unsigned flags;
} seen; /* the newest cuMemSetAccess; the software device has no peers */

static cu_result note_access(cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count) {
    seen.ptr = ptr - range.base;
    seen.bytes = bytes;
    seen.count = count;
    seen.last = access[count - 1].location.id;
    seen.flags = access[count - 1].flags;
    return access[0].location.id == 0 ? ashlar__soft_mem_set_access(ptr, bytes, access, 1)
                                      : CU_SUCCESS;
}

CASE_WITH(mapped_memory_is_opened_to_the_device_and_its_peers,
          set_up_range("memory=16MiB", ASHLAR_RANGE_VIRTUAL)) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_set_access = note_access;
    range.peers[0] = 3;
    range.peers[1] = 5;
    range.peer_count = 2;
    make_spare(2);
    map(8 * MIB, 2);
    CHECK(seen.ptr == 8 * MIB && seen.bytes == 4 * MIB && seen.count == 3 && seen.last == 5);
    CHECK(seen.flags == CU_ACCESS_READWRITE);
    CHECK(ashlar__range_open(&range, 10 * MIB, 2 * MIB, 4) == ASHLAR_OK);
    CHECK(seen.ptr == 10 * MIB && seen.bytes == 2 * MIB && seen.count == 1 && seen.last == 4);
    CHECK(seen.flags == CU_ACCESS_READWRITE);
    ashlar__range_close(&range, 8 * MIB, 4 * MIB, 4);
    CHECK(seen.ptr == 8 * MIB && seen.count == 1 && seen.last == 4);
    CHECK(seen.flags == CU_ACCESS_NONE);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_set_access, 1, CU_UNKNOWN);
    CHECK_FAILS(ashlar__range_open(&range, 8 * MIB, 2 * MIB, 4), ASHLAR_EDRIVER,
                "cuMemSetAccess on");
    driver->table = table;
}

/* ---- segments ---- */

CASE_WITH(a_segment_is_its_address, set_up_range("memory=16MiB", ASHLAR_RANGE_SEGMENTS)) {
    CHECK(client.calls == 0 && range.base == 0);
    const size_t at = take_segment(4 * MIB);
    memset(ashlar__ptr_out(at), 1, 4 * MIB);
    CHECK(client.calls == 1);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
    unmap(0);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
}

CASE_WITH(host_memory_comes_in_page_locked_segments,
          set_up_range("memory=16MiB", ASHLAR_RANGE_HOST)) {
    CHECK_ZU(range.memory_bytes, ashlar__host_memory_bytes());
    CHECK_ZU(CALLS(mem_host_alloc), 0);
    const size_t at = take_segment(32 * MIB); /* more than the device has */
    memset(ashlar__ptr_out(at), 1, 32 * MIB);
    CHECK_ZU(CALLS(mem_host_alloc), 1);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    unmap(0);
    CHECK_ZU(CALLS(mem_free_host), 1);
}

CASE_WITH(a_failing_segment_changes_nothing, set_up_range("memory=16MiB", ASHLAR_RANGE_SEGMENTS)) {
    static const struct {
        ashlar_driver_fn take, free;
        const char *taking, *freeing;
    } steps[] = {
        {ASHLAR_DRIVER_FN_mem_alloc, ASHLAR_DRIVER_FN_mem_free, "cuMemAlloc on", "cuMemFree on"},
        {ASHLAR_DRIVER_FN_ctx_push_current, ASHLAR_DRIVER_FN_ctx_push_current,
         "cuCtxPushCurrent on", "cuCtxPushCurrent on"}};
    const size_t at = take_segment(2 * MIB);
    for (size_t i = 0; i < 2; i++) {
        size_t offset = 77;
        ashlar__driver_fail_at(driver, (int)steps[i].take, 1, CU_UNKNOWN);
        CHECK_FAILS(ashlar__range_take_segment(&range, 2 * MIB, &offset), ASHLAR_EDRIVER,
                    steps[i].taking);
        CHECK_ZU(offset, 77);
        ashlar__driver_fail_at(driver, (int)steps[i].free, 1, CU_UNKNOWN);
        CHECK_FAILS(ashlar__range_free_segment(&range, at, 2 * MIB), ASHLAR_EDRIVER,
                    steps[i].freeing);
        check_range();
    }
}

static cu_ptr odd_address;
static int odd_frees;

static cu_result alloc_odd(cu_ptr *ptr, size_t bytes) {
    (void)bytes;
    *ptr = odd_address;
    return CU_SUCCESS;
}

static cu_result free_odd(cu_ptr ptr) {
    odd_frees += ptr == odd_address;
    return CU_SUCCESS;
}

CASE_WITH(an_address_that_cannot_be_an_offset_is_given_back,
          set_up_range("memory=16MiB", ASHLAR_RANGE_SEGMENTS)) {
    static const cu_ptr odd[] = {256, (cu_ptr)1 << 48, ((cu_ptr)1 << 48) - 512};
    const ashlar_driver_table table = driver->table;
    driver->table.mem_alloc = alloc_odd;
    driver->table.mem_free = free_odd;
    odd_frees = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        size_t offset = 77;
        odd_address = odd[i];
        CHECK_FAILS(ashlar__range_take_segment(&range, 2 * MIB, &offset), ASHLAR_EDRIVER,
                    "no multiple of 512 below 2^48");
        CHECK(offset == 77 && odd_frees == (int)i + 1 && range.mapped_bytes == 0);
    }
    driver->table = table;
}

RUN_CASES()
