/*
 * test_load_names.c - files of other programs: names that are mapped or left out, what does not
 * fit, and a load of the rest.
 */
#include "tests/arena/checkpoint/checkpoint_fixture.h"

#include "arena/compute/convert.h"

enum { STATE = ASHLAR_CHECKPOINT_STATE, PARTIAL = ASHLAR_CHECKPOINT_PARTIAL, HEADER_BYTES = 2048 };

/* A file of this header, with the bytes 1, 2, 3 ... as its data. */
static void write_raw(const char *header, size_t data_bytes) {
    unsigned char little[8] = {(unsigned char)(strlen(header) & 0xff),
                               (unsigned char)(strlen(header) >> 8)};
    FILE *file = fopen(path, "we");
    REQUIRE(file != NULL && strlen(header) < HEADER_BYTES);
    CHECK(fwrite(little, 1, sizeof little, file) == sizeof little);
    CHECK(fputs(header, file) >= 0);
    for (size_t i = 0; i < data_bytes; i++) {
        CHECK(fputc((int)(i + 1) & 0xff, file) != EOF);
    }
    CHECK(fclose(file) == 0);
}

static ashlar_status load_with(ashlar_arena *into, const ashlar_load_options *options,
                               ashlar_load_report *report) {
    ashlar_checkpoint *file = NULL;
    CHECK(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    const ashlar_status status =
        file == NULL ? ASHLAR_EIO : ashlar_checkpoint_load(into, file, options, streams[0], report);
    ashlar_checkpoint_close(file);
    return status;
}

static ashlar_status load_renamed(ashlar_arena *into, unsigned flags,
                                  const ashlar_checkpoint_pair *renames, size_t count,
                                  ashlar_load_report *report) {
    return load_with(
        into, &(ashlar_load_options){.flags = flags, .renames = renames, .rename_count = count},
        report);
}

static void check_counts(const ashlar_load_report *r, size_t loaded, size_t missing,
                         size_t left_over, size_t other_shape, size_t other_type) {
    CHECK_ZU(r->loaded, loaded);
    CHECK_ZU(r->missing.count, missing);
    CHECK_ZU(r->left_over.count, left_over);
    CHECK_ZU(r->other_shape.count, other_shape);
    CHECK_ZU(r->other_type.count, other_type);
    CHECK((r->missing.first == NULL) == (missing == 0));
    CHECK((r->left_over.first == NULL) == (left_over == 0));
    CHECK((r->other_shape.first == NULL) == (other_shape == 0));
    CHECK((r->other_type.first == NULL) == (other_type == 0));
}

/* ---- names ---- */

/* The names of MODEL as another program has them, and one tensor more. */
static const tensor FOREIGN[] = {
    {"module.first", ASHLAR_F32, 2, {3, 7}},      {"module.wide", ASHLAR_F64, 1, {32}},
    {"decoder.h", ASHLAR_F16, 2, {5, 3}},         {"brain", ASHLAR_BF16, 1, {9}},
    {"module.last", ASHLAR_F32, 4, {2, 1, 3, 5}}, {"module.head.w", ASHLAR_F32, 1, {4}}};
enum { FOREIGN_COUNT = sizeof FOREIGN / sizeof FOREIGN[0] };

/* The values of tensor i of `other` are in `arena` too, in every region that both have. */
static void check_same_parts(const ashlar_arena *other, size_t count) {
    for (size_t i = 0; i < count; i++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        for (int region = 0; region < ASHLAR_REGION_COUNT; region++) {
            const void *got = ashlar_arena_view(arena, (ashlar_region)region, i);
            const void *want = ashlar_arena_view(other, (ashlar_region)region, i);
            CHECK(got == NULL || want == NULL || region == ASHLAR_REGION_GRADIENTS ||
                  memcmp(got, want, part_bytes(region, &info)) == 0);
        }
    }
}

static ashlar_arena *save_foreign(unsigned flags) {
    ashlar_arena *other = open_arena_of(FOREIGN, FOREIGN_COUNT, ASHLAR_REGIONS_ALL);
    draw(other, 3);
    CHECK(ashlar_checkpoint_save(other, path, flags, NULL, 0, streams[0]) == ASHLAR_OK);
    return other;
}

CASE_WITH(names_and_prefixes_are_mapped_and_the_state_follows, set_up_all()) {
    static const ashlar_checkpoint_pair renames[] = {
        {"module.head.", NULL}, {"module.", ""}, {"decoder.h", "half"}, {"decoder", "none"}};
    for (unsigned flags = 0; flags <= STATE; flags += STATE) {
        ashlar_load_report report;
        ashlar_arena *other = save_foreign(flags);
        draw(arena, 4);
        if (flags == 0) {
            memcpy(bytes_of(other, ASHLAR_REGION_MOMENT1), bytes_of(arena, ASHLAR_REGION_MOMENT1),
                   size_of(arena, ASHLAR_REGION_MOMENT1));
            memcpy(bytes_of(other, ASHLAR_REGION_MOMENT2), bytes_of(arena, ASHLAR_REGION_MOMENT2),
                   size_of(arena, ASHLAR_REGION_MOMENT2));
        }
        CHECK(load_renamed(arena, flags, renames, 4, &report) == ASHLAR_OK);
        check_counts(&report, flags == STATE ? TENSORS + STATES : TENSORS, 0, 0, 0, 0);
        CHECK_ZU(report.converted, 0);
        if (flags == STATE) {
            check_same_parts(other, TENSORS);
        }
        ashlar_arena_destroy(other);
    }
}

CASE_WITH(a_prefix_may_be_added_and_the_first_pair_counts, set_up_arena("memory=64MiB", 1)) {
    const tensor named[] = {{"encoder.a", ASHLAR_F32, 1, {3}}, {"b", ASHLAR_F32, 1, {2}}};
    const tensor plain[] = {{"a", ASHLAR_F32, 1, {3}}, {"other", ASHLAR_F32, 1, {2}}};
    static const ashlar_checkpoint_pair renames[] = {
        {"other", "b"}, {"other", "c"}, {"", "encoder."}, {"a", "c"}};
    ashlar_arena *into = open_arena_of(named, 2, 1);
    CHECK(write_tensors(plain, 2) == ASHLAR_OK);
    CHECK_FAILS(load_renamed(into, 0, NULL, 0, NULL), ASHLAR_EFORMAT,
                "not in the file: 'encoder.a' and 1 more; not of this model: 'a' and 1 more");
    CHECK(load_renamed(into, 0, renames, 4, NULL) == ASHLAR_OK);
    ashlar_arena_destroy(into);
}

static const char *upper_half(void *user, const char *name) {
    ++*(int *)user;
    return strcmp(name, "module.head.w") == 0                    ? NULL
           : strncmp(name, "module.", sizeof "module." - 1) == 0 ? name + sizeof "module." - 1
           : strcmp(name, "decoder.h") == 0                      ? "half"
                                                                 : name;
}

CASE_WITH(a_function_maps_names, set_up_all()) {
    static const ashlar_checkpoint_pair unused = {"", NULL};
    int calls = 0;
    ashlar_arena *other = save_foreign(STATE);
    draw(arena, 4);
    CHECK(load_with(arena,
                    &(ashlar_load_options){.flags = STATE,
                                           .renames = &unused,
                                           .rename_count = 1,
                                           .map = upper_half,
                                           .user = &calls},
                    NULL) == ASHLAR_OK);
    check_same_parts(other, TENSORS);
    CHECK(calls > FOREIGN_COUNT);
    ashlar_arena_destroy(other);
}

CASE_WITH(a_file_is_searched_by_the_names_that_a_load_gives, set_up_all()) {
    static const ashlar_checkpoint_pair renames[] = {{"module.head.", NULL}, {"module.", ""}};
    const ashlar_load_options options = {.renames = renames, .rename_count = 2};
    ashlar_checkpoint *file = NULL;
    ashlar_arena *other = save_foreign(0);
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    const ashlar_checkpoint_tensor *first = ashlar_checkpoint_find(file, &options, "first");
    CHECK(first != NULL && strcmp(first->name, "module.first") == 0 && first->shape[1] == 7);
    CHECK(ashlar_checkpoint_find(file, NULL, "module.first") == first);
    CHECK(ashlar_checkpoint_find(file, NULL, "first") == NULL);
    CHECK(ashlar_checkpoint_find(file, &options, "module.first") == NULL);
    CHECK(ashlar_checkpoint_find(file, &options, "head.w") == NULL);
    CHECK(ashlar_checkpoint_find(file, &options, "module.head.w") == NULL);
    ashlar_checkpoint_close(file);
    ashlar_arena_destroy(other);
}

CASE_WITH(two_names_for_one_tensor_are_refused, set_up_all()) {
    static const ashlar_checkpoint_pair renames[] = {{"more", "first"}};
    static image before;
    tensor other[TENSORS + 1];
    memcpy(other, MODEL, sizeof MODEL);
    other[TENSORS] = (tensor){"more", ASHLAR_F32, 2, {3, 7}};
    CHECK(write_tensors(other, TENSORS + 1) == ASHLAR_OK);
    draw(arena, 5);
    take_image(arena, &before);
    for (unsigned flags = 0; flags <= PARTIAL; flags += PARTIAL) {
        CHECK_FAILS(load_renamed(arena, flags, renames, 1, NULL), ASHLAR_EINVAL,
                    "'first' and 'more' are both mapped to 'first'");
        CHECK(is_same(arena, &before));
    }
}

/* ---- what does not fit ---- */

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Of MODEL: "first" in another type, "wide" of another, "half" of another shape, "brain" as I16,
 * "last" missing; and three that are not of it. */
static void write_misfits(void) {
    write_raw(
        "{" T("first", "F16", "[3,7]", "[0,42]") "," T("wide", "I64", "[32]", "[42,298]") "," T(
            "half", "F16", "[3,5]",
            "[298,328]") "," T("brain", "BF16", "[]",
                               "[328,330]") "," T("num_batches", "I64", "[]",
                                                  "[330,338]") "," T("mask", "BOOL", "[2]",
                                                                     "[338,340]") "," T("opti"
                                                                                        "mize"
                                                                                        "r."
                                                                                        "mome"
                                                                                        "nt1."
                                                                                        "firs"
                                                                                        "t",
                                                                                        "F16",
                                                                                        "[3,"
                                                                                        "7]",
                                                                                        "[340"
                                                                                        ",382"
                                                                                        "]") "}",
        382);
}

CASE_WITH(all_that_does_not_fit_is_named_in_one_line, set_up_all()) {
    static image before;
    ashlar_load_report report;
    write_misfits();
    draw(arena, 6);
    take_image(arena, &before);
    CHECK_FAILS(load_with(arena, NULL, &report), ASHLAR_EFORMAT,
                "not in the file: 'last'; not of this model: 'num_batches' and 1 more; of another "
                "shape: 'half' and 1 more; of another type: 'wide'; 'wide' is I64 [32] there, and "
                "F64 [32] in this model; rename or leave out tensors, or load a part");
    CHECK(strchr(ashlar_error_detail(), '\n') == NULL);
    check_counts(&report, 1, 1, 2, 2, 1);
    CHECK(is_same(arena, &before));
    CHECK_FAILS(load_with(arena, &(ashlar_load_options){.flags = STATE}, &report), ASHLAR_EFORMAT,
                "not in the file: 'last' and 9 more; not of this model: 'num_batches' and 1 more; "
                "of another shape: 'half' and 1 more; of another type: 'wide' and 1 more");
    CHECK(is_same(arena, &before));
}

CASE_WITH(a_part_is_loaded_and_the_rest_stays, set_up_all()) {
    static image before;
    ashlar_load_report report;
    uint16_t file_values[21];
    write_misfits();
    draw(arena, 6);
    take_image(arena, &before);
    for (size_t i = 0; i < sizeof file_values; i++) {
        ((unsigned char *)file_values)[i] = (unsigned char)(i + 1);
    }
    ashlar_checkpoint *file = NULL; /* it owns names of the report */
    REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
    CHECK(ashlar_checkpoint_load(arena, file, &(ashlar_load_options){.flags = PARTIAL | STATE},
                                 streams[0], &report) == ASHLAR_OK);
    check_counts(&report, 1, 10, 2, 2, 2);
    CHECK_ZU(report.converted, 1);
    CHECK(strcmp(report.left_over.first, "num_batches") == 0);
    CHECK(strcmp(report.missing.first, "last") == 0);
    ashlar_checkpoint_close(file);
    float *first = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 0);
    for (int i = 0; i < 21; i++) {
        const float want = ashlar__float_from_f16(file_values[i]);
        CHECK(memcmp(&first[i], &want, sizeof want) == 0);
    }
    memcpy(first, before.bytes[ASHLAR_REGION_PARAMETERS], sizeof(float) * 21); /* is it that? */
    CHECK(is_same(arena, &before));
}

CASE_WITH(masters_follow_their_parameters_into_a_part, set_up_all()) {
    const tensor some[] = {{"half", ASHLAR_F16, 2, {5, 3}},
                           {"optimizer.master.half", ASHLAR_F32, 1, {15}},
                           {"optimizer.master.brain", ASHLAR_F32, 1, {9}}};
    static image before;
    ashlar_load_report report;
    CHECK(write_tensors(some, 3) == ASHLAR_OK);
    draw(arena, 6);
    take_image(arena, &before);
    CHECK(load_with(arena, &(ashlar_load_options){.flags = PARTIAL}, &report) == ASHLAR_OK);
    check_counts(&report, 1, 4, 0, 1, 0);
    const float *half = ashlar_arena_view(arena, ASHLAR_REGION_MASTER, 2);
    for (int i = 0; i < 15; i++) {
        CHECK(half[i] == 0); /* its master has another shape: made of the parameter */
    }
    const size_t at = (size_t)((unsigned char *)ashlar_arena_view(arena, ASHLAR_REGION_MASTER, 3) -
                               bytes_of(arena, ASHLAR_REGION_MASTER));
    CHECK(memcmp(bytes_of(arena, ASHLAR_REGION_MASTER) + at,
                 before.bytes[ASHLAR_REGION_MASTER] + at, 9 * sizeof(float)) == 0);
}

/* Tensors that begin and end in the middle of pieces. */
CASE_WITH(a_part_of_a_large_arena_is_loaded,
          set_up_arena("memory=256MiB,mode=adversarial,seed=7", 1)) {
    enum { EACH = 300007 };
    const tensor large[] = {
        {"a", ASHLAR_F32, 1, {EACH}}, {"b", ASHLAR_F32, 1, {EACH}}, {"c", ASHLAR_F32, 1, {EACH}}};
    ashlar_arena *from = open_arena_of(large, 3, 1), *into = open_arena_of(large, 3, 1);
    static const ashlar_checkpoint_pair leave = {"b", NULL};
    ashlar_load_report report;
    draw(from, 1);
    draw(into, 2);
    float *kept = malloc(EACH * sizeof(float));
    REQUIRE(kept != NULL);
    memcpy(kept, ashlar_arena_view(into, ASHLAR_REGION_PARAMETERS, 1), EACH * sizeof(float));
    CHECK(ashlar_checkpoint_save(from, path, 0, NULL, 0, streams[0]) == ASHLAR_OK);
    CHECK(load_renamed(into, PARTIAL, &leave, 1, &report) == ASHLAR_OK);
    check_counts(&report, 2, 1, 0, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK(memcmp(ashlar_arena_view(into, ASHLAR_REGION_PARAMETERS, i),
                     i == 1 ? (void *)kept : ashlar_arena_view(from, ASHLAR_REGION_PARAMETERS, i),
                     EACH * sizeof(float)) == 0);
    }
    CHECK(ashlar_arena_check_padding(into, streams[0]) == ASHLAR_OK);
    free(kept);
    ashlar_arena_destroy(from);
    ashlar_arena_destroy(into);
}

RUN_CASES()
