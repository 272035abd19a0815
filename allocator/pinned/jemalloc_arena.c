/* jemalloc_arena.c - hooks by which jemalloc takes and returns extents, and the jemalloc caches
 * that threads share. */
#include "allocator/pinned/jemalloc_arena.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <jemalloc/jemalloc.h>

#include "allocator/base/host.h"
#include "allocator/pinned/report.h"

enum { CACHES = 8, NAME_BYTES = 64 };

typedef struct cache {
    ashlar_lock lock; /* for one thread at a time, as jemalloc requires */
    unsigned idx;     /* const */
} cache;

struct ashlar_jemalloc_arena {
    extent_hooks_t hooks;   /* first, so that the hooks, which get its address, find the arena */
    ashlar_page_heap *heap; /* const */
    unsigned idx;           /* const */
    unsigned cache_count;   /* const; less than CACHES only if creation failed half-way */
    cache caches[CACHES];
};

_Static_assert(offsetof(ashlar_jemalloc_arena, hooks) == 0, "the hooks' address is the arena's");

/* Whether the hooks may grow the page heap for this thread's request, and why growing failed. */
static _Thread_local struct {
    bool may_grow;
    ashlar_status refusal;
} request;

/* ---- hooks: they must not call jemalloc ---- */

/* jemalloc asks twice. It first tries to grow by a size of its own choice, and would keep the
 * surplus; this request is not for committed memory, and may fail. Then it asks for exactly what it
 * needs. Only the second request is served, so that the surplus stays in the page heap. */
static void *take_extent(extent_hooks_t *hooks, void *new_addr, size_t bytes, size_t alignment,
                         bool *zero, bool *commit, unsigned arena_idx) {
    ashlar_page_heap *heap = ((ashlar_jemalloc_arena *)hooks)->heap;
    (void)arena_idx;
    if (!*commit || new_addr != NULL || alignment > heap->page_bytes) {
        return NULL;
    }
    void *ptr = ashlar__page_heap_take(heap, bytes);
    if (ptr == NULL && request.may_grow) {
        request.refusal = ashlar__page_heap_grow(heap, bytes, &ptr);
    }
    ASHLAR_CHECK2((uintptr_t)ptr % heap->page_bytes == 0);
    if (ptr != NULL && *zero) {
        memset(ptr, 0, bytes);
    }
    return ptr;
}

static bool give_extent(extent_hooks_t *hooks, void *ptr, size_t bytes, bool is_committed,
                        unsigned arena_idx) {
    (void)is_committed;
    (void)arena_idx;
    ashlar__page_heap_give(((ashlar_jemalloc_arena *)hooks)->heap, ptr, bytes);
    return false;
}

static void destroy_extent(extent_hooks_t *hooks, void *ptr, size_t bytes, bool is_committed,
                           unsigned arena_idx) {
    (void)give_extent(hooks, ptr, bytes, is_committed, arena_idx);
}

/* Splitting is fine, since the page heap takes back any part of a run. */
static bool allow_split(extent_hooks_t *hooks, void *ptr, size_t bytes, size_t first_bytes,
                        size_t second_bytes, bool is_committed, unsigned arena_idx) {
    (void)hooks;
    (void)ptr;
    (void)bytes;
    (void)first_bytes;
    (void)second_bytes;
    (void)is_committed;
    (void)arena_idx;
    return false;
}

/* No commit, decommit or purge: pages stay locked. No merge: adjacent extents may lie in two
 * segments; the page heap knows which runs it may join. */
static const extent_hooks_t page_heap_hooks = {
    .alloc = take_extent,
    .dalloc = give_extent,
    .destroy = destroy_extent,
    .split = allow_split,
};

/* ---- life ---- */

size_t ashlar__jemalloc_page_bytes(void) {
    size_t bytes = 0, size = sizeof bytes;
    return mallctl("arenas.page", &bytes, &size, NULL, 0) == 0 ? bytes : 0;
}

/* Set or call a control of the arena: mallctl("arena.<idx>.<leaf>"). */
static int control_arena(const ashlar_jemalloc_arena *arena, const char *leaf, void *value,
                         size_t bytes) {
    char name[NAME_BYTES];
    const int length = snprintf(name, sizeof name, "arena.%u.%s", arena->idx, leaf);
    ASHLAR_CHECK2(length > 0 && length < NAME_BYTES);
    return mallctl(name, NULL, NULL, value, bytes);
}

/* "arenas.create" would put the arena's records, 2 MiB or more, into page-locked memory. */
static int create_arena(ashlar_jemalloc_arena *arena) {
    struct {
        extent_hooks_t *hooks;
        bool are_records_hooked;
    } config = {&arena->hooks, false};
    size_t size = sizeof arena->idx;
    return mallctl("experimental.arenas_create_ext", &arena->idx, &size, &config, sizeof config);
}

static int create_caches(ashlar_jemalloc_arena *arena) {
    int error = 0;
    while (arena->cache_count < CACHES && error == 0) {
        cache *made = &arena->caches[arena->cache_count];
        size_t size = sizeof made->idx;
        error = mallctl("tcache.create", &made->idx, &size, NULL, 0);
        if (error == 0) {
            ashlar__lock_init(&made->lock, ASHLAR_RANK_PINNED_ARENA);
            arena->cache_count++;
        }
    }
    ASHLAR_CHECK2(error != 0 || arena->cache_count == CACHES);
    return error;
}

static ashlar_status report(int error) {
    if (error == EAGAIN || error == ENOMEM || error == EFAULT) {
        return ashlar__pinned_fail(ASHLAR_EHOSTMEM,
                                   "jemalloc has no memory for an arena's records");
    }
    return ashlar__pinned_fail(ASHLAR_ENOTSUP,
                               "jemalloc: no arena with hooks (%s); it must be 5.3 or later",
                               strerror(error));
}

ashlar_status ashlar__jemalloc_arena_create(ashlar_page_heap *heap, ashlar_jemalloc_arena **out) {
    ssize_t never = -1;
    ashlar_jemalloc_arena *arena = ashlar__host_calloc(1, sizeof *arena);
    if (arena == NULL) {
        return ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory for a jemalloc arena");
    }
    arena->hooks = page_heap_hooks;
    arena->heap = heap;
    int error = create_arena(arena);
    if (error != 0) {
        ashlar__host_free(arena);
        return report(error);
    }
    error = control_arena(arena, "dirty_decay_ms", &never, sizeof never);
    if (error == 0) {
        error = control_arena(arena, "muzzy_decay_ms", &never, sizeof never);
    }
    if (error == 0) {
        error = create_caches(arena);
    }
    if (error != 0) {
        ashlar__jemalloc_arena_destroy(arena);
        return report(error);
    }
    *out = arena;
    return ASHLAR_OK;
}

void ashlar__jemalloc_arena_destroy(ashlar_jemalloc_arena *arena) {
    if (arena == NULL) {
        return;
    }
    for (unsigned i = 0; i < arena->cache_count; i++) {
        cache *gone = &arena->caches[i];
        (void)mallctl("tcache.destroy", NULL, NULL, &gone->idx, sizeof gone->idx);
        ashlar__lock_finish(&gone->lock);
    }
    (void)control_arena(arena, "destroy", NULL, 0); /* fails only if a thread is bound to the
                                                     * arena */
    ashlar__host_free(arena);
}

/* ---- blocks ---- */

/* Threads get the caches in turn. */
static cache *cache_of_thread(ashlar_jemalloc_arena *arena) {
    static _Atomic unsigned threads_seen;
    static _Thread_local unsigned mine; /* 1 + index of the thread's cache; 0: none yet */
    ASHLAR_CHECK2(arena->cache_count == CACHES);
    if (mine == 0) {
        mine = 1 + atomic_fetch_add_explicit(&threads_seen, 1, memory_order_relaxed) % CACHES;
    }
    return &arena->caches[mine - 1];
}

void *ashlar__jemalloc_take(ashlar_jemalloc_arena *arena, size_t bytes) {
    cache *mine = cache_of_thread(arena);
    ASHLAR_CHECK2(bytes > 0 && !request.may_grow); /* no driver call under a lock */
    ashlar__lock_acquire(&mine->lock);
    void *ptr = mallocx(bytes, MALLOCX_ARENA(arena->idx) | MALLOCX_TCACHE(mine->idx));
    ashlar__lock_release(&mine->lock);
    return ptr;
}

ashlar_status ashlar__jemalloc_take_growing(ashlar_jemalloc_arena *arena, size_t bytes,
                                            void **out) {
    ASHLAR_CHECK2(bytes > 0 && !request.may_grow);
    request.may_grow = true;
    request.refusal = ASHLAR_OK;
    void *ptr = mallocx(bytes, MALLOCX_ARENA(arena->idx) | MALLOCX_TCACHE_NONE);
    request.may_grow = false;
    if (ptr != NULL) {
        *out = ptr;
        return ASHLAR_OK;
    }
    return request.refusal != ASHLAR_OK
               ? request.refusal
               : ashlar__pinned_fail(ASHLAR_EHOSTMEM, "jemalloc has no memory for its records");
}

void ashlar__jemalloc_give(ashlar_jemalloc_arena *arena, void *ptr) {
    cache *mine = cache_of_thread(arena);
    ASHLAR_CHECK2(ptr != NULL);
    ashlar__lock_acquire(&mine->lock);
    dallocx(ptr, MALLOCX_TCACHE(mine->idx));
    ashlar__lock_release(&mine->lock);
}

size_t ashlar__jemalloc_usable_bytes(const void *ptr) {
    return sallocx(ptr, 0);
}

void ashlar__jemalloc_drain(ashlar_jemalloc_arena *arena) {
    for (unsigned i = 0; i < arena->cache_count; i++) {
        cache *drained = &arena->caches[i];
        ashlar__lock_acquire(&drained->lock);
        (void)mallctl("tcache.flush", NULL, NULL, &drained->idx, sizeof drained->idx);
        ashlar__lock_release(&drained->lock);
    }
    (void)control_arena(arena, "purge", NULL, 0);
}
