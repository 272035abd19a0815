/* corpus.h - text files, cut into records of bytes and held in host memory (internal).
 *
 * A record is one text that a model learns to begin and to end: a saying, a paragraph.
 *   - A file with lines of a single "%" (the fortune format) is cut at those lines;
 *   - any other file is cut into paragraphs, separated by blank lines (of spaces and tabs only).
 * "\r\n" ends a line as "\n" does. A record keeps its bytes as they are in the file, with the line
 * ends inside it but without the line end after its last line. Records of only blank lines are
 * dropped. No record holds byte 0, which the batcher uses to mark begin and end.
 *
 * Threads: any may read an open corpus; it never changes. */
#ifndef ASHLAR_CORPUS_H
#define ASHLAR_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

typedef struct ashlar_corpus ashlar_corpus;

typedef struct ashlar_record {
    const unsigned char *bytes; /* [count], not terminated */
    size_t count;               /* > 0 */
} ashlar_record;

/* Read `count` files or folders.
 *
 * A folder stands for the regular files directly in it, in byte order of their names. Hidden files
 * are ignored; binary ones (with a byte 0) and ones without a record are skipped and counted. A
 * file with several names (symbolic or hard links) is read once.
 *
 * Ownership: the caller owns *out until ashlar__corpus_destroy().
 * Errors:    ASHLAR_EINVAL (no path), ASHLAR_EIO (missing or unreadable), ASHLAR_EFORMAT (a named
 *            file that is empty or binary, a folder without any text), ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__corpus_open(const char *const *paths, size_t count,
                                                    ashlar_corpus **out);

void ashlar__corpus_destroy(ashlar_corpus *corpus); /* NULL is allowed */

/* Number of records, > 0. */
size_t ashlar__corpus_count(const ashlar_corpus *corpus);

/* Record `i` < count. Records are in the order of the paths and, within a file, of its text. */
ashlar_record ashlar__corpus_record(const ashlar_corpus *corpus, size_t i);

/* Bytes of all records together. */
size_t ashlar__corpus_bytes(const ashlar_corpus *corpus);

/* The number of files that gave a record; the number of skipped files in folders. */
size_t ashlar__corpus_file_count(const ashlar_corpus *corpus);
size_t ashlar__corpus_skipped_count(const ashlar_corpus *corpus);

/* A checksum of all records and of where each ends, to tell corpora apart. Cost: reads all text. */
uint64_t ashlar__corpus_checksum(const ashlar_corpus *corpus);

#endif /* ASHLAR_CORPUS_H */
