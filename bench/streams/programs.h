/* programs.h - the programs of the benchmark of streams (internal). */
#ifndef ASHLAR_STREAMS_PROGRAMS_H
#define ASHLAR_STREAMS_PROGRAMS_H

#include "bench/streams/stage.h"

typedef struct ashlar_streams_case {
    const char *name, *variant;
    ashlar_stage_program program;
    size_t steps, smoke_steps; /* of each stream; where these differ, their mean */
    size_t bytes;              /* of each block; 0: of several sizes */
    double share;              /* of the need that the device has; 0: it has more than enough */
} ashlar_streams_case;

const ashlar_streams_case *ashlar__streams_cases(size_t *count);

#endif /* ASHLAR_STREAMS_PROGRAMS_H */
