/*
 * test_structures.c - every public structure that a program allocates, in the size of an older
 * program and of a newer one: nothing behind it is read or written, and nothing is lost silently.
 */
#include "tests/rnn/layer/structures_fixture.h"

/* ---- sizes, as they were when the structure got its newest field ---- */

/*
 * A size that grows: write the new one, and see that the first new field stands at the old size or
 * behind it. One that is another without a new field: raise the soversion (CONTRIBUTING.md). There
 * is no padding behind the last field: a newer program could not keep it zero.
 */
#define IS(type, bytes, last)                                                             \
    _Static_assert(sizeof(void *) != 8 || sizeof(type) == (bytes), #type " has changed"); \
    _Static_assert(sizeof(type) == offsetof(type, last) + sizeof(((type *)NULL)->last),   \
                   #type " ends with padding")

IS(ashlar_arena_bucket, 40, tensor_count);
IS(ashlar_argmax_args, 32, labels);
IS(ashlar_collectives, 64, detach);
IS(ashlar_columns_args, 48, to_stride);
IS(ashlar_config, 80, shares_memory);
IS(ashlar_config_option, 176, allowed);
IS(ashlar_cross_entropy_args, 104, losses);
IS(ashlar_device_info, 144, total_bytes);
IS(ashlar_driver_counts, 48, wait);
IS(ashlar_embedding_args, 80, dtable);
IS(ashlar_fit_options, 40, device_bytes);
IS(ashlar_fit_result, 24, need_bytes);
IS(ashlar_flatten_stats, 56, kept_blocks);
IS(ashlar_linear_args, 88, dbias);
IS(ashlar_network_batch, 80, accumulates);
IS(ashlar_network_config, 216, last_only);
IS(ashlar_optimizer_config, 128, scale_backoff);
IS(ashlar_optimizer_state, 40, is_skipped);
IS(ashlar_pack_options, 40, user);
IS(ashlar_pack_result, 32, strategy);
IS(ashlar_plan_options, 16, rerecord_after);
IS(ashlar_plan_stats, 160, plans_left);
IS(ashlar_region_source, 24, give);
IS(ashlar_rnn_batch, 64, padding_is_free);
IS(ashlar_rnn_buffers, 136, prepared);
IS(ashlar_rnn_config, 72, algorithm);
IS(ashlar_rnn_layout, 232, elements);
IS(ashlar_sampling_config, 24, top_p);
IS(ashlar_schedule, 56, gamma);
IS(ashlar_squared_error_args, 96, losses);
IS(ashlar_stats, 600, tags);
IS(ashlar_tensor_info, 160, options_room);
IS(ashlar_tensor_options, 16, rate_scale);
IS(ashlar_warmup_options, 72, user);
IS(ashlar_warmup_report, 312, plan_room);

/* Those that never change: elements of arrays, and what the library hands out or keeps. */
IS(ashlar_checkpoint_pair, 16, value);
IS(ashlar_copy_span, 24, bytes);
IS(ashlar_flatten_item, 16, pointer);
IS(ashlar_pack_buffer, 24, end);
IS(ashlar_pack_progress, 32, strategy);
IS(ashlar_part, 24, layout);
IS(ashlar_rnn_view, 24, cols);
IS(ashlar_snapshot, 40, blocks);
IS(ashlar_snapshot_block, 40, state);
IS(ashlar_snapshot_segment, 16, bytes);
IS(ashlar_tag_growth, 40, growth_bytes);
IS(ashlar_tag_stats, 24, at_peak_bytes);
IS(ashlar_tensor_spec, 64, group_offset);
IS(ashlar_warmup_bucket, 128, room);
_Static_assert(sizeof(ashlar_tensor_view) == 56, "for good");

/* Structures inside others have room to grow. */
_Static_assert(sizeof(ashlar_plan_stats) <= sizeof((ashlar_warmup_report){0}.plan_room), "");
_Static_assert(sizeof(ashlar_rnn_config) <= sizeof((ashlar_rnn_layout){0}.config_room), "");
_Static_assert(sizeof(ashlar_rnn_config) <= sizeof((ashlar_network_config){0}.layers_room), "");
_Static_assert(sizeof(ashlar_tensor_options) <= sizeof((ashlar_tensor_info){0}.options_room), "");
_Static_assert(ASHLAR_TAG_COUNT <= (int)ASHLAR_TAG_MAX, "");
_Static_assert(ASHLAR_PLAN_MISS_COUNT <= (int)ASHLAR_PLAN_MISS_MAX, "");

enum { NEWER = 24 }; /* bytes of fields that this version does not know */

static const int32_t lengths[] = {1};

static ashlar_status dry_run(void *user, size_t length) {
    void *ptr;
    (void)user;
    const ashlar_status status = ashlar_alloc(allocator, length * 512, streams[0], &ptr);
    return status == ASHLAR_OK ? ashlar_free(allocator, ptr) : status;
}

/* ---- structures that the library reads ---- */

#define READER(name, type, call)                                \
    static ashlar_status name(const void *from, size_t bytes) { \
        const type *s = from;                                   \
        return call;                                            \
    }

static ashlar_status create_with(const void *from, size_t bytes) {
    ashlar_allocator *made = NULL;
    const ashlar_status status = ashlar_allocator_create_with_sized(device, from, bytes, &made);
    ashlar_allocator_destroy(made);
    return status;
}

static ashlar_status take_nothing(void *user, ashlar_allocator *in, size_t value) {
    (void)user;
    return in != NULL && value > 0 ? ASHLAR_OK : ASHLAR_EINVAL;
}

static ashlar_status fit(const void *from, size_t bytes) {
    ashlar_fit_result found;
    return ashlar_fit_sized(device, from, bytes, &found, sizeof found);
}

static ashlar_status make_optimizer(const void *from, size_t bytes) {
    ashlar_optimizer *made = NULL;
    const ashlar_status status =
        ashlar_optimizer_create_sized(arena, from, bytes, streams[0], &made);
    ashlar_optimizer_destroy(made);
    return status;
}

static ashlar_status make_reducer(const void *from, size_t bytes) {
    ashlar_reducer *made = NULL;
    const ashlar_status status =
        ashlar_reducer_create_sized(arena, from, bytes, ASHLAR_REDUCTION_ALL, streams[0], &made);
    ashlar_reducer_destroy(made);
    return status;
}

static ashlar_status make_rnn(const void *from, size_t bytes) {
    ashlar_rnn *made = NULL;
    const ashlar_status status = ashlar_rnn_create_sized(device, from, bytes, &made);
    ashlar_rnn_destroy(made);
    return status;
}

static ashlar_status declare(const void *from, size_t bytes) {
    ashlar_arena *into = NULL;
    size_t first;
    CHECK(ashlar_arena_create(&into) == ASHLAR_OK);
    const ashlar_status status = ashlar_rnn_declare_sized(into, "r", from, bytes, &first);
    ashlar_arena_destroy(into);
    return status;
}

static ashlar_status pack(const void *from, size_t bytes) {
    const ashlar_pack_buffer buffers[] = {{64, 0, 1}};
    size_t offset;
    ashlar_pack_result result;
    return ashlar_pack_sized(buffers, 1, from, bytes, &offset, &result, sizeof result);
}

static ashlar_rnn_buffers buffers_of(void) {
    char *at = memory;
    return (ashlar_rnn_buffers){
        .work = at, .x = at + 64 * KIB, .weights = at + 128 * KIB, .y = at + 192 * KIB};
}

static const ashlar_rnn_batch one_step = {.steps = 1, .batch = 1, .lengths = lengths};

static ashlar_status forward_batch(const void *from, size_t bytes) {
    const ashlar_rnn_buffers buffers = buffers_of();
    return ashlar_rnn_forward_sized(rnn, from, bytes, &buffers, sizeof buffers, streams[0]);
}

static ashlar_status forward_buffers(const void *from, size_t bytes) {
    return ashlar_rnn_forward_sized(rnn, &one_step, sizeof one_step, from, bytes, streams[0]);
}

static ashlar_status init_layout(const void *from, size_t bytes) {
    ashlar_rnn_layout layout;
    return ashlar_rnn_layout_init_sized(&layout, sizeof layout, from, bytes);
}

static ashlar_status make_sampler(const void *from, size_t bytes) {
    ashlar_sampler *made = NULL;
    const ashlar_status status = ashlar_sampler_create_sized(from, bytes, 3, &made);
    ashlar_sampler_destroy(made);
    return status;
}

static ashlar_status make_network(const void *from, size_t bytes) {
    ashlar_network *made = NULL;
    const ashlar_status status = ashlar_network_create_sized(
        allocator, from, bytes, ASHLAR_REGIONS_INFERENCE, streams[0], &made);
    ashlar_network_destroy(made);
    return status;
}

static ashlar_status run_network(const void *from, size_t bytes, bool trains) {
    const ashlar_network_config config = {
        .layers = {.input = 2, .hidden = 3, .layers = 1}, .outputs = 1, .last_only = 1};
    ashlar_network *made = NULL;
    CHECK(ashlar_network_create(allocator, &config, ASHLAR_REGIONS_ALL, streams[0], &made) ==
          ASHLAR_OK);
    const ashlar_status status = trains
                                     ? ashlar_network_step_sized(made, from, bytes, streams[0])
                                     : ashlar_network_predict_sized(made, from, bytes, streams[0]);
    wait_for(streams[0]);
    ashlar_network_destroy(made);
    return status;
}

static ashlar_status step_network(const void *from, size_t bytes) {
    return run_network(from, bytes, true);
}

static ashlar_status predict_network(const void *from, size_t bytes) {
    return run_network(from, bytes, false);
}

#define OPERATION(op)                                                                   \
    static ashlar_status op(const void *from, size_t bytes) {                           \
        ashlar_ops *ops = NULL;                                                         \
        CHECK(ashlar_ops_create(device, ASHLAR_F32, &ops) == ASHLAR_OK);                \
        const ashlar_status status = ashlar_##op##_sized(ops, from, bytes, streams[0]); \
        wait_for(streams[0]);                                                           \
        ashlar_ops_destroy(ops);                                                        \
        return status;                                                                  \
    }
OPERATION(embedding_forward)
OPERATION(embedding_backward)
OPERATION(linear_forward)
OPERATION(linear_backward)
OPERATION(cross_entropy)
OPERATION(squared_error)
OPERATION(argmax)
OPERATION(copy_columns)

READER(check_config, ashlar_config, ashlar_config_check_sized(s, bytes))
READER(format_config, ashlar_config, ashlar_config_format_sized(s, bytes, NULL, 0, NULL))
READER(set_options, ashlar_tensor_options, ashlar_arena_set_options_sized(arena, 0, s, bytes))
READER(check_optimizer, ashlar_optimizer_config, ashlar_optimizer_check_sized(s, bytes))
READER(send_state, ashlar_optimizer_state,
       ashlar_optimizer_copy_state_to_device_sized(optimizer, s, bytes, streams[0]))
READER(set_plan, ashlar_plan_options, ashlar_plan_set_options_sized(allocator, s, bytes))
READER(warm_up, ashlar_warmup_options, ashlar_allocator_warmup_sized(allocator, s, bytes, NULL, 0))
READER(check_schedule, ashlar_schedule, ashlar_schedule_check_sized(s, bytes))

typedef struct reading {
    const char *type;
    ashlar_status (*read)(const void *from, size_t bytes);
    const void *full; /* one that is taken */
    size_t bytes, older_bytes;
} reading;

/* Each in full, as an older program has it, as a newer one leaves it, and as a newer one fills it.
 */
static void check_reading(const reading *r) {
    const size_t sizes[] = {r->bytes, r->older_bytes, r->bytes + NEWER};
    for (size_t i = 0; i < 3; i++) {
        char *at = fence - sizes[i];
        memset(at, 0, sizes[i]);
        memcpy(at, r->full, sizes[i] < r->bytes ? sizes[i] : r->bytes);
        const ashlar_status status = r->read(at, sizes[i]);
        if (status != ASHLAR_OK) {
            printf("# %s, %zu bytes: %s\n", r->type, sizes[i], ashlar_error_detail());
        }
        CHECK(status == ASHLAR_OK);
    }
    fence[-1] = 1; /* the newest field is set */
    CHECK_FAILS(r->read(fence - sizes[2], sizes[2]), ASHLAR_EINVAL, r->type);
    CHECK_HAS(ashlar_error_detail(), "leave newer fields 0");
}

CASE_WITH(options_of_older_and_newer_programs_are_read, set_up_all()) {
    const ashlar_config config = {.cache_bytes = MIB};
    const ashlar_tensor_options tensor = {.rate_scale = 2};
    const ashlar_optimizer_state state = {.step = 3, .loss_scale = 8};
    const ashlar_plan_options plan = {.search_ms = 1, .rerecord_after = 2};
    const ashlar_warmup_options warmup = {
        .stream = streams[0], .max_length = 2, .dry_run = dry_run};
    const ashlar_collectives collectives = {.broadcast = broadcast, .all_reduce = keep_status};
    const ashlar_rnn_config layers = {.input = 2, .hidden = 3, .layers = 1};
    const ashlar_schedule schedule = {.rate = 0.5};
    const ashlar_fit_options fitting = {.run = take_nothing, .max_value = 1};
    const ashlar_pack_options packing = {.alignment = 64};
    const ashlar_rnn_buffers buffers = buffers_of();
    char *at = memory;
    REQUIRE(ashlar_fill(device, at, 0, 4 * KIB, streams[0]) == ASHLAR_OK);
    void *one = at, *two = at + KIB, *three = at + 2 * KIB;
    const ashlar_embedding_args embedding = {.steps = 1,
                                             .batch = 1,
                                             .classes = 1,
                                             .width = 1,
                                             .tokens = one,
                                             .table = two,
                                             .out = three,
                                             .dout = two,
                                             .dtable = three};
    const ashlar_linear_args linear = {
        .rows = 1, .in = 1, .out = 1, .x = one, .weight = one, .y = two, .dy = two, .dx = three};
    const ashlar_cross_entropy_args entropy = {
        .steps = 1, .batch = 1, .classes = 1, .logits = one, .targets = two, .loss = (void *)three};
    const ashlar_squared_error_args squares = {
        .steps = 1, .batch = 1, .width = 1, .outputs = one, .targets = two, .loss = (void *)three};
    const ashlar_argmax_args argmax_of = {
        .rows = 1, .classes = 1, .logits = one, .labels = (void *)two};
    const ashlar_columns_args columns = {
        .rows = 1, .width = 1, .from = one, .from_stride = 1, .to = two, .to_stride = 1};
    const ashlar_sampling_config sampling = {.temperature = 1};
    const ashlar_network_config network = {.layers = {.input = 2, .hidden = 3, .layers = 1},
                                           .outputs = 1};
    const ashlar_network_batch step = {.steps = 1,
                                       .batch = 1,
                                       .inputs = one,
                                       .targets = two,
                                       .loss = (void *)three,
                                       .outputs = at + 3 * KIB};
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, &layers) == ASHLAR_OK);
    const reading readings[] = {
        {"ashlar_config", check_config, &config, sizeof config, 8},
        {"ashlar_config", format_config, &config, sizeof config, 16},
        {"ashlar_config", create_with, &config, sizeof config, 32},
        {"ashlar_tensor_options", set_options, &tensor, sizeof tensor, 8},
        {"ashlar_optimizer_config", check_optimizer, &ADAM, sizeof ADAM, 8},
        {"ashlar_optimizer_config", make_optimizer, &ADAM, sizeof ADAM, 16},
        {"ashlar_optimizer_state", send_state, &state, sizeof state, 8},
        {"ashlar_pack_options", pack, &packing, sizeof packing, 8},
        {"ashlar_plan_options", set_plan, &plan, sizeof plan, 8},
        {"ashlar_warmup_options", warm_up, &warmup, sizeof warmup,
         offsetof(ashlar_warmup_options, user)},
        {"ashlar_fit_options", fit, &fitting, sizeof fitting,
         offsetof(ashlar_fit_options, device_bytes)},
        {"ashlar_collectives", make_reducer, &collectives, sizeof collectives,
         offsetof(ashlar_collectives, reduce_scatter)},
        {"ashlar_rnn_config", init_layout, &layers, sizeof layers, 24},
        {"ashlar_rnn_config", make_rnn, &layers, sizeof layers, 24},
        {"ashlar_rnn_layout", declare, &layout, sizeof layout, sizeof layout},
        {"ashlar_rnn_batch", forward_batch, &one_step, sizeof one_step, 24},
        {"ashlar_rnn_buffers", forward_buffers, &buffers, sizeof buffers,
         offsetof(ashlar_rnn_buffers, hy)},
        {"ashlar_schedule", check_schedule, &schedule, sizeof schedule, 16},
        {"ashlar_embedding_args", embedding_forward, &embedding, sizeof embedding,
         offsetof(ashlar_embedding_args, dout)},
        {"ashlar_embedding_args", embedding_backward, &embedding, sizeof embedding,
         sizeof embedding},
        {"ashlar_linear_args", linear_forward, &linear, sizeof linear,
         offsetof(ashlar_linear_args, dy)},
        {"ashlar_linear_args", linear_backward, &linear, sizeof linear,
         offsetof(ashlar_linear_args, dweight)},
        {"ashlar_cross_entropy_args", cross_entropy, &entropy, sizeof entropy,
         offsetof(ashlar_cross_entropy_args, losses)},
        {"ashlar_squared_error_args", squared_error, &squares, sizeof squares,
         offsetof(ashlar_squared_error_args, losses)},
        {"ashlar_argmax_args", argmax, &argmax_of, sizeof argmax_of, sizeof argmax_of},
        {"ashlar_columns_args", copy_columns, &columns, sizeof columns, sizeof columns},
        {"ashlar_network_config", make_network, &network, sizeof network,
         offsetof(ashlar_network_config, loss)},
        {"ashlar_network_batch", step_network, &step, sizeof step,
         offsetof(ashlar_network_batch, scale)},
        {"ashlar_network_batch", predict_network, &step, sizeof step,
         offsetof(ashlar_network_batch, dropout_seed)},
        {"ashlar_sampling_config", make_sampler, &sampling, sizeof sampling, 16},
    };
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
        check_reading(&readings[i]);
    }
    wait_for(streams[0]);
}

/* Results of the library, given back to it, and options that were checked before. */
CASE_WITH(readers_that_cannot_fail_read_what_is_there, set_up_all()) {
    ashlar_leak_monitor *monitor = NULL;
    unsigned found;
    REQUIRE(ashlar_leak_monitor_create(&monitor) == ASHLAR_OK);
    memset(fence - 256, 0, 256);
    const void *older = fence - 8, *two = fence - 16;
    CHECK(ashlar_leak_monitor_add_sized(monitor, 1, older, 8, &found) == ASHLAR_OK);
    CHECK(ashlar_plan_miss_total_sized(older, 8) == 0);
    CHECK(ashlar_warmup_key_sized(two, 16, 5) == 0);
    const ashlar_schedule constant = {.rate = 0.5};
    memcpy(fence - 16, &constant, 16);
    CHECK_NEAR(ashlar_schedule_rate_sized(two, 16, 1), 0.5, 0, 0);
    memset(fence - 16, 0, 16);
    CHECK((ashlar_optimizer_regions_sized(older, 8) & ASHLAR_REGIONS_INFERENCE) != 0);
    ashlar_tag_growth growth[ASHLAR_TAG_MAX];
    memset(growth, 1, sizeof growth);
    ashlar_leak_monitor_get_growth_sized(monitor, growth, ASHLAR_TAG_MAX);
    CHECK(growth[ASHLAR_TAG_COUNT].held_bytes == 0);
    ashlar_leak_monitor_get_growth_sized(monitor, (void *)(fence - sizeof *growth), 1);
    ashlar_leak_monitor_destroy(monitor);
}

/* ---- structures that the library writes ---- */

#define WRITER(name, type, call)               \
    static void name(void *to, size_t bytes) { \
        type *s = to;                          \
        call;                                  \
    }

static void get_packing(void *to, size_t bytes) {
    const ashlar_pack_buffer buffers[] = {{64, 0, 1}};
    size_t offset;
    CHECK(ashlar_pack_sized(buffers, 1, NULL, 0, &offset, to, bytes) == ASHLAR_OK);
}

static void get_fit(void *to, size_t bytes) {
    const ashlar_fit_options o = {.run = take_nothing, .max_value = 1};
    CHECK(ashlar_fit_sized(device, &o, sizeof o, to, bytes) == ASHLAR_OK);
}

static void get_report(void *to, size_t bytes) {
    const ashlar_warmup_options o = {.stream = streams[0], .max_length = 1, .dry_run = dry_run};
    CHECK(ashlar_allocator_warmup_sized(allocator, &o, sizeof o, to, bytes) == ASHLAR_OK);
}

static void get_layout(void *to, size_t bytes) {
    const ashlar_rnn_config config = {.input = 2, .hidden = 3, .layers = 1};
    CHECK(ashlar_rnn_layout_init_sized(to, bytes, &config, sizeof config) == ASHLAR_OK);
}

static void flatten(void *to, size_t bytes) {
    void *pointer = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, 0);
    const ashlar_flatten_item item = {0, &pointer};
    CHECK(ashlar_arena_flatten_sized(arena, ASHLAR_REGION_PARAMETERS, &item, 1, NULL, streams[0],
                                     to, bytes) == ASHLAR_OK);
    CHECK(ashlar_arena_unbind(arena, &pointer) == ASHLAR_OK);
}

static void get_state(void *to, size_t bytes) {
    CHECK(ashlar_optimizer_copy_state_to_host_sized(optimizer, to, bytes, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
}

WRITER(get_stats, ashlar_stats, ashlar_allocator_get_stats_sized(allocator, s, bytes))
WRITER(get_plans, ashlar_plan_stats, ashlar_plan_get_stats_sized(allocator, s, bytes))
WRITER(init_config, ashlar_config, ashlar_config_init_sized(s, bytes))
WRITER(describe, ashlar_config_option,
       CHECK(ashlar_config_describe_sized(1, s, bytes) == ASHLAR_OK))
WRITER(get_info, ashlar_device_info, ashlar_device_get_info_sized(device, s, bytes))
WRITER(get_counts, ashlar_driver_counts, ashlar_device_get_counts_sized(device, s, bytes))
WRITER(get_tensor, ashlar_tensor_info, ashlar_arena_tensor_sized(arena, 0, s, bytes))
WRITER(get_bucket, ashlar_arena_bucket, ashlar_arena_get_bucket_sized(arena, 0, s, bytes))
WRITER(get_defaults, ashlar_optimizer_config,
       ashlar_optimizer_defaults_sized(ASHLAR_OPTIMIZER_ADAM, s, bytes))

static const struct writing {
    const char *type;
    void (*write)(void *to, size_t bytes);
    size_t bytes;
} writings[] = {
    {"ashlar_stats", get_stats, sizeof(ashlar_stats)},
    {"ashlar_plan_stats", get_plans, sizeof(ashlar_plan_stats)},
    {"ashlar_config", init_config, sizeof(ashlar_config)},
    {"ashlar_config_option", describe, sizeof(ashlar_config_option)},
    {"ashlar_device_info", get_info, sizeof(ashlar_device_info)},
    {"ashlar_driver_counts", get_counts, sizeof(ashlar_driver_counts)},
    {"ashlar_tensor_info", get_tensor, sizeof(ashlar_tensor_info)},
    {"ashlar_arena_bucket", get_bucket, sizeof(ashlar_arena_bucket)},
    {"ashlar_optimizer_config", get_defaults, sizeof(ashlar_optimizer_config)},
    {"ashlar_optimizer_state", get_state, sizeof(ashlar_optimizer_state)},
    {"ashlar_pack_result", get_packing, sizeof(ashlar_pack_result)},
    {"ashlar_fit_result", get_fit, sizeof(ashlar_fit_result)},
    {"ashlar_warmup_report", get_report, sizeof(ashlar_warmup_report)},
    {"ashlar_rnn_layout", get_layout, sizeof(ashlar_rnn_layout)},
    {"ashlar_flatten_stats", flatten, sizeof(ashlar_flatten_stats)},
};

static size_t count_of(const char *from, size_t bytes, char value) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += from[i] == value;
    }
    return count;
}

CASE_WITH(results_of_older_and_newer_programs_are_written, set_up_all()) {
    for (size_t i = 0; i < sizeof writings / sizeof *writings; i++) {
        const struct writing *w = &writings[i];
        printf("# %s\n", w->type);
        memset(fence - page_bytes, 0x5a, page_bytes);
        w->write(fence - 8, 8); /* an older program: the fence is not touched */
        CHECK(count_of(fence - page_bytes, page_bytes - 8, 0x5a) == page_bytes - 8);
        CHECK(count_of(fence - 8, 8, 0x5a) < 8);
        w->write(fence - w->bytes, w->bytes);
        memset(fence - page_bytes, 0x5a, page_bytes);
        w->write(fence - w->bytes - NEWER, w->bytes + NEWER); /* a newer one */
        CHECK_ZU(count_of(fence - NEWER, NEWER, 0), NEWER);
    }
}

RUN_CASES()
