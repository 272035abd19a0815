/* ctc.c - a loss of one's own, as an operation of the model: connectionist temporal classification
 * (Graves and others, 2006) teaches an LSTM which labels it hears, without being told when. A
 * function on the host computes it, queued on the stream of a software device. With a FILE, weights
 * begin as there, and losses are printed.
 *
 *     cc ctc.c -o ctc $(pkg-config --cflags --libs ashlar) -lm && ./ctc
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { T = 16, B = 32, V = 6, SOUNDS = 11, H = 32, STEPS = 400 }; /* class 0 is the blank */

static struct {
    int32_t sounds[T][B], labels[T][B], lengths[B], counts[B];
    double loss[STEPS];
} * on; /* page-locked */
static ashlar_device *device;

static int32_t below(int32_t bound) {
    static uint32_t random = 1;
    random = random * 1664525 + 1013904223;
    return (int32_t)(random >> 8) % bound;
}

static size_t draw(void) { /* each label is heard for 2 to 4 steps, and unlike the one before it */
    const int32_t longest = T / 2 + 1 + below(T / 2);
    for (int i = 0; i < B; i++) {
        int32_t label = 0, left = 0;
        on->lengths[i] = i == 0 ? longest : 1 + below(longest);
        on->counts[i] = 0;
        for (int t = 0; t < on->lengths[i]; t++, left--) {
            if (left == 0) {
                left = 2 + below(3);
                label = 1 + (label + below(V - 2)) % (V - 1);
                on->labels[on->counts[i]++][i] = label;
            }
            on->sounds[t][i] = 2 * label - below(2); /* each label has two sounds */
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
                  const int32_t *classes, size_t states, double weight) {
    double total = 0, forward[T][2 * T + 1], backward[2][2 * T + 1], norm[T];
    int32_t opposite[2 * T + 1];
    for (size_t s = 0; s < states; s++) {
        opposite[s] = classes[states - 1 - s];
    }
    for (size_t t = 0; t < steps; t++) {
        norm[t] = -INFINITY;
        for (size_t k = 0; k < V; k++) {
            norm[t] = log_sum(norm[t], logits[t * stride + k]);
        }
        for (size_t s = 0; s < states; s++) {
            forward[t][s] = arrive(t > 0 ? forward[t - 1] : NULL, classes, s) +
                            logits[t * stride + (size_t)classes[s]] - norm[t];
        }
        total = log_sum(forward[t][states - 1], states > 1 ? forward[t][states - 2] : -INFINITY);
    }
    for (size_t t = steps; t-- > 0;) {
        for (size_t k = 0; k < V; k++) {
            gradient[t * stride + k] = (float)(weight * exp(logits[t * stride + k] - norm[t]));
        }
        for (size_t s = 0; s < states; s++) { /* without this step's own factor, then with it */
            const size_t k = (size_t)opposite[s];
            const double *from = t + 1 < steps ? backward[(t + 1) % 2] : NULL;
            const double behind = arrive(from, opposite, s);
            gradient[t * stride + k] -=
                (float)(weight * exp(forward[t][states - 1 - s] + behind - total));
            backward[t % 2][s] = behind + logits[t * stride + k] - norm[t];
        }
    }
    return -total;
}

/* The call that is queued, on the software device: all pointers are the host's, too. The batches of
 * this program are all for training, and have neither a weight nor a scale. */
static void compute(void *argument) {
    const ashlar_operation_call *c = argument;
    const ashlar_operand_data *x = &c->inputs[0], *labels = &c->inputs[1];
    const size_t rows = x->extent.rows;
    memset(x->gradient, 0, x->extent.steps * rows * V * sizeof(float)); /* past a length, too */
    for (size_t i = 0; i < rows; i++) {
        const size_t count = (size_t)labels->extent.lengths_at[i];
        const size_t steps = (size_t)x->extent.lengths_at[i];
        int32_t classes[2 * T + 1] = {0};
        for (size_t u = 0; u < count; u++) {
            classes[2 * u + 1] = ((int32_t *)labels->value)[u * rows + i];
        }
        *c->loss += run((float *)x->value + i * V, (float *)x->gradient + i * V, rows * V, steps,
                        classes, 2 * count + 1, 1.0 / (double)rows) /
                    (double)rows;
    }
}

static ashlar_status queue(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    (void)user;
    return ashlar_launch(device, stream, compute, c, sizeof *c);
}

int main(int argc, char **argv) {
    const ashlar_operation ctc = {"ctc", .queue = queue, .is_loss = true,
                                  .constant_inputs = 1 << 1};
    ashlar_rnn_config lstm = {.hidden = H, .layers = 1, .directions = 2, .cell = ASHLAR_RNN_LSTM};
    const ashlar_optimizer_config config = {ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.01};
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_checkpoint *file;
    ashlar_stats stats;
    must(ashlar_device_open("soft", &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    const ashlar_axis spoken = ashlar_model_axis(m, ASHLAR_AXIS_NONE);
    ashlar_tensor *sounds = ashlar_model_input(m, "sounds", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *labels = ashlar_model_input(m, "labels", spoken, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "embedding", sounds, SOUNDS, H);
    x = ashlar_model_rnn(m, "lstm", x, &lstm, NULL).y;
    x = ashlar_model_linear(m, "linear", x, V, true);
    ashlar_model_operation(m, &ctc, &(ashlar_operation_shape){2, .inputs = {x, labels}}, NULL);
    ashlar_model_batch b = {.batch = B, .steps = T, .lengths = on->lengths, .loss = on->loss};
    b.inputs = (const void *[]){on->sounds, on->labels};
    b.axes[spoken].steps = T;
    b.axes[spoken].lengths = on->counts;
    must(ashlar_model_commit(m, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(m, ASHLAR_INIT_PYTORCH, 1, NULL) ||
         ashlar_optimizer_create(ashlar_model_arena(m), &config, NULL, &adam) ||
         ashlar_model_warmup(m, &b, NULL, NULL));
    must(argc > 1 && (ashlar_checkpoint_open(argv[1], &file) ||
                      ashlar_checkpoint_load(ashlar_model_arena(m), file, NULL, NULL, NULL)));
    for (int i = 0; i < (argc > 1 ? 20 : STEPS); i++, b.loss++) {
        b.steps = b.axes[spoken].steps = draw();
        must(ashlar_model_step(m, adam, &b, 0.01, NULL) || ashlar_stream_synchronize(device, NULL));
        argc > 1 ? printf("%.9g\n", *b.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.5f last %.5f, %d driver calls\n", on->loss[0], b.loss[-1],
           (int)stats.driver_calls_sealed);
}
