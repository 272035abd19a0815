/* ranks.c - joins and leaves the processes (ranks) that train together; provides the collectives
 * that a reducer calls (ashlar_collectives). */
#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/compiler.h"
#include "allocator/base/error.h"
#include "allocator/base/parse.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"
#include "arena/reduce/ranks_impl.h"

enum { DEFAULT_TIMEOUT_MS = 120000, LAST_WORDS_NS = 200000000 };

/* For each MPI: the variable by which its launcher tells each process how many there are, and the
 * engine's library. */
static const struct launcher {
    const char *variable, *library;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "libashlar-mpi-openmpi.so"},
    {"PMI_SIZE", "libashlar-mpi-mpich.so"},
};
enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

/* The number of processes that a launcher has set; 0: this launcher was not used. */
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

static size_t started_count(void) {
    const struct launcher *l = find_launcher();
    return l == NULL ? 1 : read_count(l);
}

static const char *library_name(const char *given) {
    const char *named = given != NULL ? given : secure_getenv("ASHLAR_MPI");
    const struct launcher *l = find_launcher();
    return named != NULL && *named != '\0' ? named : l != NULL ? l->library : launchers[0].library;
}

/* Load the engine. RTLD_GLOBAL, since Open MPI loads plugins, which need the symbols of the MPI
 * library that loads them. If the build found an MPI other than those of `launchers`, the library
 * is called libashlar-mpi.so. */
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
    memcpy(&entry, &symbol, sizeof entry); /* C converts no object pointer to a function's */
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

/* Free all memory. The library stays loaded: MPI leaves threads and handlers that run its code. */
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

/* ---- a collective by the engine, in a stream's order ---- */

/* How much longer than rank 0 the other ranks wait: rank 0 knows which rank is missing, the others
 * only that rank 0 has not answered. So rank 0 reports first. */
static const uint64_t GRACE_NS = UINT64_C(3000000000);

/* After TURNS_AWAKE looks without news a waiting rank sleeps NAP_NS between looks. */
enum { TURNS_AWAKE = 4000, NAP_NS = 50000 };

#define fail ashlar__ranks_fail

bool ashlar__ranks_fail(ashlar_ranks *r, const char *format, ...) {
    va_list arguments;
    if (atomic_exchange(&r->is_failing, true)) {
        return false;
    }
    va_start(arguments, format);
    (void)vsnprintf(r->failure, sizeof r->failure, format, arguments);
    va_end(arguments);
    atomic_store_explicit(&r->has_failed, true, memory_order_release);
    return false;
}

static bool began(ashlar_ranks *r, const char *error) {
    return error == NULL || fail(r, "rank %zu: %s", r->rank, error);
}

/* Wait until all requests have ended. False: the time is over, and request *pending has not ended;
 * or something has failed, and *pending is `count`. */
static bool wait_for(ashlar_ranks *r, ashlar_engine_request *requests, size_t count,
                     uint64_t budget_ns, size_t *pending) {
    const uint64_t end = ashlar__clock_ns() + budget_ns;
    size_t first = 0;
    for (size_t turn = 0; first < count; turn++) {
        bool is_done = false;
        if (!began(r, r->engine->test(&requests[first], &is_done))) {
            *pending = count;
            return false;
        }
        if (is_done) {
            first++;
            turn = 0;
        } else if (turn > TURNS_AWAKE) {
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        } else {
            (void)sched_yield(); /* another rank may need this core */
        }
        if (!is_done && ashlar__clock_ns() > end) {
            *pending = first;
            return false;
        }
    }
    return true;
}

/* On rank 0: receive a message of every other rank, or send each the answer, and wait. False: the
 * message of or to rank *late did not arrive within the time, or something has failed. */
static bool exchange(ashlar_ranks *r, ashlar_engine_message kind, uint64_t budget_ns,
                     size_t *late) {
    const size_t bytes = kind == ASHLAR_MESSAGE_HERE ? 1 : sizeof *r->words;
    size_t pending = 0;
    for (size_t i = 1; i < r->count; i++) {
        ashlar_engine_request *request = &r->requests[i];
        const char *error = kind == ASHLAR_MESSAGE_ANSWER
                                ? r->engine->send(i, kind, &r->answer, sizeof r->answer, request)
                                : r->engine->receive(i, kind, &r->words[i], bytes, request);
        if (!began(r, error)) {
            return false;
        }
    }
    const bool is_done = wait_for(r, r->requests + 1, r->count - 1, budget_ns, &pending);
    *late = pending + 1;
    return is_done;
}

/* ---- agreement ---- */

static bool gather_words(ashlar_ranks *r, const ashlar_ranks_word *own) {
    size_t late = 0;
    return exchange(r, ASHLAR_MESSAGE_WORD, r->timeout_ns, &late) ||
           fail(r,
                "rank %zu did not come to bucket %" PRIu64 " of step %" PRIu64 " within %" PRIu64
                " s: it has ended, hangs, or is slower than --timeout",
                late, own->number, own->step, r->timeout_ns / UINT64_C(1000000000));
}

/* On rank 0: compare all ranks' words with its own, and write the answer for all. */
static void judge(ashlar_ranks *r, const ashlar_ranks_word *own) {
    r->answer = (ashlar_ranks_answer){.is_good = true};
    for (size_t i = 1; i < r->count && r->answer.is_good; i++) {
        const ashlar_ranks_word *got = &r->words[i];
        if (got->step == own->step && got->number == own->number && got->facts == own->facts) {
            continue;
        }
        r->answer.is_good = false;
        const bool is_there = got->step == own->step && got->number == own->number;
        (void)snprintf(r->answer.why, sizeof r->answer.why,
                       "rank %zu has diverged: it is at bucket %" PRIu64 " of step %" PRIu64
                       ", rank 0 at bucket %" PRIu64 " of step %" PRIu64 "%s",
                       i, got->number, got->step, own->number, own->step,
                       is_there ? ", with other sizes, options, data or program" : "");
    }
}

static bool answer_all(ashlar_ranks *r) {
    size_t late = 0;
    return exchange(r, ASHLAR_MESSAGE_ANSWER, r->timeout_ns, &late) ||
           fail(r, "rank %zu does not listen any more", late);
}

static bool ask(ashlar_ranks *r, const ashlar_ranks_word *own) {
    size_t pending = 0;
    ashlar_engine_request requests[2];
    r->words[0] = *own;
    if (!began(r, r->engine->receive(0, ASHLAR_MESSAGE_ANSWER, &r->answer, sizeof r->answer,
                                     &requests[0])) ||
        !began(r,
               r->engine->send(0, ASHLAR_MESSAGE_WORD, r->words, sizeof *r->words, &requests[1]))) {
        return false;
    }
    return wait_for(r, requests, 2, r->timeout_ns + GRACE_NS, &pending) ||
           fail(r,
                "rank 0 did not answer rank %zu at bucket %" PRIu64 " of step %" PRIu64
                ": it has ended, or hangs",
                r->rank, own->number, own->step);
}

bool ashlar__ranks_agree(ashlar_ranks *r, const ashlar_ranks_word *own) {
    if (r->rank > 0) {
        if (!ask(r, own)) {
            return false;
        }
        r->is_told = !r->answer.is_good;
        return r->is_told ? fail(r, "%s", r->answer.why) : true;
    }
    if (!gather_words(r, own)) {
        return false;
    }
    judge(r, own);
    if (!answer_all(r)) {
        return false;
    }
    return r->answer.is_good ? !atomic_load(&r->has_failed) : fail(r, "%s", r->answer.why);
}

bool ashlar__ranks_pass(ashlar_ranks *r, size_t from, size_t to, void *data, size_t bytes) {
    ashlar_engine_request request;
    size_t pending = 0;
    if (r->rank != from && r->rank != to) {
        return true;
    }
    const char *error = r->rank == from
                            ? r->engine->send(to, ASHLAR_MESSAGE_DATA, data, bytes, &request)
                            : r->engine->receive(from, ASHLAR_MESSAGE_DATA, data, bytes, &request);
    return (began(r, error) && wait_for(r, &request, 1, r->timeout_ns, &pending)) ||
           fail(r, "rank %zu does not talk to rank %zu: it has ended, or hangs",
                r->rank == from ? to : from, r->rank);
}

/* ---- the collectives ---- */

/* On rank 0, when a collective does not end: find a rank that does not say that it waits, too. */
static bool name_missing(ashlar_ranks *r, const ashlar_ranks_word *own) {
    size_t late = 0;
    if (exchange(r, ASHLAR_MESSAGE_HERE, GRACE_NS, &late)) {
        return fail(r, "bucket %" PRIu64 " of step %" PRIu64 " took longer than %" PRIu64 " s",
                    own->number, own->step, r->timeout_ns / UINT64_C(1000000000));
    }
    return fail(
        r, "rank %zu stopped in bucket %" PRIu64 " of step %" PRIu64 ": it has ended, or hangs",
        late, own->number, own->step);
}

/* On another rank: say that this one waits, too, and leave it to rank 0 to end all. */
static bool say_here(ashlar_ranks *r, const ashlar_ranks_word *own) {
    ashlar_engine_request request;
    size_t pending = 0;
    if (!began(r, r->engine->send(0, ASHLAR_MESSAGE_HERE, "", 1, &request))) {
        return false;
    }
    const uint64_t end = ashlar__clock_ns() + 2 * GRACE_NS;
    (void)wait_for(r, &request, 1, 2 * GRACE_NS, &pending);
    while (ashlar__clock_ns() < end) {
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return fail(r, "rank 0 stopped in bucket %" PRIu64 " of step %" PRIu64, own->number, own->step);
}

/* A collective did not end: find out which rank is missing, and fail. Rank 0 asks, and waits some
 * seconds for answers. Every other rank answers, then waits for rank 0 to end the process. */
static void find_culprit(ashlar_ranks *r, const ashlar_ranks_word *own) {
    (void)(r->rank == 0 ? name_missing(r, own) : say_here(r, own));
}

static bool finish(ashlar_ranks *r, ashlar_engine_request *requests, size_t count,
                   const ashlar_ranks_word *own) {
    size_t pending = 0;
    if (wait_for(r, requests, count, r->timeout_ns, &pending)) {
        return true;
    }
    if (!atomic_load(&r->has_failed)) {
        find_culprit(r, own);
    }
    return false;
}

/* Run the engine's collective in pieces of ASHLAR_ENGINE_ELEMENTS, the most that it can count. One
 * with a shard for each rank cannot be cut; queue_shards() has checked that its shards fit. */
static void run_engine(const ashlar_ranks_call *c) {
    ashlar_ranks *r = c->ranks;
    const bool is_cut =
        c->kind != ASHLAR_ENGINE_REDUCE_SCATTER && c->kind != ASHLAR_ENGINE_ALL_GATHER;
    const size_t most = is_cut ? ASHLAR_ENGINE_ELEMENTS : c->elements;
    const size_t item = ashlar_dtype_bytes(c->dtype);
    for (size_t at = 0; at < c->elements; at += most) {
        const size_t left = c->elements - at;
        ashlar_engine_request request;
        if (!began(r, r->engine->collect(c->kind, (char *)c->data + at * item,
                                         left < most ? left : most, c->dtype, c->root, &request)) ||
            !finish(r, &request, 1, &c->word)) {
            return;
        }
    }
    if (c->kind == ASHLAR_ENGINE_REDUCE_SCATTER && r->rank > 0) {
        const size_t shard = c->elements / r->count * item;
        memmove((char *)c->data + r->rank * shard, c->data, shard);
    }
}

/* Swap a piece with another rank, and add what came. Both get the same bits: a + b equals b + a. */
static bool swap_and_add(const ashlar_ranks_call *c, size_t other, char *data, size_t count) {
    ashlar_ranks *r = c->ranks;
    const size_t bytes = count * ashlar_dtype_bytes(c->dtype);
    ashlar_engine_request requests[2];
    if (!began(r,
               r->engine->receive(other, ASHLAR_MESSAGE_DATA, r->staging, bytes, &requests[0])) ||
        !began(r, r->engine->send(other, ASHLAR_MESSAGE_DATA, data, bytes, &requests[1])) ||
        !finish(r, requests, 2, &c->word)) {
        return false;
    }
    ashlar__sum_add(c->dtype, data, r->staging, count);
    return true;
}

/* Add up along a tree whose leaves are the ranks: after the round of distance d, each rank has the
 * sum over the node of 2d ranks that it is in. */
static void run_tree(const ashlar_ranks_call *c) {
    const ashlar_ranks *r = c->ranks;
    const size_t item = ashlar_dtype_bytes(c->dtype), most = ASHLAR_RANKS_STAGING_BYTES / item;
    for (size_t distance = 1; distance < r->count; distance *= 2) {
        for (size_t at = 0; at < c->elements; at += most) {
            const size_t left = c->elements - at, count = left < most ? left : most;
            if (!swap_and_add(c, r->rank ^ distance, (char *)c->data + at * item, count)) {
                return;
            }
        }
    }
}

static void run(const ashlar_ranks_call *c) {
    if (!ashlar__ranks_agree(c->ranks, &c->word)) {
        return;
    }
    if (ashlar__ranks_adds(c->kind) && c->order == ASHLAR_RANKS_TREE) {
        run_tree(c);
    } else {
        run_engine(c);
    }
}

/* The function to pass to ashlar_launch(): agrees with the other ranks on an ashlar_ranks_call,
 * then runs it. After a failure it does nothing. */
static void ranks_run(void *copied) {
    const ashlar_ranks_call *c = copied;
    const uint64_t start = ashlar__clock_ns();
    if (c->ranks->count > 1 && !atomic_load(&c->ranks->has_failed)) {
        run(c);
        atomic_fetch_add(&c->ranks->spent_ns, ashlar__clock_ns() - start);
    }
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

/* Give a collective of this rank its number, and the word that describes it, which rank 0 compares
 * with those of the other ranks. */
static void ranks_number(ashlar_ranks *r, ashlar_ranks_call *call) {
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
    ranks_number(r, &call);
    if (r->nccl != NULL) {
        return ashlar__ranks_nccl_queue(&call, stream);
    }
    return ashlar_launch(r->device, stream, ranks_run, &call, sizeof call);
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

/* Queue a reduce_scatter or all_gather: it needs equal shards, with no more elements than the
 * engine can count. */
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
    /* `root` is no rank, so that the word differs from that of a broadcast of the same size. */
    ashlar_ranks_call call = {.kind = ASHLAR_ENGINE_BROADCAST,
                              .data = base,
                              .elements = bytes,
                              .dtype = ASHLAR_F32,
                              .root = r->count};
    ranks_number(r, &call);
    return ashlar__ranks_nccl_attach(&call);
}

static ashlar_status detach(void *context, void *base) {
    return ashlar__ranks_nccl_detach(context, base);
}

ashlar_status ashlar_ranks_collectives(ashlar_ranks *r, ashlar_device *device,
                                       ashlar_ranks_order order, const ashlar_collectives **out) {
    const ashlar_device_info info = ashlar_device_get_info(device);
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
        find_culprit(r, &r->hung);
    }
    return atomic_load_explicit(&r->has_failed, memory_order_acquire)
               ? ashlar__fail(ASHLAR_EIO, "%s", r->failure)
               : ASHLAR_OK;
}

ashlar_ranks_info ashlar_ranks_get_info(const ashlar_ranks *r) {
    if (r == NULL) {
        return (ashlar_ranks_info){.count = started_count()};
    }
    return (ashlar_ranks_info){
        .rank = r->rank,
        .count = r->count,
        .seconds = 1e-9 * (double)atomic_load(&r->spent_ns),
        .event_calls = r->event_calls,
        .reports = !atomic_load_explicit(&r->has_failed, memory_order_acquire) || !r->is_told};
}

ashlar_status ashlar_ranks_sum(ashlar_ranks *r, double *numbers, size_t count) {
    ashlar_ranks_call call = {
        .kind = ASHLAR_ENGINE_ALL_REDUCE, .data = numbers, .elements = count, .dtype = ASHLAR_F64};
    ranks_number(r, &call);
    ranks_run(&call);
    return ashlar_ranks_check(r);
}
