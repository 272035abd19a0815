/* host.c - memory from the C library; a test can make the n-th request fail. */
#include "allocator/base/host.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"

static _Atomic unsigned long fail_countdown; /* requests until one fails; 0: none will */

static bool must_fail(void) {
    unsigned long left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
            return left == 1;
        }
    }
    return false;
}

void ashlar__host_fail_at(unsigned long n) {
    atomic_store(&fail_countdown, n);
}

void *ashlar__host_calloc(size_t count, size_t bytes) {
    return must_fail() ? NULL : calloc(count, bytes);
}

void *ashlar__host_realloc(void *old, size_t count, size_t bytes) {
    size_t total;
    if (must_fail() || !ashlar__mul(count, bytes, &total)) {
        return NULL;
    }
    return realloc(old, total);
}

void ashlar__host_free(void *ptr) {
    free(ptr);
}

size_t ashlar__host_memory_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    size_t total;
    return pages > 0 && page_bytes > 0 && ashlar__mul((size_t)pages, (size_t)page_bytes, &total)
               ? total
               : (size_t)1 << 46;
}

bool ashlar__host_grow(void **items, size_t *capacity, size_t count, size_t item_bytes) {
    enum { FIRST = 64 };
    ASHLAR_CHECK2((*items == NULL) == (*capacity == 0));
    ASHLAR_CHECK2(count <= *capacity && item_bytes > 0);
    if (count < *capacity) {
        return true;
    }
    ASHLAR_CHECK2(*capacity <= SIZE_MAX / 2);
    const size_t wanted = *capacity == 0 ? FIRST : 2 * *capacity;
    void *grown = ashlar__host_realloc(*items, wanted, item_bytes);
    if (grown == NULL) {
        return false;
    }
    *items = grown;
    *capacity = wanted;
    return true;
}
