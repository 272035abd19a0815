/*
 * pack_table.h - packing problems and their solutions in MiniMalloc's CSV files (internal).
 *
 * A header, and a row for each buffer, which is live in [lower, upper):
 *     id,lower,upper,size
 *     0,995328,1000448,656384
 * Columns are found by name, in any order; a solution adds the column `offset`. Other columns are
 * ignored, but `alignment` and `gaps` are refused, since they would constrain the solution. An id
 * is any text.
 */
#ifndef ASHLAR_PACK_TABLE_H
#define ASHLAR_PACK_TABLE_H

#include <stddef.h>

#include <ashlar/pack.h>

#include "allocator/base/parse.h"

/* Invariant: ids[i] and buffers[i] belong to row i of the file. */
typedef struct ashlar_pack_table {
    ashlar_pack_buffer *buffers; /* [count] */
    ashlar_piece *ids;           /* [count], pieces of `text` */
    size_t count;
    char *text;
} ashlar_pack_table;

/*
 * Read a problem.
 *
 * Ownership: the caller ends *out with ashlar__pack_table_finish().
 * Errors:    ASHLAR_EIO, ASHLAR_EFORMAT (the detail begins with FILE:LINE: and names the column),
 *            ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_table_read(const char *path, ashlar_pack_table *out);

/* The same from memory. `name` replaces the file's name in messages; the text is copied. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_table_parse(const char *name, const char *text,
                                                         size_t bytes, ashlar_pack_table *out);

void ashlar__pack_table_finish(ashlar_pack_table *table); /* all 0 is allowed */

/* Write a problem or, if `offsets` [count] are given, its solution. Errors: those of
 * ashlar__file_create() and ashlar__file_commit(); the old file is then unchanged. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_table_write(const ashlar_pack_table *table,
                                                         const size_t *offsets, const char *path);

/*
 * Check a plan of any source, by another method than the packer's: no two buffers overlap while
 * both are live.
 *
 * bytes    the highest end of a buffer; unchanged on failure
 *
 * Errors:  ASHLAR_EFORMAT (two overlap; the detail names them), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_check(const ashlar_pack_buffer *buffers, size_t count,
                                                   const size_t *offsets, size_t *bytes);

#endif /* ASHLAR_PACK_TABLE_H */
