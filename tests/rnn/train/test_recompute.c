/*
 * test_recompute.c - a step in windows of time, which begin with the states of the one before and
 * let no gradient out; and in chunks: the gradients of the whole step in the memory of a chunk.
 */
#include "tests/rnn/model/model_fixture.h"

#include "rnn/data/batcher.h"
#include "rnn/layer/backend.h"

/* ---- steps of a small model in double precision, in windows and chunks ---- */

enum { IMAGE_MAX = 4096, GRADIENTS_MAX = 1 << 14 };

/* What one step is to be; the rest is plain. */
typedef struct recipe {
    size_t chunk;
    double weight;
    size_t first_step, steps; /* of the batch; 0 steps: all */
    const void *first;
    void *last;
} recipe;

/* Loss and gradients of a step. */
typedef struct answer {
    double loss;
    double gradients[GRADIENTS_MAX];
} answer;

static int32_t *image; /* device */

static void close_window(void) {
    give(image);
    close_model();
    model_config.dtype = ASHLAR_F32;
}

static bool open_window(const char *spec) {
    model_config.dtype = ASHLAR_F64;
    const bool is_open = open_model(spec, ASHLAR_REGIONS_ALL);
    image = is_open ? (int32_t *)(void *)take(IMAGE_MAX * sizeof *image, streams[1]) : NULL;
    return is_open && check_at_end(close_window);
}

static double *doubles_of(ashlar_region region) {
    return ashlar_arena_region(model->arena, region);
}

static size_t doubles_count(void) {
    return ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS) / sizeof(double);
}

/* Steps first_step .. of a batch, as a batch whose pointers lead into itself. */
static void slice(const made_batch *made, size_t first_step, size_t steps, made_batch *out) {
    const size_t first = first_step * made->count, bytes = steps * made->count * sizeof(int32_t);
    *out = (made_batch){.count = made->count};
    out->batch = (ashlar_batch){
        .inputs = out->inputs, .targets = out->targets, .lengths = out->lengths, .steps = steps};
    memcpy(out->inputs, made->inputs + first, bytes);
    memcpy(out->targets, made->targets + first, bytes);
    for (size_t b = 0; b < made->count; b++) {
        const int32_t left = made->lengths[b] - (int32_t)first_step;
        out->lengths[b] = left < 0 ? 0 : left > (int32_t)steps ? (int32_t)steps : left;
    }
}

static ashlar_status queue_window(const made_batch *made, const recipe *r) {
    static int32_t host[IMAGE_MAX];
    const size_t rest = made->batch.steps - r->first_step;
    made_batch part;
    slice(made, r->first_step, r->steps == 0 ? rest : r->steps, &part);
    const ashlar_batch_split_config config = {.batch = made->count, .chunk = r->chunk};
    const ashlar_batch_split cut = ashlar__batch_split_make(&config, part.batch.steps);
    const ashlar_batch_window at = ashlar__batch_split_window(&cut, 0, 0);
    CHECK(cut.image + cut.extra <= IMAGE_MAX);
    ashlar__batch_split_fill(&cut, &part.batch, host);
    CHECK(ashlar_copy_to_device(device, image, host, cut.image * sizeof *host, streams[1]) ==
          ASHLAR_OK);
    const ashlar_model_window window = {.steps = at.steps,
                                        .count = made->count,
                                        .chunk = r->chunk,
                                        .inputs = image + at.inputs,
                                        .targets = image + at.targets,
                                        .lengths = image + at.lengths,
                                        .rnn_lengths = host + at.rnn_lengths,
                                        .weight = r->weight,
                                        .first = r->first,
                                        .last = r->last};
    ashlar_step_sizes sizes;
    CHECK(ashlar__model_chunk_sizes(model, window.steps, window.count, window.chunk, &sizes) ==
          ASHLAR_OK);
    return ashlar__model_step(model, &window, &sizes, &results->loss);
}

static void run_window(const made_batch *made, const recipe *r, answer *out) {
    CHECK(ashlar_fill(device, &results->loss, 0, sizeof results->loss, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_arena_zero(model->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    CHECK(queue_window(made, r) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK(doubles_count() <= GRADIENTS_MAX);
    out->loss = results->loss;
    memcpy(out->gradients, doubles_of(ASHLAR_REGION_GRADIENTS),
           doubles_count() * sizeof out->gradients[0]);
}

static void check_same(const answer *got, const answer *want, double relative) {
    CHECK_NEAR(got->loss, want->loss, 0, relative);
    size_t wrong = 0;
    for (size_t i = 0; i < doubles_count(); i++) {
        const double gap = fabs(got->gradients[i] - want->gradients[i]);
        wrong += gap <= 1e-13 + relative * fabs(want->gradients[i]) ? 0 : 1; /* NaN: wrong */
    }
    CHECK_ZU(wrong, 0);
}

/* Gradients are the slopes of the loss: in every tensor, at a few places. */
static void check_slopes(const made_batch *made, const recipe *r) {
    static answer here, above, below;
    run_window(made, r, &here);
    for (size_t tensor = 0; tensor < ashlar_arena_tensor_count(model->arena); tensor++) {
        ashlar_tensor_info info;
        ashlar_arena_tensor(model->arena, tensor, &info);
        for (size_t i = 0; i < info.elements; i += 1 + info.elements / 5) {
            const size_t at = info.offset[ASHLAR_LAYOUT_STORAGE] / sizeof(double) + i;
            double *weight = doubles_of(ASHLAR_REGION_PARAMETERS) + at;
            const double kept = *weight, h = 1e-5;
            *weight = kept + h;
            run_window(made, r, &above);
            *weight = kept - h;
            run_window(made, r, &below);
            *weight = kept;
            CHECK_NEAR(here.gradients[at], (above.loss - below.loss) / (2 * h), 1e-9, 1e-6);
        }
    }
}

/* ---- windows ---- */

static const int32_t LENGTHS[] = {5, 2, 13, 1};
static const int32_t SORTED[] = {13, 12, 12, 8, 4, 1};
static const int32_t EQUAL[] = {12, 12};

/* Two windows of a batch, at a border where a sequence goes on, ends, and has ended. */
static void check_windows(size_t border, size_t chunk) {
    static answer whole, first, second;
    made_batch made;
    ashlar_step_sizes sizes;
    make_batch(&made, 13, 4, LENGTHS);
    const double weight = 1 / (double)made.batch.tokens;
    CHECK(ashlar__model_sizes(model, 13, 4, &sizes) == ASHLAR_OK);
    unsigned char *set = take(sizes.state, streams[1]);
    memset(set, 0xff, sizes.state); /* NaN: it must be written */
    run_window(&made, &(recipe){.weight = weight}, &whole);
    run_window(&made, &(recipe){.chunk = chunk, .weight = weight, .steps = border, .last = set},
               &first);
    const recipe rest = {.chunk = chunk, .weight = weight, .first_step = border, .first = set};
    run_window(&made, &rest, &second);
    CHECK_NEAR(first.loss + second.loss, whole.loss, 0, 1e-12);
    check_slopes(&made, &rest); /* of its own loss, with the states it began with */
    give(set);
}

CASE(states_go_on_and_gradients_do_not) {
    static const size_t borders[] = {1, 2, 5, 7, 12};
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0;
        REQUIRE(open_window("memory=64MiB"));
        for (size_t b = 0; b < sizeof borders / sizeof borders[0]; b++) {
            check_windows(borders[b], 0);
            check_windows(borders[b], 3);
        }
        close_window();
    }
}

/* ---- chunks ---- */

static const struct {
    size_t steps, count;
    const int32_t *lengths;
} BATCHES[] = {{13, 4, LENGTHS}, {13, 6, SORTED}, {12, 2, EQUAL}, {14, 4, LENGTHS}};
enum { BATCHES_COUNT = sizeof BATCHES / sizeof BATCHES[0] };

static answer whole, chunked;

static double weight_of(const made_batch *made) {
    return 1 / (double)made->batch.tokens;
}

static void check_chunks(size_t chunk) {
    for (size_t i = 0; i < BATCHES_COUNT; i++) {
        made_batch made;
        make_batch(&made, BATCHES[i].steps, BATCHES[i].count, BATCHES[i].lengths);
        run_window(&made, &(recipe){.chunk = 0}, &whole);
        run_window(&made, &(recipe){.chunk = chunk, .weight = weight_of(&made)}, &chunked);
        check_same(&chunked, &whole, 1e-10);
    }
}

CASE(gradients_are_those_of_the_step_at_once) {
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0;
        REQUIRE(open_window("memory=64MiB"));
        for (size_t chunk = 1; chunk <= 15; chunk += chunk < 8 ? 1 : 3) {
            check_chunks(chunk);
        }
        close_window();
    }
}

/* Here the step at once drops other outputs, so its gradients are no reference. */
CASE(with_dropout_gradients_are_the_slopes_of_the_loss) {
    model_config.dropout = 0.3;
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        made_batch made;
        model_config.cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT);
        model_config.projection = i == ASHLAR_RNN_CELL_COUNT ? 7 : 0;
        if (model_config.cell == ASHLAR_RNN_RELU) {
            continue; /* has no slope at 0, where dropout puts it */
        }
        REQUIRE(open_window("memory=64MiB"));
        model->dropout_seed = 99;
        make_batch(&made, 13, 4, LENGTHS);
        check_slopes(&made, &(recipe){.chunk = 4, .weight = weight_of(&made)});
        close_window();
    }
}

/* ---- memory and work ---- */

/* Sizes that shrink with the length, as a back end's may: the rest of 1 needs more than the 4. */
static ashlar_status odd_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                               size_t *reserve, size_t *work) {
    const ashlar_status status =
        ashlar__rnn_backend_cpu.sizes(rnn, steps, batch, training, reserve, work);
    *reserve = training ? 1000000 - steps : 0;
    *work = (training ? 2000000 : 3000000) - steps;
    return status;
}

CASE_WITH(sizes_are_those_of_the_largest_chunk_and_of_the_rest, open_window("memory=64MiB")) {
    const ashlar_rnn_backend odd = {.sizes = odd_sizes, .queue = ashlar__rnn_backend_cpu.queue};
    ashlar_step_sizes s;
    model->rnn->backend = &odd;
    CHECK(ashlar__model_chunk_sizes(model, 13, 4, 4, &s) == ASHLAR_OK);
    CHECK_ZU(s.reserve, 1000000 - 1);
    CHECK_ZU(s.work, 3000000 - 1); /* of a forward pass for the states */
    CHECK(ashlar__model_chunk_sizes(model, 12, 4, 4, &s) == ASHLAR_OK);
    CHECK_ZU(s.reserve, 1000000 - 4);
    CHECK(ashlar__model_chunk_sizes(model, 3, 4, 4, &s) == ASHLAR_OK);
    CHECK_ZU(s.reserve, 1000000 - 3);
    CHECK_ZU(s.states, 0);
    CHECK(ashlar__model_chunk_sizes(model, 0, 4, 4, &s) == ASHLAR_EINVAL);
    CHECK(ashlar__model_chunk_sizes(model, 4, SIZE_MAX / 64, 2, &s) == ASHLAR_EOVERFLOW);
    CHECK(ashlar__model_chunk_sizes(model, SIZE_MAX / 16, 4, 1, &s) == ASHLAR_EOVERFLOW);
    close_window(); /* before the back end goes */
}

static void check_peak(size_t chunk, size_t loss_work) {
    ashlar_step_sizes s;
    REQUIRE(open_window("memory=64MiB"));
    CHECK(ashlar__model_chunk_sizes(model, 13, 4, chunk, &s) == ASHLAR_OK);
    s.loss_work = loss_work;
    size_t *const fields[] = {&s.x, &s.y, &s.logits, &s.reserve, &s.work, &s.states};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        *fields[i] = (*fields[i] + 511) / 512 * 512;
    }
    const uint64_t live = stats_now().live_bytes;
    CHECK_ZU(stats_now().live_peak_bytes, live);
    CHECK(ashlar__model_dry_run(model, chunk != 0, &s) == ASHLAR_OK);
    CHECK_ZU(stats_now().live_peak_bytes - live, ashlar__model_step_peak(chunk != 0, &s));
    close_window();
}

/* What is computed is what is measured, whichever moment the peak is at; also of a step at once. */
CASE(the_computed_peak_is_the_measured_one) {
    for (size_t wide = 0; wide < 3; wide++) {
        model_config.embedding = wide == 1 ? 300 : EMBEDDING;
        model_config.classes = wide == 2 ? 300 : CLASSES;
        for (size_t chunk = 0; chunk < 6; chunk += 2) {
            check_peak(chunk, 0);
            check_peak(chunk, 1024); /* of another back end */
            check_peak(chunk, 1 << 20);
        }
    }
}

/* Activations and reserve at T = 1024 in chunks of twice the root: an eighth at most, of any cell.
 */
CASE(long_steps_take_an_eighth_of_the_memory) {
    enum { T = 1024, CHUNK = 64, AT_LEAST = 8 };
    for (int i = 0; i <= ASHLAR_RNN_CELL_COUNT; i++) {
        model_config = (ashlar_model_config){.classes = 256,
                                             .embedding = 64,
                                             .hidden = 256,
                                             .layers = 2,
                                             .cell = (ashlar_rnn_cell)(i % ASHLAR_RNN_CELL_COUNT),
                                             .projection = i == ASHLAR_RNN_CELL_COUNT ? 128 : 0};
        ashlar_step_sizes all, chunk;
        REQUIRE(open_usual_model());
        CHECK(ashlar__model_chunk_sizes(model, T, 16, 0, &all) == ASHLAR_OK);
        CHECK(ashlar__model_chunk_sizes(model, T, 16, CHUNK, &chunk) == ASHLAR_OK);
        const size_t at_once = all.x + all.y + all.logits + all.reserve;
        const size_t held = 2 * chunk.x + 2 * chunk.y + chunk.logits + chunk.reserve + chunk.states;
        CHECK(held * AT_LEAST <= at_once);
        CHECK(ashlar__model_step_peak(true, &chunk) * AT_LEAST <=
              ashlar__model_step_peak(false, &all));
        close_model();
    }
}

/* ---- failures ---- */

CASE_WITH(a_failing_call_at_any_point_gives_every_buffer_back, open_window("memory=64MiB")) {
    static const int calls[] = {ASHLAR_DRIVER_FN_launch_host_func,
                                ASHLAR_DRIVER_FN_ctx_push_current};
    made_batch made;
    make_batch(&made, 13, 4, LENGTHS);
    const recipe r = {.chunk = 4, .weight = 1};
    run_window(&made, &r, &whole);
    const uint64_t live_blocks = stats_now().live_blocks;
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = i == 0 ? 1 : 2; /* the fixture's own copy comes first */
        for (ashlar_status status = ASHLAR_EDRIVER; status != ASHLAR_OK && n < 200; n++) {
            DRIVER_FAILS_AT(calls[i], n, CU_UNKNOWN, status = queue_window(&made, &r));
            CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
            CHECK_ZU(stats_now().live_blocks, live_blocks);
        }
        CHECK_ZU(n - 2, 3 * 2 + 4 * 8 + i);
    }
    wait_for(streams[1]);
    run_window(&made, &r, &chunked);
    check_same(&chunked, &whole, 0);
}

RUN_CASES_AFTER(check_each = usual_model)
