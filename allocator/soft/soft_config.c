/* soft_config.c - reading the line of key=value pairs that describes the software devices. */
#include "allocator/soft/soft_state.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/pairs.h"

#define MEMORY_MAX_BYTES ((uint64_t)64 << 40)
_Static_assert(MEMORY_MAX_BYTES / ((uint64_t)2 << 20) <= UINT32_MAX, "page indexes are 32 bits");

static const char *const keys[] = {"batch",    "costs", "devices", "memory", "mode",
                                   "overhead", "peers", "recycle", "seed",   "share",
                                   "strict",   "time",  "touch",   "vmm",    "waits"};
/* The indexes of these keys. */
enum {
    BATCH,
    COSTS,
    DEVICES,
    MEMORY,
    MODE,
    OVERHEAD,
    PEERS,
    RECYCLE,
    SEED,
    SHARE,
    STRICT,
    TIME,
    TOUCH,
    VMM,
    WAITS,
    KEYS
};
ASHLAR_TABLE_IS_FULL(keys, KEYS);

static ashlar_status refuse(size_t key, ashlar_piece value, const char *allowed) {
    return ashlar__pairs_refuse("ASHLAR_SOFT", keys[key], value, allowed);
}

/* Read a number from `least` to `most`. */
static ashlar_status read_count(size_t key, ashlar_piece value, uint64_t least, uint64_t most,
                                const char *allowed, uint64_t *out) {
    uint64_t number;
    if (!ashlar__parse_count(value, &number) || number < least || number > most) {
        return refuse(key, value, allowed);
    }
    *out = number;
    return ASHLAR_OK;
}

/* Read `least` bytes or more, rounded down to whole pages, or up. */
static ashlar_status read_pages(size_t key, ashlar_piece value, uint64_t least, bool rounds_up,
                                size_t *out) {
    uint64_t bytes;
    if (!ashlar__parse_bytes(value, &bytes) || bytes > MEMORY_MAX_BYTES || bytes < least) {
        return refuse(key, value,
                      least == 0 ? "0B to 64TiB, with a unit B, KiB, MiB, GiB or TiB"
                                 : "2MiB to 64TiB, with a unit B, KiB, MiB, GiB or TiB");
    }
    *out = (bytes + (rounds_up ? SOFT_PAGE_BYTES - 1 : 0)) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
    return ASHLAR_OK;
}

/* Read one of `count` words, and give its index. */
static ashlar_status read_word(size_t key, ashlar_piece value, const char *const *words,
                               size_t count, const char *allowed, size_t *out) {
    for (size_t i = 0; i < count; i++) {
        if (ashlar__piece_is(value, words[i])) {
            *out = i;
            return ASHLAR_OK;
        }
    }
    return refuse(key, value, allowed);
}

static ashlar_status read_switch(size_t key, ashlar_piece value, bool *is_on) {
    static const char *const words[] = {"off", "on"};
    size_t word = 0;
    ASHLAR_TRY(read_word(key, value, words, 2, "on or off", &word));
    *is_on = word == 1;
    return ASHLAR_OK;
}

static ashlar_status read_mode(ashlar_piece value, soft_config *config) {
    static const char *const modes[] = {"eager", "adversarial", "overlap"}; /* soft_mode's */
    size_t word = 0;
    ASHLAR_TRY(read_word(MODE, value, modes, 3, "eager, adversarial or overlap", &word));
    config->mode = (soft_mode)word;
    return ASHLAR_OK;
}

static ashlar_status read_sharing(ashlar_piece value, soft_config *config) {
    static const char *const ways[] = {"none", "file", "fabric"}; /* soft_sharing's */
    size_t word = 0;
    ASHLAR_TRY(read_word(SHARE, value, ways, 3, "none, file or fabric", &word));
    config->sharing = (soft_sharing)word;
    return ASHLAR_OK;
}

static ashlar_status read_devices(ashlar_piece value, soft_config *config) {
    uint64_t count = 0;
    ASHLAR_TRY(read_count(DEVICES, value, 1, SOFT_DEVICES_MAX, "a number from 1 to 16", &count));
    config->device_count = (int)count;
    return ASHLAR_OK;
}

static ashlar_status read_recycle(ashlar_piece value, soft_config *config) {
    bool is_on = false;
    ASHLAR_TRY(read_switch(RECYCLE, value, &is_on));
    config->recycle = is_on ? SOFT_RECYCLE_ON : SOFT_RECYCLE_OFF;
    return ASHLAR_OK;
}

static ashlar_status read_value(void *context, size_t key, ashlar_piece value) {
    soft_config *config = context;
    switch (key) {
    case DEVICES:
        return read_devices(value, config);
    case MEMORY:
        return read_pages(key, value, SOFT_PAGE_BYTES, false, &config->memory_bytes);
    case MODE:
        return read_mode(value, config);
    case OVERHEAD:
        return read_pages(key, value, 0, true, &config->overhead_bytes);
    case RECYCLE:
        return read_recycle(value, config);
    case SEED:
        return read_count(key, value, 0, UINT64_MAX, "an unsigned decimal number of 64 bits",
                          &config->seed);
    case SHARE:
        return read_sharing(value, config);
    case BATCH:
        return read_switch(key, value, &config->has_batch);
    case COSTS:
        return read_switch(key, value, &config->has_costs);
    case PEERS:
        return read_switch(key, value, &config->has_peers);
    case STRICT:
        return read_switch(key, value, &config->is_strict);
    case TIME:
        return read_switch(key, value, &config->has_time);
    case TOUCH:
        return read_switch(key, value, &config->has_touch);
    case VMM:
        return read_switch(key, value, &config->has_vmm);
    default:
        return read_switch(WAITS, value, &config->has_waits);
    }
}

ashlar_status ashlar__soft_parse(const char *spec, soft_config *out) {
    static const ashlar_pairs_format format = {
        .source = "ASHLAR_SOFT", .keys = keys, .count = KEYS, .set = read_value};
    soft_config config = {.device_count = 1,
                          .memory_bytes = (size_t)4 << 30,
                          .mode = SOFT_EAGER,
                          .seed = 1,
                          .sharing = SOFT_SHARING_FILE,
                          .recycle = SOFT_RECYCLE_UNSAID,
                          .has_peers = true,
                          .has_vmm = true,
                          .has_batch = true,
                          .has_costs = true,
                          .has_touch = true};
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
