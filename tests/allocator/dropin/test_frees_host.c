/*
 * test_frees_host.c - page-locked host memory as cudaMallocHost() and cudaFreeHost() give it out
 * and take it back: in pieces, and again only when every device in use has been waited for.
 */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/device/device_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/dropin/frees.h"
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

#define MIB ((size_t)1 << 20)

enum { PIECE_MIB = 16 }; /* a block that has a piece of the driver's to itself */

static ashlar_driver *driver;
static ashlar_frees *frees;
static ashlar_allocator *allocator;
static ashlar_device *other; /* device 1, or NULL: nobody uses it */
static void *there;          /* its memory */
static ashlar_stream stream; /* of it */

#define WAITS() ((size_t)ashlar__driver_calls(driver, ASHLAR_DRIVER_WAIT))
#define MEMORY_CALLS() ((size_t)ashlar__driver_calls(driver, ASHLAR_DRIVER_MEMORY))

static void tear_down(void) {
    check_forget(tear_down);
    if (other != NULL) {
        ashlar_stream_destroy(other, stream);
        ashlar_device_close(other); /* and the memory with it */
    }
    ashlar_device *device = frees->device;
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    ashlar_allocator_destroy(allocator);
    CHECK_ZU(ashlar__soft_state.host_blocks.count, 0);
    ashlar_device_close(device);
    ashlar__dropin_forget();
    ashlar__frees_forget();
}

static bool set_up(const char *conf) {
    setenv("ASHLAR_DEVICE", "soft", 1);
    setenv("ASHLAR_CONF", conf, 1);
    ashlar__dropin_forget();
    ashlar__frees_forget();
    other = NULL;
    if (ashlar__soft_configure("devices=2,memory=16MiB,mode=adversarial") != ASHLAR_OK ||
        ashlar__driver_open_soft(&driver) != ASHLAR_OK ||
        ashlar__frees_at(ASHLAR_DROPIN_HOST, 0, &frees) != ASHLAR_OK) {
        return false;
    }
    allocator = frees->allocator;
    return check_at_end(tear_down);
}

/* Device 1, with 2 MiB that hold the byte 1 when its stream has run. */
static bool set_up_other(void) {
    if (ashlar_device_open("soft:1", &other) != ASHLAR_OK ||
        ashlar__device_enter(other) != ASHLAR_OK) {
        return false;
    }
    cu_ptr taken = 0;
    const bool is_taken = driver->table.mem_alloc(&taken, PIECE_MIB * MIB) == CU_SUCCESS;
    ashlar__device_leave(other);
    there = ashlar__ptr_out(taken);
    return is_taken && ashlar_stream_create(other, &stream) == ASHLAR_OK &&
           ashlar_fill(other, there, 1, PIECE_MIB * MIB, stream) == ASHLAR_OK;
}

static void *take(size_t bytes) {
    void *ptr = NULL;
    CHECK(ashlar__frees_alloc(frees, bytes, &ptr) == ASHLAR_OK);
    return ptr;
}

static void give(void *ptr) {
    CHECK(ashlar__frees_free(frees, ptr) == ASHLAR_OK);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE_WITH(blocks_share_a_piece_of_the_drivers, set_up("")) {
    const size_t calls = MEMORY_CALLS();
    char *a = take(1000), *b = take(MIB / 2);
    memset(a, 1, 1000);
    memset(b, 2, MIB / 2);
    CHECK(a[999] == 1 && b[0] == 2);
    CHECK_ZU(MEMORY_CALLS(), calls + 1);
    CHECK_ZU(ashlar__soft_state.host_blocks.count, 1);
    CHECK_ZU(ashlar__soft_state.host_blocks.items[0]->bytes, 2 * MIB);
    give(a);
    give(b);
    CHECK_ZU(MEMORY_CALLS(), calls + 1);
    CHECK(ashlar__frees_give_back(frees, 0));
    CHECK_ZU(MEMORY_CALLS(), calls + 2);
    CHECK_ZU(ashlar__soft_state.host_blocks.count, 0);
}

/* What another device writes to a block that was freed before it ran; true: to who has it next. */
static bool is_overwritten(void) {
    if (!set_up("") || !set_up_other()) {
        return true;
    }
    char *before = take(PIECE_MIB * MIB);
    CHECK(ashlar_copy_to_host(other, before, there, PIECE_MIB * MIB, stream) == ASHLAR_OK);
    give(before);
    char *after = take(PIECE_MIB * MIB);
    CHECK(after == before);
    memset(after, 2, PIECE_MIB * MIB);
    CHECK(ashlar_stream_synchronize(other, stream) == ASHLAR_OK);
    const bool is_bad = after[0] != 2 || after[PIECE_MIB * MIB - 1] != 2;
    CHECK_ZU(ashlar__soft_state.host_blocks.count, 1);
    give(after);
    tear_down();
    return is_bad;
}

CASE(a_block_freed_under_another_devices_copy_is_waited_for) {
    CHECK(!is_overwritten());
}

CASE_WITH(the_host_waits_only_where_memory_is_wanted, set_up("")) {
    enum { HALF = PIECE_MIB / 2 };
    void *half[2] = {take(HALF * MIB), take(HALF * MIB)};
    const size_t waits = WAITS();
    give(half[0]);
    give(half[1]);
    CHECK_ZU(WAITS(), waits);
    half[0] = take(HALF * MIB);
    CHECK_ZU(WAITS(), waits + 1);
    half[1] = take(HALF * MIB); /* the wait was for both */
    CHECK_ZU(WAITS(), waits + 1);
    give(half[0]);
    give(half[1]);
}

CASE_WITH(a_wrong_free_is_not_left_to_cuda, set_up("")) {
    char foreign = 0;
    cu_result result = CU_UNKNOWN;
    char *block = take(1000);
    CHECK(!ashlar__frees_answer_host(&foreign, &result));
    CHECK(ashlar__frees_answer_host(block + 512, &result) && result == CU_INVALID_VALUE);
    CHECK(ashlar__frees_answer_host(block + 2 * MIB - 1, &result));
    CHECK(!ashlar__frees_answer_host(block + 2 * MIB, &result));
    CHECK(ashlar__frees_answer_host(block, &result) && result == CU_SUCCESS);
    CHECK(ashlar__frees_answer_host(block, &result) && result == CU_INVALID_VALUE);
    CHECK(ashlar__frees_give_back(frees, 0));
    CHECK(!ashlar__frees_answer_host(block, &result)); /* nothing of ours is there */
    tear_down();
    CHECK(!ashlar__frees_answer_host(block, &result));
}

RUN_CASES()
