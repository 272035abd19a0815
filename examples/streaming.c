/* streaming.c - a PyTorch LSTM answers a stream, step by step: each goes on from the states before.
 *
 *     cc streaming.c -o streaming $(pkg-config --cflags --libs ashlar) && ./streaming
 *
 * ./streaming N FILE takes N steps at once, which changes no output, and reads the weights that
 * safetensors.torch.save_file(torch.nn.LSTM(8, 64, 2).state_dict(), FILE) wrote. */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

#define must(failed) ((failed) ? (puts(ashlar_error_detail()), exit(1)) : (void)0)
enum { I = 8, H = 64 };

int main(int argc, char **argv) {
    ashlar_load_options names = {0, &(ashlar_checkpoint_pair){"", "lstm."}, 1, NULL, NULL};
    ashlar_rnn_config lstm = {.hidden = H, .layers = 2};
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    ashlar_checkpoint *file;
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *m;
    ashlar_model_need need;
    ashlar_stats stats;
    void *states[2];
    float *x; /* page-locked: the device reads it as it is, and writes y behind it */
    double sum = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_device_host_alloc(device, n * (I + H) * sizeof *x, (void **)&x) ||
         ashlar_model_create(memory, ASHLAR_F32, &m));
    ashlar_tensor *in = ashlar_model_input(m, "x", ASHLAR_AXIS_TIME, I);
    ashlar_model_output(m, ashlar_model_rnn(m, "lstm", in, &lstm, NULL).y);
    ashlar_model_batch b = {.batch = 1, .steps = n, .inputs = (const void *[]){x}};
    b.outputs = (void *[]){x + n * I};
    must(ashlar_model_commit(m, ASHLAR_REGIONS_INFERENCE, NULL) ||
         ashlar_model_init(m, ASHLAR_INIT_PYTORCH, 1, NULL));
    must(argc > 2 && (ashlar_checkpoint_open(argv[2], &file) ||
                      ashlar_checkpoint_load(ashlar_model_arena(m), file, &names, NULL, NULL)));
    must(ashlar_model_prepare(m, false, NULL) ||
         ashlar_model_get_need(m, ASHLAR_WALK_PREDICT, &b, &need) ||
         ashlar_alloc(memory, need.carried_bytes, NULL, &states[0]) ||
         ashlar_alloc(memory, need.carried_bytes, NULL, &states[1]) ||
         ashlar_model_warmup(m, &b, NULL, NULL));
    for (size_t t = 0; t < 120; t += n) {
        for (size_t i = 0; i < n * I; i++) {
            x[i] = (float)((t * I + i) * 7 % 11) / 11;
        }
        b.before = t > 0 ? states[t / n % 2] : NULL;
        b.after = states[(t / n + 1) % 2];
        must(ashlar_model_run(m, ASHLAR_WALK_PREDICT, &b, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        for (size_t i = 0; i < n * H; i++) {
            sum += (double)x[n * I + i] * (double)((t * H + i) % 5);
        }
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("checksum %.5f, %d driver calls\n", sum, (int)stats.driver_calls_sealed);
}
