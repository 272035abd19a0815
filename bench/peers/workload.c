/* workload.c - records a list of operations: variables, steps, peaks. */
#include "bench/peers/workload.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Make room for one more operation, step and variable. */
static ashlar_status make_room(ashlar_workload *w) {
    static const char message[] = "bench: no host memory for the operations of %s";
    ASHLAR_HOST_GROW(w->ops, &w->capacity, w->count, message, w->name);
    ASHLAR_HOST_GROW(w->variables, &w->variable_capacity, w->variable_count, message, w->name);
    ASHLAR_HOST_GROW(w->steps, &w->step_capacity, w->step_count, message, w->name);
    return ASHLAR_OK;
}

static bool has_room(ashlar_workload *w) {
    w->has_failed = w->has_failed || make_room(w) != ASHLAR_OK;
    return !w->has_failed;
}

static void append(ashlar_workload *w, uint32_t variable, uint32_t bytes) {
    static const uint32_t variable_mask = (1u << ASHLAR_OP_VARIABLE_BITS) - 1;
    static const uint32_t stream_mask = (1u << ASHLAR_OP_STREAM_BITS) - 1;
    const uint32_t stream = w->variables[variable].stream;
    ASHLAR_ASSERT(variable <= variable_mask && stream <= stream_mask);
    w->ops[w->count++] = (ashlar_op){
        .variable = variable & variable_mask, .stream = stream & stream_mask, .bytes = bytes};
}

uint32_t ashlar__workload_take(ashlar_workload *w, uint32_t bytes) {
    return ashlar__workload_take_on(w, bytes, 0);
}

uint32_t ashlar__workload_take_on(ashlar_workload *w, uint32_t bytes, uint32_t stream) {
    ASHLAR_ASSERT(bytes > 0 && stream < w->streams);
    if (!has_room(w)) {
        return 0;
    }
    const uint32_t variable =
        w->free_count > 0 ? w->variables[--w->free_count].free : (uint32_t)w->variable_count++;
    w->variables[variable].taken = bytes;
    w->variables[variable].stream = stream;
    append(w, variable, bytes);
    w->live_bytes += bytes;
    const size_t live = w->variable_count - w->free_count;
    w->live_max = live > w->live_max ? live : w->live_max;
    w->peak_bytes = w->live_bytes > w->peak_bytes ? w->live_bytes : w->peak_bytes;
    return variable;
}

void ashlar__workload_give(ashlar_workload *w, uint32_t variable) {
    if (has_room(w)) {
        ASHLAR_ASSERT(variable < w->variable_count && w->variables[variable].taken != 0);
        append(w, variable, 0);
        w->live_bytes -= w->variables[variable].taken;
        w->variables[variable].taken = 0;
        w->variables[w->free_count++].free = variable;
    }
}

void ashlar__workload_begin_step(ashlar_workload *w) {
    if (has_room(w)) {
        w->steps[w->step_count++] = w->count;
    }
}

void ashlar__workload_begin_body(ashlar_workload *w) {
    w->body_begin = w->count;
}

void ashlar__workload_end_body(ashlar_workload *w) {
    w->body_end = w->count;
}

ashlar_status ashlar__workload_init(ashlar_workload *out, const ashlar_workload_spec *spec,
                                    bool is_smoke) {
    ashlar_workload w = {.name = spec->name,
                         .variant = spec->variant,
                         .kind = spec->kind,
                         .streams = spec->streams != 0 ? spec->streams : 1};
    ASHLAR_ASSERT(w.streams <= (size_t)1 << ASHLAR_OP_STREAM_BITS);
    spec->record(&w, is_smoke && spec->amount_smoke != 0 ? spec->amount_smoke : spec->amount);
    if (w.has_failed) {
        ashlar__workload_finish(&w);
        return ASHLAR_EHOSTMEM; /* make_room() has set the detail */
    }
    ASHLAR_ASSERT(w.live_bytes == 0);
    ashlar__host_free(w.variables);
    w.variables = NULL;
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
    ashlar__host_free(w->variables);
    ashlar__host_free(w->ops);
    ashlar__host_free(w->steps);
    *w = (ashlar_workload){0};
}
