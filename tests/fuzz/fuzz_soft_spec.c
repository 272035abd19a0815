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
    "peers=off,vmm=off,batch=off,devices=2",
    "costs=off,time=off",
    "touch=off,time=on,costs=on",
    "recycle=on,strict=on",
    "strict=on,share=fabric",
    "share=none,vmm=on",
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

/* *out: which of three words it is. */
static bool is_word(const char *text, const char *const words[3], int *out) {
    *out = 0;
    while (*out < 3 && strcmp(text, words[*out]) != 0) {
        ++*out;
    }
    return *out < 3;
}

enum { KEYS = 15 };

/* One "key=value"; `pair` is cut up. */
static bool is_pair(char *pair, bool seen[KEYS], soft_config *config) {
    static const char *const keys[KEYS] = {"devices", "memory", "mode",  "seed",     "peers",
                                           "vmm",     "touch",  "batch", "share",    "time",
                                           "costs",   "strict", "waits", "overhead", "recycle"};
    char *value = strchr(pair, '=');
    unsigned long long number = 0;
    int key = 0, word;
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
    case 2: {
        static const char *const modes[] = {"eager", "adversarial", "overlap"};
        const bool is_good = is_word(value, modes, &word);
        config->mode = (soft_mode)word;
        return is_good;
    }
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
        return fuzz_is_switch(value, &config->has_touch);
    case 7:
        return fuzz_is_switch(value, &config->has_batch);
    case 8: {
        static const char *const ways[] = {"none", "file", "fabric"};
        const bool is_good = is_word(value, ways, &word);
        config->sharing = (soft_sharing)word;
        return is_good;
    }
    case 9:
        return fuzz_is_switch(value, &config->has_time);
    case 10:
        return fuzz_is_switch(value, &config->has_costs);
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
    *config = (soft_config){.device_count = 1,
                            .memory_bytes = (size_t)4 << 30,
                            .mode = SOFT_EAGER,
                            .seed = 1,
                            .has_peers = true,
                            .has_vmm = true,
                            .has_batch = true,
                            .sharing = SOFT_SHARING_FILE,
                            .recycle = SOFT_RECYCLE_UNSAID,
                            .has_touch = true,
                            .has_costs = true};
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
           a->has_vmm == b->has_vmm && a->has_touch == b->has_touch &&
           a->has_batch == b->has_batch && a->has_time == b->has_time &&
           a->has_costs == b->has_costs && a->is_strict == b->is_strict &&
           a->has_waits == b->has_waits && a->overhead_bytes == b->overhead_bytes &&
           a->recycle == b->recycle && a->sharing == b->sharing;
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
