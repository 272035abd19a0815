/* file_read.h - reading a file whole (internal). */
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

/* The same for anything that can be opened, such as a pipe: it is read to its end. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read_stream(const char *path, char **out,
                                                         size_t *bytes);

#endif /* ASHLAR_FILE_READ_H */
