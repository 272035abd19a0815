/* classifier.c - a two-layer bidirectional GRU reads sequences of different lengths: is the first
 * token less than the last one? With a FILE, weights begin as there, and losses are printed.
 *
 *     cc classifier.c -o classifier $(pkg-config --cflags --libs ashlar) && ./classifier
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { T = 24, B = 32, V = 8, STEPS = 400 }; /* longest, sequences, kinds of tokens, steps */

int main(int argc, char **argv) {
    ashlar_rnn_config gru = {.hidden = 16, .layers = 2, .cell = ASHLAR_RNN_GRU, .directions = 2};
    ashlar_model_start_options start = {.optimizer.kind = ASHLAR_OPTIMIZER_ADAM, .file = argv[1]};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_stats stats;
    struct {
        int32_t tokens[T][B], classes[B], lengths[B];
        double loss[STEPS];
    } * on; /* page-locked: the device uses it as it is */
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    ashlar_tensor *tokens = ashlar_model_input(m, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *classes = ashlar_model_input(m, "classes", ASHLAR_AXIS_NONE, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "embedding", tokens, V, 8);
    x = ashlar_model_last_layer(m, ashlar_model_rnn(m, "gru", x, &gru, NULL).h);
    x = ashlar_model_linear(m, "linear", x, 2, true);
    ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, x, classes, NULL);
    ashlar_model_batch b = {.batch = B, .steps = T, .lengths = on->lengths, .loss = on->loss};
    b.inputs = (const void *[]){on->tokens, on->classes};
    must(ashlar_model_start(m, &start, &b, NULL, &adam));
    for (uint32_t step = 0, random = 4321; step < STEPS; step++, b.loss++) {
        b.steps = 1 + (random >> 8) % T;
        for (int i = 0; i < B; i++) {
            on->lengths[i] = 1 + (int32_t)((random >> 8) % b.steps);
            for (int t = 0; t < on->lengths[i]; t++) {
                random = random * 1664525 + 1013904223;
                on->tokens[t][i] = (int32_t)(random >> 8) % V;
            }
            on->classes[i] = on->tokens[0][i] < on->tokens[on->lengths[i] - 1][i];
        }
        must(ashlar_model_step(m, adam, &b, 0.01, NULL) || ashlar_stream_synchronize(device, NULL));
        argc > 1 ? printf("%.9g\n", *b.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.3f last %.3f, %d driver calls\n", on->loss[0], b.loss[-1],
           (int)stats.driver_calls_sealed);
}
