/*
 * checkpoint.h - an arena's parameters to and from a safetensors file (internal).
 */
#ifndef ASHLAR_CHECKPOINT_H
#define ASHLAR_CHECKPOINT_H

#include <ashlar/arena.h>

#include "safetensors.h"

/*
 * Write every tensor of the parameter region under its name, whole or not at all. Waits for
 * `stream`. Errors: ASHLAR_EINVAL (not committed), ASHLAR_EIO, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_save(const ashlar_arena *arena, const char *path,
                                                       const ashlar_safetensors_pair *metadata,
                                                       size_t metadata_count, ashlar_stream stream);

/*
 * Fill the parameter region from an open file. Waits for `stream`.
 *
 * Errors: ASHLAR_EFORMAT (a tensor that is missing, or of another type or shape, named; one that
 *         the arena does not have), ASHLAR_EINVAL (not committed), ASHLAR_EHOSTMEM,
 *         ASHLAR_EDRIVER. The parameters have not changed then, but for ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_checkpoint_load(ashlar_arena *arena,
                                                       const ashlar_safetensors *file,
                                                       ashlar_stream stream);

#endif /* ASHLAR_CHECKPOINT_H */
