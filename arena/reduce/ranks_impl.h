/* ranks_impl.h - the structures behind ashlar_ranks, and what its files call of each other: ranks.c
 * (joining, leaving, the table), ranks_run.c (collectives by the engine, in a stream's order) and
 * ranks_nccl.c (those by NCCL) (internal). */
#ifndef ASHLAR_RANKS_IMPL_H
#define ASHLAR_RANKS_IMPL_H

#include <ashlar/reduce.h>

#include <stdatomic.h>

#include "allocator/base/compiler.h"
#include "arena/reduce/ranks_engine.h"

enum { ASHLAR_RANKS_STAGING_BYTES = 1 << 20, ASHLAR_RANKS_FAILURE_BYTES = 240 };

/* What a rank is about to do, as the others are told. */
typedef struct ashlar_ranks_word {
    uint64_t step;
    uint64_t number; /* of the collective in the step */
    uint64_t facts;  /* a checksum of all else that must be the same on every rank */
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
    struct ashlar_ranks_nccl *nccl; /* NULL: the engine does the collectives, too */
    ashlar_ranks_word next;         /* the word of the next collective that is queued */
    char *staging;          /* [ASHLAR_RANKS_STAGING_BYTES] what came from another rank */
    /* [count] each; only rank 0 uses more than one: */
    ashlar_ranks_word *words;
    ashlar_engine_request *requests;
    ashlar_ranks_answer answer;
    /* Written by the thread that finds the first failure, before has_failed: */
    atomic_bool is_failing;
    char failure[ASHLAR_RANKS_FAILURE_BYTES];
    bool is_told; /* another rank told this one of the failure, and reports it */
    atomic_bool has_failed;
    /* With NCCL: the word of a collective that did not end, and whether there is one. Which rank is
     * to blame is found out by the thread that calls ashlar_ranks_check(). */
    ashlar_ranks_word hung;
    atomic_bool is_hung;
    _Atomic uint64_t spent_ns; /* in collectives */
    uint64_t event_calls;      /* driver calls that were made to watch collectives */
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

static inline bool ashlar__ranks_adds(ashlar_engine_collective kind) {
    return kind != ASHLAR_ENGINE_BROADCAST && kind != ASHLAR_ENGINE_ALL_GATHER;
}

/* Set what ashlar_ranks_check() reports, unless something has failed before. Returns false. */
bool ashlar__ranks_fail(ashlar_ranks *ranks, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* Whether all ranks are about to do the same. Waits for them. */
bool ashlar__ranks_agree(ashlar_ranks *ranks, const ashlar_ranks_word *own);

/* Bring `bytes` bytes from one rank to another. Other ranks do nothing. Waits. */
bool ashlar__ranks_pass(ashlar_ranks *ranks, size_t from, size_t to, void *data, size_t bytes);

/* Add up numbers in host memory over all ranks, on the calling thread.
 *
 * Errors: those of ashlar_ranks_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_sum(ashlar_ranks *ranks, double *numbers,
                                                  size_t count);

/* Join the ranks by NCCL, on r->device and for r->order: sets r->nccl. Every rank must.
 *
 * Errors: ASHLAR_ENOTSUP (no NCCL), ASHLAR_EIO (the ranks do not come together; NCCL's reason),
 *         ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_open(ashlar_ranks *ranks);

/* Agree, then queue a collective. Errors: those of ashlar_ranks_check(), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_queue(const ashlar_ranks_call *call,
                                                         ashlar_stream stream);

/* _attach: register a segment. _detach: end its registration. Errors: as
 * ashlar__ranks_nccl_queue(), and ASHLAR_EINVAL (too many are registered; this one is not). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_attach(const ashlar_ranks_call *call);
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_detach(ashlar_ranks *ranks, void *base);
/* Whether NCCL can register memory. */
bool ashlar__ranks_nccl_attaches(const ashlar_ranks *ranks);

/* Leave NCCL. has_failed: queued work is given up; otherwise none may be queued. */
void ashlar__ranks_nccl_close(ashlar_ranks *ranks, bool has_failed);

#endif /* ASHLAR_RANKS_IMPL_H */
