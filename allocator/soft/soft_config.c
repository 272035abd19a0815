/* soft_config.c - reading the line of key=value pairs that describes the software devices. */
#include "allocator/soft/soft_state.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"

#define MEMORY_MAX_BYTES ((uint64_t)64 << 40)
_Static_assert(MEMORY_MAX_BYTES / ((uint64_t)2 << 20) <= UINT32_MAX, "page indexes are 32 bits");

static ashlar_status refuse(const char *key, ashlar_piece value, const char *allowed) {
    return ashlar__pairs_refuse("ASHLAR_SOFT", key, value, allowed);
}

/* ---- the readers: each reads the value of a key into a field of soft_config ---- */

static ashlar_status read_devices(const char *key, ashlar_piece value, void *field) {
    uint64_t number;
    if (!ashlar__parse_count(value, &number) || number < 1 || number > SOFT_DEVICES_MAX) {
        return refuse(key, value, "a number from 1 to 16");
    }
    *(int *)field = (int)number;
    return ASHLAR_OK;
}

static ashlar_status read_seed(const char *key, ashlar_piece value, void *field) {
    return ashlar__parse_count(value, field)
               ? ASHLAR_OK
               : refuse(key, value, "an unsigned decimal number of 64 bits");
}

static ashlar_status read_ns(const char *key, ashlar_piece value, void *field) {
    uint64_t ns;
    if (!ashlar__parse_count(value, &ns) || ns > UINT32_MAX) {
        return refuse(key, value, "nanoseconds, 0 to 4294967295");
    }
    *(uint64_t *)field = ns;
    return ASHLAR_OK;
}

static ashlar_status read_memory(const char *key, ashlar_piece value, void *field) {
    uint64_t bytes;
    if (!ashlar__parse_bytes(value, &bytes) || bytes > MEMORY_MAX_BYTES ||
        bytes < SOFT_PAGE_BYTES) {
        return refuse(key, value, "2MiB to 64TiB, with a unit B, KiB, MiB, GiB or TiB");
    }
    *(size_t *)field = bytes & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
    return ASHLAR_OK;
}

static ashlar_status read_overhead(const char *key, ashlar_piece value, void *field) {
    uint64_t bytes;
    if (!ashlar__parse_bytes(value, &bytes) || bytes > MEMORY_MAX_BYTES) {
        return refuse(key, value, "0B to 64TiB, with a unit B, KiB, MiB, GiB or TiB");
    }
    *(size_t *)field = (bytes + SOFT_PAGE_BYTES - 1) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
    return ASHLAR_OK;
}

static ashlar_status read_rate(const char *key, ashlar_piece value, void *field) {
    uint64_t number;
    if (!ashlar__parse_count(value, &number) || number < 1 || number > 1000000) {
        return refuse(key, value, "a number of bytes in a microsecond from 1 to 1000000");
    }
    *(uint64_t *)field = number;
    return ASHLAR_OK;
}

static ashlar_status read_mode(const char *key, ashlar_piece value, void *field) {
    static const char *const modes[] = {"eager", "adversarial", "overlap"}; /* [soft_mode] */
    for (int i = 0; i < 3; i++) {
        if (ashlar__piece_is(value, modes[i])) {
            *(soft_mode *)field = (soft_mode)i;
            return ASHLAR_OK;
        }
    }
    return refuse(key, value, "eager, adversarial or overlap");
}

static ashlar_status read_switch(const char *key, ashlar_piece value, void *field) {
    const bool is_on = ashlar__piece_is(value, "on");
    if (!is_on && !ashlar__piece_is(value, "off")) {
        return refuse(key, value, "on or off");
    }
    *(bool *)field = is_on;
    return ASHLAR_OK;
}

static ashlar_status read_recycle(const char *key, ashlar_piece value, void *field) {
    bool is_on = false;
    const ashlar_status status = read_switch(key, value, &is_on);
    *(soft_recycle *)field = is_on ? SOFT_RECYCLE_ON : SOFT_RECYCLE_OFF;
    return status;
}

static ashlar_status read_trace(const char *key, ashlar_piece value, void *field) {
    if (value.bytes == 0 || value.bytes >= PATH_MAX) {
        return refuse(key, value, "the name of a file");
    }
    memcpy(field, value.text, value.bytes);
    ((char *)field)[value.bytes] = '\0';
    return ASHLAR_OK;
}

/* Each key, its reader, and its field. */
#define KEY_MAP(X)                             \
    X(copy_rate, read_rate, copy_rate)         \
    X(costs, read_switch, has_costs)           \
    X(devices, read_devices, device_count)     \
    X(kernel, read_ns, kernel_ns)              \
    X(launch, read_ns, launch_ns)              \
    X(memory, read_memory, memory_bytes)       \
    X(mode, read_mode, mode)                   \
    X(overhead, read_overhead, overhead_bytes) \
    X(peers, read_switch, has_peers)           \
    X(recycle, read_recycle, recycle)          \
    X(seed, read_seed, seed)                   \
    X(strict, read_switch, is_strict)          \
    X(time, read_switch, has_time)             \
    X(touch, read_switch, has_touch)           \
    X(trace, read_trace, trace)                \
    X(vmm, read_switch, has_vmm)               \
    X(waits, read_switch, has_waits)

static const char *const keys[] = {
#define X(key, read, field) #key,
    KEY_MAP(X)
#undef X
};

static ashlar_status read_value(void *config, size_t i, ashlar_piece value) {
    static const struct {
        ashlar_status (*read)(const char *key, ashlar_piece value, void *field);
        size_t offset;
    } readers[] = {
#define X(key, read, field) {read, offsetof(soft_config, field)},
        KEY_MAP(X)
#undef X
    };
    return readers[i].read(keys[i], value, (char *)config + readers[i].offset);
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
                          .recycle = SOFT_RECYCLE_UNSAID,
                          .has_peers = true,
                          .has_vmm = true,
                          .has_costs = true,
                          .has_touch = true,
                          .launch_ns = 4000,
                          .kernel_ns = 10000 /* of middling length */};
    const char *defaults = secure_getenv("ASHLAR_SOFT_DEFAULTS");
    if (defaults != NULL) {
        ASHLAR_TRY(ashlar__pairs_read(&format, defaults, &config));
    }
    ASHLAR_TRY(ashlar__pairs_read(&format, spec, &config));
    ASHLAR_FAIL_IF(config.trace[0] != '\0' && !config.has_time, ASHLAR_EINVAL,
                   "ASHLAR_SOFT: trace=%s without time=on, which dates what it shows; give both",
                   config.trace);
    if (config.recycle == SOFT_RECYCLE_UNSAID) {
        config.recycle = config.is_strict ? SOFT_RECYCLE_OFF : SOFT_RECYCLE_ON;
    }
    ASHLAR_CHECK2(config.memory_bytes > 0 && config.memory_bytes % SOFT_PAGE_BYTES == 0);
    *out = config;
    return ASHLAR_OK;
}
