/*
 * world_shadow.h - who has each 512 bytes of device memory, and whose work wrote there last.
 *
 * Work of the device writes down here which block it writes, and compares before it reads or frees.
 * So memory that is handed out too early is seen whatever its size, for the cost of four bytes in
 * 512. Some bytes of the memory itself are written and compared as well: where it begins, where it
 * ends, and at each page of a device inside, so that a page that is mapped in two places is seen.
 */
#ifndef ASHLAR_WORLD_SHADOW_H
#define ASHLAR_WORLD_SHADOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CELL_BYTES ((size_t)512)
#define CHUNK_BYTES (2 * MIB)

enum { CELLS = 4096, CHUNKS_MAX = 1 << 15, CHUNKS_KEPT = 1 << 13 };
_Static_assert(CELLS *CELL_BYTES == CHUNK_BYTES, "cells make up a chunk");

typedef struct shadow_chunk {
    uintptr_t number;     /* of its addresses */
    uint32_t live[CELLS]; /* the host's view: stamp of the live block; 0: none */
    uint32_t left[CELLS]; /* the device's: stamp of the block that was written last */
} shadow_chunk;

static _Atomic(shadow_chunk *) shadow_chunks[CHUNKS_MAX];
static atomic_size_t shadow_chunk_count;

static inline shadow_chunk *shadow_chunk_of(uintptr_t at) {
    const uintptr_t number = at / CHUNK_BYTES;
    size_t slot = (size_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % CHUNKS_MAX;
    shadow_chunk *fresh = NULL;
    for (;;) {
        shadow_chunk *found = atomic_load_explicit(&shadow_chunks[slot], memory_order_acquire);
        if (found == NULL) {
            fresh = fresh != NULL ? fresh : calloc(1, sizeof *fresh);
            if (fresh == NULL) {
                abort();
            }
            fresh->number = number;
            if (atomic_compare_exchange_strong(&shadow_chunks[slot], &found, fresh)) {
                atomic_fetch_add(&shadow_chunk_count, 1);
                return fresh;
            }
        }
        if (found->number == number) {
            free(fresh);
            return found;
        }
        slot = (slot + 1) % CHUNKS_MAX;
    }
}

/* Between programs: addresses wander, and what is known of old ones is of no use. */
static inline void shadow_forget(void) {
    if (atomic_load(&shadow_chunk_count) > CHUNKS_KEPT) {
        for (size_t i = 0; i < CHUNKS_MAX; i++) {
            free(atomic_exchange(&shadow_chunks[i], NULL));
        }
        atomic_store(&shadow_chunk_count, 0);
    }
}

typedef enum shadow_side { SHADOW_LIVE, SHADOW_LEFT } shadow_side;

static inline void cells_set(uint32_t *cells, size_t count, uint32_t value) {
    for (size_t i = 0; i < count; i++) {
        cells[i] = value;
    }
}

static inline bool cells_are(const uint32_t *cells, size_t count, uint32_t value) {
    uint32_t differs = 0;
    for (size_t i = 0; i < count; i++) {
        differs |= cells[i] ^ value;
    }
    return differs == 0;
}

/* Whether all cells of these bytes have the value `want`, if is_asked; then they get `value`, if
 * is_set. */
static inline bool shadow_visit(const void *ptr, size_t bytes, shadow_side side, bool is_asked,
                                uint32_t want, bool is_set, uint32_t value) {
    uintptr_t at = (uintptr_t)ptr & ~(uintptr_t)(CELL_BYTES - 1);
    const uintptr_t end = ((uintptr_t)ptr + bytes + CELL_BYTES - 1) & ~(uintptr_t)(CELL_BYTES - 1);
    bool is_right = true;
    while (at < end) {
        shadow_chunk *chunk = shadow_chunk_of(at);
        const size_t first = at % CHUNK_BYTES / CELL_BYTES;
        const size_t rest = (end - at) / CELL_BYTES;
        const size_t count = rest < CELLS - first ? rest : CELLS - first;
        uint32_t *cells = (side == SHADOW_LIVE ? chunk->live : chunk->left) + first;
        is_right = is_right && (!is_asked || cells_are(cells, count, want));
        if (is_set) {
            cells_set(cells, count, value);
        }
        at += count * CELL_BYTES;
    }
    return is_right;
}

/* ---- work of the device ---- */

typedef struct world_work {
    unsigned char *ptr;
    size_t bytes;
    uint32_t want; /* stamp that must be there; 0: none need */
    uint32_t set;  /* stamp to write; 0: nothing is written */
    bool is_clear; /* the memory must read as zeros, where it is looked at */
} world_work;

static atomic_uint world_bad_stamp; /* of the block whose memory was found changed; 0: none */

static inline uint64_t word_of(uint32_t stamp) {
    return stamp * UINT64_C(0x9e3779b97f4a7c15);
}

static inline bool visit_word(unsigned char *at, const world_work *w) {
    uint64_t found;
    bool is_right = true;
    memcpy(&found, at, sizeof found);
    is_right = (w->want == 0 || found == word_of(w->want)) && (!w->is_clear || found == 0);
    if (w->set != 0) {
        found = word_of(w->set);
        memcpy(at, &found, sizeof found);
    }
    return is_right;
}

static inline void world_work_run(void *args) {
    const world_work *w = args;
    const uintptr_t begin = (uintptr_t)w->ptr, end = begin + w->bytes;
    bool is_right =
        shadow_visit(w->ptr, w->bytes, SHADOW_LEFT, w->want != 0, w->want, w->set != 0, w->set);
    if (w->bytes >= 2 * sizeof(uint64_t)) {
        is_right &= visit_word(w->ptr, w);
        is_right &= visit_word(w->ptr + (w->bytes - sizeof(uint64_t)) / 8 * 8, w);
        for (uintptr_t at = (begin + CHUNK_BYTES) & ~(uintptr_t)(CHUNK_BYTES - 1);
             at + 2 * sizeof(uint64_t) < end; at += CHUNK_BYTES) {
            is_right &= visit_word(w->ptr + (at - begin), w);
        }
    }
    if (!is_right) {
        atomic_store(&world_bad_stamp, w->want != 0 ? w->want : UINT32_MAX);
    }
}

#endif /* ASHLAR_WORLD_SHADOW_H */
