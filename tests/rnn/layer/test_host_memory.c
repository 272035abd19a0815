/* test_host_memory.c - a software device refuses what a GPU could not read: host memory where
 * device memory belongs, and lengths in device memory. */
#include "tests/rnn/layer/rnn_fixture.h"

#include "tests/child.h"
#include "tests/strict.h"

#include <ashlar/model.h>
#include <ashlar/optimizer.h>

#include "rnn/layer/rnn_cpu.h"

#define SOFT "memory=64MiB," STRICT_NOT_HERE

enum { ROOM = 1 << 16 };

static char on_host[ROOM];
static char *on_device;
static const int32_t lengths[BATCH] = {4, 3, 2};

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
    const double number = 0.5;
    ashlar_sampler *sampler;
    int32_t drawn;
    CHECK(ashlar_sampler_create(&config, 3, &sampler) == ASHLAR_OK);
    CHECK_FAILS(ashlar_sampler_draw(&sampler, 1, ASHLAR_F32, on_device, &number, &drawn),
                ASHLAR_EINVAL,
                "ashlar_sampler_draw: logits is in device memory; the host reads it");
    CHECK(ashlar_sampler_draw(&sampler, 1, ASHLAR_F32, on_host, &number, &drawn) == ASHLAR_OK);
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
    const ashlar_optimizer_call call = {.learning_rate = 1, .rate_at = &rate, .gradient_scale = 1};
    CHECK_FAILS(ashlar_optimizer_step_with(optimizer, &call, streams[0]), ASHLAR_EINVAL,
                "ashlar_optimizer_step: rate_at, 8 bytes");
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    ashlar_optimizer_destroy(optimizer);
    ashlar_arena_destroy(arena);
    give_device_memory();
}

RUN_CASES()
