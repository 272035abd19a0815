/* tag.c - the names of the tags that say what a block is for. */
#include <ashlar/allocator.h>

#include "allocator/base/compiler.h"

const char *ashlar_tag_name(ashlar_tag tag) {
    static const char *const names[] = {
#define X(name, text) [ASHLAR_TAG_##name] = text,
        ASHLAR_TAG_MAP(X)
#undef X
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_TAG_COUNT);
    return (unsigned)tag < (unsigned)ASHLAR_TAG_COUNT ? names[tag] : "unknown";
}
