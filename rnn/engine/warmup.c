/* warmup.c - a model's warm-up over all lengths; then its walks and training steps are steps of the
 * allocator. And the start of a training, which ends with that. */
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "arena/optimizer/optimizer_impl.h"
#include "rnn/engine/engine.h"

/* One block, as large as that of the walk that needs most. */
static ashlar_status dry_run(void *user, size_t length) {
    ashlar_model *m = user;
    ashlar_model_batch batch = m->largest;
    const bool has_loss = batch.loss != NULL;
    const bool is_possible[] = {
        [ASHLAR_WALK_TRAIN] =
            has_loss && ashlar_arena_region(m->arena, ASHLAR_REGION_GRADIENTS) != NULL,
        [ASHLAR_WALK_TEST] = has_loss,
        [ASHLAR_WALK_PREDICT] = batch.outputs != NULL,
    };
    ASHLAR_TABLE_IS_FULL(is_possible, ASHLAR_WALK_COUNT);
    size_t bytes = 0;
    void *block;
    batch.steps = length;
    for (int walk = 0; walk < ASHLAR_WALK_COUNT; walk++) {
        ashlar_model_need need = {0};
        if (is_possible[walk]) {
            ASHLAR_TRY(ashlar_model_get_need(m, (ashlar_walk)walk, &batch, &need));
        }
        bytes = need.plan_bytes > bytes ? need.plan_bytes : bytes;
    }
    ASHLAR_FAIL_IF(bytes == 0, ASHLAR_EINVAL,
                   "ashlar_model_warmup: the batch has neither a loss nor an output");
    ASHLAR_TRY(
        ashlar_alloc_tagged(m->allocator, bytes, ASHLAR_TAG_ACTIVATIONS, m->warmup.stream, &block));
    return ashlar_free(m->allocator, block);
}

ashlar_status ashlar_model_warmup(ashlar_model *m, const ashlar_model_batch *largest,
                                  ashlar_stream stream, ashlar_warmup_report *report) {
    ashlar_warmup_options options = {.stream = stream, .dry_run = dry_run, .user = m};
    m->largest = ASHLAR_OR_ZERO(ashlar_model_batch, largest);
    m->warmup = (ashlar_warmup_options){.stream = stream};
    options.max_length = m->largest.steps > 0 ? m->largest.steps : 1; /* 0: no axis of time */
    options.key = ashlar__random_mix((uintptr_t)m) & ~(uint64_t)UINT32_MAX;
    ASHLAR_TRY(ashlar_allocator_warmup(m->allocator, &options, report));
    m->warmup = options;
    return ashlar__away_take(&m->away);
}

static ashlar_status begin(const ashlar_model *m, const ashlar_model_batch *b,
                           ashlar_stream stream) {
    const size_t steps = b == NULL ? 0 : b->steps;
    return m->warmup.max_length == 0
               ? ASHLAR_OK
               : ashlar_step_begin(m->allocator, stream, ashlar_warmup_key(&m->warmup, steps));
}

static ashlar_status end(const ashlar_model *m, ashlar_status status) {
    const ashlar_status ended =
        m->warmup.max_length == 0 ? ASHLAR_OK : ashlar_step_end(m->allocator);
    return status == ASHLAR_OK ? ended : status;
}

ashlar_status ashlar_model_run(ashlar_model *m, ashlar_walk walk, const ashlar_model_batch *batch,
                               ashlar_stream stream) {
    ASHLAR_TRY(begin(m, batch, stream));
    return end(m, ashlar__model_walk(m, walk, batch, stream));
}

static ashlar_status train(ashlar_model *m, ashlar_optimizer *optimizer,
                           const ashlar_model_batch *b, double learning_rate,
                           ashlar_stream stream) {
    const ashlar_operand operands[] = {{"loss", b->loss, sizeof *b->loss, true}, {0}};
    ASHLAR_TRY(ashlar__check_operands(m->device, "ashlar_model_step", operands));
    ASHLAR_TRY(ashlar_fill(m->device, b->loss, 0, sizeof *b->loss, stream));
    ASHLAR_TRY(ashlar_arena_zero(m->arena, ASHLAR_REGION_GRADIENTS, stream));
    ASHLAR_TRY(ashlar__model_walk(m, ASHLAR_WALK_TRAIN, b, stream));
    return ashlar_optimizer_step(optimizer, learning_rate, 1, stream);
}

ashlar_status ashlar_model_step(ashlar_model *m, ashlar_optimizer *optimizer,
                                const ashlar_model_batch *given, double learning_rate,
                                ashlar_stream stream) {
    const ashlar_model_batch batch = ASHLAR_OR_ZERO(ashlar_model_batch, given);
    ASHLAR_FAIL_IF(!m->is_committed, ASHLAR_EINVAL, "model: not committed");
    ASHLAR_FAIL_IF(optimizer == NULL || ashlar__optimizer_arena(optimizer) != m->arena,
                   ASHLAR_EINVAL, "ashlar_model_step: %s; make one of ashlar_model_arena()",
                   optimizer == NULL ? "no optimizer" : "the optimizer is of another arena");
    ASHLAR_TRY(begin(m, &batch, stream));
    return end(m, train(m, optimizer, &batch, learning_rate, stream));
}

static ashlar_status fill_weights(ashlar_model *m, const ashlar_model_start_options *o,
                                  const ashlar_checkpoint *file, ashlar_stream stream) {
    ASHLAR_TRY(ashlar_model_commit(m, ASHLAR_REGIONS_TRAINING, stream));
    ASHLAR_TRY(ashlar_model_init(m, o->rule, o->seed, stream));
    return file == NULL ? ASHLAR_OK : ashlar_checkpoint_load(m->arena, file, o->load, stream, NULL);
}

ashlar_status ashlar_model_start(ashlar_model *m, const ashlar_model_start_options *options,
                                 const ashlar_model_batch *largest, ashlar_stream stream,
                                 ashlar_optimizer **out) {
    ashlar_model_start_options o = ASHLAR_OR_ZERO(ashlar_model_start_options, options);
    ashlar_checkpoint *file = NULL;
    ashlar_optimizer *optimizer;
    ASHLAR_TRY(ashlar_optimizer_complete(&o.optimizer));
    ASHLAR_TRY(o.file == NULL ? ASHLAR_OK : ashlar_checkpoint_open(o.file, &file));
    const ashlar_status filled = fill_weights(m, &o, file, stream);
    ashlar_checkpoint_close(file);
    ASHLAR_TRY(filled);
    ASHLAR_TRY(ashlar_optimizer_create(m->arena, &o.optimizer, stream, &optimizer));
    const ashlar_status status = ashlar_model_warmup(m, largest, stream, NULL);
    if (status != ASHLAR_OK) {
        ashlar_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return ASHLAR_OK;
}
