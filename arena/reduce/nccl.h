/* nccl.h - NCCL's functions, as its documentation has them, in a table that is filled at run time;
 * nothing links to NCCL, nor needs its header (internal).
 *
 * nccl_check.c compares all this with NCCL's own header where that is installed. */
#ifndef ASHLAR_NCCL_H
#define ASHLAR_NCCL_H

#include <stddef.h>

#include <ashlar/base.h>

#include "allocator/driver/cuda_abi.h"

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

/* The configuration of NCCL 2.14, which has all that is needed here. Newer ones have more fields,
 * and see by size and version which of them were given. */
#define NCCL_CONFIG_MAGIC 0xcafebeefu
enum { NCCL_CONFIG_VERSION = 21400 };
typedef struct nccl_config {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int is_blocking;
} nccl_config;

/* Columns: field, symbol, what it returns, parameters. The last ASHLAR_NCCL_OPTIONAL exist since
 * 2.19, and are NULL with an older library. */
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

/* Set *out to the one table of the process; the first call fills it from libnccl.so.2, or the file
 * that ASHLAR_NCCL names.
 *
 * Errors: ASHLAR_ENOTSUP (no library, or one before 2.14); the next call tries again. */
ASHLAR_MUST_CHECK ashlar_status ashlar__nccl_open(const ashlar_nccl **out);

nccl_type ashlar__nccl_type(ashlar_dtype dtype);

#endif /* ASHLAR_NCCL_H */
