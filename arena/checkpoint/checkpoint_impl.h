/* checkpoint_impl.h - what saving and loading share: the regions of an arena, and where they lie
 * (internal). */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include <ashlar/checkpoint.h>

#include "arena/checkpoint/region_pieces.h"

/* Where regions lie in host memory. NULL: not there, or there is none. */
typedef struct ashlar_checkpoint_images {
    char *of[ASHLAR_REGION_COUNT];
} ashlar_checkpoint_images;

/* The prefix that a tensor's name gets in the file for its part of `region`. NULL: not saved. */
const char *ashlar__checkpoint_prefix(ashlar_region region);

/* Find `regions` on a software device, whose memory is the host's, and wait for the work that was
 * queued on `stream`. On other devices *out is all NULL. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checkpoint_find_images(const ashlar_arena *arena,
                                                               unsigned regions,
                                                               ashlar_stream stream,
                                                               ashlar_checkpoint_images *out);

/* Take pieces for those of `regions` that have no image; zeros if all have one. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checkpoint_take_pieces(
    ashlar_region_pieces *pieces, const ashlar_arena *arena, unsigned regions,
    const ashlar_checkpoint_images *images, ashlar_stream stream);

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
