/* shards.c - divides batches among ranks, and adds up the gradients of their shards. */
#include "rnn/train/shards.h"

#include "allocator/base/error.h"
#include "allocator/device/device_impl.h"
#include "arena/compute/convert.h"
#include "arena/reduce/ranks_impl.h"
#include "rnn/train/train_impl.h"

/* The difference between the dropout seeds of neighbouring ranks that drop alone (task.h). Odd. */
static const uint64_t RANK_STRIDE = UINT64_C(0x8ebc6af09c88c6e3);

static size_t ranks_of(const ashlar_train_config *c) {
    return c->ranks == NULL ? 1 : ashlar_ranks_count(c->ranks);
}

ashlar_shards ashlar__shards_of(const ashlar_train_config *c) {
    const size_t ranks = ranks_of(c), all = c->shards > 0 ? c->shards : ranks;
    const size_t rank = c->ranks == NULL ? 0 : ashlar_ranks_rank(c->ranks);
    return (ashlar_shards){.all = all, .first = rank * (all / ranks), .count = all / ranks};
}

static size_t pieces_of(const ashlar_train_config *c) {
    return c->accumulate == 0 ? 1 : c->accumulate;
}

size_t ashlar__shards_choose(size_t batch, size_t accumulate) {
    size_t shards = 1;
    while (shards < ASHLAR_SHARDS_MOST && batch % (2 * shards * accumulate) == 0) {
        shards *= 2;
    }
    return shards;
}

ashlar_status ashlar__shards_check(const ashlar_train_config *c) {
    const size_t ranks = ranks_of(c), pieces = pieces_of(c);
    const size_t all = c->shards > 0 ? c->shards : ranks;
    ASHLAR_FAIL_IF(all > ASHLAR_SHARDS_MOST && c->shards > 0, ASHLAR_EINVAL,
                   "shards: %zu are more than %d", all, ASHLAR_SHARDS_MOST);
    ASHLAR_FAIL_IF(c->shards > 0 && (all & (all - 1)) != 0, ASHLAR_EINVAL,
                   "shards: %zu are no power of 2", all);
    ASHLAR_FAIL_IF(
        all % ranks != 0, ASHLAR_EINVAL,
        "--reproducible: %zu ranks cannot share the %zu equal shards of a batch of %zu in "
        "%zu pieces; take 1, 2, 4 or 8 ranks, and a --batch that 8 times --accumulate "
        "divides",
        ranks, all, c->batch, pieces);
    ASHLAR_FAIL_IF(c->batch % (all * pieces) != 0, ASHLAR_EINVAL,
                   "--batch: %zu sequences are not %zu equal shares of %zu pieces (--accumulate); "
                   "take a multiple of %zu",
                   c->batch, all, pieces, all * pieces);
    ASHLAR_FAIL_IF(ashlar__shards_are_used(c) && ashlar__train_pads(c), ASHLAR_EINVAL,
                   "--pad and --graphs: not with several ranks or --reproducible");
    return ASHLAR_OK;
}

/* ---- sums on a CUDA device ----
 *
 * There to += from is queued as backward of a linear layer with dy = 1, x = from, dweight = to,
 * which rounds once, like ashlar__sum_add(). */

/* In one call: cuBLAS counts in int. */
static const size_t MOST_ELEMENTS = (size_t)1 << 30;

static void *one_of(const ashlar_shard_adds *a, ashlar_dtype dtype) {
    return (char *)a->ones + (size_t)dtype * sizeof(double);
}

/* Create operations for the gradients' types, and for losses. */
static ashlar_status open_types(ashlar_trainer *t) {
    const ashlar_arena *arena = t->task->arena;
    ashlar_shard_adds *a = &t->sums.adds;
    ASHLAR_TRY(ashlar_ops_create(t->device, ASHLAR_F64, &a->ops[ASHLAR_F64]));
    for (size_t i = 0; i < ashlar_arena_bucket_count(arena); i++) {
        ashlar_arena_bucket range;
        ashlar_arena_get_bucket(arena, i, &range);
        ASHLAR_TRY(a->ops[range.dtype] != NULL
                       ? ASHLAR_OK
                       : ashlar_ops_create(t->device, range.dtype, &a->ops[range.dtype]));
    }
    return ASHLAR_OK;
}

static ashlar_status shard_adds_open(ashlar_trainer *t) {
    const double one = 1;
    double ones[ASHLAR_DTYPE_COUNT] = {0}; /* each in its own type */
    ASHLAR_TRY(open_types(t));
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, sizeof ones, ASHLAR_TAG_WORKSPACE, t->stream,
                                   &t->sums.adds.ones));
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        ashlar__convert((ashlar_dtype)type, &ones[type], ASHLAR_F64, &one, 1);
    }
    return ashlar_copy_to_device(t->device, t->sums.adds.ones, ones, sizeof ones, t->stream);
}

static void shard_adds_close(ashlar_trainer *t) {
    ashlar_shard_adds *a = &t->sums.adds;
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        ashlar_ops_destroy(a->ops[type]);
    }
    if (a->ones != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(t->allocator, a->ones));
    }
}

static ashlar_status shard_add(const ashlar_trainer *t, ashlar_dtype dtype, void *to,
                               const void *from, size_t count) {
    const size_t item = ashlar_dtype_bytes(dtype);
    for (size_t at = 0; at < count; at += MOST_ELEMENTS) {
        const size_t left = count - at;
        const ashlar_linear_args args = {.rows = 1,
                                         .in = left < MOST_ELEMENTS ? left : MOST_ELEMENTS,
                                         .out = 1,
                                         .x = (const char *)from + at * item,
                                         .dy = one_of(&t->sums.adds, dtype),
                                         .dweight = (char *)to + at * item};
        ASHLAR_TRY(ashlar_linear_backward(t->sums.adds.ops[dtype], &args, t->stream));
    }
    return ASHLAR_OK;
}

/* The gradient region += `from`, which has the region's layout. */
static ashlar_status add_gradients(const ashlar_trainer *t, const void *from) {
    const ashlar_arena *arena = t->task->arena;
    char *gradients = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    for (size_t i = 0; i < ashlar_arena_bucket_count(arena); i++) {
        ashlar_arena_bucket range;
        ashlar_arena_get_bucket(arena, i, &range);
        char *to = gradients + range.offset;
        const char *part = (const char *)from + range.offset;
        const size_t count = range.bytes / ashlar_dtype_bytes(range.dtype);
        ASHLAR_TRY(t->sums.is_cuda
                       ? shard_add(t, range.dtype, to, part, count)
                       : ashlar__sum_queue_add(t->device, range.dtype, to, part, count, t->stream));
    }
    return ASHLAR_OK;
}

/* ---- set-up ---- */

/* Attach the gradients' and the parameters' memory to the collectives, for their life, if it can be
 * shared. Not if a region does not fill its segment: what else is in the segment may lie elsewhere
 * on other ranks. */
static ashlar_status attach_regions(ashlar_trainer *t) {
    static const ashlar_region regions[] = {ASHLAR_REGION_GRADIENTS, ASHLAR_REGION_PARAMETERS};
    const ashlar_collectives *c = t->sums.collectives;
    void *base;
    size_t bytes, usable;
    for (size_t i = 0; i < sizeof regions / sizeof regions[0] && c->attach != NULL; i++) {
        const void *region = ashlar_arena_region(t->task->arena, regions[i]);
        const ashlar_status status = ashlar_segment(t->allocator, region, &base, &bytes);
        if (status == ASHLAR_ENOTSUP) {
            return ASHLAR_OK; /* share=off */
        }
        ASHLAR_TRY(status);
        ASHLAR_TRY(ashlar_usable_bytes(t->allocator, region, &usable));
        ASHLAR_TRY(usable == bytes ? c->attach(c->context, base, bytes) : ASHLAR_OK);
    }
    return ASHLAR_OK;
}

static ashlar_status open_reducer(ashlar_trainer *t) {
    const ashlar_ranks_order order =
        t->config.shards > 0 ? ASHLAR_RANKS_TREE : ASHLAR_RANKS_FASTEST;
    ASHLAR_TRY(ashlar_ranks_collectives(t->config.ranks, t->device, order, &t->sums.collectives));
    ASHLAR_TRY(ashlar_reducer_create(t->task->arena, t->sums.collectives, ASHLAR_REDUCTION_ALL,
                                     t->stream, &t->sums.reducer));
    ashlar_ranks_mark(t->config.ranks, t->state.step, t->sums.facts);
    ASHLAR_TRY(attach_regions(t));
    ASHLAR_TRY(ashlar_reducer_broadcast(t->sums.reducer, 0, t->stream));
    ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
    return ashlar_ranks_check(t->config.ranks);
}

/* The number of subtrees whose sums a rank with `count` shards keeps. */
static size_t levels_of(size_t count) {
    size_t levels = 0;
    while ((size_t)1 << levels < count) {
        levels++;
    }
    return levels;
}

static ashlar_status take_partial(ashlar_trainer *t, size_t count) {
    const size_t bytes = ashlar_arena_region_bytes(t->task->arena, ASHLAR_REGION_GRADIENTS);
    for (size_t level = 0; level < levels_of(count); level++) {
        ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, bytes, ASHLAR_TAG_GRADIENTS, t->stream,
                                       &t->sums.partial[level]));
    }
    void *losses;
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, (count + 1) * sizeof *t->sums.losses,
                                   ASHLAR_TAG_WORKSPACE, t->stream, &losses));
    t->sums.losses = losses;
    return ASHLAR_OK;
}

ashlar_status ashlar__shard_sums_open(ashlar_trainer *t) {
    ashlar_device_info info;
    ashlar_device_get_info(t->device, &info);
    t->sums.is_cuda = info.kind == ASHLAR_DEVICE_CUDA;
    ASHLAR_FAIL_IF(t->sums.is_cuda && t->config.shards > 0 && t->config.dropout > 0, ASHLAR_ENOTSUP,
                   "--reproducible: without --dropout on %s, where cuDNN draws what it drops for a "
                   "batch as a whole",
                   info.name);
    t->task->drops_alone = t->sums.is_cuda;
    const size_t count = ashlar__shards_of(&t->config).count;
    ASHLAR_TRY(take_partial(t, count));
    ASHLAR_TRY(t->sums.is_cuda && count > 1 ? shard_adds_open(t) : ASHLAR_OK);
    return t->config.ranks == NULL ? ASHLAR_OK : open_reducer(t);
}

void ashlar__shard_sums_close(ashlar_trainer *t) {
    if (t->sums.collectives != NULL) {
        ashlar_ranks_drop_collectives(t->config.ranks, t->state.step < t->config.steps);
    }
    ashlar_reducer_destroy(t->sums.reducer);
    shard_adds_close(t);
    for (size_t level = 0; level < ASHLAR_SHARDS_LEVELS; level++) {
        if (t->sums.partial[level] != NULL) { /* cannot fail: this allocator gave the block */
            ASHLAR_IGNORE(ashlar_free(t->allocator, t->sums.partial[level]));
        }
    }
    if (t->sums.losses != NULL) {
        ASHLAR_IGNORE(ashlar_free(t->allocator, t->sums.losses));
    }
    t->sums = (ashlar_shard_sums){0};
}

/* ---- a step ---- */

/* Shard i of `count` is in the gradient region: add the subtrees that it completes, and keep the
 * sum for the next one. */
static ashlar_status fold(ashlar_trainer *t, size_t i, size_t count) {
    const ashlar_arena *arena = t->task->arena;
    size_t level = 0;
    for (; (i >> level & 1) != 0; level++) {
        ASHLAR_TRY(add_gradients(t, t->sums.partial[level]));
    }
    if (i + 1 == count) {
        return ASHLAR_OK;
    }
    return ashlar_copy(t->device, t->sums.partial[level],
                       ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS),
                       ashlar_arena_region_bytes(arena, ASHLAR_REGION_GRADIENTS), t->stream);
}

typedef struct losses_work {
    double *losses; /* [count + 1]: once added up, the sum and the votes */
    size_t count;
} losses_work;

static void run_add_losses(void *args) {
    const losses_work *w = args;
    for (size_t distance = 1; distance < w->count; distance *= 2) {
        for (size_t i = 0; i < w->count; i += 2 * distance) {
            w->losses[i] += w->losses[i + distance];
        }
    }
}

/* Add up the losses as a tree; the sum is then in losses[0]. */
static ashlar_status add_losses(const ashlar_trainer *t, const losses_work *w) {
    if (!t->sums.is_cuda) {
        const ashlar_operand operands[] = {
            {"losses", w->losses, w->count * sizeof *w->losses, true}, {0}};
        ASHLAR_TRY(ashlar__check_operands(t->device, "a sum", operands));
        return ashlar_launch(t->device, t->stream, run_add_losses, w, sizeof *w);
    }
    for (size_t distance = 1; distance < w->count; distance *= 2) {
        for (size_t i = 0; i < w->count; i += 2 * distance) {
            ASHLAR_TRY(shard_add(t, ASHLAR_F64, &w->losses[i], &w->losses[i + distance], 1));
        }
    }
    return ASHLAR_OK;
}

/* A vote is any number above 0: a double of bytes 0x3f is one. */
static ashlar_status put_vote(const ashlar_trainer *t, double *vote) {
    return ashlar_fill(t->device, vote, ashlar__train_must_stop(t) ? 0x3f : 0, sizeof *vote,
                       t->stream);
}

/* Add up the gradients of all ranks. */
static ashlar_status reduce_gradients(ashlar_trainer *t) {
    ashlar_reducer *reducer = t->sums.reducer;
    ASHLAR_TRY(ashlar_reducer_begin(reducer));
    for (size_t i = 0; i < ashlar_arena_tensor_count(t->task->arena); i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(t->task->arena, i, &info);
        ASHLAR_TRY(info.options.is_frozen ? ASHLAR_OK
                                          : ashlar_reducer_final(reducer, i, t->stream));
    }
    return ashlar_reducer_finish(reducer, t->stream);
}

/* Run this rank's shards and add up their gradients; with `others`, those of all ranks. */
static ashlar_status queue_shards(ashlar_trainer *t, size_t buffer, size_t part, uint64_t seed,
                                  bool others, const losses_work *losses) {
    seed += t->sums.is_cuda ? ashlar__shards_of(&t->config).first * RANK_STRIDE : 0;
    for (size_t i = 0; i < losses->count; i++) {
        if (i > 0) {
            ASHLAR_TRY(ashlar_arena_zero(t->task->arena, ASHLAR_REGION_GRADIENTS, t->stream));
        }
        t->task->shard = i;
        ASHLAR_TRY(t->task->table->step(t->task, buffer, part, seed, losses->losses + i));
        ASHLAR_TRY(fold(t, i, losses->count));
    }
    return others ? reduce_gradients(t) : ASHLAR_OK;
}

/* Queue the sums of losses and votes: the whole batch's loss is then in losses[0], the votes in
 * losses[1]. */
static ashlar_status queue_losses(ashlar_trainer *t, bool others, const losses_work *losses,
                                  double *total) {
    const ashlar_collectives *c = t->sums.collectives;
    double *const votes = losses->losses + 1;
    ASHLAR_TRY(add_losses(t, losses));
    ASHLAR_TRY(put_vote(t, votes));
    if (others) {
        ASHLAR_TRY(c->all_reduce(c->context, losses->losses, 2, ASHLAR_F64, t->stream));
    }
    ASHLAR_TRY(ashlar_copy(t->device, total, losses->losses, sizeof *total, t->stream));
    return ashlar_copy(t->device, t->votes, votes, sizeof *votes, t->stream);
}

static ashlar_status queue_all(ashlar_trainer *t, size_t buffer, size_t part, uint64_t seed,
                               bool others, double *total) {
    const losses_work losses = {t->sums.losses, ashlar__shards_of(&t->config).count};
    ASHLAR_TRY(
        ashlar_fill(t->device, losses.losses, 0, losses.count * sizeof *losses.losses, t->stream));
    ASHLAR_TRY(queue_shards(t, buffer, part, seed, others, &losses));
    return queue_losses(t, others, &losses, total);
}

ashlar_status ashlar__shard_sums_queue(ashlar_trainer *t, uint64_t number, size_t buffer,
                                       size_t part, uint64_t seed, double *loss) {
    if (t->config.ranks != NULL && part == 0) {
        ashlar_ranks_mark(t->config.ranks, number, t->sums.facts);
    }
    return queue_all(t, buffer, part, seed, t->config.ranks != NULL, loss);
}

ashlar_status ashlar__shard_sums_queue_alone(ashlar_trainer *t, size_t buffer, size_t part,
                                             uint64_t seed, double *loss) {
    return queue_all(t, buffer, part, seed, false, loss);
}
