/* sized.c - copying structures to and from a program compiled for an older or newer version of the
 * library. ashlar-pinned compiles this file too, so it calls public functions only. */
#include "allocator/base/sized.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

void ashlar__sized_read_known(void *to, size_t to_bytes, const void *from, size_t from_bytes) {
    const size_t shared = from == NULL ? 0 : smaller(to_bytes, from_bytes);
    memset((char *)to + shared, 0, to_bytes - shared);
    if (shared > 0) {
        memcpy(to, from, shared);
    }
}

static ashlar_status refuse(const char *type, size_t bytes, size_t at, size_t known_bytes) {
    char text[ASHLAR_DETAIL_BYTES];
    (void)snprintf(text, sizeof text,
                   "%s has %zu bytes, and byte %zu is not 0; this libashlar knows %zu: leave newer "
                   "fields 0, or install the version that the program was compiled for",
                   type, bytes, at, known_bytes);
    return ashlar_error_set(ASHLAR_EINVAL, text);
}

ashlar_status ashlar__sized_read(void *to, size_t to_bytes, const void *from, size_t from_bytes,
                                 const char *type) {
    ASHLAR_CHECK2(to != NULL && to_bytes > 0);
    const char *bytes = from;
    for (size_t i = to_bytes; from != NULL && i < from_bytes; i++) {
        if (bytes[i] != 0) {
            return refuse(type, from_bytes, i, to_bytes);
        }
    }
    ashlar__sized_read_known(to, to_bytes, from, from_bytes);
    return ASHLAR_OK;
}

void ashlar__sized_write(void *to, size_t to_bytes, const void *from, size_t from_bytes) {
    if (to != NULL) {
        ashlar__sized_read_known(to, to_bytes, from, from_bytes);
    }
}
