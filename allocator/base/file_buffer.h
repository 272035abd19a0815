/*
 * file_buffer.h - many small writes to a file that is replaced whole or not at all (internal).
 *
 * After the first failure all further writes do nothing, and the commit returns the status of that
 * failure. So the caller need not check each write.
 *
 * Threads: one at a time per buffer.
 */
#ifndef ASHLAR_FILE_BUFFER_H
#define ASHLAR_FILE_BUFFER_H

#include <stddef.h>

#include <ashlar/status.h>

#include "allocator/base/compiler.h"

typedef struct ashlar_file_buffer ashlar_file_buffer;

/* Ownership: the caller commits or aborts *out. Errors: those of ashlar__file_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_buffer_create(const char *path,
                                                           ashlar_file_buffer **out);

void ashlar__file_buffer_put(ashlar_file_buffer *buffer, const void *data, size_t bytes);

/* Like printf(). The formatted text must be shorter than ASHLAR_FILE_BUFFER_PRINT_BYTES. */
enum { ASHLAR_FILE_BUFFER_PRINT_BYTES = 256 };
void ashlar__file_buffer_print(ashlar_file_buffer *buffer, const char *format, ...)
    ASHLAR_PRINTF(2, 3);

/* Replace the target by the new file or, if any write failed, leave the old one in place. Frees
 * `buffer`, also on failure.
 * Errors: as ashlar__file_write() and ashlar__file_commit(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_buffer_commit(ashlar_file_buffer *buffer);

/* Leave the old file in place. Frees `buffer`; NULL is allowed. */
void ashlar__file_buffer_abort(ashlar_file_buffer *buffer);

#endif /* ASHLAR_FILE_BUFFER_H */
