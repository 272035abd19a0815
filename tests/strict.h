/*
 * strict.h - why a test's software device is not as strict as check.h asks for: pieces of its line.
 */
#ifndef ASHLAR_STRICT_H
#define ASHLAR_STRICT_H

#include "tests/check.h"

/* The test itself does what CUDA leaves undefined, to see what comes back. */
#define STRICT_NOT_HERE "strict=off"

/* The test looks at what happens when a new stream has the handle of an old one. */
#define HANDLES_COME_BACK "recycle=on"

#endif /* ASHLAR_STRICT_H */
