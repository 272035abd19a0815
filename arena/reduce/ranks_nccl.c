/* ranks_nccl.c - the collectives of ashlar_ranks on CUDA devices, by NCCL; a thread aborts them
 * when another rank is gone.
 *
 * The host agrees with the other ranks before it queues a collective, since one that not all ranks
 * queue never ends, and may spoil memory. A collective that hangs after that is aborted by a
 * watching thread, since the program's threads may be waiting for the device.
 *
 * The tree of ASHLAR_RANKS_TREE has a communicator of two ranks for each of its rounds. A sum of
 * two has one rounding, and is the same in either order: NCCL's way of adding cannot matter. */
#include <inttypes.h>
#include <time.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/base/threads.h"
#include "allocator/base/shared_library.h"
#include "allocator/device/device_impl.h"
#include "arena/reduce/ranks_impl.h"

enum {
    MARKS = 64,          /* the most queued collectives that have an event to watch them by */
    ROUNDS_MOST = 16,    /* of the tree: it has up to 2^16 ranks */
    SEGMENTS_MOST = 16,  /* the most segments that are registered at a time */
    LOOK_NS = 10000000,  /* between two looks of the watching thread */
    PROGRESS_NS = 50000, /* between two questions to NCCL whether a call has ended */
};

/* A queued collective, for the watching thread. */
typedef struct mark {
    ashlar_event event; /* recorded behind the collective */
    ashlar_ranks_word word;
} mark;

/* Memory that is registered with every communicator. */
typedef struct segment {
    void *base;
    void *handles[1 + ROUNDS_MOST]; /* [i]: NCCL's, from comm_at(i); NULL: not registered there */
} segment;

typedef struct ashlar_ranks_nccl {
    const ashlar_nccl *nccl;
    /* NCCL allows one thread at a time in a communicator. Guarded by `lock`: */
    ashlar_lock lock;
    nccl_comm all, rounds[ROUNDS_MOST]; /* NULL: not joined, or aborted */
    size_t round_count;
    segment segments[SEGMENTS_MOST];
    size_t segment_count;
    /* marks[i % MARKS] is collective i's: it is written before `queued` exceeds i, and not again
     * before `ended` exceeds i: */
    mark marks[MARKS];
    _Atomic uint64_t queued, ended;
    atomic_bool is_over;
    bool is_watched;
    pthread_t watcher;
} ashlar_ranks_nccl;

static void sleep_ns(long ns) {
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Fail with NCCL's reason, on this rank and in ashlar_ranks_check(). */
static ashlar_status fail_nccl(ashlar_ranks *r, nccl_comm comm, const char *what,
                               nccl_result result) {
    const ashlar_nccl *nccl = r->nccl->nccl;
    const char *detail = nccl->get_last_error(comm);
    const ashlar_status status = ashlar__fail(ASHLAR_EIO, "rank %zu: %s: %s (%d)%s%s", r->rank,
                                              what, nccl->get_error_string(result), (int)result,
                                              *detail == '\0' ? "" : ": ", detail);
    (void)ashlar__ranks_fail(r, "%s", ashlar_error_detail());
    return status;
}

/* Wait until NCCL has ended a call, which may go on after it has returned. Lock: held. */
static ashlar_status await_locked(ashlar_ranks *r, nccl_comm comm, const char *what,
                                  nccl_result result) {
    const ashlar_nccl *nccl = r->nccl->nccl;
    const uint64_t end = ashlar__clock_ns() + r->timeout_ns;
    ASHLAR_OWNS(&r->nccl->lock);
    while (result == NCCL_IN_PROGRESS && ashlar__clock_ns() < end) {
        sleep_ns(PROGRESS_NS);
        const nccl_result asked = nccl->comm_get_async_error(comm, &result);
        result = asked == NCCL_SUCCESS ? result : asked;
    }
    return result == NCCL_SUCCESS ? ASHLAR_OK : fail_nccl(r, comm, what, result);
}

/* Communicator 0 is that of all ranks; 1 and up are those of the tree's rounds. */
static nccl_comm *comm_at(ashlar_ranks_nccl *n, size_t i) {
    return i == 0 ? &n->all : &n->rounds[i - 1];
}

/* Abort all communicators: what is queued on this rank ends, unfinished. Lock: held. */
static void abort_locked(ashlar_ranks_nccl *n) {
    ASHLAR_OWNS(&n->lock);
    for (size_t i = 0; i <= n->round_count; i++) {
        nccl_comm *comm = comm_at(n, i);
        if (*comm != NULL) {
            (void)n->nccl->comm_abort(*comm);
            *comm = NULL;
        }
    }
}

/* ---- the thread that watches ---- */

/* Count the collectives that have ended, and report one that takes too long as hung. *since: when
 * the oldest one that has not ended became the oldest. */
static void follow(ashlar_ranks *r, uint64_t *since) {
    ashlar_ranks_nccl *n = r->nccl;
    ashlar_driver *driver = r->device->driver;
    const uint64_t queued = atomic_load_explicit(&n->queued, memory_order_acquire);
    uint64_t ended = atomic_load(&n->ended);
    cu_result result = CU_SUCCESS;
    while (ended < queued && result == CU_SUCCESS) {
        /* Not by ASHLAR_DRIVER_CALL, which counts: the program's counts are to be repeatable. */
        result = driver->table.event_query((cu_event)n->marks[ended % MARKS].event);
        ended += result == CU_SUCCESS;
    }
    if (result != CU_SUCCESS && result != CU_NOT_READY) {
        (void)ashlar__driver_error(driver, "cuEventQuery", result);
        (void)ashlar__ranks_fail(r, "rank %zu: %s", r->rank, ashlar_error_detail());
        return;
    }
    const uint64_t now = ashlar__clock_ns();
    *since = ended == queued || ended > atomic_load(&n->ended) ? now : *since;
    atomic_store_explicit(&n->ended, ended, memory_order_release);
    if (now - *since > r->timeout_ns) {
        r->hung = n->marks[ended % MARKS].word;
        atomic_store_explicit(&r->is_hung, true, memory_order_release);
    }
}

/* Whether NCCL has found a failure itself, that of a connection for instance. Lock: held. */
static void ask_nccl_locked(ashlar_ranks *r) {
    ashlar_ranks_nccl *n = r->nccl;
    ASHLAR_OWNS(&n->lock);
    for (size_t i = 0; i <= n->round_count; i++) {
        const nccl_comm comm = *comm_at(n, i);
        nccl_result result = NCCL_SUCCESS;
        if (comm != NULL && n->nccl->comm_get_async_error(comm, &result) == NCCL_SUCCESS &&
            result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            (void)fail_nccl(r, comm, "a collective", result);
        }
    }
}

/* The watching thread; ends after the first failure. Its queries must not invalidate a capture. */
static void *watch(void *arg) {
    ashlar_ranks *r = arg;
    ashlar_ranks_nccl *n = r->nccl;
    unsigned int mode = CU_CAPTURE_RELAXED;
    uint64_t since = ashlar__clock_ns();
    if (ashlar__device_enter(r->device) != ASHLAR_OK) {
        return NULL;
    }
    (void)r->device->driver->table.thread_exchange_capture_mode(&mode);
    for (bool is_over = false; !is_over && !atomic_load(&n->is_over);) {
        sleep_ns(LOOK_NS);
        follow(r, &since);
        ashlar__lock_acquire(&n->lock);
        ask_nccl_locked(r);
        is_over = atomic_load(&r->has_failed) || atomic_load(&r->is_hung);
        if (is_over) {
            abort_locked(n);
        }
        ashlar__lock_release(&n->lock);
    }
    ashlar__device_leave(r->device);
    return NULL;
}

/* ---- a collective ---- */

static nccl_type type_of(ashlar_dtype dtype) {
    return dtype == ASHLAR_F32   ? NCCL_F32
           : dtype == ASHLAR_F64 ? NCCL_F64
           : dtype == ASHLAR_F16 ? NCCL_F16
                                 : NCCL_BF16;
}

static ashlar_status all_reduce_locked(const ashlar_ranks_call *c, nccl_comm comm,
                                       cu_stream stream) {
    return await_locked(c->ranks, comm, "ncclAllReduce",
                        c->ranks->nccl->nccl->all_reduce(c->data, c->data, c->elements,
                                                         type_of(c->dtype), NCCL_SUM, comm,
                                                         stream));
}

static ashlar_status sum_tree_locked(const ashlar_ranks_call *c, cu_stream stream) {
    ashlar_ranks *r = c->ranks;
    ASHLAR_OWNS(&r->nccl->lock);
    for (size_t i = 0; i < r->nccl->round_count; i++) {
        ASHLAR_TRY(all_reduce_locked(c, r->nccl->rounds[i], stream));
    }
    return ASHLAR_OK;
}

static ashlar_status call_locked(const ashlar_ranks_call *c, cu_stream stream) {
    ashlar_ranks *r = c->ranks;
    const ashlar_nccl *nccl = r->nccl->nccl;
    const nccl_comm all = r->nccl->all;
    const nccl_type type = type_of(c->dtype);
    const size_t each = c->elements / r->count;
    char *data = c->data, *own = data + r->rank * each * ashlar_dtype_bytes(c->dtype);
    ASHLAR_OWNS(&r->nccl->lock);
    switch (c->kind) {
    case ASHLAR_ENGINE_BROADCAST:
        return await_locked(
            r, all, "ncclBroadcast",
            nccl->broadcast(data, data, c->elements, type, (int)c->root, all, stream));
    case ASHLAR_ENGINE_ALL_REDUCE:
        return all_reduce_locked(c, all, stream);
    case ASHLAR_ENGINE_REDUCE_SCATTER:
        return await_locked(r, all, "ncclReduceScatter",
                            nccl->reduce_scatter(data, own, each, type, NCCL_SUM, all, stream));
    case ASHLAR_ENGINE_ALL_GATHER:
        return await_locked(r, all, "ncclAllGather",
                            nccl->all_gather(own, data, each, type, all, stream));
    }
    return ASHLAR_EINVAL;
}

/* Let the watching thread see when the collective has ended. If no mark is free, that of a later
 * collective will show it. */
static ashlar_status leave_mark(ashlar_ranks *r, const ashlar_ranks_word *word,
                                ashlar_stream stream) {
    ashlar_ranks_nccl *n = r->nccl;
    const uint64_t queued = atomic_load(&n->queued);
    mark *m = &n->marks[queued % MARKS];
    if (queued - atomic_load_explicit(&n->ended, memory_order_acquire) == MARKS) {
        return ASHLAR_OK;
    }
    m->word = *word;
    r->event_calls++;
    ASHLAR_TRY(ashlar_event_record(r->device, m->event, stream));
    atomic_store_explicit(&n->queued, queued + 1, memory_order_release);
    return ASHLAR_OK;
}

static ashlar_status call_nccl(const ashlar_ranks_call *c, ashlar_stream stream) {
    ashlar_ranks *r = c->ranks;
    ashlar_ranks_nccl *n = r->nccl;
    const bool is_tree = ashlar__ranks_adds(c->kind) && c->order == ASHLAR_RANKS_TREE;
    ASHLAR_TRY(ashlar__device_enter(r->device));
    ashlar__lock_acquire(&n->lock);
    ashlar_status status = ASHLAR_OK;
    if (n->all != NULL) { /* else the watching thread has aborted all: the next check says so */
        status =
            is_tree ? sum_tree_locked(c, (cu_stream)stream) : call_locked(c, (cu_stream)stream);
    }
    if (status != ASHLAR_OK) {
        abort_locked(n);
    }
    ashlar__lock_release(&n->lock);
    ashlar__device_leave(r->device);
    return status == ASHLAR_OK ? leave_mark(r, &c->word, stream) : status;
}

ashlar_status ashlar__ranks_nccl_queue(const ashlar_ranks_call *call, ashlar_stream stream) {
    ashlar_ranks *r = call->ranks;
    if (r->count == 1) {
        return ASHLAR_OK;
    }
    const uint64_t start = ashlar__clock_ns();
    const bool is_good = ashlar_ranks_check(r) == ASHLAR_OK && ashlar__ranks_agree(r, &call->word);
    atomic_fetch_add(&r->spent_ns, ashlar__clock_ns() - start);
    return is_good ? call_nccl(call, stream) : ashlar_ranks_check(r);
}

/* ---- memory ---- */

static void drop_segment_locked(ashlar_ranks_nccl *n, segment *s) {
    ASHLAR_OWNS(&n->lock);
    for (size_t i = 0; i <= n->round_count; i++) {
        const nccl_comm comm = *comm_at(n, i);
        if (comm != NULL && s->handles[i] != NULL) {
            (void)n->nccl->comm_deregister(comm, s->handles[i]); /* nothing else can be done */
        }
    }
    *s = n->segments[--n->segment_count];
}

static ashlar_status attach_locked(const ashlar_ranks_call *c) {
    ashlar_ranks *r = c->ranks;
    ashlar_ranks_nccl *n = r->nccl;
    segment *s = &n->segments[n->segment_count++];
    ASHLAR_OWNS(&n->lock);
    *s = (segment){.base = c->data};
    for (size_t i = 0; i <= n->round_count; i++) {
        const nccl_comm comm = *comm_at(n, i);
        const nccl_result result =
            n->nccl->comm_register(comm, c->data, c->elements, &s->handles[i]);
        const ashlar_status status = await_locked(r, comm, "ncclCommRegister", result);
        if (status != ASHLAR_OK) {
            drop_segment_locked(n, s);
            return status;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__ranks_nccl_attach(const ashlar_ranks_call *c) {
    ashlar_ranks *r = c->ranks;
    ashlar_ranks_nccl *n = r->nccl;
    if (r->count == 1) {
        return ASHLAR_OK;
    }
    ASHLAR_FAIL_IF(n->segment_count == SEGMENTS_MOST, ASHLAR_EINVAL,
                   "ranks: %d segments are attached; detach one", SEGMENTS_MOST);
    if (ashlar_ranks_check(r) != ASHLAR_OK || !ashlar__ranks_agree(r, &c->word)) {
        return ashlar_ranks_check(r);
    }
    ASHLAR_TRY(ashlar__device_enter(r->device));
    ashlar__lock_acquire(&n->lock);
    const ashlar_status status = n->all != NULL ? attach_locked(c) : ASHLAR_OK;
    ashlar__lock_release(&n->lock);
    ashlar__device_leave(r->device);
    return status;
}

ashlar_status ashlar__ranks_nccl_detach(ashlar_ranks *r, void *base) {
    ashlar_ranks_nccl *n = r->nccl;
    bool is_found = r->count == 1;
    ASHLAR_TRY(ashlar__device_enter(r->device));
    ashlar__lock_acquire(&n->lock);
    for (size_t i = n->segment_count; i-- > 0 && !is_found;) {
        is_found = n->segments[i].base == base;
        if (is_found) {
            drop_segment_locked(n, &n->segments[i]);
        }
    }
    ashlar__lock_release(&n->lock);
    ashlar__device_leave(r->device);
    ASHLAR_FAIL_IF(!is_found, ASHLAR_EINVAL, "ranks: no segment at %p is attached", base);
    return ASHLAR_OK;
}

bool ashlar__ranks_nccl_attaches(const ashlar_ranks *r) {
    return r->nccl->nccl->comm_register != NULL && r->nccl->nccl->comm_deregister != NULL;
}

/* ---- joining and parting ---- */

/* Join `count` of the ranks, of which this one is number `own`, by an id that all of them have. */
static ashlar_status join_locked(ashlar_ranks *r, const nccl_id *id, size_t own, size_t count,
                                 nccl_comm *comm) {
    nccl_config config = {.size = sizeof config,
                          .magic = NCCL_CONFIG_MAGIC,
                          .version = NCCL_CONFIG_VERSION,
                          .is_blocking = 0};
    ASHLAR_OWNS(&r->nccl->lock);
    const nccl_result result = r->nccl->nccl->comm_init(comm, (int)count, *id, (int)own, &config);
    return await_locked(r, *comm, "ncclCommInitRankConfig", result);
}

/* Make an id on rank `from`, and send it to ranks `to` .. `end` - 1. */
static ashlar_status share_id(ashlar_ranks *r, size_t from, size_t to, size_t end, nccl_id *id) {
    if (r->rank == from) {
        const nccl_result result = r->nccl->nccl->get_id(id);
        ASHLAR_TRY(result == NCCL_SUCCESS ? ASHLAR_OK
                                          : fail_nccl(r, NULL, "ncclGetUniqueId", result));
    }
    for (; to < end; to++) {
        if (!ashlar__ranks_pass(r, from, to, id, sizeof *id)) {
            return ashlar_ranks_check(r);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status join_all_locked(ashlar_ranks *r) {
    ashlar_ranks_nccl *n = r->nccl;
    nccl_id id;
    ASHLAR_TRY(share_id(r, 0, 1, r->count, &id));
    ASHLAR_TRY(join_locked(r, &id, r->rank, r->count, &n->all));
    for (size_t distance = 1; r->order == ASHLAR_RANKS_TREE && distance < r->count; distance *= 2) {
        const size_t lower = r->rank & ~distance, upper = r->rank | distance;
        ASHLAR_TRY(share_id(r, lower, upper, upper + 1, &id));
        nccl_comm *pair = &n->rounds[n->round_count++];
        ASHLAR_TRY(join_locked(r, &id, r->rank == upper, 2, pair));
    }
    return ASHLAR_OK;
}

/* Relaxed, since NCCL allocates device memory in here, which another thread's capture may forbid.
 */
static ashlar_status join(ashlar_ranks *r) {
    ASHLAR_TRY(ashlar__device_enter_relaxed(r->device));
    ashlar__lock_acquire(&r->nccl->lock);
    const ashlar_status status = join_all_locked(r);
    ashlar__lock_release(&r->nccl->lock);
    ashlar__device_leave_relaxed(r->device);
    return status;
}

static ashlar_status start(ashlar_ranks *r) {
    ashlar_ranks_nccl *n = r->nccl;
    ASHLAR_TRY(ashlar__nccl_open(&n->nccl));
    for (size_t i = 0; i < MARKS; i++) {
        ASHLAR_TRY(ashlar_event_create(r->device, &n->marks[i].event));
    }
    if (r->count == 1) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(join(r));
    n->is_watched = pthread_create(&n->watcher, NULL, watch, r) == 0;
    return n->is_watched ? ASHLAR_OK
                         : ashlar__fail(ASHLAR_EHOSTMEM, "no thread to watch NCCL's collectives");
}

ashlar_status ashlar__ranks_nccl_open(ashlar_ranks *r) {
    ASHLAR_HOST_NEW(r->nccl, 1, "no host memory for NCCL's collectives");
    ashlar__lock_init(&r->nccl->lock, ASHLAR_LEVEL_LIBRARY_HANDLE);
    const ashlar_status status = start(r);
    if (status != ASHLAR_OK) {
        ashlar__ranks_nccl_close(r, true);
        return status;
    }
    return ASHLAR_OK;
}

/* Leave all communicators together with the other ranks. If has_failed, or this fails, abort. */
static void part_locked(ashlar_ranks *r, bool has_failed) {
    ashlar_ranks_nccl *n = r->nccl;
    ASHLAR_OWNS(&n->lock);
    while (n->segment_count > 0 && !has_failed) {
        drop_segment_locked(n, &n->segments[n->segment_count - 1]);
    }
    for (size_t i = 0; i <= n->round_count && !has_failed; i++) {
        nccl_comm *comm = comm_at(n, i);
        if (*comm != NULL) {
            has_failed = await_locked(r, *comm, "ncclCommFinalize",
                                      n->nccl->comm_finalize(*comm)) != ASHLAR_OK;
        }
        if (*comm != NULL && !has_failed) {
            (void)n->nccl->comm_destroy(*comm);
            *comm = NULL;
        }
    }
    abort_locked(n);
}

void ashlar__ranks_nccl_close(ashlar_ranks *r, bool has_failed) {
    ashlar_ranks_nccl *n = r->nccl;
    atomic_store(&n->is_over, true);
    if (n->is_watched) {
        (void)pthread_join(n->watcher, NULL);
    }
    if (ashlar__device_enter(r->device) == ASHLAR_OK) {
        ashlar__lock_acquire(&n->lock);
        part_locked(r, has_failed);
        ashlar__lock_release(&n->lock);
        ashlar__device_leave(r->device);
    }
    for (size_t i = 0; i < MARKS; i++) {
        ashlar_event_destroy(r->device, n->marks[i].event);
    }
    ashlar__lock_finish(&n->lock);
    ashlar__host_free(n);
    r->nccl = NULL;
}

/* ---- the library ---- */

#define SYMBOL(field, symbol, returned, params) #symbol,
static const char *const names[] = {ASHLAR_NCCL_MAP(SYMBOL)};
enum { FUNCTION_COUNT = sizeof names / sizeof names[0] };
_Static_assert(FUNCTION_COUNT * sizeof(void (*)(void)) == sizeof(ashlar_nccl), "only functions");

/* Since 2.14 there are communicators whose calls do not block, so that they can be aborted. */
static ashlar_status check_version(const void *functions) {
    const ashlar_nccl *nccl = functions;
    int version = 0;
    const nccl_result result = nccl->get_version(&version);
    ASHLAR_FAIL_IF(result != NCCL_SUCCESS || version < NCCL_CONFIG_VERSION, ASHLAR_ENOTSUP,
                   "NCCL is of version %d, before 2.14 (%d): install a newer one", version,
                   NCCL_CONFIG_VERSION);
    return ASHLAR_OK;
}

ashlar_status ashlar__nccl_open(const ashlar_nccl **out) {
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY)};
    static ashlar_nccl functions;
    static const ashlar_shared_library library = {
        .what = "NCCL",
        .variable = "ASHLAR_NCCL",
        .names = {"libnccl.so.2"},
        .functions = names,
        .function_count = FUNCTION_COUNT,
        .optional_count = ASHLAR_NCCL_OPTIONAL,
        .check = check_version,
    };
    ASHLAR_TRY(ashlar__shared_load(&once, &library, &functions));
    *out = &functions;
    return ASHLAR_OK;
}
