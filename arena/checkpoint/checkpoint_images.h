/* checkpoint_images.h - saves and loads checkpoints of an arena, some regions of which lie in host
 * memory (internal). */
#ifndef ASHLAR_CHECKPOINT_IMAGES_H
#define ASHLAR_CHECKPOINT_IMAGES_H

#include <ashlar/checkpoint.h>

/* The regions in host memory, ashlar_arena_region_bytes() each. NULL: the region is in the arena,
 * or there is none. */
typedef struct ashlar_checkpoint_images {
    char *of[ASHLAR_REGION_COUNT];
} ashlar_checkpoint_images;

/* As ashlar_checkpoint_save() and ashlar_checkpoint_load(), as if the arena had these regions, too.
 * A load fills them; after a failure their contents are undefined. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__checkpoint_save_with(const ashlar_arena *arena, const char *path, unsigned flags,
                             const ashlar_checkpoint_pair *metadata, size_t metadata_count,
                             ashlar_stream stream, const ashlar_checkpoint_images *images);
ASHLAR_MUST_CHECK ashlar_status
ashlar__checkpoint_load_with(ashlar_arena *arena, const ashlar_checkpoint *file, unsigned flags,
                             ashlar_stream stream, const ashlar_checkpoint_images *images);

#endif /* ASHLAR_CHECKPOINT_IMAGES_H */
