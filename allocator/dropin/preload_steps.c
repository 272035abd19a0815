/* preload_steps.c - the functions of ashlar that a program finds by dlsym(), to have steps. */
#include "allocator/dropin/preload.h"

#include <string.h>

#include <ashlar/plan.h>

/* ashlar_cuda_allocator() of ashlar/cuda_dropin.h. */
static ashlar_allocator *cuda_allocator(int device) {
    ashlar_frees *frees = NULL;
    const bool is_begun = ashlar__preload_begin();
    const bool is_found = ashlar__frees_of(device, &frees) == ASHLAR_OK &&
                          ashlar__frees_tell_ends(frees) == ASHLAR_OK;
    if (is_begun) {
        ashlar__preload_end();
    }
    return is_found ? frees->allocator : NULL;
}

/* Define a function that calls ashlar's `public`, whose driver calls are then known as ours. */
#define OURS(name, public, params, args)               \
    static ashlar_status name params {                 \
        const bool is_begun = ashlar__preload_begin(); \
        const ashlar_status status = public args;      \
        if (is_begun) {                                \
            ashlar__preload_end();                     \
        }                                              \
        return status;                                 \
    }

OURS(step_begin, ashlar_step_begin, (ashlar_allocator * a, ashlar_stream stream, uint64_t key),
     (a, stream, key))
OURS(step_end, ashlar_step_end, (ashlar_allocator * a), (a))
OURS(plan_build, ashlar_plan_build, (ashlar_allocator * a), (a))
OURS(trim, ashlar_allocator_trim, (ashlar_allocator * a, size_t bytes), (a, bytes))

/* ISO C has no cast from a function to void *. */
#define FUNCTION(name) (void (*)(void))(name)

static const struct {
    const char *name;
    void (*function)(void);
} step_functions[] = {
    {"ashlar_cuda_allocator", FUNCTION(cuda_allocator)},
    {"ashlar_step_begin", FUNCTION(step_begin)},
    {"ashlar_step_end", FUNCTION(step_end)},
    {"ashlar_plan_build", FUNCTION(plan_build)},
    {"ashlar_plan_set_options", FUNCTION(ashlar_plan_set_options)},
    {"ashlar_plan_get_stats", FUNCTION(ashlar_plan_get_stats)},
    {"ashlar_allocator_trim", FUNCTION(trim)},
    {"ashlar_allocator_seal", FUNCTION(ashlar_allocator_seal)},
    {"ashlar_allocator_get_stats", FUNCTION(ashlar_allocator_get_stats)},
    {"ashlar_error_detail", FUNCTION(ashlar_error_detail)},
};

void *ashlar__preload_step_function(const char *name) {
    void *address = NULL;
    for (size_t i = 0; i < sizeof step_functions / sizeof step_functions[0]; i++) {
        if (strcmp(step_functions[i].name, name) == 0) {
            memcpy(&address, &step_functions[i].function, sizeof address);
        }
    }
    return address;
}
