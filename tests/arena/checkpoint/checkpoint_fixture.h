/*
 * checkpoint_fixture.h - an arena with tensors of every type, filled with bits, and a file, for
 * tests.
 *
 * A case begins with set_up_arena(spec, regions); finish() runs at its end and checks that no
 * temporary is left.
 */
#ifndef ASHLAR_CHECKPOINT_FIXTURE_H
#define ASHLAR_CHECKPOINT_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include <unistd.h>

#include <ashlar/arena.h>

#include "arena/layout/arena_impl.h"
#include "arena/checkpoint/safetensors.h"
#include "allocator/base/random.h"

static ashlar_arena *arena;
static char folder[64], path[96];

/* One tensor of an arena or of a file. */
typedef struct tensor {
    const char *name;
    ashlar_dtype dtype;
    size_t rank;
    size_t shape[ASHLAR_RANK_MAX];
} tensor;

/* Padding behind each but the wide one. */
static const tensor MODEL[] = {{"first", ASHLAR_F32, 2, {3, 7}},
                               {"wide", ASHLAR_F64, 1, {32}},
                               {"half", ASHLAR_F16, 2, {5, 3}},
                               {"brain", ASHLAR_BF16, 1, {9}},
                               {"last", ASHLAR_F32, 4, {2, 1, 3, 5}}};
enum {
    TENSORS = sizeof MODEL / sizeof MODEL[0],
    STATES = 2 * TENSORS + 2, /* two moments of each, two masters */
    FILLER = 0xa5,
    REGION_MAX = 4096,
};

static inline ashlar_arena *open_arena_of(const tensor *tensors, size_t count, unsigned regions) {
    ashlar_arena *out = NULL;
    CHECK(ashlar_arena_create(&out) == ASHLAR_OK);
    for (size_t i = 0; i < count; i++) {
        CHECK(ashlar_arena_add(out, tensors[i].name, tensors[i].dtype, tensors[i].rank,
                               tensors[i].shape, NULL) == ASHLAR_OK);
    }
    CHECK(regions == 0 || ashlar_arena_commit(out, allocator, streams[0], regions) == ASHLAR_OK);
    wait_for(streams[0]);
    return out;
}

static inline ashlar_arena *open_arena(unsigned regions) {
    return open_arena_of(MODEL, TENSORS, regions);
}

static inline unsigned char *bytes_of(const ashlar_arena *of, int region) {
    return ashlar_arena_region(of, (ashlar_region)region);
}

static inline size_t size_of(const ashlar_arena *of, int region) {
    return ashlar_arena_get_info(of).region_bytes[(ashlar_region)region];
}

/* Bytes of a tensor's part of a region. */
static inline size_t part_bytes(int region, const ashlar_tensor_info *info) {
    switch ((ashlar_region)region) {
    case ASHLAR_REGION_PARAMETERS:
    case ASHLAR_REGION_GRADIENTS:
        return info->bytes;
    case ASHLAR_REGION_MASTER:
        return info->dtype == ASHLAR_F16 || info->dtype == ASHLAR_BF16 ? info->elements * 4 : 0;
    case ASHLAR_REGION_MOMENT1:
    case ASHLAR_REGION_MOMENT2:
    case ASHLAR_REGION_COUNT:
        break;
    }
    return info->elements * (info->dtype == ASHLAR_F64 ? 8 : 4);
}

/* Any bits will do for values, NaN among them; padding stays zero. */
static inline void draw(const ashlar_arena *of, unsigned int seed) {
    uint64_t state = seed;
    for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
        for (size_t i = 0;
             i < ashlar_arena_get_info(of).tensor_count && bytes_of(of, region) != NULL; i++) {
            ashlar_tensor_info info;
            ashlar_arena_tensor(of, i, &info);
            unsigned char *part = ashlar_arena_view(of, (ashlar_region)region, i);
            for (size_t j = 0; j < part_bytes(region, &info); j++) {
                part[j] = (unsigned char)ashlar__random_step(&state);
            }
        }
    }
}

/* All regions of an arena, to see what has changed. */
typedef struct image {
    unsigned char bytes[ASHLAR_REGION_COUNT][REGION_MAX];
} image;

static inline void take_image(const ashlar_arena *of, image *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if (bytes_of(of, i) != NULL) {
            CHECK(size_of(of, i) <= REGION_MAX);
            memcpy(out->bytes[i], bytes_of(of, i), size_of(of, i));
        }
    }
}

static inline bool is_region_same(const ashlar_arena *of, int region, const image *as) {
    return memcmp(bytes_of(of, region), as->bytes[region], size_of(of, region)) == 0;
}

static inline bool is_same(const ashlar_arena *of, const image *as) {
    bool is = true;
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        is = is && (bytes_of(of, i) == NULL || is_region_same(of, i, as));
    }
    return is;
}

static inline void finish(void) {
    ashlar_arena_destroy(arena);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
    (void)unlink(path);
    CHECK(rmdir(folder) == 0); /* no temporary is left behind */
}

static inline bool set_up_arena(const char *spec, unsigned regions) {
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-checkpoint-XXXXXX");
    if (!set_up(spec) || mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    arena = open_arena(regions);
    return check_at_end(finish);
}

static inline bool set_up_all(void) {
    return set_up_arena("memory=64MiB", ASHLAR_REGIONS_ALL);
}

static inline ashlar_status save(unsigned flags) {
    return ashlar_checkpoint_save(arena, path, flags, NULL, 0, streams[0]);
}

static inline ashlar_status load_file(ashlar_arena *into, const ashlar_checkpoint *file,
                                      unsigned flags) {
    return ashlar_checkpoint_load(into, file, &(ashlar_load_options){.flags = flags}, streams[0],
                                  NULL);
}

static inline ashlar_status load(ashlar_arena *into, unsigned flags) {
    ashlar_checkpoint *file = NULL;
    ashlar_status status = ashlar_checkpoint_open(path, &file);
    CHECK(status == ASHLAR_OK);
    if (status == ASHLAR_OK) {
        status = load_file(into, file, flags);
        ashlar_checkpoint_close(file);
    }
    return status;
}

/* A file of zeros. */
static inline ashlar_status write_tensors(const tensor *tensors, size_t count) {
    static const double zeros[64] = {0};
    ashlar_safetensors_entry entries[32];
    CHECK(count <= 32);
    for (size_t i = 0; i < count; i++) {
        entries[i] = (ashlar_safetensors_entry){.name = tensors[i].name,
                                                .dtype = tensors[i].dtype,
                                                .rank = tensors[i].rank,
                                                .data = zeros};
        memcpy(entries[i].shape, tensors[i].shape, sizeof tensors[i].shape);
    }
    return ashlar__safetensors_write(path, entries, count, NULL, 0, NULL);
}

#endif /* ASHLAR_CHECKPOINT_FIXTURE_H */
