/* adding.c - a GRU learns the adding problem (Hochreiter and Schmidhuber), to output the sum of two
 * marked numbers of a sequence. Always to answer 1 gives a mean squared error of 0.167.
 *
 *     cc adding.c -o adding $(pkg-config --cflags --libs ashlar) && ./adding
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

enum { T = 40, B = 32, STEPS = 1500 }; /* time steps, sequences, training steps */

static struct {
    float x[T][B][2], sum[B];
    double loss;
} host, *on; /* a batch in host memory, and on the device */

static void must(ashlar_status status) {
    status == ASHLAR_OK ? (void)0 : exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1));
}

static void draw(void) {
    for (int i = 0; i < B; i++) {
        const int first = rand() % (T / 2), second = T / 2 + rand() % (T / 2);
        for (int t = 0; t < T; t++) {
            host.x[t][i][0] = (float)rand() / (float)RAND_MAX;
            host.x[t][i][1] = t == first || t == second;
        }
        host.sum[i] = host.x[first][i][0] + host.x[second][i][0];
    }
}

int main(void) {
    const ashlar_rnn_config gru = {.input = 2, .hidden = 32, .layers = 1, .cell = ASHLAR_RNN_GRU};
    const ashlar_network_config config = {
        .layers = gru, .outputs = 1, .loss = ASHLAR_NETWORK_SQUARED_ERROR, .last_only = true};
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.005};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_network *network;
    ashlar_optimizer *optimizer;
    ashlar_stats stats;
    must(ashlar_device_open(NULL, &device));
    must(ashlar_allocator_create(device, &memory));
    must(ashlar_network_create(memory, &config, ASHLAR_REGIONS_ALL, NULL, &network));
    must(ashlar_network_init(network, ASHLAR_INIT_PYTORCH, 1, NULL));
    must(ashlar_optimizer_create(ashlar_network_arena(network), &adam, NULL, &optimizer));
    must(ashlar_alloc(memory, sizeof host, NULL, (void **)&on));
    for (int i = 0; i < STEPS; i++) {
        draw();
        must(ashlar_step_begin(memory, NULL, 0)); /* the first is recorded, the others replayed */
        const ashlar_network_batch step = {
            .steps = T, .batch = B, .inputs = on->x, .targets = on->sum, .loss = &on->loss};
        must(ashlar_copy_to_device(device, on, &host, sizeof host, NULL));
        must(ashlar_network_step(network, &step, NULL));
        must(ashlar_optimizer_step(optimizer, adam.learning_rate, 1, NULL));
        must(ashlar_copy_to_host(device, &host.loss, &on->loss, sizeof host.loss, NULL));
        must(ashlar_step_end(memory));
        must(ashlar_stream_synchronize(device, NULL));
        if (i == 0) { /* warmed up: from here on, calls of the driver are counted */
            ashlar_allocator_seal(memory);
        }
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("error %.5f, %d driver calls\n", host.loss, (int)stats.driver_calls_sealed);
    ashlar_optimizer_destroy(optimizer);
    ashlar_network_destroy(network);
    ashlar_allocator_destroy(memory); /* frees *on, too */
    ashlar_device_close(device);
}
