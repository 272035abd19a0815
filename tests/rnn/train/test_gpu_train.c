/*
 * test_gpu_train.c - a short training, and a text, on a CUDA device as on the CPU. Exits with 77
 * where there is no GPU; it also runs on the fakes.
 */
#include "tests/allocator/device/gpu_fixture.h"

#include <unistd.h>

#include <ashlar/model.h>

#include "rnn/train/train.h"
#include "tests/cuda/fake_cudnn.h"

enum { STEPS = 6, MAX_STEPS = 16, SYMBOLS = 24 };

static ashlar_corpus *corpus;

static bool open_text(void) {
    char path[] = "/tmp/ashlar-gpu-train-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    for (int i = 0; file != NULL && i < 20; i++) {
        fprintf(file, "stone %d on %s\n%%\n", i * 7 % 13, i % 2 == 0 ? "stone" : "sand and gravel");
    }
    const bool is_good = file != NULL && fclose(file) == 0 &&
                         ashlar__corpus_open(&(const char *){path}, 1, &corpus) == ASHLAR_OK;
    (void)unlink(path);
    return is_good;
}

static ashlar_train_config config_of(ashlar_rnn_cell cell, size_t projection) {
    ashlar_train_config c = {.layers = 2,
                             .hidden = 12,
                             .embedding = 6,
                             .cell = cell,
                             .projection = projection,
                             .batch = 2,
                             .max_length = 10,
                             .steps = STEPS,
                             .seed = 3};
    c.optimizer = (ashlar_optimizer_config){
        .kind = ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.01, .clip_norm = 1};
    c.schedule.rate = c.optimizer.learning_rate;
    return c;
}

/* What one device makes of a training. */
typedef struct result {
    double losses[MAX_STEPS];
    size_t count;
    int32_t symbols[SYMBOLS]; /* the likeliest, one after the other */
    ashlar_train_report report;
} result;

static void show(void *context, const ashlar_train_progress *progress) {
    result *r = context;
    r->losses[r->count++] = progress->loss_step;
}

static void sample(ashlar_trainer *trainer, result *r) {
    const ashlar_text_sampler_config config = {.sampling = {.temperature = 0, .top_p = 1}};
    const ashlar_sampled_model model = ashlar__trainer_model(trainer);
    ashlar_text_sampler *sampler = NULL;
    REQUIRE(ashlar__text_sampler_create(&model, &config, &sampler) == ASHLAR_OK);
    for (int i = 0; i < SYMBOLS; i++) {
        CHECK(ashlar__text_sampler_next(sampler, &r->symbols[i]) == ASHLAR_OK);
    }
    ashlar__text_sampler_destroy(sampler);
}

static void train(const char *name, const ashlar_train_config *config, result *r) {
    ashlar_device *device = NULL;
    ashlar_trainer *trainer = NULL;
    *r = (result){.count = 0};
    REQUIRE(ashlar_device_open(name, &device) == ASHLAR_OK);
    const bool is_trained = ashlar__trainer_create(device, corpus, config, &trainer) == ASHLAR_OK &&
                            ashlar__trainer_run(trainer, show, r, &r->report) == ASHLAR_OK;
    CHECK(is_trained);
    if (is_trained) {
        sample(trainer, r);
    } else {
        printf("# %s: %s\n", name, ashlar_error_detail());
    }
    ashlar__trainer_destroy(trainer);
    ashlar_device_close(device);
}

static void compare(const ashlar_train_config *config) {
    static result on_cpu, on_gpu;
    train("soft", config, &on_cpu);
    train("cuda", config, &on_gpu);
    CHECK_ZU(on_cpu.count, STEPS);
    CHECK_ZU(on_gpu.count, STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        CHECK_NEAR(on_gpu.losses[i], on_cpu.losses[i], 1e-4, 1e-4);
    }
    CHECK(on_cpu.losses[STEPS - 1] < on_cpu.losses[0]);
    CHECK(memcmp(on_gpu.symbols, on_cpu.symbols, sizeof on_cpu.symbols) == 0);
    CHECK(on_gpu.report.device.kind == ASHLAR_DEVICE_CUDA && on_gpu.report.weights_contiguous);
    CHECK_ZU((size_t)on_gpu.report.training.management, 0); /* after the warm-up */
    CHECK_ZU(on_gpu.report.step_memory.misses, 0);
    CHECK(gpu_products_had_work());
}

CASE(what_a_length_first_needs_of_cudnn_is_there_before_the_first_step) {
    static result on_gpu;
    fake_cudnn_control *cudnn = gpu_fake("ASHLAR_CUDNN", "fake_cudnn");
    ashlar_train_config config = config_of(ASHLAR_RNN_LSTM, 0);
    SKIP_IF(cudnn == NULL, "it counts what the fake cuDNN loads");
    config.allows_tf32 = true;
    cudnn->kernels = 0;
    train("cuda", &config, &on_gpu);
    CHECK(cudnn->kernels == 15); /* lengths 10, 5, 2, 1: no step of the training loads one */
    CHECK(on_gpu.report.warmed_count == 4 && on_gpu.report.warmed_least == 1);
    CHECK(on_gpu.report.is_tf32);
}

CASE(stacks_train_as_on_the_cpu) {
    const ashlar_train_config configs[] = {
        config_of(ASHLAR_RNN_LSTM, 0), config_of(ASHLAR_RNN_GRU, 0), config_of(ASHLAR_RNN_LSTM, 5)};
    for (size_t i = 0; i < 3; i++) {
        compare(&configs[i]);
    }
}

/* The device runs the RNN over the padding, too, which no loss and no gradient sees. */
CASE(a_launched_step_is_a_queued_one) {
    static result plain, queued, launched;
    ashlar_train_config config = config_of(ASHLAR_RNN_LSTM, 0);
    config.accumulate = 2;
    config.bptt = 6;
    config.buckets = 2;
    config.optimizer.loss_scale = 64;
    train("soft", &config, &plain);
    config.pads = true;
    train("cuda", &config, &queued);
    config.graphs = true;
    train("cuda", &config, &launched);
    const ashlar_graph_report *g = &launched.report.graphs;
    CHECK_ZU(launched.count, STEPS);
    CHECK(g->launched == STEPS && g->eager == 0 && queued.report.graphs.eager == STEPS);
    CHECK(launched.report.calls_per_step <= 3);
    if (g->note[0] != '\0') {
        printf("# %s\n", g->note);
    }
    for (size_t i = 0; i < STEPS; i++) {
        CHECK(launched.losses[i] == queued.losses[i]);
        CHECK_NEAR(launched.losses[i], plain.losses[i], 1e-4, 1e-4);
    }
}

/* Roughly: the device's weights and activations have 8 or 11 bits, their masters 24. */
CASE(narrow_types_train_about_as_float_does) {
    static const ashlar_dtype types[] = {ASHLAR_F16, ASHLAR_BF16};
    static result on_cpu, on_gpu;
    for (int i = 0; i < 2; i++) {
        ashlar_train_config config = config_of(ASHLAR_RNN_LSTM, 0);
        train("soft", &config, &on_cpu);
        config.dtype = types[i];
        config.optimizer.loss_scale = 256;
        train("cuda", &config, &on_gpu);
        CHECK_ZU(on_gpu.count, STEPS);
        for (size_t k = 0; k < STEPS; k++) {
            CHECK_NEAR(on_gpu.losses[k], on_cpu.losses[k], 0.05, 0);
        }
        CHECK(on_gpu.report.stats.tags[ASHLAR_TAG_WEIGHTS].peak_bytes > 0);
        CHECK_ZU((size_t)on_gpu.report.training.management, 0);
        CHECK_ZU(on_gpu.report.steps_skipped, 0);
    }
}

CASE(dropout_goes_on_where_it_was_saved) {
    static result whole, resumed;
    char path[] = "/tmp/ashlar-gpu-resume-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && close(fd) == 0);
    ashlar_train_config config = config_of(ASHLAR_RNN_LSTM, 0);
    config.dropout = 0.5;
    config.save_file = path;
    config.save_every = STEPS / 2;
    train("cuda", &config, &whole);
    config.save_file = NULL;
    config.save_every = 0;
    config.resume_file = path;
    config.buckets = 1; /* another warm-up, in which dropout draws more or less */
    train("cuda", &config, &resumed);
    CHECK_ZU(whole.count, STEPS);
    CHECK_ZU(resumed.count, STEPS - STEPS / 2);
    for (size_t i = 0; i < resumed.count && gpu_is_fake(); i++) {
        CHECK(resumed.losses[i] == whole.losses[STEPS / 2 + i]);
    }
    for (size_t i = 0; i < resumed.count; i++) {
        CHECK_NEAR(resumed.losses[i], whole.losses[STEPS / 2 + i], 1e-4, 1e-4);
    }
    CHECK_ZU((size_t)whole.report.training.management, 0);
    (void)unlink(path);
}

/* ---- beside the CPU ---- */

static ashlar_status verify(const ashlar_train_config *config, ashlar_verification *found) {
    *found = (ashlar_verification){0};
    return ashlar__train_verify(gpu, corpus, config, found);
}

CASE(the_first_step_is_the_cpus_tensor_by_tensor) {
    for (int i = 0; i < 4; i++) {
        ashlar_train_config config = config_of(i == 1 ? ASHLAR_RNN_GRU : ASHLAR_RNN_LSTM, 0);
        config.projection = i == 2 ? 5 : 0;
        config.dtype = i == 3 ? ASHLAR_F64 : ASHLAR_F32;
        config.dropout = 0.5; /* which is left out */
        config.bptt = 6;
        ashlar_verification found;
        const ashlar_status status = verify(&config, &found);
        CHECK(status == ASHLAR_OK);
        printf("# %s\n", status == ASHLAR_OK ? "agrees" : ashlar_error_detail());
        CHECK(found.tensors > 8 && found.worst < 1 && found.loss > 1);
    }
}

CASE(a_wrong_number_is_named) {
    static const struct {
        fake_cudnn_plant plant;
        const char *said;
    } wrong[] = {
        {FAKE_CUDNN_WRONG_Y, "verify: the gradient of embedding.weight, element "},
        {FAKE_CUDNN_WRONG_DX, "verify: the gradient of embedding.weight, element "},
        {FAKE_CUDNN_WRONG_DWEIGHTS, "verify: the gradient of lstm.weight_ih_l0, element 1 of "},
    };
    fake_cudnn_control *fake = gpu_fake("ASHLAR_CUDNN", "fake_cudnn");
    const ashlar_train_config config = config_of(ASHLAR_RNN_LSTM, 0);
    for (size_t i = 0; fake != NULL && i < sizeof wrong / sizeof wrong[0]; i++) {
        ashlar_verification found;
        fake->plant = wrong[i].plant;
        CHECK_FAILS(verify(&config, &found), ASHLAR_EDRIVER, wrong[i].said);
        CHECK_ZU(found.tensors, 0);
        fake->plant = FAKE_CUDNN_RIGHT;
    }
    CHECK(fake != NULL || !gpu_is_fake());
}

CASE(a_model_gives_cublas_memory_to_work_in) {
    const int32_t symbols[] = {1, 4};
    ashlar_allocator *allocator = NULL;
    ashlar_model *model = NULL;
    REQUIRE(ashlar_allocator_create(gpu, &allocator) == ASHLAR_OK);
    REQUIRE(ashlar_model_create(allocator, ASHLAR_F32, &model) == ASHLAR_OK);
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, 5, 3);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY,
                      ashlar_model_linear(model, "linear", x, 5, true), tokens, NULL);
    REQUIRE(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, gpu_stream) == ASHLAR_OK);
    const void *inputs[] = {gpu_send(symbols, sizeof symbols)};
    const ashlar_model_batch batch = {
        .steps = 2, .batch = 1, .inputs = inputs, .loss = gpu_take(sizeof(double))};
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, gpu_stream) == ASHLAR_OK);
    CHECK(gpu_products_had_work());
    ashlar_model_destroy(model);
    gpu_give_all();
    ashlar_allocator_destroy(allocator);
}

int main(void) {
    const int why = gpu_begin();
    if (why != 0) {
        return why;
    }
    if (!open_text()) {
        printf("Bail out! no text\n");
        return 1;
    }
    check_run_cases();
    ashlar__corpus_destroy(corpus);
    gpu_end();
    return check_report();
}
