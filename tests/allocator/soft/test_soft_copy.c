/*
 * test_soft_copy.c - the software device's copies and fills, and memory that goes while in use.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"

CASE_OF_SEEDS(copies_and_fills_run_in_stream_order) {
    const cu_ptr a = alloc(100), b = alloc(100);
    unsigned char host[4] = {1, 2, 3, 4}, back[4] = {0};
    CHECK(soft->memcpy_htod_async(a, host, 4, s) == CU_SUCCESS);
    host[3] = 8; /* pageable memory is read when the copy runs, too */
    CHECK(soft->memset_d8_async(a + 1, 7, 2, s) == CU_SUCCESS);
    CHECK(soft->memcpy_dtod_async(b + 10, a, 4, s) == CU_SUCCESS);
    CHECK(bytes_at(a)[0] == 0); /* nothing has run */
    CHECK(soft->memcpy_dtoh_async(back, b + 10, 4, s) == CU_SUCCESS);
    CHECK(back[0] == 0); /* "might be synchronous", and is not */
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(back[0] == 1 && back[1] == 7 && back[2] == 7 && back[3] == 8);
    CHECK(soft->mem_free(a) == CU_SUCCESS);
}

CASE_OF_SEEDS(page_locked_memory_has_addresses_of_the_device) {
    unsigned char *const pinned = alloc_host(8);
    memset(pinned, 1, 8);
    CHECK(soft->memset_d8_async((cu_ptr)(uintptr_t)(pinned + 2), 7, 4, s) == CU_SUCCESS);
    CHECK(pinned[2] == 1); /* nothing has run */
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(pinned[1] == 1 && pinned[2] == 7 && pinned[5] == 7 && pinned[6] == 1);
    CHECK(soft->memset_d8_async((cu_ptr)(uintptr_t)(pinned + 7), 0, 2, s) == CU_INVALID_VALUE);
    const cu_ptr ptr = alloc(8);
    unsigned char back[8] = {0};
    CHECK(soft->memcpy_dtod_async(ptr, (cu_ptr)(uintptr_t)pinned, 8, s) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 9, 1, s) == CU_SUCCESS);
    CHECK(soft->memcpy_dtod_async((cu_ptr)(uintptr_t)(pinned + 1), ptr, 2, s) == CU_SUCCESS);
    CHECK(soft->memcpy_dtoh_async(back, (cu_ptr)(uintptr_t)pinned, 4, s) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(back[0] == 1 && back[1] == 9 && back[2] == 1 && back[3] == 7);
    CHECK(soft->memcpy_dtod_async(ptr, (cu_ptr)(uintptr_t)(pinned + 7), 2, s) == CU_INVALID_VALUE);
    CHECK(soft->mem_free_host(pinned) == CU_SUCCESS);
}

/* Otherwise nothing has run before the host waits. */
CASE(calls_that_may_wait_do_so_on_request) {
    for (int waits = 0; waits < 2; waits++) {
        REQUIRE(set_up_streams(waits ? "memory=32MiB,mode=adversarial,waits=on"
                                     : "memory=32MiB,mode=adversarial"));
        unsigned char pageable[4] = {1, 2, 3, 4};
        const cu_ptr ptr = alloc(4), place_of = reserve(1);
        const cu_mem_handle handle = create(1);
        void *pinned = alloc_host(4);
        ran_count = 0;
        queue(s, "a");
        CHECK(soft->memcpy_htod_async(ptr, pinned, 4, s) == CU_SUCCESS);
        CHECK_ZU(ran_count, 0);
        CHECK(soft->memcpy_htod_async(ptr, pageable, 4, s) == CU_SUCCESS);
        CHECK_ZU(ran_count, waits ? 1 : 0);
        pageable[0] = 9;
        queue(s, "b");
        CHECK(soft->memcpy_dtoh_async(pageable, ptr, 4, s) == CU_SUCCESS);
        CHECK_ZU(ran_count, waits ? 2 : 0);
        queue(s, "c");
        CHECK(soft->mem_map(place_of, SOFT_PAGE_BYTES, 0, handle, 0) == CU_SUCCESS);
        CHECK_ZU(ran_count, waits ? 2 : 0);
        CHECK(soft->mem_set_access(place_of, SOFT_PAGE_BYTES, &access0, 1) == CU_SUCCESS);
        CHECK_ZU(ran_count, waits ? 3 : 0);
        queue(s, "d");
        CHECK(soft->mem_unmap(place_of, SOFT_PAGE_BYTES) == CU_SUCCESS);
        CHECK_ZU(ran_count, waits ? 4 : 0);
        CHECK(soft->ctx_synchronize() == CU_SUCCESS && ran_count == 4);
        CHECK(bytes_at(ptr)[0] == (waits ? 1 : 9));
    }
}

CASE_WITH(copies_check_their_ranges, set_up("memory=16MiB")) {
    unsigned char host[8] = {0};
    const cu_ptr ptr = alloc(100);
    const size_t bytes = (size_t)2 << 20; /* what the allocation really has */
    CHECK(soft->memcpy_htod_async(ptr + bytes - 4, host, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_htod_async(ptr, NULL, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_htod_async(0, host, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtoh_async(host, ptr - 4, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtoh_async(NULL, ptr, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtod_async(ptr, (cu_ptr)(uintptr_t)host, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtod_async((cu_ptr)(uintptr_t)host, ptr, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(ptr, 0, SIZE_MAX, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(0, 0, 0, NULL) == CU_SUCCESS); /* nothing to do */
    CHECK(soft->memset_d8_async((cu_ptr)(uintptr_t)host, 0, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_htod_async(0, NULL, 0, (cu_stream)77) == CU_INVALID_HANDLE);
    CHECK(soft->launch_host_func(NULL, NULL, NULL) == CU_INVALID_VALUE);
}

CASE_WITH(memory_taken_from_queued_work_is_an_illegal_address, set_up_adversarial(5)) {
    const cu_ptr ptr = alloc(100);
    void *pinned = alloc_host(8);
    CHECK(soft->memcpy_htod_async(ptr, pinned, 8, s) == CU_SUCCESS);
    queue(s, "a");
    CHECK(soft->mem_free_host(pinned) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_ILLEGAL_ADDRESS);
    CHECK(soft->ctx_synchronize() == CU_ILLEGAL_ADDRESS); /* and for good */
    cu_ptr other;
    CHECK(soft->mem_alloc(&other, 1) == CU_ILLEGAL_ADDRESS);
    CHECK(ran_count == 0); /* nothing runs after it */
    CHECK(make_current(1)); /* a healthy device's context does not help a stream of the other */
    CHECK(soft->stream_synchronize(s) == CU_ILLEGAL_ADDRESS);
    CHECK(soft->launch_host_func(s, note, ran) == CU_ILLEGAL_ADDRESS);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(make_current(0));
    CHECK(soft->ctx_synchronize() == CU_SUCCESS); /* a new context is a new start */
}

CASE_WITH(mem_free_waits_for_the_whole_device, set_up_adversarial(2)) {
    const cu_ptr ptr = alloc(100), other = alloc(100);
    CHECK(soft->memset_d8_async(ptr, 1, 100, s) == CU_SUCCESS);
    queue(s, "a");
    queue(NULL, "b");
    CHECK(soft->mem_free(other) == CU_SUCCESS);
    CHECK(ran_count == 2);
    CHECK(bytes_at(ptr)[99] == 1);
}

CASE_WITH(an_answer_needs_a_place, set_up("memory=16MiB")) {
    unsigned int flags = 7;
    int is_active = 7;
    CHECK(soft->primary_ctx_retain(NULL, 0) == CU_INVALID_VALUE);
    CHECK(soft->primary_ctx_get_state(0, NULL, &is_active) == CU_INVALID_VALUE);
    CHECK(soft->primary_ctx_get_state(0, &flags, NULL) == CU_INVALID_VALUE);
    CHECK(soft->primary_ctx_get_state(9, &flags, &is_active) == CU_INVALID_DEVICE);
    CHECK(flags == 7 && is_active == 7);
    CHECK(soft->primary_ctx_get_state(0, &flags, &is_active) == CU_SUCCESS);
    CHECK(flags == 0 && is_active == 1);
}

RUN_CASES()
