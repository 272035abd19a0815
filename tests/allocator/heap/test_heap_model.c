/*
 * test_heap_model.c - random operations on a heap against a list of the blocks that are live or
 * away, and of the handles that are mapped and what uses them, with calls that fail now and then.
 */
#include "tests/allocator/heap/heap_fixture.h"

#include "allocator/base/random.h"
#include "allocator/soft/soft_state.h"

enum { STATES = 3, SLOTS = 120, ROUNDS = 10000, CELLS = 1024 };

#define DEVICE_BYTES (64 * MIB)

/* 1, and a line that says so, if something is wrong. */
#define WRONG_IF(expr) ((expr) ? (size_t)(printf("# line %d: %s\n", __LINE__, #expr) > 0) : 0)

/* A block that is in use, or was freed and is away: then its streams' needs have come. */
typedef struct slot {
    ashlar_block *block; /* NULL: empty */
    size_t offset, bytes;
    bool is_away;
    uint64_t needs[STATES]; /* away: the recordings that come behind its uses; 0: none */
    uint64_t home_need;     /* the same for its home */
} slot;

/* A handle's worth of addresses; only with virtual memory. */
typedef struct cell {
    bool is_mapped;
    bool was_past;  /* before the operation */
    uint64_t stamp; /* the recording of its zone's owner that comes behind all uses; 0: none */
} cell;

static ashlar_stream_state state_c, *states[STATES] = {&state_a, &state_b, &state_c};
static slot slots[SLOTS];
static cell cells[CELLS];
static size_t may_map_from, may_map_to; /* cells that the operation may map, */
static bool may_unmap;                  /* and whether it may unmap any */
static size_t failures;                 /* operations that were refused */
static uint64_t random_state;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static uint64_t next_of(const ashlar_stream_state *state) {
    return state->recorded + 1;
}

static void stamp_cells(size_t offset, size_t bytes, uint64_t stamp) {
    for (size_t i = offset / H; !use_segments && i <= (offset + bytes - 1) / H; i++) {
        cells[i].stamp = cells[i].stamp < stamp ? stamp : cells[i].stamp;
    }
}

/* ---- comparing ---- */

static bool meets_slot(size_t offset, size_t bytes) {
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].block != NULL && offset < slots[i].offset + slots[i].bytes &&
            slots[i].offset < offset + bytes) {
            return true;
        }
    }
    return false;
}

/* Notice which blocks went home; none may before all of its uses are past. */
static size_t settle_slots(void) {
    size_t wrong = 0;
    for (slot *s = slots; s < slots + SLOTS; s++) {
        if (s->block == NULL || !s->is_away ||
            ashlar__page_map_get(&heap.map, s->offset) == s->block) {
            continue;
        }
        for (int i = 0; i < STATES; i++) {
            wrong += WRONG_IF(s->needs[i] > states[i]->completed);
        }
        stamp_cells(s->offset, s->bytes, s->home_need);
        s->block = NULL;
    }
    return wrong;
}

/* Every slot is a block with memory, and every used block is a slot. */
static size_t compare_blocks(void) {
    size_t wrong = 0, count = 0, used = 0, away = 0;
    for (const slot *s = slots; s < slots + SLOTS; s++) {
        if (s->block != NULL) {
            wrong += WRONG_IF(s->block->offset != s->offset || s->block->bytes != s->bytes);
            wrong += WRONG_IF(ashlar__page_map_get(&heap.map, s->offset) != s->block);
            wrong += WRONG_IF(ashlar__block_is_cross(s->block) != s->is_away);
            wrong += WRONG_IF(
                !ashlar__soft_is_accessible((uintptr_t)(heap.range.base + s->offset), s->bytes));
            used += s->bytes;
            away += s->is_away ? s->bytes : 0;
            count++;
        }
    }
    for (const ashlar_block *block = ashlar__heap_first(&heap); block != NULL;
         block = ashlar__heap_next(block)) {
        count -= !ashlar__block_is_free(block);
    }
    return wrong + WRONG_IF(count != 0) + WRONG_IF(used != ashlar__heap_used_bytes(&heap)) +
           WRONG_IF(away != heap.cross_bytes);
}

/* What was mapped was asked for; what was unmapped had no block, and the device was done with it.
 */
static size_t compare_cells(void) {
    size_t wrong = 0;
    for (const ashlar_window *w = heap.windows; w != NULL && !use_segments; w = w->above) {
        for (size_t i = 0; i < w->bytes / H; i++) {
            const size_t idx = w->offset / H + i;
            cell *c = &cells[idx];
            if (c->is_mapped && !w->backing[i].is_mapped) {
                wrong += WRONG_IF(!may_unmap || meets_slot(idx * H, H) ||
                                  (!c->was_past && c->stamp > w->zone->owner->completed));
                *c = (cell){0};
            } else if (!c->is_mapped && w->backing[i].is_mapped) {
                wrong += WRONG_IF(idx < may_map_from || idx >= may_map_to);
                *c = (cell){.is_mapped = true};
            }
            wrong += WRONG_IF(c->is_mapped && w->backing[i].covered_by != c->stamp);
            wrong += WRONG_IF(c->is_mapped != ashlar__soft_is_accessible(
                                                  (uintptr_t)(heap.range.base + idx * H), 1));
        }
    }
    return wrong;
}

/* ---- operations ---- */

static size_t any_bytes(void) {
    static const size_t most[] = {16 * KIB, 1 * MIB, 12 * MIB};
    const size_t bytes = 1 + draw(most[draw(3)]);
    return (bytes + ASHLAR_BLOCK_ALIGN - 1) & ~(ASHLAR_BLOCK_ALIGN - 1);
}

static size_t fill_slot(slot *s, ashlar_block *block, ashlar_stream_state *state) {
    const size_t wrong = WRONG_IF(meets_slot(block->offset, block->bytes));
    block->stream_state = state;
    block->requested = block->bytes;
    *s = (slot){.block = block, .offset = block->offset, .bytes = block->bytes};
    return wrong;
}

/* The best gap of the stream's zone, with memory from wherever is allowed. */
static size_t take_own(slot *s, ashlar_stream_state *state, size_t bytes) {
    ashlar_zone *zone = ashlar__zone_of(state, bytes);
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    const unsigned may = (unsigned)draw(4);
    may_unmap = gap == NULL; /* a window without blocks, where addresses have run out */
    ashlar_status status = gap == NULL ? ashlar__heap_add_window(&heap, zone, bytes) : ASHLAR_OK;
    const size_t wrong = compare_cells();
    gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    if (status == ASHLAR_OK) {
        may_map_from = gap->offset / H;
        may_map_to = (gap->offset + bytes - 1) / H + 1;
        may_unmap = may_unmap || (may & ASHLAR_MAY_MOVE) != 0;
        status = ashlar__heap_back(&heap, gap, bytes, may);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__heap_take_run(&heap, gap, gap->offset, bytes, &gap);
    }
    failures += status != ASHLAR_OK;
    return wrong + (status == ASHLAR_OK ? fill_slot(s, gap, state) : 0);
}

/* A piece of another stream's gap, its memory past; or a block away that the stream has freed. */
static size_t borrow(slot *s, ashlar_stream_state *state, size_t bytes) {
    ashlar_stream_state *owner = states[draw(STATES)];
    const ashlar_zone *zone = ashlar__zone_of(owner, bytes);
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes), *block = NULL;
    size_t offset = 0;
    if (draw(2) == 0 && state->oldest_cross != NULL) {
        block = ashlar__cross_take_own(&heap, state, state->oldest_cross->bytes);
        for (slot *from = slots; block != NULL && from < slots + SLOTS; from++) {
            if (from->block == block) {
                from->block = NULL;
                return fill_slot(s, block, state);
            }
        }
        return WRONG_IF(block != NULL);
    }
    if (gap == NULL || !ashlar__heap_find_run(&heap, gap, bytes, &offset) ||
        !ashlar__heap_is_past_at(&heap, gap->window, offset, bytes)) {
        return 0;
    }
    if (ashlar__heap_take_run(&heap, gap, offset, bytes, &block) != ASHLAR_OK) {
        failures++;
        return 0;
    }
    block->marks |= owner != state ? ASHLAR_BLOCK_BORROWED : 0;
    return fill_slot(s, block, state);
}

/* Free a block on any stream, maybe after uses on others. */
static void free_slot(slot *s) {
    ashlar_stream_state *home = ashlar__block_owner(s->block);
    ashlar_stream_state *state = draw(2) == 0 ? home : states[draw(STATES)];
    for (int i = 0; i < STATES; i++) {
        const bool is_used = (states[i] == state && state != home) ||
                             (draw(6) == 0 && states[i] != home &&
                              ashlar__cross_add_use(&heap, s->block, states[i]) == ASHLAR_OK);
        s->needs[i] = is_used ? next_of(states[i]) : 0;
        s->is_away |= is_used;
    }
    const bool is_borrowed = (s->block->marks & ASHLAR_BLOCK_BORROWED) != 0;
    s->home_need = is_borrowed && state != home ? 0 : next_of(home);
    s->block->requested = 0;
    if (!s->is_away && draw(8) == 0) {
        s->home_need = 0;
        ashlar__heap_put_stamped(&heap, s->block, 0);
    } else {
        ashlar__release_block_locked(&heap, s->block, state);
    }
    if (!s->is_away) {
        stamp_cells(s->offset, s->bytes, s->home_need);
        s->block = NULL;
    }
}

/* Give a zone to another stream: as past only if its owner's work is. */
static void move_zone(ashlar_stream_state *from, ashlar_stream_state *to) {
    const size_t kind = draw(ASHLAR_ZONE_COUNT);
    ashlar_zone *zone = &from->zones[kind];
    const bool is_past = from->completed > from->last_tick;
    const uint64_t stamp = is_past ? 0 : next_of(to);
    if (from == to || zone->windows == NULL) {
        return;
    }
    for (const ashlar_window *w = zone->windows; w != NULL; w = w->next) {
        for (size_t i = 0; i < w->bytes / H && !use_segments; i++) {
            cells[w->offset / H + i].stamp = stamp;
        }
        for (slot *s = slots; s < slots + SLOTS; s++) {
            if (s->block != NULL && s->block->window == w) {
                s->home_need = stamp;
            }
        }
    }
    ashlar__zone_move(&heap, zone, &to->zones[kind], is_past);
}

/* Learn how far a stream has come: to its end, or to its oldest recording. */
static ashlar_status learn(ashlar_stream_state *state) {
    ashlar_status status = ASHLAR_OK;
    if (draw(2) == 0) {
        status = ashlar__stream_state_cover(state, &client, state->recorded, &events_recorded);
    }
    if (status == ASHLAR_OK && draw(2) == 0 && state->pending_count > 0) {
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1 + draw(4), CU_NOT_READY);
        status = ashlar__stream_state_query(state, &client);
    }
    return status;
}

/* Send a block home behind an in-stream wait: its uses go on, its home's work comes behind them. */
static ashlar_status wait_for_a_block(ashlar_stream_state *home) {
    bool found = false;
    const ashlar_status status = ashlar__cross_wait(&heap, home, any_bytes(), false, &found);
    for (slot *s = slots; found && s < slots + SLOTS; s++) {
        if (s->block != NULL && s->is_away &&
            ashlar__page_map_get(&heap.map, s->offset) != s->block) {
            memset(s->needs, 0, sizeof s->needs);
            s->home_need = next_of(home);
        }
    }
    return status;
}

/* An operation on the whole heap. It may fail: the driver may, and the memory may be in use. */
static ashlar_status change(size_t kind) {
    ashlar_stream_state *state = states[draw(STATES)];
    size_t moved = 0;
    switch (kind) {
    case 0:
        may_unmap = true;
        return ashlar__heap_trim(&heap, draw(2) == 0 ? 0 : draw(DEVICE_BYTES));
    case 1:
        return ashlar__heap_reserve(&heap, state->zones, draw(DEVICE_BYTES + 4 * MIB));
    case 2:
        heap.range.limit_bytes = draw(2) == 0 ? DEVICE_BYTES : draw(DEVICE_BYTES);
        return ASHLAR_OK;
    case 3:
        move_zone(state, states[draw(STATES)]);
        return ASHLAR_OK;
    case 4:
        may_unmap = true;
        return use_segments ? ASHLAR_OK : ashlar__heap_unmap_free(&heap, NULL, draw(12), &moved);
    case 5:
        return wait_for_a_block(state);
    case 6:
        (void)ashlar__cross_settle(&heap);
        return ASHLAR_OK;
    case 7:
        return ashlar__cross_ask(&heap, 1 + draw(STATES));
    default:
        return learn(state);
    }
}

/* A failure of any driver call, or of a host allocation, in one of `odds` operations. */
static void arm(size_t odds) {
    if (draw(odds) == 0) {
        ashlar__driver_fail_at(driver, -1, 1 + draw(8),
                               draw(2) == 0 ? CU_UNKNOWN : CU_OUT_OF_MEMORY);
    } else if (draw(odds) == 0) {
        ashlar__host_fail_at(1 + draw(4));
    }
}

/* A window that is unmapped may change hands in the same operation. */
static void note_past(void) {
    for (const ashlar_window *w = heap.windows; w != NULL; w = w->above) {
        for (size_t i = 0; i < w->bytes / H && !use_segments; i++) {
            cell *c = &cells[w->offset / H + i];
            c->was_past = c->stamp <= w->zone->owner->completed;
        }
    }
}

static size_t step(void) {
    size_t wrong = 0;
    const size_t kind = draw(80);
    slot *s = &slots[draw(SLOTS)];
    may_map_from = may_map_to = 0;
    may_unmap = false;
    note_past();
    arm(16);
    if (kind < 16) {
        failures += change(kind) != ASHLAR_OK;
    } else if (kind == 16) { /* many at once, so that there is something to give back */
        for (size_t i = draw(SLOTS); i < SLOTS; i++) {
            if (slots[i].block != NULL && !slots[i].is_away) {
                free_slot(&slots[i]);
            }
        }
    } else if (s->block == NULL) {
        ashlar_stream_state *state = states[draw(STATES)];
        wrong += (draw(4) == 0 ? borrow : take_own)(s, state, any_bytes());
    } else if (!s->is_away) {
        free_slot(s);
    }
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    ashlar__host_fail_at(0);
    wrong += settle_slots() + compare_blocks() + compare_cells();
    wrong +=
        WRONG_IF(ashlar__heap_check(&heap) != ASHLAR_OK || ashlar__cross_check(&heap) != ASHLAR_OK);
    return wrong;
}

static bool set_up_model(uint64_t seed) {
    printf("# seed %llu\n", (unsigned long long)seed);
    memset(slots, 0, sizeof slots);
    memset(cells, 0, sizeof cells);
    random_state = seed;
    failures = 0;
    init_state(&state_c, streams[2]);
    const bool is_set_up = set_up_heap("memory=64MiB");
    state_c.stream = streams[2];
    return is_set_up && heap.range.memory_bytes == DEVICE_BYTES;
}

/* Free what is left, and learn that all work is over. */
static void check_end(void) {
    for (slot *s = slots; s < slots + SLOTS; s++) {
        if (s->block != NULL && !s->is_away) {
            free_slot(s);
        }
    }
    for (int i = 0; i < STATES; i++) {
        CHECK(ashlar_stream_synchronize(device, states[i]->stream) == ASHLAR_OK);
    }
    for (int round = 0; round < STATES; round++) { /* a block may wait for all, one by one */
        CHECK(ashlar__cross_ask(&heap, STATES) == ASHLAR_OK);
    }
    CHECK(ashlar__heap_used_bytes(&heap) == 0 && heap.awaited == NULL);
    for (int i = 0; i < STATES; i++) {
        CHECK(states[i]->cross_count == 0);
        CHECK(ashlar__stream_state_ask(states[i], &client, states[i]->last_tick,
                                       &events_recorded) == ASHLAR_OK);
    }
    CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_OK);
    CHECK_ZU(heap.range.mapped_bytes, 0);
    ashlar__stream_state_finish(&state_c, &client);
}

CASE_TWICE(random_operations_agree_with_the_model,
           random_operations_agree_with_the_model_in_segments, &use_segments) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        REQUIRE(set_up_model(seed));
        size_t wrong = 0;
        for (int round = 0; round < ROUNDS && wrong == 0; round++) {
            wrong = step();
            if (wrong != 0) {
                printf("# round %d: %s\n", round, ashlar_error_detail());
            }
        }
        REQUIRE(wrong == 0);
        CHECK(failures > 0);
        check_heap();
        check_end();
        tear_down_heap();
    }
}

RUN_CASES()
