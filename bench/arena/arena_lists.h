/*
 * arena_lists.h - tensors split into the lists that one launch each knows (internal).
 *
 * Lists follow each other without a gap: each begins where the one before ends, the first one with
 * element 0 of run 0, the last one ends with the last element of the last run.
 */
#ifndef ASHLAR_ARENA_LISTS_H
#define ASHLAR_ARENA_LISTS_H

#include <ashlar/device.h>

#include "arena/optimizer/optimizer_impl.h"

typedef struct ashlar_arena_list_limits {
    size_t tensors;        /* 1 .. */
    size_t chunks;         /* 1 .. */
    size_t chunk_elements; /* a multiple of ASHLAR_OPTIMIZER_CHUNK */
} ashlar_arena_list_limits;

/* What a list covers: the elements from `skip` of run `first`, all of the runs between, and those
 * before `end` of run first + count - 1. */
typedef struct ashlar_arena_list {
    size_t first, count;
    size_t skip, end;
} ashlar_arena_list;

/*
 * Split `count` runs, none of them empty, and return how many lists there are.
 *
 * lists   room for all of them; NULL: they are only counted
 */
size_t ashlar__arena_lists_split(const ashlar_optimizer_run *runs, size_t count,
                                 const ashlar_arena_list_limits *limits, ashlar_arena_list *lists);

/* Piece `i` of a list: elements [*begin, *end) of run list->first + i. */
void ashlar__arena_list_piece(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              size_t i, size_t *begin, size_t *end);

/* Let a job go over a list. `runs` are numbered and the host's; the job points into `device_runs`,
 * their copy. */
void ashlar__arena_list_cover(const ashlar_arena_list *list, const ashlar_optimizer_run *runs,
                              const ashlar_optimizer_run *device_runs, ashlar_optimizer_job *job);

#endif /* ASHLAR_ARENA_LISTS_H */
