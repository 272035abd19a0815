/* test_config.c - the options of an allocator: defaults, the line, the environment. */
#include "tests/check.h"

#include <stdlib.h>

#include <ashlar/ashlar.h>

#include "allocator/core/core.h"

#define GIB ((uint64_t)1 << 30)
#define DEFAULT_LINE                                                                         \
    "limit=0,fraction=1,reserve=0,cache=auto,trace=0,seal=count,guard=off,vmm=on,leaks=off," \
    "zero=off,handle=2MiB,nvtx=off,share=off"

static bool is_same(const ashlar_config *a, const ashlar_config *b) {
    return a->limit_bytes == b->limit_bytes && a->limit_fraction == b->limit_fraction &&
           a->reserve_bytes == b->reserve_bytes && a->cache_bytes == b->cache_bytes &&
           a->trace_events == b->trace_events && a->seal == b->seal && a->guard == b->guard &&
           a->handle_bytes == b->handle_bytes &&
           a->without_virtual_memory == b->without_virtual_memory &&
           a->report_leaks == b->report_leaks && a->zero_blocks == b->zero_blocks &&
           a->tells_nvtx == b->tells_nvtx && a->shares_memory == b->shares_memory;
}

/* No field has its default. */
static const ashlar_config other = {
    .limit_bytes = 3 * GIB,
    .limit_fraction = 0.75,
    .reserve_bytes = 5 * GIB,
    .cache_bytes = 7 << 20,
    .trace_events = 11,
    .seal = ASHLAR_SEAL_WARN,
    .guard = ASHLAR_GUARD_FILL,
    .handle_bytes = 32 << 20,
    .without_virtual_memory = true,
    .report_leaks = true,
    .zero_blocks = true,
    .tells_nvtx = 1,
    .shares_memory = 1,
};

CASE(the_defaults_change_nothing_that_was_not_asked_for) {
    const ashlar_config zero = {0};
    ashlar_config config = other;
    CHECK(ashlar__config_take(&config, &zero) == ASHLAR_OK);
    CHECK(config.limit_bytes == 0 && config.limit_fraction == 1 && config.reserve_bytes == 0);
    CHECK(config.cache_bytes == 0 && config.trace_events == 0);
    CHECK(config.seal == ASHLAR_SEAL_COUNT && config.guard == ASHLAR_GUARD_OFF);
    CHECK_ZU(config.handle_bytes, 2 << 20);
    CHECK(!config.without_virtual_memory && !config.report_leaks && !config.zero_blocks);
    CHECK(!config.tells_nvtx && !config.shares_memory);
}

CASE(what_the_line_does_not_name_stays) {
    ashlar_config config = other, want = other;
    CHECK(ashlar_config_parse(&config, "", "a test") == ASHLAR_OK);
    CHECK(is_same(&config, &other));
    CHECK(ashlar_config_parse(&config, "seal=error,limit=2MiB", "a test") == ASHLAR_OK);
    want.seal = ASHLAR_SEAL_ERROR;
    want.limit_bytes = 2 << 20;
    CHECK(is_same(&config, &want));
    CHECK(ashlar_config_parse(&config, DEFAULT_LINE, "a test") == ASHLAR_OK);
    CHECK(ashlar__config_take(&want, NULL) == ASHLAR_OK);
    CHECK(is_same(&config, &want));
}

CASE(mistakes_name_the_source_the_key_the_value_and_what_is_allowed) {
    static const struct {
        const char *text, *pair, *allowed;
    } bad[] = {
        {"limit=1MiB", "limit=1MiB;", "0, or 2MiB to 64TiB"},
        {"limit=2097151B", "limit=2097151B;", "give 0, or 2MiB"},
        {"limit=65TiB", "limit=65TiB;", "64TiB"},
        {"limit=18446744073709551615B", "limit=", "64TiB"},
        {"limit=18446744073709551616B", "limit=", "64TiB"},
        {"limit=4", "limit=4;", "a unit B, KiB, MiB, GiB or TiB"},
        {"limit=-4GiB", "limit=-4GiB;", "GiB"},
        {"limit=", "limit=;", "2MiB"},
        {"fraction=0", "fraction=0;", "give a number above 0, at most 1"},
        {"fraction=1.0000001", "fraction=1.0000001;", "at most 1"},
        {"fraction=nan", "fraction=nan;", "above 0"},
        {"reserve=65TiB", "reserve=65TiB;", "give 0 to 64TiB"},
        {"cache=65TiB", "cache=65TiB;", "give auto, or 0 to 64TiB"},
        {"cache=18446744073709551615B", "cache=18446744073709551615B;", "auto"},
        {"trace=67108865", "trace=67108865;", "give 0 to 67108864"},
        {"seal=fail", "seal=fail;", "give count|warn|error"},
        {"seal=count|warn", "seal=count|warn;", "count|warn|error"},
        {"guard=fil", "guard=fil;", "give off|fill"},
        {"handle=1MiB", "handle=1MiB;", "give 2MiB to 1GiB"},
        {"handle=1073741825B", "handle=1073741825B;", "1GiB"},
        {"vmm=true", "vmm=true;", "give on|off"},
        {"leaks=ON", "leaks=ON;", "give off|on"},
        {"trace=1,trace=2", "trace=2", "each key once"},
        {"trace=1,seal=warn,trace=1", "trace=1", "each key once"},
        {"limt=4GiB", "unknown key \"limt\" (value \"4GiB\")", "limit, fraction, reserve, cache,"},
        {"Limit=4GiB", "unknown key \"Limit\"", "trace, seal, guard, vmm, leaks, zero, handle"},
        {"=4", "unknown key \"\" (value \"4\")", "leaks"},
        {"seal=warn,", "unknown key \"\"", "leaks"},
        {"seal=warn,,vmm=on", "unknown key \"\"", "leaks"},
        {"seal=warn vmm=on", "seal=warn vmm=on;", "count|warn|error"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ashlar_config config = other;
        CHECK(ashlar_config_parse(&config, bad[i].text, "the job's file") == ASHLAR_EINVAL);
        CHECK(strncmp(ashlar_error_detail(), "the job's file: ", 16) == 0);
        CHECK_HAS(ashlar_error_detail(), bad[i].pair);
        CHECK_HAS(ashlar_error_detail(), bad[i].allowed);
        CHECK(is_same(&config, &other));
    }
}

CASE(a_message_shows_no_control_characters_and_little_of_a_long_value) {
    ashlar_config config = other;
    char text[2000];
    CHECK_FAILS(ashlar_config_parse(&config, "seal=\x1b[2J\x80", "a test"), ASHLAR_EINVAL,
                "seal=?[2J?;");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_FAILS(ashlar_config_parse(&config, text, "a test"), ASHLAR_EINVAL, "leaks");
    memcpy(text, "seal=", 5);
    CHECK_FAILS(ashlar_config_parse(&config, text, "a test"), ASHLAR_EINVAL, "count|warn|error");
}

CASE(the_environment_comes_over_what_is_there) {
    ashlar_config config = other, want = other;
    unsetenv("ASHLAR_CONF");
    CHECK(ashlar_config_parse(&config, NULL, NULL) == ASHLAR_OK && is_same(&config, &other));
    setenv("ASHLAR_CONF", "", 1);
    CHECK(ashlar_config_parse(&config, NULL, NULL) == ASHLAR_OK && is_same(&config, &other));
    setenv("ASHLAR_CONF", "trace=5,vmm=on", 1);
    want.trace_events = 5;
    want.without_virtual_memory = false;
    CHECK(ashlar_config_parse(&config, NULL, NULL) == ASHLAR_OK && is_same(&config, &want));
    setenv("ASHLAR_CONF", "vmm=maybe", 1);
    CHECK(ashlar_config_parse(&config, NULL, NULL) == ASHLAR_EINVAL && is_same(&config, &want));
    CHECK(strncmp(ashlar_error_detail(), "ASHLAR_CONF: vmm=maybe", 22) == 0);
    unsetenv("ASHLAR_CONF");
}

/* ---- fields that a program has filled in ---- */

CASE(fields_outside_their_range_are_named) {
    struct {
        ashlar_config config;
        const char *field, *allowed;
    } bad[] = {
        {other, "limit_bytes is 2097151B;", "2MiB"},
        {other, "limit_bytes is 65TiB;", "0, or 2MiB to 64TiB"},
        {other, "limit_fraction is -1;", "above 0"},
        {other, "limit_fraction is 1.5;", "at most 1"},
        {other, "limit_fraction is ", "at most 1"},
        {other, "reserve_bytes is 65TiB;", "0 to 64TiB"},
        {other, "cache_bytes is 18446744073709551614B;", "auto, or 0 to 64TiB"},
        {other, "trace_events is 67108865;", "67108864"},
        {other, "seal is 3;", "count|warn|error"},
        {other, "guard is 3;", "off|fill"},
        {other, "handle_bytes is 2097151B;", "2MiB to 1GiB"},
    };
    bad[0].config.limit_bytes = ASHLAR_CONFIG_BYTES_MIN - 1;
    bad[1].config.limit_bytes = (uint64_t)65 << 40;
    bad[2].config.limit_fraction = -1;
    bad[3].config.limit_fraction = 1.5;
    bad[4].config.limit_fraction = (double)NAN;
    bad[5].config.reserve_bytes = (uint64_t)65 << 40;
    bad[6].config.cache_bytes = ASHLAR_CACHE_NONE - 1;
    bad[7].config.trace_events = ASHLAR_CONFIG_EVENTS_MAX + 1;
    bad[8].config.seal = (ashlar_seal_policy)3;
    bad[9].config.guard = (ashlar_guard)3;
    bad[10].config.handle_bytes = (2 << 20) - 1;
    ashlar_config taken;
    CHECK(ashlar__config_take(&taken, &other) == ASHLAR_OK && is_same(&taken, &other));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(ashlar__config_take(&taken, &bad[i].config), ASHLAR_EINVAL, bad[i].field);
        CHECK_HAS(ashlar_error_detail(), bad[i].allowed);
    }
}

RUN_CASES()
