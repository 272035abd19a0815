/*
 * soft_fixture.h - fresh software devices, called through the driver's table, for tests.
 */
#ifndef ASHLAR_SOFT_FIXTURE_H
#define ASHLAR_SOFT_FIXTURE_H

/* These tests also look at what the device answers to mistakes, so it ends none of them. */
#define CHECK_SOFT_DEFAULTS ""
#include "tests/check.h"

#include <stdint.h>

#include "allocator/driver/driver.h"
#include "allocator/soft/soft.h"

static ashlar_driver *driver;
static const ashlar_driver_table *soft;

static inline bool make_current(int ordinal) {
    cu_context context;
    return soft->primary_ctx_retain(&context, ordinal) == CU_SUCCESS &&
           soft->ctx_push_current(context) == CU_SUCCESS;
}

/* Fresh devices, with the context of device 0 current. */
static inline bool set_up(const char *spec) {
    if (ashlar__driver_open_soft(&driver) != ASHLAR_OK ||
        ashlar__soft_configure(spec) != ASHLAR_OK) {
        return false;
    }
    soft = &driver->table;
    return make_current(0);
}

static inline cu_ptr alloc(size_t bytes) {
    cu_ptr ptr = 0;
    CHECK(soft->mem_alloc(&ptr, bytes) == CU_SUCCESS);
    return ptr;
}

static inline void *alloc_host(size_t bytes) {
    void *ptr = NULL;
    CHECK(soft->mem_host_alloc(&ptr, bytes, 0) == CU_SUCCESS);
    return ptr;
}

static inline unsigned char *bytes_at(cu_ptr ptr) {
    return (unsigned char *)(uintptr_t)ptr;
}

#endif /* ASHLAR_SOFT_FIXTURE_H */
