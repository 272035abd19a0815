/*
 * test_soft_memory.c - the software device's virtual memory: reserve, create, map, set access.
 */
#include "tests/allocator/soft/soft_fixture.h"
#include "allocator/base/random.h"

#include "tests/child.h"

static cu_ptr touched;

static void touch(void) {
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's report would be noise here */
    *(volatile unsigned char *)bytes_at(touched) = 1;
}

/* What a child process meets that touches the byte: a signal, or none. */
static bool touch_is_deadly(cu_ptr ptr) {
    touched = ptr;
    const int status = run_child(touch);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

CASE_WITH(access_is_denied_until_set, set_up("memory=8MiB")) {
    const cu_ptr ptr = reserve(2);
    const cu_mem_handle handle = create(2);
    CHECK(touch_is_deadly(ptr));
    CHECK(soft->mem_map(ptr, 2 * PAGE, 0, handle, 0) == CU_SUCCESS);
    CHECK(touch_is_deadly(ptr));
    CHECK(soft->memset_d8_async(ptr, 1, 1, NULL) == CU_INVALID_VALUE);
    CHECK(soft->mem_set_access(ptr, 2 * PAGE, &access0, 1) == CU_SUCCESS);
    CHECK(!touch_is_deadly(ptr));
    CHECK(soft->memset_d8_async(ptr, 1, 2 * PAGE, NULL) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 1, 2 * PAGE + 1, NULL) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr, 2 * PAGE) == CU_SUCCESS);
    CHECK(soft->mem_map(ptr, 2 * PAGE, 0, handle, 0) == CU_SUCCESS);
    CHECK(touch_is_deadly(ptr)); /* a new mapping starts without access */
}

CASE_WITH(unmap_takes_whole_mappings_or_nothing, set_up("memory=32MiB")) {
    const cu_ptr ptr = reserve(8);
    place(ptr, 2, create(2));
    place(ptr + 2 * PAGE, 2, create(2));
    place(ptr + 5 * PAGE, 1, create(1)); /* pages 4, 6 and 7 stay empty */
    memset(bytes_at(ptr), 9, 4 * PAGE);
    CHECK(soft->mem_unmap(ptr, PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr + PAGE, PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr, 3 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr, 5 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr, 6 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr + 4 * PAGE, PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr + 5 * PAGE, 2 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(1, PAGE) == CU_INVALID_VALUE);
    CHECK(bytes_at(ptr)[0] == 9 && bytes_at(ptr)[4 * PAGE - 1] == 9);
    CHECK(soft->memset_d8_async(ptr, 8, 4 * PAGE, NULL) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 8, 6 * PAGE, NULL) == CU_INVALID_VALUE); /* over the hole */
    CHECK(soft->mem_unmap(ptr, 4 * PAGE) == CU_SUCCESS); /* two mappings at once */
    CHECK(soft->mem_unmap(ptr, 4 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr + 5 * PAGE, PAGE) == CU_SUCCESS);
}

CASE_WITH(set_access_covers_several_whole_mappings, set_up("devices=2,memory=32MiB,peers=off")) {
    const cu_ptr ptr = reserve(6);
    CHECK(soft->mem_map(ptr, 2 * PAGE, 0, create(2), 0) == CU_SUCCESS);
    CHECK(soft->mem_map(ptr + 2 * PAGE, PAGE, 0, create(1), 0) == CU_SUCCESS);
    CHECK(soft->mem_set_access(ptr, 4 * PAGE, &access0, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_set_access(ptr, PAGE, &access0, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, &access0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, NULL, 1) == CU_INVALID_VALUE);
    cu_mem_access access = access0;
    access.location.id = 1; /* not its memory, and no peer */
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, &access, 1) == CU_NOT_SUPPORTED);
    access.location.id = 2;
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, &access, 1) == CU_INVALID_DEVICE);
    access = access0;
    access.flags = 1;
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, &access, 1) == CU_NOT_SUPPORTED);
    access = access0;
    access.location.type = 0;
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, &access, 1) == CU_INVALID_VALUE);
    CHECK(touch_is_deadly(ptr));
    CHECK(soft->mem_set_access(ptr, 3 * PAGE, &access0, 1) == CU_SUCCESS);
    memset(bytes_at(ptr), 3, 3 * PAGE);
    CHECK(bytes_at(ptr)[3 * PAGE - 1] == 3);
}

CASE_WITH(without_virtual_memory_management_plain_memory_remains, set_up("memory=8MiB,vmm=off")) {
    int has_vmm = 7;
    size_t bytes = 7;
    cu_ptr ptr = 7;
    cu_mem_handle handle = 7;
    CHECK(soft->device_get_attribute(&has_vmm, CU_ATTRIBUTE_VMM_SUPPORTED, 0) == CU_SUCCESS);
    CHECK(has_vmm == 0);
    CHECK(soft->mem_get_allocation_granularity(&bytes, &prop, 0) == CU_NOT_SUPPORTED);
    CHECK(soft->mem_address_reserve(&ptr, PAGE, 0, 0, 0) == CU_NOT_SUPPORTED);
    CHECK(soft->mem_create(&handle, PAGE, &prop, 0) == CU_NOT_SUPPORTED);
    CHECK(bytes == 7 && ptr == 7 && handle == 7);
    REQUIRE(soft->mem_alloc(&ptr, 5 * PAGE / 2) == CU_SUCCESS);
    CHECK(soft->mem_map(ptr, PAGE, 0, handle, 0) == CU_NOT_SUPPORTED);
    CHECK(soft->mem_set_access(ptr, PAGE, &access0, 1) == CU_NOT_SUPPORTED);
    CHECK(soft->mem_unmap(ptr, PAGE) == CU_NOT_SUPPORTED);
    CHECK(soft->mem_address_free(ptr, PAGE) == CU_NOT_SUPPORTED);
    CHECK(soft->mem_release(handle) == CU_NOT_SUPPORTED);
    CHECK_ZU(free_pages(), 1);
    CHECK(soft->memset_d8_async(ptr, 5, 2 * PAGE, NULL) == CU_SUCCESS);
    CHECK(soft->mem_free(ptr) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 4);
    REQUIRE(set_up("memory=8MiB"));
    CHECK(soft->device_get_attribute(&has_vmm, CU_ATTRIBUTE_VMM_SUPPORTED, 0) == CU_SUCCESS);
    CHECK(has_vmm == 1);
}

CASE_WITH(map_refuses_what_cuda_refuses, set_up("memory=32MiB")) {
    const cu_ptr ptr = reserve(4);
    const cu_mem_handle handle = create(2);
    CHECK(soft->mem_map(ptr, 3 * PAGE, 0, handle, 0) == CU_INVALID_VALUE); /* beyond the handle */
    CHECK(soft->mem_map(ptr, PAGE, PAGE, handle, 0) == CU_INVALID_VALUE);  /* offset not zero */
    CHECK(soft->mem_map(ptr + 3 * PAGE, 2 * PAGE, 0, handle, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr + 4096, PAGE, 0, handle, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr, 4096, 0, handle, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr, 0, 0, handle, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr, PAGE, 0, handle, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr, PAGE, 0, 12345, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(PAGE, PAGE, 0, handle, 0) == CU_INVALID_VALUE); /* not reserved */
    REQUIRE(soft->mem_map(ptr + PAGE, 2 * PAGE, 0, handle, 0) == CU_SUCCESS);
    CHECK(soft->mem_map(ptr, 2 * PAGE, 0, handle, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr + 2 * PAGE, PAGE, 0, handle, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr, PAGE, 0, handle, 0) == CU_SUCCESS);
    CHECK(soft->mem_map(ptr + 3 * PAGE, PAGE, 0, handle, 0) == CU_SUCCESS);
}

CASE_WITH(create_refuses_what_cuda_refuses, set_up("devices=2,memory=32MiB")) {
    cu_mem_handle handle = 99;
    size_t bytes = 0;
    cu_mem_prop bad = prop;
    CHECK(soft->mem_create(&handle, 0, &prop, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_create(&handle, PAGE + 1, &prop, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_create(&handle, PAGE, &prop, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_create(&handle, PAGE, NULL, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_create(NULL, PAGE, &prop, 0) == CU_INVALID_VALUE);
    bad.type = 0;
    CHECK(soft->mem_create(&handle, PAGE, &bad, 0) == CU_INVALID_VALUE);
    bad = prop;
    bad.location.type = 0;
    CHECK(soft->mem_create(&handle, PAGE, &bad, 0) == CU_INVALID_VALUE);
    bad = prop;
    bad.handle_types = 8; /* fabric */
    CHECK(soft->mem_create(&handle, PAGE, &bad, 0) == CU_NOT_SUPPORTED);
    bad = prop;
    bad.location.id = 2;
    CHECK(soft->mem_create(&handle, PAGE, &bad, 0) == CU_INVALID_DEVICE);
    CHECK(soft->mem_get_allocation_granularity(&bytes, &bad, 0) == CU_INVALID_DEVICE);
    CHECK(handle == 99 && bytes == 0);
    bad.location.id = 1;
    bad.handle_types = CU_HANDLE_FILE;
    CHECK(soft->mem_create(&handle, PAGE, &bad, 0) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 16); /* it is the other device's */
    CHECK(soft->mem_get_allocation_granularity(&bytes, &prop, 2) == CU_INVALID_VALUE);
    CHECK(soft->mem_get_allocation_granularity(NULL, &prop, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_get_allocation_granularity(&bytes, &prop, CU_GRANULARITY_RECOMMENDED) ==
          CU_SUCCESS);
    CHECK_ZU(bytes, PAGE);
}

CASE_WITH(reservations_are_aligned_and_freed_exactly, set_up("memory=8MiB")) {
    cu_ptr ptr = 99, huge = 0, hinted = 0;
    CHECK(soft->mem_address_reserve(&ptr, 0, 0, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_reserve(&ptr, PAGE + 4096, 0, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_reserve(&ptr, PAGE, 3 * PAGE, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_reserve(&ptr, PAGE, 0, 0, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_reserve(NULL, PAGE, 0, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_reserve(&ptr, SIZE_MAX & ~(PAGE - 1), 0, 0, 0) == CU_OUT_OF_MEMORY);
    CHECK(ptr == 99);
    REQUIRE(soft->mem_address_reserve(&ptr, 2 * PAGE, (size_t)1 << 30, 0, 0) == CU_SUCCESS);
    CHECK_ZU(ptr % ((size_t)1 << 30), 0);
    CHECK(soft->mem_address_reserve(&hinted, PAGE, 0, ptr + 2 * PAGE, 0) == CU_SUCCESS);
    CHECK(hinted == ptr + 2 * PAGE); /* what the alignment took in addition is free again */
    CHECK(soft->mem_address_free(hinted, PAGE) == CU_SUCCESS);
    REQUIRE(soft->mem_address_reserve(&huge, (size_t)1 << 36, 0, 0, 0) == CU_SUCCESS);
    CHECK_ZU(huge % PAGE, 0);
    CHECK(soft->mem_address_free(huge, (size_t)1 << 36) == CU_SUCCESS);
    CHECK(soft->mem_address_reserve(&hinted, 2 * PAGE, 0, huge, 0) == CU_SUCCESS);
    CHECK(hinted == huge);
    CHECK(soft->mem_address_reserve(&hinted, 2 * PAGE, 0, huge, 0) == CU_SUCCESS);
    CHECK(hinted != huge); /* taken: a hint is only a hint */
    CHECK(soft->mem_address_free(ptr, PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_free(ptr + PAGE, PAGE) == CU_INVALID_VALUE);
    place(ptr, 1, create(1));
    CHECK(soft->mem_address_free(ptr, 2 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_unmap(ptr, PAGE) == CU_SUCCESS);
    CHECK(soft->mem_address_free(ptr, 2 * PAGE) == CU_SUCCESS);
    CHECK(soft->mem_address_free(ptr, 2 * PAGE) == CU_INVALID_VALUE);
}

CASE(random_mapping_agrees_with_a_model) {
    enum { PAGES = 24, STEPS = 4000 };
    REQUIRE(set_up("memory=48MiB"));
    const cu_ptr ptr = reserve(PAGES);
    cu_mem_handle owner[PAGES] = {0}; /* by page of the range; each mapping has its own handle */
    size_t length[PAGES] = {0};       /* at a mapping's first page */
    unsigned char stamp[PAGES] = {0};
    uint64_t state = 12345;
    size_t used = 0;
    for (int step = 0; step < STEPS; step++) {
        const uint64_t random = ashlar__random_step(&state);
        const size_t at = random >> 16 & 15, count = 1 + (random >> 24 & 7);
        const cu_ptr where = ptr + at * PAGE;
        if ((random >> 21 & 1) != 0) {
            bool is_free = true;
            for (size_t i = at; i < at + count; i++) {
                is_free = is_free && owner[i] == 0;
            }
            cu_mem_handle handle = 0;
            REQUIRE(soft->mem_create(&handle, count * PAGE, &prop, 0) == CU_SUCCESS ||
                    count > PAGES - used);
            if (handle == 0) {
                continue;
            }
            const cu_result result = soft->mem_map(where, count * PAGE, 0, handle, 0);
            REQUIRE(result == (is_free ? CU_SUCCESS : CU_INVALID_VALUE));
            if (!is_free) {
                REQUIRE(soft->mem_release(handle) == CU_SUCCESS);
                continue;
            }
            REQUIRE(soft->mem_set_access(where, count * PAGE, &access0, 1) == CU_SUCCESS);
            for (size_t i = at; i < at + count; i++) {
                owner[i] = handle;
                stamp[i] = (unsigned char)(random >> 8 ^ i);
                bytes_at(ptr)[i * PAGE + 5] = stamp[i];
            }
            length[at] = count;
            used += count;
        } else if (length[at] != 0) {
            const size_t bytes = length[at] * PAGE;
            REQUIRE(soft->mem_unmap(where, bytes) == CU_SUCCESS);
            REQUIRE(soft->mem_release(owner[at]) == CU_SUCCESS);
            for (size_t i = at; i < at + length[at]; i++) {
                owner[i] = 0;
            }
            used -= length[at];
            length[at] = 0;
        } else {
            REQUIRE(soft->mem_unmap(where, count * PAGE) == CU_INVALID_VALUE);
        }
        for (size_t i = 0; i < PAGES; i++) {
            REQUIRE(owner[i] == 0 || bytes_at(ptr)[i * PAGE + 5] == stamp[i]);
        }
        REQUIRE(free_pages() == PAGES - used);
    }
}

/* ---- sharing with other processes ---- */

static cu_mem_prop prop_for(unsigned int types, bool has_rdma) {
    cu_mem_prop made = prop;
    made.handle_types = types;
    made.flags.rdma_capable = has_rdma;
    return made;
}

static cu_result create_for(unsigned int types, bool has_rdma, cu_mem_handle *handle) {
    const cu_mem_prop made = prop_for(types, has_rdma);
    return soft->mem_create(handle, PAGE, &made, 0);
}

typedef struct promise {
    const char *spec;
    int file, rdma; /* attributes */
    cu_result for_file, for_file_and_rdma;
} promise;

static int attribute(unsigned int which) {
    int value = -1;
    CHECK(soft->device_get_attribute(&value, which, 0) == CU_SUCCESS);
    return value;
}

static cu_result made(unsigned int types, bool has_rdma) {
    cu_mem_handle handle = 0;
    size_t bytes = 0;
    const cu_mem_prop wanted = prop_for(types, has_rdma);
    const cu_result result = create_for(types, has_rdma, &handle);
    CHECK(soft->mem_get_allocation_granularity(&bytes, &wanted, CU_GRANULARITY_MINIMUM) == result);
    CHECK(result != CU_SUCCESS || soft->mem_release(handle) == CU_SUCCESS);
    return result;
}

CASE(a_device_shares_as_far_as_its_attributes_say) {
    static const promise all[] = {
        {"memory=32MiB", 1, 1, CU_SUCCESS, CU_SUCCESS},
        {"memory=32MiB,vmm=off", 0, 0, CU_NOT_SUPPORTED, CU_NOT_SUPPORTED},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const promise *p = &all[i];
        REQUIRE(set_up(p->spec));
        CHECK(attribute(CU_ATTRIBUTE_HANDLE_FILE) == p->file);
        CHECK(attribute(CU_ATTRIBUTE_RDMA) == p->rdma);
        CHECK(made(CU_HANDLE_FILE, false) == p->for_file);
        CHECK(made(CU_HANDLE_FILE, true) == p->for_file_and_rdma);
        CHECK(made(2, false) == CU_NOT_SUPPORTED); /* a handle of Windows */
    }
}

RUN_CASES()
