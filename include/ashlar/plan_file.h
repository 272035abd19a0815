/*
 * plan_file.h - plans in files, so that the next run need not record and pack its steps again.
 *
 *     status = ashlar_plan_load(allocator, &stream, 1, "model.plan", "lstm 2x512, batch 16");
 *     if (status != ASHLAR_OK) {
 *         ... run the warm-up, which records and plans its steps
 *         status = ashlar_plan_save(allocator, "model.plan", "lstm 2x512, batch 16");
 *     }
 *
 * After a load the first step of a key is replayed, as plan.h says; none is recorded.
 */
#ifndef ASHLAR_PLAN_FILE_H
#define ASHLAR_PLAN_FILE_H

#include <stddef.h>

#include <ashlar/allocator.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

enum { ASHLAR_PLAN_FINGERPRINT_MAX = 4000 }; /* bytes */

/*
 * Save the plans of all keys, with the recordings that they were made from, as a text file with a
 * line for each allocation. The same plans give the same bytes, whatever streams they are for.
 *
 * path         replaced whole or not at all
 * fingerprint  what the plans depend on, say the model, its options and versions of libraries; a
 *              load with another one is refused. One line of at most
 *              ASHLAR_PLAN_FINGERPRINT_MAX bytes; NULL stands for ""
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 * Errors:  ASHLAR_EINVAL (no key has a plan, or one was recorded since it was planned: call
 *          ashlar_plan_build(); the fingerprint; `path` is no regular file), ASHLAR_EIO,
 *          ASHLAR_EHOSTMEM; the old file is then as it was.
 * Cost:    takes the lock to copy the plans and check the copies; not while it writes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_save(ashlar_allocator *allocator,
                                                            const char *path,
                                                            const char *fingerprint);

/*
 * Load the plans of all keys from a file, and take their memory. First the whole file is checked:
 * it is complete, of this fingerprint, and no two live slots overlap. A file that is refused
 * changes nothing.
 *
 * streams  [stream_count], all different: they replace the recorded streams, in the order in which
 *          the file names them. The first is that of the first key's steps. More than the file
 *          names are ignored
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 * Stream:  may queue waits on the streams, for memory that others used.
 * Errors:  ASHLAR_EINVAL (another fingerprint; too few streams, or two that are the same; one that
 *          is being captured; one on which steps were begun, or of which plans are there: load
 *          before the first step, or call ashlar_plan_drop()),
 *          ASHLAR_EIO, ASHLAR_EFORMAT (damaged: the detail names the file and the line),
 *          ASHLAR_ENOTSUP (of another version of the format, or another alignment),
 *          ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 * Cost:    O(n log n) in the number of allocations; takes the lock for the memory.
 * In a guard mode, or without thread caches, the file is checked and nothing is loaded, since steps
 * are neither recorded nor replayed.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_load(ashlar_allocator *allocator,
                                                            const ashlar_stream *streams,
                                                            size_t stream_count, const char *path,
                                                            const char *fingerprint);

ASHLAR_END_DECLS

#endif /* ASHLAR_PLAN_FILE_H */
