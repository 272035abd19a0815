/*
 * test_range.c - opening a range where addresses or virtual memory are lacking; odd segments.
 */
#include "tests/allocator/device/device_fixture.h"

#include "allocator/heap/heap.h"
#include "allocator/soft/soft_state.h"

static ashlar_driver_client client;
static ashlar_range range;

static ashlar_status open_range(ashlar_range_kind kind) {
    client = (ashlar_driver_client){.device = device};
    return ashlar__range_init(&range, &client, kind, 0);
}

/* Take a segment, write all of it, and give it back. */
static void use_segment(size_t bytes) {
    size_t at = 0;
    REQUIRE(ashlar__range_take_segment(&range, bytes, &at) == ASHLAR_OK);
    CHECK(ashlar__range_is_sound(&range));
    CHECK_ZU(range.mapped_bytes, bytes);
    memset(ashlar__ptr_out(at), 1, bytes);
    CHECK(ashlar__range_free_segment(&range, at, bytes) == ASHLAR_OK);
    CHECK_ZU(range.mapped_bytes, 0);
}

/* ---- opening ---- */

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
            REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
            CHECK_ZU(range.bytes, factor * 16 * MIB);
            CHECK_ZU(client.calls, calls);
            ashlar__range_finish(&range);
        }
        most_addresses = 14 * MIB;
        range = (ashlar_range){.bytes = 77};
        CHECK_FAILS(open_range(ASHLAR_RANGE_VIRTUAL), refusals[i].status,
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
    REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
    driver->table = table;
    CHECK(client.calls == 1 && range.segments != NULL);
    use_segment(2 * MIB);
    ashlar__range_finish(&range);
}

CASE_WITH(a_device_too_large_to_address_is_refused, set_up_device("")) {
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 32 + 1, SIZE_MAX / 32};
    const size_t bytes = device->info.total_bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        device->info.total_bytes = sizes[i];
        CHECK_FAILS(open_range(ASHLAR_RANGE_VIRTUAL), ASHLAR_EOVERFLOW, "too many to address");
    }
    device->info.total_bytes = 6 * MIB + 1; /* an odd size: the addresses are whole handles */
    REQUIRE(open_range(ASHLAR_RANGE_VIRTUAL) == ASHLAR_OK);
    CHECK_ZU(range.bytes, 194 * MIB);
    ashlar__range_finish(&range);
    device->info.total_bytes = bytes;
}

/* ---- segments ---- */

CASE_WITH(host_memory_comes_in_page_locked_segments, set_up_device("memory=16MiB")) {
    const size_t taken = CALLS(mem_host_alloc);
    REQUIRE(open_range(ASHLAR_RANGE_HOST) == ASHLAR_OK);
    CHECK_ZU(range.memory_bytes, ashlar__host_memory_bytes());
    CHECK_ZU(CALLS(mem_host_alloc), taken);
    use_segment(32 * MIB); /* more than the device has */
    CHECK_ZU(CALLS(mem_host_alloc), taken + 1);
    CHECK_ZU(CALLS(mem_free_host), 1);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    ashlar__range_finish(&range);
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

CASE_WITH(an_address_that_cannot_be_an_offset_is_given_back, set_up_device("memory=16MiB")) {
    static const cu_ptr odd[] = {256, (cu_ptr)1 << 48, ((cu_ptr)1 << 48) - 512};
    const ashlar_driver_table table = driver->table;
    REQUIRE(open_range(ASHLAR_RANGE_SEGMENTS) == ASHLAR_OK);
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
    ashlar__range_finish(&range);
}

RUN_CASES()
