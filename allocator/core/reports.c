/*
 * reports.c - ashlar_allocator_check(), which compares all structures and statistics with a walk of
 * all blocks; what a guard found; and the blocks that are still live when an allocator, or the
 * process, ends.
 */
#include "allocator/core/core.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/plan/planner.h"

/* ---- findings ---- */

void ashlar_allocator_set_report(ashlar_allocator *a, ashlar_report_fn report, void *user) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__lock_acquire(&a->lock);
    a->report = report;
    a->report_user = user;
    ashlar__lock_release(&a->lock);
}

ashlar_status ashlar__guard_take_finding(ashlar_allocator *a) {
    const ashlar_status status =
        a->guard_fill != NULL ? ashlar__checker_take(&a->guard_fill->checker) : ASHLAR_OK;
    if (status == ASHLAR_OK) {
        return status;
    }
    ashlar__lock_acquire(&a->lock);
    const ashlar_report_fn report = a->report;
    void *user = a->report_user;
    ashlar__lock_release(&a->lock);
    if (report != NULL) {
        report(ashlar_error_detail(), user);
    }
    return status;
}

/* ---- the check ---- */

static ashlar_status miscounted(const char *what, uint64_t counted, uint64_t found) {
    return counted == found
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "allocator check: %s is counted as %llu, found %llu",
                              what, (unsigned long long)counted, (unsigned long long)found);
}

/* Check that the counters satisfy the equations in the comment on ashlar_stats. */
static ashlar_status check_equations(const ashlar_stats *s) {
    uint64_t live = 0, at_peak = 0;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_stats *t = &s->tags[tag];
        live += t->live_bytes;
        at_peak += t->at_peak_bytes;
        if (t->peak_bytes < t->live_bytes || t->peak_bytes < t->at_peak_bytes) {
            return miscounted("the peak of a tag", t->peak_bytes, t->live_bytes);
        }
    }
    ASHLAR_FAIL_IF(s->live_bytes > s->live_peak_bytes || s->live_bytes > s->block_bytes ||
                       s->reserved_bytes > s->reserved_peak_bytes ||
                       s->block_bytes + s->cached_bytes + s->planned_bytes + s->shared_bytes +
                               s->spare_bytes >
                           s->reserved_bytes,
                   ASHLAR_EFORMAT, "allocator check: a peak is below its value");
    const uint64_t served = s->served_planned + s->served_cached + s->served_same_stream +
                            s->served_idle + s->served_completed + s->served_waited +
                            s->served_mapped + s->served_drained + s->served_reclaimed +
                            s->served_after_sync + s->served_gathered;
    ashlar_status status = miscounted("the bytes at the peak", at_peak, s->live_peak_bytes);
    ASHLAR_THEN(status, miscounted("the sum of the tags", live, s->live_bytes));
    return status == ASHLAR_OK ? miscounted("the number of allocations", s->alloc_count, served)
                               : status;
}

/* What a walk of all blocks counts. */
typedef struct census {
    uint64_t live_bytes, live_blocks, block_bytes, cached_bytes, cached_blocks, free_blocks;
    uint64_t shared_bytes;
    uint64_t tags[ASHLAR_TAG_COUNT];
} census;

static void count_blocks(const ashlar_allocator *a, census *found) {
    for (const ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        const size_t live_bytes = ashlar__block_live_bytes(block);
        if (block->state == ASHLAR_BLOCK_FREE) {
            found->free_blocks++;
        } else if (block->state == ASHLAR_BLOCK_PLAN_MEMORY) {
            continue;
        } else if (live_bytes == 0 && ashlar__block_is_shared(block)) {
            found->shared_bytes += block->bytes;
            found->cached_blocks++;
        } else if (live_bytes == 0) {
            found->cached_bytes += block->bytes;
            found->cached_blocks++;
        } else {
            found->live_bytes += live_bytes;
            found->block_bytes += block->bytes;
            found->live_blocks++;
            found->tags[block->tag] += live_bytes;
        }
    }
}

/* Check the counters against a walk of all blocks. */
static ashlar_status check_census(const ashlar_allocator *a, const ashlar_stats *stats) {
    census found = {0};
    count_blocks(a, &found);
    const uint64_t in_page_map = found.live_blocks + found.cached_blocks +
                                 ashlar__plan_memories_idle_blocks(a->planner.memories);
    uint64_t in_bins = 0;
    for (const ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        in_bins += ashlar__free_bins_count(&zone->gaps);
    }
    ashlar_status status = ASHLAR_OK;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT && status == ASHLAR_OK; tag++) {
        status = miscounted(ashlar_tag_name((ashlar_tag)tag), stats->tags[tag].live_bytes,
                            found.tags[tag]);
    }
    const struct {
        const char *what;
        uint64_t counted, found;
    } rest[] = {
        {"live bytes", stats->live_bytes, found.live_bytes},
        {"live blocks", stats->live_blocks, found.live_blocks},
        {"block bytes", stats->block_bytes, found.block_bytes},
        {"cached bytes", stats->cached_bytes, found.cached_bytes},
        {"shared bytes", stats->shared_bytes, found.shared_bytes},
        {"free blocks in bins", in_bins, found.free_blocks},
        {"blocks in the page map", ashlar__page_map_count(&a->heap.map), in_page_map},
    };
    for (size_t i = 0; i < sizeof rest / sizeof rest[0] && status == ASHLAR_OK; i++) {
        status = miscounted(rest[i].what, rest[i].counted, rest[i].found);
    }
    return status;
}

/* The number of blocks, in all streams' queues of blocks away (away.h), whose home is this
 * stream. */
static uint64_t count_away_of(const ashlar_allocator *a, const ashlar_stream_state *home) {
    uint64_t count = 0;
    for (const ashlar_stream_state *user = a->heap.awaited; user != NULL;
         user = user->next_awaited) {
        for (const ashlar_block *block = user->oldest_cross; block != NULL; block = block->older) {
            count += ashlar__block_owner(block) == home;
        }
    }
    return count;
}

static ashlar_status check_streams(const ashlar_allocator *a) {
    ASHLAR_TRY(ashlar__cross_check(&a->heap));
    for (const ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ASHLAR_FAIL_IF(state->completed > state->recorded || state->last_tick > state->recorded,
                       ASHLAR_EFORMAT, "allocator check: a stream is ahead of its recordings");
        ASHLAR_TRY(miscounted("a stream's blocks that are away", state->cross_count,
                              count_away_of(a, state)));
    }
    return ASHLAR_OK;
}

static ashlar_status check_guard(const ashlar_allocator *a) {
    return a->guard_fill != NULL ? ashlar__guard_fill_check_locked(a->guard_fill) : ASHLAR_OK;
}

static ashlar_status check_caches(const ashlar_allocator *a) {
    for (const ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ASHLAR_TRY(ashlar__cache_check_locked(cache));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_allocator_check(ashlar_allocator *a) {
    ashlar_stats stats;
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__lock_acquire(&a->lock);
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    ashlar__stats_sum_claimed(a, &stats);
    ashlar_status status = ashlar__heap_check(&a->heap);
    ASHLAR_THEN(status, check_streams(a));
    ASHLAR_THEN(status, ashlar__plan_memories_check_locked(a->planner.memories, &a->heap.map));
    ASHLAR_THEN(status, check_caches(a));
    ASHLAR_THEN(status, check_guard(a));
    ASHLAR_THEN(status, check_census(a, &stats));
    ASHLAR_THEN(status, check_equations(&stats));
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    ashlar__lock_release(&a->lock);
    return status == ASHLAR_OK ? ashlar__guard_take_finding(a) : status;
}

/* ---- leaks ---- */

/*
 * The most groups in a report, the most addresses shown for a group, and the most bytes in a line.
 */
enum { GROUPS_MAX = 32, ADDRESSES_MAX = 4, LINE_BYTES = 256 };

typedef struct leak {
    cu_ptr ptr;
    size_t requested;
    unsigned tag;
} leak;

/* Leaks of one tag and size. */
typedef struct group {
    size_t first, count; /* the group's leaks: `count` sorted leaks from index `first` */
    uint64_t bytes;
} group;

static void say(const ashlar_allocator *a, const char *format, ...) ASHLAR_PRINTF(2, 3);

static void say(const ashlar_allocator *a, const char *format, ...) {
    ASHLAR_CHECK2(a->report != NULL);
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    a->report(line, a->report_user);
}

/* ---- collecting ---- */

/* Copy up to `capacity` leaks. Returns the number of all leaks, which may be larger. */
static size_t collect(const ashlar_allocator *a, leak *leaks, size_t capacity) {
    size_t count = 0;
    for (const ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        const size_t requested = ashlar__block_live_bytes(block);
        if (block->state == ASHLAR_BLOCK_USED && requested != 0) {
            if (count < capacity) {
                leaks[count] = (leak){a->constants.base + block->offset, requested, block->tag};
            }
            count++;
        }
    }
    return count;
}

static int by_kind(const void *left, const void *right) {
    const leak *a = left, *b = right;
    if (a->tag != b->tag) {
        return a->tag < b->tag ? -1 : 1;
    }
    if (a->requested != b->requested) {
        return a->requested < b->requested ? -1 : 1;
    }
    return a->ptr < b->ptr ? -1 : a->ptr > b->ptr;
}

/* Orders groups by bytes, descending; equal ones by their first leak. */
static int by_bytes(const void *left, const void *right) {
    const group *a = left, *b = right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Group the leaks, which are sorted by_kind(). Returns the number of groups. */
static size_t make_groups(const leak *leaks, size_t count, group *groups) {
    size_t group_count = 0;
    for (size_t i = 0; i < count; i++) {
        const leak *last = i > 0 ? &leaks[i - 1] : NULL;
        if (last == NULL || last->tag != leaks[i].tag || last->requested != leaks[i].requested) {
            groups[group_count++] = (group){.first = i};
        }
        ASHLAR_CHECK2(last == NULL || by_kind(last, &leaks[i]) <= 0);
        groups[group_count - 1].count++;
        groups[group_count - 1].bytes += leaks[i].requested;
    }
    return group_count;
}

/* ---- writing the report ---- */

static void say_group(const ashlar_allocator *a, const leak *leaks, const group *g) {
    const leak *first = &leaks[g->first];
    char addresses[ADDRESSES_MAX * 24] = "";
    size_t at = 0;
    for (size_t i = 0; i < g->count && i < ADDRESSES_MAX; i++) {
        at += (size_t)snprintf(addresses + at, sizeof addresses - at, "%s%p", i == 0 ? "" : " ",
                               ashlar__ptr_out(first[i].ptr));
        ASHLAR_CHECK2(at < sizeof addresses);
    }
    say(a, "leak: %s: %zu of %zu bytes, %" PRIu64 " bytes, at %s%s",
        ashlar_tag_name((ashlar_tag)first->tag), g->count, first->requested, g->bytes, addresses,
        g->count > ADDRESSES_MAX ? " ..." : "");
}

static void say_groups(const ashlar_allocator *a, leak *leaks, size_t count, group *groups) {
    qsort(leaks, count, sizeof *leaks, by_kind);
    const size_t group_count = make_groups(leaks, count, groups);
    qsort(groups, group_count, sizeof *groups, by_bytes);
    for (size_t i = 0; i < group_count && i < GROUPS_MAX; i++) {
        say_group(a, leaks, &groups[i]);
    }
    if (group_count > GROUPS_MAX) {
        say(a, "leak: and blocks of %zu more sizes, smaller together", group_count - GROUPS_MAX);
    }
}

void ashlar__leaks_report_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stats stats;
    if (a->report == NULL) {
        return;
    }
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    ashlar__stats_sum_claimed(a, &stats);
    const size_t count = collect(a, NULL, 0);
    ASHLAR_CHECK2(count == stats.live_blocks);
    leak *leaks = count > 0 ? ashlar__host_calloc(count, sizeof *leaks) : NULL;
    group *groups = leaks != NULL ? ashlar__host_calloc(count, sizeof *groups) : NULL;
    if (leaks != NULL) {
        (void)collect(a, leaks, count);
    }
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    if (count > 0) {
        say(a, "leak: %s:%d: %zu blocks of %" PRIu64 " bytes are still live%s",
            a->device->driver->name, a->device->info.ordinal, count, stats.live_bytes,
            groups == NULL ? "; no host memory to list them" : "");
    }
    if (groups != NULL) {
        say_groups(a, leaks, count, groups);
    }
    ashlar__host_free(groups);
    ashlar__host_free(leaks);
}

/* ---- at the exit of the process ---- */

/* Guards the list of allocators that report their leaks. */
static ashlar_lock watch_lock = ASHLAR_LOCK(ASHLAR_RANK_LEAK_LIST);
static ashlar_allocator *reported_allocators; /* linked by next_reported */
static bool is_expecting_exit;

void ashlar__leaks_begin_child(void) {
    ashlar__lock_init(&watch_lock, ASHLAR_RANK_LEAK_LIST);
    reported_allocators = NULL;
}

/*
 * When the process exits, the device may be gone, and threads may still run. If one of them holds
 * an allocator's lock, the report leaves that allocator out: waiting might take forever.
 */
static void report_at_exit(void) {
    ashlar__lock_acquire(&watch_lock);
    for (ashlar_allocator *a = reported_allocators; a != NULL; a = a->next_reported) {
        if (ashlar__lock_try_acquire(&a->lock)) {
            ashlar__leaks_report_locked(a);
            ashlar__lock_release(&a->lock);
        }
    }
    ashlar__lock_release(&watch_lock);
}

void ashlar__leaks_register(ashlar_allocator *a) {
    ashlar__lock_acquire(&watch_lock);
    if (!is_expecting_exit) {
        is_expecting_exit = atexit(report_at_exit) == 0; /* if this fails, the next allocator
                                                            tries again */
    }
    a->next_reported = reported_allocators;
    reported_allocators = a;
    ashlar__lock_release(&watch_lock);
}

void ashlar__leaks_unregister(ashlar_allocator *a) {
    ashlar__lock_acquire(&watch_lock);
    for (ashlar_allocator **link = &reported_allocators; *link != NULL;
         link = &(*link)->next_reported) {
        if (*link == a) {
            *link = a->next_reported;
            break;
        }
    }
    ashlar__lock_release(&watch_lock);
}
