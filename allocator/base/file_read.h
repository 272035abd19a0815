/*
 * file_read.h - reading a file whole (internal).
 */
#ifndef ASHLAR_FILE_READ_H
#define ASHLAR_FILE_READ_H

#include <stddef.h>

#include <ashlar/status.h>

/*
 * Read the file `path` into host memory.
 *
 * out     its bytes and a 0 behind them; given back with ashlar__host_free()
 * Errors: ASHLAR_EIO (none there, no permission, it is no regular file), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read(const char *path, char **out, size_t *bytes);

/* The same for whatever can be opened; a pipe, for example, is read to its end. */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read_stream(const char *path, char **out,
                                                         size_t *bytes);

#endif /* ASHLAR_FILE_READ_H */
