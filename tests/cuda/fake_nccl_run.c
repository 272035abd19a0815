/*
 * fake_nccl_run.c - the collectives of the stand-in for NCCL: looked at when they are queued, and,
 * in the stream's order, compared with the other ranks' and done, chunk by chunk.
 */
#include "tests/cuda/fake_nccl.h"

#include <string.h>

#include "arena/compute/convert.h"
#include "tests/cuda/fake_driver.h"

typedef struct job {
    nccl_comm comm;
    fake_call call;
    const char *from;
    char *to;
    ashlar_dtype dtype;
} job;

/* ---- in the stream's order ---- */

enum { BATCH = 512 };

/* The sum over all ranks of what they have posted, in the order of ranks, rounded each time. */
static void add_batch(const job *j, size_t first, size_t count, char *to) {
    const size_t at = first * ashlar_dtype_bytes(j->dtype);
    const fake_shared *s = j->comm->shared;
    double sum[BATCH], next[BATCH];
    ashlar__convert(ASHLAR_F64, sum, j->dtype, s->data[0] + at, count);
    for (unsigned int r = 1; r < j->comm->count; r++) {
        ashlar__convert(ASHLAR_F64, next, j->dtype, s->data[r] + at, count);
        for (size_t i = 0; i < count; i++) {
            sum[i] += next[i];
        }
        ashlar__convert(j->dtype, to + at, ASHLAR_F64, sum, count);
        ashlar__convert(ASHLAR_F64, sum, j->dtype, to + at, count);
    }
    ashlar__convert(j->dtype, to + at, ASHLAR_F64, sum, count);
}

static void add_posted(const job *j, size_t count, char *to) {
    for (size_t at = 0; at < count; at += BATCH) {
        add_batch(j, at, count - at < BATCH ? count - at : BATCH, to);
    }
}

/* All ranks post a piece of theirs and meet; take what is wanted of the posted; meet again. */
static bool pass_piece(const job *j, size_t shard, size_t at, size_t count) {
    const size_t item = ashlar_dtype_bytes(j->dtype), bytes = count * item;
    const size_t whole = shard * j->call.elements * item + at * item;
    fake_shared *s = j->comm->shared;
    memcpy(s->data[j->comm->rank],
           j->call.kind == FAKE_SCATTER ? j->from + whole : j->from + at * item, bytes);
    if (!fake_nccl_meet(j->comm)) {
        return false;
    }
    switch ((fake_kind)j->call.kind) {
    case FAKE_BROADCAST:
        memcpy(j->to + at * item, s->data[j->call.root], bytes);
        break;
    case FAKE_ALL_REDUCE:
        add_posted(j, count, j->to + at * item);
        break;
    case FAKE_SCATTER:
        if (shard == j->comm->rank) {
            add_posted(j, count, j->to + at * item);
        }
        break;
    case FAKE_GATHER:
        for (unsigned int r = 0; r < j->comm->count; r++) {
            memcpy(j->to + (r * j->call.elements + at) * item, s->data[r], bytes);
        }
        break;
    }
    return fake_nccl_meet(j->comm);
}

static bool is_same(const fake_call *a, const fake_call *b) {
    return a->number == b->number && a->kind == b->kind && a->elements == b->elements &&
           a->type == b->type && a->op == b->op && a->root == b->root;
}

/* NCCL hangs, or worse, when ranks differ; this says so, on each of them. */
static bool compare(const job *j) {
    fake_shared *s = j->comm->shared;
    s->calls[j->comm->rank] = j->call;
    if (!fake_nccl_meet(j->comm)) {
        return false;
    }
    const char *why = NULL;
    for (unsigned int i = 0; i < j->comm->count; i++) {
        const fake_call *other = &s->calls[i];
        why = !is_same(other, &j->call) ? "the ranks queue different collectives"
              : other->is_registered != j->call.is_registered
                  ? "the data are registered on some ranks only"
              : other->offset != j->call.offset
                  ? "the data have other offsets in their registered memory on other ranks"
                  : why;
    }
    (void)fake_nccl_meet(j->comm); /* all have read them */
    if (why != NULL) {
        atomic_store(&j->comm->failure,
                     (int)fake_nccl_refuse(j->comm, NCCL_INVALID_USAGE, "%s", why));
    }
    return why == NULL;
}

static void run(const job *j) {
    const size_t most = FAKE_NCCL_CHUNK / ashlar_dtype_bytes(j->dtype);
    const size_t shards = j->call.kind == FAKE_SCATTER ? j->comm->count : 1;
    if (!compare(j)) {
        return;
    }
    for (size_t shard = 0; shard < shards; shard++) {
        for (size_t at = 0; at < j->call.elements; at += most) {
            const size_t left = j->call.elements - at;
            if (!pass_piece(j, shard, at, left < most ? left : most)) {
                return;
            }
        }
    }
}

static void run_job(void *queued) {
    job *j = queued;
    if (atomic_load(&j->comm->state) == FAKE_READY &&
        atomic_load(&j->comm->failure) == NCCL_SUCCESS) {
        run(j);
    }
    atomic_fetch_sub(&j->comm->queued, 1);
}

/* ---- queueing ---- */

static nccl_result check_type(nccl_comm comm, const fake_call *call, ashlar_dtype *dtype) {
    static const ashlar_dtype types[] = {[NCCL_F16] = ASHLAR_F16,
                                         [NCCL_F32] = ASHLAR_F32,
                                         [NCCL_F64] = ASHLAR_F64,
                                         [NCCL_BF16] = ASHLAR_BF16};
    if (call->type < NCCL_F16 || call->type > NCCL_BF16 || call->op != NCCL_SUM || call->root < 0 ||
        call->root >= (int)comm->count) {
        return fake_nccl_refuse(comm, NCCL_INVALID_ARGUMENT, "type %d, operation %d or root %d",
                                call->type, call->op, call->root);
    }
    *dtype = types[call->type];
    return NCCL_SUCCESS;
}

/* Equal where NCCL calls it in place, or apart. */
static nccl_result check_places(const job *j, size_t from_bytes, size_t to_bytes) {
    const uintptr_t from = (uintptr_t)j->from, to = (uintptr_t)j->to;
    const size_t item = ashlar_dtype_bytes(j->dtype);
    const size_t own = j->comm->rank * j->call.elements * item;
    const bool is_in_place = j->call.kind == FAKE_SCATTER  ? to == from + own
                             : j->call.kind == FAKE_GATHER ? from == to + own
                                                           : from == to;
    if (from % item != 0 || to % item != 0 || !fake_nccl_is_device(from, from_bytes) ||
        !fake_nccl_is_device(to, to_bytes)) {
        return fake_nccl_refuse(j->comm, NCCL_INVALID_ARGUMENT,
                                "the data are not aligned device memory");
    }
    if (!is_in_place && from < to + to_bytes && to < from + from_bytes) {
        return fake_nccl_refuse(j->comm, NCCL_INVALID_USAGE,
                                "the data overlap, and not as in place");
    }
    return NCCL_SUCCESS;
}

static nccl_result find_registered(job *j, size_t from_bytes, size_t to_bytes) {
    const fake_buffer *from, *to;
    nccl_result result = fake_nccl_find_buffer(j->comm, (uintptr_t)j->from, from_bytes, &from);
    if (result == NCCL_SUCCESS) {
        result = fake_nccl_find_buffer(j->comm, (uintptr_t)j->to, to_bytes, &to);
    }
    if (result == NCCL_SUCCESS && (from == NULL) != (to == NULL)) {
        result = fake_nccl_refuse(j->comm, NCCL_INVALID_USAGE,
                                  "what is sent is registered, or what is received: not both");
    }
    if (result == NCCL_SUCCESS && from != NULL) {
        j->call.is_registered = 1;
        j->call.offset = j->call.kind == FAKE_SCATTER ? (uintptr_t)j->from - from->base
                                                      : (uintptr_t)j->to - to->base;
    }
    return result;
}

static nccl_result queue(nccl_comm comm, const char *name, fake_call call, const void *from,
                         void *to, cu_stream stream) {
    nccl_result result = fake_nccl_admit(comm, name);
    if (result != NCCL_SUCCESS) {
        return result;
    }
    job made = {.comm = comm, .call = call, .from = from, .to = to};
    result = check_type(comm, &call, &made.dtype);
    if (result != NCCL_SUCCESS) {
        return result;
    }
    const size_t bytes = call.elements * ashlar_dtype_bytes(made.dtype);
    const size_t from_bytes = call.kind == FAKE_SCATTER ? bytes * comm->count : bytes;
    const size_t to_bytes = call.kind == FAKE_GATHER ? bytes * comm->count : bytes;
    result = check_places(&made, from_bytes, to_bytes);
    result = result == NCCL_SUCCESS ? find_registered(&made, from_bytes, to_bytes) : result;
    if (result != NCCL_SUCCESS) {
        return result;
    }
    job *kept = fake_keep(sizeof *kept);
    made.call.number = comm->number++;
    *kept = made;
    atomic_fetch_add(&comm->queued, 1);
    return fake_launch(stream, run_job, kept) == CU_SUCCESS
               ? NCCL_SUCCESS
               : fake_nccl_refuse(comm, NCCL_CUDA_ERROR, "%s: the driver refuses the stream", name);
}

nccl_result ncclBroadcast(const void *from, void *to, size_t elements, nccl_type type, int root,
                          nccl_comm comm, cu_stream stream) {
    const fake_call call = {
        .kind = FAKE_BROADCAST, .elements = elements, .type = (int)type, .root = root};
    return queue(comm, "ncclBroadcast", call, from, to, stream);
}

nccl_result ncclAllReduce(const void *from, void *to, size_t elements, nccl_type type, nccl_op op,
                          nccl_comm comm, cu_stream stream) {
    const fake_call call = {
        .kind = FAKE_ALL_REDUCE, .elements = elements, .type = (int)type, .op = (int)op};
    return queue(comm, "ncclAllReduce", call, from, to, stream);
}

nccl_result ncclReduceScatter(const void *from, void *to, size_t elements_each, nccl_type type,
                              nccl_op op, nccl_comm comm, cu_stream stream) {
    const fake_call call = {
        .kind = FAKE_SCATTER, .elements = elements_each, .type = (int)type, .op = (int)op};
    return queue(comm, "ncclReduceScatter", call, from, to, stream);
}

nccl_result ncclAllGather(const void *from, void *to, size_t elements_each, nccl_type type,
                          nccl_comm comm, cu_stream stream) {
    const fake_call call = {.kind = FAKE_GATHER, .elements = elements_each, .type = (int)type};
    return queue(comm, "ncclAllGather", call, from, to, stream);
}
