/* ranks_impl.h - the structures behind ashlar_ranks, and what its files call of each other; NCCL's
 * functions, as its documentation has them, in a table that is filled at run time; sums of arrays
 * (internal). ashlar neither links to NCCL nor includes its header, except in nccl_check.c. */
#ifndef ASHLAR_RANKS_IMPL_H
#define ASHLAR_RANKS_IMPL_H

#include <stdatomic.h>
#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/base.h>
#include <ashlar/device.h>
#include <ashlar/reduce.h>

#include "allocator/base/compiler.h"
#include "allocator/driver/cuda_abi.h"
#include "arena/reduce/ranks_engine.h"

enum { ASHLAR_RANKS_STAGING_BYTES = 1 << 20, ASHLAR_RANKS_FAILURE_BYTES = 240 };

/* Which collective a rank is about to run, as it tells rank 0, which compares all ranks' words. */
typedef struct ashlar_ranks_word {
    uint64_t step;
    uint64_t number; /* of the collective in the step */
    uint64_t facts;  /* a checksum of sizes, options and all else that must agree on all ranks */
} ashlar_ranks_word;

/* What rank 0 answers each other rank: whether all words agree, and if not, why. */
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
    ashlar_ranks_word next;         /* the word for the next collective to be queued */
    char *staging; /* [ASHLAR_RANKS_STAGING_BYTES] numbers received from another rank */
    /* [count] each; only rank 0 uses more than one: */
    ashlar_ranks_word *words;
    ashlar_engine_request *requests;
    ashlar_ranks_answer answer;
    /* Written by the thread that finds the first failure, before has_failed: */
    atomic_bool is_failing;
    char failure[ASHLAR_RANKS_FAILURE_BYTES];
    bool is_told; /* another rank told this one of the failure, and reports it */
    atomic_bool has_failed;
    /* With NCCL: the word of a collective that did not end, and whether there is one. The thread
     * that calls ashlar_ranks_check() then finds out which rank is to blame. */
    ashlar_ranks_word hung;
    atomic_bool is_hung;
    _Atomic uint64_t spent_ns; /* time that the host spent in collectives */
    uint64_t event_calls;      /* driver calls that were made to watch collectives */
};

/* The arguments of a collective that is to be queued. */
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

/* Wait for all ranks; whether each is about to run the collective that `own` describes. */
bool ashlar__ranks_agree(ashlar_ranks *ranks, const ashlar_ranks_word *own);

/* Bring `bytes` bytes from one rank to another. These two wait; on other ranks nothing is done. */
bool ashlar__ranks_pass(ashlar_ranks *ranks, size_t from, size_t to, void *data, size_t bytes);

/* Join the ranks by NCCL, for ranks->device and ->order; set ranks->nccl. Each rank must call it.
 * Errors: ASHLAR_ENOTSUP (no NCCL), ASHLAR_EIO (NCCL's reason), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_open(ashlar_ranks *ranks);

/* Call ashlar__ranks_agree(), then queue the collective. Errors: ASHLAR_EDRIVER, and those of
 * ashlar_ranks_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_queue(const ashlar_ranks_call *call,
                                                         ashlar_stream stream);

/* _attach: register the call's memory, a segment, with NCCL. _detach: end its registration. Errors:
 * as ashlar__ranks_nccl_queue(), and ASHLAR_EINVAL (too many are registered; this one is not). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_attach(const ashlar_ranks_call *call);
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_nccl_detach(ashlar_ranks *ranks, void *base);
/* Whether NCCL can register memory. */
bool ashlar__ranks_nccl_attaches(const ashlar_ranks *ranks);

/* Leave NCCL. If has_failed, queued collectives are aborted; otherwise there must be none. */
void ashlar__ranks_nccl_close(ashlar_ranks *ranks, bool has_failed);

typedef struct ncclComm *nccl_comm; /* one rank's end of a communicator, which joins ranks */

enum { NCCL_ID_BYTES = 128 };
typedef struct nccl_id { /* must be the same on all ranks that are to be joined */
    char bytes[NCCL_ID_BYTES];
} nccl_id;

typedef enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7, /* ask comm_get_async_error() later */
} nccl_result;

typedef enum nccl_type { NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9 } nccl_type;
typedef enum nccl_op { NCCL_SUM = 0 } nccl_op;

/* The configuration of NCCL 2.14, which has all fields that are needed here. Newer versions have
 * more, and see by `size` and `version` which of them a caller set. */
#define NCCL_CONFIG_MAGIC 0xcafebeefu
enum { NCCL_CONFIG_VERSION = 21400 };
typedef struct nccl_config {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int is_blocking;
} nccl_config;

/* Columns: field, symbol, what it returns, parameters. The last ASHLAR_NCCL_OPTIONAL functions
 * exist since NCCL 2.19, and are NULL with an older library. */
enum { ASHLAR_NCCL_OPTIONAL = 2 };
#define ASHLAR_NCCL_MAP(X)                                                                      \
    X(get_version, ncclGetVersion, nccl_result, (int *version))                                 \
    X(get_id, ncclGetUniqueId, nccl_result, (nccl_id * id))                                     \
    X(get_error_string, ncclGetErrorString, const char *, (nccl_result result))                 \
    X(get_last_error, ncclGetLastError, const char *, (nccl_comm comm))                         \
    X(comm_init, ncclCommInitRankConfig, nccl_result,                                           \
      (nccl_comm * comm, int count, nccl_id id, int rank, nccl_config *config))                 \
    X(comm_finalize, ncclCommFinalize, nccl_result, (nccl_comm comm))                           \
    X(comm_destroy, ncclCommDestroy, nccl_result, (nccl_comm comm))                             \
    X(comm_abort, ncclCommAbort, nccl_result, (nccl_comm comm))                                 \
    X(comm_get_async_error, ncclCommGetAsyncError, nccl_result,                                 \
      (nccl_comm comm, nccl_result * result))                                                   \
    X(broadcast, ncclBroadcast, nccl_result,                                                    \
      (const void *from, void *to, size_t elements, nccl_type type, int root, nccl_comm comm,   \
       cu_stream stream))                                                                       \
    X(all_reduce, ncclAllReduce, nccl_result,                                                   \
      (const void *from, void *to, size_t elements, nccl_type type, nccl_op op, nccl_comm comm, \
       cu_stream stream))                                                                       \
    X(reduce_scatter, ncclReduceScatter, nccl_result,                                           \
      (const void *from, void *to, size_t elements_each, nccl_type type, nccl_op op,            \
       nccl_comm comm, cu_stream stream))                                                       \
    X(all_gather, ncclAllGather, nccl_result,                                                   \
      (const void *from, void *to, size_t elements_each, nccl_type type, nccl_comm comm,        \
       cu_stream stream))                                                                       \
    X(comm_register, ncclCommRegister, nccl_result,                                             \
      (const nccl_comm comm, void *data, size_t bytes, void **handle))                          \
    X(comm_deregister, ncclCommDeregister, nccl_result, (const nccl_comm comm, void *handle))

typedef struct ashlar_nccl {
#define X(field, symbol, returned, params) returned(*field) params;
    ASHLAR_NCCL_MAP(X)
#undef X
} ashlar_nccl;

/* The one table of the process; the first call fills it from libnccl.so.2, or the file that
 * ASHLAR_NCCL names. Errors: ASHLAR_ENOTSUP (no library, or one before 2.14). */
ASHLAR_MUST_CHECK ashlar_status ashlar__nccl_open(const ashlar_nccl **out);

/* to[i] += from[i]. F16 and BF16 are added in F32 and rounded. Except for NaNs, a + b and b + a
 * have the same bits. Threads: any. */
void ashlar__sum_add(ashlar_dtype dtype, void *to, const void *from, size_t count);

#endif /* ASHLAR_RANKS_IMPL_H */
