/*
 * model_operations.h - what each operation of the model does, and what must be so afterwards.
 */
#ifndef ASHLAR_MODEL_OPERATIONS_H
#define ASHLAR_MODEL_OPERATIONS_H

#include "tests/allocator/core/model_draw.h"

/* ---- blocks ---- */

static inline void op_alloc(world *w, const operation *op) {
    model_block *block = &w->blocks[op->slot];
    size_t block_bytes = 0;
    void *ptr = NULL;
    if (block->ptr != NULL) {
        return;
    }
    EXPECT(ashlar__block_bytes(op->bytes, &block_bytes));
    const ashlar_status status = ashlar_alloc_tagged(w->allocator, op->bytes, (ashlar_tag)op->tag,
                                                     handle_of(w, op->lane), &ptr);
    if (status == ASHLAR_ENOMEM) {
        refused_count++;
        EXPECT(ptr == NULL && strstr(ashlar_error_detail(), " bytes asked for") != NULL);
        EXPECT(!must_fit(w, block_bytes));
        return;
    }
    if (status != ASHLAR_OK) {
        wrong("alloc: %s", ashlar_error_detail());
        return;
    }
    *block = (model_block){.ptr = ptr,
                           .bytes = op->bytes,
                           .block_bytes = block_bytes,
                           .tag = op->tag,
                           .home = op->lane,
                           .last = op->lane,
                           .is_plain = true,
                           .stamp = ++next_stamp};
    model_alloc(&w->want, block);
    EXPECT((uintptr_t)ptr % ASHLAR_BLOCK_ALIGN == 0);
    EXPECT(!overlaps_live(w, block));
    size_t usable = 0;
    EXPECT(ashlar_allocator_usable_bytes(w->allocator, ptr, &usable) == ASHLAR_OK &&
           usable == block_bytes);
    prove_owned(w, block, op->lane);
    queue_use(w, block, op->lane, 0, block->stamp);
}

/* Order `lane` behind all `lanes`. False: this thread has no name for one of them. */
static inline bool come_after(world *w, unsigned lanes, int lane, int thread) {
    for (int from = 0; from < LANES; from++) {
        if ((lanes >> from & 1) != 0 && !can_name(from, thread)) {
            return false;
        }
    }
    for (int from = 0; from < LANES; from++) {
        if ((lanes >> from & 1) != 0) {
            order_lanes(w, from, lane);
        }
    }
    return true;
}

/* Before a free on the last lane: readers that the allocator does not know of, as on home. */
static inline bool gather_readers(world *w, const model_block *block, int thread) {
    return come_after(w, block->readers & ~block->recorded, block->last, thread);
}

/* The last use, which finds what was written last; then the block is the allocator's. */
static inline void free_block(world *w, model_block *block, int thread, bool is_plain) {
    const bool names_last = can_name(block->last, thread);
    is_plain = block->is_plain && (is_plain || !names_last);
    if (!is_plain && (!names_last || !gather_readers(w, block, thread))) {
        return; /* another thread's to free */
    }
    /* A use on the lane that took over from one that is gone would not be covered by plain free. */
    if (names_last && !(is_plain && block->is_moved)) {
        queue_use(w, block, block->last, block->stamp, 0);
    }
    const ashlar_status status =
        is_plain ? ashlar_free(w->allocator, block->ptr)
                 : ashlar_free_on(w->allocator, block->ptr, handle_of(w, block->last));
    if (status != ASHLAR_OK) {
        wrong("free: %s", ashlar_error_detail());
    }
    model_free(&w->want, block);
    *block = (model_block){0};
}

static inline void op_free(world *w, const operation *op) {
    if (w->blocks[op->slot].ptr != NULL) {
        free_block(w, &w->blocks[op->slot], op->thread, op->choice % 2 == 0);
    }
}

static inline void op_free_many(world *w, const operation *op) {
    for (size_t i = op->slot; i < SLOTS; i++) {
        if (w->blocks[i].ptr != NULL) {
            free_block(w, &w->blocks[i], op->thread, (op->choice >> i % 16) % 2 == 0);
        }
    }
}

static inline void record_stream(world *w, model_block *block, int lane) {
    EXPECT(ashlar_record_stream(w->allocator, block->ptr, handle_of(w, lane)) == ASHLAR_OK);
    block->recorded |= lane != block->home ? 1u << lane : 0; /* the block's own changes nothing */
}

/* Write a block on another lane; is_recorded: and tell the allocator, before or after. */
static inline void op_use(world *w, const operation *op, bool is_recorded) {
    model_block *block = &w->blocks[op->slot];
    if (block->ptr == NULL ||
        !come_after(w, 1u << block->last | block->readers, op->lane, op->thread)) {
        return;
    }
    if (is_recorded && op->choice % 2 == 0) {
        record_stream(w, block, op->lane);
    }
    const uint64_t before = block->stamp;
    block->stamp = ++next_stamp;
    queue_use(w, block, op->lane, before, block->stamp);
    if (is_recorded && op->choice % 2 != 0) {
        record_stream(w, block, op->lane);
    }
    block->last = op->lane;
    block->readers = 0;
    block->is_moved = false;
    block->is_plain = op->lane == block->home || (block->recorded >> op->lane & 1) != 0;
}

/* Read a block on another lane, beside whoever else does. */
static inline void op_read(world *w, const operation *op) {
    model_block *block = &w->blocks[op->slot];
    if (block->ptr != NULL && come_after(w, 1u << block->last, op->lane, op->thread)) {
        record_stream(w, block, op->lane);
        queue_use(w, block, op->lane, block->stamp, 0);
        block->readers |= 1u << op->lane;
    }
}

/* ---- the host's view ---- */

static inline void op_wait(world *w, const operation *op) {
    EXPECT(ashlar_stream_synchronize(w->device, handle_of(w, op->lane)) == ASHLAR_OK);
}

static inline void op_query(world *w, const operation *op) {
    EXPECT(ashlar__device_enter(w->device) == ASHLAR_OK);
    const cu_result result = table_of(w)->event_query(w->events[op->lane]);
    ashlar__device_leave(w->device);
    EXPECT(result == CU_SUCCESS || result == CU_NOT_READY);
}

/* ---- limits ---- */

/* No more was given back than it takes; and no less, where no work can be in the way. */
static inline void check_given_back(const world *w, size_t before, size_t target) {
    const ashlar_range *range = range_of(w);
    if (before <= target) {
        EXPECT(range->mapped_bytes == before);
        return;
    }
    EXPECT(range->mapped_bytes + range->handle_bytes > target || range->segments != NULL);
    EXPECT(range->mapped_bytes <= before);
    EXPECT(!is_eager() || range->mapped_bytes <= target || idle_handle_bytes(w) == 0);
}

static inline void op_trim(world *w, const operation *op) {
    const size_t before = range_of(w)->mapped_bytes;
    const size_t target = op->choice % 4 == 0 ? 0 : op->choice % (DEVICE_MIB + 1) * MIB;
    EXPECT(ashlar_allocator_trim(w->allocator, target) == ASHLAR_OK);
    check_given_back(w, before, target);
}

static inline void set_limit(world *w, size_t bytes) {
    const size_t before = range_of(w)->mapped_bytes;
    const size_t total = w->device->info.total_bytes;
    w->limit_bytes = bytes == 0 || bytes > total ? total : bytes;
    const ashlar_status status = ashlar_allocator_set_limit(w->allocator, bytes);
    const bool is_above = range_of(w)->mapped_bytes > w->limit_bytes;
    EXPECT(status == (is_above ? ASHLAR_ENOMEM : ASHLAR_OK));
    check_given_back(w, before, w->limit_bytes);
}

static inline void op_limit(world *w, const operation *op) {
    set_limit(w, ASHLAR_CONFIG_BYTES_MIN + (op->choice * 977) % (DEVICE_MIB * MIB));
}

static inline void op_reserve(world *w, const operation *op) {
    const ashlar_range *range = range_of(w);
    const size_t before = range->mapped_bytes;
    const size_t target = op->choice % (DEVICE_MIB + 8) * MIB;
    const ashlar_status status = ashlar_allocator_reserve(w->allocator, target);
    const size_t lacking = target > before ? target - before : 0;
    const size_t need = (lacking + range->handle_bytes - 1) & ~(range->handle_bytes - 1);
    const size_t left = w->limit_bytes > before ? w->limit_bytes - before : 0;
    const bool is_refused = need > 0 && (need > left || (w->is_sealed && w->is_refusing));
    EXPECT(status == (is_refused ? ASHLAR_ENOMEM : ASHLAR_OK));
    EXPECT(range->mapped_bytes == before + (is_refused ? 0 : need));
}

static inline void count_warning(void *user, const char *line) {
    const world *w = user;
    ashlar_stats stats;
    ashlar_allocator_get_stats(w->allocator, &stats); /* no lock is held */
    EXPECT(stats.is_sealed && strstr(line, "bytes") != NULL);
    warned_count++;
}

static inline void op_seal(world *w, const operation *op) {
    static const ashlar_seal_policy policies[] = {ASHLAR_SEAL_COUNT, ASHLAR_SEAL_WARN,
                                                  ASHLAR_SEAL_WARN, ASHLAR_SEAL_COUNT,
                                                  ASHLAR_SEAL_ERROR};
    const ashlar_seal_policy policy = policies[op->choice % 5];
    CHECK(ashlar_allocator_set_seal_policy(w->allocator, policy, count_warning, w) == ASHLAR_OK);
    w->is_refusing = policy == ASHLAR_SEAL_ERROR;
    if (op->choice % 3 == 0) {
        ashlar_allocator_seal(w->allocator);
        w->is_sealed = true;
    }
}

/* Where memory is out: give up the last block that may be freed from here. */
static _Thread_local int reclaiming_thread;

static inline bool reclaim_block(void *user, size_t bytes) {
    world *w = user;
    EXPECT(bytes > 0);
    for (size_t i = SLOTS; i-- > 0;) {
        model_block *block = &w->blocks[i];
        if (block->ptr != NULL && (block->is_plain || can_name(block->last, reclaiming_thread))) {
            free_block(w, block, reclaiming_thread, true);
            return true;
        }
    }
    return false;
}

/* ---- ends ---- */

/* A lane is about to be gone: the default stream takes over, behind it. */
static inline void hand_over_lane(world *w, int lane) {
    order_lanes(w, lane, LANE_LEGACY);
    for (size_t i = 0; i < SLOTS; i++) {
        model_block *block = &w->blocks[i];
        const unsigned bit = 1u << lane;
        if (block->last == lane) {
            block->last = LANE_LEGACY;
            block->is_moved = true;
        }
        if ((block->readers & bit) != 0) {
            block->readers = (block->readers & ~bit) | 1u << LANE_LEGACY;
        }
        block->recorded &= ~bit;
        block->home = block->home == lane ? NO_LANE : block->home;
    }
}

static inline bool make_stream(world *w, int lane) {
    const unsigned flags = (lane - LANE_MADE) % 2 == 0 ? CU_STREAM_BLOCKING : CU_STREAM_UNORDERED;
    return table_of(w)->stream_create(&w->made[lane], flags) == CU_SUCCESS;
}

static inline void op_end_stream(world *w, const operation *op) {
    const int lane = op->lane >= LANE_MADE ? op->lane : LANE_MADE + op->lane;
    hand_over_lane(w, lane);
    EXPECT(ashlar_allocator_forget_stream(w->allocator, w->made[lane]) == ASHLAR_OK);
    EXPECT(ashlar__device_enter(w->device) == ASHLAR_OK);
    EXPECT(table_of(w)->stream_destroy(w->made[lane]) == CU_SUCCESS);
    EXPECT(make_stream(w, lane));
    ashlar__device_leave(w->device);
}

/* The calling thread is about to end. */
static inline void leave_thread(int thread) {
    for (int i = 0; i < DEVICES; i++) {
        hand_over_lane(&worlds[i], LANE_OF_THREAD + thread);
    }
}

/* ---- one operation ---- */

static inline void perform(world *w, const operation *op) {
    switch (op->kind) {
    case OP_ALLOC:
        op_alloc(w, op);
        break;
    case OP_FREE:
        op_free(w, op);
        break;
    case OP_FREE_MANY:
        op_free_many(w, op);
        break;
    case OP_USE:
    case OP_SHARE:
        op_use(w, op, op->kind == OP_SHARE);
        break;
    case OP_READ:
        op_read(w, op);
        break;
    case OP_WAIT:
        op_wait(w, op);
        break;
    case OP_QUERY:
        op_query(w, op);
        break;
    case OP_TRIM:
        op_trim(w, op);
        break;
    case OP_LIMIT:
        op_limit(w, op);
        break;
    case OP_UNLIMIT:
        set_limit(w, 0);
        break;
    case OP_RESERVE:
        op_reserve(w, op);
        break;
    case OP_SEAL:
        op_seal(w, op);
        break;
    case OP_END_STREAM:
        op_end_stream(w, op);
        break;
    case OP_END_THREAD: /* model_run.h */
    case OP_COUNT:
        break;
    }
}

static inline void operate(const operation *op, uint32_t number) {
    world *w = &worlds[op->world];
    ashlar_device *abroad = op->is_abroad ? worlds[!op->world].device : NULL;
    reclaiming_thread = op->thread;
    EXPECT(abroad == NULL || ashlar__device_enter(abroad) == ASHLAR_OK);
    perform(w, op);
    compare_reserved(w);
    if (number % playing->read_every == 0) {
        compare_stats(w);
    }
    if (number % 128 == 0) {
        compare_all(w);
    }
    EXPECT(atomic_load(&stamp_bad_count) == 0);
    if (abroad != NULL) {
        ashlar__device_leave(abroad);
    }
}

#endif /* ASHLAR_MODEL_OPERATIONS_H */
