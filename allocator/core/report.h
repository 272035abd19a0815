/*
 * report.h - messages of the library to the program: that memory ran out, what a guard mode found,
 * and which blocks are still live at the end (internal).
 */
#ifndef ASHLAR_CORE_REPORT_H
#define ASHLAR_CORE_REPORT_H

#include "allocator/core/allocator_impl.h"

/*
 * Fail a request that cannot be served: write into the error detail what holds the memory, and
 * return ASHLAR_ENOMEM. Lock: held.
 *
 * cause   why the last attempt failed; becomes part of the detail
 */
ashlar_status ashlar__no_memory_locked(ashlar_allocator *allocator, size_t bytes, ashlar_tag tag,
                                       const char *cause);

/*
 * Report the guard mode's oldest finding, if there is one: to the callback, and as ASHLAR_EDAMAGE.
 * Lock: not held.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_take_finding(ashlar_allocator *allocator);

/* ---- leaks ---- */

/* Report the allocator's live blocks when the process exits, unless it is unregistered before. */
void ashlar__leaks_register(ashlar_allocator *allocator);
void ashlar__leaks_unregister(ashlar_allocator *allocator); /* no effect if not registered */

/* Report the live blocks, if there are any. No driver call. Lock: held. */
void ashlar__leaks_report_locked(ashlar_allocator *allocator);

#endif /* ASHLAR_CORE_REPORT_H */
