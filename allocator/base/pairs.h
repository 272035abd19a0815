/* pairs.h - reading a line of options, "key=value,key=value" (internal). */
#ifndef ASHLAR_PAIRS_H
#define ASHLAR_PAIRS_H

#include <ashlar/status.h>

#include "allocator/base/parse.h"

enum { ASHLAR_PAIRS_KEYS_MAX = 32 };

/* Set key `i` to `value`; return ashlar__pairs_refuse() if the value is bad. The first error ends
 * the reading. */
typedef ashlar_status (*ashlar_pairs_fn)(void *context, size_t i, ashlar_piece value);

typedef struct ashlar_pairs_format {
    const char *source;      /* for messages: where the line came from, such as "ASHLAR_SOFT" */
    const char *const *keys; /* [count] */
    size_t count;            /* 1 .. ASHLAR_PAIRS_KEYS_MAX */
    ashlar_pairs_fn set;
} ashlar_pairs_format;

/* Call `set` for each pair, in the order of the line. Errors: ASHLAR_EINVAL (an unknown key, or a
 * key given twice), and those of `set`. The pairs before the bad one stay set. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pairs_read(const ashlar_pairs_format *format,
                                                   const char *text, void *context);

/* Return ASHLAR_EINVAL with the detail "SOURCE: KEY=VALUE; give ALLOWED". */
ashlar_status ashlar__pairs_refuse(const char *source, const char *key, ashlar_piece value,
                                   const char *allowed);

#endif /* ASHLAR_PAIRS_H */
