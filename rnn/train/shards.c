/* shards.c - divides batches among ranks, and adds up the gradients of their shards. */
#include "rnn/train/shards.h"

#include "allocator/base/error.h"
#include "arena/reduce/sum.h"
#include "rnn/train/train_impl.h"

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

/* ---- set-up ---- */

static ashlar_status open_reducer(ashlar_trainer *t) {
    const ashlar_ranks_order order =
        t->config.shards > 0 ? ASHLAR_RANKS_TREE : ASHLAR_RANKS_FASTEST;
    ASHLAR_TRY(ashlar_ranks_collectives(t->config.ranks, t->device, order, &t->sums.collectives));
    ASHLAR_TRY(ashlar_reducer_create(t->task->arena, t->sums.collectives, ASHLAR_REDUCTION_ALL,
                                     t->stream, &t->sums.reducer));
    ashlar_ranks_mark(t->config.ranks, t->state.step, t->sums.facts);
    ASHLAR_TRY(ashlar_reducer_broadcast(t->sums.reducer, 0, t->stream));
    ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
    return ashlar_ranks_check(t->config.ranks);
}

static ashlar_status take_partial(ashlar_trainer *t, size_t count) {
    const size_t bytes = ashlar_arena_region_bytes(t->task->arena, ASHLAR_REGION_GRADIENTS);
    for (size_t level = 0; (size_t)1 << level < count; level++) {
        ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, bytes, ASHLAR_TAG_GRADIENTS, t->stream,
                                       &t->sums.partial[level]));
    }
    void *losses;
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, count * sizeof *t->sums.losses,
                                   ASHLAR_TAG_WORKSPACE, t->stream, &losses));
    t->sums.losses = losses;
    return ASHLAR_OK;
}

ashlar_status ashlar__shard_sums_open(ashlar_trainer *t) {
    ashlar_device_info info;
    ashlar_device_get_info(t->device, &info);
    ASHLAR_FAIL_IF(info.kind != ASHLAR_DEVICE_SOFT, ASHLAR_ENOTSUP,
                   "--reproducible and several ranks: on software devices only, not on %s",
                   info.name);
    ASHLAR_TRY(take_partial(t, ashlar__shards_of(&t->config).count));
    return t->config.ranks == NULL ? ASHLAR_OK : open_reducer(t);
}

void ashlar__shard_sums_close(ashlar_trainer *t) {
    ashlar_reducer_destroy(t->sums.reducer);
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
        ASHLAR_TRY(ashlar__sum_add_gradients(arena, t->sums.partial[level], t->stream));
    }
    if (i + 1 == count) {
        return ASHLAR_OK;
    }
    return ashlar_copy(t->device, t->sums.partial[level],
                       ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS),
                       ashlar_arena_region_bytes(arena, ASHLAR_REGION_GRADIENTS), t->stream);
}

typedef struct losses_work {
    double *losses; /* [count] */
    size_t count;
    double *total;
} losses_work;

static void add_losses(void *args) {
    const losses_work *w = args;
    for (size_t distance = 1; distance < w->count; distance *= 2) {
        for (size_t i = 0; i < w->count; i += 2 * distance) {
            w->losses[i] += w->losses[i + distance];
        }
    }
}

static void add_to_total(void *args) {
    const losses_work *w = args;
    *w->total += w->losses[0];
}

static ashlar_status queue_own(ashlar_trainer *t, size_t buffer, size_t part, uint64_t seed,
                               const losses_work *losses) {
    ASHLAR_TRY(ashlar_fill(t->device, losses->losses, 0, losses->count * sizeof *losses->losses,
                           t->stream));
    for (size_t i = 0; i < losses->count; i++) {
        if (i > 0) {
            ASHLAR_TRY(ashlar_arena_zero(t->task->arena, ASHLAR_REGION_GRADIENTS, t->stream));
        }
        t->task->shard = i;
        ASHLAR_TRY(t->task->table->step(t->task, buffer, part, seed, losses->losses + i));
        ASHLAR_TRY(fold(t, i, losses->count));
    }
    return ashlar_launch(t->device, t->stream, add_losses, losses, sizeof *losses);
}

/* Hand all gradients to the reducer, which sends the buckets in their order, and the loss. */
static ashlar_status reduce(ashlar_trainer *t) {
    const ashlar_arena *arena = t->task->arena;
    ASHLAR_TRY(ashlar_reducer_begin(t->sums.reducer));
    ashlar_status status = ASHLAR_OK;
    for (size_t i = ashlar_arena_tensor_count(arena); i-- > 0;) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        if (!info.options.is_frozen) {
            ASHLAR_THEN(status, ashlar_reducer_final(t->sums.reducer, i, t->stream));
        }
    }
    const ashlar_status finished = ashlar_reducer_finish(t->sums.reducer, t->stream);
    ASHLAR_TRY(status);
    ASHLAR_TRY(finished);
    const ashlar_collectives *c = t->sums.collectives;
    return c->all_reduce(c->context, t->sums.losses, 1, ASHLAR_F64, t->stream);
}

ashlar_status ashlar__shard_sums_queue(ashlar_trainer *t, uint64_t number, size_t buffer,
                                       size_t part, uint64_t seed, double *loss) {
    const losses_work losses = {t->sums.losses, ashlar__shards_of(&t->config).count, loss};
    ASHLAR_TRY(queue_own(t, buffer, part, seed, &losses));
    if (t->config.ranks != NULL) {
        if (part == 0) {
            ashlar_ranks_mark(t->config.ranks, number, t->sums.facts);
        }
        ASHLAR_TRY(reduce(t));
    }
    return ashlar_launch(t->device, t->stream, add_to_total, &losses, sizeof losses);
}

ashlar_status ashlar__shard_sums_queue_alone(ashlar_trainer *t, size_t buffer, size_t part,
                                             uint64_t seed, double *loss) {
    const losses_work losses = {t->sums.losses, ashlar__shards_of(&t->config).count, loss};
    ASHLAR_TRY(queue_own(t, buffer, part, seed, &losses));
    return ashlar_launch(t->device, t->stream, add_to_total, &losses, sizeof losses);
}
