/*
 * file_read.h - reading a file, whole or in parts (internal).
 *
 * No file is mapped: a mapping changes when somebody writes to the file, even between a check and
 * the use of checked bytes, and reading it ends the process if somebody has shortened the file.
 */
#ifndef ASHLAR_FILE_READ_H
#define ASHLAR_FILE_READ_H

#include <stddef.h>

#include <ashlar/status.h>

/*
 * Read the file `path` into host memory.
 *
 * out     the file's bytes and a 0 after them; the caller frees it with ashlar__host_free()
 * bytes   the number of bytes, without the 0
 * Errors: ASHLAR_EIO (no such file, no permission, not a regular file), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read(const char *path, char **out, size_t *bytes);

/*
 * Like ashlar__file_read(), for anything that can be opened, such as a pipe. Reads it to its end.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read_stream(const char *path, char **out,
                                                         size_t *bytes);

/*
 * Open a regular file, to read parts of it.
 *
 * fd      the caller closes it
 * bytes   the file's size now
 * Errors: ASHLAR_EIO (no such file, no permission, not a regular file).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_open(const char *path, int *fd, size_t *bytes);

/* Read the `bytes` bytes at `offset` of an open file. `path` is for messages.
 * Errors: ASHLAR_EIO (also if the file ends before that). Threads: any. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read_at(int fd, const char *path, size_t offset,
                                                     void *out, size_t bytes);

#endif /* ASHLAR_FILE_READ_H */
