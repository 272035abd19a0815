/* status.c - the library's version, the names of statuses and tags, each thread's last failure, and
 * the end of the process at a failed assertion. */
#include "allocator/base/error.h"

#include <ashlar/allocator.h>
#include <ashlar/base.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
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

const char *ashlar_tag_name(ashlar_tag tag) {
    static const char *const names[] = {
#define X(name, text) [ASHLAR_TAG_##name] = text,
        ASHLAR_TAG_MAP(X)
#undef X
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_TAG_COUNT);
    return (unsigned)tag < (unsigned)ASHLAR_TAG_COUNT ? names[tag] : "unknown";
}

void ashlar__assert_fail(const char *expr, const char *file, int line) {
    fprintf(stderr, "ashlar: %s:%d: assertion failed: %s\n", file, line, expr);
    abort();
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
