/*
 * replay_picture.h - a picture of where a replay put the blocks of a log (internal).
 */
#ifndef ASHLAR_REPLAY_PICTURE_H
#define ASHLAR_REPLAY_PICTURE_H

#include "bench/replay/replay.h"

/*
 * Draw the blocks of a replayed log as an SVG: time in events of the log, requested sizes.
 *
 * addresses  [block_count], of the replay's config; 0: that block was never there
 * result     of that replay
 * path       is replaced as a whole, or on failure left as it was
 *
 * Errors: ASHLAR_EINVAL (path is no regular file), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_draw(const ashlar_rmm_log *log,
                                                    const uintptr_t *addresses,
                                                    const ashlar_replay_result *result,
                                                    const char *path);

#endif /* ASHLAR_REPLAY_PICTURE_H */
