/*
 * soft_index.h - tables that find items by handle, and ranges by address (internal to the software
 * device).
 */
#ifndef ASHLAR_SOFT_INDEX_H
#define ASHLAR_SOFT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The kinds of items that handles name. A handle is (index + 1) * 16 + kind. A handle is looked up,
 * and never followed as an address, so a dead, foreign or random one is only an error. A new item
 * gets the handle that was freed last, because CUDA reuses handles, too; with recycle=off no handle
 * is reused.
 */
typedef enum soft_kind {
    SOFT_STREAM = 3,
    SOFT_EVENT,
    SOFT_CONTEXT,
    SOFT_MEMORY,
    SOFT_GRAPH,
    SOFT_GRAPH_EXEC
} soft_kind;

typedef struct soft_handle {
    void *item;       /* NULL: free */
    size_t next_free; /* index + 1 of the next free entry; 0: none */
} soft_handle;

typedef struct soft_handles {
    soft_handle *entries;
    size_t count; /* entries ever used; <= capacity */
    size_t capacity;
    size_t first_free; /* index + 1; 0: none */
} soft_handles;

bool ashlar__soft_handles_put(soft_handles *handles, soft_kind kind, void *item, uintptr_t *handle);
void *ashlar__soft_handles_get(const soft_handles *handles, soft_kind kind, uintptr_t handle);
void *ashlar__soft_handles_take(soft_handles *handles, soft_kind kind, uintptr_t handle);
/* Whether this was once the handle of an item, even if it is not now. */
bool ashlar__soft_handles_had(const soft_handles *handles, soft_kind kind, uintptr_t handle);
void ashlar__soft_handles_drop(soft_handles *handles, size_t idx); /* the entry must be in use */
void ashlar__soft_handles_clear(soft_handles *handles);            /* frees the table, not items */

/* An address range. Each struct that is found by address has it as its first member. */
typedef struct soft_range {
    uintptr_t base;
    size_t bytes; /* > 0; base + bytes does not wrap */
} soft_range;

/* Ranges that do not overlap, in address order. */
typedef struct soft_ranges {
    soft_range **items;
    size_t count;
    size_t capacity;
} soft_ranges;

/* Index of the first range that ends after `address`; count if there is none. */
size_t ashlar__soft_ranges_after(const soft_ranges *ranges, uintptr_t address);
/* The range that starts at `address`, with its index; NULL if none does. */
void *ashlar__soft_ranges_at(const soft_ranges *ranges, uintptr_t address, size_t *idx);
/* The range that holds all of [address, address + bytes), bytes > 0; NULL if none does. */
void *ashlar__soft_ranges_over(const soft_ranges *ranges, uintptr_t address, size_t bytes);
/* Whether a range holds any byte of [address, address + bytes). */
bool ashlar__soft_ranges_touch(const soft_ranges *ranges, uintptr_t address, size_t bytes);
bool ashlar__soft_ranges_insert(soft_ranges *ranges, soft_range *item);
void ashlar__soft_ranges_remove(soft_ranges *ranges, size_t idx, size_t count);
void ashlar__soft_ranges_clear(soft_ranges *ranges); /* frees the array, not the items */

#endif /* ASHLAR_SOFT_INDEX_H */
