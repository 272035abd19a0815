/* cycle.c - telling from a program's live bytes where its steps begin, and emptying a cache
 * there. */
#include "allocator/core/cycle.h"

#include "allocator/base/check_level.h"
#include "allocator/base/threads.h"
#include "allocator/core/allocator_impl.h"

/*
 * Live bytes are at a trough if they lie in the lowest eighth of this cycle's range. The range goes
 * from the cycle's fewest to its most live bytes, and must be larger than an eighth of the most.
 */
enum { TROUGH_DIVISOR = 8 };

/*
 * The bytes that this thread allocated less those that it freed; 0 if it freed more, since other
 * threads had allocated them.
 */
static uint64_t live_bytes(const ashlar_cache *own) {
    const int64_t live = own->counters.published + own->counters.all.live;
    return live < 0 ? 0 : (uint64_t)live;
}

static void begin_cycle(ashlar_cache *own) {
    own->trough = own->crest = own->quiet = live_bytes(own);
    own->hits_before = own->counters.hit_count;
    own->misses = 0;
}

static bool is_at_trough(ashlar_cache *own) {
    const uint64_t live = live_bytes(own);
    own->trough = live < own->trough ? live : own->trough;
    ASHLAR_CHECK2(own->trough <= live && live <= own->crest);
    const uint64_t range = own->crest - own->trough;
    const bool is_wide = range > own->crest / TROUGH_DIVISOR;
    own->quiet = own->trough + (is_wide ? range / TROUGH_DIVISOR : 0);
    return live < own->quiet;
}

/*
 * Whether the cycle that ends had as many requests as the one before, and the same crest. Only
 * misses read the crest, so a cycle with more hits may show a crest that is lower, by at most what
 * the cache may hold.
 */
static bool is_like_the_last(ashlar_cache *own) {
    ASHLAR_CHECK2(own->counters.hit_count >= own->hits_before);
    const uint64_t hits = own->counters.hit_count - own->hits_before;
    const uint64_t requests = hits + own->misses - 1; /* the last miss belongs to the next cycle */
    const bool is_higher = own->crest > own->last_crest;
    const uint64_t apart = is_higher ? own->crest - own->last_crest : own->last_crest - own->crest;
    const bool is_explained = is_higher ? hits < own->last_hits : hits > own->last_hits;
    const bool is_alike =
        requests == own->last_requests && (apart == 0 || (is_explained && apart <= own->limit[0]));
    own->last_crest = own->crest;
    own->last_requests = requests;
    own->last_hits = hits;
    return is_alike;
}

void ashlar__cycle_restart(ashlar_cache *own) {
    ashlar__cache_flush(own);
    begin_cycle(own);
    own->last_crest = own->last_requests = own->last_hits = 0;
    own->was_full = false;
    own->hits_when_full = own->counters.hit_count;
    own->last_large = NULL;
    ASHLAR_CHECK2(atomic_load(&own->is_busy) != 0 ||
                  (ashlar__cache_is_empty(own) && own->pending_count == 0));
}

/*
 * Whether the cache had no room for a block freed since the last miss, and has served no request
 * since it was last found full.
 */
static bool is_full_of_what_nobody_wants(ashlar_cache *own) {
    if (!own->was_full) {
        return false;
    }
    const bool is_useless = own->counters.hit_count == own->hits_when_full;
    own->was_full = false;
    own->hits_when_full = own->counters.hit_count;
    return is_useless;
}

ASHLAR_NOINLINE void ashlar__cycle_look(ashlar_cache *own) {
    ASHLAR_CHECK2(own->thread == ashlar__thread_number());
    const bool is_useless = is_full_of_what_nobody_wants(own);
    if (own->pending != NULL) {
        ashlar__cache_flush_pending(own);
    }
    const bool is_new_cycle = is_at_trough(own);
    if (is_new_cycle ? !is_like_the_last(own) : is_useless) {
        ashlar__cache_flush(own);
    }
    if (own->weight[1] > 0) {
        ashlar__cache_flush_large(own);
    }
    if (is_new_cycle) {
        begin_cycle(own);
        own->misses = 1;
    }
    ASHLAR_CHECK2(atomic_load(&own->is_busy) != 0 ||
                  (own->pending_count == 0 && own->weight[1] == 0));
}
