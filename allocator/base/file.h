/*
 * file.h - reading files and pipes, and writing a file whole or not at all, a pipe, or standard
 * output (internal).
 *
 * No file is mapped: a mapping changes when somebody writes to the file, even between a check and
 * the use of checked bytes, and reading it ends the process if somebody has shortened the file.
 *
 * Threads: one at a time may use a buffer, or write to standard output; any may do the rest.
 */
#ifndef ASHLAR_FILE_H
#define ASHLAR_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/base.h>

#include "allocator/base/compiler.h"

/* ---- reading ---- */

/*
 * Read the file `path` into host memory. The function whose name ends with _stream also reads pipes
 * and the like, to their end.
 *
 * out     the file's bytes and a 0 after them; the caller frees it with ashlar__host_free()
 * bytes   the number of bytes, without the 0
 * Errors: ASHLAR_EIO (no such file, no permission, not a regular file), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read(const char *path, char **out, size_t *bytes);
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
 * Errors: ASHLAR_EIO (also if the file ends before that). */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_read_at(int fd, const char *path, size_t offset,
                                                     void *out, size_t bytes);

/* ---- writing a file whole or not at all ---- */

/*
 * The bytes go to a new file beside the target, which only its owner can open. The commit makes it
 * durable, gives it the target's permissions, and renames it. Whoever opens the target meanwhile,
 * or after a crash, finds either the old file or the new one. A symbolic link is followed to
 * the file that is replaced, but not where everybody may make files, such as in /tmp: anybody may
 * have put it there.
 *
 * A process that is killed may leave the new file: NAME.ashlar-<16 hexadecimal digits>.tmp.
 *
 * After the first failure all further writes do nothing, and the commit returns the status of that
 * failure. So the caller need not check each write.
 */
typedef struct ashlar_file_buffer ashlar_file_buffer;

/*
 * Begin to replace the file `path`. The commit gives the new file the old one's permissions or, if
 * there is no old one, those that the umask then gives.
 *
 * Ownership: the caller commits or aborts *out.
 * Errors:    ASHLAR_EIO (no such folder, no permission), ASHLAR_EINVAL (`path` is empty, or that of
 *            a link that is not followed or of something else than a file), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_buffer_create(const char *path,
                                                           ashlar_file_buffer **out);

/* Append. Returns the status of the first write that failed; the commit tells it, too. */
ashlar_status ashlar__file_buffer_put(ashlar_file_buffer *buffer, const void *data, size_t bytes);

/* Like printf(). The formatted text must be shorter than ASHLAR_FILE_BUFFER_PRINT_BYTES. */
enum { ASHLAR_FILE_BUFFER_PRINT_BYTES = 256 };
void ashlar__file_buffer_print(ashlar_file_buffer *buffer, const char *format, ...)
    ASHLAR_PRINTF(2, 3);

/*
 * Make the new file durable and put it in the target's place. Frees `buffer`, also on failure.
 *
 * Errors: ASHLAR_EIO. The target is then unchanged and the new file is gone. One exception, which
 *         the detail names: the target was replaced, but its folder could not be made durable.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_buffer_commit(ashlar_file_buffer *buffer);

/* Drop the new file and leave the target alone. Frees `buffer`; NULL is allowed. */
void ashlar__file_buffer_abort(ashlar_file_buffer *buffer);

/* Replace the file `path` by a text and an end of line. Errors: those of _create() and
 * _commit(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_write_line(const char *path, const char *text,
                                                        size_t bytes);

/* ---- writing where a program's user wants it ---- */

/*
 * A regular file is replaced whole or not at all. A pipe, a socket or a character device, such as
 * /dev/null, is written to directly. "-" is standard output.
 *
 * _is           whether `path` is "-", or leads to something that is neither a regular file nor a
 *               folder
 * _take_stdout  from now on only "-" reaches the process's standard output, and whatever is printed
 *               to `stdout` goes to standard error, so that they do not mix
 * _write_line   write a text and an end of line
 *
 * Errors: ASHLAR_EIO, and those of ashlar__file_write_line().
 */
bool ashlar__stream_is(const char *path);
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_take_stdout(void);
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_write_line(const char *path, const char *text,
                                                          size_t bytes);

#endif /* ASHLAR_FILE_H */
