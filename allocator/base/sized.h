/*
 * sized.h - structures that a program has allocated, in the size that its headers gave them
 * (internal); include/ashlar/export.h says what holds for programs older and newer than the
 * library.
 */
#ifndef ASHLAR_SIZED_H
#define ASHLAR_SIZED_H

#include <stddef.h>

#include <ashlar/status.h>

#include "allocator/base/error.h"

/*
 * Read a structure `type` of `from_bytes` bytes; NULL is one that is all 0. Fields that it lacks
 * are 0 in *to.
 *
 * Errors: ASHLAR_EINVAL (something behind to_bytes is not 0); *to is then undefined.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__sized_read(void *to, size_t to_bytes, const void *from,
                                                   size_t from_bytes, const char *type);

/*
 * For a reader that cannot fail: like ashlar__sized_read(), but ignores the bytes behind to_bytes.
 */
void ashlar__sized_read_known(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* Write a structure of `from_bytes` bytes into one of `to_bytes`, where what is missing becomes 0;
 * NULL is not written. */
void ashlar__sized_write(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* Define `name`, a copy of the structure at `from`, or return why there is none. */
#define ASHLAR_SIZED_READ(type, name, from, from_bytes) \
    type name;                                          \
    ASHLAR_TRY(ashlar__sized_read(&name, sizeof name, (from), (from_bytes), #type))

#define ASHLAR_SIZED_READ_KNOWN(type, name, from, from_bytes) \
    type name;                                                \
    ashlar__sized_read_known(&name, sizeof name, (from), (from_bytes))

#endif /* ASHLAR_SIZED_H */
