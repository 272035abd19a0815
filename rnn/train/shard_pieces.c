/* shard_pieces.c - cuts a step's gradients into pieces, and sends each when it is final. */
#include "rnn/train/shard_pieces.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/optimizer/optimizer_part.h"
#include "arena/reduce/ranks_beside.h"
#include "arena/reduce/sum.h"
#include "rnn/train/train_impl.h"

static ashlar_tensor_info info_of(const ashlar_arena *arena, size_t tensor) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(arena, tensor, &info);
    return info;
}

/* Whether tensor i + 1 is the next one of its type in memory. */
static bool is_joined(const ashlar_arena *arena, size_t i) {
    const size_t count = ashlar_arena_tensor_count(arena);
    const ashlar_tensor_info one = info_of(arena, i);
    if (i + 1 == count || one.options.is_frozen) {
        return false;
    }
    const ashlar_tensor_info next = info_of(arena, i + 1);
    const size_t from = one.offset[ASHLAR_LAYOUT_STORAGE], to = next.offset[ASHLAR_LAYOUT_STORAGE];
    bool is_next = next.dtype == one.dtype && !next.options.is_frozen && to > from;
    for (size_t k = 0; k < count && is_next; k++) {
        const size_t other = info_of(arena, k).offset[ASHLAR_LAYOUT_STORAGE];
        is_next = other <= from || other >= to;
    }
    return is_next;
}

static ashlar_status note_parts(ashlar_trainer *t) {
    const size_t ranks = ashlar_ranks_count(t->config.ranks);
    size_t *ends;
    ASHLAR_HOST_NEW(ends, ranks, "no host memory for %zu ranks", ranks);
    for (size_t i = 0; i < ranks; i++) {
        ends[i] = ashlar__optimizer_part_bounds(t->optimizer, i, ranks).end;
    }
    t->sums.pieces.ends = ends;
    return ASHLAR_OK;
}

ashlar_status ashlar__shard_pieces_open(ashlar_trainer *t) {
    const ashlar_arena *arena = t->task->arena;
    const size_t count = ashlar_arena_tensor_count(arena);
    ashlar_shard_tensor *tensors;
    ASHLAR_HOST_NEW(tensors, count, "no host memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        tensors[i].joins = is_joined(arena, i);
    }
    t->sums.pieces.tensors = tensors;
    ASHLAR_TRY(ashlar__state_shards_are_used(&t->config) ? note_parts(t) : ASHLAR_OK);
    return ashlar__ranks_beside_open(t->config.ranks);
}

void ashlar__shard_pieces_close(ashlar_trainer *t) {
    ashlar__ranks_beside_close(t->config.ranks);
    ashlar__host_free(t->sums.pieces.tensors);
    ashlar__host_free(t->sums.pieces.ends);
    t->sums.pieces.tensors = NULL;
    t->sums.pieces.ends = NULL;
}

/* Of bytes from .. end - 1 of the gradients, give each rank the sums of those in its own part. */
static ashlar_status reduce_parts(const ashlar_trainer *t, size_t from, size_t end,
                                  ashlar_dtype dtype) {
    const ashlar_collectives *c = t->sums.collectives;
    char *gradients = ashlar_arena_region(t->task->arena, ASHLAR_REGION_GRADIENTS);
    const size_t *ends = t->sums.pieces.ends;
    for (size_t root = 0; from < end; root++) {
        const size_t to = ends[root] < end ? ends[root] : end;
        if (from < to) {
            ASHLAR_TRY(c->reduce(c->context, gradients + from,
                                 (to - from) / ashlar_dtype_bytes(dtype), dtype, root, t->stream));
            from = to;
        }
    }
    return ASHLAR_OK;
}

/* Send the gradients of tensors first .. last, which lie side by side. */
static ashlar_status send(ashlar_trainer *t, size_t first, size_t last) {
    const ashlar_arena *arena = t->task->arena;
    const ashlar_collectives *c = t->sums.collectives;
    const ashlar_tensor_info one = info_of(arena, first), other = info_of(arena, last);
    const size_t from = one.offset[ASHLAR_LAYOUT_STORAGE];
    const size_t bytes = other.offset[ASHLAR_LAYOUT_STORAGE] + other.bytes - from;
    const size_t elements = bytes / ashlar_dtype_bytes(one.dtype);
    char *data = (char *)ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS) + from;
    for (size_t level = 0; level < t->sums.pieces.levels; level++) {
        ASHLAR_TRY(ashlar__sum_queue_add(t->device, one.dtype, data,
                                         (const char *)t->sums.partial[level] + from, elements,
                                         t->stream));
    }
    return t->sums.pieces.ends == NULL
               ? c->all_reduce(c->context, data, elements, one.dtype, t->stream)
               : reduce_parts(t, from, from + bytes, one.dtype);
}

/* Count a report of the tensors in [from, to). Send those that have now been reported `due` times
 * or more and were not sent yet. */
static ashlar_status send_between(ashlar_trainer *t, const char *from, const char *to, size_t due) {
    const ashlar_arena *arena = t->task->arena;
    ashlar_shard_tensor *tensors = t->sums.pieces.tensors;
    const size_t count = ashlar_arena_tensor_count(arena);
    size_t open = count; /* the first of a piece that goes on */
    for (size_t i = 0; i < count; i++) {
        const char *at = ashlar_arena_view(arena, ASHLAR_REGION_GRADIENTS, i);
        const bool is_named = at >= from && at < to;
        tensors[i].reports += is_named;
        const bool sends = is_named && tensors[i].reports >= due && !tensors[i].is_sent &&
                           !info_of(arena, i).options.is_frozen;
        if (open < count && !(sends && tensors[i - 1].joins)) {
            ASHLAR_TRY(send(t, open, i - 1));
            open = count;
        }
        open = sends && open == count ? i : open;
        tensors[i].is_sent = tensors[i].is_sent || sends;
    }
    return open < count ? send(t, open, count - 1) : ASHLAR_OK;
}

/* The task calls this once for each micro-batch; the gradients are final at the last call. */
static ashlar_status on_final(void *context, const void *from, const void *to) {
    ashlar_trainer *t = context;
    return send_between(t, from, to, t->config.accumulate == 0 ? 1 : t->config.accumulate);
}

void ashlar__shard_pieces_begin(ashlar_trainer *t, size_t levels) {
    ashlar_shard_tensor *tensors = t->sums.pieces.tensors;
    for (size_t i = 0; i < ashlar_arena_tensor_count(t->task->arena); i++) {
        tensors[i].is_sent = false;
        tensors[i].reports = 0;
    }
    t->sums.pieces.levels = levels;
    ashlar__ranks_beside_begin(t->config.ranks);
    t->task->final = (ashlar_final){on_final, t};
}

ashlar_status ashlar__shard_pieces_end(ashlar_trainer *t) {
    const char *region = ashlar_arena_region(t->task->arena, ASHLAR_REGION_GRADIENTS);
    t->task->final = (ashlar_final){0};
    const ashlar_status status = send_between(
        t, region, region + ashlar_arena_region_bytes(t->task->arena, ASHLAR_REGION_GRADIENTS), 0);
    const ashlar_status ended = ashlar__ranks_beside_end(t->config.ranks, t->stream);
    return status == ASHLAR_OK ? ended : status;
}
