/*
 * leaks.h - the report of live blocks when an allocator, or the process, ends (internal).
 */
#ifndef ASHLAR_LEAKS_H
#define ASHLAR_LEAKS_H

#include <ashlar/allocator.h>

/* Have the allocator's live blocks reported when the process exits, until it is unregistered. */
void ashlar__leaks_register(ashlar_allocator *allocator);
void ashlar__leaks_unregister(ashlar_allocator *allocator); /* also one that is not registered */

/* Say what is live, if anything is. No driver call. Lock: the allocator's. */
void ashlar__leaks_report_locked(ashlar_allocator *allocator);

#endif /* ASHLAR_LEAKS_H */
