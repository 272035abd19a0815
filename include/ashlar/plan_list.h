/* plan_list.h - make plans from lists of events or lifetimes (of a trace, say), and write plans as
 * lists for other packers. */
#ifndef ASHLAR_PLAN_LIST_H
#define ASHLAR_PLAN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/export.h>
#include <ashlar/pack.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* An allocation of a step, or a free. */
typedef struct ashlar_plan_event {
    size_t block;   /* the block's number: below the count of events, unique among live blocks */
    size_t bytes;   /* at least 1; ignored for a free */
    ashlar_tag tag; /* ignored for a free */
    bool is_free;
} ashlar_plan_event;

/*
 * Treat a list of allocations and frees as a recorded step of `key`, in which every allocation is
 * for `stream`. The key is then planned as after ashlar_step_end(): at once if build_after is
 * reached, else by ashlar_plan_build(). Blocks that are not freed outlive the step, and are not
 * planned.
 *
 * stream   named from now on (see the top of allocator.h)
 *
 * Threads: any; not while a step of this key is recorded (ASHLAR_EINVAL).
 * Errors:  ASHLAR_EINVAL (the detail names the event, or the stream is being captured),
 *          ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER: nothing is recorded then.
 *          If the key is planned at once, also ASHLAR_ENOMEM, ASHLAR_EHOSTMEM and ASHLAR_EDRIVER,
 *          as ashlar_step_end() does.
 * In a guard mode, or without thread caches, nothing is recorded.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_plan_record_events(ashlar_allocator *allocator, ashlar_stream stream, uint64_t key,
                          const ashlar_plan_event *events, size_t count);

/*
 * Do the same with a list of lifetimes, as in pack.h. Buffers are allocated in the order of
 * `begin`, those with equal `begin` in the order of the list. Each is freed just before the first
 * allocation of a buffer whose `begin` is at or after its `end`.
 *
 * tag   the tag of all buffers
 * Errors: as above; the detail names the buffer.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_plan_record_buffers(ashlar_allocator *allocator, ashlar_stream stream, uint64_t key,
                           const ashlar_pack_buffer *buffers, size_t count, ashlar_tag tag);

/*
 * Write the slots of a key's plan in MiniMalloc's CSV format, id,lower,upper,size,offset, so that
 * other packers can be tried on them. Slot `id` is live in [lower, upper), counted in allocations
 * of the step. A plan has slots for each stream that its steps allocate on; one call writes those
 * of one stream.
 *
 * stream   the main stream of the key's steps, which ashlar_step_begin() got
 * user     the stream whose slots are written: `stream`, or another one that the steps allocate on.
 *          Both are named from now on (see the top of allocator.h)
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (the key has no plan there, or none for `user`; `path` is no regular
 *          file), ASHLAR_EIO, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; the old file is then as it was.
 * Cost:    takes the lock, also while it writes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_plan_write_minimalloc(ashlar_allocator *allocator, ashlar_stream stream, uint64_t key,
                             ashlar_stream user, const char *path);

/*
 * Draw the same slots: a self-contained SVG, allocations of the step across, offsets up, one
 * rectangle for each slot, coloured by tag.
 *
 * Threads: any.  Errors: as above.  Cost: takes the lock to copy the slots.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_plan_write_svg(ashlar_allocator *allocator, ashlar_stream stream, uint64_t key,
                      ashlar_stream user, const char *path);

ASHLAR_END_DECLS

#endif /* ASHLAR_PLAN_LIST_H */
