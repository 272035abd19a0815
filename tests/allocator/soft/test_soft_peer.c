/* test_soft_peer.c - one software device and the memory of another. */
#include "tests/allocator/soft/soft_fixture.h"

static cu_context context[2];

/* Two devices with their contexts; device 0's is current. */
static bool set_up_two(const char *spec) {
    return set_up(spec) && soft->primary_ctx_retain(&context[0], 0) == CU_SUCCESS &&
           soft->primary_ctx_retain(&context[1], 1) == CU_SUCCESS;
}

static cu_ptr alloc_on(int ordinal) {
    CHECK(soft->ctx_push_current(context[ordinal]) == CU_SUCCESS);
    const cu_ptr ptr = alloc(64);
    CHECK(soft->ctx_pop_current(NULL) == CU_SUCCESS);
    return ptr;
}

static cu_result enable(int ordinal, int peer) {
    CHECK(soft->ctx_push_current(context[ordinal]) == CU_SUCCESS);
    const cu_result result = soft->ctx_enable_peer_access(context[peer], 0);
    CHECK(soft->ctx_pop_current(NULL) == CU_SUCCESS);
    return result;
}

CASE_WITH(peers_are_offered_unless_switched_off, set_up_two("devices=2,memory=16MiB")) {
    int can = 99;
    CHECK(soft->device_can_access_peer(&can, 0, 1) == CU_SUCCESS && can == 1);
    CHECK(soft->device_can_access_peer(&can, 1, 0) == CU_SUCCESS && can == 1);
    CHECK(soft->device_can_access_peer(&can, 1, 1) == CU_SUCCESS && can == 0);
    CHECK(soft->device_can_access_peer(&can, 0, 2) == CU_INVALID_DEVICE);
    CHECK(soft->device_can_access_peer(&can, -1, 0) == CU_INVALID_DEVICE);
    CHECK(soft->device_can_access_peer(NULL, 0, 1) == CU_INVALID_VALUE);
    REQUIRE(set_up_two("devices=2,memory=16MiB,peers=off"));
    CHECK(soft->device_can_access_peer(&can, 0, 1) == CU_SUCCESS && can == 0);
    CHECK(enable(0, 1) == CU_PEER_ACCESS_UNSUPPORTED);
}

CASE_WITH(access_is_enabled_once_and_one_way, set_up_two("devices=2,memory=16MiB")) {
    CHECK(soft->ctx_enable_peer_access(context[1], 1) == CU_INVALID_VALUE);
    CHECK(soft->ctx_enable_peer_access(context[0], 0) == CU_INVALID_CONTEXT);
    CHECK(soft->ctx_enable_peer_access(NULL, 0) == CU_INVALID_CONTEXT);
    CHECK(enable(0, 1) == CU_SUCCESS);
    CHECK(enable(0, 1) == CU_PEER_ACCESS_ALREADY_ENABLED);
    const cu_ptr near = alloc_on(0), far = alloc_on(1);
    CHECK(soft->memset_d8_async(far, 3, 64, NULL) == CU_SUCCESS);
    CHECK(soft->memcpy_dtod_async(near, far, 64, NULL) == CU_SUCCESS);
    CHECK(bytes_at(near)[63] == 3);
    CHECK(soft->ctx_push_current(context[1]) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(near, 3, 64, NULL) == CU_INVALID_VALUE); /* not the other way */
    CHECK(soft->memset_d8_async(far, 4, 64, NULL) == CU_SUCCESS);
    CHECK(soft->ctx_pop_current(NULL) == CU_SUCCESS);
    CHECK(enable(1, 0) == CU_SUCCESS);
}

CASE(access_ends_with_either_context) {
    for (int ends = 0; ends < 2; ends++) {
        REQUIRE(set_up_two("devices=2,memory=16MiB"));
        CHECK(enable(0, 1) == CU_SUCCESS);
        CHECK(soft->ctx_pop_current(NULL) == CU_SUCCESS);
        for (int i = ends == 0 ? 2 : 1; i > 0; i--) { /* set_up() retains device 0's too */
            CHECK(soft->primary_ctx_release(ends) == CU_SUCCESS);
        }
        REQUIRE(soft->primary_ctx_retain(&context[ends], ends) == CU_SUCCESS);
        const cu_ptr far = alloc_on(1);
        REQUIRE(soft->ctx_push_current(context[0]) == CU_SUCCESS);
        CHECK(soft->memset_d8_async(far, 1, 1, NULL) == CU_INVALID_VALUE);
        CHECK(enable(0, 1) == CU_SUCCESS); /* not "already" */
        CHECK(soft->memset_d8_async(far, 1, 1, NULL) == CU_SUCCESS);
    }
}

CASE(mapped_memory_is_open_to_the_devices_that_were_named) {
    REQUIRE(set_up_two("devices=3,memory=16MiB"));
    const cu_ptr ptr = reserve(2);
    CHECK(soft->mem_map(ptr, PAGE, 0, create(1), 0) == CU_SUCCESS);
    CHECK(soft->mem_map(ptr + PAGE, PAGE, 0, create(1), 0) == CU_SUCCESS);
    cu_mem_access both[2] = {access0, access0};
    both[1].location.id = 1;
    CHECK(soft->mem_set_access(ptr, PAGE, &access0, 1) == CU_SUCCESS);
    CHECK(soft->mem_set_access(ptr + PAGE, PAGE, both, 2) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 1, 2 * PAGE, NULL) == CU_SUCCESS);
    CHECK(enable(1, 0) == CU_SUCCESS); /* is not about mapped memory */
    REQUIRE(soft->ctx_push_current(context[1]) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 2, 1, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(ptr + PAGE - 1, 2, 2, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(ptr + PAGE, 2, PAGE, NULL) == CU_SUCCESS);
    CHECK(bytes_at(ptr)[2 * PAGE - 1] == 2);
    CHECK(soft->mem_set_access(ptr, PAGE, &both[1], 1) == CU_SUCCESS); /* adds to what there is */
    CHECK(soft->memset_d8_async(ptr, 3, 2 * PAGE, NULL) == CU_SUCCESS);
    REQUIRE(soft->ctx_pop_current(NULL) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(ptr, 4, 2 * PAGE, NULL) == CU_SUCCESS);
    REQUIRE(make_current(2));
    CHECK(soft->memset_d8_async(ptr, 5, 1, NULL) == CU_INVALID_VALUE);
    both[1].location.id = 3; /* one bad location, and none is given access */
    both[0].location.id = 2;
    CHECK(soft->mem_set_access(ptr, PAGE, both, 2) == CU_INVALID_DEVICE);
    CHECK(soft->memset_d8_async(ptr, 5, 1, NULL) == CU_INVALID_VALUE);
}

CASE_WITH(a_peer_copy_needs_no_access, set_up_two("devices=2,memory=16MiB,peers=off")) {
    const cu_ptr near = alloc_on(0), far = alloc_on(1);
    unsigned char out[64], in[64] = {0};
    memset(out, 7, sizeof out);
    CHECK(soft->memcpy_htod_async(near, out, 64, NULL) == CU_SUCCESS);
    CHECK(soft->memcpy_peer_async(far, context[1], near, context[0], 64, NULL) == CU_SUCCESS);
    CHECK(soft->memset_d8_async(near, 0, 64, NULL) == CU_SUCCESS);
    CHECK(soft->memcpy_peer_async(near, context[0], far, context[1], 63, NULL) == CU_SUCCESS);
    CHECK(soft->memcpy_dtoh_async(in, near, 64, NULL) == CU_SUCCESS);
    CHECK(memcmp(in, out, 63) == 0 && in[63] == 0);
    CHECK(soft->memcpy_peer_async(far, context[0], near, context[0], 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_peer_async(far, context[1], near, context[1], 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_peer_async(far, context[1], near, context[0], 5 << 20, NULL) ==
          CU_INVALID_VALUE);
    CHECK(soft->memcpy_peer_async(far, context[1], near, NULL, 8, NULL) == CU_INVALID_CONTEXT);
    CHECK(soft->memcpy_peer_async(far, NULL, near, context[0], 0, NULL) == CU_INVALID_CONTEXT);
    CHECK(soft->memcpy_peer_async(0, context[1], 0, context[0], 0, NULL) == CU_SUCCESS);
    CHECK(soft->memcpy_peer_async(far, context[1], near, context[0], 8, (cu_stream)99) ==
          CU_INVALID_HANDLE);
}

RUN_CASES()
