#include "allocator/pinned/report.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEXT_BYTES = 512 };

ashlar_status ashlar__pinned_fail(ashlar_status status, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ashlar_error_set(status, text);
}
