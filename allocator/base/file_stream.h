/*
 * file_stream.h - writing a text where a program's user wants it: into a file, into a pipe, or to
 * standard output (internal).
 *
 * A regular file is replaced whole or not at all (file.h). What is no file, a pipe, a socket or a
 * character device such as /dev/null, is written to as it is. "-" is standard output; a program
 * whose text for people would stand between calls ashlar__stream_take_stdout() first.
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
 * From now on "-" alone is the process's standard output, and what is printed to `stdout` goes to
 * standard error. Errors: ASHLAR_EIO (no descriptor is left).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_take_stdout(void);

/* Write a text and an end of line. Errors: those of ashlar__file_write_line(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_write_line(const char *path, const char *text,
                                                          size_t bytes);

#endif /* ASHLAR_FILE_STREAM_H */
