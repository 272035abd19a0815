/*
 * sized.h - copying structures to and from a program whose headers may give them another size than
 * the library's (internal). include/ashlar/export.h has the rules for programs older and newer than
 * the library.
 */
#ifndef ASHLAR_SIZED_H
#define ASHLAR_SIZED_H

#include <stddef.h>

#include <ashlar/status.h>

#include "allocator/base/error.h"

/*
 * Read a structure `type` of `from_bytes` bytes; NULL stands for one that is all 0. Fields that it
 * lacks are 0 in *to.
 *
 * Errors: ASHLAR_EINVAL (a byte beyond the first to_bytes is not 0); *to is then undefined.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__sized_read(void *to, size_t to_bytes, const void *from,
                                                   size_t from_bytes, const char *type);

/*
 * For a reader that cannot fail: like ashlar__sized_read(), but ignores bytes beyond to_bytes.
 */
void ashlar__sized_read_known(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* Write a structure of `from_bytes` bytes into one of `to_bytes` bytes; fields that `from` lacks
 * become 0 in *to. If `to` is NULL, nothing is written. */
void ashlar__sized_write(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* Define `name`, a copy of the structure at `from`. If ashlar__sized_read() fails, return its
 * status from the enclosing function. */
#define ASHLAR_SIZED_READ(type, name, from, from_bytes) \
    type name;                                          \
    ASHLAR_TRY(ashlar__sized_read(&name, sizeof name, (from), (from_bytes), #type))

#define ASHLAR_SIZED_READ_KNOWN(type, name, from, from_bytes) \
    type name;                                                \
    ashlar__sized_read_known(&name, sizeof name, (from), (from_bytes))

#endif /* ASHLAR_SIZED_H */
