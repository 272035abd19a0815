/* ctc.c - an LSTM learns which labels it hears, without being told when, by a loss of the program's
 * own: a function of ctc_loss.c queues it. A FILE has the first weights.
 *
 *     cc ctc.c ctc_loss.c -o ctc $(pkg-config --cflags --libs ashlar) -lm && ./ctc
 */
#include <stdio.h>
#include <stdlib.h>

#include "ctc.h"

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)

int main(int argc, char **argv) {
    ashlar_rnn_config lstm = {.hidden = 32, .layers = 1, .directions = 2, .cell = ASHLAR_RNN_LSTM};
    ashlar_model_start_options start = {.optimizer.kind = ASHLAR_OPTIMIZER_ADAM, .file = argv[1]};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_stats stats;
    struct {
        int32_t sounds[T][B], labels[T][B], lengths[B], counts[B];
        double loss[STEPS];
    } * on; /* page-locked: the device uses it as it is */
    must(ashlar_device_open("soft", &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    const ashlar_operation loss = {"ctc", .queue = ctc_queue, .user = device, .is_loss = true,
                                   .constant_inputs = 1 << 1};
    const ashlar_axis spoken = ashlar_model_axis(m, ASHLAR_AXIS_NONE);
    ashlar_tensor *x = ashlar_model_input(m, "sounds", ASHLAR_AXIS_TIME, 0);
    ashlar_operation_shape shape = {2, .inputs[1] = ashlar_model_input(m, "labels", spoken, 0)};
    x = ashlar_model_embedding(m, "embedding", x, 2 * V, 32);
    x = ashlar_model_rnn(m, "lstm", x, &lstm, NULL).y;
    shape.inputs[0] = ashlar_model_linear(m, "linear", x, V, true);
    ashlar_model_operation(m, &loss, &shape, NULL);
    ashlar_model_batch b = {B, T, .lengths = on->lengths, .loss = on->loss};
    b.inputs = (const void *[]){on->sounds, on->labels};
    b.axes[spoken].steps = T;
    b.axes[spoken].lengths = on->counts;
    must(ashlar_model_start(m, &start, &b, NULL, &adam));
    for (int step = 0; step < STEPS; step++, b.loss++) {
        for (int i = 0; i < B; i++) {
            on->counts[i] = 0;
            on->lengths[i] = 1 + rand() % T;
            for (int t = 0, label = 0; t < on->lengths[i]; t++) {
                if (t == 0 || rand() % 3 == 0) {
                    label = 1 + (label + rand() % (V - 2)) % (V - 1);
                    on->labels[on->counts[i]++][i] = label;
                }
                on->sounds[t][i] = 2 * label + rand() % 2; /* each label has two sounds */
            }
        }
        must(ashlar_model_step(m, adam, &b, 0.01, NULL) || ashlar_stream_synchronize(device, NULL));
        argc > 1 ? printf("%.9g\n", *b.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.5f last %.5f, %d driver calls\n", on->loss[0], b.loss[-1],
           (int)stats.driver_calls_sealed);
}
