/*
 * test_stranded.c - what is left between live blocks serves blocks of other sizes: at least 95 % of
 * what the plain driver gives in the same place (tests/stranded.h), by the C API. Without virtual
 * memory management nothing can move; there a device can be filled to 95 %, whatever the size.
 */
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/stranded.h"

#define DEVICE "memory=4GiB"
#define LEAST_PERCENT ((size_t)95)
/* Of blocks of 2 to 8 MiB of many sizes: each of them begins and ends inside a handle of 2 MiB. */
#define LEAST_PERCENT_OF_MEDIUM ((size_t)80)

static stranded plain, ours;

/* ---- the driver ---- */

static int plain_alloc(void **ptr, size_t bytes) {
    cu_ptr at = 0;
    const int result = (int)driver->table.mem_alloc(&at, bytes);
    *ptr = ashlar__ptr_out(at);
    return result;
}

static int plain_give(void *ptr) {
    return (int)driver->table.mem_free(ashlar__ptr_in(ptr));
}

static int plain_info(size_t *free_bytes, size_t *total_bytes) {
    return (int)driver->table.mem_get_info(free_bytes, total_bytes);
}

/* ---- the C API ---- */

static int code(ashlar_status status) {
    return status == ASHLAR_OK ? 0 : status == ASHLAR_ENOMEM ? OUT_OF_MEMORY : -1;
}

static int api_alloc_on(void **ptr, size_t bytes, void *stream) {
    return code(ashlar_alloc(allocator, bytes, stream, ptr));
}

static int api_alloc(void **ptr, size_t bytes) {
    return api_alloc_on(ptr, bytes, NULL);
}

static int api_give(void *ptr) {
    return code(ashlar_free(allocator, ptr));
}

static int api_give_on(void *ptr, void *stream) {
    return code(ashlar_free_on(allocator, ptr, stream));
}

/* What the device has, and what the allocator has in no block. */
static int api_info(size_t *free_bytes, size_t *total_bytes) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    *total_bytes = device->info.total_bytes;
    *free_bytes = *total_bytes - stats.block_bytes;
    return 0;
}

static int fill(void *ptr, int value, size_t bytes, void *stream) {
    return code(ashlar_fill(device, ptr, (unsigned char)value, bytes, stream));
}

static int read_back(void *dst, const void *src, size_t bytes, void *stream) {
    const int copied = code(ashlar_copy_to_host(device, dst, src, bytes, stream));
    return copied == 0 ? code(ashlar_stream_synchronize(device, stream)) : copied;
}

static size_t stream_count;

static int next_stream(void **stream, bool is_blocking) {
    (void)is_blocking;
    *stream = streams[stream_count++ % STREAMS];
    return 0;
}

static int keep_stream(void *stream) {
    (void)stream;
    return 0;
}

static int wait_all(void) {
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    wait_for(NULL);
    return 0;
}

static const gpu by_driver = {.alloc = plain_alloc,
                              .give = plain_give,
                              .fill = fill,
                              .read = read_back,
                              .info = plain_info,
                              .make_stream = next_stream,
                              .end_stream = keep_stream,
                              .wait_all = wait_all};

static const gpu by_api = {.alloc = api_alloc,
                           .give = api_give,
                           .alloc_on = api_alloc_on,
                           .give_on = api_give_on,
                           .fill = fill,
                           .read = read_back,
                           .info = api_info,
                           .make_stream = next_stream,
                           .end_stream = keep_stream,
                           .wait_all = wait_all};

/* ---- both ---- */

/* The driver has neither streams nor history here, and its memory is in pages. */
static void run_plain(const char *spec) {
    REQUIRE(set_up_device(spec));
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    stranded_run(&plain, &by_driver, false);
    ashlar__device_leave(device);
    CHECK(plain.failures == 0 && plain.row_count > 0);
    for (size_t i = 0; i < plain.row_count; i++) { /* it gives all there is */
        const char *end = strrchr(plain.rows[i].name, '-');
        CHECK(strcmp(end, "-one") != 0 || plain.rows[i].bytes == plain.rows[i].promised);
    }
    tear_down_device();
}

/* One run serves several cases that follow each other. */
static void run_ours(const char *spec, bool is_on_streams) {
    static const char *last_spec;
    if (last_spec != NULL && strcmp(last_spec, spec) == 0 && ours.is_on_streams == is_on_streams) {
        CHECK(ours.failures == 0);
        return;
    }
    last_spec = spec;
    if (plain.row_count == 0) {
        run_plain(DEVICE);
    }
    REQUIRE(set_up_cached(spec, CACHE_AUTO));
    stranded_run(&ours, &by_api, is_on_streams);
    CHECK(ours.failures == 0);
    tear_down();
}

typedef bool (*row_filter)(const char *name);

static bool is_of_one_size(const char *name) {
    return strncmp(name, "to", 2) != 0;
}

static bool is_of_drawn_sizes(const char *name) {
    return !is_of_one_size(name);
}

static bool is_fill(const char *name) {
    return strstr(name, "-filled") != NULL;
}

static void compare(row_filter is_wanted) {
    CHECK_ZU(ours.row_count, plain.row_count);
    for (size_t i = 0; i < plain.row_count; i++) {
        const stranded_row *row = &ours.rows[i], *of_driver = &plain.rows[i];
        CHECK(strcmp(row->name, of_driver->name) == 0);
        const bool is_medium = strncmp(row->name, "to8", 3) == 0;
        const size_t percent = is_medium ? LEAST_PERCENT_OF_MEDIUM : LEAST_PERCENT;
        const bool is_enough =
            !is_wanted(row->name) || row->bytes >= of_driver->bytes / 100 * percent;
        CHECK(is_enough);
        if (!is_enough) {
            printf("# %s: %zu MiB, and %zu of the driver\n", row->name, row->bytes / MIB,
                   of_driver->bytes / MIB);
        }
    }
}

CASE(what_lies_between_live_blocks_serves_others) {
    run_ours(DEVICE, false);
    compare(is_of_one_size);
}

CASE(what_lies_between_blocks_of_drawn_sizes_serves_others) {
    run_ours(DEVICE, false);
    compare(is_of_drawn_sizes);
}

CASE(what_lies_between_live_blocks_of_several_streams_serves_others) {
    run_ours(DEVICE, true);
    compare(is_of_one_size);
}

CASE(a_device_without_virtual_memory_is_filled_again_and_again) {
    run_ours(DEVICE ",vmm=off", false);
    compare(is_fill);
}

RUN_CASES()
