/*
 * memory_picture.h - whether steps left the ordinary path's memory as it was, and were served from
 * it (internal).
 */
#ifndef ASHLAR_MEMORY_PICTURE_H
#define ASHLAR_MEMORY_PICTURE_H

#include "allocator/core/allocator_impl.h"

/* What the memory looks like between two steps. */
typedef struct ashlar_memory_picture {
    ashlar_stats stats;
    uint64_t layout; /* a hash: which zone each window is of, and how much of it is mapped */
    uint64_t away_frees, left_away, short_count; /* as in the heap */
} ashlar_memory_picture;

/* Lock: not held. */
ashlar_memory_picture ashlar__memory_look(ashlar_allocator *allocator);

/* Whether the memory is the same before and after some steps, and served all of their requests. */
bool ashlar__memory_is_repeated(const ashlar_memory_picture *before,
                                const ashlar_memory_picture *after);

/* Whether plans served all requests in between. */
bool ashlar__memory_is_all_planned(const ashlar_memory_picture *before,
                                   const ashlar_memory_picture *after);

#endif /* ASHLAR_MEMORY_PICTURE_H */
