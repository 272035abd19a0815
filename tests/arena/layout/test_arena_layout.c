/*
 * test_arena_layout.c - declaring tensors and placing them in three layouts, buckets and runs:
 * offsets computed by hand, every refusal with its message, and nothing added by a call that
 * failed.
 */
#include "tests/check.h"

#include <stdint.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

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

static ashlar_tensor_spec vector(const char *name, size_t elements, size_t group_offset) {
    return (ashlar_tensor_spec){.name = name,
                                .dtype = ASHLAR_F32,
                                .rank = 1,
                                .shape = {elements},
                                .group_offset = group_offset};
}

/* ---- refusals ---- */

/* The arena still holds just "a" of two elements. */
static void check_only_a(void) {
    CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, 1);
    CHECK_ZU(arena->group_count, 1);
    CHECK_ZU(ashlar_arena_get_info(arena).elements, 2);
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
    const ashlar_tensor_spec last_twice[] = {vector("x", 1, 0), vector("y", 1, 4),
                                             vector("y", 1, 8)};
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
    const ashlar_tensor_spec touching[] = {vector("x", 4, 8), vector("y", 2, 0),
                                           vector("z", 1, 24)};
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
            CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, 0);
            CHECK_ZU(arena->group_count, 0);
            CHECK(ashlar_arena_add_group(arena, 12, specs, 3, &first) == ASHLAR_OK);
        }
        CHECK_ZU(first, 0);
        CHECK_ZU(ashlar_arena_get_info(arena).tensor_count, 3);
        tear_down();
    }
    CHECK_ZU(n, 7); /* three arrays and three names */
    ashlar__host_fail_at(1);
    CHECK(ashlar_arena_create(&arena) == ASHLAR_EHOSTMEM);
    CHECK(arena == NULL);
}

/* F16 [100], F32 [3], BF16 [129], F64 [33]. */
static bool set_up_mixed(void) {
    if (!set_up()) {
        return false;
    }
    add("half", ASHLAR_F16, 100);   /* 200 B: one line of 128 elements */
    add("single", ASHLAR_F32, 3);   /* one line of 64 */
    add("brain", ASHLAR_BF16, 129); /* two lines of 128 */
    add("double", ASHLAR_F64, 33);  /* two lines of 32 */
    return true;
}

/* ---- buckets ---- */

static void check_bucket(size_t i, size_t offset, size_t bytes, ashlar_dtype dtype, size_t first,
                         size_t count) {
    ashlar_arena_bucket b;
    ashlar_arena_get_bucket(arena, i, &b);
    CHECK_ZU(b.offset, offset);
    CHECK_ZU(b.bytes, bytes);
    CHECK(b.dtype == dtype);
    CHECK_ZU(b.first_tensor, first);
    CHECK_ZU(b.tensor_count, count);
}

/* Lines of 256 B: 1, 3, 2, 1, 1; closed at 512 B from the end; three shards each. */
CASE(buckets_are_closed_from_the_end_and_padded_to_equal_shards) {
    REQUIRE(set_up());
    add("a", ASHLAR_F32, 64);
    add("b", ASHLAR_F32, 192);
    add("c", ASHLAR_F32, 128);
    add("d", ASHLAR_F32, 1);
    add("e", ASHLAR_F32, 1);
    CHECK(ashlar_arena_set_buckets(arena, 512, 3) == ASHLAR_OK);
    REQUIRE(ashlar__arena_place(arena) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_get_info(arena).bucket_count, 4);
    check_bucket(3, 0, 768, ASHLAR_F32, 0, 1);
    check_bucket(2, 768, 768, ASHLAR_F32, 1, 1);
    check_bucket(1, 1536, 768, ASHLAR_F32, 2, 1);
    check_bucket(0, 2304, 768, ASHLAR_F32, 3, 2);
    CHECK_ZU(arena->tensors[4].info.offset[ASHLAR_LAYOUT_STORAGE], 2560);
    CHECK_ZU(arena->bytes[ASHLAR_LAYOUT_STORAGE], 3072);
}

CASE_WITH(bad_buckets_are_refused, set_up_mixed()) {
    CHECK(ashlar_arena_set_buckets(arena, 0, 1) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_arena_set_buckets(arena, 1, 0), ASHLAR_EINVAL,
                "buckets of 1 bytes for a world of 0");
    CHECK(ashlar_arena_set_buckets(arena, 1, SIZE_MAX / 16) == ASHLAR_OK);
    CHECK(ashlar__arena_place(arena) == ASHLAR_EOVERFLOW);
    CHECK(ashlar_arena_set_buckets(arena, 1, SIZE_MAX / 256) == ASHLAR_OK);
    CHECK(ashlar__arena_place(arena) == ASHLAR_EOVERFLOW); /* four of them do not fit */
}

CASE_WITH(bad_options_are_refused_by_name, set_up_mixed()) {
    CHECK_FAILS(ashlar_arena_set_options(arena, 4, &(ashlar_tensor_options){0}), ASHLAR_EINVAL,
                "no tensor 4");
    const double bad[] = {-1, INFINITY, NAN};
    for (size_t i = 0; i < 3; i++) {
        CHECK_FAILS(
            ashlar_arena_set_options(arena, 1, &(ashlar_tensor_options){.rate_scale = bad[i]}),
            ASHLAR_EINVAL, "tensor single: rate_scale");
        CHECK_FAILS(
            ashlar_arena_set_options(arena, 1, &(ashlar_tensor_options){.decay_scale = bad[i]}),
            ASHLAR_EINVAL, "decay_scale");
    }
}

/* ---- made-up arenas keep the equations of arena_impl.h ---- */

static uint64_t state;

static size_t below(size_t limit) {
    return (size_t)ashlar__random_step_below(&state, limit);
}

static void declare_at_random(void) {
    const size_t groups = 1 + below(40);
    size_t number = 0;
    for (size_t g = 0; g < groups; g++) {
        ashlar_tensor_spec specs[5];
        char names[5][16];
        const ashlar_dtype dtype = (ashlar_dtype)below(ASHLAR_DTYPE_COUNT);
        const size_t item = ashlar_dtype_bytes(dtype), count = 1 + below(5);
        size_t end = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t elements = 1 + below(300);
            (void)snprintf(names[i], sizeof names[i], "t%zu", number++);
            end += below(3) * item;
            specs[i] = (ashlar_tensor_spec){names[i], dtype, 1, {elements}, end};
            end += elements * item;
        }
        const ashlar_tensor_spec last = specs[count - 1]; /* declaration is not address order */
        specs[count - 1] = specs[0];
        specs[0] = last;
        size_t first = 0;
        CHECK(ashlar_arena_add_group(arena, end + below(100) * item, specs, count, &first) ==
              ASHLAR_OK);
        for (size_t i = 0; i < count; i++) {
            const ashlar_tensor_options options = {.is_frozen = below(4) == 0,
                                                   .has_no_decay = below(3) == 0,
                                                   .rate_scale = (double)below(2) / 2,
                                                   .decay_scale = (double)below(2) / 2};
            CHECK(ashlar_arena_set_options(arena, first + i, &options) == ASHLAR_OK);
        }
    }
}

static size_t state_bytes(ashlar_dtype dtype) {
    return dtype == ASHLAR_F64 ? 8 : 4;
}

/* The buckets cover the storage layout from the end, each in equal shards. */
static void check_buckets(size_t world_size) {
    size_t end = arena->bytes[ASHLAR_LAYOUT_STORAGE], tensors = arena->tensor_count;
    for (size_t i = 0; i < arena->bucket_count; i++) {
        const ashlar_arena_bucket *b = &arena->buckets[i];
        CHECK_ZU(b->offset + b->bytes, end);
        CHECK_ZU(b->bytes % (256 * world_size), 0);
        CHECK_ZU(b->first_tensor + b->tensor_count, tensors);
        for (size_t t = b->first_tensor; t < tensors; t++) {
            const ashlar_tensor_info *info = &arena->tensors[t].info;
            CHECK(info->dtype == b->dtype && info->offset[0] >= b->offset &&
                  info->offset[0] + info->bytes <= end);
        }
        end = b->offset;
        tensors = b->first_tensor;
    }
    CHECK_ZU(end, 0);
    CHECK_ZU(tensors, 0);
}

/* Element i of a run stands at the same place of it in every layout, tensor by tensor. */
static void check_runs(void) {
    ashlar_arena_run *runs = calloc(arena->tensor_count, sizeof *runs);
    REQUIRE(runs != NULL);
    const size_t count = ashlar__arena_runs(arena, false, runs);
    size_t end = 0, next = 0;
    for (size_t r = 0; r < count; r++) {
        const ashlar_arena_run *run = &runs[r];
        const size_t item = ashlar_dtype_bytes(run->dtype);
        CHECK_ZU(run->offset[ASHLAR_LAYOUT_STORAGE], end);
        CHECK_ZU(run->first, next);
        end += run->elements * item;
        next += run->count;
        const ashlar_arena_entry *tensors = arena->tensors;
        CHECK(r == 0 || run->dtype != run[-1].dtype || /* a run ends only where something changes */
              tensors[arena->order[run->first]].is_apart ||
              tensors[arena->order[run->first - 1]].is_apart ||
              memcmp(&run->options, &run[-1].options, sizeof run->options) != 0);
        for (size_t i = 0; i < run->count; i++) {
            const ashlar_tensor_info *info = &arena->tensors[arena->order[run->first + i]].info;
            const size_t at = (info->offset[0] - run->offset[0]) / item;
            CHECK(info->dtype == run->dtype && info->options.is_frozen == run->options.is_frozen &&
                  info->options.has_no_decay == run->options.has_no_decay &&
                  (info->options.decay_scale > 0) == (run->options.decay_scale < 1));
            CHECK_ZU(info->offset[ASHLAR_LAYOUT_STATE],
                     run->offset[ASHLAR_LAYOUT_STATE] + at * state_bytes(info->dtype));
            CHECK_ZU(info->offset[ASHLAR_LAYOUT_MASTER],
                     ashlar_dtype_is_narrow(info->dtype)
                         ? run->offset[ASHLAR_LAYOUT_MASTER] + at * sizeof(float)
                         : 0);
        }
    }
    CHECK_ZU(end, arena->bytes[ASHLAR_LAYOUT_STORAGE]);
    CHECK_ZU(next, arena->tensor_count);
    free(runs);
}

CASE(made_up_arenas_keep_the_equations) {
    for (state = 1; state <= 60 * 0x10001; state += 0x10001) {
        const uint64_t seed = state;
        REQUIRE(set_up());
        const size_t world_size = 1 + below(8);
        CHECK(ashlar_arena_set_buckets(arena, 1 + below(5000), world_size) == ASHLAR_OK);
        declare_at_random();
        REQUIRE(ashlar__arena_place(arena) == ASHLAR_OK);
        check_buckets(world_size);
        check_runs();
        tear_down();
        state = seed;
    }
}

RUN_CASES()
