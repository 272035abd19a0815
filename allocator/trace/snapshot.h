/* snapshot.h - making, checking and writing snapshots of an allocator's memory (internal). */
#ifndef ASHLAR_SNAPSHOT_H
#define ASHLAR_SNAPSHOT_H

#include <ashlar/trace.h>

#include "allocator/trace/trace_ring.h"

/* Make a zeroed snapshot with room for these segments and blocks. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_create(size_t segment_count, size_t block_count,
                                                        ashlar_snapshot **out);

/* Check the invariants of <ashlar/trace.h>. Errors: ASHLAR_EFORMAT, naming the first segment or
 * block that breaks one. */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_check(const ashlar_snapshot *snapshot);

/*
 * Write the snapshot as JSON.
 *
 * events   the device's trace, in ascending numbers; may be NULL if `count` is 0. Viewers play the
 *          trace backwards from the snapshot. So each block in the trace must lie in memory that
 *          the snapshot has or that a later event unmaps.
 *
 * Errors: ASHLAR_EFORMAT (ashlar__snapshot_check), ASHLAR_EHOSTMEM, and those of
 *         ashlar__file_create() and ashlar__file_commit(). The old file is then unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_write(const ashlar_snapshot *snapshot,
                                                       const ashlar_trace_event *events,
                                                       size_t count, const char *path);

#endif /* ASHLAR_SNAPSHOT_H */
