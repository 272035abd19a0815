/* gzip_zlib.c - unpacks gzip data by zlib. */
#include "bench/replay/gzip.h"

#include <zlib.h>

#include "allocator/base/host.h"

/* The most bytes that one call of zlib reads or writes, since zlib counts in 32 bits. */
enum { PIECE_BYTES = 1 << 24 };

enum { WINDOW_OF_GZIP = 15 + 16 }; /* zlib: the largest window, with a gzip header */

typedef struct unpacker {
    z_stream zlib;
    const char *name;
    char *text;
    size_t bytes;
    size_t capacity;
} unpacker;

bool ashlar__gzip_is_supported(void) {
    return true;
}

static ashlar_status reserve(unpacker *u) {
    if (u->bytes < u->capacity) {
        return ASHLAR_OK;
    }
    const size_t capacity = u->capacity == 0 ? 1 << 16 : 2 * u->capacity;
    char *grown = ashlar__host_realloc(u->text, capacity, 1);
    ASHLAR_FAIL_IF(grown == NULL, ASHLAR_EHOSTMEM, "%s: no host memory to unpack it", u->name);
    u->text = grown;
    u->capacity = capacity;
    return ASHLAR_OK;
}

/* Call inflate() once. *result: what it returned. *used: bytes of `data` that it consumed. */
static ashlar_status advance(unpacker *u, const unsigned char *data, size_t bytes, int *result,
                             size_t *used) {
    ASHLAR_TRY(reserve(u));
    const size_t room = u->capacity - u->bytes;
    const uInt in = (uInt)(bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
    const uInt out = (uInt)(room < PIECE_BYTES ? room : PIECE_BYTES);
    u->zlib.next_in = (z_const Bytef *)data;
    u->zlib.avail_in = in;
    u->zlib.next_out = (Bytef *)u->text + u->bytes;
    u->zlib.avail_out = out;
    *result = inflate(&u->zlib, Z_NO_FLUSH);
    *used = in - u->zlib.avail_in;
    u->bytes += out - u->zlib.avail_out;
    if (*result == Z_BUF_ERROR) { /* no progress although there was room: the data ends too early */
        return ashlar__fail(ASHLAR_EFORMAT, "%s: the gzip data is cut off", u->name);
    }
    ASHLAR_FAIL_IF(*result == Z_MEM_ERROR, ASHLAR_EHOSTMEM, "%s: no host memory to unpack it",
                   u->name);
    ASHLAR_FAIL_IF(*result != Z_OK && *result != Z_STREAM_END, ASHLAR_EFORMAT,
                   "%s: the gzip data is damaged: %s", u->name,
                   u->zlib.msg != NULL ? u->zlib.msg : "no more is known");
    return ASHLAR_OK;
}

static ashlar_status unpack_all(unpacker *u, const unsigned char *data, size_t bytes) {
    for (;;) {
        int result;
        size_t used;
        ASHLAR_TRY(advance(u, data, bytes, &result, &used));
        data += used;
        bytes -= used;
        if (result != Z_STREAM_END) {
            continue;
        }
        if (bytes == 0) {
            return ASHLAR_OK;
        }
        ASHLAR_FAIL_IF(!ashlar__gzip_is_magic(data, bytes), ASHLAR_EFORMAT,
                       "%s: %zu bytes that are no gzip data follow it", u->name, bytes);
        (void)inflateReset(&u->zlib); /* fails only for a stream that was never begun */
    }
}

ashlar_status ashlar__gzip_unpack(const char *name, const void *data, size_t bytes, char **out,
                                  size_t *out_bytes) {
    unpacker u = {.name = name};
    ASHLAR_FAIL_IF(inflateInit2(&u.zlib, WINDOW_OF_GZIP) != Z_OK, ASHLAR_EHOSTMEM,
                   "%s: no host memory to unpack it", name);
    const ashlar_status status = unpack_all(&u, data, bytes);
    (void)inflateEnd(&u.zlib);
    if (status != ASHLAR_OK) {
        ashlar__host_free(u.text);
        return status;
    }
    *out = u.text;
    *out_bytes = u.bytes;
    return ASHLAR_OK;
}
