/* allocator.c - making an allocator from its options, having it give idle memory back when another
 * user of the device lacks memory, and destroying it. */
#include "allocator/core/core.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* The default of cache_bytes, the most of a thread's cache, is the device's memory over this. */
enum { CACHE_DIVISOR = 32 };

/* The bytes that the allocator may map: the smaller of the two limits in the options. */
static size_t limit_of(const ashlar_config *config, size_t memory_bytes) {
    const size_t share = config->limit_fraction < 1
                             ? (size_t)(config->limit_fraction * (double)memory_bytes)
                             : memory_bytes;
    return config->limit_bytes != 0 && config->limit_bytes < share ? (size_t)config->limit_bytes
                                                                   : share;
}

enum { UNPUBLISHED_DIVISOR = 64 };

/* Set how far a thread's live bytes may change before it publishes them: with a trace not at all,
 * so that the statistics have the same peak as the trace. */
static void set_unpublished(ashlar_allocator *a) {
    const size_t share = a->heap.range.memory_bytes / UNPUBLISHED_DIVISOR;
    a->constants.unpublished_bytes = a->client.trace != NULL      ? 0
                                     : share > a->cache_bytes / 2 ? share
                                                                  : a->cache_bytes / 2;
}

static void fix(ashlar_allocator *a) {
    static _Atomic uint64_t ids;
    a->constants.id = atomic_fetch_add(&ids, 1) + 1;
    a->constants.base = a->heap.range.base;
    a->constants.range_bytes = a->heap.range.bytes;
    a->constants.map = a->heap.map;
    set_unpublished(a);
    ASHLAR_CHECK2(a->constants.base % ASHLAR_BLOCK_ALIGN == 0 && a->constants.range_bytes > 0);
}

/* From now on every call takes the lock, under which listeners are told. */
static void begin_events(ashlar_allocator *a) {
    a->client.trace = &a->ring;
    a->modes |= 1u << ASHLAR_MODE_TRACE;
    set_unpublished(a);
}

ashlar_status ashlar__allocator_keep_events(ashlar_allocator *a, uint64_t event_count) {
    if (event_count == 0 || a->ring.capacity > 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__trace_init(&a->ring, (size_t)event_count));
    begin_events(a);
    return ASHLAR_OK;
}

void ashlar__allocator_listen(ashlar_allocator *a, int place, ashlar_trace_listener listener) {
    ASHLAR_CHECK2(place >= 0 && place < ASHLAR_TRACE_LISTENERS);
    a->ring.listeners[place] = listener;
    begin_events(a);
}

/* The most bytes of one thread's cache. 0 with a guard, which must see every call. */
static size_t cache_bytes_of(const ashlar_config *config, size_t memory_bytes) {
    if (config->guard != ASHLAR_GUARD_OFF || config->cache_bytes == ASHLAR_CACHE_NONE) {
        return 0;
    }
    return config->cache_bytes == 0 ? memory_bytes / CACHE_DIVISOR : (size_t)config->cache_bytes;
}

static ashlar_status start_nvtx(ashlar_allocator *a, const ashlar_config *config) {
    const ashlar_range *range = &a->heap.range;
    if (!config->tells_nvtx || range->kind == ASHLAR_RANGE_HOST) {
        return ASHLAR_OK; /* NVTX hears of device memory only */
    }
    const ashlar_status status =
        ashlar__nvtx_memory_create(range->segments == NULL ? range->handle_bytes : 0, &a->nvtx);
    if (status == ASHLAR_OK) {
        ashlar__allocator_listen(
            a, ASHLAR_TRACE_TO_NVTX,
            (ashlar_trace_listener){.tell = ashlar__nvtx_memory_tell, .self = a->nvtx});
    }
    return status;
}

void ashlar__allocator_pretend(ashlar_allocator *a, size_t bytes) {
    ashlar_range *range = &a->heap.range;
    ASHLAR_CHECK2(bytes <= range->memory_bytes);
    const bool is_default = a->cache_bytes == range->memory_bytes / CACHE_DIVISOR;
    range->memory_bytes = bytes;
    range->limit_bytes = bytes < range->limit_bytes ? bytes : range->limit_bytes;
    a->cache_bytes = is_default ? bytes / CACHE_DIVISOR : a->cache_bytes;
    set_unpublished(a);
}

static ashlar_status create_heap(ashlar_allocator *a, const ashlar_config *config,
                                 ashlar_range_kind kind) {
    ashlar_status status = ashlar__heap_init(
        &a->heap, &a->client, kind, (size_t)config->handle_bytes, &a->stats.events_recorded);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_range *range = &a->heap.range;
    range->limit_bytes = limit_of(config, range->memory_bytes);
    a->cache_bytes = cache_bytes_of(config, range->memory_bytes);
    status = start_nvtx(a, config);
    if (status == ASHLAR_OK && config->guard == ASHLAR_GUARD_FILL) {
        status = ashlar__guard_fill_create(&a->heap, &a->guard_fill);
    }
    if (status != ASHLAR_OK) {
        ashlar__nvtx_memory_destroy(a->nvtx);
        ashlar__heap_finish(&a->heap);
    }
    return status;
}

/* Add what this allocator has of the device's memory. */
static void count_locked(ashlar_allocator *a, ashlar_others *others) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stats stats;
    ashlar__stats_sum_locked(a, &stats);
    others->count++;
    others->reserved_bytes += stats.reserved_bytes;
    others->idle_bytes += stats.reserved_bytes - stats.block_bytes;
}

static void report_leaks(ashlar_allocator *a) {
    if (ashlar__lock_try_acquire(&a->lock)) {
        ashlar__leaks_report_locked(a);
        ashlar__allocator_leave(a);
    }
}

static bool give_back(ashlar_allocator *a, size_t bytes, bool may_wait, ashlar_others *others) {
    if (ashlar__has_deferred(a)) {
        bool unused;
        ASHLAR_IGNORE(ashlar__deferred_ask(a, &unused)); /* if it fails, the blocks stay deferred */
    }
    ashlar__allocator_enter(a);
    const size_t before = a->heap.range.mapped_bytes;
    const size_t target = bytes < before ? before - bytes : 0;
    if (ashlar__may_map_locked(a) == ASHLAR_OK) {
        ashlar_status status = ashlar__trim_locked(a, target);
        bool may_help = may_wait;
        if (may_wait && ashlar__reclaim_locked(a, bytes)) {
            status = ashlar__trim_locked(a, target);
        }
        while (status == ASHLAR_OK && may_help && a->heap.range.mapped_bytes > target) {
            status = ashlar__wait_for_any_locked(a, &may_help);
            may_help = may_help || ashlar__planner_give_up_locked(&a->planner, &a->heap);
            status = status == ASHLAR_OK ? ashlar__trim_locked(a, target) : status;
        }
    }
    const bool has_any = a->heap.range.mapped_bytes < before;
    count_locked(a, others);
    ashlar__allocator_leave(a);
    return has_any;
}

static const ashlar_allocator_acts acts = {
    .end_stream = ashlar__allocator_end_stream,
    .begin_wait = ashlar__allocator_begin_wait,
    .end_wait = ashlar__allocator_end_wait,
    .give_back = give_back,
    .report_leaks = report_leaks,
};

ashlar_status ashlar__allocator_create_in(ashlar_device *device, const ashlar_config *given,
                                          ashlar_range_kind kind, ashlar_allocator **out) {
    ashlar_config taken;
    const ashlar_config *config = &taken;
    ASHLAR_TRY(ashlar__config_take(&taken, given));
    ASHLAR_TRY(ashlar__forks_watch());
    ashlar_allocator *a;
    ASHLAR_HOST_NEW(a, 1, "no host memory for an allocator");
    a->device = device;
    a->fork_count = atomic_load_explicit(&ashlar__fork_count, memory_order_relaxed);
    a->client = (ashlar_driver_client){.device = device};
    a->modes = (config->zero_blocks ? 1u << ASHLAR_MODE_ZERO : 0) |
               (config->guard != ASHLAR_GUARD_OFF ? 1u << ASHLAR_MODE_GUARD : 0) |
               (kind == ASHLAR_RANGE_HOST ? 1u << ASHLAR_MODE_HOST : 0);
    ashlar_status status = ashlar__allocator_keep_events(a, config->trace_events);
    ASHLAR_THEN(status, create_heap(a, config, kind));
    if (status != ASHLAR_OK) {
        ashlar__trace_finish(&a->ring);
        ashlar__host_free(a);
        return status;
    }
    a->seal = config->seal;
    a->planner.options = ashlar__plan_options_chosen((ashlar_plan_options){0});
    fix(a);
    ashlar__lock_init(&a->lock, ASHLAR_LEVEL_ALLOCATOR);
    status = ashlar_allocator_reserve(a, (size_t)config->reserve_bytes);
    if (status != ASHLAR_OK) {
        ashlar_allocator_destroy(a);
        return status;
    }
    a->reports_leaks = config->report_leaks;
    ashlar__allocator_acts = &acts;
    ashlar__allocator_enlist(a);
    *out = a;
    return ASHLAR_OK;
}

static ashlar_status create_checked(ashlar_device *device, const ashlar_config *config,
                                    ashlar_range_kind kind, ashlar_allocator **out) {
    ASHLAR_TRY(ashlar__modes_check(config, kind));
    return ashlar__allocator_create_in(device, config, kind, out);
}

ashlar_status ashlar_allocator_create_with(ashlar_device *device, const ashlar_config *config,
                                           ashlar_allocator **out) {
    const ashlar_config given = ASHLAR_OR_ZERO(ashlar_config, config);
    return create_checked(device, &given,
                          given.shares_memory            ? ASHLAR_RANGE_SHARED
                          : given.without_virtual_memory ? ASHLAR_RANGE_SEGMENTS
                                                         : ASHLAR_RANGE_VIRTUAL,
                          out);
}

ashlar_status ashlar_allocator_create_host(ashlar_device *device, const ashlar_config *config,
                                           ashlar_allocator **out) {
    const ashlar_config given = ASHLAR_OR_ZERO(ashlar_config, config);
    return create_checked(device, &given, ASHLAR_RANGE_HOST, out);
}

ashlar_status ashlar_allocator_create(ashlar_device *device, ashlar_allocator **out) {
    ashlar_config config = {0};
    const ashlar_status status = ashlar_config_parse(&config, NULL, NULL);
    return status == ASHLAR_OK ? ashlar_allocator_create_with(device, &config, out) : status;
}

static void report_at_end(ashlar_allocator *a) {
    while (ashlar__guard_take_finding(a) != ASHLAR_OK) {
    }
    if (a->reports_leaks) {
        report_leaks(a);
    }
}

/* Wait for the device's work: a guard's queued comparisons must end before the guard. If a second
 * wait fails, too, the device is lost, and work that has not run by then never will. */
static bool wait_for_all(ashlar_allocator *a) {
    bool is_over = false;
    for (int attempt = 0; attempt < 2 && !is_over; attempt++) {
        if (ashlar__device_enter(a->device) == ASHLAR_OK) {
            is_over = ASHLAR_CALL(&a->client, ctx_synchronize, ()) == CU_SUCCESS;
            ashlar__device_leave(a->device);
        }
    }
    return is_over;
}

void ashlar_allocator_destroy(ashlar_allocator *a) {
    if (a == NULL || ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__allocator_delist(a);
    if (wait_for_all(a) && a->guard_fill != NULL) {
        ashlar__guard_fill_compare_all(a->guard_fill);
        (void)wait_for_all(a);
    }
    report_at_end(a);
    ashlar__caches_disown(a);
    ashlar__guard_fill_destroy(a->guard_fill);
    for (ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        ashlar__cross_drop_uses(&a->heap, block);
    }
    ashlar__planner_finish(&a->planner);
    while (a->stream_states != NULL) {
        ashlar_stream_state *state = a->stream_states;
        ASHLAR_CHECK2(state->waiter_count == 0); /* no call on the allocator is under way */
        a->stream_states = state->next;
        ashlar__stream_state_finish(state, &a->client);
        ashlar__host_free(state);
    }
    ashlar__stream_states_end(&a->client);
    a->ring.listeners[ASHLAR_TRACE_TO_NVTX] = (ashlar_trace_listener){0};
    ashlar__nvtx_memory_destroy(a->nvtx);
    ashlar__heap_finish(&a->heap);
    ashlar__trace_finish(&a->ring);
    ashlar__lock_finish(&a->lock);
    ashlar__host_free(a);
}

ashlar_device *ashlar_allocator_device(const ashlar_allocator *a) {
    return a->device;
}

/* ---- statistics ---- */

void ashlar_allocator_get_stats(ashlar_allocator *a, ashlar_stats *stats) {
    ashlar_stats sums = {0};
    if (!ashlar__is_of_parent(a)) {
        ashlar__allocator_enter(a);
        ashlar__stats_sum_locked(a, &sums);
        ashlar__allocator_leave(a);
    }
    *stats = sums;
}
