/*
 * report.h - what is said when memory is out (internal).
 */
#ifndef ASHLAR_CORE_REPORT_H
#define ASHLAR_CORE_REPORT_H

#include "allocator/core/allocator_impl.h"

/*
 * The report of a request that cannot be served: ASHLAR_ENOMEM. Lock: held.
 *
 * cause   the last step's own words
 */
ashlar_status ashlar__no_memory_locked(ashlar_allocator *allocator, size_t bytes, ashlar_tag tag,
                                       const char *cause);

#endif /* ASHLAR_CORE_REPORT_H */
