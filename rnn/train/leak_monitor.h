/*
 * leak_monitor.h - watch the memory that a loop holds from step to step, and find the tags that
 * grow without end (internal).
 *
 * Read the allocator's statistics at the same point of every step, after the warm-up, and give them
 * to a monitor. The bytes that a tag holds there may vary with the data. The tag *grows* if, for
 * some k >= 1, its minimum rises over five consecutive windows of 4^k steps, each time by at least
 * half of the largest variation within a window:
 *
 *     min(w + 1) - min(w) >= max over all w of (max(w) - min(w)) / 2,  > 0       w = 1 .. 4
 *
 * So a block leaked in every step is found within 24 steps, a block leaked in every hundredth step
 * within about 1,500. Growth ends when the tag is back at the level where it began, or has not
 * risen for 16 steps longer than the growth had lasted; from then on only what lies above the most
 * that it held is growth. So memory that varies around one level is not reported, but for its first
 * rise over 20 steps or more: nobody can tell that from a leak until it comes down.
 */
#ifndef ASHLAR_LEAK_MONITOR_H
#define ASHLAR_LEAK_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include <ashlar/allocator.h>

typedef struct ashlar_leak_monitor ashlar_leak_monitor;

/* The state of one tag. Bytes are those of ashlar_tag_stats.live_bytes. */
typedef struct ashlar_tag_growth {
    uint64_t first_bytes;  /* held at the first reading */
    uint64_t held_bytes;   /* held at the last reading */
    bool is_growing;       /* false: the fields below are 0 */
    uint64_t since_step;   /* the first step above the level that the growth began from; if leaks
                            * are rare, longer windows may later find an earlier step */
    uint64_t growth_bytes; /* held_bytes - bytes held before since_step */
} ashlar_tag_growth;

/* Make a monitor without readings. Ownership: the caller owns *out.  Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__leak_monitor_create(ashlar_leak_monitor **out);
void ashlar__leak_monitor_destroy(ashlar_leak_monitor *monitor); /* NULL is allowed */

/*
 * Add a reading.
 *
 * step    the step's number, larger than that of the previous reading
 * found   gets the bit 1 << tag for each tag that is newly found to grow; may be NULL
 *
 * Threads: one at a time for each monitor.  Cost: O(tags); calls neither allocator nor driver.
 * Errors:  ASHLAR_EINVAL (step); the reading is ignored.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__leak_monitor_add(ashlar_leak_monitor *monitor,
                                                                   uint64_t step,
                                                                   const ashlar_stats *stats,
                                                                   unsigned *found);

/* Get the state of each tag. Threads: one at a time for each monitor. */
void ashlar__leak_monitor_get_growth(const ashlar_leak_monitor *monitor,
                                               ashlar_tag_growth tags[ASHLAR_TAG_COUNT]);

#endif /* ASHLAR_LEAK_MONITOR_H */
