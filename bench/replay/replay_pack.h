/*
 * replay_pack.h - packing a MiniMalloc problem for ashlar-replay (internal).
 */
#ifndef ASHLAR_REPLAY_PACK_H
#define ASHLAR_REPLAY_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <ashlar/status.h>

#include "allocator/base/json.h"

typedef struct ashlar_replay_pack {
    const char *path;      /* of the problem */
    size_t capacity_bytes; /* to be met; 0: as few bytes as possible */
    size_t seconds;        /* for the search */
    const char *solution;  /* where to write it; NULL: nowhere */
    const char *svg;       /* where to draw it; NULL: nowhere */
    FILE *progress;        /* a terminal, or NULL */
} ashlar_replay_pack;

/*
 * Pack, verify, write the solution, print one line on `out` and put an object to `w`.
 *
 * Errors: as ashlar__pack_table_read(), ashlar_pack(), ashlar_pack_verify(),
 *         ashlar__pack_table_write() and ashlar__picture_write(); ASHLAR_ENOMEM (it does not fit:
 *         the line, the object and the solution are there all the same).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_pack_run(const ashlar_replay_pack *command,
                                                        FILE *out, ashlar_json_writer *w);

#endif /* ASHLAR_REPLAY_PACK_H */
