/*
 * test_allocator_stress.c - random work on two devices of four streams each, in adversarial mode,
 * without and with thread caches, against a model: who lives where, what each block holds, and
 * every statistic.
 */
#include "allocator_fixture.h"

#include "allocator_impl.h"
#include "size_class.h"

enum { DEVICES = 2, LIVE_MAX = 120, OPERATIONS = 40000, STAMP_STRIDE = 512 };

typedef struct model_block {
    unsigned char *ptr;
    size_t bytes;
    int tag;
    int home; /* index of the stream it was taken for */
    int last; /* and of its last use */
    uint64_t stamp;
} model_block;

typedef struct world {
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_stream streams[STREAMS];
    cu_event events[STREAMS];
    model_block blocks[LIVE_MAX];
    size_t count;
    ashlar_stats want; /* only what the model knows */
} world;

static world worlds[DEVICES];
static uint64_t random_state;
static uint64_t next_stamp;
static size_t cache_bytes; /* of each allocator */
static size_t refused_count;

static size_t draw(size_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state >> 11) % below;
}

/* ---- payloads: a stamp in every 512 bytes, the unit in which blocks could overlap ---- */

typedef struct stamping {
    unsigned char *ptr;
    size_t bytes;
    uint64_t want; /* 0: whatever is there */
    uint64_t set;  /* 0: leave it */
} stamping;

static void stamp(void *args) {
    const stamping *s = args;
    long wrong = 0;
    for (size_t at = 0; at < s->bytes; at += STAMP_STRIDE) {
        uint64_t found;
        memcpy(&found, s->ptr + at, sizeof found);
        wrong += s->want != 0 && found != s->want;
        if (s->set != 0) {
            memcpy(s->ptr + at, &s->set, sizeof s->set);
        }
    }
    atomic_fetch_add(&payload_bad_count, wrong != 0);
}

static void queue_stamp(world *w, model_block *block, bool is_new, bool is_last) {
    const stamping s = {block->ptr, block->bytes, is_new ? 0 : block->stamp,
                        is_last ? 0 : ++next_stamp};
    CHECK(ashlar_launch(w->device, w->streams[block->last], stamp, &s, sizeof s) == ASHLAR_OK);
    block->stamp = next_stamp;
}

/* ---- the model ---- */

static void model_alloc(ashlar_stats *want, size_t bytes, int tag) {
    size_t block_bytes = 0;
    ashlar_tag_stats *const tags = want->tags;
    CHECK(ashlar_block_bytes(bytes, &block_bytes));
    want->alloc_count++;
    want->live_blocks++;
    want->live_bytes += bytes;
    want->block_bytes += block_bytes;
    tags[tag].live_bytes += bytes;
    if (tags[tag].live_bytes > tags[tag].peak_bytes) {
        tags[tag].peak_bytes = tags[tag].live_bytes;
    }
    if (want->live_bytes > want->live_peak_bytes) {
        want->live_peak_bytes = want->live_bytes;
        for (int i = 0; i < ASHLAR_TAG_COUNT; i++) {
            tags[i].at_peak_bytes = tags[i].live_bytes;
        }
    }
}

static void model_free(ashlar_stats *want, const model_block *block) {
    size_t block_bytes = 0;
    CHECK(ashlar_block_bytes(block->bytes, &block_bytes));
    want->free_count++;
    want->live_blocks--;
    want->live_bytes -= block->bytes;
    want->block_bytes -= block_bytes;
    want->tags[block->tag].live_bytes -= block->bytes;
}

static void compare_stats(const world *w) {
    ashlar_stats got;
    const ashlar_stats *want = &w->want;
    ashlar_stats_read(w->allocator, &got);
    check_equations(&got);
    CHECK(got.live_bytes == want->live_bytes && got.live_peak_bytes == want->live_peak_bytes);
    CHECK(got.block_bytes == want->block_bytes && got.live_blocks == want->live_blocks);
    CHECK(got.alloc_count == want->alloc_count && got.free_count == want->free_count);
    CHECK(memcmp(got.tags, want->tags, sizeof got.tags) == 0);
    CHECK(got.reserved_bytes <= w->device->info.total_bytes);
}

static bool overlaps_a_live_block(const world *w, const unsigned char *ptr, size_t bytes) {
    for (size_t i = 0; i < w->count; i++) {
        const model_block *other = &w->blocks[i];
        if (ptr < other->ptr + other->bytes && other->ptr < ptr + bytes) {
            return true;
        }
    }
    return false;
}

/* The room between the live blocks that starts at `offset`, memory not mapped yet included. */
static size_t room_at(const world *w, size_t offset) {
    size_t end = w->device->info.total_bytes;
    const unsigned char *base = ashlar_ptr_out(w->allocator->heap.range.base);
    for (size_t i = 0; i < w->count; i++) {
        const size_t at = (size_t)(w->blocks[i].ptr - base);
        end = at >= offset && at < end ? at : end;
    }
    return end - offset;
}

/* A refusal is right only where no gap between live blocks would do. */
static bool has_room(const world *w, size_t bytes) {
    size_t need = 0;
    const unsigned char *base = ashlar_ptr_out(w->allocator->heap.range.base);
    CHECK(ashlar_block_bytes(bytes, &need));
    bool is_found = room_at(w, 0) >= need;
    for (size_t i = 0; i < w->count && !is_found; i++) {
        size_t block_bytes = 0;
        CHECK(ashlar_block_bytes(w->blocks[i].bytes, &block_bytes));
        is_found = room_at(w, (size_t)(w->blocks[i].ptr - base) + block_bytes) >= need;
    }
    return is_found;
}

/* ---- operations ---- */

static size_t draw_bytes(void) {
    const size_t kind = draw(20);
    return 1 + (kind < 12 ? draw(4 * KIB) : kind < 18 ? draw(256 * KIB) : draw(4 * MIB));
}

static void op_alloc(world *w) {
    if (w->count == LIVE_MAX) {
        return;
    }
    const size_t bytes = draw_bytes();
    const int tag = (int)draw(ASHLAR_TAG_COUNT), stream = (int)draw(STREAMS);
    void *ptr = NULL;
    const ashlar_status status = ashlar_alloc_tagged(w->allocator, bytes, (ashlar_tag)tag,
                                                     w->streams[stream], &ptr);
    if (status == ASHLAR_ENOMEM) {
        refused_count++;
        CHECK(!has_room(w, bytes));
        return;
    }
    CHECK(status == ASHLAR_OK);
    CHECK((uintptr_t)ptr % 512 == 0);
    CHECK(!overlaps_a_live_block(w, ptr, bytes));
    model_alloc(&w->want, bytes, tag);
    model_block *block = &w->blocks[w->count++];
    *block = (model_block){
        .ptr = ptr, .bytes = bytes, .tag = tag, .home = stream, .last = stream};
    queue_stamp(w, block, true, false);
}

static void op_free(world *w) {
    if (w->count == 0) {
        return;
    }
    const size_t idx = draw(w->count);
    model_block *block = &w->blocks[idx];
    queue_stamp(w, block, false, true);
    if (block->last == block->home && draw(2) == 0) {
        CHECK(ashlar_free(w->allocator, block->ptr) == ASHLAR_OK);
    } else {
        CHECK(ashlar_free_on(w->allocator, block->ptr, w->streams[block->last]) == ASHLAR_OK);
    }
    model_free(&w->want, block);
    *block = w->blocks[--w->count];
}

/* Use a block on another stream, after its last use so far. */
static void op_hop(world *w) {
    if (w->count == 0) {
        return;
    }
    model_block *block = &w->blocks[draw(w->count)];
    const int from = block->last, to = (int)draw(STREAMS);
    const ashlar_driver_table *table = &w->device->driver->table;
    CHECK(ashlar_device_enter(w->device) == ASHLAR_OK);
    CHECK(table->event_record(w->events[from], w->streams[from]) == CU_SUCCESS);
    CHECK(table->stream_wait_event(w->streams[to], w->events[from], 0) == CU_SUCCESS);
    ashlar_device_leave(w->device);
    block->last = to;
    queue_stamp(w, block, false, false);
}

static void op_wait(world *w) {
    CHECK(ashlar_stream_synchronize(w->device, w->streams[draw(STREAMS)]) == ASHLAR_OK);
}

static void operate(size_t number) {
    world *w = &worlds[draw(DEVICES)];
    const size_t kind = draw(100);
    if (kind < 42) {
        op_alloc(w);
    } else if (kind < 80) {
        op_free(w);
    } else if (kind < 94) {
        op_hop(w);
    } else {
        op_wait(w);
    }
    if (number % 16 == 0) {
        compare_stats(w);
    }
    if (number % 500 == 0) {
        CHECK(ashlar_allocator_check(w->allocator) == ASHLAR_OK);
        check_snapshot(w->allocator);
    }
}

/* ---- runs ---- */

static bool open_world(world *w, int ordinal) {
    char name[16];
    ashlar_config config;
    *w = (world){0};
    ashlar_config_init(&config);
    config.cache_bytes = cache_bytes;
    (void)snprintf(name, sizeof name, "soft:%d", ordinal);
    bool is_open = ashlar_device_open(name, &w->device) == ASHLAR_OK &&
                   ashlar_allocator_create_with(w->device, &config, &w->allocator) == ASHLAR_OK &&
                   ashlar_device_enter(w->device) == ASHLAR_OK;
    for (int i = 0; i < STREAMS && is_open; i++) {
        is_open = ashlar_stream_create(w->device, &w->streams[i]) == ASHLAR_OK &&
                  w->device->driver->table.event_create(&w->events[i], CU_EVENT_NO_TIMING) ==
                      CU_SUCCESS;
    }
    if (is_open) {
        ashlar_device_leave(w->device);
    }
    return is_open;
}

static void close_world(world *w) {
    ashlar_stats s;
    while (w->count > 0) {
        op_free(w);
    }
    compare_stats(w);
    CHECK(ashlar_allocator_check(w->allocator) == ASHLAR_OK);
    check_snapshot(w->allocator);
    ashlar_stats_read(w->allocator, &s);
    CHECK(s.served_same_stream > 0 && s.served_idle > 0 && s.served_waited > 0);
    CHECK(s.served_completed > 0 && s.served_mapped > 0 && s.served_after_sync > 0);
    CHECK((s.served_cached > 0) == (cache_bytes > 0));
    ashlar_allocator_destroy(w->allocator);
    CHECK_ZU(free_memory_of(w->device), w->device->info.total_bytes);
    ashlar_device_close(w->device); /* with its streams and events */
}

static void stress(uint64_t seed) {
    char spec[96];
    printf("# seed %llu\n", (unsigned long long)seed);
    (void)snprintf(spec, sizeof spec, "devices=2,memory=48MiB,mode=adversarial,seed=%llu",
                   (unsigned long long)seed);
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
    refused_count = 0;
    atomic_store(&payload_bad_count, 0);
    REQUIRE(ashlar_soft_configure(spec) == ASHLAR_OK);
    for (int i = 0; i < DEVICES; i++) {
        REQUIRE(open_world(&worlds[i], i));
    }
    for (size_t number = 0; number < OPERATIONS && check_failed == 0; number++) {
        operate(number);
    }
    for (int i = 0; i < DEVICES; i++) {
        close_world(&worlds[i]);
    }
    CHECK(refused_count > 0);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

static void random_work_agrees_with_the_model(void) {
    cache_bytes = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        stress(seed);
    }
}

static void random_work_agrees_with_the_model_beside_small_caches(void) {
    cache_bytes = 256 * KIB;
    for (uint64_t seed = 6; seed <= 8; seed++) {
        stress(seed);
    }
}

static void random_work_agrees_with_the_model_beside_large_caches(void) {
    cache_bytes = 24 * MIB;
    for (uint64_t seed = 9; seed <= 11; seed++) {
        stress(seed);
    }
}

int main(void) {
    RUN(random_work_agrees_with_the_model);
    RUN(random_work_agrees_with_the_model_beside_small_caches);
    RUN(random_work_agrees_with_the_model_beside_large_caches);
    return check_report();
}
