/* streaming.c - a PyTorch LSTM answers a stream, step by step: each goes on from the states before.
 *
 *     cc streaming.c -o streaming $(pkg-config --cflags --libs ashlar) && ./streaming
 *
 * ./streaming N FILE takes N steps at once, which changes no output, and reads the weights that
 * safetensors.torch.save_file(torch.nn.LSTM(8, 64, 2).state_dict(), FILE) wrote. */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

enum { I = 8, H = 64 };

static void must(ashlar_status status) {
    status == ASHLAR_OK ? (void)0 : exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1));
}

int main(int argc, char **argv) {
    const ashlar_load_options names = {0, &(ashlar_checkpoint_pair){"", "lstm."}, 1, NULL, NULL};
    const ashlar_rnn_config lstm = {.hidden = H, .layers = 2};
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    ashlar_checkpoint *file = NULL;
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *model;
    ashlar_model_need need;
    ashlar_stats stats;
    void *states[2];
    float *x; /* page-locked: the device reads it as it is, and writes y behind it */
    double sum = 0;
    must(argc > 2 ? ashlar_checkpoint_open(argv[2], &file) : ASHLAR_OK);
    must(ashlar_device_open(NULL, &device));
    must(ashlar_device_host_alloc(device, n * (I + H) * sizeof *x, (void **)&x));
    must(ashlar_allocator_create(device, &memory));
    must(ashlar_model_create(memory, ASHLAR_F32, &model));
    ashlar_tensor *in = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, I);
    ashlar_model_output(model, ashlar_model_rnn(model, "lstm", in, &lstm, NULL).y);
    must(ashlar_model_commit(model, ASHLAR_REGIONS_INFERENCE, NULL));
    must(file == NULL
             ? ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL)
             : ashlar_checkpoint_load(ashlar_model_arena(model), file, &names, NULL, NULL));
    must(ashlar_model_prepare(model, NULL));
    ashlar_model_batch batch = {.batch = 1, .steps = n, .inputs = (const void *[]){x}};
    batch.outputs = (void *[]){x + n * I};
    must(ashlar_model_get_need(model, ASHLAR_WALK_PREDICT, &batch, &need));
    must(ashlar_alloc(memory, need.carried_bytes, NULL, &states[0]));
    must(ashlar_alloc(memory, need.carried_bytes, NULL, &states[1]));
    for (size_t t = 0; t < 120; t += n) {
        for (size_t i = 0; i < n * I; i++) {
            x[i] = (float)((t * I + i) * 7 % 11) / 11;
        }
        batch.before = t > 0 ? states[t / n % 2] : NULL;
        batch.after = states[(t / n + 1) % 2];
        must(ashlar_model_run(model, ASHLAR_WALK_PREDICT, &batch, NULL));
        must(ashlar_stream_synchronize(device, NULL));
        for (size_t i = 0; i < n * H; i++) {
            sum += (double)x[n * I + i] * (double)((t * H + i) % 5);
        }
        t == 0 ? ashlar_allocator_seal(memory) : (void)0; /* from here on, driver calls count */
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("checksum %.5f, %d driver calls\n", sum, (int)stats.driver_calls_sealed);
    ashlar_model_destroy(model);
    ashlar_allocator_destroy(memory); /* frees the states, too */
    ashlar_device_host_free(device, x);
    ashlar_device_close(device);
    ashlar_checkpoint_close(file);
}
