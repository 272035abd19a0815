/*
 * dropin_fixture.h - what PyTorch and CuPy call, on two adversarial software devices, for tests:
 * work is queued, memory that is handed out too early is overwritten, every time.
 */
#ifndef ASHLAR_DROPIN_FIXTURE_H
#define ASHLAR_DROPIN_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"
#include "allocator/dropin/devices.h"
#include "allocator/dropin/torch.h"

enum { DEVICES = 2 };

#define MEMORY (64 * MIB)
#define BIG (4 * MIB)

/* Every case finds both devices without a block of its own, and `device` and `streams` of the
 * first one; they live as long as the process, as in a program. */
static inline bool open_devices(void) {
    void *block;
    setenv("ASHLAR_DEVICE", "soft", 1);
    if (ashlar__soft_configure("devices=2,memory=64MiB,mode=adversarial,seed=3") != ASHLAR_OK ||
        ashlar__driver_open_soft(&driver) != ASHLAR_OK) {
        return false;
    }
    for (int i = DEVICES - 1; i >= 0; i--) {
        block = ashlar_torch_alloc(1, i, NULL);
        ashlar_torch_free(block, 1, i, NULL);
        allocator = ashlar__dropin_peek(i);
    }
    device = allocator != NULL ? ashlar_allocator_device(allocator) : NULL;
    for (int i = 0; device != NULL && i < STREAMS; i++) {
        if (ashlar_stream_create(device, &streams[i]) != ASHLAR_OK) {
            return false;
        }
    }
    return device != NULL;
}

/* What main() returns: all cases, or one that says that the devices could not be opened. */
static inline int run_on_devices(bool are_open) {
    if (!are_open) {
        printf("not ok 1 - two software devices # %s\n1..1\n", ashlar_error_detail());
        return 1;
    }
    check_run_cases();
    return check_report();
}

/* Only so much memory from now on, which is idle and reserved. */
static inline void leave(size_t bytes) {
    ashlar_torch_reset();
    ashlar_torch_memory_fraction((double)bytes / (double)MEMORY, 0);
    CHECK(ashlar_allocator_reserve(allocator, bytes) == ASHLAR_OK);
}

static inline ashlar_torch_stats bytes_of(int ordinal) {
    ashlar_torch_stats bytes;
    CHECK(ashlar_torch_get_stats(ordinal, &bytes) == 0);
    return bytes;
}

#endif /* ASHLAR_DROPIN_FIXTURE_H */
