/*
 * report.h - how a function of ashlar-pinned reports a failure (internal).
 *
 * The detail text is ashlar's, one for the thread, whichever library failed.
 */
#ifndef ASHLAR_PINNED_REPORT_H
#define ASHLAR_PINNED_REPORT_H

#include <ashlar/status.h>

#include "allocator/base/compiler.h"

/* As ashlar__fail() in the core. */
ashlar_status ashlar__pinned_fail(ashlar_status status, const char *format, ...)
    ASHLAR_PRINTF(2, 3);

#endif /* ASHLAR_PINNED_REPORT_H */
