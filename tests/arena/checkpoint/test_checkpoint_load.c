/*
 * test_checkpoint_load.c - which files fill an arena, what of them does, and that those which do
 * not fit change nothing.
 */
#include "tests/arena/checkpoint/checkpoint_fixture.h"

#include <sys/stat.h>

#include "arena/compute/convert.h"

enum {
    STATE = ASHLAR_CHECKPOINT_STATE,
    PARTIAL = ASHLAR_CHECKPOINT_PARTIAL,
    MOMENT1 = 1 << ASHLAR_REGION_MOMENT1,
    MOMENT2 = 1 << ASHLAR_REGION_MOMENT2,
    MASTER = 1 << ASHLAR_REGION_MASTER,
};

/* An arena with other values than those that were saved. */
static bool save_and_draw_anew(image *saved, image *before) {
    if (!set_up_all()) {
        return false;
    }
    draw(arena, 1);
    take_image(arena, saved);
    CHECK(save(STATE) == ASHLAR_OK);
    draw(arena, 2);
    take_image(arena, before);
    return true;
}

/* ---- what is taken ---- */

CASE(without_state_the_moments_stay_and_the_masters_follow_the_file) {
    static image saved, before;
    REQUIRE(save_and_draw_anew(&saved, &before));
    CHECK(load(arena, 0) == ASHLAR_OK);
    CHECK(is_region_same(arena, ASHLAR_REGION_PARAMETERS, &saved));
    CHECK(is_region_same(arena, ASHLAR_REGION_MASTER, &saved));
    CHECK(is_region_same(arena, ASHLAR_REGION_MOMENT1, &before));
    CHECK(is_region_same(arena, ASHLAR_REGION_MOMENT2, &before));
    CHECK(is_region_same(arena, ASHLAR_REGION_GRADIENTS, &before));
    ashlar_arena *inference = open_arena(ASHLAR_REGIONS_INFERENCE);
    CHECK(load(inference, 0) == ASHLAR_OK);
    CHECK(is_same(inference, &saved));
    ashlar_arena_destroy(inference);
}

/* Parameters with values, for masters that are made of them. */
static void set_halves(const ashlar_arena *of) {
    uint16_t *half = ashlar_arena_view(of, ASHLAR_REGION_PARAMETERS, 2);
    uint16_t *brain = ashlar_arena_view(of, ASHLAR_REGION_PARAMETERS, 3);
    for (int i = 0; i < 15; i++) {
        half[i] = ashlar__f16_from_float(0.3F * (float)(i - 7));
        brain[i % 9] = ashlar__bf16_from_float(0.7F * (float)(i - 3));
    }
}

CASE(masters_that_the_file_lacks_are_made_of_the_parameters) {
    REQUIRE(set_up_arena("memory=64MiB", ASHLAR_REGIONS_INFERENCE | MOMENT1 | MOMENT2));
    draw(arena, 1);
    set_halves(arena);
    CHECK(save(STATE) == ASHLAR_OK);
    ashlar_arena *copy = open_arena(ASHLAR_REGIONS_ALL);
    memset(bytes_of(copy, ASHLAR_REGION_MASTER), FILLER, size_of(copy, ASHLAR_REGION_MASTER));
    CHECK(load(copy, STATE) == ASHLAR_OK);
    const uint16_t *half = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 2);
    const uint16_t *brain = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 3);
    const float *half_master = ashlar_arena_view(copy, ASHLAR_REGION_MASTER, 2);
    const float *brain_master = ashlar_arena_view(copy, ASHLAR_REGION_MASTER, 3);
    for (int i = 0; i < 15; i++) {
        CHECK(half_master[i] == ashlar__float_from_f16(half[i]));
        CHECK(brain_master[i % 9] == ashlar__float_from_bf16(brain[i % 9]));
    }
    for (size_t i = 15; i < 64; i++) { /* to the end of the group */
        CHECK(half_master[i] == 0);
    }
    ashlar_arena_destroy(copy);
}

/* A file of a model all of whose tensors are of another type, as other programs write them. */
static void save_as(ashlar_dtype dtype, unsigned regions, float *values) {
    tensor tensors[TENSORS];
    memcpy(tensors, MODEL, sizeof MODEL);
    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i].dtype = dtype;
    }
    ashlar_arena *other = open_arena_of(tensors, TENSORS, regions);
    for (size_t i = 0; i < TENSORS; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(other, i, &info);
        void *view = ashlar_arena_view(other, ASHLAR_REGION_PARAMETERS, i);
        for (size_t j = 0; j < info.elements; j++) {
            if (dtype == ASHLAR_F32) {
                ((float *)view)[j] = values[j];
            } else {
                ((uint16_t *)view)[j] = ashlar__bf16_from_float(values[j]);
            }
        }
    }
    CHECK(ashlar_checkpoint_save(other, path, STATE, NULL, 0, streams[0]) == ASHLAR_OK);
    ashlar_arena_destroy(other);
}

CASE(parameters_of_another_type_are_converted) {
    float values[64];
    for (int i = 0; i < 64; i++) {
        values[i] = 0.1F * (float)(i - 20);
    }
    REQUIRE(set_up_all());
    save_as(ASHLAR_F32, ASHLAR_REGIONS_INFERENCE, values);
    CHECK(load(arena, 0) == ASHLAR_OK);
    const float *first = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 0);
    const double *wide = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 1);
    const uint16_t *half = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 2);
    const uint16_t *brain = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 3);
    const float *half_master = ashlar_arena_view(arena, ASHLAR_REGION_MASTER, 2);
    const float *brain_master = ashlar_arena_view(arena, ASHLAR_REGION_MASTER, 3);
    for (int i = 0; i < 9; i++) {
        CHECK(first[i] == values[i] && wide[i] == (double)values[i]);
        CHECK(half[i] == ashlar__f16_from_float(values[i]));
        CHECK(brain[i] == ashlar__bf16_from_float(values[i]));
        CHECK(half_master[i] == values[i] && brain_master[i] == values[i]); /* not rounded */
    }
}

/* ---- what is refused ---- */

static void check_unchanged(ashlar_arena *into, unsigned flags, const char *message) {
    static image before;
    draw(into, 7);
    take_image(into, &before);
    CHECK_FAILS(load(into, flags), ASHLAR_EFORMAT, message);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK(is_same(into, &before));
}

static void check_refused(const tensor *tensors, size_t count, const char *message) {
    CHECK(write_tensors(tensors, count) == ASHLAR_OK);
    check_unchanged(arena, 0, message);
    check_unchanged(arena, STATE, message);
}

CASE(files_of_another_model_are_refused_and_nothing_changes) {
    REQUIRE(set_up_arena("memory=64MiB", ASHLAR_REGIONS_INFERENCE));
    tensor other[TENSORS + 1];
    memcpy(other, MODEL, sizeof MODEL);
    other[TENSORS] = (tensor){"more", ASHLAR_F32, 1, {1}};
    check_refused(other, TENSORS - 1, "not in the file: 'last'; ");
    check_refused(other + 1, TENSORS - 1, "not in the file: 'first'; ");
    check_refused(other, TENSORS + 1, "not of this model: 'more'; ");
    other[TENSORS].name = "optimizer.moment1.more";
    check_refused(other, TENSORS + 1, "not of this model: 'optimizer.moment1.more'");
    other[TENSORS].name = "optimizer.moment3.first";
    check_refused(other, TENSORS + 1, "not of this model: 'optimizer.moment3.first'");
    other[4].shape[0] = 1;
    check_refused(other, TENSORS,
                  "'last' is F32 [1, 1, 3, 5] there, and F32 [2, 1, 3, 5] in this model");
    other[4] = (tensor){"last", ASHLAR_F32, 4, {2, 1, 5, 3}}; /* as many elements */
    check_refused(other, TENSORS, "'last' is F32 [2, 1, 5, 3] there");
    other[4] = (tensor){"last", ASHLAR_F32, 3, {2, 1, 3}}; /* the same as far as it goes */
    check_refused(other, TENSORS, "'last' is F32 [2, 1, 3] there");
    other[4] = MODEL[4];
    other[3] = (tensor){"brain", ASHLAR_BF16, 2, {9, 1}};
    check_refused(other, TENSORS, "'brain' is BF16 [9, 1] there, and BF16 [9] in this model");
    other[3] = MODEL[3];
    CHECK(write_tensors(other, TENSORS) == ASHLAR_OK); /* the control */
    CHECK(load(arena, 0) == ASHLAR_OK);
    CHECK(load(arena, STATE) == ASHLAR_OK); /* this arena has none */
}

CASE(a_training_goes_on_only_with_the_state_that_it_has) {
    static const unsigned sets[] = {0, MOMENT1, MOMENT2, MOMENT1 | MOMENT2};
    REQUIRE(set_up_arena("memory=64MiB", ASHLAR_REGIONS_INFERENCE));
    for (size_t in_file = 0; in_file < 4; in_file++) {
        ashlar_arena_destroy(arena);
        arena = open_arena(ASHLAR_REGIONS_INFERENCE | MASTER | sets[in_file]);
        CHECK(save(STATE) == ASHLAR_OK);
        for (size_t i = 0; i < 4; i++) {
            ashlar_arena *into = open_arena(ASHLAR_REGIONS_INFERENCE | MASTER | sets[i]);
            CHECK(load(into, 0) == ASHLAR_OK);
            const bool lacks = (sets[i] & ~sets[in_file]) != 0;
            if (in_file != i) {
                const bool has_more = (sets[in_file] & ~sets[i]) != 0;
                check_unchanged(into, STATE,
                                has_more ? "not of this model: 'optimizer.moment"
                                         : "not in the file: 'optimizer.moment");
                CHECK(lacks || has_more);
            } else {
                CHECK(load(into, STATE) == ASHLAR_OK);
            }
            ashlar_arena_destroy(into);
        }
    }
}

CASE(damaged_state_is_refused) {
    static const char *const names[] = {"optimizer.moment1.half", "optimizer.moment2.half",
                                        "optimizer.master.half"};
    REQUIRE(set_up_all());
    tensor all[TENSORS + 1];
    memcpy(all, MODEL, sizeof MODEL);
    for (size_t i = 0; i < 3; i++) {
        char message[96];
        all[TENSORS] = (tensor){names[i], ASHLAR_F16, 2, {5, 3}}; /* the parameter's type */
        (void)snprintf(message, sizeof message, "'%s' is F16 [5, 3] there, and F32", names[i]);
        CHECK(write_tensors(all, TENSORS + 1) == ASHLAR_OK);
        check_unchanged(arena, STATE, message);
        all[TENSORS] = (tensor){names[i], ASHLAR_F32, 2, {3, 5}};
        (void)snprintf(message, sizeof message, "'%s' is F32 [3, 5] there", names[i]);
        CHECK(write_tensors(all, TENSORS + 1) == ASHLAR_OK);
        check_unchanged(arena, STATE, message);
    }
    all[TENSORS] = (tensor){"optimizer.master.first", ASHLAR_F32, 2, {3, 7}}; /* of an F32 tensor */
    CHECK(write_tensors(all, TENSORS + 1) == ASHLAR_OK);
    check_unchanged(arena, STATE, "not of this model: 'optimizer.master.first'");
    CHECK(load(arena, 0) == ASHLAR_OK);
}

CASE_WITH(an_arena_without_memory_and_other_flags_are_refused, set_up_arena("memory=64MiB", 0)) {
    CHECK(write_tensors(MODEL, TENSORS) == ASHLAR_OK);
    CHECK_FAILS(load(arena, 0), ASHLAR_EINVAL, "not committed");
    ashlar_arena_destroy(arena);
    arena = open_arena(1);
    CHECK_FAILS(load(arena, 4), ASHLAR_EINVAL, "no flags for a load");
    CHECK(load(arena, STATE | PARTIAL) == ASHLAR_OK);
}

/* ---- failures outside ---- */

/* Cut behind the header, in it, and to nothing: the header has been read. */
CASE(a_file_that_is_cut_while_it_is_open_is_reported) {
    static image saved, before;
    struct stat info;
    REQUIRE(save_and_draw_anew(&saved, &before));
    REQUIRE(stat(path, &info) == 0);
    ashlar_checkpoint *file = NULL;
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    const off_t lengths[] = {info.st_size - 1, info.st_size / 2, 9, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        REQUIRE(truncate(path, lengths[i]) == 0);
        CHECK_FAILS(load_file(arena, file, STATE), ASHLAR_EIO, path);
        CHECK_HAS(ashlar_error_detail(), "shorter than when it was opened");
    }
    ashlar_checkpoint_close(file);
}

CASE(failing_host_memory_changes_nothing) {
    static image saved, before;
    REQUIRE(save_and_draw_anew(&saved, &before));
    ashlar_checkpoint *file = NULL;
    FOR_HOST_FAILURES(n, status, ashlar_checkpoint_open(path, &file)) {
        CHECK((file != NULL) == (status == ASHLAR_OK));
    }
    CHECK(n > 4);
    REQUIRE(file != NULL);
    for (n = 1; n <= 2; n++) {
        HOST_FAILS_AT(n, CHECK(load_file(arena, file, STATE) == ASHLAR_EHOSTMEM));
        CHECK(is_same(arena, &before));
    }
    CHECK(load_file(arena, file, STATE) == ASHLAR_OK);
    memcpy(saved.bytes[ASHLAR_REGION_GRADIENTS], before.bytes[ASHLAR_REGION_GRADIENTS], REGION_MAX);
    CHECK(is_same(arena, &saved));
    ashlar_checkpoint_close(file);
}

RUN_CASES()
