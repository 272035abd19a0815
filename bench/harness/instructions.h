/* instructions.h - the instructions of one pair, counted by valgrind (internal). */
#ifndef ASHLAR_INSTRUCTIONS_H
#define ASHLAR_INSTRUCTIONS_H

#include <ashlar/status.h>

/*
 * Run this program twice under valgrind's callgrind, as `ashlar-bench alloc --pairs N --subject
 * SUBJECT` with two values of N, and divide the difference in instructions by the difference in
 * pairs. The result does not depend on the machine's load.
 *
 * device   the argument of --device; NULL: the option is left out
 * out      instructions per pair
 *
 * Errors: ASHLAR_ENOTSUP (no valgrind), ASHLAR_EIO (a run failed or left no count),
 *         ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__instructions_of_pair(const char *device,
                                                             const char *subject, double *out);

#endif /* ASHLAR_INSTRUCTIONS_H */
