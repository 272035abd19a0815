/*
 * test_arena_layout.c - declaring tensors and placing them: offsets computed by hand, every
 * refusal with its message, and nothing added by a call that failed.
 */
#include "tests/check.h"

#include <stdint.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/host.h"

static ashlar_arena *arena;

static void tear_down(void) {
    check_forget(tear_down);
    ashlar_arena_destroy(arena);
    arena = NULL;
}

static bool set_up(void) {
    return ashlar_arena_create(&arena) == ASHLAR_OK && check_at_end(tear_down);
}

static void add(const char *name, ashlar_dtype dtype, size_t elements) {
    CHECK(ashlar_arena_add(arena, name, dtype, 1, &elements, NULL) == ASHLAR_OK);
}

static size_t place(void) {
    ashlar__arena_unplace(arena); /* a second time */
    CHECK(ashlar__arena_place(arena) == ASHLAR_OK);
    return arena->bytes[ASHLAR_LAYOUT_STORAGE];
}

/* Placed by ashlar__arena_place(), commit's arithmetic. */
static size_t offset_of(size_t tensor) {
    return arena->tensors[tensor].info.offset[ASHLAR_LAYOUT_STORAGE];
}

static ashlar_tensor_spec vector(const char *name, size_t elements, size_t group_offset) {
    return (ashlar_tensor_spec){.name = name,
                                .dtype = ASHLAR_F32,
                                .rank = 1,
                                .shape = {elements},
                                .group_offset = group_offset};
}

CASE_WITH(what_was_declared_comes_back, set_up()) {
    char name[] = "weight";
    size_t tensor = 77;
    CHECK_ZU(ashlar_arena_tensor_count(arena), 0);
    CHECK_ZU(ashlar_arena_elements(arena), 0);
    add("bias", ASHLAR_F32, 5);
    CHECK(ashlar_arena_add(arena, name, ASHLAR_F64, 4, (size_t[]){2, 3, 5, 7}, &tensor) ==
          ASHLAR_OK);
    CHECK_ZU(tensor, 1);
    memset(name, 'x', sizeof name - 1); /* the arena has its own copy */
    ashlar_tensor_info info;
    ashlar_arena_tensor(arena, 1, &info);
    CHECK(strcmp(info.name, "weight") == 0);
    CHECK(info.dtype == ASHLAR_F64);
    CHECK_ZU(info.rank, 4);
    CHECK(info.shape[0] == 2 && info.shape[1] == 3 && info.shape[2] == 5 && info.shape[3] == 7);
    CHECK_ZU(info.elements, 210);
    CHECK_ZU(info.bytes, 1680);
    CHECK_ZU(info.offset[ASHLAR_LAYOUT_STORAGE], 0);
    ashlar_arena_tensor(arena, 0, &info);
    CHECK(strcmp(info.name, "bias") == 0 && info.dtype == ASHLAR_F32 && info.rank == 1);
    CHECK(info.shape[0] == 5 && info.elements == 5 && info.bytes == 20);
    CHECK_ZU(ashlar_arena_tensor_count(arena), 2);
    CHECK_ZU(ashlar_arena_elements(arena), 215);
}

/* ---- refusals ---- */

/* The arena still holds just "a" of two elements. */
static void check_only_a(void) {
    CHECK_ZU(ashlar_arena_tensor_count(arena), 1);
    CHECK_ZU(arena->group_count, 1);
    CHECK_ZU(ashlar_arena_elements(arena), 2);
    CHECK_ZU(place(), 256);
}

static bool set_up_with_a(void) {
    if (!set_up()) {
        return false;
    }
    add("a", ASHLAR_F32, 2);
    return true;
}

static void refuse(ashlar_status want, const char *name, ashlar_dtype dtype, size_t rank,
                   const size_t *shape, const char *message) {
    size_t tensor = 77;
    CHECK(ashlar_arena_add(arena, name, dtype, rank, shape, &tensor) == want);
    CHECK_ZU(tensor, 77);
    CHECK_HAS(ashlar_error_detail(), message);
    CHECK_HAS(ashlar_error_detail(), name);
    check_only_a();
}

CASE_WITH(bad_tensors_are_refused_by_name, set_up_with_a()) {
    const size_t fine[] = {1, 1, 1, 1, 1}, zero_last[] = {2, 3, 0}, zero_first[] = {0, 2};
    const size_t huge[] = {SIZE_MAX, 2}, wide[] = {SIZE_MAX / 4 + 1};
    refuse(ASHLAR_EINVAL, "t", ASHLAR_F32, 0, fine, "rank 0");
    refuse(ASHLAR_EINVAL, "t", ASHLAR_F32, 5, fine, "rank 5");
    refuse(ASHLAR_EINVAL, "t", ASHLAR_F32, (size_t)1 << 40, fine, "rank 1099511627776");
    refuse(ASHLAR_EINVAL, "t", ASHLAR_DTYPE_COUNT, 1, fine, "type 4");
    refuse(ASHLAR_EINVAL, "t", (ashlar_dtype)-1, 1, fine, "type -1");
    refuse(ASHLAR_EINVAL, "t", ASHLAR_F32, 3, zero_last, "dimension 2 is 0");
    refuse(ASHLAR_EINVAL, "t", ASHLAR_F32, 2, zero_first, "dimension 0 is 0");
    refuse(ASHLAR_EOVERFLOW, "t", ASHLAR_F32, 2, huge, "too many elements");
    refuse(ASHLAR_EOVERFLOW, "t", ASHLAR_F32, 1, wide, "too many bytes");
    refuse(ASHLAR_EINVAL, "a", ASHLAR_F64, 1, fine, "declared twice");
}

static void refuse_group(ashlar_status want, size_t bytes, const ashlar_tensor_spec *specs,
                         size_t count, const char *message) {
    size_t first = 77;
    CHECK(ashlar_arena_add_group(arena, bytes, specs, count, &first) == want);
    CHECK_ZU(first, 77);
    CHECK_HAS(ashlar_error_detail(), message);
    check_only_a();
}

CASE_WITH(bad_groups_are_refused_whole, set_up_with_a()) {
    const ashlar_tensor_spec twice[] = {vector("x", 1, 0), vector("y", 1, 4), vector("x", 1, 8)};
    const ashlar_tensor_spec last_twice[] = {
        vector("x", 1, 0), vector("y", 1, 4), vector("y", 1, 8)};
    const ashlar_tensor_spec known[] = {vector("x", 1, 0), vector("a", 1, 4)};
    const ashlar_tensor_spec bad_second[] = {vector("x", 1, 0), vector("y", 0, 4)};
    const ashlar_tensor_spec bad_type = {
        .name = "x", .dtype = ASHLAR_DTYPE_COUNT, .rank = 1, .shape = {1}};
    refuse_group(ASHLAR_EINVAL, 12, twice, 3, "tensor x is declared twice");
    refuse_group(ASHLAR_EINVAL, 8, twice + 1, 2, "tensor x: 4 bytes at offset 8"); /* not both */
    refuse_group(ASHLAR_EINVAL, 12, last_twice, 3, "tensor y is declared twice");
    refuse_group(ASHLAR_EINVAL, 12, known, 2, "tensor a is declared twice");
    refuse_group(ASHLAR_EINVAL, 12, bad_second, 2, "tensor y: dimension 0 is 0");
    refuse_group(ASHLAR_EINVAL, 12, &bad_type, 1, "tensor x");
    refuse_group(ASHLAR_EINVAL, 12, twice, 0, "a group without tensors");
}

CASE_WITH(a_tensor_must_lie_inside_its_group_at_its_alignment, set_up_with_a()) {
    ashlar_tensor_spec spec = vector("x", 3, 4);
    refuse_group(ASHLAR_EINVAL, 15, &spec, 1, "tensor x: 12 bytes at offset 4 do not fit");
    CHECK_HAS(ashlar_error_detail(), "15 bytes");
    spec = vector("x", 3, SIZE_MAX - 11); /* the end wraps to 0 */
    refuse_group(ASHLAR_EINVAL, 1000, &spec, 1, "do not fit");
    spec = vector("x", 1, 2);
    refuse_group(ASHLAR_EINVAL, 1000, &spec, 1, "at offset 2");
    spec.dtype = ASHLAR_F64;
    spec.group_offset = 4; /* enough for fp32 only */
    refuse_group(ASHLAR_EINVAL, 1000, &spec, 1, "at offset 4");
    spec = vector("x", 3, 4);
    CHECK(ashlar_arena_add_group(arena, 16, &spec, 1, NULL) == ASHLAR_OK);
}

CASE_WITH(a_group_has_one_type, set_up_with_a()) {
    ashlar_tensor_spec specs[] = {vector("x", 2, 0), vector("y", 1, 8)};
    specs[1].dtype = ASHLAR_F64;
    refuse_group(ASHLAR_EINVAL, 16, specs, 2, "tensors x and y have two types");
}

CASE_WITH(a_name_that_is_not_there_is_not_found, set_up()) {
    size_t found = 77;
    CHECK(ashlar_arena_find(arena, "a", &found) == ASHLAR_EINVAL);
    add("a", ASHLAR_F32, 2);
    CHECK(ashlar_arena_find(arena, "", &found) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_arena_find(arena, "b", &found), ASHLAR_EINVAL, "no tensor b");
    CHECK_ZU(found, 77);
    CHECK(ashlar_arena_find(arena, "a", &found) == ASHLAR_OK);
    CHECK_ZU(found, 0);
}

CASE_WITH(tensors_of_a_group_may_touch_but_not_overlap, set_up_with_a()) {
    const struct {
        size_t elements, offset;
    } overlapping[] = {{2, 12}, {2, 4}, {4, 8}, {1, 12}, {8, 4}, {1, 8}, {1, 20}};
    ashlar_tensor_spec specs[3] = {vector("far", 1, 40), vector("x", 4, 8)}; /* x is 8 .. 24 */
    for (size_t i = 0; i < sizeof overlapping / sizeof overlapping[0]; i++) {
        specs[2] = vector("y", overlapping[i].elements, overlapping[i].offset);
        refuse_group(ASHLAR_EINVAL, 64, specs, 3, "tensor y overlaps tensor x");
    }
    specs[2] = vector("y", 2, 40);
    refuse_group(ASHLAR_EINVAL, 64, specs, 3, "tensor y overlaps tensor far");
    const ashlar_tensor_spec touching[] = {
        vector("x", 4, 8), vector("y", 2, 0), vector("z", 1, 24)};
    CHECK(ashlar_arena_add_group(arena, 28, touching, 3, NULL) == ASHLAR_OK);
}

/* ---- sizes that do not fit ---- */

CASE_WITH(the_largest_region_is_placed_and_one_element_more_is_not, set_up()) {
    const size_t limit = (SIZE_MAX - 255) / 4; /* elements: 2^64 - 256 bytes */
    add("t", ASHLAR_F32, limit);
    CHECK_ZU(place(), SIZE_MAX - 255);
    tear_down();
    REQUIRE(set_up());
    add("t", ASHLAR_F32, limit + 1);
    CHECK(ashlar__arena_place(arena) == ASHLAR_EOVERFLOW);
    CHECK_ZU(arena->bytes[ASHLAR_LAYOUT_STORAGE], 0);
    CHECK_HAS(ashlar_error_detail(), "too large together");
}

CASE_WITH(tensors_that_fit_alone_but_not_together_are_refused, set_up()) {
    const size_t half = SIZE_MAX / 8 + 1; /* elements: 2^63 bytes */
    add("a", ASHLAR_F32, 1);
    add("b", ASHLAR_F32, half);
    CHECK_ZU(place(), 256 + (SIZE_MAX / 2 + 1));
    add("c", ASHLAR_F32, half);
    add("d", ASHLAR_F32, 1);
    CHECK(ashlar__arena_place(arena) == ASHLAR_EOVERFLOW);
    CHECK_ZU(arena->bytes[ASHLAR_LAYOUT_STORAGE], 0);
    CHECK_ZU(offset_of(1), 0); /* not placed any more */
    CHECK_ZU(offset_of(2), 0);
}

/* ---- no host memory ---- */

CASE(failing_host_memory_adds_nothing) {
    const ashlar_tensor_spec specs[] = {vector("x", 1, 0), vector("y", 1, 4), vector("z", 1, 8)};
    ashlar_status status = ASHLAR_EHOSTMEM;
    unsigned long n = 0;
    while (status != ASHLAR_OK && n < 500) {
        REQUIRE(set_up());
        size_t first = 77;
        HOST_FAILS_AT(++n, status = ashlar_arena_add_group(arena, 12, specs, 3, &first));
        if (status != ASHLAR_OK) {
            CHECK_FAILS(status, ASHLAR_EHOSTMEM,
                        n <= 4   ? "tensor x"
                        : n == 5 ? "tensor y"
                                 : "tensor z");
            CHECK_ZU(first, 77);
            CHECK_ZU(ashlar_arena_tensor_count(arena), 0);
            CHECK_ZU(arena->group_count, 0);
            CHECK(ashlar_arena_add_group(arena, 12, specs, 3, &first) == ASHLAR_OK);
        }
        CHECK_ZU(first, 0);
        CHECK_ZU(ashlar_arena_tensor_count(arena), 3);
        tear_down();
    }
    CHECK_ZU(n, 7); /* three arrays and three names */
    ashlar__host_fail_at(1);
    CHECK(ashlar_arena_create(&arena) == ASHLAR_EHOSTMEM);
    CHECK(arena == NULL);
}

RUN_CASES()
