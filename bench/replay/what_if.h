/* what_if.h - what a snapshot's program would have taken from other allocators (internal). */
#ifndef ASHLAR_WHAT_IF_H
#define ASHLAR_WHAT_IF_H

#include <stdbool.h>
#include <stdio.h>

#include "allocator/base/json.h"
#include "bench/replay/events.h"
#include "bench/replay/replay.h"

typedef struct ashlar_what_if {
    const char *torch;   /* settings of PyTorch's to try, too; NULL: none */
    size_t memory_bytes; /* of the recorded device; 0: not known */
    bool finds_capacity; /* the smallest devices are asked for, by many replays */
} ashlar_what_if;

/* Print a table for each device, and add it to an open JSON object, under "what_if". Errors:
 * ASHLAR_EINVAL (the settings), ASHLAR_EHOSTMEM, and those of ashlar__replay_run(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__what_if_run(const ashlar_what_if *asked,
                                                    const ashlar_events *events, FILE *out,
                                                    ashlar_json_writer *w);

#endif /* ASHLAR_WHAT_IF_H */
