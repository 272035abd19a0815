/* soft_peer.c - one device's access to the plain memory of another. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/check_level.h"

cu_result ashlar__soft_device_can_access_peer(int *can_access, cu_device device, cu_device peer) {
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_device_can_access_peer);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (can_access == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    if (ashlar__soft_device_at(device) == NULL || ashlar__soft_device_at(peer) == NULL) {
        return ashlar__soft_leave(CU_INVALID_DEVICE);
    }
    *can_access = ashlar__soft_state.config.has_peers && device != peer;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_ctx_enable_peer_access(cu_context peer, unsigned int flags) {
    soft_device *device;
    const cu_result result =
        ashlar__soft_enter_context(ASHLAR_DRIVER_FN_ctx_enable_peer_access, &device);
    if (result != CU_SUCCESS) {
        return result;
    }
    const soft_device *other = ashlar__soft_context_find(peer);
    if (flags != 0 || other == NULL || other == device) {
        return ashlar__soft_leave(flags != 0 ? CU_INVALID_VALUE : CU_INVALID_CONTEXT);
    }
    if (!ashlar__soft_state.config.has_peers) {
        return ashlar__soft_leave(CU_PEER_ACCESS_UNSUPPORTED);
    }
    if ((device->peers >> other->ordinal & 1) != 0) {
        return ashlar__soft_leave(CU_PEER_ACCESS_ALREADY_ENABLED);
    }
    device->peers |= (uint32_t)1 << other->ordinal;
    ASHLAR_CHECK2((device->peers >> device->ordinal & 1) == 0);
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_peer_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    for (int i = 0; i < ashlar__soft_state.config.device_count; i++) {
        ashlar__soft_state.devices[i].peers &= ~((uint32_t)1 << device->ordinal);
    }
}
