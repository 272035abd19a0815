/*
 * test_region_pieces.c - checkpoints that go through pieces, as on a GPU: the same file, and the
 * same arena, as in place.
 */
#include "tests/arena/checkpoint/checkpoint_fixture.h"

#include "allocator/base/file.h"
#include "arena/checkpoint/checkpoint_impl.h"

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
    ashlar__region_pieces_force(0);
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

CASE(pieces_write_the_file_that_is_written_in_place) {
    static const char *const specs[] = {"memory=256MiB", "memory=256MiB,mode=adversarial,seed=3"};
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(set_up_large(specs[i]));
        char *in_place = NULL, *by_pieces = NULL;
        size_t in_place_bytes = 0, bytes = 0;
        draw(arena, 1);
        size_t copies = CALLS(memcpy_dtoh_async);
        REQUIRE(save(STATE) == ASHLAR_OK);
        CHECK_ZU(CALLS(memcpy_dtoh_async), copies); /* nothing is copied */
        REQUIRE(ashlar__file_read(path, &in_place, &in_place_bytes) == ASHLAR_OK);
        ashlar__region_pieces_force(1);
        REQUIRE(save(STATE) == ASHLAR_OK);
        CHECK(CALLS(memcpy_dtoh_async) >= copies + pieces_of(SAVED));
        REQUIRE(ashlar__file_read(path, &by_pieces, &bytes) == ASHLAR_OK);
        CHECK_ZU(bytes, in_place_bytes);
        CHECK(bytes == in_place_bytes && memcmp(by_pieces, in_place, bytes) == 0);
        ashlar__host_free(in_place);
        ashlar__host_free(by_pieces);
        finish_large();
    }
}

/* Both ways, into an arena that is full of other bytes, padding too. */
CASE(a_load_by_pieces_restores_every_byte) {
    static const char *const specs[] = {"memory=256MiB", "memory=256MiB,mode=adversarial,seed=3"};
    for (int forced = 0; forced < 4; forced++) {
        REQUIRE(set_up_large(specs[forced / 2]));
        draw(arena, 2);
        REQUIRE(save(STATE) == ASHLAR_OK);
        ashlar_arena *copy = open_arena_of(LARGE, LARGE_COUNT, ASHLAR_REGIONS_ALL);
        for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
            memset(bytes_of(copy, i), FILLER, size_of(copy, i));
        }
        ashlar__region_pieces_force(forced % 2);
        const size_t copies = CALLS(memcpy_htod_async);
        REQUIRE(load(copy, STATE) == ASHLAR_OK);
        CHECK_ZU(CALLS(memcpy_htod_async), copies + (forced % 2 ? pieces_of(SAVED) : 0));
        check_same_regions(copy, arena, SAVED);
        ashlar_arena_destroy(copy);
        finish_large();
    }
}

CASE(elements_are_converted_piece_by_piece_too) {
    REQUIRE(set_up_large("memory=256MiB"));
    const unsigned regions =
        ASHLAR_REGION_BIT(ASHLAR_REGION_PARAMETERS) | ASHLAR_REGION_BIT(ASHLAR_REGION_MASTER);
    draw(arena, 3);
    REQUIRE(save(0) == ASHLAR_OK);
    ashlar_arena *copies[2];
    for (int forced = 0; forced < 2; forced++) {
        copies[forced] = open_arena_of(CONVERTED, LARGE_COUNT, ASHLAR_REGIONS_ALL);
        ashlar__region_pieces_force(forced);
        CHECK(load(copies[forced], ASHLAR_CHECKPOINT_CONVERT) == ASHLAR_OK);
    }
    check_same_regions(copies[1], copies[0], regions);
    ashlar_arena_destroy(copies[0]);
    ashlar_arena_destroy(copies[1]);
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
    ashlar__region_pieces_force(1);
    for (uint64_t n = 1; n <= pieces_of(SAVED); n++) {
        const size_t waits = CALLS(stream_synchronize);
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_dtoh_async, n, CU_UNKNOWN);
        CHECK(save(STATE) == ASHLAR_EDRIVER);
        CHECK(CALLS(stream_synchronize) > waits && CALLS(stream_synchronize) <= waits + n);
        CHECK(access(path, F_OK) != 0);
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_memcpy_htod_async, n, CU_UNKNOWN);
        const size_t before = CALLS(stream_synchronize);
        CHECK(ashlar_checkpoint_load(arena, file, STATE, streams[0]) == ASHLAR_EDRIVER);
        CHECK(CALLS(stream_synchronize) > before && CALLS(stream_synchronize) <= before + n);
    }
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_synchronize, 2, CU_UNKNOWN);
    CHECK(save(STATE) == ASHLAR_EDRIVER);
    CHECK(access(path, F_OK) != 0);
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    ashlar_checkpoint_close(file);
}

RUN_CASES()
