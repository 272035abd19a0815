/*
 * peer_floor.c - the floor: the least that any allocator of device memory must do on a hit.
 *
 *   take   pop the first block of the calling thread's free list for this size class; above 1 MiB,
 *          the first block of exactly this size
 *   give   find the block by its address in a page map of two levels, and push it to the front of
 *          the calling thread's list
 *
 * It is a yardstick, not an allocator for use: it checks nothing, ignores streams, never splits,
 * merges or reuses a block for another size, and never gives memory back. Blocks are cut from a
 * range of addresses without memory behind it; their descriptions are in host memory, since the
 * host cannot write into a device's blocks.
 */
#include "bench/peers/peer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/heap/block.h"

#define GRAIN ASHLAR_BLOCK_ALIGN /* sizes and addresses are multiples of it */
#define SMALL_BYTES ASHLAR_SC_MAX_BYTES
#define CHUNK_BYTES ((size_t)2 << 20) /* addresses that one leaf of the page map covers */
#define LEAF_COUNT (CHUNK_BYTES / GRAIN)
#define RANGE_MAX_BYTES ((size_t)64 << 30)
#define RANGE_MIN_BYTES ((size_t)1 << 30)

enum {
    LARGE_BITS = 12, /* blocks above SMALL_BYTES are in 2^12 lists, by a hash of the size; a list
                      * may have several sizes, so it is searched */
    LIST_COUNT = ASHLAR_SC_COUNT + (1 << LARGE_BITS),
    SLAB_BLOCKS = 256,
};

typedef struct floor_block {
    struct floor_block *next;
    void *ptr;
    size_t grains;
    uint32_t list;
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
    size_t slab_left; /* unused entries of the first slab */
} floor_cache;

/* An entry of the page map, for CHUNK_BYTES of addresses. */
typedef struct floor_chunk {
    floor_block *whole; /* the large block that starts here, or NULL */
    floor_block **leaf; /* [LEAF_COUNT], by grain: the small block that starts there, or NULL */
} floor_chunk;

typedef struct floor_state {
    unsigned char *base;
    size_t range_bytes;
    _Atomic size_t used_bytes;                       /* bytes of the range in use: whole chunks */
    floor_chunk *chunks;                             /* [range_bytes / CHUNK_BYTES]: the page map */
    unsigned char class_of[SMALL_BYTES / GRAIN + 1]; /* size class, by the size in grains */
    floor_cache *caches[ASHLAR_PEER_THREADS_MAX];
} floor_state;

static _Thread_local floor_cache *mine;

static uint32_t list_of_large(size_t grains) {
    const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    return ASHLAR_SC_COUNT + (uint32_t)((uint64_t)grains * golden >> (64 - LARGE_BITS));
}

/* --- a miss: cut a new block ----------------------------------------------------------------- */

/* Zeroed memory, backed by pages only when it is written. PROT_NONE: addresses without memory. */
static void *map_lazily(size_t bytes, int access) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, access, flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Take `bytes`, rounded up to whole chunks, from the range. NULL: no room. */
static unsigned char *new_chunks(floor_state *state, size_t bytes) {
    const size_t rounded = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    const size_t offset = atomic_fetch_add(&state->used_bytes, rounded);
    return offset + rounded <= state->range_bytes ? state->base + offset : NULL;
}

static floor_chunk *chunk_of(const floor_state *state, const void *ptr) {
    return &state->chunks[(size_t)((const unsigned char *)ptr - state->base) / CHUNK_BYTES];
}

static floor_block **leaf_entry(const floor_state *state, const void *ptr) {
    const size_t offset = (size_t)((const unsigned char *)ptr - state->base);
    return &chunk_of(state, ptr)->leaf[offset % CHUNK_BYTES / GRAIN];
}

static floor_block *new_block(floor_cache *cache) {
    if (cache->slab_left == 0) {
        floor_slab *slab = ashlar__host_calloc(1, sizeof *slab);
        if (slab == NULL) {
            return NULL;
        }
        slab->next = cache->slabs;
        cache->slabs = slab;
        cache->slab_left = SLAB_BLOCKS;
    }
    return &cache->slabs->blocks[--cache->slab_left];
}

static void *miss_large(floor_cache *cache, size_t grains) {
    floor_block *block = new_block(cache);
    unsigned char *ptr = block != NULL ? new_chunks(cache->owner, grains * GRAIN) : NULL;
    if (ptr != NULL) {
        *block = (floor_block){.ptr = ptr, .list = list_of_large(grains), .grains = grains};
        chunk_of(cache->owner, ptr)->whole = block;
    }
    return ptr;
}

/* Take a new chunk of addresses for small blocks, when the present one has too few left. */
static bool refill(floor_cache *cache) {
    const int access = PROT_READ | PROT_WRITE;
    unsigned char *ptr = new_chunks(cache->owner, CHUNK_BYTES);
    floor_block **leaf = ptr != NULL ? map_lazily(LEAF_COUNT * sizeof leaf[0], access) : NULL;
    if (leaf == NULL) {
        return false;
    }
    chunk_of(cache->owner, ptr)->leaf = leaf;
    cache->chunk = ptr;
    cache->chunk_end = ptr + CHUNK_BYTES;
    return true;
}

static void *miss_small(floor_cache *cache, uint32_t list) {
    const size_t bytes = ashlar__sc_bytes((ashlar_sc){.idx = (uint16_t)list});
    if ((size_t)(cache->chunk_end - cache->chunk) < bytes && !refill(cache)) {
        return NULL;
    }
    floor_block *block = new_block(cache);
    if (block == NULL) {
        return NULL;
    }
    *block = (floor_block){.ptr = cache->chunk, .list = list, .grains = bytes / GRAIN};
    *leaf_entry(cache->owner, block->ptr) = block;
    cache->chunk += bytes;
    return block->ptr;
}

/* --- a hit ----------------------------------------------------------------------------------- */

static void *take_large(floor_cache *cache, size_t grains) {
    floor_block **link = &cache->lists[list_of_large(grains)];
    while (*link != NULL && (*link)->grains != grains) {
        link = &(*link)->next;
    }
    floor_block *block = *link;
    if (block == NULL) {
        return miss_large(cache, grains);
    }
    *link = block->next;
    return block->ptr;
}

static void *take(void *self, size_t bytes, ashlar_stream stream) {
    const floor_state *state = self;
    (void)stream;
    floor_cache *cache = mine;
    const size_t grains = (bytes + GRAIN - 1) / GRAIN;
    if (bytes > SMALL_BYTES) {
        return take_large(cache, grains);
    }
    const uint32_t list = state->class_of[grains];
    floor_block *block = cache->lists[list];
    if (block == NULL) {
        return miss_small(cache, list);
    }
    cache->lists[list] = block->next;
    return block->ptr;
}

static void give(void *self, void *ptr) {
    const floor_state *state = self;
    floor_cache *cache = mine;
    floor_block *block = chunk_of(state, ptr)->whole;
    if (block == NULL) {
        block = *leaf_entry(state, ptr);
    }
    block->next = cache->lists[block->list];
    cache->lists[block->list] = block;
}

/* --- instances and threads ------------------------------------------------------------------- */

static void delete_cache(floor_cache *cache) {
    while (cache->slabs != NULL) {
        floor_slab *next = cache->slabs->next;
        ashlar__host_free(cache->slabs);
        cache->slabs = next;
    }
    ashlar__host_free(cache);
}

static void destroy(void *self) {
    floor_state *state = self;
    for (size_t i = 0; i < ASHLAR_PEER_THREADS_MAX; i++) {
        if (state->caches[i] != NULL) {
            delete_cache(state->caches[i]);
        }
    }
    const size_t chunk_count = state->range_bytes / CHUNK_BYTES;
    for (size_t i = 0; state->chunks != NULL && i < chunk_count; i++) {
        if (state->chunks[i].leaf != NULL) {
            munmap(state->chunks[i].leaf, LEAF_COUNT * sizeof(floor_block *));
        }
    }
    if (state->chunks != NULL) {
        munmap(state->chunks, chunk_count * sizeof state->chunks[0]);
    }
    if (state->base != NULL) {
        munmap(state->base, state->range_bytes);
    }
    ashlar__host_free(state);
}

/* If addresses are scarce (ulimit -v, valgrind), reserve a smaller range: short lists need less. */
static void reserve_range(floor_state *state) {
    state->range_bytes = RANGE_MAX_BYTES;
    state->base = map_lazily(state->range_bytes, PROT_NONE);
    while (state->base == NULL && state->range_bytes > RANGE_MIN_BYTES) {
        state->range_bytes /= 2;
        state->base = map_lazily(state->range_bytes, PROT_NONE);
    }
    const size_t chunk_count = state->range_bytes / CHUNK_BYTES;
    state->chunks = map_lazily(chunk_count * sizeof state->chunks[0], PROT_READ | PROT_WRITE);
}

static ashlar_status create(ashlar_device *device, void **self) {
    (void)device;
    floor_state *state = ashlar__host_calloc(1, sizeof *state);
    if (state == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "floor: no host memory");
    }
    reserve_range(state);
    if (state->base == NULL || state->chunks == NULL) {
        destroy(state);
        return ashlar__fail(ASHLAR_ENOMEM,
                            "floor: not even %zu bytes of addresses can be reserved; "
                            "raise the limit (ulimit -v) or choose other subjects",
                            RANGE_MIN_BYTES);
    }
    for (size_t grains = 1; grains <= SMALL_BYTES / GRAIN; grains++) {
        state->class_of[grains] = (unsigned char)ashlar__sc_of_bytes(grains * GRAIN).idx;
    }
    *self = state;
    return ASHLAR_OK;
}

static ashlar_status enter(void *self, size_t thread) {
    floor_state *state = self;
    if (state->caches[thread] == NULL) {
        floor_cache *cache = ashlar__host_calloc(1, sizeof *cache);
        if (cache == NULL) {
            return ashlar__fail(ASHLAR_EHOSTMEM, "floor: no host memory for a thread");
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

const ashlar_peer ashlar__peer_floor = {
    .name = "floor",
    .create = create,
    .destroy = destroy,
    .enter = enter,
    .leave = leave,
    .take = take,
    .give = give,
    .is_per_thread = true,
};
