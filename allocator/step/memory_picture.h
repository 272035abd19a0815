/*
 * memory_picture.h - whether some steps left the ordinary path's memory unchanged, and were served
 * from it (internal).
 */
#ifndef ASHLAR_MEMORY_PICTURE_H
#define ASHLAR_MEMORY_PICTURE_H

#include "allocator/core/allocator_impl.h"

/* What the memory looks like between two steps. */
typedef struct ashlar_memory_picture {
    ashlar_stats stats;
    uint64_t layout; /* hash of each window's zone, and of how much of the window is mapped */
    uint64_t away_frees, left_away, short_count; /* the heap's fields of the same names */
} ashlar_memory_picture;

/* Take a picture of the memory now. Lock: not held. */
ashlar_memory_picture ashlar__memory_look(ashlar_allocator *allocator);

/* Whether the memory was the same before and after some steps, and served all of their requests. */
bool ashlar__memory_is_repeated(const ashlar_memory_picture *before,
                                const ashlar_memory_picture *after);

/* Whether plans served all requests in between. */
bool ashlar__memory_is_all_planned(const ashlar_memory_picture *before,
                                   const ashlar_memory_picture *after);

#endif /* ASHLAR_MEMORY_PICTURE_H */
