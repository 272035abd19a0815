/*
 * snapshot.h - making, checking and writing a snapshot of plain data (internal).
 */
#ifndef ASHLAR_SNAPSHOT_H
#define ASHLAR_SNAPSHOT_H

#include <ashlar/trace.h>

#include "allocator/trace/trace_ring.h"

/* Make a zeroed snapshot with room for so many segments and blocks. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_create(size_t segment_count, size_t block_count,
                                                        ashlar_snapshot **out);

/* Check the invariants of <ashlar/trace.h>. Errors: ASHLAR_EFORMAT, naming the first segment or
 * block that breaks one. */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_check(const ashlar_snapshot *snapshot);

/*
 * Write it as PyTorch's snapshot.
 *
 * events   the device's trace, in ascending numbers; may be NULL where count is 0. PyTorch's viewer
 *          plays it backwards from the snapshot: so each block in it must lie in memory that the
 *          snapshot has, or that a later event unmaps.
 *
 * Errors: ASHLAR_EFORMAT (ashlar__snapshot_check), ASHLAR_EHOSTMEM, and as ashlar__file_create()
 *         and ashlar__file_commit(); the old file is then as it was.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__snapshot_write_pickle(const ashlar_snapshot *snapshot,
                                                              const ashlar_trace_event *events,
                                                              size_t count, const char *path);

#endif /* ASHLAR_SNAPSHOT_H */
