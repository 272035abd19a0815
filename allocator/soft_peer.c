/* soft_peer.c - one device's access to the memory of another. */
#include "soft_state.h"

cu_result ashlar_soft_device_can_access_peer(int *can_access, cu_device device, cu_device peer) {
    (void)can_access;
    (void)device;
    (void)peer;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_ctx_enable_peer_access(cu_context peer, unsigned int flags) {
    (void)peer;
    (void)flags;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar_soft_memcpy_peer_async(cu_ptr dst, cu_context dst_context, cu_ptr src,
                                        cu_context src_context, size_t bytes, cu_stream stream) {
    (void)dst;
    (void)dst_context;
    (void)src;
    (void)src_context;
    (void)bytes;
    (void)stream;
    return CU_NOT_SUPPORTED;
}
