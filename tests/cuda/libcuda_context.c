/*
 * libcuda_context.c - contexts of the fake driver, beside the devices' primary ones: those that
 * programs make are apart, as a real driver's. Streams, events, modules and what cuMemAlloc gave
 * belong to one, and end with it; what cuMemCreate gave is the device's.
 */
#include "libcuda.h"

#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

static void free_context(soft_device *made) {
    if (made->legacy != NULL && made->legacy->device != NULL) {
        ashlar__soft_stream_delete(made->legacy);
    } else {
        ashlar__host_free(made->legacy);
    }
    ashlar__host_free(made);
}

static cu_result make_locked(soft_device *of, soft_device **out) {
    soft_device *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    *made = (soft_device){.ordinal = of->ordinal, .of = of, .retains = 1, .memory_fd = -1};
    made->legacy = ashlar__host_calloc(1, sizeof *made->legacy);
    cu_result result =
        made->legacy == NULL ? CU_OUT_OF_MEMORY : ashlar__soft_overhead_take(made, &made->overhead);
    if (result == CU_SUCCESS && !ashlar__soft_handle_put(SOFT_CONTEXT, made, &made->context)) {
        ashlar__soft_context_reset(made);
        result = CU_OUT_OF_MEMORY;
    }
    if (result != CU_SUCCESS) {
        free_context(made);
        return result;
    }
    ashlar__soft_stream_join(made->legacy, made, true);
    *out = made;
    return CU_SUCCESS;
}

cu_result ashlar_fake_ctx_create(cu_context *context, unsigned int flags, cu_device ordinal) {
    (void)flags;
    soft_device *made = NULL;
    cu_result result =
        context == NULL ? CU_INVALID_VALUE : ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_device *device = ashlar__soft_device_at(ordinal);
    result = device == NULL ? CU_INVALID_DEVICE : make_locked(device, &made);
    if (result != CU_SUCCESS) {
        return ashlar__soft_leave(result);
    }
    *context = (cu_context)made->context;
    (void)ashlar__soft_leave(CU_SUCCESS);
    return ashlar__soft_ctx_push_current(*context);
}

/* What the other files of this driver keep for a context. Lock: not held. */
static void forget(const soft_device *context) {
    ashlar_fake_pools_forget(context);
    ashlar_fake_modules_forget(context);
    ashlar_fake_graphs_forget(context);
}

cu_result ashlar_fake_ctx_destroy(cu_context context) {
    cu_context current = NULL;
    cu_result result = ashlar_fake_ctx_get_current(&current);
    if (result == CU_SUCCESS && current == context) {
        result = ashlar__soft_ctx_pop_current(NULL);
    }
    if (result == CU_SUCCESS) {
        result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    }
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_device *made = ashlar__soft_context_find(context);
    if (made == NULL || made == made->of) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    ashlar__soft_wait_device(made, 0);
    (void)ashlar__soft_handle_take(SOFT_CONTEXT, (uintptr_t)context);
    (void)ashlar__soft_leave(CU_SUCCESS);
    forget(made);
    (void)ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    ashlar__soft_context_reset(made);
    free_context(made);
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar_fake_ctx_get_current(cu_context *context) {
    if (context == NULL) {
        return CU_INVALID_VALUE;
    }
    *context = NULL;
    const cu_result popped = ashlar__soft_ctx_pop_current(context);
    if (popped != CU_SUCCESS) {
        return popped == CU_INVALID_CONTEXT ? CU_SUCCESS : popped;
    }
    const cu_result pushed = ashlar__soft_ctx_push_current(*context);
    if (pushed != CU_SUCCESS) {
        *context = NULL; /* it has ended */
    }
    return pushed == CU_INVALID_CONTEXT ? CU_SUCCESS : pushed;
}

cu_result ashlar_fake_ctx_set_current(cu_context context) {
    const cu_result popped = ashlar__soft_ctx_pop_current(NULL);
    if (popped != CU_SUCCESS && popped != CU_INVALID_CONTEXT) {
        return popped;
    }
    return context == NULL ? CU_SUCCESS : ashlar__soft_ctx_push_current(context);
}

cu_result ashlar_fake_ctx_get_device(cu_device *ordinal) {
    soft_device *device;
    const cu_result result = ordinal == NULL
                                 ? CU_INVALID_VALUE
                                 : ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &device);
    if (result != CU_SUCCESS) {
        return result;
    }
    *ordinal = device->ordinal;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar_fake_primary_ctx_release(cu_device ordinal) {
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    const soft_device *device = ashlar__soft_device_at(ordinal);
    const bool is_last = device != NULL && device->retains == 1;
    if (is_last) {
        ashlar__soft_wait_device(device, 0);
    }
    (void)ashlar__soft_leave(CU_SUCCESS);
    if (is_last) {
        forget(device);
    }
    return ashlar__soft_primary_ctx_release(ordinal);
}

/* Everything goes, whoever has retained it. */
cu_result ashlar_fake_primary_ctx_reset(cu_device ordinal) {
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_device *device = ashlar__soft_device_at(ordinal);
    if (device == NULL || device->retains == 0) {
        return ashlar__soft_leave(device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS);
    }
    device->retains = 1;
    (void)ashlar__soft_leave(CU_SUCCESS);
    return ashlar_fake_primary_ctx_release(ordinal);
}

cu_result ashlar_fake_ctx_synchronize(void) {
    cu_device ordinal;
    const cu_result result = ashlar__soft_ctx_synchronize();
    if (result == CU_SUCCESS && ashlar_fake_ctx_get_device(&ordinal) == CU_SUCCESS) {
        ashlar_fake_pools_settle(ordinal);
    }
    return result;
}

/* CUDA 13's: of any context. */
cu_result ashlar_fake_ctx_synchronize_v2(cu_context context) {
    cu_result result = context == NULL ? CU_SUCCESS : ashlar__soft_ctx_push_current(context);
    if (result != CU_SUCCESS) {
        return result;
    }
    result = ashlar_fake_ctx_synchronize();
    if (context != NULL) {
        (void)ashlar__soft_ctx_pop_current(NULL);
    }
    return result;
}
