/*
 * instructions.h - the instructions of one pair, counted by valgrind (internal).
 */
#ifndef ASHLAR_INSTRUCTIONS_H
#define ASHLAR_INSTRUCTIONS_H

#include <ashlar/status.h>

/*
 * Run this program twice under valgrind's callgrind, as `ashlar-bench alloc --pairs N --subject
 * SUBJECT`, with different N, and divide the difference. No noise touches it.
 *
 * device   for --device; NULL: not given
 *
 * Errors: ASHLAR_ENOTSUP (no valgrind), ASHLAR_EIO (a run failed or left no count),
 *         ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__instructions_of_pair(const char *device,
                                                             const char *subject, double *out);

#endif /* ASHLAR_INSTRUCTIONS_H */
