/*
 * pairs.h - a line of options, "key=value,key=value" (internal).
 */
#ifndef ASHLAR_PAIRS_H
#define ASHLAR_PAIRS_H

#include <ashlar/status.h>

#include "allocator/base/parse.h"

enum { ASHLAR_PAIRS_KEYS_MAX = 32 };

/* Set key `i` to the value. Errors: those of ashlar__pairs_refuse(); the first ends the reading. */
typedef ashlar_status (*ashlar_pairs_fn)(void *context, size_t i, ashlar_piece value);

typedef struct ashlar_pairs_format {
    const char *source;      /* where the line is from, for messages: "ASHLAR_SOFT" */
    const char *const *keys; /* [count] */
    size_t count;            /* 1 .. ASHLAR_PAIRS_KEYS_MAX */
    ashlar_pairs_fn set;
} ashlar_pairs_format;

/* Call `set` for each pair, in the order of the line. Errors: ASHLAR_EINVAL (a key unknown or given
 * twice), and those of `set`; the pairs before that one stay set. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pairs_read(const ashlar_pairs_format *format,
                                                   const char *text, void *context);

/* ASHLAR_EINVAL: "SOURCE: KEY=VALUE; give ALLOWED". */
ashlar_status ashlar__pairs_refuse(const char *source, const char *key, ashlar_piece value,
                                   const char *allowed);

#endif /* ASHLAR_PAIRS_H */
