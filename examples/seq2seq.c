/* seq2seq.c - an encoder and a decoder learn to say digits backwards. A FILE has the first weights.
 *
 *     cc seq2seq.c -o seq2seq $(pkg-config --cflags --libs ashlar) && ./seq2seq
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { T = 3, B = 64, V = 10, E = 16, H = 64, STEPS = 1000 }; /* T digits of V kinds */

int main(int argc, char **argv) {
    ashlar_rnn_config gru = {.hidden = H, .layers = 1, .cell = ASHLAR_RNN_GRU};
    ashlar_model_start_options start = {.optimizer.kind = ASHLAR_OPTIMIZER_ADAM, .file = argv[1]};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_stats stats;
    struct {
        int32_t digits[T * B], said[T * B];
        double loss;
    } * on; /* page-locked: the device uses it as it is */
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    ashlar_tensor *digits = ashlar_model_input(m, "digits", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "digits", digits, V, E);
    ashlar_tensor *h = ashlar_model_rnn(m, "encoder", x, &gru, NULL).h, *next;
    for (int alone = 0; alone < 2; alone++) { /* reads the right digits, or its own */
        ashlar_model *loop = ashlar_model_loop(m, ASHLAR_AXIS_TIME, true);
        ashlar_tensor *before = ashlar_loop_carried(loop, NULL, E);
        ashlar_rnn_states states = {.h = ashlar_loop_carried(loop, h, 0)};
        ashlar_rnn_result decoder = ashlar_model_rnn(loop, "decoder", before, &gru, &states);
        ashlar_tensor *y = ashlar_model_linear(loop, "linear", decoder.y, V, true);
        ashlar_loop_carry(loop, states.h, decoder.h);
        next = alone ? ashlar_model_embedding(loop, "digits", ashlar_model_argmax(loop, y), V, E)
                     : ashlar_loop_step(loop, x);
        ashlar_loop_carry(loop, before, next);
        y = ashlar_loop_end(loop, y);
        alone ? ashlar_model_output(m, ashlar_model_argmax(m, y))
              : ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, y, digits, NULL);
    }
    ashlar_model_batch b = {B, T, .outputs = (void *[]){on->said}, .loss = &on->loss};
    b.inputs = (const void *[]){on->digits};
    must(ashlar_model_start(m, &start, &b, NULL, &adam));
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < T * B; k++) {
            on->digits[k] = rand() % V;
        }
        must(ashlar_model_run(m, ASHLAR_WALK_PREDICT, &b, NULL) ||
             ashlar_model_step(m, adam, &b, 3e-3, NULL) || ashlar_stream_synchronize(device, NULL));
        argc > 1 ? printf("%.9g\n", on->loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss %.5f, %d driver calls, alone it is %s\n", on->loss, (int)stats.driver_calls_sealed,
           memcmp(on->said, on->digits, sizeof on->said) == 0 ? "right" : "wrong");
}
