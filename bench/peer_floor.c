/*
 * peer_floor.c - the floor: the least that any allocator of device memory has to do on a hit.
 *
 *   take   the first block of the calling thread's free list of exactly this size
 *   give   from the address to the block by a page map of two levels, then to the front of the
 *          calling thread's list of its size
 *
 * It is what the others are compared with, not an allocator for use: nothing is checked, streams
 * are ignored, sizes are never shared, and no byte ever goes back. Blocks are cut from one range of
 * addresses that has no memory behind it; they are described in host memory, since the host cannot
 * write into a device's blocks.
 */
#include "peer.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "error.h"
#include "host.h"

#define GRAIN ((size_t)512)           /* sizes and addresses are multiples of it */
#define CHUNK_BYTES ((size_t)2 << 20) /* what a leaf of the map covers */
#define RANGE_BYTES ((size_t)64 << 30)
#define CHUNK_COUNT (RANGE_BYTES / CHUNK_BYTES)
#define LEAF_COUNT (CHUNK_BYTES / GRAIN)

enum {
    SMALL_GRAINS = 2048, /* 1 MiB: up to here every size has a list of its own */
    LARGE_BITS = 12,     /* above, lists are by a hash, and a block is searched for its size */
    LIST_COUNT = SMALL_GRAINS + 1 + (1 << LARGE_BITS),
    SLAB_BLOCKS = 256,
};

typedef struct floor_block {
    struct floor_block *next;
    void *ptr;
    uint32_t list;
    uint32_t grains;
} floor_block;

typedef struct floor_slab {
    struct floor_slab *next;
    floor_block blocks[SLAB_BLOCKS];
} floor_slab;

typedef struct floor_cache {
    floor_block *lists[LIST_COUNT];
    struct floor_state *owner;
    unsigned char *chunk, *chunk_end; /* what is left of the chunk that small blocks are cut from */
    floor_slab *slabs;
    size_t slab_left; /* blocks of the first slab not yet in use */
} floor_cache;

typedef struct floor_state {
    unsigned char *base;
    _Atomic size_t used_bytes; /* of the range, in whole chunks */
    floor_block ***leaves;     /* [CHUNK_COUNT]; NULL, or [LEAF_COUNT]: the block that starts there */
    floor_cache *caches[ASHLAR_PEER_THREADS_MAX];
} floor_state;

static _Thread_local floor_cache *mine;

static uint32_t list_of(size_t grains) {
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    return grains <= SMALL_GRAINS
               ? (uint32_t)grains
               : SMALL_GRAINS + 1 + (uint32_t)((uint64_t)grains * golden >> (64 - LARGE_BITS));
}

/* --- a miss: cut a new block ----------------------------------------------------------------- */

/* Zeroed memory that takes room as it is written to; without access it is addresses only. */
static void *map_lazily(size_t bytes, int access) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, access, flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Whole chunks, each with its first leaf; NULL: no room. */
static unsigned char *new_chunks(floor_state *state, size_t bytes) {
    const size_t rounded = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    const size_t offset = atomic_fetch_add(&state->used_bytes, rounded);
    if (offset + rounded > RANGE_BYTES) {
        return NULL;
    }
    floor_block **leaf = map_lazily(LEAF_COUNT * sizeof leaf[0], PROT_READ | PROT_WRITE);
    if (leaf == NULL) {
        return NULL;
    }
    state->leaves[offset / CHUNK_BYTES] = leaf;
    return state->base + offset;
}

static floor_block *new_block(floor_cache *cache) {
    if (cache->slab_left == 0) {
        floor_slab *slab = ashlar_host_calloc(1, sizeof *slab);
        if (slab == NULL) {
            return NULL;
        }
        slab->next = cache->slabs;
        cache->slabs = slab;
        cache->slab_left = SLAB_BLOCKS;
    }
    return &cache->slabs->blocks[--cache->slab_left];
}

static unsigned char *cut(floor_cache *cache, size_t bytes) {
    if (bytes > SMALL_GRAINS * GRAIN) {
        return new_chunks(cache->owner, bytes);
    }
    if ((size_t)(cache->chunk_end - cache->chunk) < bytes) {
        unsigned char *chunk = new_chunks(cache->owner, CHUNK_BYTES);
        if (chunk == NULL) {
            return NULL;
        }
        cache->chunk = chunk;
        cache->chunk_end = chunk + CHUNK_BYTES;
    }
    unsigned char *ptr = cache->chunk;
    cache->chunk += bytes;
    return ptr;
}

__attribute__((noinline)) static void *miss(floor_cache *cache, size_t grains) {
    unsigned char *ptr = cut(cache, grains * GRAIN);
    floor_block *block = ptr != NULL ? new_block(cache) : NULL;
    if (block == NULL) {
        return NULL;
    }
    *block = (floor_block){.ptr = ptr, .list = list_of(grains), .grains = (uint32_t)grains};
    const size_t offset = (size_t)(ptr - cache->owner->base);
    cache->owner->leaves[offset / CHUNK_BYTES][offset % CHUNK_BYTES / GRAIN] = block;
    return ptr;
}

/* --- a hit ----------------------------------------------------------------------------------- */

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    (void)self;
    (void)stream;
    floor_cache *cache = mine;
    const size_t grains = (bytes + GRAIN - 1) / GRAIN;
    floor_block **link = &cache->lists[list_of(grains)];
    while (*link != NULL && (*link)->grains != grains) {
        link = &(*link)->next;
    }
    floor_block *block = *link;
    if (block == NULL) {
        return miss(cache, grains);
    }
    *link = block->next;
    return block->ptr;
}

static void give(void *self, void *ptr) {
    const floor_state *state = self;
    floor_cache *cache = mine;
    const size_t offset = (size_t)((unsigned char *)ptr - state->base);
    floor_block *block = state->leaves[offset / CHUNK_BYTES][offset % CHUNK_BYTES / GRAIN];
    block->next = cache->lists[block->list];
    cache->lists[block->list] = block;
}

/* --- instances and threads ------------------------------------------------------------------- */

static void delete_cache(floor_cache *cache) {
    while (cache->slabs != NULL) {
        floor_slab *next = cache->slabs->next;
        ashlar_host_free(cache->slabs);
        cache->slabs = next;
    }
    ashlar_host_free(cache);
}

static void destroy(void *self) {
    floor_state *state = self;
    for (size_t i = 0; i < ASHLAR_PEER_THREADS_MAX; i++) {
        if (state->caches[i] != NULL) {
            delete_cache(state->caches[i]);
        }
    }
    for (size_t i = 0; state->leaves != NULL && i < CHUNK_COUNT; i++) {
        if (state->leaves[i] != NULL) {
            munmap(state->leaves[i], LEAF_COUNT * sizeof state->leaves[i][0]);
        }
    }
    if (state->leaves != NULL) {
        munmap(state->leaves, CHUNK_COUNT * sizeof state->leaves[0]);
    }
    if (state->base != NULL) {
        munmap(state->base, RANGE_BYTES);
    }
    ashlar_host_free(state);
}

static ashlar_status create(ashlar_device *device, void **self) {
    (void)device;
    floor_state *state = ashlar_host_calloc(1, sizeof *state);
    if (state == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "floor: no host memory");
    }
    state->base = map_lazily(RANGE_BYTES, PROT_NONE);
    state->leaves = map_lazily(CHUNK_COUNT * sizeof state->leaves[0], PROT_READ | PROT_WRITE);
    if (state->base == NULL || state->leaves == NULL) {
        destroy(state);
        return ashlar_fail(ASHLAR_ENOMEM, "floor: %zu bytes of addresses cannot be reserved; "
                           "raise the limit (ulimit -v) or choose other subjects", RANGE_BYTES);
    }
    *self = state;
    return ASHLAR_OK;
}

static ashlar_status enter(void *self, size_t thread) {
    floor_state *state = self;
    if (state->caches[thread] == NULL) {
        floor_cache *cache = ashlar_host_calloc(1, sizeof *cache);
        if (cache == NULL) {
            return ashlar_fail(ASHLAR_EHOSTMEM, "floor: no host memory for a thread");
        }
        cache->owner = state;
        state->caches[thread] = cache;
    }
    mine = state->caches[thread];
    return ASHLAR_OK;
}

static void leave(void *self) {
    (void)self;
    mine = NULL;
}

const ashlar_peer *ashlar_peer_floor(void) {
    static const ashlar_peer peer = {
        .name = "floor",
        .create = create,
        .destroy = destroy,
        .enter = enter,
        .leave = leave,
        .take = take,
        .give = give,
    };
    return &peer;
}
