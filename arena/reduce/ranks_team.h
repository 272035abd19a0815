/* ranks_team.h - the engine of ranks that are threads of one process (internal). */
#ifndef ASHLAR_RANKS_TEAM_H
#define ASHLAR_RANKS_TEAM_H

#include <ashlar/status.h>

#include "arena/reduce/ranks_engine.h"

/* Make a team of `count` ranks. Rank i passes selves[i] to the engine's functions; start() is not
 * needed. The team ends when each rank has stopped or aborted. An abort ends no process, but makes
 * the calls of the other ranks fail.
 *
 * Errors: ASHLAR_EHOSTMEM; no self is made then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_team_create(size_t count, void **selves);

extern const ashlar_engine ashlar__ranks_team_engine;

/* The text that a call returns once another rank has given up. */
extern const char ashlar__ranks_team_has_ended[];

#endif /* ASHLAR_RANKS_TEAM_H */
