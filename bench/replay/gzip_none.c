#include "bench/replay/gzip.h"

#include "allocator/base/error.h"

bool ashlar_gzip_is_supported(void) {
    return false;
}

ashlar_status ashlar_gzip_unpack(const char *name, const void *data, size_t bytes, char **out,
                                 size_t *out_bytes) {
    (void)data;
    (void)bytes;
    (void)out;
    (void)out_bytes;
    return ashlar_fail(ASHLAR_ENOTSUP,
                       "%s: compressed by gzip, and this build has no zlib; unpack it first", name);
}
