/* gzip.h - unpacks gzip data, if the build has zlib (internal). */
#ifndef ASHLAR_GZIP_H
#define ASHLAR_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

/* Whether this build has zlib and so can unpack. */
bool ashlar__gzip_is_supported(void);

/* Whether `data` begins with the two bytes that mark gzip data. */
static inline bool ashlar__gzip_is_magic(const void *data, size_t bytes) {
    const unsigned char *head = data;
    return bytes >= 2 && head[0] == 0x1f && head[1] == 0x8b;
}

/* Unpack all of `data`, which may be several gzip files one after the other.
 *
 * name   what error messages call the data
 *
 * Ownership: the caller frees *out with ashlar__host_free().
 * Threads:   any.
 * Errors:    ASHLAR_EFORMAT (damaged, cut off, or followed by something else), ASHLAR_EHOSTMEM,
 *            ASHLAR_ENOTSUP (a build without zlib). */
ASHLAR_MUST_CHECK ashlar_status ashlar__gzip_unpack(const char *name, const void *data,
                                                    size_t bytes, char **out, size_t *out_bytes);

#endif /* ASHLAR_GZIP_H */
