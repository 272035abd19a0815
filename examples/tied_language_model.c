/* tied_language_model.c - an LSTM learns which token follows; the output layer's weight is that of
 * the embedding (ashlar_model_tie()), embeddings and outputs have dropout, AdamW decays weights.
 * With a FILE, weights begin as there, and losses are printed; behind it comes a dropout rate.
 *
 *     cc tied_language_model.c -o tied_language_model $(pkg-config --cflags --libs ashlar)
 *     ./tied_language_model
 */
#include <stdio.h>
#include <stdlib.h>

#include <ashlar/ashlar.h>

enum { T = 32, B = 16, V = 24, H = 24, STEPS = 300 };

static struct {
    int32_t tokens[T + 1][B]; /* the first T are read, the last T are to be told */
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

/* Each sequence counts on from some token, by 1, 2 or 3. */
static void draw_batch(void) {
    for (int i = 0; i < B; i++) {
        host.tokens[0][i] = draw(V);
        for (int t = 1, by = 1 + draw(3); t <= T; t++) {
            host.tokens[t][i] = (host.tokens[t - 1][i] + by) % V;
        }
    }
    host.loss = 0;
}

static ashlar_status dry_run(void *batch, size_t length) {
    ((ashlar_model_batch *)batch)->steps = length;
    return ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, batch, NULL, NULL);
}

int main(int argc, char **argv) {
    const ashlar_rnn_config lstm = {.hidden = H, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    const ashlar_optimizer_config adamw = {
        .kind = ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.01, .weight_decay = 0.1};
    const ashlar_checkpoint_pair tied = {"linear.weight", NULL}; /* PyTorch saves it twice */
    const ashlar_load_options without = {.renames = &tied, .rename_count = 1};
    const double rate = argc > 2 ? atof(argv[2]) : 0.1;
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file = NULL;
    ashlar_stats stats;
    double first = 0;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *next = ashlar_model_input(model, "next tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, V, H);
    x = ashlar_model_dropout(model, x, rate);
    ashlar_tensor *y = ashlar_model_rnn(model, "lstm", x, &lstm, NULL).y;
    y = ashlar_model_dropout(model, y, rate);
    ashlar_model_tie(model, "linear.weight", "embedding.weight");
    y = ashlar_model_linear(model, "linear", y, V, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, y, next, NULL);
    must(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL) ||
         ashlar_optimizer_create(ashlar_model_arena(model), &adamw, NULL, &optimizer) ||
         ashlar_alloc(memory, sizeof host, NULL, (void **)&on));
    must(argc > 1 &&
         (ashlar_checkpoint_open(argv[1], &file) ||
          ashlar_checkpoint_load(ashlar_model_arena(model), file, &without, NULL, NULL)));
    ashlar_checkpoint_close(file);
    const void *inputs[] = {on->tokens[0], on->tokens[1]};
    ashlar_model_batch batch = {.batch = B, .inputs = inputs, .loss = &on->loss};
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
