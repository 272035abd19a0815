/* file_buffer.c - collecting small writes to a file, and remembering the first that failed. */
#include "allocator/base/file_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"

enum { BUFFER_BYTES = 1 << 16 };

/* Invariant between calls: used < BUFFER_BYTES. */
struct ashlar_file_buffer {
    ashlar_file *file;
    ashlar_status status; /* of the first write that failed; ASHLAR_OK: none failed */
    size_t used;          /* bytes of `bytes` that wait to be written */
    char bytes[BUFFER_BYTES];
};

ashlar_status ashlar__file_buffer_create(const char *path, ashlar_file_buffer **out) {
    ashlar_file_buffer *buffer = ashlar__host_calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to write %s", path);
    }
    const ashlar_status status = ashlar__file_create(path, &buffer->file);
    if (status != ASHLAR_OK) {
        ashlar__host_free(buffer);
        return status;
    }
    *out = buffer;
    return ASHLAR_OK;
}

static void flush(ashlar_file_buffer *buffer) {
    ASHLAR_CHECK2(buffer->used <= BUFFER_BYTES);
    if (buffer->status == ASHLAR_OK) {
        buffer->status = ashlar__file_write(buffer->file, buffer->bytes, buffer->used);
    }
    buffer->used = 0;
}

void ashlar__file_buffer_put(ashlar_file_buffer *buffer, const void *data, size_t bytes) {
    const char *next = data;
    ASHLAR_CHECK2(buffer->used < BUFFER_BYTES);
    while (bytes > 0) {
        const size_t room = BUFFER_BYTES - buffer->used;
        const size_t part = bytes < room ? bytes : room;
        memcpy(buffer->bytes + buffer->used, next, part);
        buffer->used += part;
        next += part;
        bytes -= part;
        if (buffer->used == BUFFER_BYTES) {
            flush(buffer);
        }
    }
    ASHLAR_CHECK2(buffer->used < BUFFER_BYTES);
}

void ashlar__file_buffer_print(ashlar_file_buffer *buffer, const char *format, ...) {
    char text[ASHLAR_FILE_BUFFER_PRINT_BYTES];
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ASHLAR_ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
    ashlar__file_buffer_put(buffer, text, (size_t)bytes);
}

ashlar_status ashlar__file_buffer_commit(ashlar_file_buffer *buffer) {
    flush(buffer);
    const ashlar_status status = buffer->status;
    if (status != ASHLAR_OK) {
        ashlar__file_buffer_abort(buffer);
        return status;
    }
    ashlar_file *file = buffer->file;
    ashlar__host_free(buffer);
    return ashlar__file_commit(file);
}

void ashlar__file_buffer_abort(ashlar_file_buffer *buffer) {
    if (buffer != NULL) {
        ashlar__file_abort(buffer->file);
        ashlar__host_free(buffer);
    }
}
