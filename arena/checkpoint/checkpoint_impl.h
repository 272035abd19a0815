/* checkpoint_impl.h - what saving and loading share: the regions of an arena, and where they lie
 * (internal). */
#ifndef ASHLAR_CHECKPOINT_IMPL_H
#define ASHLAR_CHECKPOINT_IMPL_H

#include "arena/checkpoint/checkpoint_images.h"
#include "arena/checkpoint/region_pieces.h"

/* The prefix that a tensor's name gets in the file for its part of `region`. NULL: not saved. */
const char *ashlar__checkpoint_prefix(ashlar_region region);

/* The set of the arena's regions and those of `images`. */
unsigned ashlar__checkpoint_regions(const ashlar_arena *arena,
                                    const ashlar_checkpoint_images *images);

/* Find where `regions` lie in host memory: in `given`, or, on a software device, in place as soon
 * as the work that was queued is over. The others stay NULL in *out. Waits for `stream` if there
 * are any in place. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checkpoint_find_images(
    const ashlar_arena *arena, unsigned regions, const ashlar_checkpoint_images *given,
    ashlar_stream stream, ashlar_checkpoint_images *out);

/* Take pieces for those of `regions` that have no image; zeros if all have one. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__checkpoint_take_pieces(
    ashlar_region_pieces *pieces, const ashlar_arena *arena, unsigned regions,
    const ashlar_checkpoint_images *images, ashlar_stream stream);

#endif /* ASHLAR_CHECKPOINT_IMPL_H */
