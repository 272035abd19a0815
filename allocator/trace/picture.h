/*
 * picture.h - drawing blocks over time as an SVG: time to the right, address upwards, and one
 * rectangle for each block (internal).
 *
 * Colours stand for tags or, if there are no tags, for sizes. A legend says how many bytes of each
 * colour were live at the peak. A rectangle's tooltip names its block. The file fetches and
 * executes nothing, has a light background, and is always the same for the same blocks.
 */
#ifndef ASHLAR_PICTURE_H
#define ASHLAR_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

/* Invariants: begin < end;  bytes > 0;  offset + bytes fits in size_t;  tag is an ashlar_tag. */
typedef struct ashlar_picture_block {
    uint64_t begin, end; /* the block is live in [begin, end), in units of time_unit */
    size_t offset, bytes;
    const char *name;  /* its first 24 bytes at most are shown; NULL: the block's index is shown */
    unsigned char tag; /* an ashlar_tag; 0 if the picture has no tags */
} ashlar_picture_block;

typedef struct ashlar_picture {
    const char *title;
    const char *time_unit; /* of begin and end, for example "events" */
    const ashlar_picture_block *blocks;
    size_t count; /* 0 is allowed */
    bool has_tags;
    /* A horizontal line besides the one at the peak: the memory reserved, or the end of a plan. */
    const char *limit_label; /* NULL: no such line */
    size_t limit_bytes;
} ashlar_picture;

/*
 * Write the picture. In its texts, each byte that is not printable ASCII becomes a question mark.
 *
 * path  the file; replaced as a whole, or unchanged on failure
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (a block breaks an invariant above; more live bytes than size_t can hold;
 *          `path` is not a regular file), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 * Cost:    O(count log count); for each block 48 bytes of host memory, and in the file less than
 *          150 bytes and its name, if its numbers are below 10^10.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__picture_write(const ashlar_picture *picture,
                                                      const char *path);

#endif /* ASHLAR_PICTURE_H */
