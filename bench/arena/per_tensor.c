/* per_tensor.c - takes an allocation for each tensor of a set, and works on them one by one. */
#include "bench/arena/bench_arena.h"

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/soft/soft.h"

enum { SHUFFLE_SEED = 7 };

#define NO_MEMORY "bench: no host memory for scattered tensors"

/* Take a block as large as the tensor, with the values that the tensor has in the arena. */
static ashlar_status take_copy(ashlar_per_tensor *t, size_t tensor, ashlar_region region,
                               void **out) {
    const size_t bytes = t->runs[tensor].elements * sizeof(float);
    ASHLAR_TRY(ashlar_alloc(t->allocator, bytes, t->stream, out));
    return ashlar_copy(t->device, *out, ashlar_arena_view(t->arena, region, tensor), bytes,
                       t->stream);
}

static ashlar_status take_zeros(ashlar_per_tensor *t, size_t tensor, void **out) {
    const size_t bytes = t->runs[tensor].elements * sizeof(float);
    ASHLAR_TRY(ashlar_alloc(t->allocator, bytes, t->stream, out));
    return ashlar_fill(t->device, *out, 0, bytes, t->stream);
}

static ashlar_status take_tensor(ashlar_per_tensor *t, size_t tensor) {
    ashlar_optimizer_run *run = &t->runs[tensor];
    void *gradients = NULL;
    ASHLAR_TRY(take_copy(t, tensor, ASHLAR_REGION_PARAMETERS, &run->parameters));
    const ashlar_status status = take_copy(t, tensor, ASHLAR_REGION_GRADIENTS, &gradients);
    run->gradients = gradients; /* even after a failure, so that it is freed */
    ASHLAR_TRY(status);
    ASHLAR_TRY(take_zeros(t, tensor, &run->moment1));
    return take_zeros(t, tensor, &run->moment2);
}

static ashlar_status take_all(ashlar_per_tensor *t) {
    ashlar_random random;
    size_t *order;
    ASHLAR_HOST_NEW(order, t->count, NO_MEMORY);
    ashlar__random_init(&random, SHUFFLE_SEED);
    for (size_t i = 0; i < t->count; i++) {
        const size_t j = (size_t)ashlar__random_below(&random, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < t->count; i++) {
        ASHLAR_THEN(status, take_tensor(t, order[i]));
    }
    ashlar__host_free(order);
    return status;
}

static ashlar_status list_runs(ashlar_per_tensor *t) {
    ASHLAR_HOST_NEW(t->runs, t->count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->jobs, t->count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->pointers, t->count, NO_MEMORY);
    for (size_t i = 0; i < t->count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(t->arena, i, &info);
        t->runs[i] = (ashlar_optimizer_run){
            .elements = info.elements, .rate_scale = 1, .dtype = ASHLAR_F32, .decay_scale = 1};
    }
    return ASHLAR_OK;
}

static ashlar_status take_block(ashlar_per_tensor *t) {
    const size_t chunks = ashlar__optimizer_number(t->runs, t->count);
    const size_t run_bytes = t->count * sizeof *t->runs, scalar_count = 1 + t->count;
    const ashlar_optimizer_scalars scalars = {
        .state = {.loss_scale = 1}, .factor = 1, .bias1 = 1, .bias2 = 1};
    void *block = NULL;
    ASHLAR_TRY(ashlar_alloc(t->allocator,
                            scalar_count * sizeof scalars + run_bytes + chunks * sizeof(double),
                            t->stream, &block));
    t->scalars = block;
    t->sums = t->scalars + 1;
    ashlar_optimizer_run *runs = (ashlar_optimizer_run *)(void *)(t->scalars + scalar_count);
    double *partials = (double *)(void *)((char *)runs + run_bytes);
    for (size_t i = 0; i < t->count; i++) {
        t->jobs[i] = (ashlar_optimizer_job){.rule = t->rule, .partials = partials};
        ashlar__optimizer_cover(&t->jobs[i], &t->runs[i], 1);
        t->jobs[i].runs = &runs[i];
    }
    ASHLAR_TRY(ashlar_copy_to_device(t->device, t->scalars, &scalars, sizeof scalars, t->stream));
    return ashlar_copy_to_device(t->device, runs, t->runs, run_bytes, t->stream);
}

static ashlar_status build(ashlar_per_tensor *t) {
    ASHLAR_TRY(list_runs(t));
    ASHLAR_TRY(take_all(t));
    ASHLAR_TRY(take_block(t));
    ashlar__per_tensor_scatter(t);
    return ASHLAR_OK;
}

ashlar_status ashlar__per_tensor_create(const ashlar_arena *arena,
                                        const ashlar_optimizer_config *config, ashlar_stream stream,
                                        ashlar_per_tensor **out) {
    ashlar_per_tensor *t;
    ASHLAR_HOST_NEW(t, 1, NO_MEMORY);
    t->arena = arena;
    t->allocator = ashlar_arena_get_info(arena).allocator;
    t->device = ashlar_allocator_device(t->allocator);
    t->stream = stream;
    t->rule = (ashlar_optimizer_rule){ashlar__optimizer_algorithm(config), *config};
    t->count = ashlar_arena_get_info(arena).tensor_count;
    ASHLAR_HAND_OUT(build(t), t, ashlar__per_tensor_destroy, out);
}

static void give(const ashlar_per_tensor *t, const void *block) {
    if (block != NULL) { /* cannot fail: the block was taken here */
        ASHLAR_IGNORE(ashlar_free(t->allocator, (void *)(uintptr_t)block));
    }
}

void ashlar__per_tensor_destroy(ashlar_per_tensor *t) {
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; t->runs != NULL && i < t->count; i++) {
        give(t, t->runs[i].parameters);
        give(t, t->runs[i].gradients);
        give(t, t->runs[i].moment1);
        give(t, t->runs[i].moment2);
    }
    give(t, t->scalars);
    ashlar__host_free(t->runs);
    ashlar__host_free(t->jobs);
    ashlar__host_free((void *)t->pointers);
    ashlar__host_free(t);
}

/* ---- work ---- */

static ashlar_status launch(const ashlar_per_tensor *t, const ashlar_optimizer_job *job,
                            const char *name) {
    ashlar__soft_name(name);
    return ashlar_launch(t->device, t->stream, ashlar__optimizer_cpu_run, job, sizeof *job);
}

static ashlar_status launch_each(ashlar_per_tensor *t, unsigned pass, double learning_rate) {
    for (size_t i = 0; i < t->count; i++) {
        ashlar_optimizer_job *job = &t->jobs[i];
        job->passes = pass;
        job->scalars = pass == ASHLAR_OPTIMIZER_SUM ? &t->sums[i] : t->scalars;
        job->learning_rate = learning_rate;
        ASHLAR_TRY(launch(t, job, pass == ASHLAR_OPTIMIZER_SUM ? "norm" : "update"));
    }
    return ASHLAR_OK;
}

typedef struct addition {
    ashlar_optimizer_scalars *total;
    ashlar_optimizer_scalars *sums;
    size_t count;
} addition;

static void add_up(void *args) {
    const addition *a = args;
    double sum = 0;
    for (size_t i = 0; i < a->count; i++) {
        sum += a->sums[i].sum;
        a->sums[i].sum_count = 0; /* so that the next norm's sums begin at 0 */
    }
    a->total->sum = sum;
}

ashlar_status ashlar__per_tensor_norm(ashlar_per_tensor *t) {
    const addition all = {.total = t->scalars, .sums = t->sums, .count = t->count};
    ASHLAR_TRY(launch_each(t, ASHLAR_OPTIMIZER_SUM, 0));
    ashlar__soft_name("add_up");
    return ashlar_launch(t->device, t->stream, add_up, &all, sizeof all);
}

ashlar_status ashlar__per_tensor_step(ashlar_per_tensor *t, double learning_rate) {
    const ashlar_optimizer_job decide = {.rule = t->rule,
                                         .passes = ASHLAR_OPTIMIZER_DECIDE,
                                         .scalars = t->scalars,
                                         .gradient_scale = 1};
    ASHLAR_TRY(ashlar__per_tensor_norm(t));
    ASHLAR_TRY(launch(t, &decide, "clip"));
    return launch_each(t, ASHLAR_OPTIMIZER_UPDATE, learning_rate);
}

ashlar_status ashlar__per_tensor_zero(ashlar_per_tensor *t) {
    for (size_t i = 0; i < t->count; i++) {
        ASHLAR_TRY(ashlar_fill(t->device, (void *)(uintptr_t)t->runs[i].gradients, 0,
                               t->runs[i].elements * sizeof(float), t->stream));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__per_tensor_flatten(ashlar_per_tensor *t) {
    for (size_t i = 0; i < t->count; i++) {
        ASHLAR_TRY(ashlar_copy(t->device, ashlar_arena_view(t->arena, ASHLAR_REGION_PARAMETERS, i),
                               t->runs[i].parameters, t->runs[i].elements * sizeof(float),
                               t->stream));
    }
    for (size_t i = 0; i < t->count; i++) {
        t->pointers[i] = ashlar_arena_view(t->arena, ASHLAR_REGION_PARAMETERS, i);
    }
    return ASHLAR_OK;
}

void ashlar__per_tensor_scatter(ashlar_per_tensor *t) {
    for (size_t i = 0; i < t->count; i++) {
        t->pointers[i] = t->runs[i].parameters;
    }
}
