/*
 * write_snapshot.c - write the snapshot that shell_snapshot.sh reads: `write_snapshot NAME FILE`.
 *
 *   empty      an allocator that holds nothing and keeps no trace
 *   allocator  what an allocator on the second software device holds, with a trace of it
 *   rmm        that trace, as RMM's log
 *   large      two segments above 2^46, thousands of blocks and events
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/core/allocator_impl.h"
#include "allocator/trace/snapshot.h"
#include "allocator/soft/soft.h"
#include "tests/allocator/trace/trace_fixture.h"

static void must(ashlar_status status) {
    if (status != ASHLAR_OK) {
        fprintf(stderr, "write_snapshot: %s\n", ashlar_error_detail());
        exit(1);
    }
}

static void write_empty(const char *path) {
    ashlar_device *device;
    ashlar_allocator *allocator;
    must(ashlar_device_open("soft", &device));
    must(ashlar_allocator_create(device, &allocator));
    must(ashlar_allocator_write_snapshot(allocator, path));
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
}

static void *take(ashlar_allocator *allocator, size_t bytes, ashlar_tag tag) {
    void *ptr = NULL;
    must(ashlar_alloc_tagged(allocator, bytes, tag, NULL, &ptr));
    return ptr;
}

typedef ashlar_status (*write_fn)(ashlar_allocator *allocator, const char *path);

static void write_with_trace(write_fn write, const char *path) {
    ashlar_device *device;
    ashlar_allocator *allocator;
    ashlar_config config;
    ashlar_config_init(&config);
    config.trace_events = 100;
    must(ashlar__soft_configure("devices=2,memory=64MiB"));
    must(ashlar_device_open("soft:1", &device));
    must(ashlar_allocator_create_with(device, &config, &allocator));
    (void)take(allocator, 1000, ASHLAR_TAG_WEIGHTS);
    void *freed = take(allocator, 3 << 20, ASHLAR_TAG_USER);
    (void)take(allocator, 100000, ASHLAR_TAG_USER);
    must(ashlar_free(allocator, freed));
    must(write(allocator, path));
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
}

static void write_allocator(const char *path) {
    write_with_trace(ashlar_allocator_write_snapshot, path);
}

static ashlar_status write_trace(ashlar_allocator *allocator, const char *path) {
    return ashlar_allocator_write_trace(allocator, ASHLAR_TRACE_RMM_CSV, path, NULL);
}

static void write_rmm(const char *path) {
    write_with_trace(write_trace, path);
}

/*
 * Segment 0: 3000 blocks of 1 KiB, every third one live, each of which was freed and taken again.
 * Segment 1: one live block of 8 GiB. Memory that is not there any more. A request refused.
 */
static void write_large(const char *path) {
    enum { BLOCKS = 3000, KIB = 1024 };
    const uint64_t base = UINT64_C(0x7f1200000000), high = UINT64_C(0x7fff00000000);
    const uint64_t gone = high + (UINT64_C(16) << 30), eight = UINT64_C(8) << 30;
    static const ashlar_snapshot_state states[] = {ASHLAR_SNAPSHOT_LIVE, ASHLAR_SNAPSHOT_PENDING,
                                                   ASHLAR_SNAPSHOT_IDLE};
    static ashlar_trace_event events[4 * BLOCKS];
    size_t count = 0;
    ashlar_snapshot *snapshot;
    must(ashlar__snapshot_create(2, BLOCKS + 1, &snapshot));
    snapshot->device_ordinal = 2;
    snapshot->segments[0] = (ashlar_snapshot_segment){base, BLOCKS * KIB};
    snapshot->segments[1] = (ashlar_snapshot_segment){high, eight};
    events[count++] = (ashlar_trace_event)TRACE_MAP(gone, 2 << 20);
    events[count++] = (ashlar_trace_event)TRACE_ALLOC(gone, 512, 1, 0);
    events[count++] = (ashlar_trace_event)TRACE_MAP(base, BLOCKS * KIB);
    events[count++] = (ashlar_trace_event)TRACE_FREE(gone, 512, 1, 0);
    events[count++] = (ashlar_trace_event)TRACE_UNMAP(gone, 2 << 20);
    for (size_t i = 0; i < BLOCKS; i++) {
        const uint64_t address = base + i * KIB;
        snapshot->blocks[i] =
            (ashlar_snapshot_block){.address = address,
                                    .bytes = KIB,
                                    .requested_bytes = i % 3 == 0 ? 1 + i % KIB : 0,
                                    .state = states[i % 3]};
        if (i % 3 == 0) {
            events[count] = (ashlar_trace_event)TRACE_ALLOC(address, KIB, 1000, 0xabcdef123456);
            events[count].time_ns = UINT64_C(123456789012345) + count;
            events[count++].tag = ASHLAR_TAG_SAVED;
            events[count++] = (ashlar_trace_event)TRACE_FREE(address, KIB, 1000, 7);
            events[count++] = (ashlar_trace_event)TRACE_ALLOC(address, KIB, 1 + i % KIB, 0);
        }
    }
    snapshot->blocks[1].state = ASHLAR_SNAPSHOT_CACHED;
    snapshot->blocks[BLOCKS] = (ashlar_snapshot_block){.address = high,
                                                       .bytes = eight,
                                                       .requested_bytes = eight - 1,
                                                       .state = ASHLAR_SNAPSHOT_LIVE};
    events[count++] = (ashlar_trace_event)TRACE_OOM(65536, UINT64_C(1) << 40, 7);
    must(ashlar__snapshot_write(snapshot, events, count, path));
    ashlar_snapshot_free(snapshot);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*write)(const char *path);
    } cases[] = {{"empty", write_empty},
                 {"allocator", write_allocator},
                 {"rmm", write_rmm},
                 {"large", write_large}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases && argc == 3; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].write(argv[2]);
            return 0;
        }
    }
    fprintf(stderr, "usage: write_snapshot empty|allocator|rmm|large FILE\n");
    return 2;
}
