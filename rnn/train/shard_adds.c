/* shard_adds.c - adds up shards on a CUDA device. There to += from is queued as backward of a
 * linear layer with dy = 1, x = from, dweight = to, which rounds once, like ashlar__sum_add(). */
#include "allocator/base/error.h"
#include "arena/compute/convert.h"
#include "rnn/train/train_impl.h"

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

ashlar_status ashlar__shard_adds_open(ashlar_trainer *t) {
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

void ashlar__shard_adds_close(ashlar_trainer *t) {
    ashlar_shard_adds *a = &t->sums.adds;
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        ashlar_ops_destroy(a->ops[type]);
    }
    if (a->ones != NULL) { /* cannot fail: this allocator gave the block */
        ASHLAR_IGNORE(ashlar_free(t->allocator, a->ones));
    }
}

ashlar_status ashlar__shard_add(const ashlar_trainer *t, ashlar_dtype dtype, void *to,
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

ashlar_status ashlar__shard_add_gradients(const ashlar_trainer *t, const void *from) {
    const ashlar_arena *arena = t->task->arena;
    char *gradients = ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS);
    for (size_t i = 0; i < ashlar_arena_bucket_count(arena); i++) {
        ashlar_arena_bucket range;
        ashlar_arena_get_bucket(arena, i, &range);
        ASHLAR_TRY(ashlar__shard_add(t, range.dtype, gradients + range.offset,
                                     (const char *)from + range.offset,
                                     range.bytes / ashlar_dtype_bytes(range.dtype)));
    }
    return ASHLAR_OK;
}
