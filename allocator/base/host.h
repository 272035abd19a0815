/*
 * host.h - the library's own host memory, behind one door so that tests can make it fail
 * (internal).
 *
 * Threads: any.
 */
#ifndef ASHLAR_HOST_H
#define ASHLAR_HOST_H

#include <stdbool.h>
#include <stddef.h>

/* NULL on failure, and when count * bytes does not fit in size_t. Zeroed. count, bytes > 0. */
void *ashlar__host_calloc(size_t count, size_t bytes);

/* As realloc(), for `count` items of `bytes` each; NULL leaves the old block as it was. */
void *ashlar__host_realloc(void *old, size_t count, size_t bytes);

/*
 * Room for one more item of a growing array, which doubles.
 *
 * items      the array, NULL at first
 * capacity   items that it has room for
 * count      items in it
 *
 * Returns false, and changes nothing, where there is no host memory.
 */
bool ashlar__host_grow(void **items, size_t *capacity, size_t count, size_t item_bytes);

void ashlar__host_free(void *ptr); /* NULL is allowed */

/* The machine's memory; where the system does not tell, more than any machine has. */
size_t ashlar__host_memory_bytes(void);

/* Tests: the n-th (from 1) call of calloc or realloc from now on fails, once; 0 switches it off. */
void ashlar__host_fail_at(unsigned long n);

#endif /* ASHLAR_HOST_H */
