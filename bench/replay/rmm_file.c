/* rmm_file.c - a log as a file, plain or packed. */
#include "bench/replay/rmm_csv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "bench/replay/gzip.h"
#include "allocator/base/host.h"

typedef struct content {
    char *text;
    size_t bytes;
    size_t capacity;
} content;

static ashlar_status fail_read(const char *path) {
    return ashlar_fail(ASHLAR_EIO, "cannot read %s: %s", path, strerror(errno));
}

/* To the end, without asking for the size first: a pipe has none. */
static ashlar_status read_all(FILE *file, const char *path, content *c) {
    for (;;) {
        if (c->bytes == c->capacity) {
            const size_t capacity = c->capacity == 0 ? 1 << 16 : 2 * c->capacity;
            char *grown = ashlar_host_realloc(c->text, capacity, 1);
            if (grown == NULL) {
                return ashlar_fail(ASHLAR_EHOSTMEM, "%s: no host memory to read it", path);
            }
            c->text = grown;
            c->capacity = capacity;
        }
        const size_t got = fread(c->text + c->bytes, 1, c->capacity - c->bytes, file);
        c->bytes += got;
        if (got == 0) {
            return ferror(file) ? fail_read(path) : ASHLAR_OK;
        }
    }
}

static ashlar_status unpack(const char *path, content *c) {
    content plain = {0};
    const ashlar_status status =
        ashlar_gzip_unpack(path, c->text, c->bytes, &plain.text, &plain.bytes);
    if (status == ASHLAR_OK) {
        ashlar_host_free(c->text);
        *c = plain;
    }
    return status;
}

ashlar_status ashlar_rmm_log_read(const char *path, ashlar_rmm_log **out) {
    content c = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return fail_read(path);
    }
    ashlar_status status = read_all(file, path, &c);
    (void)fclose(file);
    if (status == ASHLAR_OK && ashlar_gzip_is_magic(c.text, c.bytes)) {
        status = unpack(path, &c);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_rmm_log_parse(path, c.text, c.bytes, out);
    }
    ashlar_host_free(c.text);
    return status;
}
