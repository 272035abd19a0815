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
 * path         the file; it is replaced as a whole or not at all
 * fingerprint  a text that names everything that the plans depend on, say the model, its options
 *              and versions of libraries; a load with another fingerprint is refused. One line of
 *              at most ASHLAR_PLAN_FINGERPRINT_MAX bytes; NULL stands for ""
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 * Errors:  ASHLAR_EINVAL (no key has a plan; a key was recorded again since it was planned: call
 *          ashlar_plan_build(); the fingerprint; `path` is not a regular file), ASHLAR_EIO,
 *          ASHLAR_EHOSTMEM; the old file is then unchanged.
 * Cost:    takes the lock while it copies and checks the plans, not while it writes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_save(ashlar_allocator *allocator,
                                                            const char *path,
                                                            const char *fingerprint);

/*
 * Load the plans of all keys from a file, and take their memory. First the whole file is checked:
 * it must be complete and have this fingerprint, and no two slots that are live at the same time
 * may overlap. If the file is refused, nothing changes.
 *
 * streams  [stream_count], all different, named from now on (see the top of allocator.h). They
 *          replace the recorded streams, in the order in which the file names those. The first one
 *          is the main stream of the first key's steps. Streams beyond the number in the file are
 *          ignored
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 * Stream:  may queue waits on `streams`, for memory that other streams used.
 * Errors:  ASHLAR_EINVAL (another fingerprint; too few streams, or one given twice; a stream that
 *          is being captured; a stream on which steps were begun or which has plans: load before
 *          the first step, or call ashlar_plan_drop()),
 *          ASHLAR_EIO, ASHLAR_EFORMAT (damaged: the detail names the file and the line),
 *          ASHLAR_ENOTSUP (the file has another version of the format, or another alignment),
 *          ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER.
 * Cost:    O(n log n) in the number of allocations; takes the lock while it takes the memory.
 * In a guard mode, or without thread caches, the file is checked and nothing is loaded, since steps
 * are neither recorded nor replayed.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_load(ashlar_allocator *allocator,
                                                            const ashlar_stream *streams,
                                                            size_t stream_count, const char *path,
                                                            const char *fingerprint);

ASHLAR_END_DECLS

#endif /* ASHLAR_PLAN_FILE_H */
