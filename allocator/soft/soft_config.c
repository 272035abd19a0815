/* soft_config.c - the one line that describes the software devices. */
#include "allocator/soft/soft_state.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

/* A piece of the line; it is not terminated. */
typedef struct piece {
    const char *text;
    size_t length;
} piece;

enum { LATENCY_MAX_NS = 1000000000 };
#define MEMORY_MAX_BYTES ((uint64_t)64 << 40)
_Static_assert(MEMORY_MAX_BYTES / ((uint64_t)2 << 20) <= UINT32_MAX, "page indexes are 32 bits");

static bool piece_is(piece part, const char *text) {
    return part.length == strlen(text) && memcmp(part.text, text, part.length) == 0;
}

static ashlar_status refuse(const char *key, piece value, const char *allowed) {
    return ashlar_fail(ASHLAR_EINVAL, "ASHLAR_SOFT: %s=%.*s; give %s", key, (int)value.length,
                       value.text, allowed);
}

/* The decimal digits at the front; *rest is what follows. False: none, or more than 64 bits. */
static bool read_number(piece value, uint64_t *number, piece *rest) {
    uint64_t sum = 0;
    size_t i = 0;
    for (; i < value.length && value.text[i] >= '0' && value.text[i] <= '9'; i++) {
        const uint64_t digit = (uint64_t)(value.text[i] - '0');
        if (sum > (UINT64_MAX - digit) / 10) {
            return false;
        }
        sum = sum * 10 + digit;
    }
    *number = sum;
    *rest = (piece){value.text + i, value.length - i};
    return i > 0;
}

static ashlar_status read_devices(piece value, soft_config *config) {
    uint64_t number;
    piece rest;
    if (!read_number(value, &number, &rest) || rest.length != 0 || number < 1 ||
        number > SOFT_DEVICES_MAX) {
        return refuse("devices", value, "a number from 1 to 16");
    }
    config->device_count = (int)number;
    return ASHLAR_OK;
}

static ashlar_status read_memory(piece value, soft_config *config) {
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    uint64_t number;
    piece unit;
    if (read_number(value, &number, &unit)) {
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            if (!piece_is(unit, units[i].name) || number > MEMORY_MAX_BYTES >> units[i].shift) {
                continue;
            }
            const uint64_t bytes = (number << units[i].shift) & ~(uint64_t)(SOFT_PAGE_BYTES - 1);
            if (bytes == 0) {
                break;
            }
            config->memory_bytes = bytes;
            return ASHLAR_OK;
        }
    }
    return refuse("memory", value, "2MiB to 64TiB, with a unit B, KiB, MiB, GiB or TiB");
}

static ashlar_status read_mode(piece value, soft_config *config) {
    if (piece_is(value, "eager")) {
        config->mode = SOFT_EAGER;
    } else if (piece_is(value, "adversarial")) {
        config->mode = SOFT_ADVERSARIAL;
    } else {
        return refuse("mode", value, "eager or adversarial");
    }
    return ASHLAR_OK;
}

static ashlar_status read_seed(piece value, soft_config *config) {
    piece rest;
    uint64_t number;
    if (!read_number(value, &number, &rest) || rest.length != 0) {
        return refuse("seed", value, "an unsigned decimal number of 64 bits");
    }
    config->seed = number;
    return ASHLAR_OK;
}

static ashlar_status read_switch(const char *key, piece value, bool *is_on) {
    if (!piece_is(value, "on") && !piece_is(value, "off")) {
        return refuse(key, value, "on or off");
    }
    *is_on = piece_is(value, "on");
    return ASHLAR_OK;
}

static ashlar_status read_peers(piece value, soft_config *config) {
    return read_switch("peers", value, &config->has_peers);
}

static ashlar_status read_vmm(piece value, soft_config *config) {
    return read_switch("vmm", value, &config->has_vmm);
}

static ashlar_status read_batch(piece value, soft_config *config) {
    return read_switch("batch", value, &config->has_batch);
}

static ashlar_status read_clocks(piece value, soft_config *config) {
    return read_switch("clocks", value, &config->has_clocks);
}

/* One "NAME:NS". */
static bool read_one_latency(piece part, soft_config *config) {
    const char *colon = memchr(part.text, ':', part.length);
    if (colon == NULL) {
        return false;
    }
    const piece name = {part.text, (size_t)(colon - part.text)};
    uint64_t ns;
    piece rest;
    if (!read_number((piece){colon + 1, part.length - name.length - 1}, &ns, &rest) ||
        rest.length != 0 || ns < 1 || ns > LATENCY_MAX_NS) {
        return false;
    }
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        if (piece_is(name, ashlar_driver_fn_name((ashlar_driver_fn)fn))) {
            const bool is_first = config->latency_ns[fn] == 0;
            config->latency_ns[fn] = (uint32_t)ns;
            return is_first;
        }
    }
    return false;
}

static ashlar_status read_latency(piece value, soft_config *config) {
    for (piece rest = value;;) {
        const char *plus = memchr(rest.text, '+', rest.length);
        const size_t length = plus == NULL ? rest.length : (size_t)(plus - rest.text);
        if (!read_one_latency((piece){rest.text, length}, config)) {
            return refuse("latency", value,
                          "NAME:NS pairs joined by +, such as cuMemAlloc:200000, each name once "
                          "and 1 to 1000000000 ns");
        }
        if (plus == NULL) {
            return ASHLAR_OK;
        }
        rest = (piece){plus + 1, rest.length - length - 1};
    }
}

static const struct {
    const char *key;
    ashlar_status (*read)(piece value, soft_config *config);
} readers[] = {
    {"batch", read_batch},     {"clocks", read_clocks}, {"devices", read_devices},
    {"latency", read_latency}, {"memory", read_memory}, {"mode", read_mode},
    {"peers", read_peers},     {"seed", read_seed},     {"vmm", read_vmm},
};
enum { READER_COUNT = sizeof readers / sizeof readers[0] };
_Static_assert(READER_COUNT <= 32, "the keys that were given are bits of an unsigned");

/* One "key=value". Bit i of *seen: key i has been given. */
static ashlar_status read_pair(piece pair, unsigned *seen, soft_config *config) {
    const char *equals = memchr(pair.text, '=', pair.length);
    const size_t key_length = equals == NULL ? pair.length : (size_t)(equals - pair.text);
    const piece key = {pair.text, key_length};
    const piece value =
        equals == NULL ? (piece){"", 0} : (piece){equals + 1, pair.length - key_length - 1};
    for (unsigned i = 0; i < READER_COUNT; i++) {
        if (!piece_is(key, readers[i].key)) {
            continue;
        }
        if ((*seen & 1u << i) != 0) {
            return refuse(readers[i].key, value, "each key once");
        }
        *seen |= 1u << i;
        return readers[i].read(value, config);
    }
    return ashlar_fail(ASHLAR_EINVAL,
                       "ASHLAR_SOFT: unknown key \"%.*s\" (value \"%.*s\"); give batch=, "
                       "clocks=, devices=, latency=, memory=, mode=, peers=, seed= or vmm=, "
                       "separated by commas",
                       (int)key.length, key.text, (int)value.length, value.text);
}

ashlar_status ashlar_soft_parse(const char *spec, soft_config *out) {
    soft_config config = {.device_count = 1,
                          .memory_bytes = (size_t)4 << 30,
                          .mode = SOFT_EAGER,
                          .seed = 1,
                          .has_peers = true,
                          .has_vmm = true,
                          .has_batch = true};
    unsigned seen = 0;
    for (const char *at = spec; *spec != '\0';) {
        const size_t length = strcspn(at, ",");
        const ashlar_status status = read_pair((piece){at, length}, &seen, &config);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (at[length] == '\0') {
            break;
        }
        at += length + 1;
    }
    ASHLAR_CHECK2(config.memory_bytes > 0 && config.memory_bytes % SOFT_PAGE_BYTES == 0);
    *out = config;
    return ASHLAR_OK;
}
