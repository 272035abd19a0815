/* fuzz_soft_spec.c - any text as the ASHLAR_SOFT line: refused, or devices as it says. */
#include "tests/fuzz/fuzz.h"

#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"

const char fuzz_claim[] = "every_line_is_refused_and_changes_nothing_or_makes_its_devices";

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
    soft_config got = before;
    const ashlar_status status = ashlar__soft_parse(text, &got);
    if (status == ASHLAR_OK) {
        FUZZ_CHECK(got.device_count >= 1 && got.device_count <= SOFT_DEVICES_MAX);
        FUZZ_CHECK(got.memory_bytes >= SOFT_PAGE_BYTES && got.memory_bytes % SOFT_PAGE_BYTES == 0);
        FUZZ_CHECK(got.recycle != SOFT_RECYCLE_UNSAID);
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
