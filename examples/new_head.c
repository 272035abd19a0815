/* new_head.c - an embedding and an LSTM are loaded by name from a PyTorch FILE, or random, and are
 * frozen: no step computes backward through them. A new linear layer learns another task.
 *
 *     cc new_head.c -o new_head $(pkg-config --cflags --libs ashlar) && ./new_head
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { T = 24, B = 16, V = 11, STEPS = 300 }; /* time steps, sequences, kinds of tokens, steps */

int main(int argc, char **argv) {
    ashlar_rnn_config lstm = {.hidden = 32, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    ashlar_optimizer_config config = {ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.05};
    ashlar_load_options base = {.flags = ASHLAR_CHECKPOINT_PARTIAL}; /* without the old head */
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_optimizer *adam;
    ashlar_checkpoint *file;
    ashlar_model_need all, need;
    ashlar_stats stats;
    struct {
        int32_t tokens[(T + 1) * B]; /* the new task: to tell the token before */
        double loss[STEPS];
    } * on; /* page-locked: the device uses it as it is */
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, sizeof *on, (void **)&on) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    ashlar_tensor *tokens = ashlar_model_input(m, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *before = ashlar_model_input(m, "tokens before", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "base.embedding", tokens, V, 16);
    x = ashlar_model_linear(m, "head", ashlar_model_rnn(m, "base.lstm", x, &lstm, NULL).y, V, true);
    ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, x, before, NULL);
    ashlar_model_batch b = {.batch = B, .steps = T, .loss = on->loss};
    b.inputs = (const void *[]){on->tokens + B, on->tokens};
    must(ashlar_model_commit(m, ASHLAR_REGIONS_ALL, NULL) || /* all weights are 0 */
         (argc < 2 ? ashlar_model_init(m, ASHLAR_INIT_PYTORCH, 1, NULL)
                   : ashlar_checkpoint_open(argv[1], &file) ||
                         ashlar_checkpoint_load(ashlar_model_arena(m), file, &base, NULL, NULL)) ||
         ashlar_model_get_need(m, ASHLAR_WALK_TRAIN, &b, &all) ||
         ashlar_model_freeze(m, "base.", true) ||
         ashlar_model_get_need(m, ASHLAR_WALK_TRAIN, &b, &need) ||
         ashlar_optimizer_create(ashlar_model_arena(m), &config, NULL, &adam) ||
         ashlar_model_warmup(m, &b, NULL, NULL));
    printf("%d operations a step, %d to train the base, too\n", (int)need.phases, (int)all.phases);
    for (uint32_t step = 0, random = 1; step < STEPS; step++, b.loss++) {
        for (int k = 0; k < (T + 1) * B; k++) {
            random = random * 1664525 + 1013904223;
            on->tokens[k] = (int32_t)(random >> 8) % V;
        }
        must(ashlar_model_step(m, adam, &b, 0.05, NULL) || ashlar_stream_synchronize(device, NULL));
        argc > 1 ? printf("%.9g\n", *b.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.3f last %.3f, %d driver calls\n", on->loss[0], b.loss[-1],
           (int)stats.driver_calls_sealed);
}
