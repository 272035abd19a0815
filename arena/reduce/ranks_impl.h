/* ranks_impl.h - the inside of ranks, for ranks.c (joining, leaving, the table) and ranks_run.c
 * (what runs in a stream's order) (internal). */
#ifndef ASHLAR_RANKS_IMPL_H
#define ASHLAR_RANKS_IMPL_H

#include <ashlar/ranks.h>

#include <stdatomic.h>

#include "arena/reduce/ranks_engine.h"

enum { ASHLAR_RANKS_STAGING_BYTES = 1 << 20, ASHLAR_RANKS_FAILURE_BYTES = 240 };

/* What a rank is about to do, as the others are told. */
typedef struct ashlar_ranks_word {
    uint64_t step;
    uint64_t number; /* of the collective in the step */
    uint64_t facts;  /* a checksum of all the rest */
} ashlar_ranks_word;

/* What rank 0 tells the others. */
typedef struct ashlar_ranks_answer {
    bool is_good;
    char why[ASHLAR_RANKS_FAILURE_BYTES];
} ashlar_ranks_answer;

struct ashlar_ranks {
    void *library;
    const ashlar_engine *engine;
    size_t rank, count;
    uint64_t timeout_ns;
    ashlar_device *device;
    ashlar_ranks_order order;
    ashlar_collectives table;
    ashlar_ranks_word next; /* of the next collective that is queued */
    char *staging;          /* [ASHLAR_RANKS_STAGING_BYTES] what came from another rank */
    /* [count] each; only rank 0 uses more than one: */
    ashlar_ranks_word *words;
    ashlar_engine_request *requests;
    ashlar_ranks_answer answer;
    /* Written by whichever thread runs the stream, before has_failed: */
    char failure[ASHLAR_RANKS_FAILURE_BYTES];
    bool is_told; /* by rank 0, which reports it */
    atomic_bool has_failed;
    _Atomic uint64_t spent_ns; /* in collectives */
};

/* A collective, as it is queued. */
typedef struct ashlar_ranks_call {
    ashlar_ranks *ranks;
    ashlar_engine_collective kind;
    ashlar_ranks_order order;
    ashlar_ranks_word word;
    void *data;
    size_t elements;
    ashlar_dtype dtype;
    size_t root;
} ashlar_ranks_call;

/* For ashlar_launch(): agree, then do it. Does nothing after a failure. */
void ashlar__ranks_run(void *call);

#endif /* ASHLAR_RANKS_IMPL_H */
