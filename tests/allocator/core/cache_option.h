/* cache_option.h - how tests name what a thread's cache may hold: 0 is none, as a number would be.
 */
#ifndef CACHE_OPTION_H
#define CACHE_OPTION_H

#include <ashlar/allocator.h>

#define CACHE_AUTO UINT64_MAX /* the allocator chooses */

/* The value of ashlar_config.cache_bytes. */
static inline uint64_t cache_option(uint64_t bytes) {
    if (bytes == CACHE_AUTO) {
        return 0;
    }
    return bytes != 0 ? bytes : ASHLAR_CACHE_NONE;
}

#endif /* CACHE_OPTION_H */
