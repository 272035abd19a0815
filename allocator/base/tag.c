/*
 * tag.c - the names of the tags that say what a block is for.
 */
#include <ashlar/allocator.h>

const char *ashlar_tag_name(ashlar_tag tag) {
    static const char *const names[ASHLAR_TAG_COUNT] = {
#define X(name, text) [ASHLAR_TAG_##name] = text,
        ASHLAR_TAG_MAP(X)
#undef X
    };
    return (unsigned)tag < (unsigned)ASHLAR_TAG_COUNT ? names[tag] : "unknown";
}
