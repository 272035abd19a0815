/* new_head.c - an embedding and an LSTM that PyTorch has trained are loaded by name and frozen, and
 * a new linear layer behind them learns another task. Nothing is computed backward through frozen
 * layers, and no optimizer touches them. Without a FILE the base is one of random weights.
 *
 *     cc new_head.c -o new_head $(pkg-config --cflags --libs ashlar) && ./new_head
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

enum { T = 24, B = 16, V = 12, STEPS = 300 }; /* longest, sequences, kinds of tokens, steps */

static struct {
    int32_t tokens[T][B], is_more[T][B];
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

/* The task: whether a token is more than the one before it. */
static void draw_batch(void) {
    for (int i = 0; i < T * B; i++) {
        host.tokens[i / B][i % B] = draw(V);
        host.is_more[i / B][i % B] =
            i < B || host.tokens[i / B][i % B] > host.tokens[i / B - 1][i % B];
    }
    host.loss = 0;
}

static ashlar_status dry_run(void *batch, size_t length) {
    ((ashlar_model_batch *)batch)->steps = length;
    return ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, batch, NULL, NULL);
}

int main(int argc, char **argv) {
    const ashlar_rnn_config lstm = {.hidden = 32, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    const ashlar_optimizer_config adamw = {.kind = ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.05};
    /* In the file the base's names begin with "encoder.", and there is an old head. */
    const ashlar_checkpoint_pair names[] = {{"encoder.", ""}, {"decoder.", NULL}};
    const ashlar_load_options by_name = {ASHLAR_CHECKPOINT_PARTIAL, .renames = names,
                                         .rename_count = 2};
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file = NULL;
    ashlar_model_need all, need;
    ashlar_stats stats;
    double first = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *is_more = ashlar_model_input(model, "is more", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, V, 16);
    ashlar_tensor *y = ashlar_model_rnn(model, "lstm", x, &lstm, NULL).y;
    y = ashlar_model_linear(model, "head", y, 2, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, y, is_more, NULL);
    must(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL)); /* all weights are 0 */
    if (argc > 1) {
        ashlar_load_report report;
        must(ashlar_checkpoint_open(argv[1], &file) ||
             ashlar_checkpoint_load(ashlar_model_arena(model), file, &by_name, NULL, &report));
        ashlar_checkpoint_close(file);
        printf("%d tensors loaded, %d new ones\n", (int)report.loaded, (int)report.missing.count);
    } else {
        must(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL));
    }
    must(ashlar_alloc(memory, sizeof host, NULL, (void **)&on));
    const void *inputs[] = {on->tokens, on->is_more};
    ashlar_model_batch batch = {.batch = B, .steps = T, .inputs = inputs, .loss = &on->loss};
    must(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &batch, &all) ||
         ashlar_model_freeze(model, "embedding.", true) ||
         ashlar_model_freeze(model, "lstm.", true) ||
         ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &batch, &need) ||
         ashlar_optimizer_create(ashlar_model_arena(model), &adamw, NULL, &optimizer));
    printf("%d operations a step, %d to train the base, too\n", (int)need.phases, (int)all.phases);
    const ashlar_warmup_options lengths = {.max_length = T, .dry_run = dry_run, .user = &batch};
    must(ashlar_allocator_warmup(memory, &lengths, NULL));
    for (int i = 0; i < STEPS; i++) {
        batch.steps = 1 + (size_t)draw(T);
        draw_batch();
        must(ashlar_step_begin(memory, NULL, ashlar_warmup_key(&lengths, batch.steps)) ||
             ashlar_copy_to_device(device, on, &host, sizeof host, NULL) ||
             ashlar_arena_zero(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, NULL) ||
             ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, NULL) ||
             ashlar_optimizer_step(optimizer, adamw.learning_rate, 1, NULL) ||
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
