/*
 * bench_pack.h - how long packing takes, and how good the plans are (internal).
 */
#ifndef ASHLAR_BENCH_PACK_H
#define ASHLAR_BENCH_PACK_H

#include <stdbool.h>
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
 * Pack 20,000 buffers of training steps by the greedy orders alone.
 *
 * tries    1 .. ASHLAR_PACKING_TRIES_MAX
 * Errors:  ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack(size_t tries, ashlar_packing *out);
enum { ASHLAR_PACKING_TRIES_MAX = 9, ASHLAR_PACKING_BUFFERS = 20000 };

/*
 * Pack MiniMalloc's problem in a file into `capacity_bytes`, with a search of so many seconds, and
 * verify the plan. That it does not fit is no error.
 *
 * path     stays the caller's; it must outlive *out
 * Errors:  as ashlar__pack_table_read(), ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW; ASHLAR_EFORMAT also for
 *          a wrong plan.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__bench_pack_file(const char *path, size_t capacity_bytes,
                                                        size_t seconds, ashlar_packing *out);

/* A line with the figures, and, of training steps, one for each target: less than a second, at most
 * 3 % above. */
void ashlar__bench_pack_print(FILE *out, const ashlar_packing *packing);
void ashlar__bench_pack_print_targets(FILE *out, const ashlar_packing *packing);

/* {problem, buffers, seconds, plan_bytes, bound_bytes, gap}, and of a file {capacity, fits}. */
void ashlar__bench_pack_put(ashlar_json_writer *w, const ashlar_packing *packing);

#endif /* ASHLAR_BENCH_PACK_H */
