/* reports.c - ashlar_allocator_check(), which compares all structures and statistics with a walk of
 * all blocks; what a guard found; blocks that are still live at the end. */
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

/* The number of cross-stream blocks, in all streams' queues, that this stream owns. */
static uint64_t count_cross_of(const ashlar_allocator *a, const ashlar_stream_state *owner) {
    uint64_t count = 0;
    for (const ashlar_stream_state *user = a->heap.awaited; user != NULL;
         user = user->next_awaited) {
        for (const ashlar_block *block = user->oldest_cross; block != NULL; block = block->older) {
            count += ashlar__block_owner(block) == owner;
        }
    }
    return count;
}

static ashlar_status check_streams(const ashlar_allocator *a) {
    ASHLAR_TRY(ashlar__cross_check(&a->heap));
    for (const ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ASHLAR_FAIL_IF(state->completed > state->recorded || state->last_tick > state->recorded,
                       ASHLAR_EFORMAT, "allocator check: a stream is ahead of its recordings");
        ASHLAR_TRY(miscounted("a stream's cross-stream blocks", state->cross_count,
                              count_cross_of(a, state)));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_allocator_check(ashlar_allocator *a) {
    ashlar_stats stats;
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    ashlar__stats_sum_locked(a, &stats);
    ashlar_status status = ashlar__heap_check(&a->heap);
    for (const ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ASHLAR_THEN(status, ashlar__cache_check_locked(cache));
    }
    if (a->guard_fill != NULL) {
        ASHLAR_THEN(status, ashlar__guard_fill_check_locked(a->guard_fill));
    }
    ASHLAR_THEN(status, check_streams(a));
    ASHLAR_THEN(status, ashlar__plan_memories_check_locked(a->planner.memories, &a->heap.map));
    ASHLAR_THEN(status, check_census(a, &stats));
    ASHLAR_THEN(status, check_equations(&stats));
    ashlar__allocator_leave(a);
    return status == ASHLAR_OK ? ashlar__guard_take_finding(a) : status;
}

/* ---- leaks ---- */

/* The most groups in a report, addresses shown for a group, and bytes in a line. */
enum { GROUPS_MAX = 32, ADDRESSES_MAX = 4, LINE_BYTES = 256 };

/* A live block. Those of one tag and size are a group. */
typedef struct leak {
    uint64_t group_bytes, group_count;
    cu_ptr ptr;
    size_t requested;
    unsigned tag;
} leak;

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

/* Copy the live blocks to leaks[], or only count them, if it is NULL. Returns their number. */
static size_t collect(const ashlar_allocator *a, leak *leaks) {
    size_t count = 0;
    for (const ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        const size_t requested = ashlar__block_live_bytes(block);
        if (block->state == ASHLAR_BLOCK_USED && requested != 0) {
            if (leaks != NULL) {
                leaks[count] = (leak){.ptr = a->constants.base + block->offset,
                                      .requested = requested,
                                      .tag = block->tag};
            }
            count++;
        }
    }
    return count;
}

/* Groups of more bytes come first; in a group, lower addresses. */
static int compare(const void *left, const void *right) {
    const leak *a = left, *b = right;
    if (a->group_bytes != b->group_bytes) {
        return a->group_bytes > b->group_bytes ? -1 : 1;
    }
    if (a->tag != b->tag) {
        return a->tag < b->tag ? -1 : 1;
    }
    if (a->requested != b->requested) {
        return a->requested < b->requested ? -1 : 1;
    }
    return a->ptr < b->ptr ? -1 : a->ptr > b->ptr;
}

/* Find the groups, and sort the leaks by them. */
static void sort(leak *leaks, size_t count) {
    qsort(leaks, count, sizeof *leaks, compare);
    for (size_t end, i = 0; i < count; i = end) {
        for (end = i + 1; end < count && leaks[end].tag == leaks[i].tag &&
                          leaks[end].requested == leaks[i].requested;) {
            end++;
        }
        for (size_t k = i; k < end; k++) {
            leaks[k].group_count = end - i;
            leaks[k].group_bytes = (end - i) * leaks[i].requested;
        }
    }
    qsort(leaks, count, sizeof *leaks, compare);
}

static void say_group(const ashlar_allocator *a, const leak *first) {
    char addresses[ADDRESSES_MAX * 24] = "";
    size_t at = 0;
    for (size_t i = 0; i < first->group_count && i < ADDRESSES_MAX; i++) {
        at += (size_t)snprintf(addresses + at, sizeof addresses - at, "%s%p", i == 0 ? "" : " ",
                               ashlar__ptr_out(first[i].ptr));
        ASHLAR_CHECK2(at < sizeof addresses);
    }
    say(a, "leak: %s: %" PRIu64 " of %zu bytes, %" PRIu64 " bytes, at %s%s",
        ashlar_tag_name((ashlar_tag)first->tag), first->group_count, first->requested,
        first->group_bytes, addresses, first->group_count > ADDRESSES_MAX ? " ..." : "");
}

static void say_groups(const ashlar_allocator *a, leak *leaks, size_t count) {
    size_t groups = 0;
    sort(leaks, count);
    for (size_t i = 0; i < count; i += leaks[i].group_count) {
        if (groups++ < GROUPS_MAX) {
            say_group(a, &leaks[i]);
        }
    }
    if (groups > GROUPS_MAX) {
        say(a, "leak: and blocks of %zu more sizes, smaller together", groups - GROUPS_MAX);
    }
}

void ashlar__leaks_report_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stats stats;
    if (a->report == NULL) {
        return;
    }
    ashlar__stats_sum_locked(a, &stats);
    const size_t count = collect(a, NULL);
    ASHLAR_CHECK2(count == stats.live_blocks);
    if (count == 0) {
        return;
    }
    leak *leaks = ashlar__host_calloc(count, sizeof *leaks);
    say(a, "leak: %s:%d: %zu blocks of %" PRIu64 " bytes are still live%s", a->device->driver->name,
        a->device->info.ordinal, count, stats.live_bytes,
        leaks == NULL ? "; no host memory to list them" : "");
    if (leaks != NULL) {
        (void)collect(a, leaks);
        say_groups(a, leaks, count);
    }
    ashlar__host_free(leaks);
}
