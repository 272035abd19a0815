/* nccl_check.c - checks at compile time that ranks_impl.h agrees with NCCL's own header. Built only
 * where that is installed; contains no code. */
#include "arena/reduce/ranks_impl.h"

#include <nccl.h>

#define SAME_FIELD(ours, theirs)                                                                \
    _Static_assert(offsetof(nccl_config, ours) == offsetof(ncclConfig_t, theirs) &&             \
                       sizeof(((nccl_config *)0)->ours) == sizeof(((ncclConfig_t *)0)->theirs), \
                   #ours)
#define SAME_VALUE(ours, theirs) \
    _Static_assert((long long)(ours) == (long long)(theirs), #ours " and " #theirs)

_Static_assert(__builtin_types_compatible_p(nccl_comm, ncclComm_t), "a communicator");
_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "an id's size");
_Static_assert(_Alignof(nccl_id) == _Alignof(ncclUniqueId), "an id's alignment");
SAME_FIELD(size, size);
SAME_FIELD(magic, magic);
SAME_FIELD(version, version);
SAME_FIELD(is_blocking, blocking);
SAME_VALUE(NCCL_CONFIG_VERSION, NCCL_VERSION(2, 14, 0));
SAME_VALUE(NCCL_SUCCESS, ncclSuccess);
SAME_VALUE(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME_VALUE(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME_VALUE(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME_VALUE(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME_VALUE(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME_VALUE(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME_VALUE(NCCL_IN_PROGRESS, ncclInProgress);
SAME_VALUE(NCCL_F16, ncclFloat16);
SAME_VALUE(NCCL_F32, ncclFloat32);
SAME_VALUE(NCCL_F64, ncclFloat64);
SAME_VALUE(NCCL_BF16, ncclBfloat16);
SAME_VALUE(NCCL_SUM, ncclSum);

/* The functions' types. NCCL's types here take the place of ours, which were shown equal above. */
#define nccl_id ncclUniqueId
#define nccl_result ncclResult_t
#define nccl_type ncclDataType_t
#define nccl_op ncclRedOp_t
#define nccl_config ncclConfig_t
#define cu_stream cudaStream_t
#define X(field, symbol, returned, params)                                                  \
    _Static_assert(__builtin_types_compatible_p(returned(*) params, __typeof__(&(symbol))), \
                   #symbol);
ASHLAR_NCCL_MAP(X)
#undef X
