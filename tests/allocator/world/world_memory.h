/*
 * world_memory.h - the oracle of sums and of memory: what the statistics must be, what must be
 * served, and what must go back to the device.
 */
#ifndef ASHLAR_WORLD_MEMORY_H
#define ASHLAR_WORLD_MEMORY_H

#include "tests/allocator/world/world_available.h"

/* ---- sums ---- */

static inline void sums_take(store *s, const world_block *b) {
    ashlar_stats *want = &s->want;
    ashlar_tag_stats *tag = &want->tags[b->tag];
    want->alloc_count++;
    want->live_blocks++;
    want->live_bytes += b->bytes;
    want->block_bytes += b->block_bytes;
    tag->live_bytes += b->bytes;
    tag->peak_bytes = tag->live_bytes > tag->peak_bytes ? tag->live_bytes : tag->peak_bytes;
    if (want->live_bytes > want->live_peak_bytes) {
        want->live_peak_bytes = want->live_bytes;
        for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
            want->tags[i].at_peak_bytes = want->tags[i].live_bytes;
        }
    }
}

static inline void sums_give(store *s, const world_block *b) {
    s->want.free_count++;
    s->want.live_blocks--;
    s->want.live_bytes -= b->bytes;
    s->want.block_bytes -= b->block_bytes;
    s->want.tags[b->tag].live_bytes -= b->bytes;
}

static inline void compare_peaks(const store *s, const ashlar_stats *got) {
    const ashlar_stats *want = &s->want;
    if (world.set->thread_count > 1) {
        return; /* exact for one thread only */
    }
    EXPECT(got->live_peak_bytes == want->live_peak_bytes);
    for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
        EXPECT(got->tags[i].peak_bytes == want->tags[i].peak_bytes);
        EXPECT(got->tags[i].at_peak_bytes == want->tags[i].at_peak_bytes);
    }
}

static inline void compare_sums(const store *s) {
    ashlar_stats got;
    const ashlar_stats *want = &s->want;
    ashlar_allocator_get_stats(s->allocator, &got);
    EXPECT(got.live_bytes == want->live_bytes && got.live_blocks == want->live_blocks);
    EXPECT(world.set->guard != 0 || !are_plans_idle(s) || got.block_bytes == want->block_bytes);
    EXPECT(got.alloc_count == want->alloc_count && got.free_count == want->free_count);
    EXPECT(got.block_bytes + got.cached_bytes + got.planned_bytes + got.shared_bytes +
               got.spare_bytes <=
           got.reserved_bytes);
    EXPECT(got.alloc_count == got.served_planned + got.served_cached + got.served_same_stream +
                                  got.served_idle + got.served_completed + got.served_waited +
                                  got.served_mapped + got.served_drained + got.served_reclaimed +
                                  got.served_after_sync + got.served_gathered);
    for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
        EXPECT(got.tags[i].live_bytes == want->tags[i].live_bytes);
    }
    compare_peaks(s, &got);
    EXPECT(got.reserved_peak_bytes >= got.reserved_bytes);
}

static inline void compare_store(const store *s) {
    compare_sums(s);
    EXPECT_OK(ashlar_allocator_check(s->allocator));
    const char *difference = allocator_difference(s->allocator);
    if (difference != NULL) {
        wrong("statistics and snapshot disagree: %s", difference);
    }
}

/* After every act; growth within it can only have been up to the limit. */
static inline void compare_reserved(store *s) {
    const size_t mapped = range_of(s)->mapped_bytes;
    if (mapped > s->reserved_bytes && world.set->guard == 0) {
        EXPECT(mapped <= s->limit_bytes);
        EXPECT(!s->is_sealed || !s->is_refusing);
    }
    s->reserved_bytes = mapped;
}

/* ---- limits ---- */

/* No more was given back than it takes; and no less, where no work can be in the way. */
static inline void check_given_back(const store *s, size_t before, size_t target) {
    const ashlar_range *range = range_of(s);
    const world_view v = view_of(s, NO_LANE);
    EXPECT(range->mapped_bytes <= before);
    if (world.set->guard != 0) {
        return;
    }
    EXPECT(before > target || range->mapped_bytes == before);
    EXPECT(before <= target || range->mapped_bytes + range->handle_bytes > target ||
           range->segments != NULL);
    EXPECT(world.set->is_adversarial || s->has_planned || s->pool != NULL || s->is_watched ||
           range->mapped_bytes <= target || is_any_captured() || idle_handle_bytes(&v) == 0);
}

static inline void act_trim(store *s, const act *a) {
    const size_t before = range_of(s)->mapped_bytes;
    const size_t target = a->choice % 2 == 0 ? 0 : a->choice % (world.set->memory_mib + 1) * MIB;
    TELL("CHECK(ashlar_allocator_trim(a%d, %zu) == ASHLAR_OK);", a->store, target);
    EXPECT_OK(ashlar_allocator_trim(s->allocator, target));
    check_given_back(s, before, target);
}

static inline void act_limit(store *s, const act *a) {
    const size_t total = s->at->device->info.total_bytes;
    const size_t bytes = a->choice % 2 == 0 ? 0 : 2 * MIB + a->choice * (977 * KIB) % total;
    const size_t before = range_of(s)->mapped_bytes;
    s->limit_bytes = bytes == 0 || bytes > total ? total : bytes;
    TELL("(void)ashlar_allocator_set_limit(a%d, %zu);", a->store, bytes);
    const ashlar_status status = ashlar_allocator_set_limit(s->allocator, bytes);
    const bool is_above = range_of(s)->mapped_bytes > s->limit_bytes;
    if (status != (is_above ? ASHLAR_ENOMEM : ASHLAR_OK)) {
        wrong("set_limit: %d, %s", (int)status, ashlar_error_detail());
    }
    check_given_back(s, before, s->limit_bytes);
}

static inline void act_reserve(store *s, const act *a) {
    const size_t target = a->choice % (world.set->memory_mib + 8) * MIB;
    TELL("(void)ashlar_allocator_reserve(a%d, %zu);", a->store, target);
    const ashlar_range *range = range_of(s);
    const size_t before = range->mapped_bytes, left = left_to_map(s);
    const size_t lacking = target > before ? target - before : 0;
    const size_t need = (lacking + range->handle_bytes - 1) & ~(range->handle_bytes - 1);
    const bool has_others = world.set->store_count > 1;
    const bool is_refused = need > 0 && (need > left || (s->is_sealed && s->is_refusing));
    const ashlar_status status = ashlar_allocator_reserve(s->allocator, target);
    if (world.set->guard == 0) {
        EXPECT(status == (is_refused ? ASHLAR_ENOMEM : ASHLAR_OK) ||
               (status == ASHLAR_OK && has_others)); /* they may have given some back */
        EXPECT(range->mapped_bytes == before + (status != ASHLAR_OK ? 0 : need));
    }
}

static inline void no_warning(void *user, const char *line) {
    const store *s = user;
    ashlar_stats stats;
    ashlar_allocator_get_stats(s->allocator, &stats); /* no lock is held */
    EXPECT(stats.is_sealed && strstr(line, "bytes") != NULL);
}

static inline void act_seal(store *s, const act *a) {
    static const ashlar_seal_policy policies[] = {ASHLAR_SEAL_COUNT, ASHLAR_SEAL_WARN,
                                                  ASHLAR_SEAL_WARN, ASHLAR_SEAL_COUNT,
                                                  ASHLAR_SEAL_ERROR};
    const ashlar_seal_policy policy = policies[a->choice % 5];
    TELL("(void)ashlar_allocator_set_seal_policy(a%d, (ashlar_seal_policy)%d, NULL, NULL);",
         a->store, (int)policy);
    EXPECT(ashlar_allocator_set_seal_policy(s->allocator, policy, no_warning, s) == ASHLAR_OK);
    s->is_refusing = policy == ASHLAR_SEAL_ERROR;
    if (a->choice % 3 == 0) {
        TELL("ashlar_allocator_seal(a%d);", a->store);
        ashlar_allocator_seal(s->allocator);
        s->is_sealed = true;
    }
}

static inline void act_watch(store *s, const act *a) {
    TELL("ashlar_allocator_watch_streams(a%d);", a->store);
    ashlar_allocator_watch_streams(s->allocator);
    s->is_watched = true;
}

#endif /* ASHLAR_WORLD_MEMORY_H */
