/* ranks.c - joins and leaves the processes that train together; fills reduce.h's table with
 * collectives that run between them. */
#include "arena/reduce/ranks_impl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"
#include "allocator/base/random.h"
#include "allocator/device/device_graph.h"

enum { DEFAULT_TIMEOUT_MS = 120000, LAST_WORDS_NS = 200000000 };

/* What launchers tell the processes that they start: how many there are. */
static const struct launcher {
    const char *variable, *library;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "libashlar-mpi-openmpi.so"},
    {"PMI_SIZE", "libashlar-mpi-mpich.so"},
};
enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

/* The number that a launcher has set; 0: it has not. */
static size_t read_count(const struct launcher *l) {
    const char *text = secure_getenv(l->variable);
    uint64_t count = 0;
    return text != NULL && ashlar__parse_count(ashlar__piece_of(text), &count) ? (size_t)count : 0;
}

static const struct launcher *find_launcher(void) {
    for (size_t i = 0; i < LAUNCHERS; i++) {
        if (read_count(&launchers[i]) > 0) {
            return &launchers[i];
        }
    }
    return NULL;
}

size_t ashlar_ranks_started(void) {
    const struct launcher *l = find_launcher();
    return l == NULL ? 1 : read_count(l);
}

static const char *library_name(const char *given) {
    const char *named = given != NULL ? given : secure_getenv("ASHLAR_MPI");
    const struct launcher *l = find_launcher();
    return named != NULL && *named != '\0' ? named : l != NULL ? l->library : launchers[0].library;
}

/* RTLD_GLOBAL, since Open MPI loads plugins, which look for the symbols of what loaded them. If the
 * build found an MPI under neither name of `launchers`, the library is called libashlar-mpi.so. */
static ashlar_status load(ashlar_ranks *r, const char *given) {
    const char *name = library_name(given);
    const bool is_found = strncmp(name, "libashlar-mpi-", strlen("libashlar-mpi-")) == 0;
    r->library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (r->library == NULL && is_found) {
        r->library = dlopen("libashlar-mpi.so", RTLD_NOW | RTLD_GLOBAL);
    }
    ASHLAR_FAIL_IF(
        r->library == NULL, ASHLAR_ENOTSUP,
        "ranks: %s; build ashlar where this MPI is, or name its ashlar-mpi by ASHLAR_MPI",
        dlerror());
    ashlar_engine_fn *entry;
    void *symbol = dlsym(r->library, ASHLAR_ENGINE_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* C has no conversion */
    ASHLAR_FAIL_IF(symbol == NULL || entry()->version != ASHLAR_ENGINE_VERSION, ASHLAR_ENOTSUP,
                   "ranks: %s is of another version of ashlar", name);
    r->engine = entry();
    return ASHLAR_OK;
}

static ashlar_status take_memory(ashlar_ranks *r) {
    r->words = ashlar__host_calloc(r->count, sizeof *r->words);
    r->requests = ashlar__host_calloc(r->count, sizeof *r->requests);
    r->staging = ashlar__host_calloc(1, ASHLAR_RANKS_STAGING_BYTES);
    ASHLAR_FAIL_IF(r->words == NULL || r->requests == NULL || r->staging == NULL, ASHLAR_EHOSTMEM,
                   "no host memory for %zu ranks", r->count);
    return ASHLAR_OK;
}

static ashlar_status join(ashlar_ranks *r) {
    const char *error = r->engine->start(&r->rank, &r->count);
    if (error != NULL) {
        r->engine = NULL;
        return ashlar__fail(ASHLAR_ENOTSUP, "ranks: %s", error);
    }
    return take_memory(r);
}

/* Give back all but the library: MPI leaves threads and handlers in it. */
static void release(ashlar_ranks *r) {
    ashlar__host_free(r->words);
    ashlar__host_free(r->requests);
    ashlar__host_free(r->staging);
    ashlar__host_free(r);
}

static void leave_failed(ashlar_ranks *r) {
    if (r->engine != NULL) {
        r->engine->abort(1);
    }
    release(r);
}

ashlar_status ashlar_ranks_open(const char *library, uint32_t timeout_ms, ashlar_ranks **out) {
    ashlar_ranks *r;
    ASHLAR_HOST_NEW(r, 1, "no host memory for ranks");
    r->timeout_ns = (timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : timeout_ms) * UINT64_C(1000000);
    ashlar_status status = load(r, library);
    ASHLAR_THEN(status, join(r));
    ASHLAR_HAND_OUT(status, r, leave_failed, out);
}

void ashlar_ranks_close(ashlar_ranks *r, bool has_failed) {
    if (r == NULL) {
        return;
    }
    if (has_failed) { /* wait: launchers lose output that was written just before */
        (void)nanosleep(&(struct timespec){.tv_nsec = LAST_WORDS_NS}, NULL);
        r->engine->abort(1);
    } else {
        ASHLAR_CHECK2(r->nccl == NULL); /* else NCCL's watching thread still uses the device */
        r->engine->stop();
    }
    release(r);
}

size_t ashlar_ranks_rank(const ashlar_ranks *r) {
    return r->rank;
}

size_t ashlar_ranks_count(const ashlar_ranks *r) {
    return r->count;
}

/* ---- the table ---- */

/* A checksum of all that must be the same on every rank. */
static uint64_t sum_up(const ashlar_ranks_call *c, uint64_t facts) {
    const uint64_t parts[] = {(uint64_t)c->kind, (uint64_t)c->order, c->elements,
                              (uint64_t)c->dtype, c->root};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        facts = ashlar__random_mix(facts + parts[i]);
    }
    return facts;
}

void ashlar__ranks_number(ashlar_ranks *r, ashlar_ranks_call *call) {
    call->ranks = r;
    call->order = r->order;
    call->word = r->next;
    call->word.facts = sum_up(call, r->next.facts);
    r->next.number++;
}

static ashlar_status queue(ashlar_ranks *r, ashlar_ranks_call call, ashlar_stream stream) {
    const ashlar_operand operands[] = {
        {"data", call.data, ashlar__operand_bytes(call.elements, 1, ashlar_dtype_bytes(call.dtype)),
         false},
        {0}};
    ASHLAR_TRY(ashlar__check_operands(r->device, "a collective", operands));
    ashlar__ranks_number(r, &call);
    if (r->nccl != NULL) {
        return ashlar__ranks_nccl_queue(&call, stream);
    }
    return ashlar_launch(r->device, stream, ashlar__ranks_run, &call, sizeof call);
}

static ashlar_status broadcast(void *context, void *data, size_t elements, ashlar_dtype dtype,
                               size_t root, ashlar_stream stream) {
    ashlar_ranks *r = context;
    ASHLAR_FAIL_IF(root >= r->count, ASHLAR_EINVAL, "broadcast: rank %zu of %zu", root, r->count);
    return queue(r,
                 (ashlar_ranks_call){.kind = ASHLAR_ENGINE_BROADCAST,
                                     .data = data,
                                     .elements = elements,
                                     .dtype = dtype,
                                     .root = root},
                 stream);
}

static ashlar_status all_reduce(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                ashlar_stream stream) {
    const ashlar_ranks_call call = {
        .kind = ASHLAR_ENGINE_ALL_REDUCE, .data = data, .elements = elements, .dtype = dtype};
    return queue(context, call, stream);
}

/* reduce_scatter and all_gather need equal shards, of no more elements than the engine counts. */
static ashlar_status queue_shards(ashlar_ranks *r, const ashlar_ranks_call *call,
                                  ashlar_stream stream) {
    ASHLAR_FAIL_IF(call->elements % r->count != 0 ||
                       call->elements / r->count > ASHLAR_ENGINE_ELEMENTS,
                   ASHLAR_EINVAL,
                   "%zu elements are not %zu equal shards of at most 2^28; see "
                   "ashlar_arena_set_buckets()",
                   call->elements, r->count);
    return queue(r, *call, stream);
}

static ashlar_status reduce_scatter(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                    ashlar_stream stream) {
    const ashlar_ranks_call call = {
        .kind = ASHLAR_ENGINE_REDUCE_SCATTER, .data = data, .elements = elements, .dtype = dtype};
    return queue_shards(context, &call, stream);
}

static ashlar_status all_gather(void *context, void *data, size_t elements, ashlar_dtype dtype,
                                ashlar_stream stream) {
    const ashlar_ranks_call call = {
        .kind = ASHLAR_ENGINE_ALL_GATHER, .data = data, .elements = elements, .dtype = dtype};
    return queue_shards(context, &call, stream);
}

static ashlar_status attach(void *context, void *base, size_t bytes) {
    ashlar_ranks *r = context;
    /* The root is no rank, so no other call has the same word. */
    ashlar_ranks_call call = {.kind = ASHLAR_ENGINE_BROADCAST,
                              .data = base,
                              .elements = bytes,
                              .dtype = ASHLAR_F32,
                              .root = r->count};
    ashlar__ranks_number(r, &call);
    return ashlar__ranks_nccl_attach(&call);
}

static ashlar_status detach(void *context, void *base) {
    return ashlar__ranks_nccl_detach(context, base);
}

ashlar_status ashlar_ranks_collectives(ashlar_ranks *r, ashlar_device *device,
                                       ashlar_ranks_order order, const ashlar_collectives **out) {
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    ASHLAR_FAIL_IF((unsigned)order >= ASHLAR_RANKS_ORDER_COUNT, ASHLAR_EINVAL,
                   "ranks: there is no order %d", (int)order);
    ASHLAR_FAIL_IF(order == ASHLAR_RANKS_TREE && (r->count & (r->count - 1)) != 0, ASHLAR_EINVAL,
                   "ranks: %zu ranks are no power of 2, as sums of the same bits need", r->count);
    ashlar_ranks_drop_collectives(r, false);
    r->device = device;
    r->order = order;
    ASHLAR_TRY(info.kind == ASHLAR_DEVICE_CUDA ? ashlar__ranks_nccl_open(r) : ASHLAR_OK);
    r->table = (ashlar_collectives){.context = r,
                                    .broadcast = broadcast,
                                    .all_reduce = all_reduce,
                                    .reduce_scatter = reduce_scatter,
                                    .all_gather = all_gather};
    if (r->nccl != NULL && ashlar__ranks_nccl_attaches(r)) {
        r->table.attach = attach;
        r->table.detach = detach;
    }
    *out = &r->table;
    return ASHLAR_OK;
}

void ashlar_ranks_drop_collectives(ashlar_ranks *r, bool has_failed) {
    if (r->nccl != NULL) {
        ashlar__ranks_nccl_close(r, has_failed || ashlar_ranks_check(r) != ASHLAR_OK);
    }
    r->device = NULL;
}

void ashlar_ranks_mark(ashlar_ranks *r, uint64_t step, uint64_t facts) {
    r->next = (ashlar_ranks_word){.step = step, .facts = facts};
}

ashlar_status ashlar_ranks_check(ashlar_ranks *r) {
    if (atomic_load_explicit(&r->is_hung, memory_order_acquire) && !atomic_load(&r->is_failing)) {
        ashlar__ranks_name(r, &r->hung);
    }
    return atomic_load_explicit(&r->has_failed, memory_order_acquire)
               ? ashlar__fail(ASHLAR_EIO, "%s", r->failure)
               : ASHLAR_OK;
}

double ashlar_ranks_seconds(const ashlar_ranks *r) {
    return 1e-9 * (double)atomic_load(&r->spent_ns);
}

bool ashlar_ranks_reports(const ashlar_ranks *r) {
    return !atomic_load_explicit(&r->has_failed, memory_order_acquire) || !r->is_told;
}
