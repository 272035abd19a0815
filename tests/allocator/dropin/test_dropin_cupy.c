/*
 * test_dropin_cupy.c - what CuPy calls, which tells no stream: memory for all of them, and how
 * PyTorch gets at it in the same process.
 */
#include "tests/allocator/dropin/dropin_fixture.h"

enum { BLOCKS = 8 };

/* A stream that is ordered with no other, not even with the default stream. */
static ashlar_stream loner;

static bool open_loner(void) {
    if (ashlar__device_enter(device) != ASHLAR_OK) {
        return false;
    }
    const cu_result result = driver->table.stream_create(&loner, CU_STREAM_UNORDERED);
    ashlar__device_leave(device);
    return result == CU_SUCCESS;
}

/* A block in which the adversary still has to write for `stream`. */
static unsigned char *used_on(ashlar_stream stream) {
    unsigned char *block = ashlar_cupy_malloc(NULL, BIG, 0);
    CHECK(block != NULL);
    if (block != NULL) {
        queue_write(stream, block, BIG, 1);
    }
    return block;
}

/* It has a new owner, behind whose back `old` would write what it had queued. */
static void check_is_owned(unsigned char *block, ashlar_stream old, ashlar_stream own) {
    atomic_store(&payload_bad_count, 0);
    queue_write(own, block, BIG, 2);
    wait_for(own);
    wait_for(old);
    queue_verify(own, block, BIG, 2);
    wait_for(own);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

static size_t all_calls(void) {
    size_t count = 0;
    for (size_t i = 0; i < ASHLAR_DRIVER_FN_COUNT; i++) {
        count += (size_t)atomic_load(&driver->calls[i]);
    }
    return count;
}

static size_t calls_that_wait(void) {
    return CALLS(ctx_synchronize) + CALLS(stream_synchronize) + CALLS(event_synchronize);
}

/* ---- memory for any stream ---- */

/* Whoever used the block last, the next one comes after, also where no stream is ordered. */
CASE(memory_for_any_stream_is_free_of_every_ones_work) {
    const ashlar_stream users[] = {streams[0], streams[1], loner, NULL};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        leave(BIG);
        unsigned char *block = used_on(users[i]);
        ashlar_cupy_free(NULL, block, 0);
        unsigned char *again = ashlar_cupy_malloc(NULL, BIG, 0);
        REQUIRE(again == block);
        check_is_owned(again, users[i], streams[2]);
        ashlar_cupy_free(NULL, again, 0);
        leave(MEMORY);
    }
}

CASE(memory_for_any_stream_waits_for_a_blocks_earlier_stream) {
    leave(BIG);
    unsigned char *block = ashlar_torch_alloc(BIG, 0, streams[0]);
    REQUIRE(block != NULL);
    queue_write(streams[0], block, BIG, 1);
    ashlar_torch_free(block, BIG, 0, streams[0]);
    unsigned char *again = ashlar_cupy_malloc(NULL, BIG, 0);
    REQUIRE(again == block);
    check_is_owned(again, streams[0], loner);
    ashlar_cupy_free(NULL, again, 0);
    leave(MEMORY);
}

CASE(a_free_for_any_stream_calls_no_driver_and_many_share_a_wait) {
    unsigned char *blocks[BLOCKS];
    leave(BLOCKS * BIG);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = used_on(streams[0]);
    }
    const size_t calls = all_calls(), waits = calls_that_wait();
    for (int i = 0; i < BLOCKS; i++) {
        ashlar_cupy_free(NULL, blocks[i], 0);
    }
    CHECK_ZU(all_calls(), calls);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = ashlar_cupy_malloc(NULL, BIG, 0);
        CHECK(blocks[i] != NULL);
    }
    CHECK_ZU(calls_that_wait(), waits + 1);
    for (int i = 0; i < BLOCKS; i++) {
        ashlar_cupy_free(NULL, blocks[i], 0);
    }
    leave(MEMORY);
}

CASE(a_driver_that_fails_at_any_call_loses_no_block) {
    for (unsigned n = 1;; n++) {
        const uint64_t before = bytes_of(0).live;
        ashlar_torch_reset();
        ashlar__driver_fail_at(driver, -1, n, CU_UNKNOWN);
        void *block = ashlar_cupy_malloc(NULL, BIG, 0);
        ashlar_cupy_free(NULL, block, 0);
        void *other = ashlar_cupy_malloc(NULL, BIG, 0);
        const bool is_spent = atomic_load(&driver->fail_countdown) == 0;
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
        CHECK(bytes_of(0).live == before + (other != NULL ? BIG : 0));
        ashlar_cupy_free(NULL, other, 0);
        CHECK(bytes_of(0).live == before);
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
        if (!is_spent) {
            CHECK(n > 3);
            break;
        }
    }
}

/* ---- beside PyTorch ---- */

CASE(pytorch_gets_what_cupy_has_freed_when_there_is_no_more) {
    leave(BIG);
    unsigned char *block = used_on(loner);
    ashlar_cupy_free(NULL, block, 0);
    unsigned char *again = ashlar_torch_alloc(BIG, 0, streams[1]);
    REQUIRE(again == block);
    check_is_owned(again, loner, streams[1]);
    ashlar_torch_free(again, BIG, 0, streams[1]);
    leave(MEMORY);
}

int main(void) {
    return run_on_devices(open_devices() && open_loner());
}
