/*
 * file_stream.h - writing a text where a program's user wants it: into a file, into a pipe, or to
 * standard output (internal).
 *
 * A regular file is replaced whole or not at all (file_buffer.h). A pipe, a socket or a character
 * device, such as /dev/null, is written to directly. "-" is standard output. A program that also
 * prints messages calls ashlar__stream_take_stdout() first, so that they do not mix with the text.
 *
 * Threads: one at a time.
 */
#ifndef ASHLAR_FILE_STREAM_H
#define ASHLAR_FILE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/status.h>

/* Whether `path` is "-", or leads to something that is neither a regular file nor a folder. */
bool ashlar__stream_is(const char *path);

/*
 * From now on only "-" reaches the process's standard output, and whatever is printed to `stdout`
 * goes to standard error. Errors: ASHLAR_EIO (no descriptor is left).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_take_stdout(void);

/* Write a text and an end of line. Errors: those of ashlar__file_buffer_create() and _commit(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_write_line(const char *path, const char *text,
                                                          size_t bytes);

#endif /* ASHLAR_FILE_STREAM_H */
