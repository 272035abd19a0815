/*
 * fuzz_allocator.c - bytes as calls of an allocator on an adversarial software device.
 *
 * Every block is stamped and verified by queued work, which such a device puts off as long as the
 * order of streams and events allows: memory that is handed out too early is overwritten before
 * it is verified. A model of the live blocks says besides when ENOMEM is the right answer.
 */
#include "tests/fuzz/fuzz.h"

#include "allocator/core/allocator_impl.h"
#include "allocator/device/device_impl.h"
#include "allocator/base/host.h"
#include "allocator/heap/size_class.h"
#include "allocator/soft/soft.h"
#include "tests/snapshot_sums.h"

#include <ashlar/plan.h>

const char fuzz_claim[] = "no_sequence_of_calls_hands_out_memory_that_is_still_in_use";

enum { STREAMS = 4, BLOCK_MAX = 48, HEAD_BYTES = 2, OP_COUNT = 16 };
#define MIB ((size_t)1 << 20)

typedef struct live {
    unsigned char *ptr;
    size_t bytes;
    uint32_t token; /* its stamps */
    size_t stream;  /* of its last use so far */
    bool has_moved; /* that is not the stream it was taken for */
} live;

/* What one input works on. */
typedef struct world {
    const uint8_t *at, *end; /* the input's rest */
    ashlar_driver *driver;
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream streams[STREAMS]; /* [0] is the default stream */
    live blocks[BLOCK_MAX];
    size_t count;
    uint32_t token;
    unsigned char *freed; /* an address that was once a block's */
    size_t depth;         /* steps begun and not ended */
} world;

static int bad_count; /* verifications that found another block's stamp */

static unsigned next_byte(world *w) {
    return w->at < w->end ? *w->at++ : 0;
}

static ashlar_stream stream_of(const world *w, const live *block) {
    return w->streams[block->stream];
}

/* ---- stamps ---- */

typedef struct stamp {
    unsigned char *ptr;
    size_t bytes;
    uint32_t token;
} stamp;

/* Every unit of a block up to 64 KiB is stamped, and some hundred of a larger one: each page that
 * is touched costs a page fault. The first unit is always stamped, and is reused first. */
static size_t stride_of(size_t bytes) {
    enum { STAMP_COUNT = 256 };
    const size_t units = bytes / STAMP_COUNT / ASHLAR_BLOCK_ALIGN;
    return bytes <= ((size_t)64 << 10) ? ASHLAR_BLOCK_ALIGN : (units + 1) * ASHLAR_BLOCK_ALIGN;
}

static uint32_t value_at(const stamp *s, size_t at) {
    return s->token * 2654435761u + (uint32_t)(at / ASHLAR_BLOCK_ALIGN);
}

static size_t width_at(const stamp *s, size_t at) {
    return s->bytes - at < sizeof s->token ? s->bytes - at : sizeof s->token;
}

static void write_stamps(void *args) {
    const stamp *s = args;
    for (size_t at = 0; at < s->bytes; at += stride_of(s->bytes)) {
        const uint32_t value = value_at(s, at);
        memcpy(s->ptr + at, &value, width_at(s, at));
    }
}

static void verify_stamps(void *args) {
    const stamp *s = args;
    for (size_t at = 0; at < s->bytes; at += stride_of(s->bytes)) {
        const uint32_t value = value_at(s, at);
        bad_count += memcmp(s->ptr + at, &value, width_at(s, at)) != 0;
    }
}

static void queue(world *w, const live *block, void (*fn)(void *)) {
    const stamp s = {block->ptr, block->bytes, block->token};
    FUZZ_CHECK(ashlar_launch(w->device, stream_of(w, block), fn, &s, sizeof s) == ASHLAR_OK);
}

static void restamp(world *w, live *block) {
    block->token = ++w->token;
    queue(w, block, write_stamps);
}

/* ---- the model ---- */

static int compare_blocks(const void *a, const void *b) {
    const live *x = a, *y = b;
    return (x->ptr > y->ptr) - (x->ptr < y->ptr);
}

static size_t block_bytes(size_t bytes) {
    size_t rounded = 0;
    FUZZ_CHECK(ashlar__block_bytes(bytes, &rounded) && rounded >= bytes);
    return rounded;
}

/* Of a plan's block, its slot's: that may be less than its size class, or more. */
static size_t usable_bytes(const world *w, const live *block) {
    size_t bytes = 0;
    FUZZ_CHECK(ashlar_allocator_usable_bytes(w->allocator, block->ptr, &bytes) == ASHLAR_OK);
    FUZZ_CHECK(bytes >= block->bytes);
    return bytes;
}

/* Sort the blocks by address, and look for an overlap. */
static void sort_blocks(world *w) {
    qsort(w->blocks, w->count, sizeof *w->blocks, compare_blocks);
    for (size_t i = 1; i < w->count; i++) {
        const live *before = &w->blocks[i - 1];
        FUZZ_CHECK(before->ptr + usable_bytes(w, before) <= w->blocks[i].ptr);
    }
}

/*
 * Whether `bytes` can be served, whatever is mapped now: by handles that no live block touches, or
 * by a hole beside live blocks, in a handle that they touch and that is therefore mapped.
 */
static bool has_room(world *w, size_t bytes) {
    const ashlar_range *range = &w->allocator->heap.range;
    const size_t size = range->handle_bytes;
    size_t touched = 0, seen_end = 0; /* handles below seen_end were counted or passed over */
    sort_blocks(w);
    for (size_t i = 0, end = 0; i < w->count; i++) {
        const size_t begin = (uintptr_t)w->blocks[i].ptr - (uintptr_t)range->base;
        const size_t first = begin / size;
        if (begin - (end > first * size ? end : first * size) >= bytes) {
            return true;
        }
        end = begin + usable_bytes(w, &w->blocks[i]);
        const size_t handles_end = (end + size - 1) / size;
        touched += handles_end - (first > seen_end ? first : seen_end);
        seen_end = handles_end;
        const bool is_last =
            i + 1 == w->count ||
            (uintptr_t)w->blocks[i + 1].ptr - (uintptr_t)range->base >= handles_end * size;
        if (is_last && handles_end * size - end >= bytes) {
            return true;
        }
    }
    const size_t handles = w->device->info.total_bytes / size;
    FUZZ_CHECK(touched <= handles);
    return handles - touched >= (bytes + size - 1) / size;
}

static void check_stats(const world *w) {
    ashlar_stats s;
    uint64_t live_bytes = 0, rounded = 0, tags = 0, at_peak = 0;
    ashlar_allocator_get_stats(w->allocator, &s);
    for (size_t i = 0; i < w->count; i++) {
        live_bytes += w->blocks[i].bytes;
        rounded += block_bytes(w->blocks[i].bytes);
    }
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        tags += s.tags[tag].live_bytes;
        at_peak += s.tags[tag].at_peak_bytes;
        FUZZ_CHECK(s.tags[tag].peak_bytes >= s.tags[tag].live_bytes);
    }
    FUZZ_CHECK(s.live_bytes == live_bytes && tags == live_bytes);
    /* A plan's block is as large as its slot. */
    FUZZ_CHECK(s.served_planned > 0 ? s.block_bytes >= live_bytes : s.block_bytes == rounded);
    FUZZ_CHECK(s.live_blocks == w->count && s.live_blocks == s.alloc_count - s.free_count);
    FUZZ_CHECK(s.block_bytes + s.cached_bytes + s.planned_bytes + s.shared_bytes + s.spare_bytes <=
               s.reserved_bytes);
    FUZZ_CHECK(s.reserved_bytes <= s.reserved_peak_bytes);
    FUZZ_CHECK(s.live_peak_bytes >= s.live_bytes && at_peak == s.live_peak_bytes);
    FUZZ_CHECK(s.alloc_count == s.served_planned + s.served_cached + s.served_same_stream +
                                    s.served_idle + s.served_completed + s.served_waited +
                                    s.served_mapped + s.served_drained + s.served_reclaimed +
                                    s.served_after_sync + s.served_gathered);
    FUZZ_CHECK(s.reserved_bytes <= w->device->info.total_bytes);
}

/* ---- the calls ---- */

static size_t draw_bytes(world *w) {
    const unsigned kind = next_byte(w), size = next_byte(w);
    static const size_t factors[4] = {17, 1000, 10007, ASHLAR_BLOCK_ALIGN};
    const size_t bytes = (size + 1) * factors[kind % 4];
    return w->device->info.total_bytes > 64 * MIB && kind >= 128 ? 64 * bytes : bytes;
}

static bool has_regions(const world *w) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(w->allocator, &stats);
    return stats.memory_bytes > 0;
}

/* `is_armed`: a failure is, so that any failing status will do. */
static void take(world *w, bool is_armed) {
    const size_t stream = next_byte(w) % STREAMS, bytes = draw_bytes(w);
    const ashlar_tag tag = (ashlar_tag)(bytes % ASHLAR_TAG_COUNT);
    void *const untouched = w, *ptr = untouched;
    const bool is_full = w->count == BLOCK_MAX;
    const ashlar_status status =
        is_full ? ASHLAR_OK
                : ashlar_alloc_tagged(w->allocator, bytes, tag, w->streams[stream], &ptr);
    ashlar__host_fail_at(0);
    ashlar__driver_fail_at(w->driver, -1, 0, CU_SUCCESS);
    if (is_full) {
        return;
    }
    if (status != ASHLAR_OK) {
        FUZZ_CHECK(ptr == untouched);
        FUZZ_CHECK(
            is_armed
                ? status == ASHLAR_ENOMEM || status == ASHLAR_EHOSTMEM || status == ASHLAR_EDRIVER
                : status == ASHLAR_ENOMEM && (has_regions(w) || !has_room(w, block_bytes(bytes))));
        return;
    }
    FUZZ_CHECK((uintptr_t)ptr % ASHLAR_BLOCK_ALIGN == 0);
    live *block = &w->blocks[w->count++];
    *block = (live){.ptr = ptr, .bytes = bytes, .stream = stream};
    restamp(w, block);
    sort_blocks(w);
}

static void give(world *w, live *block, bool on_stream) {
    queue(w, block, verify_stamps);
    w->freed = block->ptr;
    const ashlar_status status = block->has_moved || on_stream
                                     ? ashlar_free_on(w->allocator, block->ptr, stream_of(w, block))
                                     : ashlar_free(w->allocator, block->ptr);
    FUZZ_CHECK(status == ASHLAR_OK);
    *block = w->blocks[--w->count];
}

/* The block's next use is on another stream, after its last one. */
static void move(world *w, live *block, size_t stream) {
    const ashlar_driver_table *table = &w->driver->table;
    cu_event event = NULL;
    FUZZ_CHECK(ashlar__device_enter(w->device) == ASHLAR_OK);
    FUZZ_CHECK(table->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    FUZZ_CHECK(table->event_record(event, stream_of(w, block)) == CU_SUCCESS);
    FUZZ_CHECK(table->stream_wait_event(w->streams[stream], event, 0) == CU_SUCCESS);
    FUZZ_CHECK(table->event_destroy(event) == CU_SUCCESS);
    ashlar__device_leave(w->device);
    block->stream = stream;
    block->has_moved = true;
    queue(w, block, verify_stamps);
    restamp(w, block);
}

/* Each of these is refused, and the checks after the step see that nothing has changed. */
static void mistake(world *w, const live *block, unsigned kind) {
    void *ptr = NULL;
    int local = 0;
    bool is_live = w->freed == NULL;
    for (size_t i = 0; i < w->count; i++) {
        is_live |= w->blocks[i].ptr == w->freed;
    }
    switch (kind % 6) {
    case 0:
        FUZZ_CHECK(block == NULL ||
                   ashlar_free(w->allocator, block->ptr + 1 + kind / 6) == ASHLAR_EPOINTER);
        break;
    case 1:
        FUZZ_CHECK(is_live || ashlar_free(w->allocator, w->freed) == ASHLAR_EPOINTER);
        break;
    case 2:
        FUZZ_CHECK(ashlar_free_on(w->allocator, &local, w->streams[1]) == ASHLAR_EPOINTER);
        break;
    case 3:
        FUZZ_CHECK(ashlar_alloc(w->allocator, 0, w->streams[1], &ptr) == ASHLAR_EINVAL);
        break;
    case 4:
        FUZZ_CHECK(ashlar_alloc(w->allocator, SIZE_MAX - kind, NULL, &ptr) == ASHLAR_ENOMEM);
        break;
    default:
        FUZZ_CHECK(ashlar_free(w->allocator, NULL) == ASHLAR_OK);
        break;
    }
}

static void take_with_failure(world *w) {
    static const int functions[] = {
        ASHLAR_DRIVER_FN_mem_create,       ASHLAR_DRIVER_FN_mem_map,
        ASHLAR_DRIVER_FN_mem_set_access,   ASHLAR_DRIVER_FN_event_create,
        ASHLAR_DRIVER_FN_event_record,     ASHLAR_DRIVER_FN_stream_wait_event,
        ASHLAR_DRIVER_FN_event_query,      ASHLAR_DRIVER_FN_event_synchronize,
        ASHLAR_DRIVER_FN_ctx_push_current,
    };
    enum { FUNCTION_COUNT = sizeof functions / sizeof functions[0] };
    const unsigned which = next_byte(w);
    if (which >= 128) {
        ashlar__host_fail_at(1 + which % 8);
    } else {
        ashlar__driver_fail_at(w->driver, functions[which % FUNCTION_COUNT], 1 + which / 64,
                               which % 2 == 0 ? CU_OUT_OF_MEMORY : CU_LAUNCH_FAILED);
    }
    take(w, true);
}

/* Where a failure was armed meanwhile, the recording is lost; and a plan may not fit. */
static bool may_end_with(ashlar_status status) {
    return status == ASHLAR_OK || status == ASHLAR_ENOMEM || status == ASHLAR_EHOSTMEM;
}

/* Steps of two keys, which the calls in between are part of. */
static void step_call(world *w, unsigned which) {
    const bool is_counted = w->allocator->cache_bytes > 0;
    const uint64_t key = which / 64 % 2;
    ashlar_status status = ASHLAR_OK;
    switch (which / 4 % 8) {
    case 0:
        ashlar_plan_record_next(w->allocator, key);
        break;
    case 1:
        status = ashlar_plan_drop(w->allocator);
        FUZZ_CHECK(status == (w->depth > 0 ? ASHLAR_EINVAL : ASHLAR_OK));
        break;
    case 2:
    case 3:
    case 4:
        status = ashlar_step_end(w->allocator);
        FUZZ_CHECK(w->depth > 0 || !is_counted ? may_end_with(status) : status == ASHLAR_EINVAL);
        w->depth -= w->depth > 0;
        break;
    default:
        FUZZ_CHECK(ashlar_step_begin(w->allocator, w->streams[1], key) == ASHLAR_OK);
        w->depth += is_counted;
        break;
    }
}

/* The host reads what the block's stream has written. */
static void read_back(world *w, const live *block) {
    const stamp s = {block->ptr, block->bytes, block->token};
    const uint32_t want = value_at(&s, 0);
    uint32_t got = 0;
    FUZZ_CHECK(ashlar_copy_to_host(w->device, &got, block->ptr, width_at(&s, 0),
                                   stream_of(w, block)) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_stream_synchronize(w->device, stream_of(w, block)) == ASHLAR_OK);
    FUZZ_CHECK(memcmp(&got, &want, width_at(&s, 0)) == 0);
}

static void step(world *w) {
    const unsigned op = next_byte(w) % OP_COUNT;
    if (op < 5) {
        take(w, false);
        return;
    }
    if (op == 5) {
        take_with_failure(w);
        return;
    }
    const unsigned which = next_byte(w);
    live *block = w->count > 0 ? &w->blocks[which % w->count] : NULL;
    if (op == 6) {
        FUZZ_CHECK(ashlar_stream_synchronize(w->device, w->streams[which % STREAMS]) == ASHLAR_OK);
    } else if (op == 7) {
        mistake(w, block, which);
    } else if (op == 8 && which % 4 == 0) {
        ashlar_allocator_seal(w->allocator);
    } else if (op == 8 && which % 4 != 1) {
        step_call(w, which);
    } else if (block == NULL) {
        return;
    } else if (op < 12) {
        give(w, block, which >= 128);
    } else if (op < 14) {
        move(w, block, next_byte(w) % STREAMS);
    } else if (op == 14) {
        queue(w, block, verify_stamps);
        restamp(w, block);
    } else {
        read_back(w, block);
    }
}

/* ---- begin and end ---- */

static void begin(world *w) {
    char spec[64];
    static const uint64_t caches[4] = {0, MIB / 16, MIB, 64 * MIB};
    ashlar_config config;
    const unsigned head = next_byte(w), seed = next_byte(w);
    const unsigned mib = head >= 224 ? 512 : 4 + 2 * (head % 7); /* large: growth in steps */
    (void)snprintf(spec, sizeof spec, "memory=%uMiB,mode=%s,seed=%u,strict=on", mib,
                   seed % 16 == 15 ? "eager" : "adversarial", seed);
    FUZZ_CHECK(ashlar__soft_configure(spec) == ASHLAR_OK);
    FUZZ_CHECK(ashlar__driver_open_soft(&w->driver) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_device_open("soft", &w->device) == ASHLAR_OK);
    for (size_t i = 1; i < STREAMS; i++) {
        FUZZ_CHECK(ashlar_stream_create(w->device, &w->streams[i]) == ASHLAR_OK);
    }
    ashlar_config_init(&config);
    config.cache_bytes = caches[head % 4] != 0 ? caches[head % 4] : ASHLAR_CACHE_NONE;
    FUZZ_CHECK(ashlar_allocator_create_with(w->device, &config, &w->allocator) == ASHLAR_OK);
    bad_count = 0;
}

static void check_world(const world *w, size_t step_count) {
    enum { SNAPSHOT_STEPS = 8 };
    check_stats(w);
    FUZZ_CHECK(ashlar_allocator_check(w->allocator) == ASHLAR_OK);
    FUZZ_CHECK(step_count % SNAPSHOT_STEPS != 0 || allocator_difference(w->allocator) == NULL);
    FUZZ_CHECK(bad_count == 0);
}

/* With nothing live, all of the memory is one block again, whatever went before. */
static void check_whole_device(world *w) {
    void *ptr = NULL;
    const size_t bytes = w->device->info.total_bytes;
    FUZZ_CHECK(ashlar_alloc(w->allocator, bytes, w->streams[1], &ptr) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_free(w->allocator, ptr) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_allocator_check(w->allocator) == ASHLAR_OK);
}

static void finish(world *w) {
    size_t free_bytes = 0, total_bytes = 0;
    while (w->count > 0) {
        give(w, &w->blocks[0], false);
        check_stats(w);
    }
    for (; w->depth > 0; w->depth--) {
        FUZZ_CHECK(may_end_with(ashlar_step_end(w->allocator)));
    }
    FUZZ_CHECK(ashlar_plan_drop(w->allocator) == ASHLAR_OK);
    check_whole_device(w);
    for (size_t i = 0; i < STREAMS; i++) {
        FUZZ_CHECK(ashlar_stream_synchronize(w->device, w->streams[i]) == ASHLAR_OK);
    }
    FUZZ_CHECK(bad_count == 0);
    ashlar_allocator_destroy(w->allocator);
    FUZZ_CHECK(ashlar__device_enter(w->device) == ASHLAR_OK);
    FUZZ_CHECK(w->driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar__device_leave(w->device);
    FUZZ_CHECK(free_bytes == total_bytes && total_bytes == w->device->info.total_bytes);
    for (size_t i = 1; i < STREAMS; i++) {
        ashlar_stream_destroy(w->device, w->streams[i]);
    }
    ashlar_device_close(w->device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < HEAD_BYTES) {
        return 0;
    }
    world w = {.at = data, .end = data + bytes};
    begin(&w);
    for (size_t step_count = 1; w.at < w.end; step_count++) {
        step(&w);
        check_world(&w, step_count);
    }
    finish(&w);
    return 0;
}

/* Programs of random calls: on small devices, the last ones on a large one. */
size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {
    enum { SAMPLE_COUNT = 24, SAMPLE_BYTES = 400 };
    uint32_t state = 2463534242u + i;
    if (i >= SAMPLE_COUNT || cap < SAMPLE_BYTES) {
        return 0;
    }
    for (size_t k = 0; k < SAMPLE_BYTES; k++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        out[k] = (uint8_t)(state >> 24);
    }
    out[0] = (uint8_t)(i < SAMPLE_COUNT - 2 ? i : 255);
    return SAMPLE_BYTES;
}
