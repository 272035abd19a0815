/* bench_pack.h - packing problems from files and from seeds, and how well they are packed
 * (internal). */
#ifndef ASHLAR_BENCH_PACK_H
#define ASHLAR_BENCH_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ashlar/plan.h>

#include "allocator/base/json.h"
#include "allocator/base/parse.h"
#include "bench/harness/harness.h"

/*
 * Packing problems and their solutions in MiniMalloc's CSV files.
 *
 * A header, and a row for each buffer, which is live in [lower, upper):
 *     id,lower,upper,size
 *     0,995328,1000448,656384
 * Columns are found by name, in any order; a solution adds the column `offset`. Other columns are
 * ignored, but `alignment` and `gaps` are refused, since they would constrain the solution. An id
 * is any text.
 */

/* Invariant: ids[i] and buffers[i] belong to row i of the file. */
typedef struct ashlar_pack_table {
    ashlar_pack_buffer *buffers; /* [count] */
    ashlar_piece *ids;           /* [count], pieces of `text` */
    size_t count;
    char *text;
} ashlar_pack_table;

/*
 * Read a problem.
 *
 * Ownership: the caller ends *out with ashlar__pack_table_finish().
 * Errors:    ASHLAR_EIO, ASHLAR_EFORMAT (the detail begins with FILE:LINE: and names the column),
 *            ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_table_read(const char *path, ashlar_pack_table *out);

/* Read a problem from text in host memory, which becomes the table's, or is freed on failure.
 * `name` is for messages, as a file's name. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_table_parse(const char *name, char *text, size_t bytes,
                                                         ashlar_pack_table *out);

void ashlar__pack_table_finish(ashlar_pack_table *table); /* all 0 is allowed */

/* Write a problem with its solution: offsets [count]. Errors: those of
 * ashlar__file_create() and ashlar__file_commit(); the old file is then unchanged. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_table_write(const ashlar_pack_table *table,
                                                         const size_t *offsets, const char *path);

/*
 * Check a plan of any source, by another method than the packer's: no two buffers overlap while
 * both are live.
 *
 * bytes    the highest end of a buffer; unchanged on failure
 *
 * Errors:  ASHLAR_EFORMAT (two overlap; the detail names them), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_check(const ashlar_pack_buffer *buffers, size_t count,
                                                   const size_t *offsets, size_t *bytes);

/* One packing: how long it took, and the plan's quality, for ashlar-bench and ashlar-replay. */
typedef struct ashlar_packing {
    const char *case_name;
    uint64_t seed;         /* 0: the problem is not made from a seed */
    size_t count;          /* buffers */
    size_t capacity_bytes; /* the capacity that the plan should fit; 0: as few bytes as possible */
    double seconds;        /* time of packing */
    ashlar_pack_result result;
} ashlar_packing;

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

/* Pack case `idx`. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack(size_t idx, ashlar_packing *out);
enum { ASHLAR_PACKING_BUFFERS = 20000 };

/* A problem in a MiniMalloc file, and the outputs wanted. */
typedef struct ashlar_pack_job {
    const char *path;           /* must outlive the packing, whose case_name it becomes */
    size_t capacity_bytes;      /* the capacity that the plan should fit; 0: as small as possible */
    size_t seconds;             /* time to search for the plan */
    const char *solution;       /* file to write the plan to; NULL: none */
    ashlar_json_writer *writer; /* gets an object about the plan */
    bool lists_blocks;          /* the object also tells where each buffer lies */
} ashlar_pack_job;

void ashlar__bench_pack_print(FILE *out, const ashlar_packing *packing);

/* The form of packings. Its rows are {case, subject, seed (if there is one), buffers, seconds,
 * plan_bytes, bound_bytes, gap, optimal, capacity_bytes (null if none), fits, strategy}. Targets:
 * at most 1 second, and a gap of at most 3 %; of networks what their names say, and a gap of at
 * most 2 % in 1 second, 1 % in 10, 0.5 % in 0.3. */
extern const ashlar_rows_form ashlar__packing_form;

ashlar_row ashlar__packing_row(const ashlar_packing *packing); /* `packing` must outlive the row */

/* Pack a file's problem, verify the plan and write it, and print one line on `out`.
 *
 * Errors: as for ashlar__pack_table_read() and ashlar__pack_table_write(); ASHLAR_EHOSTMEM,
 * ASHLAR_EOVERFLOW; ASHLAR_EFORMAT also for a wrong plan; ASHLAR_ENOMEM (the plan does not fit; the
 * line, the object and the solution have been written even so). */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_pack_run(const ashlar_pack_job *job, FILE *out);

#endif /* ASHLAR_BENCH_PACK_H */
