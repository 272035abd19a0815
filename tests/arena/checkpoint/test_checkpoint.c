/*
 * test_checkpoint.c - an arena to a file and back, and what is in the file.
 */
#include "tests/arena/checkpoint/checkpoint_fixture.h"
#include "tests/allocator/device/planted_capture.h"

#include "arena/checkpoint/checkpoint_impl.h"
#include "tests/arena/checkpoint/safetensors_find.h"

CASE_WITH(a_round_trip_keeps_every_bit, set_up_all()) {
    static image before;
    draw(arena, 1);
    take_image(arena, &before);
    ashlar_arena *copy = open_arena(ASHLAR_REGIONS_ALL);
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        memset(bytes_of(copy, i), FILLER, size_of(copy, i));
    }
    memcpy(before.bytes[ASHLAR_REGION_GRADIENTS], bytes_of(copy, ASHLAR_REGION_GRADIENTS),
           size_of(copy, ASHLAR_REGION_GRADIENTS)); /* neither saved nor touched */
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK(load(copy, ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK(is_same(copy, &before)); /* padding too */
    ashlar_arena_destroy(copy);
}

/* The values of one tensor of the file are those of its part of the region. */
static void check_part(const ashlar_safetensors *file, const char *prefix, int region, size_t i) {
    ashlar_tensor_info info;
    char name[64];
    ashlar_arena_tensor(arena, i, &info);
    (void)snprintf(name, sizeof name, "%s%s", prefix, info.name);
    const ashlar_safetensors_entry *entry = find_tensor(file, name);
    REQUIRE(entry != NULL);
    const bool is_kept = region == ASHLAR_REGION_PARAMETERS || info.dtype == ASHLAR_F64;
    CHECK(entry->dtype == (is_kept ? info.dtype : ASHLAR_F32));
    CHECK_ZU(entry->rank, info.rank);
    CHECK(memcmp(entry->shape, info.shape, entry->rank * sizeof entry->shape[0]) == 0);
    CHECK(has_elements(file, entry, ashlar_arena_view(arena, (ashlar_region)region, i)));
}

CASE_WITH(the_file_holds_each_tensor_its_state_and_the_metadata, set_up_all()) {
    const ashlar_checkpoint_pair metadata[] = {{"one", "eins"}, {"two", "zwei"}};
    draw(arena, 1);
    CHECK(ashlar_checkpoint_save(arena, path, ASHLAR_CHECKPOINT_STATE, metadata, 2, streams[0]) ==
          ASHLAR_OK);
    ashlar_safetensors *file = NULL;
    REQUIRE(ashlar__safetensors_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(ashlar__safetensors_count(file), TENSORS + STATES);
    for (size_t i = 0; i < TENSORS; i++) {
        check_part(file, "", ASHLAR_REGION_PARAMETERS, i);
        check_part(file, "optimizer.moment1.", ASHLAR_REGION_MOMENT1, i);
        check_part(file, "optimizer.moment2.", ASHLAR_REGION_MOMENT2, i);
    }
    check_part(file, "optimizer.master.", ASHLAR_REGION_MASTER, 2);
    check_part(file, "optimizer.master.", ASHLAR_REGION_MASTER, 3);
    ashlar__safetensors_close(file);
    ashlar_checkpoint *same = NULL;
    REQUIRE(ashlar_checkpoint_open(path, &same) == ASHLAR_OK);
    CHECK(strcmp(ashlar_checkpoint_metadata(same, "one"), "eins") == 0);
    CHECK(strcmp(ashlar_checkpoint_metadata(same, "two"), "zwei") == 0);
    CHECK(ashlar_checkpoint_metadata(same, "three") == NULL);
    ashlar_checkpoint_close(same);
    ashlar_checkpoint_close(NULL);
}

static size_t count_in_file(void) {
    ashlar_safetensors *file = NULL;
    CHECK(ashlar__safetensors_open(path, &file) == ASHLAR_OK);
    const size_t count = file != NULL ? ashlar__safetensors_count(file) : 0;
    ashlar__safetensors_close(file);
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
    CHECK(save(ASHLAR_CHECKPOINT_CONVERT) == ASHLAR_EINVAL);
    CHECK_FAILS(save(4), ASHLAR_EINVAL, "no flags for a save");
    ashlar_arena_destroy(arena);
    const tensor clash[] = {{"a", ASHLAR_F32, 1, {1}}, {"optimizer.moment2.a", ASHLAR_F32, 1, {1}}};
    arena = open_arena_of(clash, 2, ASHLAR_REGIONS_ALL);
    CHECK_FAILS(save(ASHLAR_CHECKPOINT_STATE), ASHLAR_EINVAL, "optimizer.moment2.a");
    CHECK(access(path, F_OK) != 0);
    CHECK(save(0) == ASHLAR_OK); /* as parameters both have their names */
    CHECK(load(arena, 0) == ASHLAR_OK);
}

static void check_host_failures(bool by_pieces) {
    unsigned long n = 1;
    ashlar__region_pieces_force(by_pieces);
    for (ashlar_status status = ASHLAR_EHOSTMEM; status != ASHLAR_OK && n < 500; n++) {
        HOST_FAILS_AT(n, status = save(ASHLAR_CHECKPOINT_STATE));
        /* ENOMEM: the software device, for its own part of a copy. */
        CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
        CHECK((access(path, F_OK) == 0) == (status == ASHLAR_OK));
        CHECK(n > 2 || strstr(ashlar_error_detail(), "5 names") != NULL);
    }
    ashlar__region_pieces_force(0);
    CHECK(n > (by_pieces ? 12 : 7));
    CHECK(unlink(path) == 0);
}

CASE_WITH(failing_host_memory_writes_no_file, set_up_all()) {
    draw(arena, 1);
    check_host_failures(false);
    check_host_failures(true);
}

CASE_WITH(a_driver_that_fails_writes_no_file, set_up_all()) {
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_synchronize, 1, CU_UNKNOWN);
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_EDRIVER);
    CHECK(access(path, F_OK) != 0);
    ashlar__region_pieces_force(1);
    for (uint64_t n = 1; n <= 8; n++) { /* of each region's parts with elements of one width */
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_dtoh_async, n, CU_UNKNOWN);
        CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_EDRIVER);
        CHECK(access(path, F_OK) != 0);
    }
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_synchronize, 1, CU_UNKNOWN);
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_EDRIVER);
    CHECK(access(path, F_OK) != 0);
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_memcpy_dtoh_async, 9, CU_UNKNOWN,
                    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK));
    ashlar__region_pieces_force(0);
}

CASE_WITH(saving_and_loading_spoil_no_capture_of_another_thread, set_up_all()) {
    planted other;
    draw(arena, 1);
    plant(&other);
    CHECK(save(ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK(load(arena, ASHLAR_CHECKPOINT_STATE) == ASHLAR_OK);
    CHECK(dig_up(&other) == CU_SUCCESS);
}

RUN_CASES()
