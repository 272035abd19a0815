/* plan_memory.c - placing plan memory in a block of the heap, noting which streams use it and which
 * of its blocks are late (plan.h), returning it, and checking it. */
#include "allocator/plan/planner.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/heap/heap.h"

/* ---- making ---- */

void ashlar__plan_memory_free(ashlar_plan_memory *memory) {
    if (memory != NULL) {
        ashlar__host_free(memory->host_memory);
        ashlar__host_free((void *)memory->late);
        ashlar__host_free(memory);
    }
}

ashlar_plan_memory *ashlar__plan_memory_new(size_t count) {
    ASHLAR_CHECK2(count > 0);
    ashlar_plan_memory *memory = ashlar__host_calloc(1, sizeof *memory);
    if (memory == NULL) {
        return NULL;
    }
    memory->slot_block_count = count;
    memory->late = ashlar__host_calloc(count, sizeof(ashlar_block *));
    memory->host_memory = ashlar__host_calloc(count + 1, sizeof(ashlar_block));
    if (memory->late == NULL || memory->host_memory == NULL) {
        ashlar__plan_memory_free(memory);
        return NULL;
    }
    const uintptr_t start = (uintptr_t)memory->host_memory;
    memory->slot_blocks =
        (ashlar_block *)((start + ASHLAR_CACHE_LINE - 1) / ASHLAR_CACHE_LINE * ASHLAR_CACHE_LINE);
    return memory;
}

/* Reserve room in the page map for all slot blocks, before anything is changed. Only a page in
 * which several blocks start needs a table of them. */
static ashlar_status reserve_map(ashlar_page_map *map, const ashlar_block *block,
                                 const size_t *offsets, size_t count) {
    ashlar_status status = ASHLAR_OK;
    size_t last_page = SIZE_MAX;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        ASHLAR_CHECK2(offsets[i] < block->bytes && (i == 0 || offsets[i - 1] < offsets[i]));
        const size_t at = block->offset + offsets[i], page = at / ASHLAR_PAGE_BYTES;
        status = page == last_page ? ashlar__page_map_reserve_page(map, at)
                                   : ashlar__page_map_reserve(map, at);
        last_page = page;
    }
    return status;
}

static void put_slot_blocks(ashlar_page_map *map, ashlar_plan_memory *memory,
                            const size_t *offsets) {
    ashlar_block *block = memory->block;
    block->state = ASHLAR_BLOCK_PLAN_MEMORY;
    block->requested = 0;
    block->older = memory->slot_blocks;
    ashlar__page_map_set(map, block->offset, NULL);
    for (size_t i = 0; i < memory->slot_block_count; i++) {
        ashlar_block *s = &memory->slot_blocks[i];
        ASHLAR_CHECK2(!ashlar__slot_block_is_taken(s));
        s->offset = block->offset + offsets[i];
        s->bytes = ASHLAR_BLOCK_ALIGN;
        s->stream_state = memory->stream_state;
        s->state = ASHLAR_BLOCK_USED;
        s->marks = ASHLAR_BLOCK_OF_SLOT;
        s->own_use.stream_state = NULL;
        s->prev = block;
        s->next = i + 1 < memory->slot_block_count ? s + 1 : NULL;
        ashlar__page_map_set(map, s->offset, s);
    }
}

ashlar_status ashlar__plan_memory_place_locked(ashlar_plan_memory *memory, ashlar_heap *heap,
                                               ashlar_block *block, const size_t *offsets) {
    ASHLAR_CHECK2(memory->block == NULL && block->state == ASHLAR_BLOCK_USED);
    ASHLAR_CHECK2((block->marks & ~ASHLAR_BLOCK_BORROWED) == 0);
    ASHLAR_CHECK2(block->stream_state != NULL && block->requested == 0);
    const ashlar_status status = reserve_map(&heap->map, block, offsets, memory->slot_block_count);
    if (status == ASHLAR_OK) {
        memory->block = block;
        memory->stream_state = block->stream_state;
        memory->stream_state->was_planned = true;
        put_slot_blocks(&heap->map, memory, offsets);
    }
    return status;
}

/* ---- uses by other streams ---- */

/* The node that records the stream's uses of this plan memory, added if missing; NULL: out of host
 * memory. */
static ashlar_use *use_by(ashlar_plan_memory *memory, ashlar_heap *heap,
                          ashlar_stream_state *state) {
    ashlar_use *use = ashlar__cross_find_use(memory->block, state);
    if (use == NULL && ashlar__cross_add_any_use(heap, memory->block, state) == ASHLAR_OK) {
        use = memory->block->uses;
    }
    return use;
}

static bool note_use(ashlar_plan_memory *memory, ashlar_heap *heap, ashlar_stream_state *state,
                     uint64_t tick) {
    ashlar_use *use = use_by(memory, heap, state);
    if (use != NULL && use->tick < tick) {
        use->tick = tick;
    }
    return use != NULL;
}

/* Note that a stream's use of the memory ends now. That of the memory's own stream needs no note:
 * the next step's work is queued on the same stream. */
static bool note_end(ashlar_plan_memory *memory, ashlar_heap *heap, ashlar_stream_state *state) {
    if (state == memory->stream_state) {
        return true;
    }
    state->last_used = ashlar__heap_count_use(heap);
    return note_use(memory, heap, state, ashlar__stream_state_next(state) - 1);
}

bool ashlar__plan_memory_vacate_locked(ashlar_plan_memory *memory, ashlar_heap *heap,
                                       ashlar_block *slot_block, ashlar_stream_state *state) {
    ASHLAR_CHECK2(ashlar__block_is_of_slot(slot_block) && slot_block->prev == memory->block);
    /* Not a late block: this step may hand out its addresses again, before the uses are over. */
    if (!memory->is_busy || slot_block->slot == NULL || !slot_block->slot->is_shared) {
        return false;
    }
    bool is_noted = note_end(memory, heap, state);
    const ashlar_use *use = ashlar__block_is_shared(slot_block) ? slot_block->uses : NULL;
    for (; use != NULL && is_noted; use = use->next) {
        is_noted = note_end(memory, heap, use->stream_state);
    }
    if (is_noted) {
        ashlar__cross_drop_uses(heap, slot_block);
        ashlar__slot_block_vacate(slot_block);
    }
    return is_noted;
}

/* ---- the end ---- */

/* Vacate a late block that was freed while streams may still use it: from now on the plan memory's
 * own block waits for these uses. */
static void take_over(ashlar_plan_memory *memory, ashlar_heap *heap, ashlar_block *late) {
    bool is_noted = true;
    for (const ashlar_use *use = late->uses; use != NULL && is_noted; use = use->next) {
        is_noted = use->stream_state == memory->stream_state || /* stamped when the memory ends */
                   note_use(memory, heap, use->stream_state, use->tick);
    }
    if (is_noted) {
        ashlar__cross_take_out(heap, late);
        ashlar__slot_block_vacate(late);
    }
}

/* Whether parts of the memory's block can become gaps while others are live. No stream but the
 * zone's owner may use a gap, so the owner is made to wait for other streams' uses of the block. */
static bool can_split(const ashlar_plan_memory *memory, ashlar_heap *heap) {
    ashlar_stream_state *state = memory->stream_state;
    bool is_joined = !ashlar__block_is_shared(memory->block);
    if (!is_joined && ashlar__stream_state_can_wait(state, heap->range.client) &&
        ashlar__cross_join(heap, state, memory->block, &is_joined) != ASHLAR_OK) {
        return false;
    }
    return is_joined && memory->block->window->zone->owner == state &&
           ashlar__heap_reserve_nodes(heap, memory->block->window->zone, 2 * memory->late_count) ==
               ASHLAR_OK;
}

static size_t aligned(size_t bytes) {
    return (bytes + ASHLAR_BLOCK_ALIGN - 1) & ~(ASHLAR_BLOCK_ALIGN - 1);
}

/* Make the requested bytes of a live slot block, which lies in `gap`, a block of the heap. Its size
 * may be no size class's, so it is marked SHARED, which keeps it out of caches when it is freed. */
static ashlar_block *make_ordinary(ashlar_heap *heap, ashlar_block *gap,
                                   const ashlar_block *slot_block) {
    ashlar_block *block = NULL;
    const ashlar_status status = ashlar__heap_take_run(heap, gap, slot_block->offset,
                                                       aligned(slot_block->requested), &block);
    ASHLAR_ASSERT(status == ASHLAR_OK); /* its map entry and the nodes were reserved before */
    block->requested = slot_block->requested;
    block->stream_state = slot_block->stream_state;
    block->tag = slot_block->tag;
    block->marks |= ASHLAR_BLOCK_SHARED;
    block->uses = ashlar__block_is_shared(slot_block) ? slot_block->uses : NULL;
    return block;
}

/* Return the memory's block to the heap, except for the slot blocks in it that are live. */
static void split(ashlar_plan_memory *memory, ashlar_heap *heap) {
    ashlar_block *prev = memory->block->prev, *gap = memory->block;
    gap = prev != NULL && prev->state == ASHLAR_BLOCK_FREE ? prev : gap;
    ashlar__heap_put(heap, memory->block);
    for (size_t i = 0; i < memory->slot_block_count; i++) {
        if (ashlar__slot_block_is_taken(&memory->slot_blocks[i])) {
            gap = make_ordinary(heap, gap, &memory->slot_blocks[i])->next;
        }
    }
}

bool ashlar__plan_memory_end_locked(ashlar_plan_memory *memory, ashlar_heap *heap) {
    ashlar_block *block = memory->block;
    ASHLAR_CHECK2(!memory->is_busy && block->state == ASHLAR_BLOCK_PLAN_MEMORY);
    ashlar__plan_memory_clean(memory);
    for (size_t i = 0; i < memory->late_count; i++) {
        if (ashlar__slot_block_is_awaited(memory->late[i])) {
            take_over(memory, heap, memory->late[i]);
        }
    }
    ashlar__plan_memory_clean(memory);
    const bool is_live = memory->late_count > 0;
    if (is_live && !can_split(memory, heap)) {
        return false;
    }
    for (size_t i = 0; i < memory->slot_block_count; i++) {
        ashlar__page_map_set(&heap->map, memory->slot_blocks[i].offset, NULL);
    }
    block->state = ASHLAR_BLOCK_USED;
    /* A used block is in the page map, even while it waits for streams that may still use it. */
    ashlar__page_map_set(&heap->map, block->offset, block);
    if (is_live) {
        split(memory, heap);
    } else {
        ashlar__release_stamped_locked(heap, block, memory->stream_state);
    }
    ashlar__plan_memory_free(memory);
    return true;
}

/* ---- asking ---- */

ashlar_block *ashlar__plan_memory_block_at(const ashlar_plan_memory *memory, size_t offset) {
    ASHLAR_CHECK2(offset < memory->block->bytes);
    const size_t wanted = memory->block->offset + offset;
    size_t low = 0, high = memory->slot_block_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(memory->slot_blocks[middle].offset <= wanted ? &low : &high) = middle;
    }
    ASHLAR_ASSERT(memory->slot_blocks[low].offset == wanted);
    return &memory->slot_blocks[low];
}

void ashlar__plan_memory_clean(ashlar_plan_memory *memory) {
    ASHLAR_CHECK2(memory->late_count <= memory->slot_block_count);
    size_t kept = 0;
    for (size_t i = 0; i < memory->late_count; i++) {
        if (ashlar__slot_block_is_taken(memory->late[i])) {
            memory->late[kept++] = memory->late[i];
        }
    }
    memory->late_count = kept;
}

size_t ashlar__plan_memory_live_bytes(const ashlar_plan_memory *memory) {
    size_t bytes = 0;
    for (size_t i = 0; i < memory->slot_block_count; i++) {
        bytes += aligned(ashlar__block_live_bytes(&memory->slot_blocks[i]));
    }
    return bytes;
}

/* The bytes of taken slot blocks. If no step uses the plan memory, they are all on the late list,
 * which is far shorter than the list of all slot blocks. */
static size_t taken_bytes(const ashlar_plan_memory *memory) {
    size_t bytes = 0;
    for (size_t i = 0; i < memory->late_count && !memory->is_busy; i++) {
        bytes += ashlar__slot_block_is_taken(memory->late[i]) ? memory->late[i]->bytes : 0;
    }
    for (size_t i = 0; i < memory->slot_block_count && memory->is_busy; i++) {
        bytes +=
            ashlar__slot_block_is_taken(&memory->slot_blocks[i]) ? memory->slot_blocks[i].bytes : 0;
    }
    return bytes;
}

size_t ashlar__plan_memories_idle_bytes(const ashlar_plan_memory *memories) {
    size_t bytes = 0;
    for (const ashlar_plan_memory *memory = memories; memory != NULL; memory = memory->next) {
        const size_t taken = taken_bytes(memory);
        ASHLAR_CHECK2(taken <= memory->block->bytes);
        bytes += memory->block->bytes - taken;
    }
    return bytes;
}

size_t ashlar__plan_memories_idle_blocks(const ashlar_plan_memory *memories) {
    size_t count = 0;
    for (const ashlar_plan_memory *memory = memories; memory != NULL; memory = memory->next) {
        for (size_t i = 0; i < memory->slot_block_count; i++) {
            count += !ashlar__slot_block_is_taken(&memory->slot_blocks[i]);
        }
    }
    return count;
}

/* ---- checks ---- */

static ashlar_status broken(const ashlar_block *slot_block, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "plan memory check: block at offset %zu: %s",
                        slot_block->offset, what);
}

static bool is_late(const ashlar_plan_memory *memory, const ashlar_block *slot_block) {
    size_t i = 0;
    while (i < memory->late_count && memory->late[i] != slot_block) {
        i++;
    }
    return i < memory->late_count;
}

static ashlar_status check_slot_block(const ashlar_page_map *map, const ashlar_plan_memory *memory,
                                      const ashlar_block *slot_block, size_t begin, size_t *end) {
    const ashlar_block *block = memory->block;
    if (slot_block->offset < begin || slot_block->offset >= block->offset + block->bytes) {
        return broken(slot_block, "not in order, or outside its memory");
    }
    if (ashlar__page_map_get(map, slot_block->offset) != slot_block) {
        return broken(slot_block, "not in the page map");
    }
    if (!ashlar__slot_block_is_taken(slot_block)) {
        return ASHLAR_OK;
    }
    if (slot_block->offset < *end) {
        return broken(slot_block, "live, as is one that reaches into it");
    }
    *end = slot_block->offset + slot_block->bytes;
    if (*end > block->offset + block->bytes ||
        ashlar__block_live_bytes(slot_block) > slot_block->bytes) {
        return broken(slot_block, "larger than its memory, or than its block");
    }
    return memory->is_busy || is_late(memory, slot_block)
               ? ASHLAR_OK
               : broken(slot_block, "live, but not known to be");
}

static ashlar_status check_memory(const ashlar_page_map *map, const ashlar_plan_memory *memory) {
    const ashlar_block *block = memory->block;
    if (block->state != ASHLAR_BLOCK_PLAN_MEMORY) {
        return broken(block, "the heap's block is no plan's memory");
    }
    if (block->older != memory->slot_blocks) {
        return broken(block, "does not know its slot blocks");
    }
    if (ashlar__block_is_shared(block) != (block->uses != NULL)) {
        return broken(block, "marked as shared without a use, or the reverse");
    }
    if (memory->late_count > memory->slot_block_count) {
        return broken(block, "more late blocks than slot blocks");
    }
    size_t end = 0, begin = block->offset;
    for (size_t i = 0; i < memory->slot_block_count; i++) {
        ASHLAR_TRY(check_slot_block(map, memory, &memory->slot_blocks[i], begin, &end));
        begin = memory->slot_blocks[i].offset + ASHLAR_BLOCK_ALIGN;
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__plan_memories_check_locked(const ashlar_plan_memory *memories,
                                                 const ashlar_page_map *map) {
    for (const ashlar_plan_memory *memory = memories; memory != NULL; memory = memory->next) {
        ASHLAR_TRY(check_memory(map, memory));
    }
    return ASHLAR_OK;
}
