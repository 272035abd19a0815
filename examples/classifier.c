/* classifier.c - a two-layer bidirectional GRU reads sequences of different lengths, and tells from
 * the last states of both directions whether the first token is less than the last one. A warm-up
 * over all lengths takes all memory. With a FILE, weights begin as there, and losses are printed.
 *
 *     cc classifier.c -o classifier $(pkg-config --cflags --libs ashlar) && ./classifier
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

enum { T = 24, B = 32, V = 8, STEPS = 400 }; /* longest, sequences, kinds of tokens, steps */

static struct {
    int32_t tokens[T][B], classes[B], lengths[B];
    double loss;
} host, *on; /* a batch in host memory, and on the device */
static ashlar_model *model;

static void must(bool has_failed) { /* takes an ashlar_status, too: ASHLAR_OK is 0 */
    has_failed ? exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1)) : (void)0;
}

static int32_t draw(size_t below) {
    static uint32_t state = 1;
    state = state * 1664525 + 1013904223;
    return (int32_t)((state >> 8) % below);
}

static void draw_batch(size_t longest) {
    for (int i = 0; i < B; i++) {
        host.lengths[i] = i == 0 ? (int32_t)longest : 1 + draw(longest);
        for (int t = 0; t < host.lengths[i]; t++) {
            host.tokens[t][i] = draw(V);
        }
        host.classes[i] = host.tokens[0][i] < host.tokens[host.lengths[i] - 1][i];
    }
    host.loss = 0;
}

static ashlar_status dry_run(void *batch, size_t length) {
    ((ashlar_model_batch *)batch)->steps = length;
    return ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, batch, NULL, NULL);
}

int main(int argc, char **argv) {
    const ashlar_rnn_config gru = {
        .hidden = 16, .layers = 2, .cell = ASHLAR_RNN_GRU, .directions = 2};
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.005};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file = NULL;
    ashlar_stats stats;
    double first = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *classes = ashlar_model_input(model, "classes", ASHLAR_AXIS_NONE, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, V, 8);
    ashlar_tensor *h = ashlar_model_rnn(model, "gru", x, &gru, NULL).h;
    ashlar_tensor *last = ashlar_model_last_layer(model, h); /* of both directions: [B, 32] */
    ashlar_tensor *y = ashlar_model_linear(model, "linear", last, 2, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, y, classes, NULL);
    must(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL) ||
         ashlar_optimizer_create(ashlar_model_arena(model), &adam, NULL, &optimizer) ||
         ashlar_alloc(memory, sizeof host, NULL, (void **)&on));
    must(argc > 1 && (ashlar_checkpoint_open(argv[1], &file) ||
                      ashlar_checkpoint_load(ashlar_model_arena(model), file, NULL, NULL, NULL)));
    ashlar_checkpoint_close(file);
    const void *inputs[] = {on->tokens, on->classes};
    ashlar_model_batch batch = {
        .batch = B, .lengths = host.lengths, .inputs = inputs, .loss = &on->loss};
    const ashlar_warmup_options lengths = {.max_length = T, .dry_run = dry_run, .user = &batch};
    must(ashlar_allocator_warmup(memory, &lengths, NULL));
    for (int i = 0; i < STEPS; i++) {
        batch.steps = 1 + (size_t)draw(T);
        draw_batch(batch.steps);
        must(ashlar_step_begin(memory, NULL, ashlar_warmup_key(&lengths, batch.steps)) ||
             ashlar_copy_to_device(device, on, &host, sizeof host, NULL) ||
             ashlar_arena_zero(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, NULL) ||
             ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, NULL) ||
             ashlar_optimizer_step(optimizer, adam.learning_rate, 1, NULL) ||
             ashlar_copy_to_host(device, &host.loss, &on->loss, sizeof host.loss, NULL) ||
             ashlar_stream_synchronize(device, NULL) || ashlar_step_end(memory));
        first = i == 0 ? host.loss : first;
        argc > 1 ? printf("%.9g\n", host.loss) : 0;
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.3f last %.3f, %d driver calls\n", first, host.loss,
           (int)stats.driver_calls_sealed);
    ashlar_optimizer_destroy(optimizer);
    ashlar_model_destroy(model);
    ashlar_allocator_destroy(memory); /* frees *on, too */
    ashlar_device_close(device);
}
