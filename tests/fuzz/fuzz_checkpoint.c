/*
 * fuzz_checkpoint.c - any bytes as a checkpoint of a small arena: a file that is refused changes
 * nothing, and one that is taken is in the arena, with nothing else changed.
 */
#include "tests/fuzz/fuzz.h"

#include <ashlar/arena.h>

#include "arena/compute/convert.h"
#include "tests/arena/checkpoint/safetensors_find.h"
#include "allocator/soft/soft.h"

const char fuzz_claim[] = "every_file_is_refused_and_changes_nothing_or_is_in_the_arena";

enum { FLAGS = 4, REGION_MAX = 1024, FILLER = 0x3c, TENSORS = 2 };

/* The arena's tensors: "a" F32 [3], "b" BF16 [2, 1]. */
static ashlar_device *device;
static ashlar_allocator *allocator;
static ashlar_arena *arena;

static void close_arena(void) {
    ashlar_arena_destroy(arena);
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
}

static void open_arena(void) {
    FUZZ_CHECK(ashlar__soft_configure("memory=64MiB") == ASHLAR_OK);
    FUZZ_CHECK(ashlar_device_open("soft", &device) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_allocator_create(device, &allocator) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_arena_create(&arena) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_arena_add(arena, "a", ASHLAR_F32, 1, (size_t[]){3}, NULL) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_arena_add(arena, "b", ASHLAR_BF16, 2, (size_t[]){2, 1}, NULL) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_arena_commit(arena, allocator, NULL, ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    FUZZ_CHECK(ashlar_stream_synchronize(device, NULL) == ASHLAR_OK);
    (void)atexit(close_arena);
}

/* ---- samples ---- */

static const char *const samples[] = {
    /* All of it. */
    "{\"__metadata__\":{\"step\":\"3\"},"
    "\"optimizer.moment1.a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
    "\"optimizer.moment2.a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]},"
    "\"optimizer.moment1.b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[24,32]},"
    "\"optimizer.moment2.b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[32,40]},"
    "\"optimizer.master.b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[40,48]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[48,60]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[60,64]}}",
    /* Parameters, as they are and to be converted. */
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[12,16]}}",
    "{\"a\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[0,24]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[24,32]}}",
    "{\"b\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[4,10]}}",
    /* One moment; a master of a tensor that has none. */
    "{\"optimizer.moment1.a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[24,28]}}",
    "{\"optimizer.master.a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[24,28]}}",
};
static const size_t sample_data_bytes[] = {64, 16, 32, 10, 28, 28};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {
    if (i >= SAMPLES) {
        return 0;
    }
    const size_t length = strlen(samples[i]), data_bytes = sample_data_bytes[i];
    FUZZ_CHECK(8 + length + data_bytes <= cap);
    for (size_t k = 0; k < 8; k++) {
        out[k] = (uint8_t)(length >> (8 * k));
    }
    memcpy(out + 8, samples[i], length);
    for (size_t k = 0; k < data_bytes; k++) {
        out[8 + length + k] = (uint8_t)(3 * k + 1);
    }
    return 8 + length + data_bytes;
}

/* ---- what is promised ---- */

typedef struct image {
    unsigned char bytes[ASHLAR_REGION_COUNT][REGION_MAX];
} image;

static void take_image(image *out) {
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const size_t bytes = ashlar_arena_get_info(arena).region_bytes[(ashlar_region)i];
        FUZZ_CHECK(bytes > 0 && bytes <= REGION_MAX);
        memset(out->bytes[i], 0, REGION_MAX);
        memcpy(out->bytes[i], ashlar_arena_region(arena, (ashlar_region)i), bytes);
    }
}

/* Give every byte a value that a load would have to overwrite, padding included. */
static void spoil(void) {
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        memset(ashlar_arena_region(arena, (ashlar_region)i), FILLER,
               ashlar_arena_get_info(arena).region_bytes[(ashlar_region)i]);
    }
}

static const ashlar_checkpoint_tensor *find(const ashlar_checkpoint *file, const char *prefix,
                                            const char *name) {
    char full[64];
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    return ashlar_checkpoint_find(file, NULL, full);
}

/* The type of that name; ASHLAR_DTYPE_COUNT: no arena has it. */
static ashlar_dtype dtype_of(const ashlar_checkpoint_tensor *tensor) {
    int dtype = 0;
    while (dtype < ASHLAR_DTYPE_COUNT &&
           strcmp(tensor->dtype, ashlar_dtype_name((ashlar_dtype)dtype)) != 0) {
        dtype++;
    }
    return (ashlar_dtype)dtype;
}

/* The file's tensor for a part of a region, if it fits. A master needs its parameter, too. */
static const ashlar_checkpoint_tensor *find_fitting(const ashlar_checkpoint *file,
                                                    const char *prefix, ashlar_region region,
                                                    const ashlar_tensor_info *info) {
    const ashlar_checkpoint_tensor *from = find(file, prefix, info->name);
    if (from == NULL || from->rank != info->rank ||
        memcmp(from->shape, info->shape, info->rank * sizeof info->shape[0]) != 0 ||
        dtype_of(from) == ASHLAR_DTYPE_COUNT ||
        (region != ASHLAR_REGION_PARAMETERS && dtype_of(from) != ASHLAR_F32)) {
        from = NULL;
    }
    if (region == ASHLAR_REGION_MASTER) {
        const ashlar_checkpoint_tensor *parameter =
            find_fitting(file, "", ASHLAR_REGION_PARAMETERS, info);
        return from == NULL || parameter == NULL ? parameter : from;
    }
    return from;
}

/* What a region must be now, put together from the file; what is not in it stays, if it may. */
static void expect_region(const ashlar_checkpoint *file, const char *prefix, ashlar_region region,
                          bool is_partial, image *want) {
    memset(want->bytes[region], 0, REGION_MAX);
    for (size_t i = 0; i < TENSORS; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        const char *view = ashlar_arena_view(arena, region, i);
        if (view == NULL) {
            continue;
        }
        const ashlar_dtype dtype = region == ASHLAR_REGION_PARAMETERS ? info.dtype : ASHLAR_F32;
        const size_t offset = (size_t)(view - (char *)ashlar_arena_region(arena, region));
        const ashlar_checkpoint_tensor *from = find_fitting(file, prefix, region, &info);
        FUZZ_CHECK(from != NULL || is_partial);
        memset(want->bytes[region] + offset, FILLER, info.elements * ashlar_dtype_bytes(dtype));
        if (from != NULL) {
            void *elements = copy_elements(file, from);
            FUZZ_CHECK(elements != NULL);
            ashlar__convert(dtype, want->bytes[region] + offset, dtype_of(from), elements,
                            info.elements);
            free(elements);
        }
    }
}

static void check_taken(const char *path, unsigned flags, image *want) {
    ashlar_checkpoint *file = NULL;
    FUZZ_CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    const bool is_partial = (flags & ASHLAR_CHECKPOINT_PARTIAL) != 0;
    expect_region(file, "", ASHLAR_REGION_PARAMETERS, is_partial, want);
    expect_region(file, "optimizer.master.", ASHLAR_REGION_MASTER, is_partial, want);
    if ((flags & ASHLAR_CHECKPOINT_STATE) != 0) {
        expect_region(file, "optimizer.moment1.", ASHLAR_REGION_MOMENT1, is_partial, want);
        expect_region(file, "optimizer.moment2.", ASHLAR_REGION_MOMENT2, is_partial, want);
    }
    ashlar_checkpoint_close(file);
}

static void check_load(const ashlar_checkpoint *file, const char *path, unsigned flags) {
    static image want, now;
    spoil();
    take_image(&want);
    const ashlar_status status =
        ashlar_checkpoint_load(arena, file, &(ashlar_load_options){.flags = flags}, NULL, NULL);
    FUZZ_CHECK(status == ASHLAR_OK || status == ASHLAR_EFORMAT);
    if (status == ASHLAR_OK) {
        check_taken(path, flags, &want);
    } else {
        FUZZ_CHECK(strstr(ashlar_error_detail(), path) != NULL);
    }
    take_image(&now);
    FUZZ_CHECK(memcmp(&want, &now, sizeof now) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char path[FUZZ_PATH_BYTES];
    const int fd = fuzz_open_bytes(data, bytes, path);
    ashlar_checkpoint *file = NULL;
    if (arena == NULL) {
        open_arena();
    }
    const ashlar_status status = ashlar_checkpoint_open(path, &file);
    FUZZ_CHECK(status == ASHLAR_OK || status == ASHLAR_EFORMAT);
    FUZZ_CHECK((status == ASHLAR_OK) == (file != NULL));
    for (unsigned flags = 0; file != NULL && flags < FLAGS; flags++) {
        check_load(file, path, flags);
    }
    ashlar_checkpoint_close(file);
    (void)close(fd);
    return 0;
}
