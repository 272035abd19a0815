/* closest.h - the known name that a misspelt word comes closest to, for messages (internal). */
#ifndef ASHLAR_CLOSEST_H
#define ASHLAR_CLOSEST_H

#include "allocator/base/parse.h"

/* A search: set `word`, leave the other fields 0, then offer each name. */
typedef struct ashlar_closest {
    ashlar_piece word;
    const char *name; /* the closest so far; NULL: none is close */
    size_t distance;  /* distance of `name` from the word */
} ashlar_closest;

/*
 * Take `name` if it is closer to the word than the names before. The distance counts letters to
 * insert, to leave out, to replace, or to swap with the next letter. At most a third of the word's
 * letters, plus one, may be wrong.
 */
void ashlar__closest_offer(ashlar_closest *closest, const char *name);

/* Room for what ashlar__closest_hint() writes. */
enum { ASHLAR_CLOSEST_HINT_BYTES = 64 };

/* Write "; did you mean PREFIXNAME?" to `text`, or nothing if no name is close. Returns `text`. */
const char *ashlar__closest_hint(const ashlar_closest *closest, const char *prefix,
                                 char text[static ASHLAR_CLOSEST_HINT_BYTES]);

#endif /* ASHLAR_CLOSEST_H */
