/* fuzz_soft_spec.c - any text as the ASHLAR_SOFT line, against a second reading of soft.h. */
#include "tests/fuzz/fuzz.h"

#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

const char fuzz_claim[] = "every_line_is_refused_or_read_as_its_description_says";

#define SMALL_BYTES ((size_t)64 << 20) /* devices up to this size are really made */

static const char *const samples[] = {
    "devices=2,memory=4GiB,mode=adversarial,seed=7",
    "seed=18446744073709551615,mode=eager,devices=16,memory=64TiB",
    "memory=2097152B",
    "memory=2048KiB,devices=1",
    "mode=adversarial,memory=5MiB",
    "devices=3,devices=3",
    "seed=1,seed=2",
    "devices=1,,seed=2",
    "memory=1MiB",
    "seed=18446744073709551616",
    "clocks=on,peers=off,vmm=off,batch=off,devices=2",
    "latency=cuMemAlloc:200000+cuMemCreate:50000",
    "latency=cuInit:1000000001,vmm=on",
    "latency=cuInit:1+cuInit:2",
    "time=on,costs=cuMemCreate:0+cuMemMap:1000000000",
    "costs=off,time=off",
    "recycle=on,strict=on",
    "strict=on,clocks=on",
    "waits=on",
    "mode=overlap",
    "overhead=3MiB,overhead=0B",
    "overhead=3MiB",
};

FUZZ_SEEDS(samples)

static bool is_bytes(const char *text, uint64_t *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned long long number;
    for (int i = 0; i < 5; i++) {
        if (fuzz_is_number(text, units[i], &number)) {
            return !__builtin_mul_overflow(number, (uint64_t)1 << 10 * i, out) &&
                   *out <= (uint64_t)64 << 40;
        }
    }
    return false;
}

/* Rounded down or, if there may be none, up to whole pages. */
static bool is_memory(const char *text, bool may_be_none, size_t *out) {
    uint64_t bytes = 0;
    const bool is_good = is_bytes(text, &bytes) && (may_be_none || bytes >= SOFT_PAGE_BYTES);
    *out = (bytes + (may_be_none ? SOFT_PAGE_BYTES - 1 : 0)) / SOFT_PAGE_BYTES * SOFT_PAGE_BYTES;
    return is_good;
}

/* NAME:NS, joined by '+'; `text` is cut up. */
static bool is_calls(char *text, unsigned long long min_ns, uint32_t *ns_of) {
    bool is_seen[ASHLAR_DRIVER_FN_COUNT] = {false};
    char *pair;
    while ((pair = strsep(&text, "+")) != NULL) {
        unsigned long long ns;
        char *colon = strchr(pair, ':');
        int fn = 0;
        if (colon == NULL || !fuzz_is_number(colon + 1, "", &ns) || ns < min_ns ||
            ns > 1000000000) {
            return false;
        }
        *colon = '\0';
        while (fn < ASHLAR_DRIVER_FN_COUNT &&
               strcmp(pair, ashlar__driver_fn_name((ashlar_driver_fn)fn)) != 0) {
            fn++;
        }
        if (fn == ASHLAR_DRIVER_FN_COUNT || is_seen[fn]) {
            return false;
        }
        is_seen[fn] = true;
        ns_of[fn] = (uint32_t)ns;
    }
    return true;
}

static bool is_costs(char *text, soft_config *config) {
    if (strcmp(text, "off") == 0) {
        const uint32_t query_ns = config->cost_ns[ASHLAR_DRIVER_FN_event_query];
        memset(config->cost_ns, 0, sizeof config->cost_ns);
        config->cost_ns[ASHLAR_DRIVER_FN_event_query] = query_ns;
        config->cost_ns[ASHLAR_DRIVER_FN_stream_query] = query_ns;
        config->has_costs = false;
        return true;
    }
    return strcmp(text, "on") == 0 || is_calls(text, 0, config->cost_ns);
}

enum { KEYS = 15 };

/* One "key=value"; `pair` is cut up. */
static bool is_pair(char *pair, bool seen[KEYS], soft_config *config) {
    static const char *const keys[KEYS] = {"devices", "memory", "mode",  "seed",     "peers",
                                           "vmm",     "clocks", "batch", "latency",  "time",
                                           "costs",   "strict", "waits", "overhead", "recycle"};
    char *value = strchr(pair, '=');
    unsigned long long number = 0;
    int key = 0;
    if (value == NULL) {
        return false; /* every key's value is refused when it is empty */
    }
    *value++ = '\0';
    while (key < KEYS && strcmp(keys[key], pair) != 0) {
        key++;
    }
    if (key == KEYS || seen[key]) {
        return false;
    }
    seen[key] = true;
    switch (key) {
    case 0:
        if (!fuzz_is_number(value, "", &number) || number < 1 || number > SOFT_DEVICES_MAX) {
            return false;
        }
        config->device_count = (int)number;
        return true;
    case 1:
        return is_memory(value, false, &config->memory_bytes);
    case 2:
        config->mode = strcmp(value, "eager") == 0         ? SOFT_EAGER
                       : strcmp(value, "adversarial") == 0 ? SOFT_ADVERSARIAL
                                                           : SOFT_OVERLAP;
        return config->mode != SOFT_OVERLAP || strcmp(value, "overlap") == 0;
    case 3:
        if (!fuzz_is_number(value, "", &number)) {
            return false;
        }
        config->seed = number;
        return true;
    case 4:
        return fuzz_is_switch(value, &config->has_peers);
    case 5:
        return fuzz_is_switch(value, &config->has_vmm);
    case 6:
        return fuzz_is_switch(value, &config->has_clocks);
    case 7:
        return fuzz_is_switch(value, &config->has_batch);
    case 8:
        return is_calls(value, 1, config->latency_ns);
    case 9:
        return fuzz_is_switch(value, &config->has_time);
    case 10:
        return is_costs(value, config);
    case 11:
        return fuzz_is_switch(value, &config->is_strict);
    case 12:
        return fuzz_is_switch(value, &config->has_waits);
    case 13:
        return is_memory(value, true, &config->overhead_bytes);
    default: {
        bool is_on = false;
        const bool is_good = fuzz_is_switch(value, &is_on);
        config->recycle = is_on ? SOFT_RECYCLE_ON : SOFT_RECYCLE_OFF;
        return is_good;
    }
    }
}

/* The second reading. */
static bool is_spec(const char *text, soft_config *config) {
    soft_config defaults; /* of which only the table of costs is taken */
    FUZZ_CHECK(ashlar__soft_parse("", &defaults) == ASHLAR_OK);
    *config = (soft_config){.device_count = 1,
                            .memory_bytes = (size_t)4 << 30,
                            .mode = SOFT_EAGER,
                            .seed = 1,
                            .has_peers = true,
                            .has_vmm = true,
                            .has_batch = true,
                            .recycle = SOFT_RECYCLE_UNSAID,
                            .has_costs = true};
    memcpy(config->cost_ns, defaults.cost_ns, sizeof config->cost_ns);
    char *copy = strdup(text), *rest = copy, *pair;
    FUZZ_CHECK(copy != NULL);
    bool seen[KEYS] = {false}, is_good = true;
    while (is_good && *text != '\0' && (pair = strsep(&rest, ",")) != NULL) {
        is_good = is_pair(pair, seen, config);
    }
    free(copy);
    if (config->recycle == SOFT_RECYCLE_UNSAID) {
        config->recycle = config->is_strict ? SOFT_RECYCLE_OFF : SOFT_RECYCLE_ON;
    }
    return is_good;
}

static bool is_same(const soft_config *a, const soft_config *b) {
    return a->device_count == b->device_count && a->memory_bytes == b->memory_bytes &&
           a->mode == b->mode && a->seed == b->seed && a->has_peers == b->has_peers &&
           a->has_vmm == b->has_vmm && a->has_clocks == b->has_clocks &&
           a->has_batch == b->has_batch && a->has_time == b->has_time &&
           a->has_costs == b->has_costs && a->is_strict == b->is_strict &&
           a->has_waits == b->has_waits && a->overhead_bytes == b->overhead_bytes &&
           a->recycle == b->recycle && memcmp(a->cost_ns, b->cost_ns, sizeof a->cost_ns) == 0 &&
           memcmp(a->latency_ns, b->latency_ns, sizeof a->latency_ns) == 0;
}

/* The devices that this line makes are those it describes. */
static void check_devices(const char *text, const soft_config *config) {
    ashlar_driver *driver = NULL;
    FUZZ_CHECK(ashlar__soft_configure(text) == ASHLAR_OK);
    FUZZ_CHECK(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    int count = 0;
    size_t bytes = 0;
    FUZZ_CHECK(driver->table.device_get_count(&count) == CU_SUCCESS);
    FUZZ_CHECK(count == config->device_count);
    FUZZ_CHECK(driver->table.device_total_mem(&bytes, count - 1) == CU_SUCCESS);
    FUZZ_CHECK(bytes == config->memory_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = fuzz_text(data, bytes);
    (void)unsetenv("ASHLAR_SOFT_DEFAULTS"); /* check.h sets it, and it would be read first */
    const soft_config before = {.device_count = 99, .memory_bytes = 98, .seed = 97};
    soft_config got = before, want;
    const ashlar_status status = ashlar__soft_parse(text, &got);
    if (is_spec(text, &want)) {
        FUZZ_CHECK(status == ASHLAR_OK);
        FUZZ_CHECK(is_same(&got, &want));
        if (got.memory_bytes <= SMALL_BYTES) {
            check_devices(text, &got);
        }
    } else {
        FUZZ_CHECK(status == ASHLAR_EINVAL);
        FUZZ_CHECK(is_same(&got, &before));
        FUZZ_CHECK(strstr(ashlar_error_detail(), "ASHLAR_SOFT") != NULL);
    }
    free(text);
    return 0;
}
