/*
 * report.c - messages to the program: who holds the memory when it runs out, and what would help;
 * and what a guard mode found.
 */
#include "allocator/core/report.h"

#include <inttypes.h>
#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/core/note.h"

enum { TOP_TAGS = 3, TEXT_BYTES = 160, ACCOUNT_BYTES = 480, OTHERS_BYTES = 120 };

/* ---- out of memory ---- */

/* Memory behind addresses that belong to no block. */
typedef struct holes {
    size_t gap_bytes;
    size_t largest; /* of all gaps, and of all spare memory taken together */
} holes;

static holes find_holes_locked(const ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    holes found = {.largest = a->heap.range.spare_count * a->heap.range.handle_bytes};
    for (ashlar_heap_piece at = {0}; ashlar__heap_next_piece(&a->heap, &at);) {
        if (at.is_mapped && at.block->state == ASHLAR_BLOCK_FREE) {
            found.gap_bytes += at.bytes;
            found.largest = at.bytes > found.largest ? at.bytes : found.largest;
        }
    }
    return found;
}

/*
 * The tag that follows `last` in descending order of live bytes; tags with equal bytes are ordered
 * by number. `last` is -1 for the first tag. Returns -1 if no tag with live bytes is left.
 */
static int next_tag(const ashlar_stats *stats, int last) {
    int best = -1;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const uint64_t live = stats->tags[tag].live_bytes;
        const uint64_t bound = last < 0 ? UINT64_MAX : stats->tags[last].live_bytes;
        const bool is_left = live < bound || (live == bound && tag > last);
        if (live > 0 && is_left && (best < 0 || live > stats->tags[best].live_bytes)) {
            best = tag;
        }
    }
    return best;
}

/* Write the tags that hold the most bytes, for example " (weights 1024, batch 512)". */
static void name_top_tags(const ashlar_stats *stats, char *text) {
    size_t at = 0;
    int tag = -1;
    text[0] = '\0';
    for (int i = 0; i < TOP_TAGS && (tag = next_tag(stats, tag)) >= 0; i++) {
        const int wrote = snprintf(text + at, TEXT_BYTES - at, "%s%s %llu", i == 0 ? " (" : ", ",
                                   ashlar_tag_name((ashlar_tag)tag),
                                   (unsigned long long)stats->tags[tag].live_bytes);
        at += wrote > 0 ? (size_t)wrote : 0;
        ASHLAR_CHECK2(at < TEXT_BYTES);
    }
    if (at > 0 && at < TEXT_BYTES - 1) {
        snprintf(text + at, TEXT_BYTES - at, ")");
    }
}

/* Write the use of all reserved memory, in parts that add up to the whole. */
static void write_account(const ashlar_stats *stats, size_t gap_bytes,
                          char text[static ACCOUNT_BYTES]) {
    char top[TEXT_BYTES];
    name_top_tags(stats, top);
    (void)snprintf(text, ACCOUNT_BYTES,
                   "%" PRIu64 " live in %" PRIu64 " blocks%s, %" PRIu64 " of rounding, %" PRIu64
                   " cached, %" PRIu64 " shared, %" PRIu64 " planned, %zu in gaps, %" PRIu64
                   " spare: %" PRIu64 " reserved",
                   stats->live_bytes, stats->live_blocks, top,
                   stats->block_bytes - stats->live_bytes, stats->cached_bytes, stats->shared_bytes,
                   stats->planned_bytes, gap_bytes, stats->spare_bytes, stats->reserved_bytes);
}

ashlar_status ashlar__no_memory_locked(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                       const char *cause) {
    ASHLAR_OWNS(&a->lock);
    ashlar__shut_out_locked(a);
    const ashlar_device_info *info = &a->device->info;
    const bool is_model =
        tag == ASHLAR_TAG_WEIGHTS || tag == ASHLAR_TAG_GRADIENTS || tag == ASHLAR_TAG_MOMENTS;
    const ashlar_range *range = &a->heap.range;
    const holes found = find_holes_locked(a);
    char account[ACCOUNT_BYTES], limit[40] = "", others[OTHERS_BYTES] = "";
    ashlar_stats stats;
    ashlar__stats_sum_locked(a, &stats);
    write_account(&stats, found.gap_bytes, account);
    if (range->limit_bytes < range->memory_bytes) {
        (void)snprintf(limit, sizeof limit, " (limit %zu)", range->limit_bytes);
    }
    if (a->others.count > 0) {
        (void)snprintf(others, sizeof others,
                       "; %zu other allocator%s of the device hold%s %zu bytes, %zu of them idle",
                       a->others.count, a->others.count == 1 ? "" : "s",
                       a->others.count == 1 ? "s" : "", a->others.reserved_bytes,
                       a->others.idle_bytes);
    }
    return ashlar__fail_driver(
        ASHLAR_ENOMEM, ashlar_error_driver_code(),
        "out of memory on %s:%d: %zu bytes asked for (%s), %s of the %s's %zu%s, largest hole "
        "%zu%s; make the %s smaller%s, or free blocks (%s)",
        a->device->driver->name, info->ordinal, bytes, ashlar_tag_name(tag), account,
        range->kind == ASHLAR_RANGE_HOST ? "host" : "device", range->memory_bytes, limit,
        found.largest, others, is_model ? "model" : "batch or the sequences",
        limit[0] != '\0' ? ", raise the limit" : "", cause);
}

/* ---- findings ---- */

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

void ashlar_allocator_set_report(ashlar_allocator *a, ashlar_report_fn report, void *user) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__lock_acquire(&a->lock);
    a->report = report;
    a->report_user = user;
    ashlar__lock_release(&a->lock);
}
