/*
 * test_soft_alloc.c - the software device's capacity, its plain allocations and pinned memory.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"
#include "tests/allocator/soft/soft_probe.h"

CASE_WITH(capacity_is_exact, set_up("memory=8MiB")) {
    cu_mem_handle handle = 99;
    CHECK(soft->mem_create(&handle, 5 * PAGE, &prop, 0) == CU_OUT_OF_MEMORY);
    CHECK(handle == 99);
    CHECK_ZU(free_pages(), 4);
    const cu_mem_handle all = create(4);
    CHECK_ZU(free_pages(), 0);
    CHECK(soft->mem_create(&handle, PAGE, &prop, 0) == CU_OUT_OF_MEMORY);
    cu_ptr ptr = 99;
    CHECK(soft->mem_alloc(&ptr, 1) == CU_OUT_OF_MEMORY);
    CHECK(ptr == 99);
    CHECK(soft->mem_release(all) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 4);
}

CASE_WITH(plain_allocations_are_counted_and_keep_apart_from_mapping, set_up("memory=8MiB")) {
    cu_ptr ptr, other;
    CHECK(soft->mem_alloc(&ptr, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_alloc(NULL, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_alloc(&ptr, SIZE_MAX) == CU_OUT_OF_MEMORY);
    REQUIRE(soft->mem_alloc(&ptr, PAGE + 1) == CU_SUCCESS);
    REQUIRE(soft->mem_alloc(&other, 2 * PAGE) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 0);
    memset(bytes_at(ptr), 1, PAGE + 1);
    memset(bytes_at(other), 2, 2 * PAGE);
    CHECK(bytes_at(ptr)[PAGE] == 1);
    CHECK(soft->mem_unmap(ptr, 2 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_set_access(ptr, 2 * PAGE, &access0, 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_map(ptr, PAGE, 0, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_address_free(ptr, 2 * PAGE) == CU_INVALID_VALUE);
    CHECK(soft->mem_free(ptr + 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_free(0) == CU_INVALID_VALUE);
    CHECK(soft->mem_free(ptr) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 2);
    CHECK(soft->mem_free(ptr) == CU_INVALID_VALUE);
    const cu_ptr reserved = reserve(1);
    CHECK(soft->mem_free(reserved) == CU_INVALID_VALUE);
    CHECK(soft->mem_free(other) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 4);
}

CASE_WITH(small_blocks_share_pages_that_go_back_with_their_last, set_up("memory=8MiB")) {
    enum { BLOCKS = PAGE / 512 };
    static cu_ptr blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) { /* a page of them, of odd sizes */
        blocks[i] = alloc(1 + i % 512);
        CHECK(blocks[i] % 512 == 0);
        memset(bytes_at(blocks[i]), (int)(i % 251), 1 + i % 512);
    }
    CHECK_ZU(free_pages(), 3);
    const cu_ptr large = alloc(PAGE), next = alloc(PAGE - 512);
    CHECK_ZU(free_pages(), 1);
    CHECK(alloc(512) == next + PAGE - 512); /* what is left of next's page */
    CHECK_ZU(free_pages(), 1);
    size_t wrong = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        const unsigned char *at = bytes_at(blocks[i]);
        wrong += at[0] != i % 251 || at[i % 512] != i % 251;
    }
    CHECK_ZU(wrong, 0);
    CHECK(soft->mem_free(large) == CU_SUCCESS);
    CHECK_ZU(free_pages(), 2);
    for (size_t i = 10; i < 13; i++) { /* 1536 bytes in the middle */
        CHECK(soft->mem_free(blocks[i]) == CU_SUCCESS);
    }
    CHECK(alloc(PAGE - 512) != 0); /* which takes a page */
    CHECK_ZU(free_pages(), 1);
    CHECK(alloc(1025) == blocks[10]);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_ZU(free_pages(), 1);
        CHECK(i == 11 || i == 12 || soft->mem_free(blocks[i]) == CU_SUCCESS);
    }
    CHECK_ZU(free_pages(), 2);
}

CASE_WITH(a_block_is_used_to_its_last_byte_and_freed_at_its_first, set_up("memory=8MiB")) {
    const cu_ptr first = alloc(1000), second = alloc(1024), large = alloc(PAGE + 1);
    CHECK(second == first + 1024);
    CHECK(soft->memset_d8_async(first, 1, 1000, NULL) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(first, 1, 1001, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(first + 1000, 1, 1, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(second, 1, 1025, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtod_async(second - 1, first, 2, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtod_async(second + 24, first, 1000, NULL) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(large, 1, PAGE + 2, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(large, 1, PAGE + 1, NULL) == CU_SUCCESS);
    CHECK(!ashlar__soft_is_for_work(0, bytes_at(first), 1001, "test", "x"));
    CHECK(ashlar__soft_is_for_work(0, bytes_at(first), 1000, "test", "x"));
    CHECK(!ashlar__soft_is_accessible(first, 1001) && ashlar__soft_is_accessible(first, 1000));
    CHECK(soft->mem_free(first + 512) == CU_INVALID_VALUE);
    CHECK(soft->mem_free(first) == CU_SUCCESS && soft->mem_free(first) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(first, 1, 1, NULL) == CU_INVALID_VALUE); /* its page is there */
    CHECK(soft->memset_d8_async(second, 1, 1024, NULL) == CU_SUCCESS);
    CHECK(!ashlar__soft_is_for_host(bytes_at(first), 1, "test", "x"));
}

CASE_WITH(pinned_memory_is_freed_by_its_own_pointer, set_up("memory=8MiB")) {
    void *ptr = NULL;
    char stack[8];
    CHECK(soft->mem_host_alloc(&ptr, 0, 0) == CU_INVALID_VALUE);
    CHECK(soft->mem_host_alloc(&ptr, 8, 8) == CU_INVALID_VALUE);
    CHECK(soft->mem_host_alloc(NULL, 8, 0) == CU_INVALID_VALUE);
    CHECK(ptr == NULL);
    REQUIRE(soft->mem_host_alloc(&ptr, 10000, 1) == CU_SUCCESS);
    CHECK_ZU((uintptr_t)ptr % 4096, 0);
    memset(ptr, 1, 10000);
    CHECK(soft->mem_free_host((char *)ptr + 1) == CU_INVALID_VALUE);
    CHECK(soft->mem_free_host(stack) == CU_INVALID_VALUE);
    CHECK(soft->mem_free_host(NULL) == CU_INVALID_VALUE);
    CHECK(soft->mem_free_host(ptr) == CU_SUCCESS);
    CHECK(soft->mem_free_host(ptr) == CU_INVALID_VALUE);
    CHECK_ZU(free_pages(), 4); /* host memory is not the device's */
}

CASE_WITH(a_context_takes_memory_while_it_lives, set_up("devices=2,memory=16MiB,overhead=3MiB")) {
    size_t free_bytes = 0, total_bytes = 0;
    cu_context context;
    CHECK(soft->mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    CHECK_ZU(total_bytes, (size_t)16 << 20);
    CHECK_ZU(free_bytes, (size_t)12 << 20);                     /* whole pages */
    CHECK(soft->primary_ctx_retain(&context, 0) == CU_SUCCESS); /* it has one */
    CHECK(soft->mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    CHECK_ZU(free_bytes, (size_t)12 << 20);
    soft_figures figures;
    CHECK(ashlar__soft_get_figures(1, &figures) == ASHLAR_OK && figures.physical_bytes == 0);
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS && soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(ashlar__soft_get_figures(0, &figures) == ASHLAR_OK && figures.physical_bytes == 0);
    REQUIRE(set_up("memory=16MiB,overhead=16MiB"));
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    REQUIRE(!set_up("memory=16MiB,overhead=17MiB"));
    CHECK(soft->primary_ctx_retain(&context, 0) == CU_OUT_OF_MEMORY);
}

RUN_CASES()
