/* seq2seq.c - an encoder and a decoder learn to reverse sequences of digits: the decoder begins
 * with the encoder's last states and, in training, reads the digit that should have come before. A
 * loop over the decoder's axis, with the same weights, reads what it predicted itself instead. With
 * a FILE, weights begin as there, and losses are printed.
 *
 *     cc seq2seq.c -o seq2seq $(pkg-config --cflags --libs ashlar) && ./seq2seq
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { T = 8, B = 64, V = 10, E = 24, H = 96, STEPS = 1000 }; /* 0 begins; digits are 1 .. 9 */

static struct {
    int32_t source[T][B], before[T + 1][B], target[T][B], guess[T][B], lengths[B];
    double loss[STEPS];
} * on; /* page-locked: the device uses it as it is */

static int32_t below(int32_t bound) {
    static uint32_t random = 1;
    random = random * 1664525 + 1013904223;
    return (int32_t)(random >> 8) % bound;
}

static size_t draw(void) { /* returns the longest length */
    const int32_t longest = 1 + below(T);
    for (int i = 0; i < B; i++) {
        const int32_t n = on->lengths[i] = i == 0 ? longest : 1 + below(longest);
        on->before[0][i] = 0;
        for (int t = 0; t < n; t++) {
            on->source[t][i] = on->target[n - 1 - t][i] = on->before[n - t][i] = 1 + below(V - 1);
        }
    }
    return (size_t)longest;
}

static int count_right(void) {
    int wrong = 0;
    for (int i = 0; i < B; i++) {
        int t = 0;
        while (t < on->lengths[i] && on->guess[t][i] == on->target[t][i]) {
            t++;
        }
        wrong += t < on->lengths[i];
    }
    return B - wrong;
}

/* Returns the decoder's own digits. */
static ashlar_tensor *declare(ashlar_model *m, ashlar_axis reply) {
    const ashlar_rnn_config lstm = {.hidden = H, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    ashlar_tensor *source = ashlar_model_input(m, "source", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *before = ashlar_model_input(m, "before", reply, 0);
    ashlar_tensor *target = ashlar_model_input(m, "target", reply, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "digits", source, V, E);
    const ashlar_rnn_result encoder = ashlar_model_rnn(m, "encoder", x, &lstm, NULL);
    x = ashlar_model_embedding(m, "digits", before, V, E);
    x = ashlar_model_rnn(m, "decoder", x, &lstm, &(ashlar_rnn_states){encoder.h, encoder.c}).y;
    x = ashlar_model_linear(m, "linear", x, V, true);
    ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, x, target, NULL);

    ashlar_model *body = ashlar_model_loop(m, reply, false);
    ashlar_tensor *digit = ashlar_loop_carried(body, NULL, 0);
    const ashlar_rnn_states states = {ashlar_loop_carried(body, encoder.h, 0),
                                      ashlar_loop_carried(body, encoder.c, 0)};
    x = ashlar_model_embedding(body, "digits", digit, V, E);
    const ashlar_rnn_result step = ashlar_model_rnn(body, "decoder", x, &lstm, &states);
    x = ashlar_model_argmax(body, ashlar_model_linear(body, "linear", step.y, V, true));
    ashlar_loop_carry(body, digit, x);
    ashlar_loop_carry(body, states.h, step.h);
    ashlar_loop_carry(body, states.c, step.c);
    return ashlar_loop_end(body, x);
}

int main(int argc, char **argv) {
    const ashlar_optimizer_config config = {ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.003};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_checkpoint *file;
    ashlar_stats stats;
    void *guess;
    int right = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_alloc(memory, sizeof on->guess, NULL, &guess) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    const ashlar_axis reply = ashlar_model_axis(m, ASHLAR_AXIS_NONE);
    ashlar_model_output(m, declare(m, reply));
    ashlar_model_batch b = {.batch = B, .steps = T, .lengths = on->lengths, .loss = on->loss};
    b.axes[reply].steps = T;
    b.axes[reply].lengths = on->lengths;
    b.inputs = (const void *[]){on->source, on->before, on->target};
    b.outputs = (void *[]){guess};
    must(ashlar_model_commit(m, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(m, ASHLAR_INIT_PYTORCH, 1, NULL) ||
         ashlar_optimizer_create(ashlar_model_arena(m), &config, NULL, &adam) ||
         ashlar_model_warmup(m, &b, NULL, NULL));
    must(argc > 1 && (ashlar_checkpoint_open(argv[1], &file) ||
                      ashlar_checkpoint_load(ashlar_model_arena(m), file, NULL, NULL, NULL)));
    for (int i = 0; i < (argc > 1 ? 20 : STEPS); i++, b.loss++) {
        b.steps = b.axes[reply].steps = draw();
        must(i >= STEPS - 100 &&
             (ashlar_model_run(m, ASHLAR_WALK_PREDICT, &b, NULL) ||
              ashlar_copy_to_host(device, on->guess, guess, sizeof on->guess, NULL)));
        must(ashlar_model_step(m, adam, &b, 0.003, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        right += i < STEPS - 100 ? 0 : count_right();
        argc > 1 ? printf("%.9g\n", *b.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.5f last %.5f, %d driver calls\n", on->loss[0], b.loss[-1],
           (int)stats.driver_calls_sealed);
    printf("%d of the last %d sequences were reversed by the decoder alone\n", right, 100 * B);
}
