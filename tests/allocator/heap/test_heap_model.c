/*
 * test_heap_model.c - random operations on a heap against a plain list of the blocks that are live,
 * on both back ends, with driver calls that fail now and then.
 */
#include "tests/allocator/heap/heap_fixture.h"

#include "allocator/heap/size_class.h"
#include "allocator/base/random.h"

enum { SLOTS = 200, ROUNDS = 6000 };

#define DEVICE_BYTES (256 * MIB)

/* What a block was when it was taken; it must still be that when it is put back. */
typedef struct slot {
    ashlar_block *block; /* NULL: empty */
    size_t offset;
    size_t bytes;
} slot;

static slot slots[SLOTS];
static size_t live_bytes;
static size_t failures; /* operations that the driver or the host refused */
static uint64_t random_state;

static size_t draw(size_t below) {
    return (size_t)ashlar__random_step_below(&random_state, below);
}

static ashlar_stream_state *any_order(void) {
    return draw(2) == 0 ? &order_a : &order_b;
}

/* The stamp of a use now, later or long past, and what is known of the stream's progress. */
static uint64_t any_tick(ashlar_stream_state *state) {
    if (draw(8) == 0) {
        state->completed += draw(3);
    }
    return state->completed + draw(4) - (state->completed > 0 ? draw(2) : 0);
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

static void disarm(void) {
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    ashlar__host_fail_at(0);
}

static size_t any_bytes(void) {
    static const size_t most[] = {16 * KIB, 1 * MIB, 48 * MIB};
    const size_t bytes = 1 + draw(most[draw(4) == 0 ? 2 : draw(2)]);
    return (bytes + ASHLAR_BLOCK_ALIGN - 1) & ~(ASHLAR_BLOCK_ALIGN - 1);
}

/* As a simple allocator would: own blocks, idle ones, swept ones, new memory, gathered memory. */
static ashlar_status find(ashlar_stream_state *state, size_t bytes, ashlar_block **out) {
    ashlar_status status = ASHLAR_OK;
    for (int attempt = 0; attempt < 2; attempt++) {
        *out = ashlar__free_bins_best_fit(&state->free, bytes);
        if (*out == NULL) {
            *out = ashlar__free_bins_best_fit(&heap.idle, bytes);
        }
        if (*out != NULL) {
            return ASHLAR_OK;
        }
        ashlar__heap_sweep(&heap);
    }
    status = ashlar__heap_grow(&heap, state, bytes, out);
    return status == ASHLAR_ENOMEM ? ashlar__heap_gather(&heap, state, bytes, out) : status;
}

static size_t take_any(slot *s) {
    ashlar_stream_state *state = any_order();
    const size_t bytes = any_bytes();
    ashlar_block *block = NULL;
    ashlar_status status = find(state, bytes, &block);
    if (status == ASHLAR_OK) {
        if (block->bytes < bytes || (block->stream_state != state && block->stream_state != NULL)) {
            return 1;
        }
        status = ashlar__heap_take(&heap, block, bytes);
    }
    if (status != ASHLAR_OK) {
        failures++;
        return 0;
    }
    block->stream_state = state;
    block->requested = bytes;
    if (draw(4) == 0) {
        block->requested = 0;
    }
    *s = (slot){.block = block, .offset = block->offset, .bytes = bytes};
    live_bytes += bytes;
    return 0;
}

static size_t put_back(slot *s) {
    size_t wrong = s->block->offset != s->offset || s->block->bytes != s->bytes;
    wrong += ashlar__page_map_get(&heap.map, s->offset) != s->block;
    ashlar_stream_state *state = any_order();
    ashlar__heap_put(&heap, s->block, state, any_tick(state));
    live_bytes -= s->bytes;
    s->block = NULL;
    return wrong;
}

/* An operation on the whole heap. It may fail: the driver may, and the memory may be in use. */
static ashlar_status change(size_t kind) {
    ashlar_block *out = NULL;
    switch (kind) {
    case 0:
        return ashlar__heap_trim(&heap, draw(2) == 0 ? 0 : draw(DEVICE_BYTES));
    case 1:
        return ashlar__heap_reserve(&heap, draw(DEVICE_BYTES + MIB));
    case 2:
        return ashlar__heap_gather(&heap, any_order(), any_bytes(), &out);
    case 3:
        heap.range.limit_bytes = draw(2) == 0 ? DEVICE_BYTES : draw(DEVICE_BYTES);
        break;
    default:
        ashlar__heap_sweep(&heap);
        break;
    }
    return ASHLAR_OK;
}

/* One random operation; returns what is wrong afterwards. */
static size_t step(void) {
    enum { CHANGES = 5 };
    size_t wrong = 0;
    const size_t kind = draw(64);
    slot *s = &slots[draw(SLOTS)];
    arm(16);
    if (kind < CHANGES) {
        failures += change(kind) != ASHLAR_OK;
    } else if (kind == CHANGES) { /* many at once, so that there is something to give back */
        for (size_t i = draw(SLOTS); i < SLOTS; i++) {
            wrong += slots[i].block != NULL ? put_back(&slots[i]) : 0;
        }
    } else {
        wrong += s->block == NULL ? take_any(s) : put_back(s);
    }
    disarm();
    wrong += ashlar__heap_check(&heap) != ASHLAR_OK;
    wrong += heap.used_bytes != live_bytes;
    return wrong;
}

CASE_BOTH(random_operations_leave_a_sound_heap) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        printf("# seed %llu\n", (unsigned long long)seed);
        REQUIRE(set_up_heap("memory=256MiB"));
        random_state = seed;
        live_bytes = 0;
        failures = 0;
        size_t wrong = 0;
        for (int round = 0; round < ROUNDS && wrong == 0; round++) {
            wrong += step();
            if (wrong != 0) {
                printf("# round %d: %s\n", round, ashlar_error_detail());
            }
        }
        CHECK_ZU(wrong, 0);
        CHECK(failures > 0);
        CHECK_ZU(free_memory_of(device), DEVICE_BYTES - heap.range.mapped_bytes);
        for (size_t i = 0; i < SLOTS; i++) {
            if (slots[i].block != NULL) {
                wrong += put_back(&slots[i]);
            }
        }
        order_a.completed = order_b.completed = UINT64_MAX;
        CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_OK);
        CHECK_ZU(wrong, 0);
        CHECK_ZU(heap.range.mapped_bytes, 0);
        CHECK(heap.first == NULL);
        tear_down_heap();
    }
}

RUN_CASES()
