/* torch.h - the rules of PyTorch's caching allocator, and a history replayed by them (internal). */
#ifndef ASHLAR_TORCH_H
#define ASHLAR_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "bench/replay/events.h"

enum { ASHLAR_TORCH_ROUNDUPS = 16 }; /* intervals between powers of two, from 1 MiB on */

typedef struct ashlar_torch_settings {
    uint64_t max_split_bytes; /* UINT64_MAX: none */
    uint64_t max_non_split_rounding_bytes;
    uint64_t large_segment_bytes;
    uint64_t roundups[ASHLAR_TORCH_ROUNDUPS]; /* divisions of each interval; 0 or 1: none */
    double gc_threshold;                      /* share of what is allowed; 0: none */
    double fraction;                          /* of the device that is allowed */
    bool is_expandable;
    bool is_by_number; /* of equal blocks the older segment's is taken; false: the lowest (2.9) */
} ashlar_torch_settings;

/* Set PyTorch's defaults, but for what `text` names as PYTORCH_CUDA_ALLOC_CONF does; NULL: nothing.
 * Keys that do not change where blocks lie are ignored. `source` is for messages. Errors:
 * ASHLAR_EINVAL (an unknown key, a bad value); what other keys say is in *out even then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_settings_parse(const char *source, const char *text,
                                                             ashlar_torch_settings *out);

/* The settings of a record. Its roundup.N win: versions read lists otherwise. Errors, and *out
 * then: as above. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_settings_recorded(const ashlar_events *events,
                                                                ashlar_torch_settings *out);

typedef struct ashlar_torch_config {
    const ashlar_torch_settings *settings;
    uint64_t device_bytes; /* memory of the device; 0: as much as is asked for */
    uint16_t device;
    bool is_recorded; /* the settings are those of the record: compare with it. false: what is live
                         when the history begins is allocated anew */
} ashlar_torch_config;

enum { ASHLAR_TORCH_TEXT_BYTES = 512 };

typedef struct ashlar_torch_result {
    uint64_t reserved_peak;    /* bytes taken from the driver */
    uint64_t reserved_at_peak; /* when most bytes were live, in the order of the program */
    uint64_t live_peak;        /* as requested */
    uint64_t driver_calls;     /* segments taken, given back, mapped and unmapped */
    size_t failures;           /* allocations that did not fit, the recorded ones included */
    uint64_t recorded_peak;    /* is_recorded: as reserved_peak, by the record, */
    uint64_t recorded_at_peak; /* and reserved_at_peak */
    size_t segment_events;     /* is_recorded: how many there are, */
    size_t equal_events;       /* and how many were equal, up to the first that was not */
    size_t places;             /* is_recorded: of blocks that were allocated, */
    size_t equal_places;       /* and how many were the recorded ones, up to there */
    size_t ties; /* between equal blocks older than the history, broken by the record */
    char left[ASHLAR_TORCH_TEXT_BYTES]; /* FILE:LINE: how the record differs; "" if it does not */
} ashlar_torch_result;

/* Replay a history. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_replay(const ashlar_events *events,
                                                     const ashlar_torch_config *config,
                                                     ashlar_torch_result *result);

/* Compare a record with the rules. Where they differ, it sets settings->is_by_number, which
 * config->settings has to point to, by what the record does. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_compare(const ashlar_events *events,
                                                      const ashlar_torch_config *config,
                                                      ashlar_torch_settings *settings,
                                                      ashlar_torch_result *result);

/* ---- between torch_replay.c, torch_rules.c and torch_blocks.c ---- */

#define ASHLAR_TORCH_SMALL_SEGMENT (UINT64_C(2) << 20) /* that small requests share */
#define ASHLAR_TORCH_NO_MEMORY "no host memory for PyTorch's blocks"

/* Up to a multiple, which need not be a power of two. */
static inline uint64_t ashlar__torch_round_up(uint64_t bytes, uint64_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
}

typedef struct ashlar_torch_block ashlar_torch_block;

typedef struct ashlar_torch_pool {
    ashlar_torch_block **cached; /* [count], by stream, size, number of its segment, and address */
    size_t count, capacity;
    uint64_t searches;
    uint32_t number;
    bool is_small;
} ashlar_torch_pool;

/* Neighbours in address order: block->next->prev == block, block->address + block->bytes ==
 * block->next->address. Two neighbours that are cached, or unmapped, are one block. */
struct ashlar_torch_block {
    uint64_t address, bytes, stream;
    ashlar_torch_block *prev, *next, *made_before;
    ashlar_torch_pool *pool; /* NULL: to be used again */
    uint64_t number;    /* of its segment, in the order of making; 0: not known, or not asked for */
    uint64_t cached_at; /* the pool's searches when it went to the cache; 0: before the first */
    uint64_t base;      /* where its expandable segment begins */
    bool can_grow;      /* it is of an expandable segment */
    bool is_active;     /* in use, or freed and waiting for a stream */
    bool is_mapped;
};

/* The history is cut into calls: an allocation, a free, torch.cuda.empty_cache(). A call is what
 * stands from events[begin] to the event that ends it, events[end]: before an allocation stand the
 * completions and segments that it led to. Invariant: begin <= next <= end. */
typedef struct ashlar_torch {
    const ashlar_events *events;
    const ashlar_torch_config *config;
    ashlar_torch_result *result;
    ashlar_torch_pool *pools;    /* [2 * pool_count]: large, small of each number */
    ashlar_torch_block *made;    /* all of them, by `made_before` */
    ashlar_torch_block *spare;   /* those to use again, by `next` */
    ashlar_torch_block **blocks; /* [allocation_count]; NULL: not live */
    uint32_t *waiting;           /* allocations whose free waits for a stream, and how many */
    size_t waiting_count;
    size_t begin, end;
    size_t next;          /* the record is equal up to here, */
    size_t completed;     /* and what it completed is, too */
    uint32_t release_stack; /* of what may release now: the emptied cache, the allocation */
    bool is_compared;     /* it has been equal so far */
    bool has_completions; /* the history has some */
    uint64_t live_bytes;  /* as requested, and not freed by the program */
    uint64_t reserved_bytes, made_up;
    uint64_t segments_made;
} ashlar_torch;

/* The index of the first cached block that is not before the key. */
size_t ashlar__torch_lower_bound(const ashlar_torch_pool *pool, const ashlar_torch_block *key);

/* Take a block out of the cache, by its index or by itself, and put it there, unless it is not
 * mapped. */
ashlar_torch_block *ashlar__torch_take_out(ashlar_torch_pool *pool, size_t i);
void ashlar__torch_erase(ashlar_torch_block *block);
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_insert(ashlar_torch_block *block);

/* A block like `model`, linked to nothing but what that names; and its end. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_new_block(ashlar_torch *torch,
                                                        const ashlar_torch_block *model,
                                                        ashlar_torch_block **out);
void ashlar__torch_drop_block(ashlar_torch *torch, ashlar_torch_block *block);

/* Cut what is behind the first `bytes` off, and cache it. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_cut(ashlar_torch *torch, ashlar_torch_block *block,
                                                  uint64_t bytes, ashlar_torch_block **rest);

/* Let a block take in its neighbours, if they are as free and as mapped as it is, and cache it. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_merge(ashlar_torch *torch, ashlar_torch_block *block);

/* An expandable segment of the pool: what it maps at a time, and all its addresses. */
uint64_t ashlar__torch_chunk_bytes(const ashlar_torch *torch, const ashlar_torch_pool *pool);
uint64_t ashlar__torch_space_bytes(const ashlar_torch *torch, const ashlar_torch_pool *pool);

/* begin() adds, if is_recorded, the segments that are there when the history begins, and
 * sets blocks[] for what is allocated in them. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_begin(ashlar_torch *torch);
void ashlar__torch_end(ashlar_torch *torch);

/* Whether the cache has a block for it. */
bool ashlar__torch_has(const ashlar_torch *torch, uint64_t bytes, uint64_t stream, uint32_t pool);

/* The size of the segment that max_split_size would release first for it; 0: none. */
uint64_t ashlar__torch_oversize(const ashlar_torch *torch, uint64_t bytes, uint64_t stream,
                                uint32_t pool);

/* is_refused: begin where the cache had nothing and the driver refused. *out: NULL if it is out of
 * memory. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_malloc(ashlar_torch *torch, uint64_t bytes,
                                                     uint64_t stream, uint32_t pool,
                                                     bool is_refused, ashlar_torch_block **out);

/* Make a block reusable, after all streams are done with it. */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_free(ashlar_torch *torch, ashlar_torch_block *block);
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_release(ashlar_torch *torch); /* empty_cache() */

/* What the rules ask of the history: to take memory from the driver, at `address` unless that is 0,
 * and then set it (false: refused); to give it back; to complete what waits for a stream; the pool
 * whose cache is released next, since the end of a graph's pool is not recorded; and which of equal
 * blocks PyTorch takes or releases (its address; 0: not known). */
bool ashlar__torch_take(ashlar_torch *torch, ashlar_event_action action, ashlar_torch_block *range);
void ashlar__torch_give(ashlar_torch *torch, ashlar_event_action action,
                        const ashlar_torch_block *range);
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_wait(ashlar_torch *torch);
uint32_t ashlar__torch_released_pool(const ashlar_torch *torch);
uint64_t ashlar__torch_named(const ashlar_torch *torch, ashlar_event_action action);

#endif /* ASHLAR_TORCH_H */
