/*
 * test_dropin_contexts.c - contexts that a program makes: an allocator each, to their end.
 *
 * Run with the folder of the fake libcuda.so.1 (cuda/libcuda.c) first in LD_LIBRARY_PATH.
 */
#include "tests/check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/device/device_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/dropin/frees.h"
#include "allocator/base/host.h"

#define MIB ((size_t)1 << 20)

static ashlar_driver *driver;
static cu_result (*ctx_create)(cu_context *context, unsigned int flags, cu_device device);
static cu_result (*ctx_destroy)(cu_context context);

static bool set_up(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *create = library == NULL ? NULL : dlsym(library, "cuCtxCreate_v2");
    void *destroy = library == NULL ? NULL : dlsym(library, "cuCtxDestroy_v2");
    if (create == NULL || destroy == NULL || dlsym(library, "ashlar_fake_libcuda") == NULL) {
        return false;
    }
    memcpy(&ctx_create, &create, sizeof create);
    memcpy(&ctx_destroy, &destroy, sizeof destroy);
    unsetenv("ASHLAR_DEVICE");
    setenv("ASHLAR_CONF", "cache=0", 1);
    ashlar__frees_forget();
    ashlar__dropin_forget();
    return ashlar__driver_open_cuda(&driver) == ASHLAR_OK && driver->table.init(0) == CU_SUCCESS;
}

static bool is_primary_in_use(cu_device device) {
    unsigned int flags;
    int is_active = 1;
    CHECK(driver->table.primary_ctx_get_state(device, &flags, &is_active) == CU_SUCCESS);
    return is_active != 0;
}

static size_t free_bytes_now(void) {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    return free_bytes;
}

CASE_WITH(each_has_an_allocator_of_its_own, set_up()) {
    cu_context contexts[2];
    ashlar_frees *frees[2] = {NULL}, *again = NULL;
    int places[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE(ctx_create(&contexts[i], 0, 1) == CU_SUCCESS);
        CHECK(ashlar__dropin_find_context(contexts[i]) == -1);
        places[i] = ashlar__dropin_add_context(1, contexts[i]);
        CHECK(places[i] >= 0 && ashlar__dropin_find_context(contexts[i]) == places[i]);
        CHECK(ashlar__frees_peek(places[i]) == NULL);
        REQUIRE(ashlar__frees_at(places[i], 0, &frees[i]) == ASHLAR_OK);
        CHECK(frees[i]->device->context == contexts[i]);
        CHECK(frees[i]->device->info.ordinal == 1);
        CHECK(ashlar__frees_at(places[i], 0, &again) == ASHLAR_OK && again == frees[i]);
    }
    CHECK(places[0] != places[1] && frees[0] != frees[1]);
    CHECK(frees[0]->allocator != frees[1]->allocator);
    CHECK(!is_primary_in_use(1));
    int place = 0;
    CHECK(ashlar__frees_each(&place) == frees[0] && ashlar__frees_each(&place) == frees[1]);
    CHECK(ashlar__frees_each(&place) == NULL);
    for (int i = 0; i < 2; i++) {
        ashlar__frees_drop_context(places[i]);
        CHECK(ctx_destroy(contexts[i]) == CU_SUCCESS);
    }
}

CASE(what_it_has_goes_with_it) {
    cu_context context, next, primary;
    ashlar_frees *frees = NULL;
    void *ptr = NULL;
    cu_result result;
    REQUIRE(set_up() && driver->table.primary_ctx_retain(&primary, 0) == CU_SUCCESS);
    REQUIRE(ctx_create(&context, 0, 0) == CU_SUCCESS);
    const size_t before = free_bytes_now();
    const int place = ashlar__dropin_add_context(0, context);
    REQUIRE(ashlar__frees_at(place, 0, &frees) == ASHLAR_OK);
    CHECK(ashlar__frees_alloc(frees, 4 * MIB, &ptr) == ASHLAR_OK);
    CHECK(free_bytes_now() < before);
    CHECK(ashlar__frees_answer((char *)ptr + 512, NULL, &result) && result == CU_INVALID_VALUE);
    ashlar__frees_drop_context(place);
    CHECK(free_bytes_now() == before);
    CHECK(!ashlar__frees_answer(ptr, NULL, &result));
    CHECK(ashlar__dropin_find_context(context) == -1 && ashlar__frees_peek(place) == NULL);
    CHECK(ctx_destroy(context) == CU_SUCCESS);
    REQUIRE(ctx_create(&next, 0, 0) == CU_SUCCESS);
    CHECK(ashlar__dropin_add_context(0, next) == place); /* which is free again */
    REQUIRE(ashlar__frees_at(place, 0, &frees) == ASHLAR_OK);
    CHECK(frees->device->context == next);
    ashlar__frees_drop_context(place);
    CHECK(ctx_destroy(next) == CU_SUCCESS);
    CHECK(is_primary_in_use(0)); /* the program's */
    CHECK(driver->table.primary_ctx_release(0) == CU_SUCCESS && !is_primary_in_use(0));
}

CASE_WITH(one_too_many_has_no_place, set_up()) {
    static char contexts[ASHLAR_DROPIN_CONTEXTS_MAX + 1];
    int places[ASHLAR_DROPIN_CONTEXTS_MAX];
    for (int i = 0; i < ASHLAR_DROPIN_CONTEXTS_MAX; i++) {
        places[i] = ashlar__dropin_add_context(0, (cu_context)(void *)&contexts[i]);
        CHECK(places[i] >= ASHLAR_DROPIN_CONTEXTS && places[i] < ASHLAR_DROPIN_ALLOCATORS_MAX);
    }
    cu_context last = (cu_context)(void *)&contexts[ASHLAR_DROPIN_CONTEXTS_MAX];
    CHECK(ashlar__dropin_add_context(0, last) == -1 && ashlar__dropin_find_context(last) == -1);
    ashlar__frees_drop_context(places[7]);
    CHECK(ashlar__dropin_add_context(0, last) == places[7]);
    ashlar__dropin_forget();
    CHECK(ashlar__dropin_find_context(last) == -1);
}

RUN_CASES()
