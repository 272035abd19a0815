/* soft_strict.c - the software device's strict mode (strict=on): ends the process on undefined
 * behaviour, such as freeing memory that queued work uses. */
#include "allocator/soft/soft_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

static const char *name_of(soft_kind kind) {
    switch (kind) {
    case SOFT_STREAM:
        return "stream";
    case SOFT_EVENT:
        return "event";
    case SOFT_CONTEXT: /* CUDA has an error for these */
        return "context";
    case SOFT_MEMORY:
        return "memory handle";
    case SOFT_GRAPH:
        return "graph";
    case SOFT_GRAPH_EXEC:
        break;
    }
    return "executable graph";
}

cu_result ashlar__soft_undefined_handle(cu_result result, const soft_handles *handles,
                                        soft_kind kind, uintptr_t handle) {
    return ashlar__soft_undefined(
        result, "%s %#zx %s", name_of(kind), (size_t)handle,
        ashlar__soft_handles_had(handles, kind, handle) ? "has been destroyed" : "never existed");
}

static bool overlaps(const soft_operand *operand, size_t op_bytes, uintptr_t base, size_t bytes) {
    const uintptr_t from = (uintptr_t)operand->ptr;
    return operand->ptr != NULL && operand->place != SOFT_PLACE_PAGEABLE && from < base + bytes &&
           base < from + op_bytes;
}

void ashlar__soft_strict_let_go(uintptr_t base, size_t bytes) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    static const soft_clock nothing;
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
    if (!ashlar__soft_time_is_past(ashlar__soft_busy_ns(base, bytes))) {
        (void)ashlar__soft_undefined(
            CU_SUCCESS, "%zu bytes at %#zx are in use on the virtual clock", bytes, (size_t)base);
    }
    if (ashlar__soft_state.config.has_clocks && !ashlar__soft_state.oracle.is_lost &&
        !ashlar__soft_oracle_is_ordered(base, base + bytes, &nothing)) {
        (void)ashlar__soft_undefined(CU_SUCCESS,
                                     "%zu bytes at %#zx have a use that the host has not seen "
                                     "finished",
                                     bytes, (size_t)base);
    }
}
