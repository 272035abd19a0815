/* reduce.c - passes buckets to collectives, in order, as soon as their gradients are final; adds
 * arrays of gradients element by element, large ones on several threads. */
#include <string.h>

#include <ashlar/reduce.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "arena/compute/convert.h"
#include "arena/compute/workers.h"
#include "arena/layout/arena_impl.h"
#include "arena/reduce/ranks_impl.h"

enum { PIECE_ELEMENTS = 1 << 15 }; /* elements of a sum that are worth waking a thread for */

static void add_f32(float *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void add_f64(double *to, const double *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void add_f16(uint16_t *to, const uint16_t *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] =
            ashlar__f16_from_float(ashlar__float_from_f16(to[i]) + ashlar__float_from_f16(from[i]));
    }
}

static void add_bf16(uint16_t *to, const uint16_t *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = ashlar__bf16_from_float(ashlar__float_from_bf16(to[i]) +
                                        ashlar__float_from_bf16(from[i]));
    }
}

typedef struct work {
    ashlar_dtype dtype;
    char *to;
    const char *from;
    size_t count;
} work;

static void add_piece(void *context, size_t i) {
    const work *w = context;
    const size_t first = i * PIECE_ELEMENTS, left = w->count - first;
    const size_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
    void *to = w->to + first * ashlar_dtype_bytes(w->dtype);
    const void *from = w->from + first * ashlar_dtype_bytes(w->dtype);
    switch (w->dtype) {
    case ASHLAR_F32:
        add_f32(to, from, count);
        break;
    case ASHLAR_F64:
        add_f64(to, from, count);
        break;
    case ASHLAR_F16:
        add_f16(to, from, count);
        break;
    case ASHLAR_BF16:
    case ASHLAR_DTYPE_COUNT:
        add_bf16(to, from, count);
        break;
    }
}

void ashlar__sum_add(ashlar_dtype dtype, void *to, const void *from, size_t count) {
    work w = {dtype, to, from, count};
    ashlar__workers_run((count + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS, add_piece, &w);
}

typedef struct bucket {
    size_t tensors;   /* number of tensors that are not frozen; 0: the bucket is never sent */
    size_t missing;   /* how many of these are not final yet in this step */
    uint64_t streams; /* bit i: a tensor became final on streams[i] of the reducer */
} bucket;

_Static_assert(ASHLAR_REDUCER_STREAMS <= 64, "a bucket has a bit for each stream");

/* Invariants in a step:
 *   buckets 0 .. next - 1 have been sent or have no tensors; no bucket from `next` on has been sent
 *   if failure is OK: bucket `next` has a missing tensor, or there is no bucket `next` */
struct ashlar_reducer {
    const ashlar_arena *arena;
    ashlar_device *device;
    ashlar_collectives collectives;
    ashlar_reduction reduction;
    ashlar_stream stream; /* on which the collectives run */
    ashlar_event event;   /* recorded anew each time that one stream must wait for another */
    bucket *buckets;      /* [bucket_count of the arena] */
    bool *is_frozen;      /* [tensor_count of the arena], as it was when the newest step began */
    /* The current step: */
    bool is_open;
    bool *is_final; /* [tensor_count] */
    size_t next;
    ashlar_status failure;                         /* why bucket `next` could not be sent, or OK */
    ashlar_stream streams[ASHLAR_REDUCER_STREAMS]; /* [stream_count], all different */
    size_t stream_count;
};

static ashlar_status check_arguments(const ashlar_arena *arena, const ashlar_collectives *c,
                                     ashlar_reduction reduction) {
    ASHLAR_FAIL_IF(arena->allocator == NULL, ASHLAR_EINVAL, "reducer: the arena is not committed");
    ASHLAR_FAIL_IF(c->broadcast == NULL || c->all_reduce == NULL, ASHLAR_EINVAL,
                   "reducer: broadcast and all_reduce must be given");
    ASHLAR_FAIL_IF((unsigned)reduction >= ASHLAR_REDUCTION_COUNT ||
                       (reduction == ASHLAR_REDUCTION_SCATTER &&
                        (c->reduce_scatter == NULL || c->all_gather == NULL)),
                   ASHLAR_EINVAL,
                   "reducer: reduction %d is unknown, or lacks reduce_scatter or all_gather",
                   (int)reduction);
    return ASHLAR_OK;
}

/* Count the tensors of each bucket that the program will report as final: those not frozen now. */
static void follow_options(ashlar_reducer *r) {
    memset(r->buckets, 0, r->arena->bucket_count * sizeof *r->buckets);
    for (size_t i = 0; i < r->arena->tensor_count; i++) {
        const ashlar_arena_entry *tensor = &r->arena->tensors[i];
        bucket *of = &r->buckets[r->arena->groups[tensor->group].bucket];
        r->is_frozen[i] = tensor->info.options.is_frozen;
        of->tensors += !r->is_frozen[i];
        of->missing = of->tensors;
    }
}

static ashlar_status build(ashlar_reducer *r) {
    r->buckets = ashlar__host_calloc(r->arena->bucket_count, sizeof *r->buckets);
    r->is_frozen = ashlar__host_calloc(r->arena->tensor_count, sizeof *r->is_frozen);
    r->is_final = ashlar__host_calloc(r->arena->tensor_count, sizeof *r->is_final);
    ASHLAR_FAIL_IF(r->buckets == NULL || r->is_frozen == NULL || r->is_final == NULL,
                   ASHLAR_EHOSTMEM, "no host memory for a reducer of %zu tensors",
                   r->arena->tensor_count);
    follow_options(r);
    return ashlar_event_create(r->device, &r->event);
}

ashlar_status ashlar_reducer_create(const ashlar_arena *arena,
                                    const ashlar_collectives *collectives,
                                    ashlar_reduction reduction, ashlar_stream stream,
                                    ashlar_reducer **out) {
    ashlar_collectives given = ASHLAR_OR_ZERO(ashlar_collectives, collectives);
    ASHLAR_TRY(check_arguments(arena, &given, reduction));
    ashlar_reducer *r;
    ASHLAR_HOST_NEW(r, 1, "no host memory for a reducer");
    *r = (ashlar_reducer){.arena = arena,
                          .device = ashlar_allocator_device(arena->allocator),
                          .collectives = given,
                          .reduction = reduction,
                          .stream = stream};
    ASHLAR_HAND_OUT(build(r), r, ashlar_reducer_destroy, out);
}

void ashlar_reducer_destroy(ashlar_reducer *r) {
    if (r == NULL) {
        return;
    }
    ashlar_event_destroy(r->device, r->event);
    ashlar__host_free(r->buckets);
    ashlar__host_free(r->is_frozen);
    ashlar__host_free(r->is_final);
    ashlar__host_free(r);
}

/* Work queued on `later` from now on waits for all work queued on `earlier` so far. */
static ashlar_status order(const ashlar_reducer *r, ashlar_stream earlier, ashlar_stream later) {
    if (earlier == later) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar_event_record(r->device, r->event, earlier));
    return ashlar_stream_wait(r->device, later, r->event);
}

/* Call a collective for bucket `i` of a region. */
static ashlar_status send_range(const ashlar_reducer *r, ashlar_collective_fn collective,
                                ashlar_region region, size_t i) {
    const ashlar_arena_bucket *range = &r->arena->buckets[i];
    ASHLAR_CHECK2(range->offset + range->bytes <= ashlar__arena_region_bytes(r->arena, region));
    return collective(r->collectives.context, (char *)r->arena->regions[region] + range->offset,
                      range->bytes / ashlar_dtype_bytes(range->dtype), range->dtype, r->stream);
}

/* Send a bucket's gradients, after the work on each stream that made them. */
static ashlar_status send_bucket(const ashlar_reducer *r, size_t i) {
    ASHLAR_CHECK2(i == r->next && r->buckets[i].missing == 0 && r->buckets[i].streams != 0);
    for (size_t s = 0; s < r->stream_count; s++) {
        if ((r->buckets[i].streams >> s & 1) != 0) {
            ASHLAR_TRY(order(r, r->streams[s], r->stream));
        }
    }
    return send_range(r,
                      r->reduction == ASHLAR_REDUCTION_SCATTER ? r->collectives.reduce_scatter
                                                               : r->collectives.all_reduce,
                      ASHLAR_REGION_GRADIENTS, i);
}

/* Send buckets in order, up to the first with a missing tensor. */
static ashlar_status send_ready(ashlar_reducer *r) {
    ASHLAR_CHECK2(r->is_open && r->failure == ASHLAR_OK);
    for (; r->next < r->arena->bucket_count && r->buckets[r->next].missing == 0; r->next++) {
        if (r->buckets[r->next].tensors > 0) {
            r->failure = send_bucket(r, r->next);
            if (r->failure != ASHLAR_OK) {
                return r->failure;
            }
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_reducer_begin(ashlar_reducer *r) {
    ASHLAR_FAIL_IF(r->is_open || r->arena->regions[ASHLAR_REGION_GRADIENTS] == NULL, ASHLAR_EINVAL,
                   "begin: %s",
                   r->is_open ? "the step before was not finished" : "the arena has no gradients");
    memset(r->is_final, 0, r->arena->tensor_count * sizeof *r->is_final);
    follow_options(r);
    r->is_open = true;
    r->next = 0;
    r->failure = ASHLAR_OK;
    r->stream_count = 0;
    return send_ready(r); /* skips leading buckets whose tensors are all frozen; sends nothing */
}

static ashlar_status check_final(const ashlar_reducer *r, size_t tensor) {
    ASHLAR_FAIL_IF(!r->is_open || tensor >= r->arena->tensor_count, ASHLAR_EINVAL, "final: %s",
                   r->is_open ? "the arena has no such tensor" : "no step has begun");
    ASHLAR_FAIL_IF(r->failure != ASHLAR_OK, r->failure,
                   "final: bucket %zu was not sent, an earlier call said why; finish the step",
                   r->next);
    const char *name = r->arena->tensors[tensor].name;
    ASHLAR_FAIL_IF(r->is_frozen[tensor], ASHLAR_EINVAL,
                   "final: tensor %s is frozen, its gradient is of no use", name);
    return r->is_final[tensor] ? ashlar__fail(ASHLAR_EINVAL,
                                              "final: tensor %s was final before in this step; a "
                                              "gradient that is summed up is final once",
                                              name)
                               : ASHLAR_OK;
}

/* *bit: the bit of `stream` in bucket.streams. A new stream is added to the reducer's list. */
static ashlar_status number_stream(ashlar_reducer *r, ashlar_stream stream, uint64_t *bit) {
    size_t i = 0;
    while (i < r->stream_count && r->streams[i] != stream) {
        i++;
    }
    ASHLAR_FAIL_IF(i == ASHLAR_REDUCER_STREAMS, ASHLAR_EINVAL,
                   "final: more than %d streams in a step; order some of them by events",
                   ASHLAR_REDUCER_STREAMS);
    if (i == r->stream_count) {
        r->streams[r->stream_count++] = stream;
    }
    *bit = (uint64_t)1 << i;
    return ASHLAR_OK;
}

ashlar_status ashlar_reducer_final(ashlar_reducer *r, size_t tensor, ashlar_stream stream) {
    uint64_t bit = 0;
    ASHLAR_TRY(check_final(r, tensor));
    ASHLAR_TRY(number_stream(r, stream, &bit));
    bucket *of = &r->buckets[r->arena->groups[r->arena->tensors[tensor].group].bucket];
    ASHLAR_CHECK2(of->missing > 0 && of >= &r->buckets[r->next]);
    r->is_final[tensor] = true;
    of->missing--;
    of->streams |= bit;
    return send_ready(r);
}

/* Fail, naming a missing tensor of bucket `next`. There must be a bucket that was not sent. */
static ashlar_status name_missing(const ashlar_reducer *r) {
    const ashlar_arena_bucket *range = &r->arena->buckets[r->next];
    size_t tensor = range->first_tensor;
    ASHLAR_CHECK2(r->buckets[r->next].missing > 0); /* so the search ends in this bucket */
    while (r->is_final[tensor] || r->is_frozen[tensor]) {
        tensor++;
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "finish: tensor %s is not final, so that bucket %zu and those behind it "
                        "were not sent; report every tensor, or freeze it",
                        r->arena->tensors[tensor].name, r->next);
}

ashlar_status ashlar_reducer_finish(ashlar_reducer *r, ashlar_stream stream) {
    ASHLAR_FAIL_IF(!r->is_open, ASHLAR_EINVAL, "finish: no step has begun");
    const ashlar_status status = order(r, r->stream, stream);
    r->is_open = false;
    ASHLAR_FAIL_IF(r->failure != ASHLAR_OK, r->failure,
                   "finish: bucket %zu was not sent, an earlier call said why", r->next);
    return r->next < r->arena->bucket_count ? name_missing(r) : status;
}

/* Broadcast neighbouring buckets of the same type in one call, in ascending address order. The last
 * bucket has the lowest address. */
static ashlar_status send_parameters(const ashlar_reducer *r, size_t root) {
    const ashlar_arena_bucket *buckets = r->arena->buckets;
    for (size_t end = r->arena->bucket_count; end > 0;) {
        const ashlar_arena_bucket *first = &buckets[--end];
        size_t bytes = first->bytes;
        while (end > 0 && buckets[end - 1].dtype == first->dtype) {
            ASHLAR_CHECK2(first->offset + bytes == buckets[end - 1].offset);
            bytes += buckets[--end].bytes;
        }
        ASHLAR_TRY(r->collectives.broadcast(
            r->collectives.context,
            (char *)r->arena->regions[ASHLAR_REGION_PARAMETERS] + first->offset,
            bytes / ashlar_dtype_bytes(first->dtype), first->dtype, root, r->stream));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_reducer_broadcast(ashlar_reducer *r, size_t root, ashlar_stream stream) {
    ASHLAR_TRY(order(r, stream, r->stream));
    ASHLAR_TRY(send_parameters(r, root));
    return order(r, r->stream, stream);
}

ashlar_status ashlar_reducer_gather(ashlar_reducer *r, ashlar_stream stream) {
    ASHLAR_FAIL_IF(
        r->reduction != ASHLAR_REDUCTION_SCATTER, ASHLAR_EINVAL,
        "gather: every rank has all sums; only ASHLAR_REDUCTION_SCATTER leaves parts to gather");
    ASHLAR_TRY(order(r, stream, r->stream));
    for (size_t i = 0; i < r->arena->bucket_count; i++) {
        if (r->buckets[i].tensors > 0) {
            ASHLAR_TRY(send_range(r, r->collectives.all_gather, ASHLAR_REGION_PARAMETERS, i));
        }
    }
    return order(r, r->stream, stream);
}
