/* per_tensor.c - takes an allocation for each of a set of tensors, and makes the lists and tables
 * by which per_tensor_work.c works on them. */
#include "bench/arena/per_tensor.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum { SHUFFLE_SEED = 7, CHUNK_ELEMENTS = 65536 };

const ashlar_arena_list_limits ashlar__list_limits_one = {1, SIZE_MAX, CHUNK_ELEMENTS};
const ashlar_arena_list_limits ashlar__list_limits_36 = {36, 320, CHUNK_ELEMENTS};

void *ashlar__per_tensor_view(const ashlar_per_tensor *t, ashlar_region region, size_t tensor) {
    const ashlar_optimizer_run *run = &t->runs[tensor];
    switch (region) {
    case ASHLAR_REGION_PARAMETERS:
        return run->parameters;
    case ASHLAR_REGION_GRADIENTS:
        return (void *)(uintptr_t)run->gradients;
    case ASHLAR_REGION_MOMENT1:
        return run->moment1;
    case ASHLAR_REGION_MOMENT2:
        return run->moment2;
    default:
        return NULL;
    }
}

#define NO_MEMORY "bench: no host memory for scattered tensors"

static bool has_no_options(const ashlar_tensor_options *o) {
    return !o->is_frozen && !o->has_no_decay && (o->rate_scale <= 0 || o->rate_scale == 1);
}

static ashlar_status check(const ashlar_arena *arena, const ashlar_optimizer_config *config) {
    ASHLAR_FAIL_IF(ashlar__optimizer_algorithm(config) != ASHLAR_ALGORITHM_ADAM, ASHLAR_EINVAL,
                   "bench: scattered tensors know adam and adamw only");
    for (size_t i = 0; i < ashlar_arena_tensor_count(arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        ASHLAR_FAIL_IF(info.dtype != ASHLAR_F32 || !has_no_options(&info.options), ASHLAR_EINVAL,
                       "bench: tensor %s is not fp32, or has options", info.name);
    }
    return ASHLAR_OK;
}

static ashlar_status take_tables(ashlar_per_tensor *t) {
    ASHLAR_HOST_NEW(t->runs, t->count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->pointers, t->count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->replica, t->count, NO_MEMORY);
    return ASHLAR_OK;
}

/* Take a block as large as the tensor, with the values that the tensor has in the arena; moments
 * are zeros, as before the first step. */
static ashlar_status take_tensor(ashlar_per_tensor *t, size_t tensor, ashlar_region region,
                                 void **out) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(t->arena, tensor, &info);
    const bool is_moment = region == ASHLAR_REGION_MOMENT1 || region == ASHLAR_REGION_MOMENT2;
    ASHLAR_TRY(ashlar_alloc(t->allocator, info.bytes, t->stream, out));
    return is_moment ? ashlar_fill(t->device, *out, 0, info.bytes, t->stream)
                     : ashlar_copy(t->device, *out, ashlar_arena_view(t->arena, region, tensor),
                                   info.bytes, t->stream);
}

static ashlar_status take_tensors(ashlar_per_tensor *t, size_t tensor) {
    ashlar_optimizer_run *run = &t->runs[tensor];
    void *gradients = NULL;
    ashlar_tensor_info info;
    ashlar_arena_tensor(t->arena, tensor, &info);
    run->elements = info.elements;
    run->rate_scale = 1;
    run->dtype = ASHLAR_F32;
    run->is_decayed = true;
    ASHLAR_TRY(take_tensor(t, tensor, ASHLAR_REGION_PARAMETERS, &run->parameters));
    const ashlar_status status = take_tensor(t, tensor, ASHLAR_REGION_GRADIENTS, &gradients);
    run->gradients = gradients; /* even after a failure, so that it is freed */
    ASHLAR_TRY(status);
    ASHLAR_TRY(take_tensor(t, tensor, ASHLAR_REGION_MOMENT1, &run->moment1));
    return take_tensor(t, tensor, ASHLAR_REGION_MOMENT2, &run->moment2);
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
        ASHLAR_THEN(status, take_tensors(t, order[i]));
    }
    ashlar__host_free(order);
    return status;
}

static ashlar_status split_lists(ashlar_per_tensor *t, const ashlar_arena_list_limits *limits) {
    t->list_count = ashlar__arena_lists_split(t->runs, t->count, limits, NULL);
    ASHLAR_HOST_NEW(t->lists, t->list_count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->jobs, t->list_count, NO_MEMORY);
    (void)ashlar__arena_lists_split(t->runs, t->count, limits, t->lists);
    for (size_t l = 0; l < t->list_count; l++) {
        t->span_count += t->lists[l].count;
    }
    return ASHLAR_OK;
}

static void fill_span(const ashlar_per_tensor *t, size_t tensor, size_t begin, size_t end,
                      size_t span) {
    const ashlar_optimizer_run *run = &t->runs[tensor];
    const size_t offset = begin * sizeof(float), bytes = (end - begin) * sizeof(float);
    char *place = ashlar_arena_view(t->arena, ASHLAR_REGION_PARAMETERS, tensor);
    const char *source = (const char *)run->parameters + offset;
    t->gradients[span] =
        (ashlar_copy_span){.dst = (char *)(uintptr_t)run->gradients + offset, .bytes = bytes};
    t->gathers[span] = (ashlar_copy_span){.dst = place + offset, .src = source, .bytes = bytes};
    t->copies[span] = (ashlar_copy_span){.src = source, .bytes = bytes};
}

static ashlar_status list_spans(ashlar_per_tensor *t) {
    ASHLAR_HOST_NEW(t->gradients, t->span_count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->gathers, t->span_count, NO_MEMORY);
    ASHLAR_HOST_NEW(t->copies, t->span_count, NO_MEMORY);
    for (size_t l = 0, span = 0; l < t->list_count; l++) {
        for (size_t i = 0; i < t->lists[l].count; i++, span++) {
            size_t begin, end;
            ashlar__arena_list_piece(&t->lists[l], t->runs, i, &begin, &end);
            fill_span(t, t->lists[l].first + i, begin, end, span);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status take_block(ashlar_per_tensor *t) {
    const size_t chunks = ashlar__optimizer_number(t->runs, t->count);
    const size_t run_bytes = t->count * sizeof *t->runs;
    const size_t scalar_count = 1 + t->list_count;
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
    for (size_t l = 0; l < t->list_count; l++) {
        t->jobs[l] = (ashlar_optimizer_job){.rule = t->rule, .partials = partials};
        ashlar__arena_list_cover(&t->lists[l], t->runs, runs, &t->jobs[l]);
    }
    ASHLAR_TRY(ashlar_copy_to_device(t->device, t->scalars, &scalars, sizeof scalars, t->stream));
    return ashlar_copy_to_device(t->device, runs, t->runs, run_bytes, t->stream);
}

static ashlar_status build(ashlar_per_tensor *t, const ashlar_arena_list_limits *limits) {
    ASHLAR_TRY(take_tables(t));
    ASHLAR_TRY(take_all(t));
    ASHLAR_TRY(split_lists(t, limits));
    ASHLAR_TRY(list_spans(t));
    ASHLAR_TRY(take_block(t));
    ashlar__per_tensor_scatter(t);
    return ASHLAR_OK;
}

ashlar_status ashlar__per_tensor_create(const ashlar_arena *arena,
                                        const ashlar_optimizer_config *config,
                                        const ashlar_arena_list_limits *limits,
                                        ashlar_stream stream, ashlar_per_tensor **out) {
    ASHLAR_TRY(check(arena, config));
    ashlar_per_tensor *t;
    ASHLAR_HOST_NEW(t, 1, NO_MEMORY);
    t->arena = arena;
    t->allocator = ashlar_arena_allocator(arena);
    t->device = ashlar_allocator_device(t->allocator);
    t->stream = stream;
    t->is_single = limits->tensors == 1;
    t->rule = (ashlar_optimizer_rule){ashlar__optimizer_algorithm(config), *config};
    t->count = ashlar_arena_tensor_count(arena);
    ASHLAR_HAND_OUT(build(t, limits), t, ashlar__per_tensor_destroy, out);
}

static void give(const ashlar_per_tensor *t, void *block) {
    if (block != NULL) {
        ASHLAR_IGNORE(ashlar_free(t->allocator, block)); /* cannot fail: the block was taken here */
    }
}

void ashlar__per_tensor_destroy(ashlar_per_tensor *t) {
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; t->runs != NULL && i < t->count; i++) {
        for (unsigned r = 0; r < ASHLAR_REGION_COUNT; r++) {
            give(t, ashlar__per_tensor_view(t, (ashlar_region)r, i));
        }
    }
    ashlar__per_tensor_drop_replica(t);
    give(t, t->scalars);
    ashlar__host_free(t->runs);
    ashlar__host_free((void *)t->pointers);
    ashlar__host_free((void *)t->replica);
    ashlar__host_free(t->lists);
    ashlar__host_free(t->jobs);
    ashlar__host_free(t->gradients);
    ashlar__host_free(t->gathers);
    ashlar__host_free(t->copies);
    ashlar__host_free(t);
}

void ashlar__per_tensor_drop_replica(ashlar_per_tensor *t) {
    for (size_t i = 0; t->replica != NULL && i < t->count; i++) {
        give(t, t->replica[i]);
        t->replica[i] = NULL;
    }
}
