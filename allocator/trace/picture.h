/*
 * picture.h - blocks over time as a self-contained SVG: time across, address up, one rectangle for
 * each block (internal).
 *
 * Colours stand for tags, or for sizes where there are no tags; a legend says how many bytes of
 * each were live at the peak. A rectangle's tooltip names its block. The file fetches and executes
 * nothing, has a light background of its own, and is the same for the same blocks.
 */
#ifndef ASHLAR_PICTURE_H
#define ASHLAR_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

/* Invariants: begin < end;  bytes > 0;  offset + bytes fits in size_t;  tag is an ashlar_tag. */
typedef struct ashlar_picture_block {
    uint64_t begin, end; /* it is live in [begin, end) */
    size_t offset, bytes;
    const char *name;  /* NULL: the block's index stands for it; shown up to 24 bytes */
    unsigned char tag; /* 0 where the picture has none */
} ashlar_picture_block;

typedef struct ashlar_picture {
    const char *title;
    const char *time_unit; /* of begin and end, for example "events" */
    const ashlar_picture_block *blocks;
    size_t count; /* 0 is allowed */
    bool has_tags;
    /* A second horizontal line, beside that of the peak: what was reserved, or a plan's end. */
    const char *limit_label; /* NULL: no such line */
    size_t limit_bytes;
} ashlar_picture;

/*
 * Write the picture. Texts are ASCII: any other byte of theirs becomes a question mark.
 *
 * path  replaced as a whole, or on failure left as it was
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (a block that breaks an invariant above; live bytes beyond size_t; path is
 *          no regular file), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 * Cost:    O(count log count) and 48 bytes of host memory for each block; less than 150 in the file
 *          for each, its name apart, while its numbers are below 10^10.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__picture_write(const ashlar_picture *picture,
                                                      const char *path);

#endif /* ASHLAR_PICTURE_H */
