/* soft_config.c - the one line that describes the software devices. */
#include "allocator/soft/soft_state.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/pairs.h"

enum { LATENCY_MAX_NS = 1000000000 };
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

static ashlar_status read_mode(ashlar_piece value, soft_config *config) {
    if (ashlar__piece_is(value, "eager")) {
        config->mode = SOFT_EAGER;
    } else if (ashlar__piece_is(value, "adversarial")) {
        config->mode = SOFT_ADVERSARIAL;
    } else {
        return refuse("mode", value, "eager or adversarial");
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

static ashlar_status read_vmm(ashlar_piece value, soft_config *config) {
    return read_switch("vmm", value, &config->has_vmm);
}

static ashlar_status read_batch(ashlar_piece value, soft_config *config) {
    return read_switch("batch", value, &config->has_batch);
}

static ashlar_status read_clocks(ashlar_piece value, soft_config *config) {
    return read_switch("clocks", value, &config->has_clocks);
}

/* Read one "NAME:NS". */
static bool read_one_latency(ashlar_piece part, soft_config *config) {
    ashlar_piece rest = part;
    const ashlar_piece name = ashlar__piece_cut(&rest, ':');
    uint64_t ns;
    if (!ashlar__parse_count(rest, &ns) || ns < 1 || ns > LATENCY_MAX_NS) {
        return false;
    }
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        if (ashlar__piece_is(name, ashlar__driver_fn_name((ashlar_driver_fn)fn))) {
            const bool is_first = config->latency_ns[fn] == 0;
            config->latency_ns[fn] = (uint32_t)ns;
            return is_first;
        }
    }
    return false;
}

static ashlar_status read_latency(ashlar_piece value, soft_config *config) {
    ashlar_piece rest = value;
    for (bool is_last = false; !is_last;) {
        is_last = memchr(rest.text, '+', rest.bytes) == NULL;
        if (!read_one_latency(ashlar__piece_cut(&rest, '+'), config)) {
            return refuse("latency", value,
                          "NAME:NS pairs joined by +, such as cuMemAlloc:200000, each name once "
                          "and 1 to 1000000000 ns");
        }
    }
    return ASHLAR_OK;
}

/* Each key, and the function that reads its value. */
#define READER_MAP(X)          \
    X("batch", read_batch)     \
    X("clocks", read_clocks)   \
    X("devices", read_devices) \
    X("latency", read_latency) \
    X("memory", read_memory)   \
    X("mode", read_mode)       \
    X("peers", read_peers)     \
    X("seed", read_seed)       \
    X("vmm", read_vmm)

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
                          .has_batch = true};
    const ashlar_status status = ashlar__pairs_read(&format, spec, &config);
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(config.memory_bytes > 0 && config.memory_bytes % SOFT_PAGE_BYTES == 0);
    *out = config;
    return ASHLAR_OK;
}
