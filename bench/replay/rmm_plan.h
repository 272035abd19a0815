/*
 * rmm_plan.h - a step of RMM's log as a recording of the allocator (internal).
 */
#ifndef ASHLAR_RMM_PLAN_H
#define ASHLAR_RMM_PLAN_H

#include <ashlar/allocator.h>

#include "bench/replay/rmm_csv.h"

/*
 * Have the allocator take what events [first, end) of a log allocate on one of its streams for a
 * recorded step; see ashlar_plan_record_events(). A log has no tags: all are ASHLAR_TAG_USER.
 *
 * A block that was there before `first` is no part of the step. One that is freed on another
 * stream, or not before `end`, is not planned.
 *
 * stream      whose work the plan is for
 * log_stream  the log's stream in its place: below log->stream_count
 * Errors:     those of ashlar_plan_record_events(), and ASHLAR_EINVAL: no such events or stream.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_plan_record_rmm(ashlar_allocator *allocator,
                                                       ashlar_stream stream, uint64_t key,
                                                       const ashlar_rmm_log *log, size_t log_stream,
                                                       size_t first, size_t end);

#endif /* ASHLAR_RMM_PLAN_H */
