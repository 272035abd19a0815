/* ctc.c - a loss of one's own, as an operation of the model: connectionist temporal classification
 * (Graves and others, 2006) teaches an LSTM which labels it hears, without being told when. A
 * function on the host computes it, queued on the device's stream. With a FILE, weights begin as
 * there, and losses are printed.
 *
 *     cc ctc.c -o ctc $(pkg-config --cflags --libs ashlar) -lm && ./ctc
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/ashlar.h>

enum { T = 16, B = 32, V = 6, SOUNDS = 11, H = 32, STEPS = 400 }; /* class 0 is the blank */

static struct {
    int32_t sounds[T][B], labels[T][B];
    double loss;
} host, *on; /* a batch in host memory, and on the device */
static int32_t lengths[B], counts[B];
static uint32_t random_state = 1;
static ashlar_device *device;
static ashlar_model *model;
static ashlar_axis spoken;

static void must(bool has_failed) { /* takes an ashlar_status, too: ASHLAR_OK is 0 */
    has_failed ? exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1)) : (void)0;
}

static int32_t below(int32_t bound) {
    random_state = random_state * 1664525 + 1013904223;
    return (int32_t)(random_state >> 8) % bound;
}

static size_t draw(void) { /* each label is heard for 2 to 4 steps, and unlike the one before it */
    const int32_t longest = T / 2 + 1 + below(T / 2);
    for (int i = 0; i < B; i++) {
        int32_t label = 0, left = 0;
        lengths[i] = i == 0 ? longest : 1 + below(longest);
        counts[i] = 0;
        for (int t = 0; t < lengths[i]; t++, left--) {
            if (left == 0) {
                left = 2 + below(3);
                label = 1 + (label + below(V - 2)) % (V - 1);
                host.labels[counts[i]++][i] = label;
            }
            host.sounds[t][i] = 2 * label - below(2); /* each label has two sounds */
        }
    }
    return (size_t)longest;
}

static double log_sum(double a, double b) {
    return fmax(a, b) == -INFINITY ? a : fmax(a, b) + log1p(exp(-fabs(a - b)));
}

/* The probability to arrive in a state, as a logarithm: from itself, from the one before and, at a
 * label unlike the one before, from that one. State s of 2 U + 1 is label s / 2 if s is odd, else a
 * blank. from: those of the step before; NULL: there is none, and paths begin in the first two. */
static double arrive(const double *from, const int32_t *classes, size_t s) {
    if (from == NULL) {
        return s < 2 ? 0 : -INFINITY;
    }
    const double sum = s > 0 ? log_sum(from[s], from[s - 1]) : from[s];
    return s > 2 && s % 2 == 1 && classes[s] != classes[s - 2] ? log_sum(sum, from[s - 2]) : sum;
}

/* One sequence: its logits and their gradient, V for each step, `stride` apart. forward has a row
 * of `states` for each step: the probability of all paths that lead there. Backward is the same
 * with the states in the opposite order. Returns the loss, -log of the probability of all paths. */
static double run(const float *logits, float *gradient, size_t stride, size_t steps,
                  const int32_t *classes, size_t states, double *forward, double factor) {
    double total = 0, backward[2][2 * T + 1], norm[T];
    int32_t opposite[2 * T + 1];
    for (size_t s = 0; s < states; s++) {
        opposite[s] = classes[states - 1 - s];
    }
    for (size_t t = 0; t < steps; t++) {
        double *row = forward + t * states;
        norm[t] = -INFINITY;
        for (size_t k = 0; k < V; k++) {
            norm[t] = log_sum(norm[t], logits[t * stride + k]);
        }
        for (size_t s = 0; s < states; s++) {
            row[s] = arrive(t > 0 ? row - states : NULL, classes, s) +
                     logits[t * stride + (size_t)classes[s]] - norm[t];
        }
        total = log_sum(row[states - 1], states > 1 ? row[states - 2] : -INFINITY);
    }
    for (size_t t = steps; t-- > 0 && gradient != NULL;) {
        double *row = backward[t % 2];
        for (size_t k = 0; k < V; k++) {
            gradient[t * stride + k] = (float)(factor * exp(logits[t * stride + k] - norm[t]));
        }
        for (size_t s = 0; s < states; s++) { /* without this step's own factor, then with it */
            const size_t k = (size_t)opposite[s];
            const double *from = t + 1 < steps ? backward[(t + 1) % 2] : NULL;
            const double behind = arrive(from, opposite, s);
            gradient[t * stride + k] -=
                (float)(factor * exp(forward[t * states + states - 1 - s] + behind - total));
            row[s] = behind + logits[t * stride + k] - norm[t];
        }
    }
    return -total;
}

/* The call that is queued, on the software device: all pointers are the host's, too. */
static void compute(void *argument) {
    const ashlar_operation_call *c = argument;
    const ashlar_operand_data *x = &c->inputs[0], *labels = &c->inputs[1];
    const size_t rows = x->extent.rows;
    const double weight = c->weight_at != NULL ? *c->weight_at
                          : c->weight != 0     ? c->weight
                                               : 1.0 / (double)rows;
    const double factor = weight * (c->scale != NULL ? *c->scale : 1);
    if (x->gradient != NULL) { /* positions past a length have one, too */
        memset(x->gradient, 0, x->extent.steps * rows * V * sizeof(float));
    }
    for (size_t i = 0; i < rows; i++) {
        const size_t count = (size_t)labels->extent.lengths_at[i];
        int32_t classes[2 * T + 1] = {0};
        for (size_t u = 0; u < count; u++) {
            classes[2 * u + 1] = ((int32_t *)labels->value)[u * rows + i];
        }
        *c->loss +=
            weight * run((float *)x->value + i * V,
                         x->gradient == NULL ? NULL : (float *)x->gradient + i * V, rows * V,
                         (size_t)x->extent.lengths_at[i], classes, 2 * count + 1, c->work, factor);
    }
}

static ashlar_status sizes(void *user, const ashlar_operation_call *c,
                           ashlar_operation_sizes *out) {
    (void)user;
    const size_t states = 2 * c->inputs[1].extent.steps + 1;
    *out = (ashlar_operation_sizes){
        .work_bytes = {c->inputs[0].extent.steps * states * sizeof(double)}};
    return ASHLAR_OK;
}

static ashlar_status queue(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    (void)user;
    return ashlar_launch(device, stream, compute, c, sizeof *c);
}

static void declare(void) {
    const ashlar_rnn_config lstm = {
        .hidden = H, .layers = 1, .directions = 2, .cell = ASHLAR_RNN_LSTM};
    const ashlar_operation ctc = {.name = "ctc",
                                  .sizes = sizes,
                                  .queue = queue,
                                  .is_loss = true,
                                  .constant_inputs = 2}; /* bit 1: the labels */
    spoken = ashlar_model_axis(model, ASHLAR_AXIS_NONE);
    ashlar_tensor *sounds = ashlar_model_input(model, "sounds", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *labels = ashlar_model_input(model, "labels", spoken, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", sounds, SOUNDS, H);
    ashlar_tensor *y = ashlar_model_rnn(model, "lstm", x, &lstm, NULL).y;
    ashlar_tensor *logits = ashlar_model_linear(model, "linear", y, V, true);
    ashlar_model_operation(
        model, &ctc, &(ashlar_operation_shape){.input_count = 2, .inputs = {logits, labels}}, NULL);
}

static ashlar_status step(void *is_dry, size_t longest) {
    ashlar_model_batch batch = {.batch = B,
                                .steps = longest,
                                .lengths = lengths,
                                .inputs = (const void *[]){on->sounds, on->labels},
                                .loss = &on->loss};
    batch.axes[spoken].steps = longest;
    batch.axes[spoken].lengths = counts;
    return is_dry != NULL ? ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, &batch, NULL, NULL)
                          : ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, NULL);
}

int main(int count, char **arguments) {
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.01};
    const ashlar_warmup_options warmup = {.max_length = T, .dry_run = step, .user = &host};
    ashlar_allocator *memory;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file = NULL;
    ashlar_device_info info;
    ashlar_stats stats;
    double first = 0;
    must(ashlar_device_open(NULL, &device));
    ashlar_device_get_info(device, &info);
    if (info.kind == ASHLAR_DEVICE_CUDA) {
        puts("ctc: its loss runs on the CPU only: set ASHLAR_DEVICE=soft");
        return 1;
    }
    must(ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    declare();
    must(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL));
    must(count > 1 && (ashlar_checkpoint_open(arguments[1], &file) ||
                       ashlar_checkpoint_load(ashlar_model_arena(model), file, NULL, NULL, NULL)));
    ashlar_checkpoint_close(file);
    must(ashlar_optimizer_create(ashlar_model_arena(model), &adam, NULL, &optimizer) ||
         ashlar_alloc(memory, sizeof host, NULL, (void **)&on) ||
         ashlar_allocator_warmup(memory, &warmup, NULL));
    for (int i = 0; i < (count > 1 ? 20 : STEPS); i++) {
        const size_t longest = draw();
        host.loss = 0;
        must(ashlar_copy_to_device(device, on, &host, sizeof host, NULL) ||
             ashlar_arena_zero(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, NULL) ||
             ashlar_step_begin(memory, NULL, ashlar_warmup_key(&warmup, longest)) ||
             step(NULL, longest) || ashlar_step_end(memory) ||
             ashlar_optimizer_step(optimizer, adam.learning_rate, 1, NULL) ||
             ashlar_copy_to_host(device, &host.loss, &on->loss, sizeof host.loss, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        first = i == 0 ? host.loss : first;
        count > 1 ? (void)printf("%.9g\n", host.loss) : (void)0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.5f last %.5f, %d driver calls\n", first, host.loss,
           (int)stats.driver_calls_sealed);
    ashlar_optimizer_destroy(optimizer);
    ashlar_model_destroy(model);
    ashlar_allocator_destroy(memory); /* frees *on, too */
    ashlar_device_close(device);
    return stats.driver_calls_sealed != 0;
}
