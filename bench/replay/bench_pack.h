/*
 * bench_pack.h - how long packing takes, and how good the plans are, for ashlar-bench and
 * ashlar-replay (internal).
 */
#ifndef ASHLAR_BENCH_PACK_H
#define ASHLAR_BENCH_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ashlar/pack.h>

#include "allocator/base/json.h"

typedef struct ashlar_packing {
    const char *problem;
    size_t count;          /* of buffers */
    size_t capacity_bytes; /* that the plan was to fit; 0: as small as possible */
    double seconds;        /* median of the tries */
    ashlar_pack_result result;
} ashlar_packing;

/* plan_bytes / bound_bytes - 1; 0 where there is nothing to pack. */
double ashlar__packing_gap(const ashlar_packing *packing);

/*
 * Make a problem like the allocations of training steps: parameters and optimizer state that live
 * throughout, activations that backward frees in reverse, a few of them later, gradients until the
 * end of a step, short-lived workspaces; several steps of different lengths. A seed makes the same
 * problem on every machine.
 *
 * buffers   [count], in the order of their beginnings; sizes are multiples of 512 B
 */
void ashlar__pack_case_training(uint64_t seed, ashlar_pack_buffer *buffers, size_t count);

/*
 * Pack 20,000 buffers of training steps by the greedy orders alone.
 *
 * tries    1 .. ASHLAR_PACKING_TRIES_MAX
 * Errors:  ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack(size_t tries, ashlar_packing *out);
enum { ASHLAR_PACKING_TRIES_MAX = 9, ASHLAR_PACKING_BUFFERS = 20000 };

/*
 * Pack MiniMalloc's problem in a file into `capacity_bytes`, searching for `seconds`, and verify
 * the plan. A plan that does not fit is no error.
 *
 * path     stays the caller's; it must outlive *out
 * Errors:  as ashlar__pack_table_read(), ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW; ASHLAR_EFORMAT also for
 *          a wrong plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack_file(const char *path, size_t capacity_bytes,
                                                        size_t seconds, ashlar_packing *out);

/* A line with the figures; a line for each target of training steps: 1 second, 3 % above. */
void ashlar__bench_pack_print(FILE *out, const ashlar_packing *packing);
void ashlar__bench_pack_print_targets(FILE *out, const ashlar_packing *packing);

/* {problem, buffers, seconds, plan_bytes, bound_bytes, gap}, and of a file {capacity, fits}. */
void ashlar__bench_pack_put(ashlar_json_writer *w, const ashlar_packing *packing);

/* A problem for ashlar-replay. */
typedef struct ashlar_replay_pack {
    const char *path;      /* of the problem */
    size_t capacity_bytes; /* to be met; 0: as few bytes as possible */
    size_t seconds;        /* for the search */
    const char *solution;  /* where to write it; NULL: nowhere */
    const char *svg;       /* where to draw it; NULL: nowhere */
    FILE *progress;        /* a terminal, or NULL */
} ashlar_replay_pack;

/*
 * Pack, verify, write the solution, print one line on `out` and put an object to `w`.
 *
 * Errors: as ashlar__bench_pack_file(), ashlar__pack_table_write() and ashlar__picture_write();
 *         ASHLAR_ENOMEM (it does not fit: the line, the object and the solution are written all
 *         the same).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_pack_run(const ashlar_replay_pack *command,
                                                        FILE *out, ashlar_json_writer *w);

#endif /* ASHLAR_BENCH_PACK_H */
