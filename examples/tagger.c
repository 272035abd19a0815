/* tagger.c - tags for words: their letters go through a small bidirectional LSTM, whose last states
 * join the word's embedding; then one LSTM reads the words and the tag before each, another one,
 * from the end, the words and the tag behind each. These are the right tags in training; in
 * prediction those that the LSTM's own output layer finds, whose loss is added to that of the
 * tagger's output.
 *
 *     cc tagger.c -o tagger $(pkg-config --cflags --libs ashlar) && ./tagger
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ashlar/ashlar.h>

enum { T = 64, B = 16, STEPS = 400, SHORT = 12 }; /* sentences of 1 to SHORT words are learned */
enum { LETTERS = 27, WORDS = 201, TAGS = 5, LETTERS_MOST = 6 }; /* class 0 stands for nothing */
enum { LETTER_WIDTH = 12, WORD_WIDTH = 24, TAG_WIDTH = 8, HIDDEN = 32 };

static struct {
    int32_t letters[LETTERS_MOST * T * B], words[T * B], before[T * B], behind[T * B];
    int32_t tags[T * B], found[T * B];
    double loss;
} host, *on; /* a batch in host memory, and on the device */
static int32_t lengths[B], letter_counts[T * B];
static uint32_t random_state = 1;
static ashlar_device *device;
static ashlar_model *model;
static ashlar_axis spelling;
static double dropout = 0.5;

static void must(bool has_failed) { /* takes an ashlar_status, too: ASHLAR_OK is 0 */
    has_failed ? exit((fprintf(stderr, "%s\n", ashlar_error_detail()), 1)) : (void)0;
}

static int32_t below(int32_t bound) {
    random_state = random_state * 1664525 + 1013904223;
    return (int32_t)(random_state >> 8) % bound;
}

/* A word is a stem and two letters that tell its tag; or two others, and its tag is the one after
 * that of the word before. Only the first stems have words in the table. */
static int32_t draw_word(int32_t at, int32_t positions, int32_t tag_before) {
    const int32_t stem = below(100), tag = 1 + below(TAGS - 1), is_open = below(3) == 0;
    const int32_t suffix = is_open ? 0 : tag, count = 2 + stem % 3;
    host.words[at] = stem < (WORDS - 1) / TAGS ? 1 + stem * TAGS + suffix : 0;
    letter_counts[at] = count + 2;
    for (int32_t k = 0; k < count + 2; k++) {
        const int32_t end = k == count ? suffix : suffix * suffix;
        host.letters[k * positions + at] = 1 + (k < count ? (stem * (k + 3) + k) % 26 : end);
    }
    return is_open ? 1 + tag_before % (TAGS - 1) : tag;
}

static void draw(int32_t longest, bool is_full) {
    memset(&host, 0, sizeof host);
    for (int32_t i = 0; i < B; i++) {
        lengths[i] = i == 0 || is_full ? longest : 1 + below(longest);
        for (int32_t t = 0; t < longest; t++) {
            const int32_t at = t * B + i, last = t > 0 ? at - B : at, tag = host.tags[last];
            letter_counts[at] = 1; /* past the length, too */
            host.before[at] = tag;
            host.tags[at] = t < lengths[i] ? draw_word(at, longest * B, tag) : 0;
            host.behind[last] = t > 0 ? host.tags[at] : 0;
        }
    }
}

/* One way through the words. tags: those to read; NULL: those that it finds. Weights have the same
 * names, and so are the same, wherever the tags come from. */
static ashlar_tensor *read_words(ashlar_tensor *words, ashlar_tensor *tags, bool is_backward,
                                 ashlar_tensor **scores) {
    static const char *const names[2][3] = {{"left_tags", "left_lstm", "left_scores"},
                                            {"right_tags", "right_lstm", "right_scores"}};
    const ashlar_rnn_config lstm = {.hidden = HIDDEN, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    ashlar_model *body = ashlar_model_loop(model, ASHLAR_AXIS_TIME, is_backward);
    ashlar_tensor *word = ashlar_loop_step(body, words);
    ashlar_tensor *tag = tags ? ashlar_loop_step(body, tags) : ashlar_loop_carried(body, NULL, 0);
    const ashlar_rnn_states states = {ashlar_loop_carried(body, NULL, HIDDEN),
                                      ashlar_loop_carried(body, NULL, HIDDEN)};
    ashlar_tensor *x = ashlar_model_embedding(body, names[is_backward][0], tag, TAGS, TAG_WIDTH);
    x = ashlar_model_concatenate(body, word, ashlar_model_dropout(body, x, dropout));
    const ashlar_rnn_result next = ashlar_model_rnn(body, names[is_backward][1], x, &lstm, &states);
    ashlar_tensor *y = ashlar_model_dropout(body, next.y, dropout);
    y = ashlar_model_linear(body, names[is_backward][2], y, TAGS, true);
    ashlar_loop_carry(body, states.h, next.h);
    ashlar_loop_carry(body, states.c, next.c);
    tags ? (void)0 : ashlar_loop_carry(body, tag, ashlar_model_argmax(body, y));
    ashlar_loop_collect(body, y, scores);
    return ashlar_loop_end(body, next.y);
}

static ashlar_tensor *join(ashlar_tensor *left, ashlar_tensor *right) {
    ashlar_tensor *y = ashlar_model_concatenate(model, left, right);
    y = ashlar_model_dropout(model, y, dropout);
    return ashlar_model_linear(model, "scores", y, TAGS, true);
}

static void declare(void) {
    const ashlar_rnn_config lstm = {
        .hidden = 16, .directions = 2, .layers = 1, .cell = ASHLAR_RNN_LSTM};
    const ashlar_loss_options half = {.factor = 0.5};
    spelling = ashlar_model_axis(model, ASHLAR_AXIS_TIME);
    ashlar_tensor *letters = ashlar_model_input(model, "letters", spelling, 0);
    ashlar_tensor *words = ashlar_model_input(model, "words", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *before = ashlar_model_input(model, "before", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *behind = ashlar_model_input(model, "behind", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *tags = ashlar_model_input(model, "tags", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "letters", letters, LETTERS, LETTER_WIDTH);
    x = ashlar_model_last_layer(model, ashlar_model_rnn(model, "spelling", x, &lstm, NULL).h);
    ashlar_tensor *word = ashlar_model_embedding(model, "words", words, WORDS, WORD_WIDTH);
    x = ashlar_model_dropout(model, ashlar_model_concatenate(model, word, x), dropout);
    ashlar_tensor *scores[2], *left = read_words(x, before, false, &scores[0]);
    ashlar_tensor *right = read_words(x, behind, true, &scores[1]);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, join(left, right), tags, NULL);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, scores[0], tags, &half);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, scores[1], tags, &half);
    left = read_words(x, NULL, false, &scores[0]);
    right = read_words(x, NULL, true, &scores[1]);
    ashlar_model_output(model, ashlar_model_argmax(model, join(left, right)));
}

/* Predict a batch, then train on it; or only take and give back the memory for it. */
static ashlar_status step(void *is_dry, size_t longest) {
    ashlar_model_batch batch = {
        .batch = B,
        .steps = longest,
        .lengths = lengths,
        .inputs = (const void *[]){on->letters, on->words, on->before, on->behind, on->tags},
        .outputs = (void *[]){on->found},
        .loss = &on->loss};
    batch.axes[spelling].steps = LETTERS_MOST;
    batch.axes[spelling].lengths = letter_counts;
    for (int i = 0; i < 2; i++, batch.outputs = NULL) {
        const ashlar_walk walk = i == 0 ? ASHLAR_WALK_PREDICT : ASHLAR_WALK_TRAIN;
        must(is_dry != NULL ? ashlar_model_dry_run(model, walk, &batch, NULL, NULL)
                            : ashlar_model_run(model, walk, &batch, NULL));
    }
    return ASHLAR_OK;
}

int main(int count, char **arguments) {
    const ashlar_optimizer_config adam = {.kind = ASHLAR_OPTIMIZER_ADAM, .learning_rate = 0.01};
    const ashlar_warmup_options warmup = {.max_length = T, .dry_run = step, .user = &host};
    ashlar_allocator *memory;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file = NULL;
    ashlar_stats stats;
    double first = 0, last = 0, ms[2] = {1e9, 1e9};
    int right = 0, all = 0, steps = count > 1 ? 20 : STEPS;
    dropout = count > 1 ? 0 : dropout;
    must(ashlar_device_open(NULL, &device) || ashlar_allocator_create(device, &memory) ||
         ashlar_model_create(memory, ASHLAR_F32, &model));
    declare();
    must(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, NULL) ||
         ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, NULL));
    must(count > 1 && (ashlar_checkpoint_open(arguments[1], &file) ||
                       ashlar_checkpoint_load(ashlar_model_arena(model), file, NULL, NULL, NULL)));
    ashlar_checkpoint_close(file);
    must(ashlar_optimizer_create(ashlar_model_arena(model), &adam, NULL, &optimizer) ||
         ashlar_alloc(memory, sizeof host, NULL, (void **)&on) ||
         ashlar_allocator_warmup(memory, &warmup, NULL));
    for (int i = 0; i < steps + 10; i++) { /* the last ten only show what longer sentences cost */
        const int32_t longest = i >= steps ? (T / 2) << i % 2 : 1 + below(SHORT);
        draw(longest, i >= steps);
        must(ashlar_copy_to_device(device, on, &host, sizeof host, NULL) ||
             ashlar_arena_zero(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        const clock_t began = clock();
        must(ashlar_step_begin(memory, NULL, ashlar_warmup_key(&warmup, (size_t)longest)) ||
             step(NULL, (size_t)longest) || ashlar_step_end(memory) ||
             ashlar_stream_synchronize(device, NULL));
        const double took = 1e3 * (double)(clock() - began) / CLOCKS_PER_SEC;
        must(ashlar_copy_to_host(device, &host, on, sizeof host, NULL) ||
             ashlar_stream_synchronize(device, NULL));
        ms[i % 2] = i >= steps && took < ms[i % 2] ? took : ms[i % 2];
        for (int32_t k = 0; k < longest * B && i >= steps - 50 && i < steps; k++) {
            right += host.tags[k] > 0 && host.found[k] == host.tags[k];
            all += host.tags[k] > 0; /* past a length they are 0 */
        }
        if (i < steps) {
            must(ashlar_optimizer_step(optimizer, adam.learning_rate, 1, NULL));
            first = i == 0 ? host.loss : first, last = host.loss;
            count > 1 ? (void)printf("%.9g\n", host.loss) : (void)0;
        }
    }
    ashlar_allocator_get_stats(memory, &stats);
    printf("loss first %.5f last %.5f, %d driver calls\n", first, last,
           (int)stats.driver_calls_sealed);
    printf("%d of the last %d tags are right\n", right, all);
    printf("%d words take %.2f ms of processor time, %d take %.2f ms\n", T / 2, ms[0], T, ms[1]);
    ashlar_optimizer_destroy(optimizer);
    ashlar_model_destroy(model);
    ashlar_allocator_destroy(memory); /* frees *on, too */
    ashlar_device_close(device);
    return stats.driver_calls_sealed != 0;
}
