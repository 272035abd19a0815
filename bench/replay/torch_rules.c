/* torch_rules.c - the rules by which PyTorch's caching allocator places blocks and asks the driver
 * (c10/cuda/CUDACachingAllocator.cpp, versions 2.1 to 2.15). */
#include "allocator/base/host.h"
#include "bench/replay/torch.h"

#define MIB (UINT64_C(1) << 20)

enum { MIN_BLOCK_BYTES = 512 };
#define SMALL_BYTES MIB               /* requests up to here are small */
#define MIN_LARGE_BYTES (10 * MIB)    /* from here on a segment is for one request, */
#define LARGE_ROUNDING (2 * MIB)      /* of this multiple */

typedef ashlar_torch_block block;
typedef ashlar_torch_pool pool;

static bool is_split(const block *b) {
    return b->prev != NULL || b->next != NULL;
}

/* ---- sizes ---- */

static unsigned log2_of(uint64_t n) {
    return 63 - (unsigned)__builtin_clzll(n);
}

static uint64_t round_request(const ashlar_torch_settings *s, uint64_t bytes) {
    if (bytes < MIN_BLOCK_BYTES) {
        return MIN_BLOCK_BYTES;
    }
    const unsigned log = log2_of(bytes);
    const unsigned interval = log < 20 ? 0 : log - 20;
    const uint64_t divisions =
        s->roundups[interval < ASHLAR_TORCH_ROUNDUPS ? interval : ASHLAR_TORCH_ROUNDUPS - 1];
    if (divisions <= 1 || bytes <= MIN_BLOCK_BYTES * divisions) {
        return ashlar__torch_round_up(bytes, MIN_BLOCK_BYTES);
    }
    return ashlar__torch_round_up(bytes, (UINT64_C(1) << log) >> log2_of(divisions));
}

/* What a request asks for: a block that has no address yet. */
static block request(const ashlar_torch *t, uint64_t bytes, uint64_t stream, uint32_t number) {
    const uint64_t rounded = round_request(t->config->settings, bytes);
    return (block){.bytes = rounded,
                   .stream = stream,
                   .pool = &t->pools[2 * number + (rounded <= SMALL_BYTES)]};
}

static uint64_t segment_for(const ashlar_torch_settings *s, uint64_t bytes) {
    return bytes <= SMALL_BYTES      ? ASHLAR_TORCH_SMALL_SEGMENT
           : bytes < MIN_LARGE_BYTES ? s->large_segment_bytes
                                     : ashlar__torch_round_up(bytes, LARGE_ROUNDING);
}

static bool should_split(const ashlar_torch_settings *s, const block *b, uint64_t bytes) {
    const uint64_t rest = b->bytes - bytes;
    return b->pool->is_small || s->is_expandable ? rest >= MIN_BLOCK_BYTES
                                                 : bytes < s->max_split_bytes && rest > SMALL_BYTES;
}

/* ---- from the cache ---- */

/* Whether its segment's addresses end behind a block, and nobody knows where: they do so by the
 * size of the device, from the segment's begin on. */
static bool is_open(const ashlar_torch *t, const block *b) {
    return b != NULL && !b->is_mapped && b->next == NULL &&
           (t->config->device_bytes == 0 || b->number == 0);
}

/* A block that can grow counts with the addresses behind it. */
static uint64_t grown_bytes(const block *b) {
    return b->bytes + (b->next != NULL && !b->next->is_mapped ? b->next->bytes : 0);
}

/* Whether the next block fits better than one that can grow. Where that is not known, the record
 * may say that the first one was not taken. */
static bool is_better(const ashlar_torch *t, const block *b, const block *next) {
    const uint64_t named = ashlar__torch_named(t, ASHLAR_EVENT_ALLOC);
    return named != 0 && (is_open(t, b->next) || is_open(t, next->next))
               ? named - b->address >= b->bytes
               : grown_bytes(next) < grown_bytes(b);
}

/* The index of the cached block for a request; pool->count: there is none. */
static size_t search(const ashlar_torch *t, const block *want) {
    const ashlar_torch_settings *s = t->config->settings;
    const pool *p = want->pool;
    block *const *cached = p->cached;
    size_t i = ashlar__torch_lower_bound(p, want);
    if (i == p->count || cached[i]->stream != want->stream) {
        return p->count;
    }
    while (s->is_expandable && cached[i]->can_grow && i + 1 < p->count &&
           cached[i + 1]->stream == want->stream && is_better(t, cached[i], cached[i + 1])) {
        i++;
    }
    const bool is_too_large =
        want->bytes < s->max_split_bytes
            ? cached[i]->bytes >= s->max_split_bytes
            : cached[i]->bytes >= want->bytes + s->max_non_split_rounding_bytes;
    return is_too_large ? p->count : i;
}

static bool is_tie(const block *a, const block *b) {
    return a->stream == b->stream && a->bytes == b->bytes && a->number == b->number;
}

/* Which of equal blocks of the beginning is of the older segment, nobody knows: the one that the
 * record names may be it. */
static size_t break_tie(ashlar_torch *t, block *const *items, size_t count, size_t found,
                        ashlar_event_action action) {
    if (found == count || !t->config->settings->is_by_number || items[found]->number != 0) {
        return found;
    }
    const uint64_t named = ashlar__torch_named(t, action);
    size_t i = found;
    while (i > 0 && is_tie(items[i - 1], items[found])) {
        i--;
    }
    for (; i < count && is_tie(items[i], items[found]); i++) {
        if (named >= items[i]->address && named - items[i]->address < items[i]->bytes &&
            (action != ASHLAR_EVENT_SEGMENT_FREE || !is_split(items[i]))) {
            t->result->ties += i != found;
            return i;
        }
    }
    return found;
}

bool ashlar__torch_has(const ashlar_torch *t, uint64_t bytes, uint64_t stream, uint32_t number) {
    const block want = request(t, bytes, stream, number);
    return search(t, &want) < want.pool->count;
}

ashlar_status ashlar__torch_free(ashlar_torch *t, block *b) {
    b->is_active = false;
    return ashlar__torch_merge(t, b);
}

/* ---- from the driver ---- */

static uint64_t number_of(ashlar_torch *t) {
    return t->config->settings->is_by_number ? ++t->segments_made : 0;
}

/* The lowest addresses with room for a request: cached ones, if they stand before unmapped ones,
 * and what follows as long as it is free. Where a segment lies of which nothing was mapped yet,
 * nobody knows: where the record maps something next. That also says whether there was room at an
 * end that is not known, and whether there was such a segment that no history tells of. */
static ashlar_status find_room(ashlar_torch *t, const block *want, block **out) {
    const uint64_t named = ashlar__torch_named(t, ASHLAR_EVENT_SEGMENT_MAP);
    const uint64_t unplaced = named == 0 ? UINT64_MAX : named + 1; /* behind what is known there */
    const bool is_sure = t->config->device_bytes != 0 && t->events->first.segment_count == 0;
    uint64_t lowest = 0;
    *out = NULL;
    for (block *b = t->made; b != NULL; b = b->made_before) {
        if (b->pool != want->pool || b->stream != want->stream || b->is_mapped) {
            continue;
        }
        block *first = b->prev != NULL && !b->prev->is_active ? b->prev : b;
        const uint64_t address = first->address == 0 ? unplaced : first->address;
        const bool is_elsewhere = named != 0 && named != b->address;
        uint64_t room = 0;
        for (const block *at = first; at != NULL && !at->is_active && room < want->bytes;
             at = at->next) {
            room += is_elsewhere && is_open(t, at) ? 0 : at->bytes;
        }
        if (room >= want->bytes && (*out == NULL || address < lowest)) {
            *out = first;
            lowest = address;
        }
    }
    if (*out != NULL && (is_sure || named == 0 || named + 1 >= lowest)) {
        return ASHLAR_OK;
    }
    block whole = *want;
    whole.bytes = ashlar__torch_space_bytes(t, want->pool);
    if (whole.bytes < want->bytes) { /* the driver will refuse it, or the history is none */
        whole.bytes = ashlar__torch_round_up(want->bytes, ashlar__torch_chunk_bytes(t, want->pool));
    }
    whole.number = number_of(t);
    whole.can_grow = true;
    return ashlar__torch_new_block(t, &whole, out);
}

/* Map whole chunks for the first `bytes` of an unmapped block. *is_mapped: false if the driver
 * refused. */
static ashlar_status map(ashlar_torch *t, block *b, uint64_t bytes, bool *is_mapped) {
    block range = *b, *rest = NULL;
    range.bytes = ashlar__torch_round_up(bytes, ashlar__torch_chunk_bytes(t, b->pool));
    *is_mapped = ashlar__torch_take(t, ASHLAR_EVENT_SEGMENT_MAP, &range);
    if (!*is_mapped) {
        return ASHLAR_OK;
    }
    if (!is_split(b)) { /* until now nobody knew where it is */
        b->address = b->base = range.address;
    }
    if (range.bytes < b->bytes) {
        ASHLAR_TRY(ashlar__torch_cut(t, b, range.bytes, &rest));
    }
    b->is_mapped = true;
    return ashlar__torch_merge(t, b);
}

/* Grow an expandable segment. *out is as it was if the driver refused; what was mapped until then
 * stays in the cache. */
static ashlar_status grow(ashlar_torch *t, const block *want, block **out) {
    block *b;
    bool is_mapped = true;
    ASHLAR_TRY(find_room(t, want, &b));
    while (is_mapped && (!b->is_mapped || b->bytes < want->bytes)) {
        block *next = b->is_mapped ? b->next : b;
        const uint64_t missing = want->bytes - (b->is_mapped ? b->bytes : 0);
        ASHLAR_TRY(map(t, next, missing < next->bytes ? missing : next->bytes, &is_mapped));
        b = is_mapped ? next : b; /* it has taken in b */
    }
    if (is_mapped) {
        ashlar__torch_erase(b);
        *out = b;
    }
    return ASHLAR_OK;
}

static uint64_t allowed_bytes(const ashlar_torch_config *c) {
    return c->settings->fraction < 1 && c->device_bytes > 0
               ? (uint64_t)(c->settings->fraction * (double)c->device_bytes)
               : UINT64_MAX;
}

/* Ask the driver for a request. *out is NULL if it refused. */
static ashlar_status ask(ashlar_torch *t, const block *want, block **out) {
    block whole = *want;
    whole.bytes = segment_for(t->config->settings, want->bytes);
    *out = NULL;
    if (t->reserved_bytes + whole.bytes > allowed_bytes(t->config)) {
        return ASHLAR_OK;
    }
    if (t->config->settings->is_expandable) {
        return grow(t, want, out);
    }
    if (!ashlar__torch_take(t, ASHLAR_EVENT_SEGMENT_ALLOC, &whole)) {
        return ASHLAR_OK;
    }
    whole.number = number_of(t);
    whole.is_mapped = true;
    return ashlar__torch_new_block(t, &whole, out);
}

/* ---- back to the driver ---- */

/* Release a segment that is one cached block, cached[i], or one equal to it. */
static void release_segment(ashlar_torch *t, pool *p, size_t i) {
    block *b =
        ashlar__torch_take_out(p, break_tie(t, p->cached, p->count, i, ASHLAR_EVENT_SEGMENT_FREE));
    ashlar__torch_give(t, ASHLAR_EVENT_SEGMENT_FREE, b);
    ashlar__torch_drop_block(t, b);
}

/* Unmap the chunks that lie in a cached block as a whole. */
static ashlar_status unmap(ashlar_torch *t, block *b) {
    const uint64_t chunk = ashlar__torch_chunk_bytes(t, b->pool), offset = b->address - b->base;
    const uint64_t begin = ashlar__torch_round_up(offset, chunk);
    const uint64_t end = (offset + b->bytes) / chunk * chunk;
    block *rest = NULL;
    if (begin >= end) {
        return ASHLAR_OK;
    }
    ashlar__torch_erase(b);
    if (begin > offset) {
        ASHLAR_TRY(ashlar__torch_cut(t, b, begin - offset, &rest));
        ASHLAR_TRY(ashlar__torch_insert(b));
        ashlar__torch_erase(rest);
        b = rest;
    }
    if (b->bytes > end - begin) {
        ASHLAR_TRY(ashlar__torch_cut(t, b, end - begin, &rest));
    }
    ashlar__torch_give(t, ASHLAR_EVENT_SEGMENT_UNMAP, b);
    b->is_mapped = false;
    ASHLAR_TRY(ashlar__torch_merge(t, b));
    if (!is_split(b)) { /* the whole segment is unmapped, and ends */
        ashlar__torch_drop_block(t, b);
    }
    return ASHLAR_OK;
}

static ashlar_status release_pool(ashlar_torch *t, pool *p) {
    block **growing;
    size_t count = 0;
    ASHLAR_HOST_NEW(growing, p->count + 1, ASHLAR_TORCH_NO_MEMORY);
    for (size_t i = 0; i < p->count;) {
        if (p->cached[i]->can_grow) {
            growing[count++] = p->cached[i];
        } else if (!is_split(p->cached[i])) {
            release_segment(t, p, i);
            continue;
        }
        i++;
    }
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < count; i++) { /* unmapping changes the cache */
        const size_t k = i + break_tie(t, growing + i, count - i, 0, ASHLAR_EVENT_SEGMENT_UNMAP);
        block *b = growing[k];
        growing[k] = growing[i];
        ASHLAR_THEN(status, unmap(t, b));
    }
    ashlar__host_free((void *)growing);
    return status;
}

ashlar_status ashlar__torch_release(ashlar_torch *t) {
    ASHLAR_TRY(ashlar__torch_wait(t));
    uint32_t number = ashlar__torch_released_pool(t);
    if (number == 0) {
        ASHLAR_TRY(release_pool(t, &t->pools[0]));
        ASHLAR_TRY(release_pool(t, &t->pools[1]));
        number = ashlar__torch_released_pool(t);
    }
    for (uint32_t done = 0; number != 0 && number != done;) {
        ASHLAR_TRY(release_pool(t, &t->pools[2 * number + 1]));
        ASHLAR_TRY(release_pool(t, &t->pools[2 * number]));
        done = number;
        number = ashlar__torch_released_pool(t);
    }
    return ASHLAR_OK;
}

/* What oversize segments have to add up to for a request. */
static block oversize_key(const ashlar_torch *t, const block *want) {
    const uint64_t max_split = t->config->settings->max_split_bytes;
    block key = *want;
    key.bytes = want->bytes < max_split ? max_split : want->bytes;
    return key;
}

/* With max_split_size: the index of the smallest sufficient oversize segment of the stream, or of
 * the largest; pool->count: there is none. */
static size_t find_oversize(const ashlar_torch *t, const block *key) {
    const pool *p = key->pool;
    size_t i = ashlar__torch_lower_bound(p, key);
    if (i < p->count && p->cached[i]->stream == key->stream && !p->cached[i]->can_grow) {
        return i;
    }
    while (i > 0 && p->cached[i - 1]->stream == key->stream &&
           p->cached[i - 1]->bytes >= t->config->settings->max_split_bytes) {
        i--;
        if (!p->cached[i]->can_grow) {
            return i;
        }
    }
    return p->count;
}

uint64_t ashlar__torch_oversize(const ashlar_torch *t, uint64_t bytes, uint64_t stream,
                                uint32_t number) {
    const block want = request(t, bytes, stream, number), key = oversize_key(t, &want);
    const size_t i = find_oversize(t, &key);
    return i < key.pool->count ? key.pool->cached[i]->bytes : 0;
}

/* Release oversize segments until they are enough. Returns whether they are. */
static bool release_oversize(ashlar_torch *t, const block *want) {
    const block key = oversize_key(t, want);
    uint64_t released = 0;
    for (size_t i; released < key.bytes && (i = find_oversize(t, &key)) < key.pool->count;) {
        released += key.pool->cached[i]->bytes;
        release_segment(t, key.pool, i);
    }
    return released >= key.bytes;
}

static uint64_t age(const block *b) {
    return b->pool->searches - b->cached_at;
}

/* With garbage_collection_threshold: release large segments that are older than the average, until
 * enough is released. How old those of the beginning are, nobody knows: while there are some, or if
 * the size of the device is not known, what the record releases is old. */
static void collect_garbage(ashlar_torch *t) {
    const ashlar_torch_settings *s = t->config->settings;
    const uint64_t allowed = allowed_bytes(t->config);
    uint64_t most = allowed == UINT64_MAX ? allowed : (uint64_t)(s->gc_threshold * (double)allowed);
    uint64_t ages = 0, count = 0;
    pool *p = &t->pools[0];
    bool is_told = t->is_compared && s->fraction < 1 && t->config->device_bytes == 0;
    if (s->gc_threshold <= 0 || (t->reserved_bytes <= most && !is_told)) {
        return;
    }
    for (size_t i = 0; i < p->count; i++) {
        const block *b = p->cached[i];
        ages += is_split(b) ? 0 : age(b);
        count += !is_split(b);
        is_told |= t->is_compared && !is_split(b) && b->cached_at == 0;
    }
    most = is_told ? 0 : most;
    for (bool is_going = true; is_going && t->reserved_bytes > most && count > 0;) {
        const double limit = (double)ages / (double)count;
        is_going = false;
        for (size_t i = 0; i < p->count;) {
            const block *b = p->cached[i];
            const bool is_old =
                is_told ? ashlar__torch_named(t, ASHLAR_EVENT_SEGMENT_FREE) == b->address
                        : (double)age(b) >= limit;
            if (is_split(b) || b->can_grow || !is_old) {
                i++;
                continue;
            }
            is_going = true;
            ages -= age(b);
            count--;
            release_segment(t, p, i);
        }
    }
}

/* ---- the whole ---- */

ashlar_status ashlar__torch_malloc(ashlar_torch *t, uint64_t bytes, uint64_t stream,
                                   uint32_t number, bool is_refused, block **out) {
    const block want = request(t, bytes, stream, number);
    pool *p = want.pool;
    block *b = NULL, *rest = NULL;
    p->searches++;
    *out = NULL;
    if (!is_refused) {
        const size_t i = break_tie(t, p->cached, p->count, search(t, &want), ASHLAR_EVENT_ALLOC);
        b = i < p->count ? ashlar__torch_take_out(p, i) : NULL;
    }
    if (b == NULL && !is_refused) {
        collect_garbage(t);
        ASHLAR_TRY(ask(t, &want, &b));
        if (b == NULL && release_oversize(t, &want)) {
            ASHLAR_TRY(ask(t, &want, &b));
        }
    }
    if (b == NULL) {
        ASHLAR_TRY(ashlar__torch_release(t));
        ASHLAR_TRY(ask(t, &want, &b));
    }
    if (b == NULL) {
        return ASHLAR_OK;
    }
    if (should_split(t->config->settings, b, want.bytes)) {
        ASHLAR_TRY(ashlar__torch_cut(t, b, want.bytes, &rest));
    }
    b->is_active = true;
    *out = b;
    return ASHLAR_OK;
}
