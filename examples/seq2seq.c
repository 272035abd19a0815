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

enum { T = 8, B = 64, V = 10, E = 24, H = 96, STEPS = 1000 }; /* 0 begins; digits are 1 .. 9 */

static struct {
    int32_t source[T][B], before[T][B], target[T][B], guess[T][B];
    double loss;
} host, *on; /* a batch in host memory, and on the device */
static int32_t lengths[B];
static uint32_t random_state = 1;

static void must(bool has_failed) { /* takes an ashlar_status, too: ASHLAR_OK is 0 */
    has_failed ? exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1)) : (void)0;
}

static int32_t below(int32_t bound) {
    random_state = random_state * 1664525 + 1013904223;
    return (int32_t)(random_state >> 8) % bound;
}

static size_t draw(void) { /* returns the longest length */
    const int32_t longest = 1 + below(T);
    for (int i = 0; i < B; i++) {
        lengths[i] = i == 0 ? longest : 1 + below(longest);
        for (int t = 0; t < lengths[i]; t++) {
            host.source[t][i] = host.target[lengths[i] - 1 - t][i] = 1 + below(V - 1);
        }
        for (int t = 0; t < lengths[i]; t++) {
            host.before[t][i] = t == 0 ? 0 : host.target[t - 1][i];
        }
    }
    return (size_t)longest;
}

static int count_right(void) {
    int count = 0;
    for (int i = 0; i < B; i++) {
        int t = 0;
        while (t < lengths[i] && host.guess[t][i] == host.target[t][i]) {
            t++;
        }
        count += t == lengths[i];
    }
    return count;
}

static ashlar_axis reply;
static ashlar_model *model;

static ashlar_tensor *declare(void) { /* returns the decoder's own digits */
    const ashlar_rnn_config lstm = {.hidden = H, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    reply = ashlar_model_axis(model, ASHLAR_AXIS_NONE);
    ashlar_tensor *source = ashlar_model_input(model, "source", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *before = ashlar_model_input(model, "before", reply, 0);
    ashlar_tensor *target = ashlar_model_input(model, "target", reply, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "digits", source, V, E);
    const ashlar_rnn_result encoder = ashlar_model_rnn(model, "encoder", x, &lstm, NULL);
    const ashlar_rnn_states first = {encoder.h, encoder.c};
    x = ashlar_model_embedding(model, "digits", before, V, E);
    ashlar_tensor *y = ashlar_model_rnn(model, "decoder", x, &lstm, &first).y;
    y = ashlar_model_linear(model, "linear", y, V, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, y, target, NULL);

    ashlar_model *body = ashlar_model_loop(model, reply, false);
    ashlar_tensor *digit = ashlar_loop_carried(body, NULL, 0);
    const ashlar_rnn_states states = {ashlar_loop_carried(body, encoder.h, 0),
                                      ashlar_loop_carried(body, encoder.c, 0)};
    x = ashlar_model_embedding(body, "digits", digit, V, E);
    const ashlar_rnn_result step = ashlar_model_rnn(body, "decoder", x, &lstm, &states);
    y = ashlar_model_argmax(body, ashlar_model_linear(body, "linear", step.y, V, true));
    ashlar_loop_carry(body, digit, y);
    ashlar_loop_carry(body, states.h, step.h);
    ashlar_loop_carry(body, states.c, step.c);
    return ashlar_loop_end(body, y);
}

/* Predict a batch, then train on it; or only take the memory that this takes. */
static ashlar_status step(void *is_dry, size_t longest) {
    ashlar_model_batch batch = {.batch = B,
                                .steps = longest,
                                .lengths = lengths,
                                .inputs = (const void *[]){on->source, on->before, on->target},
                                .outputs = (void *[]){on->guess},
                                .loss = &on->loss};
    batch.axes[reply].steps = longest;
    batch.axes[reply].lengths = lengths;
    for (int i = 0; i < 2; i++, batch.outputs = NULL) {
        const ashlar_walk walk = i == 0 ? ASHLAR_WALK_PREDICT : ASHLAR_WALK_TRAIN;
        must(is_dry != NULL ? ashlar_model_dry_run(model, walk, &batch, NULL, NULL)
                            : ashlar_model_run(model, walk, &batch, NULL));
    }
    return ASHLAR_OK;
}

int main(int count, char **arguments) {
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.003};
    const ashlar_warmup_options warmup = {.max_length = T, .dry_run = step, .user = &host};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file = NULL;
    ashlar_stats stats;
    double first = 0;
    int right = 0, all = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    ashlar_model_output(model, declare());
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
             ashlar_step_begin(memory, NULL, ashlar_warmup_key(&warmup, longest)) ||
             ashlar_arena_zero(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, NULL) ||
             step(NULL, longest) || ashlar_step_end(memory) ||
             ashlar_optimizer_step(optimizer, adam.learning_rate, 1, NULL) ||
             ashlar_copy_to_host(device, &host, on, sizeof host, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        first = i == 0 ? host.loss : first;
        right = i % 100 == 0 ? count_right() : right + count_right();
        all = i % 100 == 0 ? B : all + B;
        count > 1 ? (void)printf("%.9g\n", host.loss) : (void)0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.5f last %.5f, %d driver calls\n", first, host.loss,
           (int)stats.driver_calls_sealed);
    printf("%d of the last %d sequences were reversed by the decoder alone\n", right, all);
    ashlar_optimizer_destroy(optimizer);
    ashlar_model_destroy(model);
    ashlar_allocator_destroy(memory); /* frees *on, too */
    ashlar_device_close(device);
    return stats.driver_calls_sealed != 0;
}
