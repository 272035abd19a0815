/* gzip_none.c - refuses gzip data in builds without zlib. */
#include "bench/replay/gzip.h"

#include "allocator/base/error.h"

bool ashlar__gzip_is_supported(void) {
    return false;
}

ashlar_status ashlar__gzip_unpack(const char *name, const void *data, size_t bytes, char **out,
                                  size_t *out_bytes) {
    (void)data;
    (void)bytes;
    (void)out;
    (void)out_bytes;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "%s: compressed by gzip, and this build has no zlib; unpack it first",
                        name);
}
