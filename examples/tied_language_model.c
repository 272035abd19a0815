/* tied_language_model.c - an LSTM learns which token follows: its output layer has the embedding's
 * weight. With a FILE [RATE], weights begin as there, losses are printed, and dropout may be none.
 *
 *     cc tied_language_model.c -o tied_language_model $(pkg-config --cflags --libs ashlar)
 *     ./tied_language_model
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { T = 32, B = 16, V = 24, H = 24, STEPS = 300 };

int main(int argc, char **argv) {
    ashlar_rnn_config lstm = {.hidden = H, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    ashlar_load_options once = {.flags = ASHLAR_CHECKPOINT_PARTIAL}; /* PyTorch saves it twice */
    ashlar_model_start_options start = {
        .optimizer.kind = ASHLAR_OPTIMIZER_ADAMW, .file = argv[1], .load = &once};
    double rate = argc > 2 ? atof(argv[2]) : 0.1;
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_stats stats;
    struct {
        int32_t tokens[(T + 1) * B]; /* the first T * B are read, the last T * B are to be told */
        double loss[STEPS];
    } * on; /* page-locked: the device uses it as it is */
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    ashlar_tensor *tokens = ashlar_model_input(m, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *next = ashlar_model_input(m, "next tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "embedding", tokens, V, H);
    x = ashlar_model_rnn(m, "lstm", ashlar_model_dropout(m, x, rate), &lstm, NULL).y;
    ashlar_model_tie(m, "linear.weight", "embedding.weight");
    x = ashlar_model_linear(m, "linear", ashlar_model_dropout(m, x, rate), V, true);
    ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, x, next, NULL);
    ashlar_model_batch b = {.batch = B, .steps = T, .loss = on->loss};
    b.inputs = (const void *[]){on->tokens, on->tokens + B};
    must(ashlar_model_start(m, &start, &b, NULL, &adam));
    for (uint32_t step = 0, random = 1; step < STEPS; step++, b.loss++) {
        random = random * 1664525 + 1013904223;
        b.steps = 1 + (random >> 8) % T;
        for (uint32_t k = 0; k < (T + 1) * B; k++) { /* the sequences count on by 1, 2 and 3 */
            on->tokens[k] = (int32_t)(((random >> 16) + k % B + k / B * (1 + k % B % 3)) % V);
        }
        must(ashlar_model_step(m, adam, &b, 0.01, NULL) || ashlar_stream_synchronize(device, NULL));
        argc > 1 ? printf("%.9g\n", *b.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.3f last %.3f, %d driver calls\n", on->loss[0], b.loss[-1],
           (int)stats.driver_calls_sealed);
}
