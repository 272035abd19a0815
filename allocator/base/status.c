/* status.c - the names and texts of statuses, and each thread's detail of its last failure. */
#include "allocator/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/threads.h"

_Static_assert(ASHLAR_OK == 0, "what is zeroed has not failed");

const char *ashlar_status_name(ashlar_status status) {
    switch (status) {
#define X(name, text)   \
    case ASHLAR_##name: \
        return "ASHLAR_" #name;
        ASHLAR_STATUS_MAP(X)
#undef X
    case ASHLAR_STATUS_COUNT:
        break;
    }
    return "ASHLAR_UNKNOWN";
}

const char *ashlar_status_text(ashlar_status status) {
    switch (status) {
#define X(name, text)   \
    case ASHLAR_##name: \
        return text;
        ASHLAR_STATUS_MAP(X)
#undef X
    case ASHLAR_STATUS_COUNT:
        break;
    }
    return "unknown status";
}

const char *ashlar_error_detail(void) {
    const char *detail = ashlar__thread_data_if_any(ASHLAR_THREAD_ERROR_DETAIL);
    return detail != NULL ? detail : "";
}

ashlar_status ashlar__fail(ashlar_status status, const char *format, ...) {
    /* Format into another buffer first, since the arguments may point into the old detail. */
    char text[ASHLAR_DETAIL_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *detail = ashlar__thread_data(ASHLAR_THREAD_ERROR_DETAIL, sizeof text);
    if (detail != NULL) {
        memcpy(detail, text, sizeof text);
    }
    return status;
}

ashlar_status ashlar_error_set(ashlar_status status, const char *text) {
    return ashlar__fail(status, "%s", text);
}
