/*
 * test_reduce_ranks.c - two to four ranks, a thread each, on two adversarial devices, with an
 * engine inside the process.
 *
 * Every rank writes its own gradients and reports them in an order of its own. The engine meets all
 * ranks in each call, and refuses calls that are not about the same range.
 */
#include "tests/arena/layout/arena_fixture.h"

#include <pthread.h>
#include <time.h>

#include <ashlar/reduce.h>
#include <ashlar/replica.h>

enum { RANKS_MAX = 4, DEVICES = 2, STEPS = 3, COMPUTE = 2, PATIENCE_S = 60 };

typedef struct rank {
    size_t idx;
    pthread_t thread;
    ashlar_device *device;
    ashlar_arena *arena;
    ashlar_reducer *reducer;
    ashlar_stream compute[COMPUTE], collective;
    ashlar_event event;
    /* What it came to the engine with; lock: the engine's. */
    unsigned char *data;
    size_t offset, elements, root;
    ashlar_dtype dtype;
    char kind;
    long bad_count; /* calls that failed */
    long wrong;     /* elements; written by work on its streams */
} rank;

static rank ranks[RANKS_MAX];
static size_t rank_count;

/* ---- the engine ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t arrived;
    uint64_t round;
    ashlar_status status; /* of the newest round */
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Small whole numbers, which every type holds. */
static double read_element(const unsigned char *at, ashlar_dtype dtype) {
    float f = 0;
    double d = 0;
    uint16_t half;
    switch (dtype) {
    case ASHLAR_F64:
        memcpy(&d, at, sizeof d);
        return d;
    case ASHLAR_BF16:
        memcpy(&half, at, sizeof half);
        memcpy(&f, &(uint32_t){(uint32_t)half << 16}, sizeof f);
        return (double)f;
    default:
        memcpy(&f, at, sizeof f);
        return (double)f;
    }
}

static void write_element(unsigned char *at, ashlar_dtype dtype, double value) {
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint16_t half = (uint16_t)(bits >> 16);
    switch (dtype) {
    case ASHLAR_F64:
        memcpy(at, &value, sizeof value);
        break;
    case ASHLAR_BF16:
        memcpy(at, &half, sizeof half);
        break;
    default:
        memcpy(at, &f, sizeof f);
        break;
    }
}

typedef struct job {
    unsigned char *data[RANKS_MAX];
    size_t ranks, elements, root;
    ashlar_dtype dtype;
    char kind;
} job;

/* On one stream, for all ranks: their memory is the host's. */
static void run_job(void *args) {
    const job *j = args;
    const size_t bytes = ashlar_dtype_bytes(j->dtype);
    for (size_t i = 0; i < j->elements; i++) {
        const size_t part = i / (j->elements / j->ranks);
        double value = 0;
        for (size_t r = 0; r < j->ranks; r++) {
            const bool counts = j->kind == 'b' ? r == j->root : j->kind != 'g' || r == part;
            value += counts ? read_element(j->data[r] + i * bytes, j->dtype) : 0;
        }
        for (size_t r = 0; r < j->ranks; r++) {
            /* What others have of a scattered sum is undefined: make it plainly wrong. */
            write_element(j->data[r] + i * bytes, j->dtype,
                          j->kind == 's' && r != part ? -1 : value);
        }
    }
}

/* All ranks are here: queue the job behind all of their streams, and hold these back until it ran.
 */
static ashlar_status queue_job(void) {
    job j = {.ranks = rank_count,
             .elements = ranks[0].elements,
             .root = ranks[0].root,
             .dtype = ranks[0].dtype,
             .kind = ranks[0].kind};
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < rank_count && status == ASHLAR_OK; i++) {
        const rank *r = &ranks[i];
        if (r->kind != j.kind || r->offset != ranks[0].offset || r->elements != j.elements ||
            r->dtype != j.dtype || r->root != j.root || r->elements % rank_count != 0) {
            return ashlar_error_set(ASHLAR_EFORMAT, "the ranks call for different things");
        }
        j.data[i] = r->data;
        status = ashlar_event_record(r->device, r->event, r->collective);
        if (status == ASHLAR_OK) {
            status = ashlar_stream_wait(ranks[0].device, ranks[0].collective, r->event);
        }
    }
    if (status == ASHLAR_OK) {
        status = ashlar_launch(ranks[0].device, ranks[0].collective, run_job, &j, sizeof j);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_event_record(ranks[0].device, ranks[0].event, ranks[0].collective);
    }
    for (size_t i = 1; i < rank_count && status == ASHLAR_OK; i++) {
        status = ashlar_stream_wait(ranks[i].device, ranks[i].collective, ranks[0].event);
    }
    return status;
}

/* The last one to come queues the job; the others leave when it has. */
static ashlar_status meet(rank *r) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&engine.lock);
    const uint64_t round = engine.round;
    if (++engine.arrived == rank_count) {
        engine.status = queue_job();
        engine.arrived = 0;
        engine.round++;
        pthread_cond_broadcast(&engine.changed);
    }
    int waited = 0;
    while (engine.round == round && waited == 0) {
        waited = pthread_cond_timedwait(&engine.changed, &engine.lock, &until);
    }
    const ashlar_status status = waited == 0 ? engine.status : ASHLAR_EIO;
    pthread_mutex_unlock(&engine.lock);
    r->bad_count += status != ASHLAR_OK;
    return status;
}

static ashlar_status call(char kind, rank *r, void *data, size_t elements, ashlar_dtype dtype,
                          size_t root, ashlar_stream stream) {
    const ashlar_region region =
        kind == 'r' || kind == 's' ? ASHLAR_REGION_GRADIENTS : ASHLAR_REGION_PARAMETERS;
    pthread_mutex_lock(&engine.lock);
    r->bad_count += stream != r->collective;
    r->kind = kind;
    r->data = data;
    r->offset = (size_t)(r->data - (unsigned char *)ashlar_arena_region(r->arena, region));
    r->elements = elements;
    r->dtype = dtype;
    r->root = root;
    pthread_mutex_unlock(&engine.lock);
    return meet(r);
}

static ashlar_status broadcast(void *context, void *data, size_t elements, ashlar_dtype dtype,
                               size_t root, ashlar_stream stream) {
    return call('b', context, data, elements, dtype, root, stream);
}

static ashlar_status all_reduce(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                ashlar_stream stream) {
    return call('r', context, data, elements, dtype, 0, stream);
}

static ashlar_status reduce_scatter(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                    ashlar_stream stream) {
    return call('s', context, data, elements, dtype, 0, stream);
}

static ashlar_status all_gather(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                ashlar_stream stream) {
    return call('g', context, data, elements, dtype, 0, stream);
}

/* ---- a rank ---- */

/* Work on one tensor of one rank. */
typedef struct work {
    unsigned char *ptr;
    size_t elements, tensor;
    ashlar_dtype dtype;
    double scale;
    long *wrong;
} work;

/* A small whole number for each element of each tensor. */
static double pattern(size_t tensor, size_t i) {
    return (double)((tensor + 1) * (1 + i % 3));
}

static void write_work(void *args) {
    const work *w = args;
    for (size_t i = 0; i < w->elements; i++) {
        write_element(w->ptr + i * ashlar_dtype_bytes(w->dtype), w->dtype,
                      w->scale * pattern(w->tensor, i));
    }
}

static void verify_work(void *args) {
    const work *w = args;
    for (size_t i = 0; i < w->elements; i++) {
        *w->wrong += read_element(w->ptr + i * ashlar_dtype_bytes(w->dtype), w->dtype) !=
                     w->scale * pattern(w->tensor, i);
    }
}

static void queue_work(rank *r, ashlar_region region, size_t tensor, ashlar_stream stream,
                       double scale, void (*fn)(void *)) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(r->arena, tensor, &info);
    const work w = {ashlar_arena_view(r->arena, region, tensor),
                    info.elements,
                    tensor,
                    info.dtype,
                    scale,
                    &r->wrong};
    r->bad_count += ashlar_launch(r->device, stream, fn, &w, sizeof w) != ASHLAR_OK;
}

/* The sum over ranks of what each scales its pattern with. */
static double sum_of_scales(int step) {
    double sum = 0;
    for (size_t i = 0; i < rank_count; i++) {
        sum += (double)(i + 1) + step;
    }
    return sum;
}

/* Write and report every gradient, in an order of the rank's and step's own. */
static void run_backward(rank *r, int step) {
    for (size_t n = 0; n < TENSORS; n++) {
        const size_t at = (n * (r->idx % 2 == 0 ? 5 : 1) + r->idx + (size_t)step) % TENSORS;
        const ashlar_stream stream = r->compute[(n + r->idx) % COMPUTE];
        queue_work(r, ASHLAR_REGION_GRADIENTS, at, stream, (double)(r->idx + 1) + step, write_work);
        r->bad_count += ashlar_reducer_final(r->reducer, at, stream) != ASHLAR_OK;
    }
}

static void verify_all(rank *r, ashlar_region region, double scale) {
    for (size_t i = 0; i < TENSORS; i++) {
        queue_work(r, region, i, r->compute[0], scale, verify_work);
    }
    r->bad_count += ashlar_stream_synchronize(r->device, r->compute[0]) != ASHLAR_OK;
}

/* The next step's gradients are written on both streams, behind what was read of the last. */
static void join_streams(rank *r) {
    r->bad_count += ashlar_stream_synchronize(r->device, r->compute[0]) != ASHLAR_OK ||
                    ashlar_stream_synchronize(r->device, r->compute[1]) != ASHLAR_OK;
}

static void *train(void *arg) {
    rank *r = arg;
    for (int step = 0; step < STEPS; step++) {
        r->bad_count += ashlar_reducer_begin(r->reducer) != ASHLAR_OK;
        run_backward(r, step);
        r->bad_count += ashlar_reducer_finish(r->reducer, r->compute[0]) != ASHLAR_OK;
        verify_all(r, ASHLAR_REGION_GRADIENTS, sum_of_scales(step));
        join_streams(r);
    }
    return NULL;
}

/* Parameters := gradients, in the rank's part of each bucket. */
typedef struct update {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
} update;

static void run_update(void *args) {
    const update *u = args;
    memcpy(u->to, u->from, u->bytes);
}

static void *train_in_parts(void *arg) {
    rank *r = arg;
    for (int step = 0; step < STEPS; step++) {
        r->bad_count += ashlar_reducer_begin(r->reducer) != ASHLAR_OK;
        run_backward(r, step);
        r->bad_count += ashlar_reducer_finish(r->reducer, r->compute[0]) != ASHLAR_OK;
        for (size_t i = 0; i < ashlar_arena_bucket_count(r->arena); i++) {
            ashlar_arena_bucket b;
            ashlar_arena_get_bucket(r->arena, i, &b);
            const size_t part = b.bytes / rank_count, at = b.offset + part * r->idx;
            unsigned char *to = ashlar_arena_region(r->arena, ASHLAR_REGION_PARAMETERS);
            const unsigned char *from = ashlar_arena_region(r->arena, ASHLAR_REGION_GRADIENTS);
            const update u = {to + at, from + at, part};
            r->bad_count +=
                ashlar_launch(r->device, r->compute[0], run_update, &u, sizeof u) != ASHLAR_OK;
        }
        r->bad_count += ashlar_reducer_gather(r->reducer, r->compute[0]) != ASHLAR_OK;
        verify_all(r, ASHLAR_REGION_PARAMETERS, sum_of_scales(step));
        join_streams(r);
    }
    return NULL;
}

static void *take_parameters(void *arg) {
    rank *r = arg;
    for (size_t root = 0; root < rank_count; root++) {
        for (size_t i = 0; i < TENSORS; i++) {
            queue_work(r, ASHLAR_REGION_PARAMETERS, i, r->compute[0], (double)(r->idx + 1),
                       write_work);
        }
        r->bad_count += ashlar_reducer_broadcast(r->reducer, root, r->compute[0]) != ASHLAR_OK;
        verify_all(r, ASHLAR_REGION_PARAMETERS, (double)(root + 1));
    }
    return NULL;
}

/* ---- all of them ---- */

static ashlar_device *devices[DEVICES];
static ashlar_allocator *memories[DEVICES];

static bool set_up_devices(int seed) {
    char spec[80];
    (void)snprintf(spec, sizeof spec, "devices=2,memory=64MiB,mode=adversarial,seed=%d", seed);
    return ashlar__soft_configure(spec) == ASHLAR_OK &&
           ashlar_device_open("soft:0", &devices[0]) == ASHLAR_OK &&
           ashlar_device_open("soft:1", &devices[1]) == ASHLAR_OK &&
           ashlar_allocator_create(devices[0], &memories[0]) == ASHLAR_OK &&
           ashlar_allocator_create(devices[1], &memories[1]) == ASHLAR_OK;
}

/* Rank 0 declares; the others are replicas of it. */
static bool set_up_arena_of(rank *r) {
    ashlar_allocator *memory = memories[r->idx % DEVICES];
    if (r->idx > 0) {
        return ashlar_arena_replicate(ranks[0].arena, ranks[0].compute[0], memory, r->compute[0], 3,
                                      &r->arena) == ASHLAR_OK;
    }
    return ashlar_arena_create(&r->arena) == ASHLAR_OK && declare_all(r->arena) &&
           ashlar_arena_set_buckets(r->arena, 300, rank_count) == ASHLAR_OK &&
           ashlar_arena_commit(r->arena, memory, r->compute[0], 3) == ASHLAR_OK;
}

static bool set_up_rank(size_t idx, ashlar_reduction reduction) {
    rank *r = &ranks[idx];
    *r = (rank){.idx = idx, .device = devices[idx % DEVICES]};
    const ashlar_collectives collectives = {.context = r,
                                            .broadcast = broadcast,
                                            .all_reduce = all_reduce,
                                            .reduce_scatter = reduce_scatter,
                                            .all_gather = all_gather};
    return ashlar_stream_create(r->device, &r->compute[0]) == ASHLAR_OK &&
           ashlar_stream_create(r->device, &r->compute[1]) == ASHLAR_OK &&
           ashlar_stream_create(r->device, &r->collective) == ASHLAR_OK &&
           ashlar_event_create(r->device, &r->event) == ASHLAR_OK && set_up_arena_of(r) &&
           ashlar_stream_synchronize(r->device, r->compute[0]) == ASHLAR_OK &&
           ashlar_reducer_create(r->arena, &collectives, reduction, r->collective, &r->reducer) ==
               ASHLAR_OK;
}

static void tear_down_ranks(void) {
    for (size_t i = 0; i < rank_count; i++) {
        rank *r = &ranks[i];
        ashlar_reducer_destroy(r->reducer);
        ashlar_arena_destroy(r->arena);
        ashlar_event_destroy(r->device, r->event);
        ashlar_stream_destroy(r->device, r->collective);
        ashlar_stream_destroy(r->device, r->compute[0]);
        ashlar_stream_destroy(r->device, r->compute[1]);
    }
    for (size_t i = 0; i < DEVICES; i++) {
        ashlar_allocator_destroy(memories[i]);
        ashlar_device_close(devices[i]);
    }
}

/* Every rank runs `fn`, for worlds of 2 to 4 and several seeds. */
static void run_ranks(ashlar_reduction reduction, void *(*fn)(void *)) {
    for (rank_count = 2; rank_count <= RANKS_MAX; rank_count++) {
        for (int seed = 1; seed <= 8; seed++) {
            REQUIRE(set_up_devices(seed));
            for (size_t i = 0; i < rank_count; i++) {
                REQUIRE(set_up_rank(i, reduction));
            }
            for (size_t i = 0; i < rank_count; i++) {
                REQUIRE(pthread_create(&ranks[i].thread, NULL, fn, &ranks[i]) == 0);
            }
            for (size_t i = 0; i < rank_count; i++) {
                CHECK(pthread_join(ranks[i].thread, NULL) == 0);
                CHECK(ranks[i].bad_count == 0 && ranks[i].wrong == 0);
                CHECK(ashlar_arena_check(ranks[i].arena) == ASHLAR_OK);
            }
            tear_down_ranks();
        }
    }
}

CASE(every_rank_has_the_sum_of_all) {
    run_ranks(ASHLAR_REDUCTION_ALL, train);
}

CASE(ranks_that_update_their_parts_have_all_parameters) {
    run_ranks(ASHLAR_REDUCTION_SCATTER, train_in_parts);
}

CASE(every_rank_has_the_parameters_of_the_root) {
    run_ranks(ASHLAR_REDUCTION_ALL, take_parameters);
}

RUN_CASES()
