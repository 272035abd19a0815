/* optimizer.c - the optimizer of an arena: its device memory, its checks and its launches. */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"
#include "arena/optimizer/optimizer_staging.h"
#include "arena/compute/element.h"
#include "arena/compute/workers.h"

/* One block of device memory holds the scalars, the histories, the runs, MUON's matrices, the
 * partials and MUON's products, in that order, with room for each tensor as a run of its own. */
struct ashlar_optimizer {
    ashlar_arena *arena;
    ashlar_device *device;
    ashlar_optimizer_rule rule;
    ashlar_optimizer_table table;
    ashlar_optimizer_cuda *cuda;         /* NULL on a software device */
    ashlar_optimizer_staging staging;
    ashlar_optimizer_scalars *scalars;   /* start of the block; what follows points into it */
    ashlar_optimizer_history *histories; /* [tensors of the arena] */
    ashlar_optimizer_run *runs;          /* [tensors], of which table.count are used */
    ashlar_optimizer_matrix
        *matrices; /* [tensors] for MUON, of which table.matrix_count are used */
    double *partials;
    void *products;        /* [products_bytes] */
    size_t products_bytes; /* at least table.products_bytes */
    size_t bytes;          /* of the block */
    uint64_t options; /* the table is that of so many changes of the arena's options */
};

static bool is_scaled(const ashlar_optimizer *o) {
    return o->rule.config.loss_scale > 0;
}

/* ---- its memory ---- */

/* Check what can be checked before anything is taken; then add the regions that the arena lacks. */
static ashlar_status complete_arena(ashlar_arena *arena, const ashlar_optimizer_config *config,
                                    ashlar_stream stream) {
    ASHLAR_FAIL_IF(arena->allocator == NULL, ASHLAR_EINVAL,
                   "optimizer: the arena is not committed");
    ASHLAR_TRY(ashlar__workers_check());
    ASHLAR_TRY(ashlar__instruction_set_check());
    const unsigned regions = ashlar__optimizer_regions(config);
    const unsigned kept = ASHLAR_REGIONS_INFERENCE | ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS);
    ASHLAR_TRY(config->state_on_host ? ashlar__arena_extend_on_host(arena, stream, regions & ~kept)
                                     : ASHLAR_OK);
    return ashlar_arena_extend(arena, stream, regions);
}

/* No sum here can overflow: the host holds a copy of the runs, and the arena a chunk's elements,
 * which take more memory than its partial sum. A further run ends at most one chunk early. Products
 * take at most 64 MiB, or six times as much as a matrix of the arena. */
static ashlar_status take_block(ashlar_optimizer *o, ashlar_stream stream) {
    void *block = NULL;
    const size_t tensors = o->arena->tensor_count;
    const size_t matrices = o->table.matrices != NULL ? tensors : 0;
    const size_t listed = sizeof *o->scalars + tensors * (sizeof *o->histories + sizeof *o->runs) +
                          matrices * sizeof *o->matrices +
                          (o->table.chunk_count + tensors) * sizeof *o->partials;
    const size_t products = ashlar__round_up(listed, ASHLAR_ARENA_ALIGN);
    o->products_bytes = o->table.products_bytes;
    o->bytes = o->products_bytes > 0 ? products + o->products_bytes : listed;
    const ashlar_status status =
        ashlar_alloc_tagged(o->arena->allocator, o->bytes, ASHLAR_TAG_MOMENTS, stream, &block);
    if (status == ASHLAR_OK) {
        o->scalars = block;
        o->histories = (ashlar_optimizer_history *)(void *)(o->scalars + 1);
        o->runs = (ashlar_optimizer_run *)(void *)(o->histories + tensors);
        o->matrices = (ashlar_optimizer_matrix *)(void *)(o->runs + tensors);
        o->partials = (double *)(void *)(o->matrices + matrices);
        o->products = (char *)block + products;
        ASHLAR_CHECK2((uintptr_t)o->runs % _Alignof(ashlar_optimizer_run) == 0);
        ASHLAR_CHECK2((uintptr_t)o->partials % _Alignof(double) == 0);
    }
    return status;
}

/* As if no tensor had been updated, or missed a step. */
static ashlar_status clear_histories(const ashlar_optimizer *o, ashlar_stream stream) {
    return ashlar_fill(o->device, o->histories, 0, o->arena->tensor_count * sizeof *o->histories,
                       stream);
}

/* Write the state before the first step. */
static ashlar_status fill_block(ashlar_optimizer *o, ashlar_stream stream) {
    ashlar_optimizer_scalars scalars = {.factor = 1, .bias1 = 1, .bias2 = 1};
    scalars.state.loss_scale = is_scaled(o) ? o->rule.config.loss_scale : 1;
    ASHLAR_TRY(ashlar_copy_to_device(o->device, o->scalars, &scalars, sizeof scalars, stream));
    return clear_histories(o, stream);
}

/* ---- launches ---- */

static ashlar_optimizer_job begin_job(const ashlar_optimizer *o, unsigned passes) {
    return (ashlar_optimizer_job){.rule = o->rule,
                                  .passes = passes,
                                  .scalars = o->scalars,
                                  .histories = o->histories,
                                  .history_count = o->arena->tensor_count,
                                  .shape = o->table.shape,
                                  .partials = o->partials,
                                  .matrices = o->matrices,
                                  .matrix_count = o->table.matrix_count,
                                  .products = o->products,
                                  .gradient_scale = 1};
}

static ashlar_status launch(const ashlar_optimizer *o, const ashlar_optimizer_job *job,
                            ashlar_stream stream) {
    ASHLAR_CHECK2(job->first_chunk <= job->end_chunk && job->end_chunk <= o->table.chunk_count);
    if (o->cuda != NULL) {
        return ashlar__optimizer_cuda_run(o->cuda, &o->table, job, stream);
    }
    ashlar_operand operands[ASHLAR_REGION_COUNT + 3] = {
        {"scalars", o->scalars, o->bytes, true},
        {"rate_at", job->rate_at, sizeof *job->rate_at, false}};
    for (unsigned i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const ashlar_region region = (ashlar_region)i;
        operands[i + 2] = (ashlar_operand){
            ashlar__region_text(region), ashlar_arena_region(o->arena, region),
            ashlar__arena_owns(o->arena, region) ? ashlar__arena_region_bytes(o->arena, region)
                                                 : 0, /* the lender knows what the device can use */
            false};
    }
    ASHLAR_TRY(ashlar__check_operands(o->device, "ashlar_optimizer_step", operands));
    ashlar__soft_name("optimizer_step");
    return ashlar_launch(o->device, stream, ashlar__optimizer_cpu_run, job, sizeof *job);
}

/* ---- the table in device memory ---- */

static void select_all(const ashlar_optimizer *o, ashlar_optimizer_job *job) {
    ashlar__optimizer_table_select(
        &o->table, o->runs, 0, ashlar__arena_region_bytes(o->arena, ASHLAR_REGION_PARAMETERS), job);
}

static ashlar_status put_table(const ashlar_optimizer *o, ashlar_stream stream) {
    ashlar_optimizer_job job = begin_job(o, ASHLAR_OPTIMIZER_FOLLOW);
    ASHLAR_TRY(ashlar_copy_to_device(o->device, o->runs, o->table.runs,
                                     o->table.count * sizeof *o->runs, stream));
    if (o->table.matrix_count > 0) {
        ASHLAR_TRY(ashlar_copy_to_device(o->device, o->matrices, o->table.matrices,
                                         o->table.matrix_count * sizeof *o->matrices, stream));
    }
    select_all(o, &job);
    return launch(o, &job, stream);
}

ashlar_status ashlar_optimizer_follow(ashlar_optimizer *o, ashlar_stream stream) {
    const uint64_t changes = o->arena->option_changes;
    if (o->options == changes) {
        return ASHLAR_OK;
    }
    ashlar_optimizer_table next, gone = o->table;
    bool is_capturing;
    ASHLAR_TRY(ashlar__device_is_capturing(o->device, stream, &is_capturing));
    ASHLAR_FAIL_IF(is_capturing, ASHLAR_EINVAL,
                   "optimizer: options of tensors have changed; call ashlar_optimizer_follow() "
                   "before the capture");
    ASHLAR_TRY(ashlar__optimizer_table_init(&next, o->arena, &o->rule));
    if (next.products_bytes > o->products_bytes) {
        const size_t bytes = next.products_bytes;
        ashlar__optimizer_table_finish(&next);
        return ashlar__fail(ASHLAR_EINVAL,
                            "optimizer muon: products of %zu bytes, with room for %zu; take "
                            "is_elementwise from matrices before the optimizer is made",
                            bytes, o->products_bytes);
    }
    o->table = next;
    ashlar__optimizer_table_finish(&gone);
    ASHLAR_TRY(put_table(o, stream));
    o->options = changes;
    return ASHLAR_OK;
}

/* ---- create and destroy ---- */

static ashlar_status open_device(ashlar_optimizer *o) {
    const ashlar_device_info info = ashlar_device_get_info(o->device);
    return info.kind == ASHLAR_DEVICE_CUDA ? ashlar__optimizer_cuda_open(o->device, &o->cuda)
                                           : ASHLAR_OK;
}

static ashlar_status build(ashlar_optimizer *o, ashlar_stream stream) {
    ASHLAR_TRY(ashlar__optimizer_table_init(&o->table, o->arena, &o->rule));
    o->options = o->arena->option_changes;
    ASHLAR_TRY(open_device(o));
    ASHLAR_TRY(take_block(o, stream));
    ASHLAR_TRY(ashlar__optimizer_staging_open(&o->staging, o->arena, &o->rule, stream));
    ASHLAR_TRY(fill_block(o, stream));
    return put_table(o, stream);
}

ashlar_status ashlar_optimizer_create(ashlar_arena *arena, const ashlar_optimizer_config *given,
                                      ashlar_stream stream, ashlar_optimizer **out) {
    ashlar_optimizer_config config;
    ASHLAR_TRY(ashlar__optimizer_take(&config, given));
    ASHLAR_TRY(complete_arena(arena, &config, stream));
    ashlar_optimizer *o;
    ASHLAR_HOST_NEW(o, 1, "no host memory for an optimizer");
    o->arena = arena;
    o->device = ashlar_allocator_device(arena->allocator);
    o->rule = (ashlar_optimizer_rule){.algorithm = ashlar__optimizer_algorithm(&config),
                                      .config = config};
    ASHLAR_HAND_OUT(build(o, stream), o, ashlar_optimizer_destroy, out);
}

void ashlar_optimizer_destroy(ashlar_optimizer *o) {
    if (o == NULL) {
        return;
    }
    if (o->scalars != NULL) {
        /* This fails only if somebody else has freed the block, so it is gone in any case. */
        const ashlar_status status = ashlar_free(o->arena->allocator, o->scalars);
        (void)status;
    }
    ashlar__optimizer_staging_close(&o->staging, o->arena->allocator);
    ashlar__optimizer_cuda_close(o->cuda);
    ashlar__optimizer_table_finish(&o->table);
    ashlar__host_free(o);
}

/* ---- steps ---- */

/* A step's factors must be finite in fp32: an infinite one would make padding, which is 0, NaN. */
static ashlar_status check_rate(const ashlar_optimizer *o, double learning_rate) {
    const ashlar_optimizer_config *config = &o->rule.config;
    const double most = learning_rate * o->table.largest_scale;
    const double corrected =
        o->rule.algorithm == ASHLAR_ALGORITHM_ADAM ? most / (1 - config->beta1) : most;
    const double decay = o->table.largest_decay * config->weight_decay;
    const bool is_fine = learning_rate >= 0 && corrected <= (double)FLT_MAX &&
                         decay <= (double)FLT_MAX && most * decay <= (double)FLT_MAX;
    return is_fine ? ASHLAR_OK
                   : ashlar__fail(ASHLAR_EINVAL,
                                  "optimizer: learning_rate %g; give 0 or more, that fp32 can hold "
                                  "also after scales, weight decay and bias correction",
                                  learning_rate);
}

static ashlar_status check_gradient_scale(double scale) {
    return scale > 0 && scale <= (double)FLT_MAX
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL,
                              "optimizer: gradient_scale %g; give a number above 0 that fp32 can "
                              "hold",
                              scale);
}

static ashlar_status check_range(const ashlar_optimizer *o, size_t offset, size_t bytes) {
    const size_t all = ashlar__arena_region_bytes(o->arena, ASHLAR_REGION_PARAMETERS);
    if (offset % ASHLAR_ARENA_ALIGN != 0 || bytes % ASHLAR_ARENA_ALIGN != 0 || offset > all ||
        bytes > all - offset) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "optimizer: %zu bytes at offset %zu; give multiples of %d inside the "
                            "arena's %zu bytes",
                            bytes, offset, ASHLAR_ARENA_ALIGN, all);
    }
    return ASHLAR_OK;
}

/* MUON needs whole matrices: a job may not begin or end within one. */
static ashlar_status check_matrices(const ashlar_optimizer *o, const ashlar_optimizer_job *job) {
    for (size_t i = 0; i < 2 && job->matrix_dtypes != 0; i++) {
        const ashlar_optimizer_run *run = &o->table.runs[job->first_run + i * (job->run_count - 1)];
        const bool is_cut = i == 0 ? job->first > 0 : job->end < run->elements;
        ASHLAR_FAIL_IF(run->is_matrix && is_cut, ASHLAR_EINVAL,
                       "optimizer muon: a range that cuts matrix %s; give ranges of whole tensors",
                       o->arena->tensors[run->tensor].info.name);
    }
    return ASHLAR_OK;
}

/* Launch a job; if a part of the state lies on the host, its UPDATE by itself. */
static ashlar_status run(ashlar_optimizer *o, ashlar_optimizer_job *job,
                         const ashlar_optimizer_call *call, ashlar_stream stream) {
    if (o->staging.regions == 0 || (job->passes & ASHLAR_OPTIMIZER_UPDATE) == 0) {
        return launch(o, job, stream);
    }
    job->passes &= ~(unsigned)ASHLAR_OPTIMIZER_UPDATE;
    ASHLAR_TRY(job->passes == 0 ? ASHLAR_OK : launch(o, job, stream));
    job->passes = ASHLAR_OPTIMIZER_UPDATE;
    return ashlar__optimizer_staging_run(&o->staging, &o->table, o->runs, job, call->offset,
                                         call->bytes, launch, o, stream);
}

ashlar_status ashlar_optimizer_step_with(ashlar_optimizer *o, const ashlar_optimizer_call *given,
                                         ashlar_stream stream) {
    const unsigned all = ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE;
    ashlar_optimizer_call call = ASHLAR_OR_ZERO(ashlar_optimizer_call, given);
    if (call.parts == 0) {
        call.parts = all;
        call.offset = 0;
        call.bytes = ashlar__arena_region_bytes(o->arena, ASHLAR_REGION_PARAMETERS);
    }
    ASHLAR_FAIL_IF(call.parts > all, ASHLAR_EINVAL,
                   "optimizer: parts %u; give a set of ASHLAR_OPTIMIZER_SUM, _DECIDE and _UPDATE",
                   call.parts);
    ashlar_optimizer_job job = begin_job(o, call.parts);
    if ((call.parts & ASHLAR_OPTIMIZER_DECIDE) != 0) {
        ASHLAR_TRY(check_gradient_scale(call.gradient_scale));
        job.gradient_scale = call.gradient_scale;
    }
    if (call.parts == ASHLAR_OPTIMIZER_DECIDE) {
        return launch(o, &job, stream);
    }
    ASHLAR_TRY(check_range(o, call.offset, call.bytes));
    ASHLAR_TRY(ashlar_optimizer_follow(o, stream));
    job.shape = o->table.shape;
    if ((call.parts & ASHLAR_OPTIMIZER_UPDATE) != 0) {
        ASHLAR_TRY(check_rate(o, call.learning_rate));
        job.learning_rate = call.learning_rate;
        job.zeroes = call.zero_gradients && o->cuda == NULL;
        job.rate_at = call.rate_at;
    }
    ashlar__optimizer_table_select(&o->table, o->runs, call.offset, call.bytes, &job);
    if ((call.parts & ASHLAR_OPTIMIZER_UPDATE) != 0) {
        ASHLAR_TRY(check_matrices(o, &job));
    }
    ASHLAR_TRY(run(o, &job, &call, stream));
    const bool fills = call.zero_gradients && (call.parts & ASHLAR_OPTIMIZER_UPDATE) != 0;
    if (!fills || o->cuda == NULL) {
        return ASHLAR_OK;
    }
    char *gradients = ashlar_arena_region(o->arena, ASHLAR_REGION_GRADIENTS);
    return ashlar_fill(o->device, gradients + call.offset, 0, call.bytes, stream);
}

ashlar_status ashlar_optimizer_step(ashlar_optimizer *o, double learning_rate,
                                    double gradient_scale, ashlar_stream stream) {
    const ashlar_optimizer_call call = {.learning_rate = learning_rate,
                                        .gradient_scale = gradient_scale};
    return ashlar_optimizer_step_with(o, &call, stream);
}

/* ---- the state ---- */

ashlar_optimizer_info ashlar_optimizer_get_info(const ashlar_optimizer *o) {
    ashlar_optimizer_info info = {.learning_rate = o->rule.config.learning_rate,
                                  .sum = &o->scalars->sum,
                                  .loss_scale = &o->scalars->state.loss_scale,
                                  .host_bytes = o->staging.host_bytes,
                                  .event_calls = o->staging.away.event_calls};
    return info;
}

const ashlar_arena *ashlar__optimizer_arena(const ashlar_optimizer *o) {
    return o->arena;
}

static ashlar_status copy_state(const ashlar_optimizer *o, ashlar_optimizer_state *state,
                                ashlar_stream stream) {
    return ashlar_copy_to_host(o->device, state, &o->scalars->state, sizeof *state, stream);
}

static ashlar_status get_updates(const ashlar_optimizer *o, ashlar_optimizer_state *state,
                                 uint64_t *updates, ashlar_stream stream) {
    const size_t count = o->arena->tensor_count;
    ashlar_optimizer_history *histories;
    ASHLAR_HOST_NEW(histories, count, "no host memory for the updates of %zu tensors", count);
    ashlar_status status = copy_state(o, state, stream);
    ASHLAR_THEN(status, ashlar_copy_to_host(o->device, histories, o->histories,
                                            count * sizeof *histories, stream));
    ASHLAR_THEN(status, ashlar_stream_synchronize(o->device, stream));
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        const ashlar_optimizer_history *h = &histories[i];
        updates[i] = !o->arena->tensors[i].is_apart ? ASHLAR_UPDATED_ALWAYS
                     : h->is_frozen != 0            ? h->count
                                                    : state->step - h->count;
    }
    ashlar__host_free(histories);
    return status;
}

ashlar_status ashlar_optimizer_copy_state_to_host(const ashlar_optimizer *o,
                                                  ashlar_optimizer_state *state, uint64_t *updates,
                                                  ashlar_stream stream) {
    return updates != NULL ? get_updates(o, state, updates, stream) : copy_state(o, state, stream);
}

static ashlar_status set_updates(ashlar_optimizer *o, const uint64_t *updates,
                                 ashlar_stream stream) {
    const size_t count = o->arena->tensor_count;
    ashlar_optimizer_history *histories;
    ASHLAR_HOST_NEW(histories, count, "no host memory for the updates of %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        ashlar_arena_entry *tensor = &o->arena->tensors[i];
        if (updates[i] != ASHLAR_UPDATED_ALWAYS) {
            histories[i] = (ashlar_optimizer_history){.count = updates[i], .is_frozen = 1};
        }
        tensor->is_apart = tensor->info.options.is_frozen || histories[i].is_frozen != 0;
    }
    ashlar_status status = ashlar_copy_to_device(o->device, o->histories, histories,
                                                 count * sizeof *histories, stream);
    ashlar__host_free(histories);
    o->arena->option_changes++;
    ASHLAR_THEN(status, ashlar_optimizer_follow(o, stream));
    return status;
}

ashlar_status ashlar_optimizer_copy_state_to_device(ashlar_optimizer *o,
                                                    const ashlar_optimizer_state *state,
                                                    const uint64_t *updates, ashlar_stream stream) {
    ashlar_optimizer_state copy = ASHLAR_OR_ZERO(ashlar_optimizer_state, state);
    if (!is_scaled(o)) {
        copy.loss_scale = 1;
    } else if (copy.loss_scale >= 0 && copy.loss_scale <= 0) {
        copy.loss_scale = o->rule.config.loss_scale;
    }
    if (!(copy.loss_scale >= (double)FLT_MIN && copy.loss_scale <= (double)FLT_MAX)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "optimizer: loss_scale %g; give a positive number that "
                            "fp32 can hold",
                            copy.loss_scale);
    }
    /* Also set sum_count to 0: the next SUM then ignores what a failed step had summed. */
    const ashlar_optimizer_scalars head = {.state = copy};
    ASHLAR_TRY(ashlar_copy_to_device(o->device, o->scalars, &head,
                                     offsetof(ashlar_optimizer_scalars, sum), stream));
    if (copy.step == 0) {
        ASHLAR_TRY(clear_histories(o, stream));
        ASHLAR_TRY(put_table(o, stream));
    }
    return updates != NULL ? set_updates(o, updates, stream) : ASHLAR_OK;
}
