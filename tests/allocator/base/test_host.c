/*
 * test_host.c - host memory: sums that do not fit, and what the system says there is of it.
 */
#include "tests/check.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/host.h"

static bool is_told; /* what follows, and not the system's own */
static long pages, page_bytes;

/* In place of the C library's, which sanitizers call, too. */
long sysconf(int name) {
    static long (*real)(int);
    if (is_told) {
        return name == _SC_PHYS_PAGES ? pages : name == _SC_PAGESIZE ? page_bytes : -1;
    }
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "sysconf");
        memcpy(&real, &symbol, sizeof real);
    }
    return real(name);
}

CASE(the_systems_memory_is_its_pages_or_very_much) {
    const size_t much = (size_t)1 << 46; /* no limit then */
    static const long unknown[][2] = {{-1, 4096}, {0, 4096}, {7, -1}, {7, 0}, {LONG_MAX, 4096}};
    is_told = true;
    pages = 7;
    page_bytes = 4096;
    CHECK_ZU(ashlar__host_memory_bytes(), 7 * 4096);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        pages = unknown[i][0];
        page_bytes = unknown[i][1];
        CHECK_ZU(ashlar__host_memory_bytes(), much);
    }
    is_told = false;
    CHECK(ashlar__host_memory_bytes() > (size_t)1 << 20);
}

CASE(a_product_that_does_not_fit_is_no_memory_and_leaves_the_old) {
    char *old = ashlar__host_realloc(NULL, 3, 2);
    REQUIRE(old != NULL);
    memcpy(old, "abcde", 6);
    CHECK(ashlar__host_realloc(old, SIZE_MAX / 2, 3) == NULL);
    CHECK(strcmp(old, "abcde") == 0);
    ashlar__host_free(old);
}

CASE(a_list_doubles_when_it_is_full) {
    void *items = NULL;
    size_t capacity = 0;
    CHECK(ashlar__host_grow(&items, &capacity, 0, 8) && capacity == 64);
    const void *first = items;
    CHECK(ashlar__host_grow(&items, &capacity, 63, 8) && capacity == 64 && items == first);
    CHECK(ashlar__host_grow(&items, &capacity, 64, 8) && capacity == 128);
    const void *before = items;
    HOST_FAILS_AT(1, CHECK(!ashlar__host_grow(&items, &capacity, 128, 8)));
    CHECK(items == before && capacity == 128);
    ashlar__host_free(items);
}

RUN_CASES()
