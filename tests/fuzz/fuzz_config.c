/* fuzz_config.c - any text as a line of options, against a second reading of config.h. */
#include "tests/fuzz/fuzz.h"

#include <ashlar/config.h>

const char fuzz_claim[] = "every_line_is_refused_or_read_as_the_table_says_and_written_back";

static const char *const samples[] = {
    "limit=0,fraction=1,reserve=0,cache=auto,trace=0,seal=count,guard=off,handle=2MiB,vmm=on,"
    "leaks=off,zero=on,nvtx=on,share=on",
    "leaks=on,vmm=off,handle=1GiB,guard=fill,seal=error,trace=67108864,cache=64TiB,"
    "reserve=5KiB,limit=2MiB",
    "limit=2097152B,fraction=0.33333333333333331,seal=warn,guard=fill",
    "fraction=9e-1,limit=64TiB",
    "fraction=1e-320,cache=0B",
    "fraction=1.0000000000000001,reserve=17592186044415MiB",
    "fraction=0.0,limit=1MiB",
    "cache=18446744073709551615B",
    "cache=18446744073709551616B,trace=67108865",
    "seal=warn,seal=warn",
    "seal=warn,,vmm=on,",
    "limt=4GiB",
};

FUZZ_SEEDS(samples)

/* ---- the second reading ---- */

static bool is_bytes(const char *text, uint64_t low, uint64_t *out) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned long long number;
    for (int i = 0; i < 5; i++) {
        if (fuzz_is_number(text, units[i], &number) ||
            (fuzz_is_number(text, "", &number) && number == 0)) {
            return !__builtin_mul_overflow(number, (uint64_t)1 << 10 * i, out) && *out >= low &&
                   *out <= ASHLAR_CONFIG_BYTES_MAX;
        }
    }
    return false;
}

static bool is_fraction(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    const size_t e = strcspn(text, "eE"); /* a point, if any, is between digits before it */
    const char *point = memchr(text, '.', e);
    return strspn(text, "0123456789.eE+-") == strlen(text) && strlen(text) <= 60 && *text >= '0' &&
           *text <= '9' && *end == '\0' &&
           (point == NULL || (point[1] >= '0' && point[1] <= '9')) && *out > 0 && *out <= 1;
}

static bool is_word(const char *text, const char *const words[], int *out) {
    for (*out = 0; words[*out] != NULL; ++*out) {
        if (strcmp(text, words[*out]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_value(const char *key, const char *value, ashlar_config *config) {
    unsigned long long number;
    int word;
    bool is_good = false;
    if (strcmp(key, "limit") == 0) {
        is_good = is_bytes(value, 0, &config->limit_bytes) &&
                  (config->limit_bytes == 0 || config->limit_bytes >= (uint64_t)2 << 20);
    } else if (strcmp(key, "fraction") == 0) {
        is_good = is_fraction(value, &config->limit_fraction);
    } else if (strcmp(key, "reserve") == 0) {
        is_good = is_bytes(value, 0, &config->reserve_bytes);
    } else if (strcmp(key, "cache") == 0 && strcmp(value, "auto") == 0) {
        config->cache_bytes = 0;
        is_good = true;
    } else if (strcmp(key, "cache") == 0) {
        is_good = is_bytes(value, 0, &config->cache_bytes);
        config->cache_bytes = config->cache_bytes != 0 ? config->cache_bytes : ASHLAR_CACHE_NONE;
    } else if (strcmp(key, "trace") == 0) {
        is_good = fuzz_is_number(value, "", &number) && number <= 1 << 26;
        config->trace_events = number;
    } else if (strcmp(key, "seal") == 0) {
        is_good = is_word(value, (const char *const[]){"count", "warn", "error", NULL}, &word);
        config->seal = (ashlar_seal_policy)word;
    } else if (strcmp(key, "guard") == 0) {
        is_good = is_word(value, (const char *const[]){"off", "fill", NULL}, &word);
        config->guard = (ashlar_guard)word;
    } else if (strcmp(key, "handle") == 0) {
        is_good = is_bytes(value, (uint64_t)2 << 20, &config->handle_bytes) &&
                  config->handle_bytes <= (uint64_t)1 << 30;
    } else if (strcmp(key, "vmm") == 0) {
        bool is_on = false;
        is_good = fuzz_is_switch(value, &is_on);
        config->without_virtual_memory = !is_on;
    } else if (strcmp(key, "leaks") == 0) {
        is_good = fuzz_is_switch(value, &config->report_leaks);
    } else if (strcmp(key, "zero") == 0) {
        is_good = fuzz_is_switch(value, &config->zero_blocks);
    } else if (strcmp(key, "nvtx") == 0) {
        is_good = is_word(value, (const char *const[]){"off", "on", NULL}, &word);
        config->tells_nvtx = (uint64_t)word;
    } else if (strcmp(key, "share") == 0) {
        is_good = is_word(value, (const char *const[]){"off", "on", NULL}, &word);
        config->shares_memory = (uint64_t)word;
    }
    return is_good;
}

/* `copy` is cut up. */
static bool is_line(char *copy, ashlar_config *config) {
    char seen[4096] = ",";
    char *pair;
    while (copy != NULL && (pair = strsep(&copy, ",")) != NULL) {
        char *value = strchr(pair, '='), mark[64];
        if (value == NULL) {
            return false; /* every key's value is refused when it is empty */
        }
        *value++ = '\0';
        if (!is_value(pair, value, config)) {
            return false;
        }
        (void)snprintf(mark, sizeof mark, ",%s,", pair);
        if (strstr(seen, mark) != NULL) {
            return false;
        }
        (void)strcat(seen, mark + 1); /* twelve keys at most: each one only once */
    }
    return true;
}

/* ---- */

static bool is_same(const ashlar_config *a, const ashlar_config *b) {
    return a->limit_bytes == b->limit_bytes && a->limit_fraction == b->limit_fraction &&
           a->reserve_bytes == b->reserve_bytes && a->cache_bytes == b->cache_bytes &&
           a->trace_events == b->trace_events && a->seal == b->seal && a->guard == b->guard &&
           a->handle_bytes == b->handle_bytes &&
           a->without_virtual_memory == b->without_virtual_memory &&
           a->report_leaks == b->report_leaks && a->zero_blocks == b->zero_blocks &&
           a->tells_nvtx == b->tells_nvtx && a->shares_memory == b->shares_memory;
}

/* Written in exactly the bytes that it needs, and read back. */
static void check_written(const ashlar_config *config) {
    size_t needed = 0;
    FUZZ_CHECK(ashlar_config_check(config) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_config_format(config, NULL, 0, &needed) == ASHLAR_OK);
    char *line = malloc(needed);
    FUZZ_CHECK(line != NULL);
    FUZZ_CHECK(ashlar_config_format(config, line, needed, NULL) == ASHLAR_OK);
    FUZZ_CHECK(strlen(line) + 1 == needed);
    ashlar_config again;
    memset(&again, 0, sizeof again);
    FUZZ_CHECK(ashlar_config_parse(&again, line, "its own line") == ASHLAR_OK);
    FUZZ_CHECK(is_same(&again, config));
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = fuzz_text(data, bytes), *copy = fuzz_text(data, bytes);
    ashlar_config before, got, want;
    ashlar_config_init(&before);
    before.trace_events = 99; /* no default: a key that is not named must not be reset */
    got = want = before;
    const ashlar_status status = ashlar_config_parse(&got, text, "stone");
    if (*text == '\0' || is_line(copy, &want)) {
        FUZZ_CHECK(status == ASHLAR_OK);
        FUZZ_CHECK(is_same(&got, &want));
        check_written(&got);
    } else {
        FUZZ_CHECK(status == ASHLAR_EINVAL);
        FUZZ_CHECK(is_same(&got, &before));
        FUZZ_CHECK(strncmp(ashlar_error_detail(), "stone: ", 7) == 0);
    }
    free(copy);
    free(text);
    return 0;
}
