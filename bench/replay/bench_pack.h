/* bench_pack.h - the time that packing takes, and the quality of the plans, for ashlar-bench and
 * ashlar-replay (internal). */
#ifndef ASHLAR_BENCH_PACK_H
#define ASHLAR_BENCH_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ashlar/pack.h>

#include "allocator/base/json.h"
#include "bench/harness/rows.h"

typedef struct ashlar_packing {
    const char *case_name;
    uint64_t seed;         /* 0: none */
    size_t count;          /* buffers */
    size_t capacity_bytes; /* the capacity asked for; 0: none, as small as possible */
    double seconds;        /* time of packing: the median of the tries */
    ashlar_pack_result result;
} ashlar_packing;

/* plan_bytes / bound_bytes - 1; 0 if there is nothing to pack. */
double ashlar__packing_gap(const ashlar_packing *packing);

/* Make a problem like the allocations of several training steps of different lengths: parameters
 * and optimizer state that live throughout, activations that the backward pass frees in reverse (a
 * few of them later), gradients that live to the end of their step, and short-lived workspaces. The
 * same seed makes the same problem on every machine.
 *
 * buffers   [count], in the order of their beginnings; sizes are multiples of 512 B */
void ashlar__pack_case_training(uint64_t seed, ashlar_pack_buffer *buffers, size_t count);

/* Make a problem like the buffers of a compiled network, forward and backward: of many sizes and of
 * short and long lives, where no greedy order comes close to the bound. The same seed makes the
 * same problem on every machine. Times are operations; sizes are multiples of 512 B.
 *
 * buffers   [count] */
void ashlar__pack_case_network(uint64_t seed, ashlar_pack_buffer *buffers, size_t count);

/* The number of cases made from a seed: training steps, ASHLAR_PACKING_BUFFERS buffers packed by
 * the greedy orders alone, and networks, of several seeds, packed in 0.3, 1 and 10 seconds. */
size_t ashlar__bench_pack_count(bool is_smoke);

/* Pack case `idx`.
 *
 * tries    times that the same problem is packed, for the median; 1 .. ASHLAR_PACKING_TRIES_MAX
 * Errors:  ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack(size_t idx, size_t tries, ashlar_packing *out);
enum { ASHLAR_PACKING_TRIES_MAX = 9, ASHLAR_PACKING_BUFFERS = 20000 };

/* A problem in a MiniMalloc file, and the outputs wanted. */
typedef struct ashlar_pack_job {
    const char *path;      /* must outlive the packing, whose case it names */
    size_t capacity_bytes; /* the plan must fit in so many bytes; 0: as few as possible */
    size_t seconds;        /* time to search for the plan */
    const char *solution;  /* file to write the plan to; NULL: none */
    ashlar_json_writer *writer; /* gets an object about the plan; NULL: not wanted */
    bool lists_blocks;          /* in it, where each buffer lies */
    FILE *progress;        /* a terminal to show progress on; NULL: none */
} ashlar_pack_job;

/* Pack a file's problem, verify the plan, and write it. A plan that does not fit is no error.
 * Errors: as for ashlar__pack_table_read() and ashlar__pack_table_write(); ASHLAR_EHOSTMEM,
 * ASHLAR_EOVERFLOW; ASHLAR_EFORMAT also for a wrong plan. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack_file(const ashlar_pack_job *job,
                                                        ashlar_packing *out);

void ashlar__bench_pack_print(FILE *out, const ashlar_packing *packing);

/* The form of packings. Its rows are {case, subject, seed (if there is one), buffers, seconds,
 * plan_bytes, bound_bytes, gap, optimal, capacity_bytes (null if none), fits, strategy}. Targets:
 * at most 1 second, and a gap of at most 3 %; of networks what their names say, and a gap of at
 * most 2 % in 1 second, 1 % in 10, 0.5 % in 0.3. */
extern const ashlar_rows_form ashlar__packing_form;

ashlar_row ashlar__packing_row(const ashlar_packing *packing); /* `packing` must outlive the row */

/* For ashlar-replay: pack a file as ashlar__bench_pack_file() does, and print one line on `out`.
 *
 * Errors: those of ashlar__bench_pack_file(); ASHLAR_ENOMEM (the plan does not fit; the line, the
 * object and the solution have been written even so). */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_pack_run(const ashlar_pack_job *job, FILE *out);

#endif /* ASHLAR_BENCH_PACK_H */
