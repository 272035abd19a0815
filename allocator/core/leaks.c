/*
 * leaks.c - the report of blocks that are still live when an allocator, or the process, ends.
 */
#include "allocator/core/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/hold.h"
#include "allocator/base/host.h"
#include "allocator/core/forked.h"
#include "allocator/core/allocator_impl.h"
#include "allocator/core/note.h"
#include "allocator/plan/planner.h"

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
