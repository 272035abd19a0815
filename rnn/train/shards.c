/* shards.c - adds up the gradients of the shards of a batch, on this rank and over all. */
#include "rnn/train/train_impl.h"

#include "allocator/base/error.h"

/* The difference between the dropout seeds of neighbouring ranks that drop alone (train_impl.h).
 * Odd. */
static const uint64_t RANK_STRIDE = UINT64_C(0x8ebc6af09c88c6e3);

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
        const void *region = ashlar_arena_region(t->arena, regions[i]);
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
    ASHLAR_TRY(ashlar_reducer_create(t->arena, t->sums.collectives, ASHLAR_REDUCTION_ALL, t->stream,
                                     &t->sums.reducer));
    ashlar_ranks_mark(t->config.ranks, t->state.step, t->sums.facts);
    ASHLAR_TRY(attach_regions(t));
    ASHLAR_TRY(ashlar_reducer_broadcast(t->sums.reducer, 0, t->stream));
    ASHLAR_TRY(ashlar_stream_synchronize(t->device, t->stream));
    return ashlar_ranks_check(t->config.ranks);
}

/* to += from, arrays of `count` elements. */
static ashlar_status add(const ashlar_ops *ops, void *to, const void *from, size_t count,
                         ashlar_stream stream) {
    const ashlar_columns_args args = {.rows = 1,
                                      .width = count,
                                      .from = from,
                                      .from_stride = count,
                                      .to = to,
                                      .to_stride = count,
                                      .adds = true};
    return ashlar_copy_columns(ops, &args, stream);
}

static ashlar_status take_partial(ashlar_trainer *t, size_t count) {
    const size_t bytes = ashlar_arena_get_info(t->arena).region_bytes[ASHLAR_REGION_GRADIENTS];
    void *losses;
    for (size_t level = 0; (size_t)1 << level < count; level++) {
        ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, bytes, ASHLAR_TAG_GRADIENTS, t->stream,
                                       &t->sums.partial[level]));
    }
    ASHLAR_TRY(ashlar_alloc_tagged(t->allocator, (count + 1) * sizeof *t->sums.losses,
                                   ASHLAR_TAG_WORKSPACE, t->stream, &losses));
    t->sums.losses = losses;
    return ASHLAR_OK;
}

ashlar_status ashlar__shard_sums_open(ashlar_trainer *t) {
    const ashlar_device_info info = ashlar_device_get_info(t->device);
    t->sums.is_cuda = info.kind == ASHLAR_DEVICE_CUDA;
    ASHLAR_FAIL_IF(t->sums.is_cuda && t->config.shards > 0 && t->config.dropout > 0, ASHLAR_ENOTSUP,
                   "--reproducible: without --dropout on %s, where cuDNN draws what it drops for a "
                   "batch as a whole",
                   info.name);
    t->drops_alone = t->sums.is_cuda;
    const size_t count = t->batches.split.own;
    ASHLAR_TRY(take_partial(t, count));
    ASHLAR_TRY(ashlar_ops_create(t->device, t->config.dtype, &t->sums.ops));
    ASHLAR_TRY(ashlar_ops_create(t->device, ASHLAR_F64, &t->sums.ops_of_losses));
    return t->config.ranks == NULL ? ASHLAR_OK : open_reducer(t);
}

void ashlar__shard_sums_close(ashlar_trainer *t) {
    if (t->sums.collectives != NULL) {
        ashlar_ranks_drop_collectives(t->config.ranks, t->state.step < t->config.steps);
    }
    ashlar_reducer_destroy(t->sums.reducer);
    ashlar_ops_destroy(t->sums.ops);
    ashlar_ops_destroy(t->sums.ops_of_losses);
    /* Cannot fail: this allocator gave the blocks, or they are NULL. */
    for (size_t level = 0; level < ASHLAR_SHARDS_LEVELS; level++) {
        ASHLAR_IGNORE(ashlar_free(t->allocator, t->sums.partial[level]));
    }
    ASHLAR_IGNORE(ashlar_free(t->allocator, t->sums.losses));
    t->sums = (ashlar_shard_sums){0};
}

/* ---- a step ---- */

/* Run shards first .. first + 2^level - 1 of this rank. The sum of their gradients comes to be in
 * the gradient region, which must be 0 before, that of their losses in losses[first]. */
static ashlar_status queue_shards(ashlar_trainer *t, size_t buffer, size_t part, uint64_t seed,
                                  size_t first, size_t level) {
    void *const gradients = ashlar_arena_region(t->arena, ASHLAR_REGION_GRADIENTS);
    const size_t bytes = ashlar_arena_get_info(t->arena).region_bytes[ASHLAR_REGION_GRADIENTS];
    double *const loss = t->sums.losses + first;
    if (level == 0) {
        t->shard = first;
        return ashlar__train_walk(t, buffer, part, seed, loss);
    }
    level--;
    const size_t half = (size_t)1 << level;
    const size_t elements = bytes / ashlar_dtype_bytes(t->config.dtype);
    ASHLAR_TRY(queue_shards(t, buffer, part, seed, first, level));
    ASHLAR_TRY(ashlar_copy(t->device, t->sums.partial[level], gradients, bytes, t->stream));
    ASHLAR_TRY(ashlar_arena_zero(t->arena, ASHLAR_REGION_GRADIENTS, t->stream));
    ASHLAR_TRY(queue_shards(t, buffer, part, seed, first + half, level));
    ASHLAR_TRY(add(t->sums.ops, gradients, t->sums.partial[level], elements, t->stream));
    return add(t->sums.ops_of_losses, loss, loss + half, 1, t->stream);
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
    for (size_t i = 0; i < ashlar_arena_get_info(t->arena).tensor_count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(t->arena, i, &info);
        ASHLAR_TRY(info.options.is_frozen ? ASHLAR_OK
                                          : ashlar_reducer_final(reducer, i, t->stream));
    }
    return ashlar_reducer_finish(reducer, t->stream);
}

/* The whole batch's loss comes to be in losses[0], the votes in losses[1]. */
ashlar_status ashlar__shard_sums_queue(ashlar_trainer *t, uint64_t number, size_t buffer,
                                       size_t part, uint64_t seed, double *loss) {
    const size_t count = t->batches.split.own;
    size_t level = 0;
    const ashlar_collectives *c = number > 0 ? t->sums.collectives : NULL;
    double *const losses = t->sums.losses, *const votes = losses + 1;
    if (c != NULL && part == 0) {
        ashlar_ranks_mark(t->config.ranks, number, t->sums.facts);
    }
    ASHLAR_TRY(ashlar_fill(t->device, losses, 0, count * sizeof *losses, t->stream));
    while ((size_t)1 << level < count) {
        level++;
    }
    seed += t->sums.is_cuda ? t->batches.split.first * RANK_STRIDE : 0;
    ASHLAR_TRY(queue_shards(t, buffer, part, seed, 0, level));
    ASHLAR_TRY(c != NULL ? reduce_gradients(t) : ASHLAR_OK);
    ASHLAR_TRY(put_vote(t, votes));
    if (c != NULL) {
        ASHLAR_TRY(c->all_reduce(c->context, losses, 2, ASHLAR_F64, t->stream));
    }
    ASHLAR_TRY(ashlar_copy(t->device, loss, losses, sizeof *loss, t->stream));
    return ashlar_copy(t->device, t->votes, votes, sizeof *votes, t->stream);
}
