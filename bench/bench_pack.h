/*
 * bench_pack.h - how long packing takes, and how good the plans are (internal).
 */
#ifndef ASHLAR_BENCH_PACK_H
#define ASHLAR_BENCH_PACK_H

#include <stdbool.h>
#include <stdio.h>

#include <ashlar/pack.h>

#include "json.h"

typedef struct ashlar_packing {
    const char *problem;
    size_t count;   /* of buffers */
    double seconds; /* median of the tries */
    ashlar_pack_result result;
} ashlar_packing;

/* plan_bytes / bound_bytes - 1; 0 where there is nothing to pack. */
double ashlar_packing_gap(const ashlar_packing *packing);

/*
 * Pack 20,000 buffers of training steps by the greedy orders alone.
 *
 * tries    1 .. ASHLAR_PACKING_TRIES_MAX
 * Errors:  ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_bench_pack(size_t tries, ashlar_packing *out);
enum { ASHLAR_PACKING_TRIES_MAX = 9, ASHLAR_PACKING_BUFFERS = 20000 };

/* A line with the figures, and one for each target: less than a second, at most 3 % above. */
void ashlar_bench_pack_print(FILE *out, const ashlar_packing *packing);
void ashlar_bench_pack_print_targets(FILE *out, const ashlar_packing *packing);

/* {problem, buffers, seconds, plan_bytes, bound_bytes, gap}. */
void ashlar_bench_pack_put(ashlar_json_writer *w, const ashlar_packing *packing);

#endif /* ASHLAR_BENCH_PACK_H */
