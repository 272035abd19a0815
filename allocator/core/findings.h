/*
 * findings.h - what a guard mode found, told to the program (internal).
 */
#ifndef ASHLAR_FINDINGS_H
#define ASHLAR_FINDINGS_H

#include "allocator/core/allocator_impl.h"

/*
 * Tell the oldest finding of the guard mode, if there is one: to the callback, and as
 * ASHLAR_EDAMAGE. Lock: not held.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_take_finding(ashlar_allocator *allocator);

#endif /* ASHLAR_FINDINGS_H */
