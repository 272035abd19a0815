/*
 * test_checkpoint.c - an arena to a file and back, in place and by pieces, and what is in the file.
 */
#include "tests/arena/checkpoint/checkpoint_fixture.h"

#include "arena/compute/convert.h"
#include "tests/allocator/device/planted_capture.h"
#include "tests/arena/checkpoint/safetensors_find.h"

/* The values of one tensor of the file are those of its part of the region. */
static void check_part(const ashlar_checkpoint *file, const char *prefix, int region, size_t i) {
    ashlar_tensor_info info;
    char name[64];
    ashlar_arena_tensor(arena, i, &info);
    (void)snprintf(name, sizeof name, "%s%s", prefix, info.name);
    const ashlar_checkpoint_tensor *entry = ashlar_checkpoint_find(file, NULL, name);
    REQUIRE(entry != NULL);
    const bool is_kept = region == ASHLAR_REGION_PARAMETERS || info.dtype == ASHLAR_F64;
    CHECK(strcmp(entry->dtype, ashlar_dtype_name(is_kept ? info.dtype : ASHLAR_F32)) == 0);
    CHECK_ZU(entry->rank, info.rank);
    CHECK(memcmp(entry->shape, info.shape, entry->rank * sizeof entry->shape[0]) == 0);
    CHECK(has_elements(file, entry, ashlar_arena_view(arena, (ashlar_region)region, i)));
}

CASE_WITH(the_file_holds_each_tensor_its_state_and_the_metadata, set_up_all()) {
    const ashlar_checkpoint_pair metadata[] = {{"one", "eins"}, {"two", "zwei"}};
    draw(arena, 1);
    CHECK(ashlar_checkpoint_save(arena, path, ASHLAR_CHECKPOINT_STATE, metadata, 2, streams[0]) ==
          ASHLAR_OK);
    ashlar_checkpoint *file = NULL;
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(count_of(file), TENSORS + STATES);
    for (size_t i = 0; i < TENSORS; i++) {
        check_part(file, "", ASHLAR_REGION_PARAMETERS, i);
        check_part(file, "optimizer.moment1.", ASHLAR_REGION_MOMENT1, i);
        check_part(file, "optimizer.moment2.", ASHLAR_REGION_MOMENT2, i);
    }
    check_part(file, "optimizer.master.", ASHLAR_REGION_MASTER, 2);
    check_part(file, "optimizer.master.", ASHLAR_REGION_MASTER, 3);
    ashlar_checkpoint_close(file);
    ashlar_checkpoint *same = NULL;
    REQUIRE(ashlar_checkpoint_open(path, &same) == ASHLAR_OK);
    CHECK(strcmp(ashlar_checkpoint_metadata(same, "one"), "eins") == 0);
    CHECK(strcmp(ashlar_checkpoint_metadata(same, "two"), "zwei") == 0);
    CHECK(ashlar_checkpoint_metadata(same, "three") == NULL);
    ashlar_checkpoint_close(same);
    ashlar_checkpoint_close(NULL);
}

static size_t count_in_file(void) {
    ashlar_checkpoint *file = NULL;
    CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    const size_t count = file != NULL ? count_of(file) : 0;
    ashlar_checkpoint_close(file);
    return count;
}

CASE_WITH(only_what_is_asked_for_and_there_is_written, set_up_all()) {
    CHECK(save(0) == ASHLAR_OK);
    CHECK_ZU(count_in_file(), TENSORS);
    ashlar_arena_destroy(arena);
    arena = open_arena(ASHLAR_REGIONS_INFERENCE | ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT1));
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK_ZU(count_in_file(), 2 * TENSORS);
}

static void scale_by_two(void *args) {
    float *values = *(float **)args;
    for (size_t i = 0; i < 21; i++) {
        values[i] *= 2;
    }
}

/* Nothing has run when save is called, and all has when load returns. */
CASE(queued_work_comes_before_the_file_and_the_load_is_over_at_return) {
    REQUIRE(set_up_arena("memory=64MiB,mode=adversarial,seed=5", ASHLAR_REGIONS_ALL));
    float *values = (float *)(void *)bytes_of(arena, ASHLAR_REGION_MOMENT2);
    for (int i = 0; i < 21; i++) {
        values[i] = (float)i;
    }
    CHECK(ashlar_launch(device, streams[0], scale_by_two, &values, sizeof(float *)) == ASHLAR_OK);
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    memset(values, 0, size_of(arena, ASHLAR_REGION_MOMENT2));
    CHECK(ashlar_launch(device, streams[0], scale_by_two, &values, sizeof(float *)) == ASHLAR_OK);
    CHECK(load(arena, ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    for (int i = 0; i < 21; i++) {
        CHECK(values[i] == (float)(2 * i));
    }
}

CASE_WITH(what_cannot_be_saved_is_refused, set_up_arena("memory=64MiB", 0)) {
    CHECK_FAILS(save(0), ASHLAR_EINVAL, "not committed");
    ashlar_arena_destroy(arena);
    arena = open_arena(ASHLAR_REGIONS_INFERENCE);
    CHECK(save(ASHLAR_CHECKPOINT_PARTIAL) == ASHLAR_EINVAL);
    CHECK_FAILS(save(4), ASHLAR_EINVAL, "no flags for a save");
    ashlar_arena_destroy(arena);
    const tensor clash[] = {{"a", ASHLAR_F32, 1, {1}}, {"optimizer.moment2.a", ASHLAR_F32, 1, {1}}};
    arena = open_arena_of(clash, 2, ASHLAR_REGIONS_ALL);
    CHECK_FAILS(save(ASHLAR_CHECKPOINT_STATE), ASHLAR_EINVAL, "optimizer.moment2.a");
    CHECK(access(path, F_OK) != 0);
    CHECK(save(0) == ASHLAR_OK); /* as parameters both have their names */
    CHECK(load(arena, 0) == ASHLAR_OK);
}

CASE_WITH(failing_host_memory_writes_no_file, set_up_all()) {
    draw(arena, 1);
    unsigned long n = 1;
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 500; n++) {
        HOST_FAILS_AT(n, status = save(ASHLAR_CHECKPOINT_STATE));
        /* ENOMEM: the software device, for its own part of a copy. */
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        CHECK((access(path, F_OK) == 0) == (status == ASHLAR_OK));
        CHECK(n > 2 || strstr(ashlar_error_detail(), "5 names") != NULL);
    }
    CHECK(n > 12);
}

CASE_WITH(saving_and_loading_spoil_no_capture_of_another_thread, set_up_all()) {
    planted other;
    draw(arena, 1);
    plant(&other);
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK(load(arena, ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK(dig_up(&other) == CU_SUCCESS);
}

/* ---- by pieces, as on a GPU: the same file, and the same arena, as in place ---- */

/* The ends of pieces lie in tensors, and behind padding. */
static const tensor LARGE[] = {
    {"wide", ASHLAR_F64, 1, {70001}},     {"half", ASHLAR_F16, 2, {301, 1003}},
    {"main", ASHLAR_F32, 2, {601, 1003}}, {"small", ASHLAR_F32, 1, {3}},
    {"filling", ASHLAR_F32, 1, {154663}}, {"brain", ASHLAR_BF16, 1, {900001}}};
/* The same shapes in other types. */
static const tensor CONVERTED[] = {
    {"wide", ASHLAR_F32, 1, {70001}},      {"half", ASHLAR_F64, 2, {301, 1003}},
    {"main", ASHLAR_BF16, 2, {601, 1003}}, {"small", ASHLAR_F64, 1, {3}},
    {"filling", ASHLAR_F16, 1, {154663}},  {"brain", ASHLAR_F32, 1, {900001}}};
enum { LARGE_COUNT = sizeof LARGE / sizeof LARGE[0], STATE = ASHLAR_CHECKPOINT_STATE };

static void finish_large(void) {
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    finish();
}

static bool set_up_large(const char *spec) {
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-checkpoint-XXXXXX");
    if (!set_up(spec) || mkdtemp(folder) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    arena = open_arena_of(LARGE, LARGE_COUNT, ASHLAR_REGIONS_ALL);
    return check_at_end(finish_large);
}

static size_t pieces_of(unsigned regions) {
    size_t count = 0;
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            count += (size_of(arena, i) + ASHLAR_PIECE_BYTES - 1) / ASHLAR_PIECE_BYTES;
        }
    }
    return count;
}

enum { SAVED = ASHLAR_REGIONS_ALL & ~ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS) };

static void check_same_regions(const ashlar_arena *got, const ashlar_arena *want,
                               unsigned regions) {
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        if ((regions & ASHLAR_REGION_BIT(i)) != 0) {
            CHECK_ZU(size_of(got, i), size_of(want, i));
            CHECK(memcmp(bytes_of(got, i), bytes_of(want, i), size_of(got, i)) == 0);
        }
    }
}

/* Into an arena that is full of other bytes, padding too. */
CASE(a_load_by_pieces_restores_every_byte) {
    static const char *const specs[] = {"memory=256MiB", "memory=256MiB,mode=adversarial,seed=3"};
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(set_up_large(specs[i]));
        draw(arena, 2);
        size_t copies = CALLS(memcpy_dtoh_async);
        REQUIRE(save(STATE) == ASHLAR_OK);
        CHECK(CALLS(memcpy_dtoh_async) >= copies + pieces_of(SAVED));
        ashlar_arena *copy = open_arena_of(LARGE, LARGE_COUNT, ASHLAR_REGIONS_ALL);
        for (int k = 0; k < ASHLAR_REGION_COUNT; k++) {
            memset(bytes_of(copy, k), FILLER, size_of(copy, k));
        }
        copies = CALLS(memcpy_htod_async);
        REQUIRE(load(copy, STATE) == ASHLAR_OK);
        CHECK_ZU(CALLS(memcpy_htod_async), copies + pieces_of(SAVED));
        check_same_regions(copy, arena, SAVED);
        ashlar_arena_destroy(copy);
        finish_large();
    }
}

CASE(elements_are_converted_piece_by_piece_too) {
    REQUIRE(set_up_large("memory=256MiB"));
    draw(arena, 3);
    REQUIRE(save(0) == ASHLAR_OK);
    ashlar_arena *copy = open_arena_of(CONVERTED, LARGE_COUNT, ASHLAR_REGIONS_ALL);
    CHECK(load(copy, 0) == ASHLAR_OK);
    for (size_t i = 0; i < LARGE_COUNT; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(copy, i, &info);
        char *want = ashlar__host_calloc(info.bytes, 1);
        REQUIRE(want != NULL);
        ashlar__convert(info.dtype, want, LARGE[i].dtype,
                        ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i), info.elements);
        CHECK(memcmp(ashlar_arena_view(copy, ASHLAR_REGION_PARAMETERS, i), want, info.bytes) == 0);
        ashlar__host_free(want);
    }
    ashlar_arena_destroy(copy);
}

/* A copy that is queued writes a buffer, which is freed only after a wait. One to the device has
 * read its buffer, but the load waits all the same. */
CASE(a_copy_that_fails_ends_the_call_after_a_wait) {
    REQUIRE(set_up_large("memory=256MiB,mode=adversarial,seed=3"));
    draw(arena, 4);
    REQUIRE(save(STATE) == ASHLAR_OK);
    ashlar_checkpoint *file = NULL;
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    CHECK(unlink(path) == 0);
    for (uint64_t n = 1; n <= pieces_of(SAVED); n++) {
        const size_t waits = CALLS(stream_synchronize);
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_dtoh_async, n, CU_UNKNOWN);
        CHECK(save(STATE) == ASHLAR_EDRIVER);
        CHECK(CALLS(stream_synchronize) > waits && CALLS(stream_synchronize) <= waits + n);
        CHECK(access(path, F_OK) != 0);
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_htod_async, n, CU_UNKNOWN);
        const size_t before = CALLS(stream_synchronize);
        CHECK(load_file(arena, file, STATE) == ASHLAR_EDRIVER);
        CHECK(CALLS(stream_synchronize) > before && CALLS(stream_synchronize) <= before + n);
    }
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_synchronize, 2, CU_UNKNOWN);
    CHECK(save(STATE) == ASHLAR_EDRIVER);
    CHECK(access(path, F_OK) != 0);
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    ashlar_checkpoint_close(file);
}

RUN_CASES()
