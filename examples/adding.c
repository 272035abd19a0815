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

static void must(bool has_failed) { /* takes an ashlar_status, too: ASHLAR_OK is 0 */
    has_failed ? exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1)) : (void)0;
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
    host.loss = 0;
}

int main(void) {
    const ashlar_rnn_config gru = {.hidden = 32, .layers = 1, .cell = ASHLAR_RNN_GRU};
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.005};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_model *model;
    ashlar_optimizer *optimizer;
    ashlar_stats stats;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    ashlar_tensor *x = ashlar_model_input(model, "numbers", ASHLAR_AXIS_TIME, 2);
    ashlar_tensor *sum = ashlar_model_input(model, "sums", ASHLAR_AXIS_NONE, 1);
    ashlar_tensor *h = ashlar_model_rnn(model, "gru", x, &gru, NULL).h;
    ashlar_tensor *y =
        ashlar_model_linear(model, "linear", ashlar_model_last_layer(model, h), 1, true);
    ashlar_model_loss(model, ASHLAR_LOSS_SQUARED, y, sum, NULL);
    must(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL) ||
         ashlar_optimizer_create(ashlar_model_arena(model), &adam, NULL, &optimizer) ||
         ashlar_alloc(memory, sizeof host, NULL, (void **)&on));
    const void *inputs[] = {on->x, on->sum};
    const ashlar_model_batch batch = {.batch = B, .steps = T, .inputs = inputs, .loss = &on->loss};
    for (int i = 0; i < STEPS; i++) {
        draw();
        must(ashlar_copy_to_device(device, on, &host, sizeof host, NULL) ||
             ashlar_arena_zero(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, NULL) ||
             ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, NULL) ||
             ashlar_optimizer_step(optimizer, adam.learning_rate, 1, NULL) ||
             ashlar_copy_to_host(device, &host.loss, &on->loss, sizeof host.loss, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        i == 0 ? ashlar_allocator_seal(memory) : (void)0; /* now calls of the driver are counted */
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("error %.5f, %d driver calls\n", host.loss, (int)stats.driver_calls_sealed);
    ashlar_optimizer_destroy(optimizer);
    ashlar_model_destroy(model);
    ashlar_allocator_destroy(memory); /* frees *on, too */
    ashlar_device_close(device);
}
