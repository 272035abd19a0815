/*
 * engine.c - an ashlar-mpi for tests: ranks are processes that share the memory of engine.h, and
 * what is to fail there fails.
 */
#include "tests/arena/reduce/engine.h"

#include <string.h>
#include <unistd.h>

#include "arena/compute/convert.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT engine_self *engine_own(void);
EXPORT const ashlar_engine *ashlar_ranks_engine(void);

static engine_self self;

engine_self *engine_own(void) {
    return &self;
}

typedef enum pending_state { NOTHING, SEND, RECEIVE, COLLECT, POSTED } pending_state;

/* A request is one of these; a message has one of each direction and kind for each rank. */
typedef struct pending {
    pending_state state;
    engine_slot *slot;
    void *to;
    const void *from;
    size_t bytes;
    engine_call call;
    uint64_t number;
    bool is_deaf;
} pending;

enum { PENDING = 64 };
static pending all[PENDING];
static size_t begun;
static uint64_t collectives;

static const char *fails(engine_act act) {
    static const char *const why[] = {"no start", "no sending", "no receiving", "no collective",
                                      "no test"};
    int *left = &self.world->fails_at[act];
    return self.rank == self.world->failing_rank && *left > 0 && --*left == 0 ? why[act] : NULL;
}

static pending *begin(ashlar_engine_request *request, pending_state state) {
    pending *p = &all[begun++ % PENDING];
    *p = (pending){.state = state};
    memcpy(request->bytes, &p, sizeof p);
    return p;
}

/* ---- messages ---- */

static const char *start(size_t *rank, size_t *count) {
    while (self.world == NULL) { /* in a process of no world: as if another rank never came */
        (void)pause();
    }
    *rank = self.rank;
    *count = self.world->count;
    return fails(ENGINE_START);
}

static void stop(void) {
    atomic_fetch_add(&self.world->stopped, 1);
}

static void abort_all(int status) {
    atomic_store(&self.world->aborted[self.rank], status);
}

static const char *send(size_t to, ashlar_engine_message kind, const void *data, size_t bytes,
                        ashlar_engine_request *request) {
    pending *p = begin(request, SEND);
    p->slot = &self.world->slots[kind][self.rank][to];
    p->from = data;
    p->bytes = bytes;
    p->is_deaf = self.world->deaf_kind == (int)kind && self.world->deaf_rank == to;
    return fails(ENGINE_SEND);
}

static const char *receive(size_t from, ashlar_engine_message kind, void *data, size_t bytes,
                           ashlar_engine_request *request) {
    pending *p = begin(request, RECEIVE);
    p->slot = &self.world->slots[kind][from][self.rank];
    p->to = data;
    p->bytes = bytes;
    return fails(ENGINE_RECEIVE);
}

static void go_on_sending(pending *p) {
    if (!p->is_deaf && !atomic_load(&p->slot->is_full)) {
        memcpy(p->slot->data, p->from, p->bytes);
        p->slot->bytes = p->bytes;
        atomic_store(&p->slot->is_full, true);
        p->state = NOTHING;
    }
}

static void go_on_receiving(pending *p) {
    if (atomic_load(&p->slot->is_full) && p->slot->bytes == p->bytes) {
        memcpy(p->to, p->slot->data, p->bytes);
        atomic_store(&p->slot->is_full, false);
        p->state = NOTHING;
    }
}

/* ---- collectives ---- */

static const char *collect(ashlar_engine_collective kind, void *data, size_t elements,
                           ashlar_dtype dtype, size_t root, ashlar_engine_request *request) {
    pending *p = begin(request, self.world->is_dry ? NOTHING : COLLECT);
    p->call = (engine_call){kind, data, elements, root, dtype};
    p->number = ++collectives;
    if (self.call_count < ENGINE_CALLS) {
        self.calls[self.call_count++] = p->call;
    }
    atomic_store(&self.world->is_collecting, true);
    return fails(ENGINE_COLLECT);
}

static bool all_have(const _Atomic uint64_t *numbers, uint64_t number) {
    for (size_t i = 0; i < self.world->count; i++) {
        if (atomic_load(&numbers[i]) < number) {
            return false;
        }
    }
    return true;
}

static double element_of(const engine_call *c, size_t rank, size_t i) {
    double value = 0;
    ashlar__convert(ASHLAR_F64, &value, c->dtype,
                    self.world->data[rank] + i * ashlar_dtype_bytes(c->dtype), 1);
    return value;
}

/* Element i of what this rank gets, of elements first .. first + count - 1 of all. */
static void work_out(const engine_call *c, size_t first, size_t count, bool is_sum, size_t from) {
    for (size_t i = 0; i < count; i++) {
        double value = is_sum ? 0 : element_of(c, from, first + i);
        for (size_t rank = 0; is_sum && rank < self.world->count; rank++) {
            value += element_of(c, rank, first + i);
        }
        ashlar__convert(c->dtype, (char *)c->data + i * ashlar_dtype_bytes(c->dtype), ASHLAR_F64,
                        &value, 1);
    }
}

static void finish(const engine_call *c) {
    const size_t shard = c->elements / self.world->count;
    engine_call part = *c;
    switch (c->kind) {
    case ASHLAR_ENGINE_BROADCAST:
        work_out(c, 0, c->elements, false, c->root);
        break;
    case ASHLAR_ENGINE_ALL_REDUCE:
        work_out(c, 0, c->elements, true, 0);
        break;
    case ASHLAR_ENGINE_REDUCE_SCATTER: /* the rank's sums at the beginning */
        work_out(c, self.rank * shard, shard, true, 0);
        break;
    case ASHLAR_ENGINE_ALL_GATHER:
        for (size_t from = 0; from < self.world->count; from++) {
            part.data = (char *)c->data + from * shard * ashlar_dtype_bytes(c->dtype);
            work_out(&part, from * shard, shard, false, from);
        }
        break;
    }
}

static void go_on_collecting(pending *p) {
    engine_world *w = self.world;
    if (p->state == COLLECT && all_have(w->read, p->number - 1)) {
        memcpy(w->data[self.rank], p->call.data,
               p->call.elements * ashlar_dtype_bytes(p->call.dtype));
        atomic_store(&w->posted[self.rank], p->number);
        p->state = POSTED;
    }
    if (p->state == POSTED && !w->is_stuck && all_have(w->posted, p->number)) {
        finish(&p->call);
        atomic_store(&w->read[self.rank], p->number);
        p->state = NOTHING;
    }
}

static void go_on(pending *p) {
    if (p->state == SEND) {
        go_on_sending(p);
    } else if (p->state == RECEIVE) {
        go_on_receiving(p);
    } else if (p->state != NOTHING) {
        go_on_collecting(p);
    }
}

static const char *test(ashlar_engine_request *request, bool *is_done) {
    pending *p;
    memcpy(&p, request->bytes, sizeof p);
    for (size_t i = 0; i < PENDING; i++) {
        go_on(&all[i]);
    }
    *is_done = p->state == NOTHING;
    return fails(ENGINE_TEST);
}

const ashlar_engine *ashlar_ranks_engine(void) {
    static ashlar_engine engine = {
        .start = start,
        .stop = stop,
        .abort = abort_all,
        .send = send,
        .receive = receive,
        .collect = collect,
        .test = test,
    };
    engine.version = self.world == NULL ? ASHLAR_ENGINE_VERSION : self.world->version;
    return &engine;
}
