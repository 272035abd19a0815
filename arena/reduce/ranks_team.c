/* ranks_team.c - the engine of ranks that are threads of one process. A message is copied by the
 * rank that receives it. In a collective each rank does its share, in the memory of all ranks.
 *
 * Nothing here waits, with one exception. A rank that asks whether a request has ended makes the
 * next step of the request, if that has become possible. A rank that gives up stops all further
 * steps, and waits until no rank is in one: then its memory is its own again. */
#include "arena/reduce/ranks_team.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/reduce/sum.h"

const char ashlar__ranks_team_has_ended[] = "another rank has failed";

enum { MESSAGES = ASHLAR_MESSAGE_HERE + 1, BLOCK_ELEMENTS = 4096 };

/* A message on its way, one for each kind and pair of ranks. The sender fills it when it is empty
 * (data NULL); the receiver has copied it when it is empty again. */
typedef struct letter {
    _Atomic(const void *) data;
    size_t bytes; /* written before `data` */
} letter;

/* A collective that a rank has come to. */
typedef struct turn {
    ashlar_engine_collective kind;
    ashlar_dtype dtype;
    char *data;
    size_t elements, root;
} turn;

typedef struct team team;

typedef struct member {
    team *team;
    size_t rank;
    turn turn;                   /* written before `come`; stays until all are done with it */
    _Atomic uint64_t come, done; /* collectives that it has come to, and done its share of */
} member;

struct team {
    size_t count;
    atomic_size_t left; /* members that have not stopped */
    atomic_bool has_ended;
    atomic_size_t steppers; /* ranks that are in the memory of others */
    letter *letters;        /* [kind][from][to] */
    member members[];
};

typedef struct pending {
    letter *letter; /* NULL: a collective */
    void *data;     /* to receive into, or what is yet to be sent; NULL: that is under way */
    size_t bytes;
    bool is_received; /* a message to receive, not to send */
    bool is_shared;   /* a collective of which this rank has done its share */
} pending;
_Static_assert(sizeof(pending) <= ASHLAR_ENGINE_REQUEST_BYTES, "a request fits");

/* ---- steps ---- */

/* False: the team has ended. */
static bool step_in(team *t) {
    atomic_fetch_add(&t->steppers, 1);
    if (!atomic_load(&t->has_ended)) {
        return true;
    }
    atomic_fetch_sub(&t->steppers, 1);
    return false;
}

static void step_out(team *t) {
    atomic_fetch_sub(&t->steppers, 1);
}

static void give_up(void *self) {
    team *t = ((member *)self)->team;
    atomic_store(&t->has_ended, true);
    while (atomic_load(&t->steppers) > 0) {
        (void)sched_yield();
    }
}

/* ---- messages ---- */

static letter *letter_of(team *t, ashlar_engine_message kind, size_t from, size_t to) {
    ASHLAR_CHECK2((size_t)kind < MESSAGES && from < t->count && to < t->count);
    return &t->letters[((size_t)kind * t->count + from) * t->count + to];
}

static const char *keep(ashlar_engine_request *request, const pending *from) {
    memcpy(request->bytes, from, sizeof *from);
    return NULL;
}

/* True: the message has been received. */
static bool go_on_sending(pending *p) {
    if (atomic_load_explicit(&p->letter->data, memory_order_acquire) != NULL) {
        return false;
    }
    if (p->data == NULL) {
        return true;
    }
    p->letter->bytes = p->bytes;
    atomic_store_explicit(&p->letter->data, p->data, memory_order_release);
    p->data = NULL;
    return false;
}

static bool go_on_receiving(const pending *p, const char **error) {
    const void *data = atomic_load_explicit(&p->letter->data, memory_order_acquire);
    if (data == NULL) {
        return false;
    }
    if (p->letter->bytes != p->bytes) {
        *error = "a message has another length than was expected";
        return false;
    }
    memcpy(p->data, data, p->bytes);
    atomic_store_explicit(&p->letter->data, NULL, memory_order_release);
    return true;
}

static const char *send(void *self, size_t to, ashlar_engine_message kind, const void *data,
                        size_t bytes, ashlar_engine_request *request) {
    const member *m = self;
    pending p = {.letter = letter_of(m->team, kind, m->rank, to),
                 .data = (void *)(uintptr_t)data,
                 .bytes = bytes};
    (void)go_on_sending(&p); /* at once: a rank may wait for the answer before it asks about this */
    return keep(request, &p);
}

static const char *receive(void *self, size_t from, ashlar_engine_message kind, void *data,
                           size_t bytes, ashlar_engine_request *request) {
    const member *m = self;
    return keep(request, &(pending){.letter = letter_of(m->team, kind, from, m->rank),
                                    .data = data,
                                    .bytes = bytes,
                                    .is_received = true});
}

/* ---- collectives ---- */

static const char *collect(void *self, ashlar_engine_collective kind, void *data, size_t elements,
                           ashlar_dtype dtype, size_t root, ashlar_engine_request *request) {
    member *m = self;
    const uint64_t number = atomic_load(&m->come) + 1;
    m->turn = (turn){kind, dtype, data, elements, root};
    atomic_store_explicit(&m->come, number, memory_order_release);
    return keep(request, &(pending){.letter = NULL});
}

/* Whether all ranks have come to the collective that this rank is at; have_done: whether all have
 * done their shares of it. */
static bool all_are(const member *own, bool have_done) {
    const team *t = own->team;
    const uint64_t number = atomic_load(&own->come);
    for (size_t i = 0; i < t->count; i++) {
        const member *m = &t->members[i];
        if (atomic_load_explicit(have_done ? &m->done : &m->come, memory_order_acquire) < number) {
            return false;
        }
    }
    return true;
}

static char *at(const member *m, size_t element) {
    return m->turn.data + element * ashlar_dtype_bytes(m->turn.dtype);
}

/* Add elements from .. end - 1 of all other ranks, in the order of the ranks, to those of `into`.
 * copies: then copy the sums to all ranks. */
static void add_up(const member *own, const member *into, size_t from, size_t end, bool copies) {
    const team *t = own->team;
    const ashlar_dtype dtype = own->turn.dtype;
    for (size_t done = from; done < end; done += BLOCK_ELEMENTS) {
        const size_t left = end - done, count = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
        for (size_t i = 0; i < t->count; i++) {
            if (&t->members[i] != into) {
                ashlar__sum_add(dtype, at(into, done), at(&t->members[i], done), count);
            }
        }
        for (size_t i = 0; i < t->count && copies; i++) {
            if (&t->members[i] != into) {
                memcpy(at(&t->members[i], done), at(into, done), count * ashlar_dtype_bytes(dtype));
            }
        }
    }
}

/* Add up this rank's share of the elements of a sum that goes to one rank or to all. */
static void add_share(const member *own, const member *into, bool copies) {
    const size_t blocks = (own->turn.elements + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    const size_t each = (blocks + own->team->count - 1) / own->team->count * BLOCK_ELEMENTS;
    const size_t from = own->rank * each, end = from + each;
    if (from < own->turn.elements) {
        add_up(own, into, from, end < own->turn.elements ? end : own->turn.elements, copies);
    }
}

static void copy_from(const member *own, const member *m, size_t from, size_t count) {
    if (m != own) {
        memcpy(at(own, from), at(m, from), count * ashlar_dtype_bytes(own->turn.dtype));
    }
}

static void do_share(const member *own) {
    const team *t = own->team;
    const turn *c = &own->turn;
    const size_t shard = c->elements / t->count;
    switch (c->kind) {
    case ASHLAR_ENGINE_BROADCAST:
        copy_from(own, &t->members[c->root], 0, c->elements);
        break;
    case ASHLAR_ENGINE_ALL_REDUCE:
        add_share(own, &t->members[0], true);
        break;
    case ASHLAR_ENGINE_REDUCE:
        add_share(own, &t->members[c->root], false);
        break;
    case ASHLAR_ENGINE_REDUCE_SCATTER:
        add_up(own, own, own->rank * shard, (own->rank + 1) * shard, false);
        break;
    case ASHLAR_ENGINE_ALL_GATHER:
        for (size_t i = 0; i < t->count; i++) {
            copy_from(own, &t->members[i], i * shard, shard);
        }
        break;
    }
}

/* True: all ranks have done their shares, so the collective has ended. */
static bool go_on_collecting(member *own, pending *p) {
    if (!p->is_shared && all_are(own, false)) {
        do_share(own);
        atomic_store_explicit(&own->done, atomic_load(&own->come), memory_order_release);
        p->is_shared = true;
    }
    if (!p->is_shared || !all_are(own, true)) {
        return false;
    }
    if (own->turn.kind == ASHLAR_ENGINE_REDUCE_SCATTER) {
        const size_t shard = own->turn.elements / own->team->count;
        memmove(own->turn.data, at(own, own->rank * shard),
                shard * ashlar_dtype_bytes(own->turn.dtype));
    }
    return true;
}

static const char *test(void *self, ashlar_engine_request *request, bool *is_done) {
    member *own = self;
    const char *error = NULL;
    pending p;
    if (!step_in(own->team)) {
        return ashlar__ranks_team_has_ended;
    }
    memcpy(&p, request->bytes, sizeof p);
    *is_done = p.letter == NULL ? go_on_collecting(own, &p)
               : p.is_received  ? go_on_receiving(&p, &error)
                                : go_on_sending(&p);
    (void)keep(request, &p);
    step_out(own->team);
    return error;
}

/* ---- life ---- */

static void stop(void *self) {
    team *t = ((member *)self)->team;
    if (atomic_fetch_sub(&t->left, 1) == 1) {
        ashlar__host_free(t->letters);
        ashlar__host_free(t);
    }
}

static void abort_all(void *self, int status) {
    (void)status;
    give_up(self);
    stop(self);
}

ashlar_status ashlar__ranks_team_create(size_t count, void **selves) {
    team *t = ashlar__host_calloc(1, sizeof *t + count * sizeof *t->members);
    letter *letters = ashlar__host_calloc(MESSAGES * count * count, sizeof *letters);
    if (t == NULL || letters == NULL) {
        ashlar__host_free(t);
        ashlar__host_free(letters);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu ranks", count);
    }
    t->count = count;
    t->letters = letters;
    atomic_init(&t->left, count);
    for (size_t i = 0; i < count; i++) {
        t->members[i].team = t;
        t->members[i].rank = i;
        selves[i] = &t->members[i];
    }
    return ASHLAR_OK;
}

const ashlar_engine ashlar__ranks_team_engine = {
    .version = ASHLAR_ENGINE_VERSION,
    .stop = stop,
    .abort = abort_all,
    .give_up = give_up,
    .send = send,
    .receive = receive,
    .collect = collect,
    .test = test,
};
