/* workload.c - records a list of operations: variables, steps, peaks. */
#include "bench/peers/workload.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

static void append(ashlar_workload *w, ashlar_op op) {
    void *ops = w->ops;
    if (!ashlar__host_grow(&ops, &w->capacity, w->count, sizeof w->ops[0])) {
        w->has_failed = true;
        return;
    }
    w->ops = ops;
    w->ops[w->count++] = op;
}

/* Add a variable, with room for it in `taken` and in `free_variables`. */
static uint32_t new_variable(ashlar_workload *w) {
    void *taken = w->taken, *free_variables = w->free_variables;
    size_t capacity = w->variable_capacity;
    if (!ashlar__host_grow(&taken, &capacity, w->variable_count, sizeof w->taken[0])) {
        w->has_failed = true;
        return 0;
    }
    w->taken = taken;
    /* As much room as in `taken`, since every variable may become free. */
    if (!ashlar__host_grow(&free_variables, &w->variable_capacity, w->variable_count,
                           sizeof w->free_variables[0])) {
        w->has_failed = true;
        return 0;
    }
    w->free_variables = free_variables;
    ASHLAR_ASSERT(capacity == w->variable_capacity);
    return (uint32_t)w->variable_count++;
}

uint32_t ashlar__workload_take(ashlar_workload *w, uint32_t bytes) {
    ASHLAR_ASSERT(bytes > 0);
    if (w->has_failed) {
        return 0;
    }
    const uint32_t variable =
        w->free_count > 0 ? w->free_variables[--w->free_count] : new_variable(w);
    append(w, (ashlar_op){variable, bytes});
    if (w->has_failed) {
        return 0;
    }
    w->taken[variable] = bytes;
    w->live_bytes += bytes;
    const size_t live = w->variable_count - w->free_count;
    w->live_max = live > w->live_max ? live : w->live_max;
    w->peak_bytes = w->live_bytes > w->peak_bytes ? w->live_bytes : w->peak_bytes;
    return variable;
}

void ashlar__workload_give(ashlar_workload *w, uint32_t variable) {
    if (w->has_failed) {
        return;
    }
    ASHLAR_ASSERT(variable < w->variable_count && w->taken[variable] != 0);
    append(w, (ashlar_op){variable, 0});
    if (!w->has_failed) {
        w->live_bytes -= w->taken[variable];
        w->taken[variable] = 0;
        w->free_variables[w->free_count++] = variable;
    }
}

void ashlar__workload_begin_step(ashlar_workload *w) {
    void *steps = w->steps;
    if (!ashlar__host_grow(&steps, &w->step_capacity, w->step_count, sizeof w->steps[0])) {
        w->has_failed = true;
        return;
    }
    w->steps = steps;
    w->steps[w->step_count++] = w->count;
}

void ashlar__workload_begin_body(ashlar_workload *w) {
    w->body_begin = w->count;
}

void ashlar__workload_end_body(ashlar_workload *w) {
    w->body_end = w->count;
}

/* Free the arrays that only the recording needs. */
static void drop_variables(ashlar_workload *w) {
    ashlar__host_free(w->taken);
    ashlar__host_free(w->free_variables);
    w->taken = NULL;
    w->free_variables = NULL;
}

ashlar_status ashlar__workload_init(ashlar_workload *out, const ashlar_workload_spec *spec) {
    ashlar_workload w = {.name = spec->name, .variant = spec->variant};
    spec->record(&w, spec->bytes);
    if (w.has_failed) {
        ashlar__workload_finish(&w);
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for the operations of %s",
                            spec->name);
    }
    ASHLAR_ASSERT(w.live_bytes == 0);
    drop_variables(&w);
    if (w.body_end == 0) {
        w.body_end = w.count;
    }
    ASHLAR_CHECK2(w.body_begin < w.body_end && w.body_end <= w.count);
    ASHLAR_CHECK2((w.body_end - w.body_begin) % 2 == 0); /* a give for each take */
    w.body_pairs = (w.body_end - w.body_begin) / 2;
    *out = w;
    return ASHLAR_OK;
}

size_t ashlar__workload_body_steps(const ashlar_workload *w) {
    size_t count = 0;
    for (size_t i = 0; i < w->step_count; i++) {
        count += w->steps[i] >= w->body_begin && w->steps[i] < w->body_end;
    }
    return count;
}

void ashlar__workload_finish(ashlar_workload *w) {
    drop_variables(w);
    ashlar__host_free(w->ops);
    ashlar__host_free(w->steps);
    *w = (ashlar_workload){0};
}
