/*
 * test_checkpoint.c - parameters to a file and back, and the files that do not fit.
 */
#include "allocator_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include "checkpoint.h"

static ashlar_arena *arena;
static char folder[64], path[96];

/* One tensor of an arena or of a file. */
typedef struct tensor {
    const char *name;
    ashlar_dtype dtype;
    size_t rank;
    size_t shape[ASHLAR_RANK_MAX];
} tensor;

/* Padding behind the first and the last; the wider type in the middle. */
static const tensor MODEL[] = {{"first", ASHLAR_F32, 2, {3, 7}},
                               {"wide", ASHLAR_F64, 1, {32}},
                               {"last", ASHLAR_F32, 4, {2, 1, 3, 5}}};
enum { TENSORS = 3, REGION_BYTES = 256 + 256 + 256, FILLER = 0xa5 };

static ashlar_arena *open_arena(unsigned regions) {
    ashlar_arena *out = NULL;
    CHECK(ashlar_arena_create(&out) == ASHLAR_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        CHECK(ashlar_arena_add(out, MODEL[i].name, MODEL[i].dtype, MODEL[i].rank, MODEL[i].shape,
                               NULL) == ASHLAR_OK);
    }
    CHECK(regions == 0 ||
          ashlar_arena_commit(out, allocator, streams[0], regions) == ASHLAR_OK);
    wait_for(streams[0]);
    return out;
}

static unsigned char *parameters(const ashlar_arena *of) {
    return ashlar_arena_region(of, ASHLAR_REGION_PARAMETERS);
}

/* Any bits will do for values, NaN among them; padding stays zero. */
static void draw(const ashlar_arena *of) {
    unsigned int state = 1;
    for (size_t i = 0; i < TENSORS; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(of, i, &info);
        for (size_t j = 0; j < info.bytes; j++) {
            state = state * 1103515245u + 12345u;
            parameters(of)[info.offset[ASHLAR_LAYOUT_STORAGE] + j] = (unsigned char)(state >> 16);
        }
    }
}

static bool set_up_arena(const char *spec, unsigned regions) {
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-checkpoint-XXXXXX");
    if (!set_up(spec) || mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    arena = open_arena(regions);
    return true;
}

static void finish(void) {
    ashlar_arena_destroy(arena);
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
    (void)unlink(path);
    CHECK(rmdir(folder) == 0); /* no temporary is left behind */
}

static ashlar_status save(void) {
    return ashlar_checkpoint_save(arena, path, NULL, 0, streams[0]);
}

static ashlar_status load(ashlar_arena *into) {
    ashlar_safetensors *file = NULL;
    ashlar_status status = ashlar_safetensors_open(path, &file);
    CHECK(status == ASHLAR_OK);
    if (status == ASHLAR_OK) {
        status = ashlar_checkpoint_load(into, file, streams[0]);
        ashlar_safetensors_close(file);
    }
    return status;
}

static void a_round_trip_keeps_every_bit(void) {
    REQUIRE(set_up_arena("memory=16MiB", 1));
    REQUIRE(ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS) == REGION_BYTES);
    draw(arena);
    ashlar_arena *copy = open_arena(3);
    memset(parameters(copy), FILLER, REGION_BYTES);
    memset(ashlar_arena_region(copy, ASHLAR_REGION_GRADIENTS), FILLER, REGION_BYTES);
    CHECK(save() == ASHLAR_OK);
    CHECK(load(copy) == ASHLAR_OK);
    CHECK(memcmp(parameters(copy), parameters(arena), REGION_BYTES) == 0); /* padding too */
    const unsigned char *gradients = ashlar_arena_region(copy, ASHLAR_REGION_GRADIENTS);
    size_t changed = 0;
    for (size_t i = 0; i < REGION_BYTES; i++) {
        changed += gradients[i] != FILLER;
    }
    CHECK_ZU(changed, 0);
    ashlar_arena_destroy(copy);
    finish();
}

static void the_file_holds_each_tensor_and_the_metadata(void) {
    const ashlar_safetensors_pair metadata[] = {{"one", "eins"}, {"two", "zwei"}};
    REQUIRE(set_up_arena("memory=16MiB", 1));
    draw(arena);
    CHECK(ashlar_checkpoint_save(arena, path, metadata, 2, streams[0]) == ASHLAR_OK);
    ashlar_safetensors *file = NULL;
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(ashlar_safetensors_count(file), TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const ashlar_safetensors_entry *entry = ashlar_safetensors_find(file, MODEL[i].name);
        REQUIRE(entry != NULL);
        CHECK(entry->dtype == MODEL[i].dtype);
        CHECK_ZU(entry->rank, MODEL[i].rank);
        CHECK(memcmp(entry->shape, MODEL[i].shape, entry->rank * sizeof entry->shape[0]) == 0);
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        CHECK(memcmp(entry->data, parameters(arena) + info.offset[ASHLAR_LAYOUT_STORAGE],
                     info.bytes) == 0);
    }
    CHECK(strcmp(ashlar_safetensors_metadata(file, "one"), "eins") == 0);
    CHECK(strcmp(ashlar_safetensors_metadata(file, "two"), "zwei") == 0);
    ashlar_safetensors_close(file);
    finish();
}

static void scale_by_two(void *args) {
    float *values = *(float **)args;
    for (size_t i = 0; i < 21; i++) {
        values[i] *= 2;
    }
}

/* Nothing has run when save is called, and all has when load returns. */
static void queued_work_comes_before_the_file_and_the_load_is_over_at_return(void) {
    REQUIRE(set_up_arena("memory=16MiB,mode=adversarial,seed=5", 1));
    float *values = (float *)(void *)parameters(arena);
    for (int i = 0; i < 21; i++) {
        values[i] = (float)i;
    }
    CHECK(ashlar_launch(device, streams[0], scale_by_two, &values, sizeof(float *)) == ASHLAR_OK);
    CHECK(save() == ASHLAR_OK);
    memset(values, 0, REGION_BYTES);
    CHECK(ashlar_launch(device, streams[0], scale_by_two, &values, sizeof(float *)) == ASHLAR_OK);
    CHECK(load(arena) == ASHLAR_OK);
    for (int i = 0; i < 21; i++) {
        CHECK(values[i] == (float)(2 * i));
    }
    finish();
}

/* ---- files that do not fit ---- */

static ashlar_status write_file(const tensor *tensors, size_t count) {
    static const double zeros[64] = {0};
    ashlar_safetensors_entry entries[8];
    for (size_t i = 0; i < count; i++) {
        entries[i] = (ashlar_safetensors_entry){
            .name = tensors[i].name, .dtype = tensors[i].dtype, .rank = tensors[i].rank,
            .data = zeros};
        memcpy(entries[i].shape, tensors[i].shape, sizeof tensors[i].shape);
    }
    return ashlar_safetensors_write(path, entries, count, NULL, 0);
}

static void check_refused(const tensor *tensors, size_t count, const char *message) {
    unsigned char before[REGION_BYTES];
    memcpy(before, parameters(arena), REGION_BYTES);
    CHECK(write_file(tensors, count) == ASHLAR_OK);
    CHECK(load(arena) == ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), message);
    CHECK(memcmp(before, parameters(arena), REGION_BYTES) == 0);
}

static void files_of_another_model_are_refused_and_nothing_changes(void) {
    REQUIRE(set_up_arena("memory=16MiB", 1));
    draw(arena);
    tensor other[TENSORS + 1];
    memcpy(other, MODEL, sizeof MODEL);
    other[TENSORS] = (tensor){"more", ASHLAR_F32, 1, {1}};
    check_refused(other, 2, "tensor last is not in the file");
    check_refused(other + 1, TENSORS, "tensor first is not in the file");
    check_refused(other, TENSORS + 1, "the file has 4 tensors, the model 3");
    other[2].shape[0] = 1; /* other sizes, and the same number of elements in all */
    check_refused(other, TENSORS, "tensor last has another type or shape");
    other[2] = (tensor){"last", ASHLAR_F32, 4, {2, 1, 5, 3}};
    check_refused(other, TENSORS, "tensor last has another type or shape");
    other[2] = (tensor){"last", ASHLAR_F32, 3, {2, 1, 3}}; /* the same as far as it goes */
    check_refused(other, TENSORS, "tensor last has another type or shape");
    other[2] = MODEL[2];
    other[1].dtype = ASHLAR_F32;
    check_refused(other, TENSORS, "tensor wide has another type or shape");
    other[1] = MODEL[1];
    CHECK(write_file(other, TENSORS) == ASHLAR_OK); /* the control */
    CHECK(load(arena) == ASHLAR_OK);
    finish();
}

static void an_arena_without_memory_is_refused(void) {
    REQUIRE(set_up_arena("memory=16MiB", 0));
    CHECK(save() == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "not committed");
    CHECK(access(path, F_OK) != 0);
    CHECK(write_file(MODEL, TENSORS) == ASHLAR_OK);
    CHECK(load(arena) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "not committed");
    finish();
}

/* ---- failures outside ---- */

static void failing_host_memory_writes_no_file_and_changes_nothing(void) {
    unsigned char before[REGION_BYTES];
    REQUIRE(set_up_arena("memory=16MiB", 1));
    draw(arena);
    memcpy(before, parameters(arena), REGION_BYTES);
    unsigned long n = 1;
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 500; n++) {
        ashlar_host_fail_at(n);
        status = save();
        ashlar_host_fail_at(0);
        /* ENOMEM: the software device, for its own part of the copy. */
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        CHECK((access(path, F_OK) == 0) == (status == ASHLAR_OK));
        CHECK(n > 2 || strstr(ashlar_error_detail(), n == 1 ? "768 bytes" : "3 names") != NULL);
    }
    CHECK(n > 3);
    ashlar_safetensors *file = NULL;
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    memset(parameters(arena), FILLER, REGION_BYTES);
    ashlar_host_fail_at(1);
    CHECK(ashlar_checkpoint_load(arena, file, streams[0]) == ASHLAR_EHOSTMEM);
    ashlar_host_fail_at(0);
    CHECK(parameters(arena)[0] == FILLER && parameters(arena)[REGION_BYTES - 1] == FILLER);
    CHECK(ashlar_checkpoint_load(arena, file, streams[0]) == ASHLAR_OK);
    CHECK(memcmp(before, parameters(arena), REGION_BYTES) == 0);
    ashlar_safetensors_close(file);
    finish();
}

static void a_driver_that_fails_is_reported(void) {
    const int save_calls[] = {ASHLAR_DRIVER_FN_memcpy_dtoh_async,
                              ASHLAR_DRIVER_FN_stream_synchronize};
    const int load_calls[] = {ASHLAR_DRIVER_FN_memcpy_htod_async,
                              ASHLAR_DRIVER_FN_stream_synchronize};
    REQUIRE(set_up_arena("memory=16MiB", 1));
    for (size_t i = 0; i < 2; i++) {
        ashlar_driver_fail_at(driver, save_calls[i], 1, CU_UNKNOWN);
        CHECK(save() == ASHLAR_EDRIVER);
        CHECK(access(path, F_OK) != 0);
    }
    CHECK(save() == ASHLAR_OK);
    for (size_t i = 0; i < 2; i++) {
        ashlar_driver_fail_at(driver, load_calls[i], 1, CU_UNKNOWN);
        CHECK(load(arena) == ASHLAR_EDRIVER);
    }
    CHECK(load(arena) == ASHLAR_OK);
    finish();
}

static void a_file_that_cannot_be_written_is_reported(void) {
    REQUIRE(set_up_arena("memory=16MiB", 1));
    char absent[96];
    (void)snprintf(absent, sizeof absent, "%s/absent/weights", folder);
    CHECK(ashlar_checkpoint_save(arena, absent, NULL, 0, streams[0]) == ASHLAR_EIO);
    finish();
}

int main(void) {
    RUN(a_round_trip_keeps_every_bit);
    RUN(the_file_holds_each_tensor_and_the_metadata);
    RUN(queued_work_comes_before_the_file_and_the_load_is_over_at_return);
    RUN(files_of_another_model_are_refused_and_nothing_changes);
    RUN(an_arena_without_memory_is_refused);
    RUN(failing_host_memory_writes_no_file_and_changes_nothing);
    RUN(a_driver_that_fails_is_reported);
    RUN(a_file_that_cannot_be_written_is_reported);
    return check_report();
}
