/* pairs.c - splitting a line of options into pairs, and messages about bad ones. */
#include "allocator/base/pairs.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/closest.h"
#include "allocator/base/error.h"

_Static_assert(ASHLAR_PAIRS_KEYS_MAX <= 32, "a bit of *seen for each key");

ashlar_status ashlar__pairs_refuse(const char *source, const char *key, ashlar_piece value,
                                   const char *allowed) {
    char shown[ASHLAR_SHOWN_BYTES];
    return ashlar__fail(ASHLAR_EINVAL, "%s: %s=%s; give %s", source, key,
                        ashlar__piece_show(value, shown), allowed);
}

static ashlar_status fail_key(const ashlar_pairs_format *f, ashlar_piece key, ashlar_piece value) {
    enum { KEY_BYTES = 16 }; /* room for an average key and ", " */
    char keys[ASHLAR_PAIRS_KEYS_MAX * KEY_BYTES] = "";
    char shown_key[ASHLAR_SHOWN_BYTES], shown[ASHLAR_SHOWN_BYTES];
    char hint[ASHLAR_CLOSEST_HINT_BYTES];
    ashlar_closest closest = {.word = key};
    for (size_t i = 0, at = 0; i < f->count; i++) {
        at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i == 0 ? "" : ", ", f->keys[i]);
        ashlar__closest_offer(&closest, f->keys[i]);
        ASHLAR_ASSERT(at < sizeof keys); /* there was room for every key so far */
    }
    return ashlar__fail(ASHLAR_EINVAL,
                        "%s: unknown key \"%s\" (value \"%s\")%s; give key=value, separated "
                        "by commas; the keys are %s",
                        f->source, ashlar__piece_show(key, shown_key),
                        ashlar__piece_show(value, shown), ashlar__closest_hint(&closest, "", hint),
                        keys);
}

/* Read one "key=value". Bit i of *seen: key i has been given. */
static ashlar_status read_pair(const ashlar_pairs_format *f, ashlar_piece pair, uint32_t *seen,
                               void *context) {
    ashlar_piece value = pair;
    const ashlar_piece key = ashlar__piece_cut(&value, '=');
    size_t i = 0;
    while (i < f->count && !ashlar__piece_is(key, f->keys[i])) {
        i++;
    }
    if (i == f->count) {
        return fail_key(f, key, value);
    }
    if ((*seen & UINT32_C(1) << i) != 0) {
        return ashlar__pairs_refuse(f->source, f->keys[i], value, "each key once");
    }
    *seen |= UINT32_C(1) << i;
    return f->set(context, i, value);
}

ashlar_status ashlar__pairs_read(const ashlar_pairs_format *format, const char *text,
                                 void *context) {
    uint32_t seen = 0;
    ashlar_piece rest = ashlar__piece_of(text);
    ASHLAR_ASSERT(format->count <= ASHLAR_PAIRS_KEYS_MAX);
    ASHLAR_CHECK2(format->count > 0 && format->set != NULL);
    for (bool is_last = rest.bytes == 0; !is_last;) {
        is_last = memchr(rest.text, ',', rest.bytes) == NULL;
        const ashlar_piece pair = ashlar__piece_cut(&rest, ',');
        ASHLAR_TRY(read_pair(format, pair, &seen, context));
    }
    return ASHLAR_OK;
}
