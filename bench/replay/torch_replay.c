/* torch_replay.c - replays a history by PyTorch's rules, and compares what they ask of the driver
 * with what was recorded. */
#include <stdio.h>
#include <string.h>

#include "allocator/base/host.h"
#include "bench/replay/torch.h"

/* From here on addresses are made up: above all of a device. */
#define MADE_UP (UINT64_C(1) << 60)
#define SPACE_STEP (UINT64_C(1) << 46) /* between expandable segments; more than one has */

typedef ashlar_torch replay;
typedef ashlar_history_event event;

static const event *event_at(const replay *r, size_t i) {
    return &r->events->events[i];
}

static bool is_ours(const replay *r, size_t i) {
    return event_at(r, i)->device == r->config->device;
}

static bool is_segment_event(const event *e) {
    return e->action >= ASHLAR_EVENT_SEGMENT_ALLOC && e->action <= ASHLAR_EVENT_SEGMENT_UNMAP;
}

static bool is_release(const event *e) {
    return e->action == ASHLAR_EVENT_SEGMENT_FREE || e->action == ASHLAR_EVENT_SEGMENT_UNMAP;
}

/* The first segment event of the call, from `i` on; NULL: there is none. */
static const event *segment_event(const replay *r, size_t i) {
    while (i < r->end && !(is_ours(r, i) && is_segment_event(event_at(r, i)))) {
        i++;
    }
    return i < r->end ? event_at(r, i) : NULL;
}

/* ---- comparing ---- */

/* The event that the record has next: a segment's, or else the one that ends the call. */
static const event *recorded_next(const replay *r) {
    const event *e = segment_event(r, r->next);
    const size_t count = r->events->event_count;
    return e != NULL || count == 0 ? e : event_at(r, r->end < count ? r->end : count - 1);
}

/* The record differs: say where, once. `rule` says what the rules do instead. */
static void leave(replay *r, const char *rule, uint64_t address, uint64_t bytes) {
    if (!r->is_compared) {
        return;
    }
    const event *recorded = recorded_next(r);
    r->is_compared = false;
    (void)snprintf(r->result->left, sizeof r->result->left,
                   "%s:%u: PyTorch recorded %s of %llu bytes at %#llx; its rules, as far as they "
                   "are known here: %s of %llu bytes at %#llx",
                   r->events->name, recorded->line, ashlar__event_word(recorded->action),
                   (unsigned long long)recorded->bytes, (unsigned long long)recorded->address, rule,
                   (unsigned long long)bytes, (unsigned long long)address);
}

/* Compare what the rules ask of the driver with what the record has next. */
static bool is_recorded_next(replay *r, ashlar_event_action action,
                             const ashlar_torch_block *range) {
    const event *e = recorded_next(r);
    const bool is_equal = r->is_compared && e->action == action && e->bytes == range->bytes &&
                          e->pool == range->pool->number &&
                          r->events->streams[e->stream] == range->stream &&
                          (range->address == 0 || range->address == e->address);
    if (is_equal) {
        r->next = (size_t)(e - r->events->events) + 1;
        r->result->equal_events++;
    }
    return is_equal;
}

bool ashlar__torch_take(ashlar_torch *r, ashlar_event_action action, ashlar_torch_block *range) {
    const event *e = recorded_next(r);
    const uint64_t most = r->config->device_bytes;
    if (is_recorded_next(r, action, range)) {
        range->address = e->address;
    } else if (r->is_compared && (is_release(e) || e->action == ASHLAR_EVENT_OOM)) {
        return false;
    } else {
        leave(r, ashlar__event_word(action), range->address, range->bytes);
        if (most > 0 && (range->bytes > most || r->reserved_bytes > most - range->bytes)) {
            return false;
        }
        if (range->address == 0) {
            range->address = r->made_up;
            r->made_up += action == ASHLAR_EVENT_SEGMENT_MAP ? SPACE_STEP : range->bytes;
        }
    }
    r->reserved_bytes += range->bytes;
    r->result->driver_calls++;
    if (r->reserved_bytes > r->result->reserved_peak) {
        r->result->reserved_peak = r->reserved_bytes;
    }
    return true;
}

void ashlar__torch_give(ashlar_torch *r, ashlar_event_action action,
                        const ashlar_torch_block *range) {
    r->reserved_bytes -= range->bytes;
    r->result->driver_calls++;
    if (!is_recorded_next(r, action, range)) {
        leave(r, ashlar__event_word(action), range->address, range->bytes);
    }
}

uint32_t ashlar__torch_released_pool(const ashlar_torch *r) {
    const event *e = segment_event(r, r->next);
    return e != NULL && is_release(e) && e->stack == r->release_stack ? e->pool : 0;
}

uint64_t ashlar__torch_named(const ashlar_torch *r, ashlar_event_action action) {
    const event *e = action == ASHLAR_EVENT_ALLOC ? event_at(r, r->end) : segment_event(r, r->next);
    return r->is_compared && e != NULL && e->action == action ? e->address : 0;
}

/* ---- events ---- */

static ashlar_status complete(replay *r, uint32_t allocation) {
    ashlar_torch_block *b = r->blocks[allocation];
    r->blocks[allocation] = NULL; /* it may be completed before the record says so */
    return b == NULL ? ASHLAR_OK : ashlar__torch_free(r, b);
}

/* Complete what the record has next; while it is compared, up to the next segment event. */
static ashlar_status complete_recorded(replay *r) {
    for (; r->completed < r->end; r->completed++) {
        const event *e = event_at(r, r->completed);
        if (!is_ours(r, r->completed)) {
            continue;
        }
        if (r->is_compared && r->completed >= r->next && is_segment_event(e)) {
            break;
        }
        if (e->action == ASHLAR_EVENT_FREE_COMPLETED) {
            const ashlar_allocation *a = &r->events->allocations[e->allocation];
            r->live_bytes -= a->freed == r->completed && r->blocks[e->allocation] ? a->bytes : 0;
            ASHLAR_TRY(complete(r, e->allocation));
        }
    }
    return ASHLAR_OK;
}

/* The driver has refused, or the cache is to be emptied: all streams are waited for. */
ashlar_status ashlar__torch_wait(ashlar_torch *r) {
    if (r->is_compared) {
        return complete_recorded(r);
    }
    while (r->waiting_count > 0) {
        ASHLAR_TRY(complete(r, r->waiting[--r->waiting_count]));
    }
    return ASHLAR_OK;
}

static bool has_cached(const replay *r) {
    const event *last = event_at(r, r->end);
    return ashlar__torch_has(r, last->bytes, r->events->streams[last->stream], last->pool);
}

static bool ends_with_allocation(const replay *r) {
    const size_t end = r->end;
    return end < r->events->event_count && (event_at(r, end)->action == ASHLAR_EVENT_ALLOC ||
                                            event_at(r, end)->action == ASHLAR_EVENT_OOM);
}

/* Whether the program emptied the cache next, rather than the driver refusing the allocation that
 * ends this call: the releases have another stack, or nothing had to be asked for. */
static bool is_emptied_next(const replay *r) {
    const event *first = segment_event(r, r->next);
    return first != NULL && is_release(first) &&
           (!ends_with_allocation(r) || first->stack != event_at(r, r->end)->stack ||
            has_cached(r));
}

/* The cache is emptied, perhaps several times. */
static ashlar_status empty(replay *r) {
    for (size_t before = SIZE_MAX; r->next != before && is_emptied_next(r);) {
        before = r->next;
        r->release_stack = segment_event(r, before)->stack;
        ASHLAR_TRY(ashlar__torch_release(r));
    }
    return ASHLAR_OK;
}

/* Whether the rules differ from a record that goes on to the driver: the cache has a block, or
 * max_split_size asks for another release than the recorded one, or none is recorded. */
static bool is_other_way(const replay *r) {
    const event *first = segment_event(r, r->next), *last = event_at(r, r->end);
    const uint64_t oversize =
        ashlar__torch_oversize(r, last->bytes, r->events->streams[last->stream], last->pool);
    const bool is_kept = first == NULL && last->action == ASHLAR_EVENT_OOM;
    const bool is_another =
        first != NULL && is_release(first) &&
        (first->bytes != oversize || first->stream != last->stream || first->pool != last->pool);
    return has_cached(r) || (oversize > 0 && (is_kept || is_another));
}

/* Completions before an allocation are of its beginning, where PyTorch asks whether streams are
 * done. But if with them the rules go another way than PyTorch did, it had waited for the streams
 * after a refusal, too late for its search. */
static ashlar_status complete_before(replay *r, bool *is_refused) {
    const bool is_missed =
        r->is_compared && !is_other_way(r) &&
        (segment_event(r, r->next) != NULL || event_at(r, r->end)->action == ASHLAR_EVENT_OOM);
    ASHLAR_TRY(complete_recorded(r));
    *is_refused = is_missed && is_other_way(r);
    return ASHLAR_OK;
}

static void note_live(replay *r, uint64_t bytes) {
    r->live_bytes += bytes;
    if (r->live_bytes > r->result->live_peak) {
        r->result->live_peak = r->live_bytes;
        r->result->reserved_at_peak = r->reserved_bytes;
    }
}

static ashlar_status allocate(replay *r) {
    const event *last = event_at(r, r->end);
    const bool is_oom = last->action == ASHLAR_EVENT_OOM;
    ashlar_torch_block *b = NULL;
    bool is_refused;
    if (is_oom && !r->is_compared) {
        return complete_recorded(r); /* nothing of the program hung on it */
    }
    ASHLAR_TRY(empty(r));
    ASHLAR_TRY(complete_before(r, &is_refused));
    r->release_stack = last->stack;
    ASHLAR_TRY(ashlar__torch_malloc(r, last->bytes, r->events->streams[last->stream], last->pool,
                                    is_refused, &b));
    ASHLAR_TRY(complete_recorded(r));
    const uint64_t address = b == NULL ? 0 : b->address;
    if (recorded_next(r) != last || is_oom != (b == NULL) ||
        (!is_oom && address != last->address)) {
        leave(r, b == NULL ? "a refusal" : "an allocation", address, last->bytes);
    }
    r->result->failures += b == NULL;
    if (b == NULL || is_oom) { /* the program went on without it */
        return b == NULL ? ASHLAR_OK : ashlar__torch_free(r, b);
    }
    r->result->equal_places += r->is_compared;
    r->blocks[last->allocation] = b;
    note_live(r, last->bytes);
    return ASHLAR_OK;
}

/* Before a free, or at the end, nothing but an emptied cache changes segments. */
static ashlar_status finish_empty(replay *r) {
    ASHLAR_TRY(empty(r));
    if (segment_event(r, r->next) != NULL) {
        leave(r, "nothing", 0, 0);
    }
    return complete_recorded(r);
}

static ashlar_status free_requested(replay *r) {
    const event *last = event_at(r, r->end), *next = last + 1;
    const uint32_t allocation = last->allocation;
    if (r->blocks[allocation] == NULL) {
        return ASHLAR_OK; /* it did not fit */
    }
    r->live_bytes -= r->events->allocations[allocation].bytes;
    /* With another stack the completion is the next allocation's doing. Completions can be left out
     * of a history. */
    if (!r->has_completions ||
        (r->end + 1 < r->events->event_count && next->action == ASHLAR_EVENT_FREE_COMPLETED &&
         next->allocation == allocation && next->stack == last->stack)) {
        return complete(r, allocation);
    }
    r->waiting[r->waiting_count++] = allocation;
    return ASHLAR_OK;
}

/* Find the end of the call that begins at `begin`. */
static void find_end(replay *r) {
    r->next = r->completed = r->end = r->begin;
    while (r->end < r->events->event_count) {
        const event *e = event_at(r, r->end);
        if (is_ours(r, r->end) &&
            (e->action == ASHLAR_EVENT_ALLOC || e->action == ASHLAR_EVENT_OOM ||
             e->action == ASHLAR_EVENT_FREE_REQUESTED)) {
            return;
        }
        r->end++;
    }
}

static ashlar_status run(replay *r) {
    const size_t count = r->events->event_count;
    for (r->begin = 0; r->begin < count; r->begin = r->end + 1) {
        find_end(r);
        if (ends_with_allocation(r)) {
            ASHLAR_TRY(allocate(r));
        } else {
            ASHLAR_TRY(finish_empty(r));
            ASHLAR_TRY(r->end < count ? free_requested(r) : ASHLAR_OK);
        }
    }
    return ASHLAR_OK;
}

/* ---- the whole ---- */

/* What is live when the history begins: where it was, or allocated in order of address. */
static ashlar_status begin(replay *r) {
    const ashlar_events *e = r->events;
    ASHLAR_TRY(ashlar__torch_begin(r));
    for (size_t i = 0; i < e->first.segment_count; i++) {
        const ashlar_event_segment *s = &e->first.segments[i];
        for (size_t k = s->first_block; k < s->first_block + s->block_count; k++) {
            const ashlar_event_block *b = &e->first.blocks[k];
            if (b->device != r->config->device || b->state == ASHLAR_BLOCK_INACTIVE) {
                continue;
            }
            ashlar_torch_block **block = &r->blocks[b->allocation];
            if (!r->config->is_recorded && b->state == ASHLAR_BLOCK_ACTIVE) {
                ASHLAR_TRY(ashlar__torch_malloc(r, b->requested, e->streams[s->stream], s->pool,
                                                false, block));
                r->result->failures += *block == NULL;
            }
            if (b->state == ASHLAR_BLOCK_ACTIVE) {
                note_live(r, b->requested);
            } else if (*block != NULL) {
                r->waiting[r->waiting_count++] = b->allocation;
            }
        }
    }
    r->result->reserved_at_peak = r->reserved_bytes;
    if (r->reserved_bytes > r->result->reserved_peak) {
        r->result->reserved_peak = r->reserved_bytes;
    }
    return ASHLAR_OK;
}

/* What the record says by itself. It may lack segments that it gives back. */
static void read_record(replay *r) {
    ashlar_torch_result *result = r->result;
    uint64_t reserved = r->reserved_bytes, live = r->live_bytes, live_peak = live;
    result->recorded_peak = result->recorded_at_peak = reserved;
    for (size_t i = 0; i < r->events->event_count; i++) {
        const event *e = event_at(r, i);
        r->has_completions |= e->action == ASHLAR_EVENT_FREE_COMPLETED;
        if (!is_ours(r, i)) {
            continue;
        }
        if (is_segment_event(e)) {
            reserved = !is_release(e)        ? reserved + e->bytes
                       : reserved > e->bytes ? reserved - e->bytes
                                             : 0;
            result->segment_events++;
        } else if (e->action == ASHLAR_EVENT_ALLOC) {
            live += e->bytes;
            result->places++;
        } else if (e->allocation != ASHLAR_EVENTS_NONE &&
                   r->events->allocations[e->allocation].freed == i) {
            live -= r->events->allocations[e->allocation].bytes;
        }
        result->recorded_peak = reserved > result->recorded_peak ? reserved : result->recorded_peak;
        if (live > live_peak) {
            live_peak = live;
            result->recorded_at_peak = reserved;
        }
    }
}

ashlar_status ashlar__torch_replay(const ashlar_events *events, const ashlar_torch_config *config,
                                   ashlar_torch_result *result) {
    *result = (ashlar_torch_result){0};
    replay r = {.events = events,
                .config = config,
                .result = result,
                .is_compared = config->is_recorded,
                .made_up = MADE_UP};
    r.blocks = ashlar__host_calloc(events->allocation_count + 1, sizeof(ashlar_torch_block *));
    r.waiting = ashlar__host_calloc(events->allocation_count + 1, sizeof *r.waiting);
    ashlar_status status =
        r.blocks != NULL && r.waiting != NULL
            ? begin(&r)
            : ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to replay it", events->name);
    if (status == ASHLAR_OK) {
        read_record(&r);
        status = run(&r);
    }
    ashlar__torch_end(&r);
    ashlar__host_free((void *)r.blocks);
    ashlar__host_free(r.waiting);
    return status;
}

ashlar_status ashlar__torch_compare(const ashlar_events *events, const ashlar_torch_config *config,
                                    ashlar_torch_settings *settings, ashlar_torch_result *result) {
    ashlar_torch_result other;
    ASHLAR_TRY(ashlar__torch_replay(events, config, result));
    if (result->left[0] != '\0') {
        settings->is_by_number = false;
        ASHLAR_TRY(ashlar__torch_replay(events, config, &other));
        settings->is_by_number =
            other.left[0] != '\0' && other.equal_places <= result->equal_places;
        *result = settings->is_by_number ? *result : other;
    }
    return ASHLAR_OK;
}
