/*
 * report.h - how a function of ashlar-pinned reports a failure (internal).
 *
 * libashlar keeps the thread's one detail text. Its ashlar__fail() is not exported, so this library
 * has its own.
 */
#ifndef ASHLAR_PINNED_REPORT_H
#define ASHLAR_PINNED_REPORT_H

#include <stdarg.h>
#include <stdio.h>

#include <ashlar/status.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"

/* Like ashlar__fail() of libashlar. Returns `status`. */
ASHLAR_PRINTF(2, 3)
static inline ashlar_status ashlar__pinned_fail(ashlar_status status, const char *format, ...) {
    char text[512];
    va_list args;
    ASHLAR_CHECK2(status != ASHLAR_OK);
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ashlar_error_set(status, text);
}

#endif /* ASHLAR_PINNED_REPORT_H */
