/*
 * soft_memory_fixture.h - ranges and handles of a software device, counted in pages, for tests.
 */
#ifndef ASHLAR_SOFT_MEMORY_FIXTURE_H
#define ASHLAR_SOFT_MEMORY_FIXTURE_H

#include "tests/allocator/soft/soft_fixture.h"

#define PAGE ((size_t)2 << 20)

static const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                                 .location = {.type = CU_LOCATION_DEVICE, .id = 0}};
static const cu_mem_access access0 = {.location = {.type = CU_LOCATION_DEVICE, .id = 0},
                                      .flags = CU_ACCESS_READWRITE};

static inline size_t free_pages(void) {
    size_t left = 0, total = 0;
    CHECK(soft->mem_get_info(&left, &total) == CU_SUCCESS);
    CHECK_ZU(left % PAGE, 0);
    return left / PAGE;
}

static inline cu_ptr reserve(size_t page_count) {
    cu_ptr ptr = 0;
    CHECK(soft->mem_address_reserve(&ptr, page_count * PAGE, 0, 0, 0) == CU_SUCCESS);
    return ptr;
}

static inline cu_mem_handle create(size_t page_count) {
    cu_mem_handle handle = 0;
    CHECK(soft->mem_create(&handle, page_count * PAGE, &prop, 0) == CU_SUCCESS);
    return handle;
}

/* Map and make accessible. */
static inline void place(cu_ptr ptr, size_t page_count, cu_mem_handle handle) {
    CHECK(soft->mem_map(ptr, page_count * PAGE, 0, handle, 0) == CU_SUCCESS);
    CHECK(soft->mem_set_access(ptr, page_count * PAGE, &access0, 1) == CU_SUCCESS);
}

#endif /* ASHLAR_SOFT_MEMORY_FIXTURE_H */
