/* soft_context.c - contexts: one for each software device, and each thread's stack of them. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/threads.h"

enum { CONTEXT_DEPTH_MAX = 64 };

/* Handles of the contexts that this thread has pushed. If `generation` differs from the state's,
 * the devices have been configured anew, and the stack counts as empty. */
typedef struct context_stack {
    uint64_t generation;
    size_t depth;
    uintptr_t contexts[CONTEXT_DEPTH_MAX];
} context_stack;

/* The calling thread's stack; NULL: nothing was ever pushed. */
static context_stack *stack_if_any(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    context_stack *stack = ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_CONTEXTS);
    if (stack != NULL && stack->generation != ashlar__soft_state.generation) {
        stack->generation = ashlar__soft_state.generation;
        stack->depth = 0;
    }
    ASHLAR_CHECK2(stack == NULL || stack->depth <= CONTEXT_DEPTH_MAX);
    return stack;
}

soft_device *ashlar__soft_context_find(cu_context context) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    return ashlar__soft_handles_get(&ashlar__soft_state.contexts, SOFT_CONTEXT, (uintptr_t)context);
}

/* The device of the calling thread's current context; NULL: there is none. */
static soft_device *current_device(void) {
    const context_stack *stack = stack_if_any();
    return stack == NULL || stack->depth == 0
               ? NULL
               : ashlar__soft_context_find((cu_context)stack->contexts[stack->depth - 1]);
}

cu_result ashlar__soft_enter_context(ashlar_driver_fn fn, soft_device **device) {
    SOFT_TRY(ashlar__soft_enter(fn));
    soft_device *current = current_device();
    if (current == NULL) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    if (current->fault != CU_SUCCESS) {
        return ashlar__soft_leave(current->fault);
    }
    *device = current;
    return CU_SUCCESS;
}

static cu_result begin_context(soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    SOFT_TRY(ashlar__soft_overhead_take(device, &device->overhead));
    if (ashlar__soft_handles_put(&ashlar__soft_state.contexts, SOFT_CONTEXT, device,
                                 &device->context)) {
        return CU_SUCCESS;
    }
    if (device->overhead != NULL) {
        ashlar__soft_memory_drop(device->overhead);
        device->overhead = NULL;
    }
    return CU_OUT_OF_MEMORY;
}

cu_result ashlar__soft_primary_ctx_retain(cu_context *context, cu_device device) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_primary_ctx_retain));
    soft_device *found = ashlar__soft_device_at(device);
    if (found == NULL || context == NULL) {
        return ashlar__soft_leave(context == NULL ? CU_INVALID_VALUE : CU_INVALID_DEVICE);
    }
    if (found->retains == 0) {
        const cu_result result = begin_context(found);
        if (result != CU_SUCCESS) {
            return ashlar__soft_leave(result);
        }
        found->fault = CU_SUCCESS;
        found->peers = 0;
    }
    found->retains++;
    ASHLAR_CHECK2(ashlar__soft_context_find((cu_context)found->context) == found);
    *context = (cu_context)found->context;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_primary_ctx_get_state(cu_device device, unsigned int *flags,
                                             int *is_active) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_primary_ctx_get_state));
    const soft_device *found = ashlar__soft_device_at(device);
    if (found == NULL || flags == NULL || is_active == NULL) {
        return ashlar__soft_leave(found == NULL ? CU_INVALID_DEVICE : CU_INVALID_VALUE);
    }
    *flags = 0;
    *is_active = found->retains > 0;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_ctx_push_current(cu_context context) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_ctx_push_current));
    if (ashlar__soft_context_find(context) == NULL) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    (void)ashlar__thread_data(ASHLAR_THREAD_SOFT_CONTEXTS, sizeof(context_stack));
    context_stack *stack = stack_if_any();
    if (stack == NULL || stack->depth == CONTEXT_DEPTH_MAX) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    stack->contexts[stack->depth++] = (uintptr_t)context;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_ctx_pop_current(cu_context *context) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_ctx_pop_current));
    context_stack *stack = stack_if_any();
    if (stack == NULL || stack->depth == 0) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    stack->depth--;
    if (context != NULL) {
        *context = (cu_context)stack->contexts[stack->depth];
    }
    return ashlar__soft_leave(CU_SUCCESS);
}
