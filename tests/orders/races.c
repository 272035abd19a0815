/*
 * races.c - the runtime for code that is compiled with -fsanitize=thread: vector clocks over its
 * atomic operations and locks, and a judgement of each access to memory.
 */
#include "tests/orders/races.h"
#include "tests/orders/scheduler.h"

#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the compiler's calls have none */

enum {
    DELAYED = 8,
    CELLS = 4,
    USERS = 12,
    TABLE = 1 << 15,
    SITES = 1 << 12,
    GRANULE = 8,
    CLEARED_MAX = 1 << 16
};

typedef struct vector {
    uint32_t at[SCHEDULER_TASKS];
} vector;

typedef struct cell { /* an access to some of a granule's bytes */
    uint32_t time;    /* 0: none */
    uint8_t task, bytes;
    bool writes;
    const void *site;
} cell;

/* What is known of an address in this run. */
typedef struct place {
    uintptr_t key; /* of a granule, or of what operations meet at */
    uint32_t run;  /* another run's: free */
    union {
        struct {
            cell cells[CELLS];
            unsigned next;
        };
        struct {
            vector released;
            struct {
                const void *site;
                uint8_t task;
                bool changes;
            } users[USERS];
            unsigned user_count;
        };
    };
} place;

static place table[TABLE];
static uint32_t run;
static size_t place_count;
static vector clocks[SCHEDULER_TASKS];
static const void *shared_sites[SITES];
static bool has_grown;

/* A store that the other threads do not see yet. */
typedef struct delayed_store {
    volatile void *at;
    uint64_t value;
    size_t size;
    vector released;
} delayed_store;

static struct {
    delayed_store stores[DELAYED]; /* the oldest first */
    size_t count;
} delayed[SCHEDULER_TASKS];

void races_begin(int task_count) {
    run++;
    place_count = 0;
    memset(clocks, 0, sizeof clocks);
    memset(delayed, 0, sizeof delayed);
    for (int i = 0; i < task_count; i++) {
        clocks[i].at[i] = 1;
    }
}

static size_t hash(uintptr_t value) {
    return (size_t)(value * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

static place *find(uintptr_t key, bool make) {
    size_t at = hash(key) % TABLE;
    while (table[at].run == run && table[at].key != key) {
        at = (at + 1) % TABLE;
    }
    if (table[at].run != run) {
        if (!make) {
            return NULL;
        }
        if (++place_count > TABLE / 2) {
            scheduler_found("the program touches more memory than races.c can follow");
        }
        table[at] = (place){.key = key, .run = run};
    }
    return &table[at];
}

static place *meeting_at(const volatile void *what) {
    return find(2 * (uintptr_t)what + 1, true);
}

/* ---- what is shared ---- */

static const void **find_site(const void *site) {
    size_t at = hash((uintptr_t)site) % SITES;
    while (shared_sites[at] != NULL && shared_sites[at] != site) {
        at = (at + 1) % SITES;
    }
    return &shared_sites[at];
}

bool races_is_shared(const void *site) {
    return *find_site(site) != NULL;
}

static void share(const void *site) {
    const void **found = find_site(site);
    has_grown |= *found == NULL;
    *found = site;
}

void scheduler_forget(void) {
    memset(shared_sites, 0, sizeof shared_sites);
    has_grown = false;
}

bool scheduler_grew(void) {
    const bool grew = has_grown;
    has_grown = false;
    return grew;
}

void races_access(const void *what, const void *site, bool changes) {
    place *at = meeting_at(what);
    const uint8_t me = (uint8_t)scheduler_self();
    bool is_known = false;
    for (unsigned i = 0; i < at->user_count; i++) {
        if (at->users[i].task != me && (changes || at->users[i].changes)) {
            share(site);
            share(at->users[i].site);
        }
        is_known |= at->users[i].task == me && at->users[i].site == site;
    }
    if (!is_known && at->user_count < USERS) {
        at->users[at->user_count].site = site;
        at->users[at->user_count].task = me;
        at->users[at->user_count++].changes = changes;
    } else if (!is_known) {
        share(site); /* the list is full */
    }
}

/* ---- what comes before what ---- */

static void join(vector *into, const vector *from) {
    for (int i = 0; i < SCHEDULER_TASKS; i++) {
        into->at[i] = into->at[i] < from->at[i] ? from->at[i] : into->at[i];
    }
}

void races_acquire(const void *what) {
    join(&clocks[scheduler_self()], &meeting_at(what)->released);
}

void races_release(const void *what, bool keeps) {
    const int me = scheduler_self();
    place *at = meeting_at(what);
    if (!keeps) {
        at->released = (vector){0};
    }
    join(&at->released, &clocks[me]);
    clocks[me].at[me]++;
}

/* ---- stores that the other threads do not see yet ---- */

static bool delays_stores;

void scheduler_delay_stores(bool delays) {
    delays_stores = delays;
}

static void perform(const delayed_store *s) {
    if (s->size == sizeof(uint64_t)) {
        *(volatile uint64_t *)s->at = s->value;
    } else if (s->size == sizeof(uint32_t)) {
        *(volatile uint32_t *)s->at = (uint32_t)s->value;
    } else {
        *(volatile uint8_t *)s->at = (uint8_t)s->value;
    }
    meeting_at(s->at)->released = s->released;
}

void races_show(int task) {
    for (size_t i = 0; i < delayed[task].count; i++) {
        perform(&delayed[task].stores[i]);
    }
    delayed[task].count = 0;
}

static void delay(volatile void *at, uint64_t value, size_t size, bool releases) {
    const int me = scheduler_self();
    if (delayed[me].count == DELAYED) {
        races_show(me);
    }
    delayed_store *s = &delayed[me].stores[delayed[me].count++];
    *s = (delayed_store){.at = at, .value = value, .size = size};
    if (releases) {
        s->released = clocks[me];
        clocks[me].at[me]++;
    }
}

/* The newest store of the calling thread that it alone sees at these addresses; NULL: none. */
static const delayed_store *own_delayed(uintptr_t from, size_t size) {
    const int me = scheduler_self();
    for (size_t i = me >= 0 ? delayed[me].count : 0; i > 0; i--) {
        const delayed_store *s = &delayed[me].stores[i - 1];
        if ((uintptr_t)s->at < from + size && from < (uintptr_t)s->at + s->size) {
            return s;
        }
    }
    return NULL;
}

/* ---- accesses to memory ---- */

static void judge(const cell *before, const cell *now) {
    if (before->time > clocks[now->task].at[before->task] && before->task != now->task &&
        (before->bytes & now->bytes) != 0 && (before->writes || now->writes)) {
        extern const char __executable_start;
        scheduler_found("threads %d and %d touch the same memory, and nothing orders them: "
                        "addr2line -f %#zx %#zx",
                        before->task, now->task,
                        (size_t)((const char *)before->site - &__executable_start),
                        (size_t)((const char *)now->site - &__executable_start));
    }
}

static void touch(uintptr_t from, size_t size, bool writes, const void *site) {
    const int me = scheduler_self();
    if (own_delayed(from, size) != NULL) {
        races_show(me);
    }
    while (me >= 0 && size > 0) {
        const size_t at = from % GRANULE, part = size < GRANULE - at ? size : GRANULE - at;
        place *p = find(2 * (from - at), true);
        const cell now = {clocks[me].at[me], (uint8_t)me, (uint8_t)(((1u << part) - 1) << at),
                          writes, site};
        cell *into = NULL;
        for (int i = 0; i < CELLS; i++) {
            cell *c = &p->cells[i];
            judge(c, &now);
            if (c->time == 0 || (c->task == me && c->bytes == now.bytes && c->writes == writes)) {
                into = into == NULL ? c : into;
            }
        }
        *(into != NULL ? into : &p->cells[p->next++ % CELLS]) = now;
        from += part;
        size -= part;
    }
}

/* Memory that comes from the C library is new, whoever had it before. */
static void *made(void *ptr, size_t bytes) {
    if (scheduler_self() >= 0 && ptr != NULL) {
        for (size_t i = 0; i < bytes + GRANULE && i < CLEARED_MAX; i += GRANULE) {
            place *p = find(2 * (((uintptr_t)ptr + i) / GRANULE * GRANULE), false);
            if (p != NULL) {
                memset(p->cells, 0, sizeof p->cells);
            }
        }
    }
    return ptr;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);

void *__wrap_malloc(size_t bytes) {
    return made(__real_malloc(bytes), bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return made(__real_calloc(count, bytes), count * bytes);
}

/* ---- what the compiler calls ---- */

#define SITE __builtin_return_address(0)

#define ACCESSES(size)                            \
    void __tsan_read##size(void *at) {            \
        touch((uintptr_t)at, size, false, SITE);  \
    }                                             \
    void __tsan_write##size(void *at) {           \
        touch((uintptr_t)at, size, true, SITE);   \
    }                                             \
    void __tsan_unaligned_read##size(void *at) {  \
        touch((uintptr_t)at, size, false, SITE);  \
    }                                             \
    void __tsan_unaligned_write##size(void *at) { \
        touch((uintptr_t)at, size, true, SITE);   \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_init(void) {
}
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void) {
}
void __tsan_read_range(void *at, size_t size) {
    touch((uintptr_t)at, size, false, SITE);
}
void __tsan_write_range(void *at, size_t size) {
    touch((uintptr_t)at, size, true, SITE);
}
void *__tsan_memcpy(void *to, const void *from, size_t size) {
    touch((uintptr_t)from, size, false, SITE);
    touch((uintptr_t)to, size, true, SITE);
    return memcpy(to, from, size);
}
void *__tsan_memmove(void *to, const void *from, size_t size) {
    touch((uintptr_t)from, size, false, SITE);
    touch((uintptr_t)to, size, true, SITE);
    return memmove(to, from, size);
}
void *__tsan_memset(void *to, int value, size_t size) {
    touch((uintptr_t)to, size, true, SITE);
    return memset(to, value, size);
}
void __tsan_atomic_signal_fence(int order) {
    (void)order;
}
void __tsan_atomic_thread_fence(int order) {
    (void)order;
    abort(); /* the code has none: the clocks would have to know of it */
}

/* Memory orders, as the compiler numbers them. */
static bool acquires(int order) {
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order >= __ATOMIC_ACQ_REL;
}

static bool releases(int order) {
    return order >= __ATOMIC_RELEASE;
}

/* Before an atomic operation: true in a scheduled thread. */
static bool begin(const volatile void *what, const void *site, bool changes) {
    const bool is_scheduled = scheduler_point(site);
    if (is_scheduled) {
        races_access((const void *)what, site, changes);
    }
    return is_scheduled;
}

/* Around a change: a plain store ends what was released there before; other changes go on with it.
 */
static void order_change(const volatile void *what, bool is_scheduled, int order, bool is_store) {
    if (!is_scheduled) {
        return;
    }
    races_show(scheduler_self());
    if (!is_store && acquires(order)) {
        races_acquire((const void *)what);
    }
    if (releases(order)) {
        races_release((const void *)what, !is_store);
    } else if (is_store) {
        meeting_at(what)->released = (vector){0};
    }
}

#define CHANGE(bits, type, name, operation)                                       \
    type __tsan_atomic##bits##_##name(volatile type *at, type value, int order) { \
        order_change(at, begin(at, SITE, true), order, false);                    \
        return operation(at, value, __ATOMIC_SEQ_CST);                            \
    }

#define EXCHANGE(bits, type, name)                                                               \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected,         \
                                                      type value, int order, int other) {        \
        const bool is_scheduled = begin(at, SITE, true);                                         \
        if (is_scheduled) {                                                                      \
            races_show(scheduler_self());                                                        \
        }                                                                                        \
        const bool is_changed = __atomic_compare_exchange_n(at, expected, value, false,          \
                                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        if (is_changed) {                                                                        \
            order_change(at, is_scheduled, order, false);                                        \
        } else if (is_scheduled && acquires(other)) {                                            \
            races_acquire((const void *)at);                                                     \
        }                                                                                        \
        return is_changed;                                                                       \
    }

/* What clang calls: the result is the value that was there. */
#define EXCHANGE_OF_CLANG(bits, type)                                                             \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type value, \
                                                    int order, int other) {                       \
        __tsan_atomic##bits##_compare_exchange_strong(at, &expected, value, order, other);        \
        return expected;                                                                          \
    }

#define ATOMICS(bits, type)                                                      \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) {        \
        const bool is_scheduled = begin(at, SITE, false);                        \
        const delayed_store *own = own_delayed((uintptr_t)at, sizeof *at);       \
        if (own != NULL) {                                                       \
            return (type)own->value;                                             \
        }                                                                        \
        if (is_scheduled && acquires(order)) {                                   \
            races_acquire((const void *)at);                                     \
        }                                                                        \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                            \
    }                                                                            \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) { \
        const bool is_scheduled = begin(at, SITE, true);                         \
        if (is_scheduled && delays_stores && order != __ATOMIC_SEQ_CST) {        \
            delay(at, value, sizeof *at, releases(order));                       \
            return;                                                              \
        }                                                                        \
        order_change(at, is_scheduled, order, true);                             \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                           \
    }                                                                            \
    EXCHANGE(bits, type, strong)                                                 \
    EXCHANGE(bits, type, weak)                                                   \
    EXCHANGE_OF_CLANG(bits, type)                                                \
    CHANGE(bits, type, exchange, __atomic_exchange_n)                            \
    CHANGE(bits, type, fetch_add, __atomic_fetch_add)                            \
    CHANGE(bits, type, fetch_sub, __atomic_fetch_sub)                            \
    CHANGE(bits, type, fetch_or, __atomic_fetch_or)                              \
    CHANGE(bits, type, fetch_and, __atomic_fetch_and)

ATOMICS(8, uint8_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
