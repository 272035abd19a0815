/*
 * test_arena_place.c - three layouts, buckets and runs: offsets computed by hand, and the
 * equations of arena_impl.h for made-up arenas.
 */
#include "tests/check.h"

#include <stdint.h>

#include "arena/layout/arena_impl.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

static ashlar_arena *arena;
static uint64_t state;

static size_t below(size_t limit) {
    return (size_t)ashlar__random_step_below(&state, limit);
}

static void tear_down(void) {
    check_forget(tear_down);
    ashlar_arena_destroy(arena);
    arena = NULL;
}

static void add(const char *name, ashlar_dtype dtype, size_t elements) {
    CHECK(ashlar_arena_add(arena, name, dtype, 1, &elements, NULL) == ASHLAR_OK);
}

static size_t offset_of(size_t tensor, ashlar_layout layout) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(arena, tensor, &info);
    return info.offset[layout];
}

/* F16 [100], F32 [3], BF16 [129], F64 [33]. */
static bool set_up_mixed(void) {
    if (ashlar_arena_create(&arena) != ASHLAR_OK) {
        return false;
    }
    add("half", ASHLAR_F16, 100);   /* 200 B: one line of 128 elements */
    add("single", ASHLAR_F32, 3);   /* one line of 64 */
    add("brain", ASHLAR_BF16, 129); /* two lines of 128 */
    add("double", ASHLAR_F64, 33);  /* two lines of 32 */
    return check_at_end(tear_down);
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
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    add("a", ASHLAR_F32, 64);
    add("b", ASHLAR_F32, 192);
    add("c", ASHLAR_F32, 128);
    add("d", ASHLAR_F32, 1);
    add("e", ASHLAR_F32, 1);
    CHECK(ashlar_arena_set_buckets(arena, 512, 3) == ASHLAR_OK);
    REQUIRE(ashlar__arena_place(arena) == ASHLAR_OK);
    CHECK_ZU(ashlar_arena_bucket_count(arena), 4);
    check_bucket(3, 0, 768, ASHLAR_F32, 0, 1);
    check_bucket(2, 768, 768, ASHLAR_F32, 1, 1);
    check_bucket(1, 1536, 768, ASHLAR_F32, 2, 1);
    check_bucket(0, 2304, 768, ASHLAR_F32, 3, 2);
    CHECK_ZU(offset_of(4, ASHLAR_LAYOUT_STORAGE), 2560);
    CHECK_ZU(arena->bytes[ASHLAR_LAYOUT_STORAGE], 3072);
    tear_down();
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

/* ---- runs ---- */

CASE(runs_end_where_type_or_options_change) {
    const ashlar_tensor_spec stack[] = {{"w", ASHLAR_F32, 1, {10}, 0},
                                        {"b", ASHLAR_F32, 1, {2}, 48},
                                        {"r", ASHLAR_F32, 1, {2}, 40}};
    ashlar_arena_run runs[6];
    REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
    add("a", ASHLAR_F32, 3);
    CHECK(ashlar_arena_add_group(arena, 60, stack, 3, NULL) == ASHLAR_OK);
    add("h", ASHLAR_F16, 130);
    add("f", ASHLAR_F16, 1);
    CHECK(ashlar_arena_set_options(arena, 2, &(ashlar_tensor_options){.has_no_decay = true}) ==
          ASHLAR_OK);
    CHECK(ashlar_arena_set_options(arena, 1, &(ashlar_tensor_options){.rate_scale = 1}) ==
          ASHLAR_OK); /* as unset */
    CHECK(ashlar_arena_set_options(arena, 5, &(ashlar_tensor_options){.is_frozen = true}) ==
          ASHLAR_OK);
    REQUIRE(ashlar__arena_place(arena) == ASHLAR_OK);
    /* By address: a 0, w 256, r 296, b 304; the group ends at 316 and is padded to 512. */
    CHECK_ZU(ashlar__arena_runs(arena, runs), 4);
    CHECK_ZU(runs[0].elements, 304 / 4);
    CHECK_ZU(runs[0].count, 3);
    CHECK(runs[0].options.rate_scale == 1 && !runs[0].options.has_no_decay);
    CHECK_ZU(runs[1].offset[ASHLAR_LAYOUT_STORAGE], 304);
    CHECK_ZU(runs[1].elements, (512 - 304) / 4);
    CHECK(runs[1].options.has_no_decay && runs[1].options.rate_scale == 1);
    CHECK(runs[2].dtype == ASHLAR_F16);
    CHECK_ZU(runs[2].offset[ASHLAR_LAYOUT_STORAGE], 512);
    CHECK_ZU(runs[2].offset[ASHLAR_LAYOUT_STATE], 512);
    CHECK_ZU(runs[2].offset[ASHLAR_LAYOUT_MASTER], 0);
    CHECK_ZU(runs[2].elements, 256);
    CHECK(runs[3].options.is_frozen);
    CHECK_ZU(runs[3].offset[ASHLAR_LAYOUT_STORAGE], 1024);
    CHECK_ZU(runs[3].offset[ASHLAR_LAYOUT_STATE], 1536);
    CHECK_ZU(runs[3].offset[ASHLAR_LAYOUT_MASTER], 1024);
    CHECK_ZU(runs[3].elements, 128);
    CHECK_ZU(runs[3].first, 5);
    tear_down();
}

CASE_WITH(bad_options_are_refused_by_name, set_up_mixed()) {
    CHECK_FAILS(ashlar_arena_set_options(arena, 4, &(ashlar_tensor_options){0}), ASHLAR_EINVAL,
                "no tensor 4");
    const double bad[] = {-1, INFINITY, NAN};
    for (size_t i = 0; i < 3; i++) {
        CHECK_FAILS(
            ashlar_arena_set_options(arena, 1, &(ashlar_tensor_options){.rate_scale = bad[i]}),
            ASHLAR_EINVAL, "tensor single: rate_scale");
    }
}

/* ---- made-up arenas ---- */

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
                                                   .rate_scale = (double)below(2) / 2};
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
    const size_t count = ashlar__arena_runs(arena, runs);
    size_t end = 0, next = 0;
    for (size_t r = 0; r < count; r++) {
        const ashlar_arena_run *run = &runs[r];
        const size_t item = ashlar_dtype_bytes(run->dtype);
        CHECK_ZU(run->offset[ASHLAR_LAYOUT_STORAGE], end);
        CHECK_ZU(run->first, next);
        end += run->elements * item;
        next += run->count;
        for (size_t i = 0; i < run->count; i++) {
            const ashlar_tensor_info *info = &arena->tensors[arena->order[run->first + i]].info;
            const size_t at = (info->offset[0] - run->offset[0]) / item;
            CHECK(info->dtype == run->dtype && info->options.is_frozen == run->options.is_frozen &&
                  info->options.has_no_decay == run->options.has_no_decay);
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
        REQUIRE(ashlar_arena_create(&arena) == ASHLAR_OK);
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
