/* ranks_impl.h - the inside of ranks, for ranks.c (joining, leaving, the table), ranks_run.c (what
 * the engine does, in a stream's order) and ranks_nccl.c (what NCCL does) (internal). */
#ifndef ASHLAR_RANKS_IMPL_H
#define ASHLAR_RANKS_IMPL_H

#include <ashlar/ranks.h>

#include <stdatomic.h>

#include "allocator/base/compiler.h"
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

typedef struct ashlar_ranks_beside ashlar_ranks_beside;

struct ashlar_ranks {
    void *library;
    const ashlar_engine *engine;
    void *self; /* the engine's */
    size_t rank, count;
    uint64_t timeout_ns;
    ashlar_device *device;
    ashlar_ranks_order order;
    ashlar_collectives table;
    struct ashlar_ranks_nccl *nccl; /* NULL: the engine does the collectives, too */
    ashlar_ranks_word next; /* of the next collective that is queued */
    ashlar_ranks_beside *beside;  /* ranks_beside.c; NULL: not open */
    void (*run_sums)(void *call); /* for ashlar_launch(): where sums that are queued go; NULL: they
                                   * run in the order of the stream */
    char *staging;          /* [ASHLAR_RANKS_STAGING_BYTES] what came from another rank */
    /* [count] each; only rank 0 uses more than one: */
    ashlar_ranks_word *words;
    ashlar_engine_request *requests;
    ashlar_ranks_answer answer;
    /* Written by the thread that finds the first failure, before has_failed: */
    atomic_bool is_failing;
    char failure[ASHLAR_RANKS_FAILURE_BYTES];
    bool is_told; /* by rank 0, which reports it */
    atomic_bool has_failed;
    atomic_bool is_leaving; /* a collective under way is given up */
    /* NCCL: a collective did not end. Who is to blame is asked by the thread that checks. */
    ashlar_ranks_word hung;
    atomic_bool is_hung;
    _Atomic uint64_t spent_ns; /* in collectives */
    uint64_t event_calls;      /* to the driver, that were made to watch collectives */
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

/* The tree that reduces to a root: in the round of distance d, ranks that have the root's last
 * log2(d) bits join, in pairs, of which the one without the root's next bit gives. */
static inline bool ashlar__ranks_joins(size_t rank, size_t root, size_t distance) {
    return ((rank ^ root) & (distance - 1)) == 0;
}

static inline bool ashlar__ranks_gives(size_t rank, size_t root, size_t distance) {
    return ((rank ^ root) & distance) != 0;
}

/* Give a collective of this rank its number, and the word that the others compare. */
void ashlar__ranks_number(ashlar_ranks *ranks, ashlar_ranks_call *call);

/* For ashlar_launch(): agree, then do it. Does nothing after a failure. */
void ashlar__ranks_run(void *call);

/* What ashlar_ranks_check() says from now on, unless something has failed before. Returns false. */
bool ashlar__ranks_fail(ashlar_ranks *ranks, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* Whether they are threads of this process, and so its counters are theirs in common. */
bool ashlar__ranks_are_threads(const ashlar_ranks *ranks);

/* Whether all ranks are about to do the same. Waits for them. */
bool ashlar__ranks_agree(ashlar_ranks *ranks, const ashlar_ranks_word *own);

/* A collective did not end: ask which rank is missing, and fail. Waits, or, on all ranks but the
 * first, ends with the process. */
void ashlar__ranks_name(ashlar_ranks *ranks, const ashlar_ranks_word *own);

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

/* Register a segment, or end that. Errors: as ashlar__ranks_nccl_queue(), and ASHLAR_EINVAL (it is
 * not registered; too many are). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_attach(const ashlar_ranks_call *call);
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_detach(ashlar_ranks *ranks, void *base);
/* Whether NCCL can register memory. */
bool ashlar__ranks_nccl_attaches(const ashlar_ranks *ranks);

/* Part. After a failure work that is queued is given up, else there may be none. */
void ashlar__ranks_nccl_close(ashlar_ranks *ranks, bool has_failed);

#endif /* ASHLAR_RANKS_IMPL_H */
