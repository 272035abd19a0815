/* status.c - the library's version, the names and texts of ashlar_status, and each thread's last
 * failure. */
#include "allocator/base/error.h"

#include <ashlar/version.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/threads.h"

_Static_assert(ASHLAR_OK == 0, "what is zeroed has not failed");

int ashlar_version(void) {
    return ASHLAR_VERSION;
}

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

/* A thread's last failure. */
typedef struct failure {
    char detail[ASHLAR_DETAIL_BYTES];
    int driver_code; /* 0: no driver call failed */
} failure;

const char *ashlar_error_detail(void) {
    const failure *last = ashlar__thread_data_if_any(ASHLAR_THREAD_ERROR_DETAIL);
    return last != NULL ? last->detail : "";
}

int ashlar_error_driver_code(void) {
    const failure *last = ashlar__thread_data_if_any(ASHLAR_THREAD_ERROR_DETAIL);
    return last != NULL ? last->driver_code : 0;
}

static void keep(int driver_code, const char *format, va_list args) {
    /* Format into another buffer first, since the arguments may point into the old detail. */
    char text[ASHLAR_DETAIL_BYTES];
    (void)vsnprintf(text, sizeof text, format, args);
    failure *last = ashlar__thread_data(ASHLAR_THREAD_ERROR_DETAIL, sizeof *last);
    if (last != NULL) {
        memcpy(last->detail, text, sizeof text);
        last->driver_code = driver_code;
    }
}

ashlar_status ashlar__fail(ashlar_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    keep(0, format, args);
    va_end(args);
    return status;
}

ashlar_status ashlar__fail_driver(ashlar_status status, int driver_code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    keep(driver_code, format, args);
    va_end(args);
    return status;
}

ashlar_status ashlar_error_set(ashlar_status status, const char *text) {
    return ashlar__fail(status, "%s", text);
}
