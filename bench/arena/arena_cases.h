/* arena_cases.h - the sets of tensors that `ashlar-bench arena` works on (internal). */
#ifndef ASHLAR_ARENA_CASES_H
#define ASHLAR_ARENA_CASES_H

#include <stdbool.h>

#include <ashlar/arena.h>

typedef struct ashlar_arena_case {
    const char *name;
    const char *what; /* a description of its tensors */
    ashlar_status (*declare)(ashlar_arena *arena, bool is_smoke);
} ashlar_arena_case;

/* All cases, in the order of the report. All tensors are fp32 and have no options. */
const ashlar_arena_case *ashlar__arena_cases(size_t *count);

/*
 * Declare a case's tensors in an arena that is not committed. They are the same on every machine.
 *
 * is_smoke   shrink the case "large"
 * Errors:    those of ashlar_arena_add().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_case_declare(const ashlar_arena_case *which,
                                                           bool is_smoke, ashlar_arena *arena);

/*
 * Fill parameters (about 1 in size) and gradients (about 0.001) from `seed`, by one copy for each
 * region. The arena must have both regions, and only fp32 tensors. Waits for `stream`.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__arena_case_fill(ashlar_arena *arena, uint64_t seed,
                                                        ashlar_stream stream);

#endif /* ASHLAR_ARENA_CASES_H */
