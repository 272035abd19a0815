/*
 * leak_monitor.h - which memory a loop holds from step to step, and which of it grows without end.
 *
 * Read the allocator's statistics at the same point of every step, after the warm-up, and give them
 * to a monitor. What a tag holds there may move up and down with the data. It *grows* when, for
 * some k >= 1, its minimum rises over five windows of 4^k steps in a row, each time by at least
 * half of what the tag moves by within a window:
 *
 *     min(w + 1) - min(w) >= max over all w of (max(w) - min(w)) / 2,  > 0       w = 1 .. 4
 *
 * So a block leaked in every step is found within 24 steps, one in every hundredth step within
 * about 1,500, and memory that moves about one level never. Growth has ended when the tag comes
 * down to where it began, or has not risen for as long as it rose and 16 steps more.
 */
#ifndef ASHLAR_LEAK_MONITOR_H
#define ASHLAR_LEAK_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/allocator.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_leak_monitor ashlar_leak_monitor;

/* What is known of one tag; bytes as in ashlar_tag_stats.live_bytes. */
typedef struct ashlar_tag_growth {
    uint64_t first_bytes;  /* held at the first reading */
    uint64_t held_bytes;   /* held at the last reading */
    bool is_growing;       /* false: the fields below are 0 */
    uint64_t since_step;   /* the first step that held more than what it grew from; where blocks
                              are left seldom, longer windows may yet find an earlier one */
    uint64_t growth_bytes; /* held_bytes less what was held before that step */
} ashlar_tag_growth;

/* Make a monitor without readings. Ownership: the caller owns *out.  Errors: ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_leak_monitor_create(ashlar_leak_monitor **out);
ASHLAR_API void ashlar_leak_monitor_destroy(ashlar_leak_monitor *monitor); /* NULL is allowed */

/*
 * Take in a reading.
 *
 * step    its number, larger than that of the reading before
 * found   a bit 1 << tag for each tag that was not known to grow before; NULL: not wanted
 *
 * Threads: one at a time for each monitor.  Cost: O(tags); calls neither allocator nor driver.
 * Errors:  ASHLAR_EINVAL (step); the reading is ignored.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_leak_monitor_add(ashlar_leak_monitor *monitor,
                                                                   uint64_t step,
                                                                   const ashlar_stats *stats,
                                                                   unsigned *found);

/* What is known of each tag now. Threads: one at a time for each monitor. */
ASHLAR_API void ashlar_leak_monitor_get_growth(const ashlar_leak_monitor *monitor,
                                               ashlar_tag_growth tags[ASHLAR_TAG_COUNT]);

ASHLAR_END_DECLS

#endif /* ASHLAR_LEAK_MONITOR_H */
