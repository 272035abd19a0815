/*
 * strict.h - why a test's software device is not as strict as check.h asks for: pieces of its line.
 *
 * The first two are for good. Each of the others stands for a mistake of ours, and goes with it.
 */
#ifndef ASHLAR_STRICT_H
#define ASHLAR_STRICT_H

#include "tests/check.h"

/* The test itself does what CUDA leaves undefined, to see what comes back. */
#define STRICT_NOT_HERE "strict=off"

/* The test looks at what happens when a new stream has the handle of an old one. */
#define HANDLES_COME_BACK "recycle=on"

/* The drop-in's frees ask and record on streams that a program destroyed unseen: is_captured() and
 * mark_all_locked() in allocator/dropin/frees_batches.c. */
#define DROPIN_ASKS_DEAD_STREAMS "strict=off"

#endif /* ASHLAR_STRICT_H */
