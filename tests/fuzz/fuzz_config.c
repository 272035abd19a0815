/* fuzz_config.c - any text as a line of options: refused and nothing changes, or options that an
 * allocator takes. */
#include "tests/fuzz/fuzz.h"

#include <ashlar/allocator.h>

#include "allocator/core/core.h"

const char fuzz_claim[] =
    "every_line_is_refused_and_changes_nothing_or_gives_options_in_their_ranges";

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

static bool is_same(const ashlar_config *a, const ashlar_config *b) {
    return a->limit_bytes == b->limit_bytes && a->limit_fraction == b->limit_fraction &&
           a->reserve_bytes == b->reserve_bytes && a->cache_bytes == b->cache_bytes &&
           a->trace_events == b->trace_events && a->seal == b->seal && a->guard == b->guard &&
           a->handle_bytes == b->handle_bytes &&
           a->without_virtual_memory == b->without_virtual_memory &&
           a->report_leaks == b->report_leaks && a->zero_blocks == b->zero_blocks &&
           a->tells_nvtx == b->tells_nvtx && a->shares_memory == b->shares_memory;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = fuzz_text(data, bytes);
    ashlar_config before = {0}, got;
    before.trace_events = 99; /* no default: a key that is not named must not be reset */
    got = before;
    const ashlar_status status = ashlar_config_parse(&got, text, "stone");
    if (status == ASHLAR_OK) {
        FUZZ_CHECK(strstr(text, "trace") != NULL || got.trace_events == 99);
        FUZZ_CHECK(ashlar__config_take(&before, &got) == ASHLAR_OK);
    } else {
        FUZZ_CHECK(status == ASHLAR_EINVAL);
        FUZZ_CHECK(is_same(&got, &before));
        FUZZ_CHECK(strncmp(ashlar_error_detail(), "stone: ", 7) == 0);
    }
    free(text);
    return 0;
}
