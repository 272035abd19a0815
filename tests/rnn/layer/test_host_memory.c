/* test_host_memory.c - a software device refuses what a GPU could not read: host memory where
 * device memory belongs, and lengths in device memory. */
#include "tests/rnn/layer/rnn_fixture.h"

#include "tests/child.h"
#include "tests/strict.h"

#include <ashlar/model.h>
#include <ashlar/optimizer.h>

#include "arena/optimizer/optimizer_impl.h"
#include "arena/reduce/ranks_impl.h"
#include "rnn/layer/rnn_cpu.h"

#define SOFT "memory=64MiB," STRICT_NOT_HERE

enum { ROOM = 1 << 16, FIELDS_MAX = 12 };

static char on_host[ROOM];
static char *on_device;
static const int32_t lengths[BATCH] = {4, 3, 2};

/* Where a structure of arguments has a pointer. */
typedef struct field {
    const char *name;
    size_t offset;
} field;

#define FIELD(type, name) \
    { #name, offsetof(type, name) }

static bool set_up_memory(const char *spec) {
    const ashlar_rnn_config config = {.input = INPUT,
                                      .hidden = HIDDEN,
                                      .layers = LAYERS,
                                      .dtype = ASHLAR_F32,
                                      .cell = ASHLAR_RNN_LSTM};
    if (!set_up_rnn_of(spec, &config)) {
        return false;
    }
    on_device = (char *)take((size_t)ROOM * 32, streams[0]);
    memset(on_device, 0, (size_t)ROOM * 32);
    return true;
}

static void give_device_memory(void) {
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    give(on_device);
}

/* The call passes as it is, and with each pointer in turn to host memory it is refused by name. */
static void check_fields(const char *call, ashlar_status (*run)(void *args), void *args,
                         const field *fields) {
    char text[96];
    CHECK(run(args) == ASHLAR_OK);
    for (; fields->name != NULL; fields++) {
        void *old, *host = on_host;
        memcpy(&old, (char *)args + fields->offset, sizeof old);
        memcpy((char *)args + fields->offset, &host, sizeof host);
        const ashlar_status status = run(args);
        CHECK(status == ASHLAR_EINVAL);
        snprintf(text, sizeof text, "%s: %s, ", call, fields->name);
        CHECK_HAS(ashlar_error_detail(), text);
        CHECK_HAS(ashlar_error_detail(), "is not memory of device soft:0");
        memcpy((char *)args + fields->offset, &old, sizeof old);
    }
    CHECK(run(args) == ASHLAR_OK);
}

/* ---- an rnn ---- */

static ashlar_rnn_batch batch_of(const int32_t *of) {
    return (ashlar_rnn_batch){.steps = STEPS, .batch = BATCH, .lengths = of};
}

static void *piece(size_t i) {
    return on_device + i * ROOM;
}

static ashlar_rnn_buffers buffers_of(void) {
    return (ashlar_rnn_buffers){.reserve = piece(0),
                                .work = piece(1),
                                .x = piece(2),
                                .hx = piece(3),
                                .cx = piece(4),
                                .weights = piece(5),
                                .y = piece(6),
                                .hy = piece(7),
                                .cy = piece(8),
                                .dy = piece(9),
                                .dhy = piece(10),
                                .dcy = piece(11),
                                .dx = piece(12),
                                .dhx = piece(13),
                                .dcx = piece(14),
                                .dweights = piece(15),
                                .prepared = piece(16)};
}

static ashlar_status run_forward(void *args) {
    const ashlar_rnn_batch batch = batch_of(lengths);
    return ashlar_rnn_forward(rnn, &batch, args, streams[0]);
}

static ashlar_status run_prepare(void *args) {
    const ashlar_rnn_buffers *b = args;
    return ashlar_rnn_prepare(rnn, b->weights, (void *)(uintptr_t)b->prepared, streams[0]);
}

/* ---- strict=on: in children, which must be forked before this process has opened a device ---- */

static void pass_host_memory(void) {
    CHECK(set_up_memory("memory=64MiB,strict=on"));
    ashlar_rnn_buffers b = buffers_of();
    b.x = on_host;
    ASHLAR_IGNORE(run_forward(&b));
}

static void pass_far_lengths(void) {
    CHECK(set_up_memory("memory=64MiB,strict=on"));
    const ashlar_rnn_batch batch = batch_of(piece(20));
    const ashlar_rnn_buffers b = buffers_of();
    ASHLAR_IGNORE(ashlar_rnn_forward(rnn, &batch, &b, streams[0]));
}

CASE(a_strict_device_ends_the_process) {
    CHECK(child_aborts(pass_host_memory));
    CHECK_HAS(child_words, "ashlar: software device, strict: cuLaunchHostFunc: "
                           "ashlar_rnn_forward: x, 144 bytes at ");
    CHECK_HAS(child_words, "is not memory of the device");
    CHECK(child_aborts(pass_far_lengths));
    CHECK_HAS(child_words, "ashlar_rnn_forward: lengths, 12 bytes at ");
    CHECK_HAS(child_words, "is device memory, but the host reads it");
}

#define B(name) FIELD(ashlar_rnn_buffers, name)

CASE_WITH(a_preparation_is_refused_on_the_host, set_up_memory(SOFT)) {
    ashlar_rnn_buffers b = buffers_of();
    check_fields("ashlar_rnn_prepare", run_prepare, &b,
                 (const field[]){B(weights), B(prepared), {0}});
    check_fields("ashlar_rnn_forward", run_forward, &b, (const field[]){B(prepared), {0}});
    give_device_memory();
}

CASE_WITH(lengths_that_the_host_reads_are_the_host_s, set_up_memory(SOFT)) {
    int32_t *const far = piece(20);
    const ashlar_rnn_batch batch = batch_of(far);
    const ashlar_rnn_buffers b = buffers_of();
    memcpy(far, lengths, sizeof lengths);
    CHECK_FAILS(ashlar_rnn_forward(rnn, &batch, &b, streams[0]), ASHLAR_EINVAL,
                "ashlar_rnn_forward: lengths is in device memory; the host reads it");
    give_device_memory();
}

CASE_WITH(logits_that_the_host_reads_are_the_host_s, set_up_memory(SOFT)) {
    const ashlar_sampling_config config = {.temperature = 1};
    ashlar_sampler *sampler;
    int32_t drawn;
    CHECK(ashlar_sampler_create(&config, 3, &sampler) == ASHLAR_OK);
    CHECK_FAILS(ashlar_sampler_draw(sampler, ASHLAR_F32, on_device, 0.5, &drawn), ASHLAR_EINVAL,
                "ashlar_sampler_draw: logits is in device memory; the host reads it");
    CHECK(ashlar_sampler_draw(sampler, ASHLAR_F32, on_host, 0.5, &drawn) == ASHLAR_OK);
    ashlar_sampler_destroy(sampler);
    give_device_memory();
}

/* ---- an optimizer ---- */

CASE_WITH(a_rate_is_refused_on_the_host, set_up_memory(SOFT)) {
    static const double rate = 0.1;
    ashlar_arena *arena;
    ashlar_optimizer *optimizer;
    const ashlar_optimizer_config config = {.kind = ASHLAR_OPTIMIZER_SGD};
    CHECK(ashlar_arena_create(&arena) == ASHLAR_OK);
    CHECK(ashlar_arena_add(arena, "a", ASHLAR_F32, 1, (size_t[]){4}, NULL) == ASHLAR_OK);
    CHECK(ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_ALL) == ASHLAR_OK);
    CHECK(ashlar_optimizer_create(arena, &config, streams[0], &optimizer) == ASHLAR_OK);
    CHECK(ashlar_optimizer_step(optimizer, rate, 1, streams[0]) == ASHLAR_OK);
    CHECK_FAILS(ashlar_optimizer_step_at(optimizer, &rate, 1, 1, streams[0]), ASHLAR_EINVAL,
                "ashlar_optimizer_step: rate_at, 8 bytes");
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    ashlar_optimizer_destroy(optimizer);
    ashlar_arena_destroy(arena);
    give_device_memory();
}

RUN_CASES()
