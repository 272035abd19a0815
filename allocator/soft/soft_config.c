/* soft_config.c - reading the line of key=value pairs that describes the software devices. */
#include "allocator/soft/soft_state.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/pairs.h"

enum { LATENCY_MAX_NS = 1000000000, QUERY_NS = 1000 };
#define MEMORY_MAX_BYTES ((uint64_t)64 << 40)
_Static_assert(MEMORY_MAX_BYTES / ((uint64_t)2 << 20) <= UINT32_MAX, "page indexes are 32 bits");

static ashlar_status refuse(const char *key, ashlar_piece value, const char *allowed) {
    return ashlar__pairs_refuse("ASHLAR_SOFT", key, value, allowed);
}

static ashlar_status read_devices(ashlar_piece value, soft_config *config) {
    uint64_t number;
    if (!ashlar__parse_count(value, &number) || number < 1 || number > SOFT_DEVICES_MAX) {
        return refuse("devices", value, "a number from 1 to 16");
    }
    config->device_count = (int)number;
    return ASHLAR_OK;
}

static ashlar_status read_memory(ashlar_piece value, soft_config *config) {
    uint64_t bytes;
    if (!ashlar__parse_bytes(value, &bytes) || bytes > MEMORY_MAX_BYTES ||
        bytes < SOFT_PAGE_BYTES) {
        return refuse("memory", value, "2MiB to 64TiB, with a unit B, KiB, MiB, GiB or TiB");
    }
    config->memory_bytes = bytes & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
    return ASHLAR_OK;
}

static ashlar_status read_overhead(ashlar_piece value, soft_config *config) {
    uint64_t bytes;
    if (!ashlar__parse_bytes(value, &bytes) || bytes > MEMORY_MAX_BYTES) {
        return refuse("overhead", value, "0B to 64TiB, with a unit B, KiB, MiB, GiB or TiB");
    }
    config->overhead_bytes = (bytes + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
    return ASHLAR_OK;
}

static ashlar_status read_mode(ashlar_piece value, soft_config *config) {
    if (ashlar__piece_is(value, "eager")) {
        config->mode = SOFT_EAGER;
    } else if (ashlar__piece_is(value, "adversarial")) {
        config->mode = SOFT_ADVERSARIAL;
    } else if (ashlar__piece_is(value, "overlap")) {
        config->mode = SOFT_OVERLAP;
    } else {
        return refuse("mode", value, "eager, adversarial or overlap");
    }
    return ASHLAR_OK;
}

static ashlar_status read_seed(ashlar_piece value, soft_config *config) {
    uint64_t number;
    if (!ashlar__parse_count(value, &number)) {
        return refuse("seed", value, "an unsigned decimal number of 64 bits");
    }
    config->seed = number;
    return ASHLAR_OK;
}

static ashlar_status read_switch(const char *key, ashlar_piece value, bool *is_on) {
    if (!ashlar__piece_is(value, "on") && !ashlar__piece_is(value, "off")) {
        return refuse(key, value, "on or off");
    }
    *is_on = ashlar__piece_is(value, "on");
    return ASHLAR_OK;
}

static ashlar_status read_peers(ashlar_piece value, soft_config *config) {
    return read_switch("peers", value, &config->has_peers);
}

static ashlar_status read_touch(ashlar_piece value, soft_config *config) {
    bool is_on = true;
    const ashlar_status status = read_switch("touch", value, &is_on);
    config->is_untouched = !is_on;
    return status;
}

static ashlar_status read_vmm(ashlar_piece value, soft_config *config) {
    return read_switch("vmm", value, &config->has_vmm);
}

static ashlar_status read_sharing(ashlar_piece value, soft_config *config) {
    if (ashlar__piece_is(value, "none")) {
        config->sharing = SOFT_SHARING_NONE;
    } else if (ashlar__piece_is(value, "file")) {
        config->sharing = SOFT_SHARING_FILE;
    } else if (ashlar__piece_is(value, "fabric")) {
        config->sharing = SOFT_SHARING_FABRIC;
    } else {
        return refuse("share", value, "none, file or fabric");
    }
    return ASHLAR_OK;
}

static ashlar_status read_batch(ashlar_piece value, soft_config *config) {
    return read_switch("batch", value, &config->has_batch);
}

static ashlar_status read_clocks(ashlar_piece value, soft_config *config) {
    return read_switch("clocks", value, &config->has_clocks);
}

static ashlar_status read_waits(ashlar_piece value, soft_config *config) {
    return read_switch("waits", value, &config->has_waits);
}

static ashlar_status read_strict(ashlar_piece value, soft_config *config) {
    return read_switch("strict", value, &config->is_strict);
}

static ashlar_status read_recycle(ashlar_piece value, soft_config *config) {
    bool is_on = false;
    const ashlar_status status = read_switch("recycle", value, &is_on);
    config->recycle = is_on ? SOFT_RECYCLE_ON : SOFT_RECYCLE_OFF;
    return status;
}

static ashlar_status read_time(ashlar_piece value, soft_config *config) {
    return read_switch("time", value, &config->has_time);
}

/* Read one "NAME:NS" into ns_of[function]. False: it is malformed, or the name is unknown or was
 * seen before. */
static bool read_one_call(ashlar_piece part, uint64_t min_ns, bool *is_seen, uint32_t *ns_of) {
    ashlar_piece rest = part;
    const ashlar_piece name = ashlar__piece_cut(&rest, ':');
    uint64_t ns;
    if (!ashlar__parse_count(rest, &ns) || ns < min_ns || ns > LATENCY_MAX_NS) {
        return false;
    }
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        if (ashlar__piece_is(name, ashlar__driver_fn_name((ashlar_driver_fn)fn))) {
            const bool is_first = !is_seen[fn];
            is_seen[fn] = true;
            ns_of[fn] = (uint32_t)ns;
            return is_first;
        }
    }
    return false;
}

/* Read "NAME:NS", or several of these joined by +. */
static bool read_calls(ashlar_piece value, uint64_t min_ns, uint32_t *ns_of) {
    bool is_seen[ASHLAR_DRIVER_FN_COUNT] = {false};
    ashlar_piece rest = value;
    for (bool is_last = false; !is_last;) {
        is_last = memchr(rest.text, '+', rest.bytes) == NULL;
        if (!read_one_call(ashlar__piece_cut(&rest, '+'), min_ns, is_seen, ns_of)) {
            return false;
        }
    }
    return true;
}

static ashlar_status read_latency(ashlar_piece value, soft_config *config) {
    return read_calls(value, 1, config->latency_ns)
               ? ASHLAR_OK
               : refuse("latency", value,
                        "NAME:NS pairs joined by +, such as cuMemAlloc:200000, each name once "
                        "and 1 to 1000000000 ns");
}

/* The host's default cost of each call: estimates, smallest for calls that only read. A call for
 * physical memory costs the same for small and large handles. */
static const struct {
    ashlar_driver_fn fn;
    uint32_t ns;
} default_costs[] = {
    {ASHLAR_DRIVER_FN_ctx_push_current, 100},
    {ASHLAR_DRIVER_FN_ctx_pop_current, 100},
    {ASHLAR_DRIVER_FN_ctx_synchronize, 3000},
    {ASHLAR_DRIVER_FN_mem_get_info, 20000},
    {ASHLAR_DRIVER_FN_mem_address_reserve, 20000},
    {ASHLAR_DRIVER_FN_mem_address_free, 20000},
    {ASHLAR_DRIVER_FN_mem_create, 30000},
    {ASHLAR_DRIVER_FN_mem_release, 25000},
    {ASHLAR_DRIVER_FN_mem_map, 10000},
    {ASHLAR_DRIVER_FN_mem_unmap, 35000},
    {ASHLAR_DRIVER_FN_mem_set_access, 40000},
    {ASHLAR_DRIVER_FN_mem_alloc, 100000},
    {ASHLAR_DRIVER_FN_mem_free, 100000},
    {ASHLAR_DRIVER_FN_mem_host_alloc, 500000},
    {ASHLAR_DRIVER_FN_mem_free_host, 300000},
    {ASHLAR_DRIVER_FN_pointer_get_attribute, 200},
    {ASHLAR_DRIVER_FN_memcpy_htod_async, 4000},
    {ASHLAR_DRIVER_FN_memcpy_dtoh_async, 4000},
    {ASHLAR_DRIVER_FN_memcpy_dtod_async, 4000},
    {ASHLAR_DRIVER_FN_memset_d8_async, 4000},
    {ASHLAR_DRIVER_FN_memcpy_peer_async, 4000},
    {ASHLAR_DRIVER_FN_memcpy_batch_async, 6000},
    {ASHLAR_DRIVER_FN_launch_host_func, 4000},
    {ASHLAR_DRIVER_FN_stream_create, 20000},
    {ASHLAR_DRIVER_FN_stream_destroy, 10000},
    {ASHLAR_DRIVER_FN_stream_get_id, 200},
    {ASHLAR_DRIVER_FN_stream_wait_event, 1000},
    {ASHLAR_DRIVER_FN_stream_query, QUERY_NS},
    {ASHLAR_DRIVER_FN_stream_synchronize, 3000},
    {ASHLAR_DRIVER_FN_event_create, 1000},
    {ASHLAR_DRIVER_FN_event_destroy, 500},
    {ASHLAR_DRIVER_FN_event_record, 1000},
    {ASHLAR_DRIVER_FN_event_query, QUERY_NS},
    {ASHLAR_DRIVER_FN_event_synchronize, 3000},
    {ASHLAR_DRIVER_FN_stream_begin_capture, 5000},
    {ASHLAR_DRIVER_FN_stream_end_capture, 5000},
    {ASHLAR_DRIVER_FN_stream_is_capturing, 200},
    {ASHLAR_DRIVER_FN_thread_exchange_capture_mode, 200},
    {ASHLAR_DRIVER_FN_graph_instantiate, 100000},
    {ASHLAR_DRIVER_FN_graph_launch, 8000},
    {ASHLAR_DRIVER_FN_graph_exec_destroy, 10000},
    {ASHLAR_DRIVER_FN_graph_destroy, 10000},
    {ASHLAR_DRIVER_FN_launch_kernel, 4000},
};

static ashlar_status read_costs(ashlar_piece value, soft_config *config) {
    if (ashlar__piece_is(value, "off")) {
        config->has_costs = false;
        memset(config->cost_ns, 0, sizeof config->cost_ns);
        config->cost_ns[ASHLAR_DRIVER_FN_event_query] = QUERY_NS; /* so that polling ends */
        config->cost_ns[ASHLAR_DRIVER_FN_stream_query] = QUERY_NS;
        return ASHLAR_OK;
    }
    return ashlar__piece_is(value, "on") || read_calls(value, 0, config->cost_ns)
               ? ASHLAR_OK
               : refuse("costs", value,
                        "on, off, or NAME:NS pairs joined by +, such as cuMemCreate:50000, each "
                        "name once and 0 to 1000000000 ns");
}

/* Each key, and the function that reads its value. */
#define READER_MAP(X)            \
    X("batch", read_batch)       \
    X("clocks", read_clocks)     \
    X("costs", read_costs)       \
    X("devices", read_devices)   \
    X("latency", read_latency)   \
    X("memory", read_memory)     \
    X("mode", read_mode)         \
    X("overhead", read_overhead) \
    X("peers", read_peers)       \
    X("recycle", read_recycle)   \
    X("seed", read_seed)         \
    X("share", read_sharing)     \
    X("strict", read_strict)     \
    X("time", read_time)         \
    X("touch", read_touch)       \
    X("vmm", read_vmm)           \
    X("waits", read_waits)

static const char *const keys[] = {
#define X(key, read) key,
    READER_MAP(X)
#undef X
};

static ashlar_status read_value(void *context, size_t i, ashlar_piece value) {
    static ashlar_status (*const readers[])(ashlar_piece value, soft_config * config) = {
#define X(key, read) read,
        READER_MAP(X)
#undef X
    };
    return readers[i](value, context);
}

ashlar_status ashlar__soft_parse(const char *spec, soft_config *out) {
    static const ashlar_pairs_format format = {.source = "ASHLAR_SOFT",
                                               .keys = keys,
                                               .count = sizeof keys / sizeof keys[0],
                                               .set = read_value};
    soft_config config = {.device_count = 1,
                          .memory_bytes = (size_t)4 << 30,
                          .mode = SOFT_EAGER,
                          .seed = 1,
                          .has_peers = true,
                          .has_vmm = true,
                          .has_batch = true,
                          .sharing = SOFT_SHARING_FILE,
                          .recycle = SOFT_RECYCLE_UNSAID,
                          .has_costs = true};
    for (size_t i = 0; i < sizeof default_costs / sizeof default_costs[0]; i++) {
        config.cost_ns[default_costs[i].fn] = default_costs[i].ns;
    }
    const char *defaults = secure_getenv("ASHLAR_SOFT_DEFAULTS");
    if (defaults != NULL) {
        ASHLAR_TRY(ashlar__pairs_read(&format, defaults, &config));
    }
    ASHLAR_TRY(ashlar__pairs_read(&format, spec, &config));
    if (config.recycle == SOFT_RECYCLE_UNSAID) {
        config.recycle = config.is_strict ? SOFT_RECYCLE_OFF : SOFT_RECYCLE_ON;
    }
    ASHLAR_CHECK2(config.memory_bytes > 0 && config.memory_bytes % SOFT_PAGE_BYTES == 0);
    *out = config;
    return ASHLAR_OK;
}
