/* soft_call.c - the software device's state, and what all calls of the driver table share: how they
 * begin and end, undefined behaviour (strict=on), handles, and contexts. */
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/threads.h"

soft_state ashlar__soft_state = {
    .lock = ASHLAR_LOCK(ASHLAR_LEVEL_SOFT),
    .op_finished = PTHREAD_COND_INITIALIZER,
};

soft_hooks ashlar__soft_hooks;

_Thread_local bool ashlar__soft_in_host_fn;
_Thread_local const char *ashlar__soft_mistake;
const char *_Atomic ashlar__soft_fault_text;

_Thread_local ashlar_driver_fn ashlar__soft_call = ASHLAR_DRIVER_FN_COUNT;

cu_result ashlar__soft_enter(ashlar_driver_fn fn) {
    ashlar__soft_call = fn;
    if (ashlar__soft_in_host_fn) {
        return ashlar__soft_undefined(CU_NOT_PERMITTED, "called inside a host function");
    }
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(!ashlar__soft_state.is_initialized || ashlar__soft_state.generation > 0);
    if (!ashlar__soft_state.is_initialized) {
        return ashlar__soft_leave(CU_NOT_INITIALIZED);
    }
    ashlar__soft_time_charge(fn);
    return CU_SUCCESS;
}

cu_result ashlar__soft_leave(cu_result result) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2((ashlar__soft_state.first_stream == NULL) ==
                  (ashlar__soft_state.last_stream == NULL));
    ashlar__lock_release(&ashlar__soft_state.lock);
    return result;
}

cu_result ashlar__soft_go_on(cu_result result) {
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

soft_device *ashlar__soft_device_at(cu_device ordinal) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    return ordinal >= 0 && ordinal < ashlar__soft_state.config.device_count
               ? &ashlar__soft_state.devices[ordinal]
               : NULL;
}

void ashlar__soft_lose_device(const char *text) {
    ashlar__soft_mistake = text;
}

/* ---- strict=on ---- */

cu_result ashlar__soft_undefined(cu_result result, const char *format, ...) {
    if (!ashlar__soft_state.config.is_strict) {
        return result;
    }
    char what[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    (void)fprintf(stderr, "ashlar: software device, strict: %s: %s\n",
                  ashlar__soft_call == ASHLAR_DRIVER_FN_COUNT
                      ? "a call outside the driver table"
                      : ashlar__driver_fn_name(ashlar__soft_call),
                  what);
    abort();
}

static bool overlaps(const soft_operand *operand, size_t op_bytes, uintptr_t base, size_t bytes) {
    const uintptr_t from = (uintptr_t)operand->ptr;
    return operand->ptr != NULL && operand->place != SOFT_PLACE_PAGEABLE && from < base + bytes &&
           base < from + op_bytes;
}

void ashlar__soft_let_go(uintptr_t base, size_t bytes) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (!ashlar__soft_state.config.is_strict) {
        return;
    }
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        for (const soft_op *op = s->head; op != NULL; op = op->next) {
            if (overlaps(&op->dst, op->bytes, base, bytes) ||
                overlaps(&op->src, op->bytes, base, bytes)) {
                (void)ashlar__soft_undefined(CU_SUCCESS,
                                             "%zu bytes at %#zx are in use by a %s queued on the "
                                             "stream with id %llu",
                                             bytes, (size_t)base,
                                             op->kind == SOFT_OP_FILL ? "fill" : "copy",
                                             (unsigned long long)s->serial);
            }
        }
    }
    if (ashlar__soft_hooks.is_used != NULL && ashlar__soft_hooks.is_used(base, bytes)) {
        (void)ashlar__soft_undefined(CU_SUCCESS,
                                     "%zu bytes at %#zx have a use that the host has not seen "
                                     "finished",
                                     bytes, (size_t)base);
    }
}

/* ---- handles ---- */

enum { HANDLE_STEP = 16, HANDLE_KINDS = 3 }; /* 1 and 2 are CUDA's default streams */
_Static_assert(HANDLE_KINDS + (int)SOFT_KINDS_END <= HANDLE_STEP, "no kind reaches into the index");

bool ashlar__soft_handle_put(soft_kind kind, void *item, uintptr_t *handle) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_handles *table = &ashlar__soft_state.handles[kind];
    size_t idx;
    if (table->first_free != 0) {
        idx = table->first_free - 1;
        ASHLAR_CHECK2(idx < table->count && table->entries[idx].item == NULL);
        table->first_free = table->entries[idx].next_free;
    } else {
        struct soft_handle *grown = ashlar__soft_grow(table->entries, table->count,
                                                      &table->capacity, sizeof *table->entries);
        if (grown == NULL) {
            return false;
        }
        table->entries = grown;
        idx = table->count++;
    }
    table->entries[idx] = (struct soft_handle){.item = item};
    *handle = (uintptr_t)(idx + 1) * HANDLE_STEP + HANDLE_KINDS + kind;
    ASHLAR_CHECK2(ashlar__soft_handle_get(kind, *handle) == item);
    return true;
}

/* Whether some item has, or had, this handle. (Below HANDLE_STEP the index wraps to the largest
 * size_t, which no table reaches.) */
static bool was_given(soft_kind kind, uintptr_t handle) {
    return handle % HANDLE_STEP == HANDLE_KINDS + (unsigned)kind &&
           handle / HANDLE_STEP - 1 < ashlar__soft_state.handles[kind].count;
}

void *ashlar__soft_handle_get(soft_kind kind, uintptr_t handle) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    return was_given(kind, handle)
               ? ashlar__soft_state.handles[kind].entries[handle / HANDLE_STEP - 1].item
               : NULL;
}

/* Contexts are always recycled: a primary context gets its old handle again, as with CUDA. */
void ashlar__soft_handle_drop(soft_kind kind, size_t idx) {
    soft_handles *table = &ashlar__soft_state.handles[kind];
    ASHLAR_CHECK2(idx < table->count && table->entries[idx].item != NULL);
    table->entries[idx] = (struct soft_handle){.next_free = table->first_free};
    if (ashlar__soft_state.config.recycle == SOFT_RECYCLE_ON || kind == SOFT_CONTEXT) {
        table->first_free = idx + 1;
    }
}

void *ashlar__soft_handle_take(soft_kind kind, uintptr_t handle) {
    void *item = ashlar__soft_handle_get(kind, handle);
    if (item != NULL) {
        ashlar__soft_handle_drop(kind, handle / HANDLE_STEP - 1);
    }
    return item;
}

void *ashlar__soft_handle_find(soft_kind kind, const void *handle) {
    static const char *const names[] = {
        [SOFT_STREAM] = "stream",   [SOFT_EVENT] = "event",
        [SOFT_CONTEXT] = "context", [SOFT_MEMORY] = "memory handle",
        [SOFT_GRAPH] = "graph",     [SOFT_GRAPH_EXEC] = "executable graph",
    };
    ASHLAR_TABLE_IS_FULL(names, SOFT_KINDS_END);
    void *item = ashlar__soft_handle_get(kind, (uintptr_t)handle);
    if (item == NULL) {
        (void)ashlar__soft_undefined(CU_SUCCESS, "%s %#zx %s", names[kind], (size_t)handle,
                                     was_given(kind, (uintptr_t)handle) ? "has been destroyed"
                                                                        : "never existed");
    }
    return item;
}

void *ashlar__soft_handle_end(soft_kind kind, const void *handle) {
    void *item = ashlar__soft_handle_find(kind, handle);
    if (item != NULL) {
        (void)ashlar__soft_handle_take(kind, (uintptr_t)handle);
    }
    return item;
}

/* ---- contexts: one for each device, and each thread's stack of them ---- */

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
    return ashlar__soft_handle_get(SOFT_CONTEXT, (uintptr_t)context);
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
    *device = current;
    return ashlar__soft_go_on(current == NULL ? CU_INVALID_CONTEXT : current->fault);
}

static cu_result begin_context(soft_device *device) {
    SOFT_TRY(ashlar__soft_overhead_take(device, &device->overhead));
    if (!ashlar__soft_handle_put(SOFT_CONTEXT, device, &device->context)) {
        ashlar__soft_memory_drop(device->overhead);
        device->overhead = NULL;
        return CU_OUT_OF_MEMORY;
    }
    return CU_SUCCESS;
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
