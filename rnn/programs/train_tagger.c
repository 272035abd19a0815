/* train_tagger.c - the tagger's options, defaults and messages in ashlar-train. */
#include "rnn/programs/train_tagger.h"

#include "rnn/layer/blas.h"
#include "allocator/base/error.h"

void ashlar__train_tagger_set_defaults(ashlar_train_config *train,
                                       ashlar_train_tagger_options *options) {
    train->layers = 1;
    train->hidden = 200;
    train->embedding = 200;
    train->batch = 25;
    train->steps = 400;
    *options = (ashlar_train_tagger_options){
        .tags = {.character_embedding = 50, .character_hidden = 100},
        .corpus = {.max_bytes = 64, .min_count = 2, .held_out = 10},
        .label_embedding = 32,
    };
}

ashlar_status ashlar__train_tagger_check_options(const ashlar_train_tagger_options *o) {
    if (o->is_bidirectional && o->tags.is_unidirectional) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "--bidirectional and --unidirectional: leave out one of them");
    }
    return o->corpus.held_out == 1
               ? ashlar__fail(ASHLAR_EINVAL, "--held-out: 1 leaves nothing to train on; give 0, or "
                                             "at least 2")
               : ASHLAR_OK;
}

ashlar_status ashlar__train_tagger_open(const ashlar_option_list *files,
                                        const ashlar_train_tagger_options *options,
                                        ashlar_train_config *train, ashlar_tagger_corpus **corpus,
                                        ashlar_task **task) {
    ashlar_tagger_corpus_config text = options->corpus;
    ashlar_task_tagger_config tags = options->tags;
    text.max_words = train->max_length;
    tags.label_embedding = options->feeds_labels ? options->label_embedding : 0;
    ASHLAR_TRY(ashlar__tagger_corpus_open(files->items, files->count, &text, corpus));
    ashlar_tagger_counts counts;
    ashlar__tagger_corpus_counts(*corpus, &counts);
    if (options->feeds_labels && train->buckets == 1) {
        train->buckets = counts.longest_sentence;
    }
    return ashlar__task_tagger_create(*corpus, train, &tags, task);
}

void ashlar__train_tagger_print_start(FILE *out, const ashlar_tagger_corpus *corpus,
                                      const ashlar_train_config *train) {
    ashlar_tagger_counts n;
    ashlar__tagger_corpus_counts(corpus, &n);
    fprintf(out,
            "Tags: %zu words in %zu sentences, %zu of these for the test; the longest sentence has "
            "%zu words,\nthe longest word %zu bytes. Known: %zu words, %zu characters, %zu tags. "
            "Model: tagger, %s, %zu layers\nof %zu. Products: %s, %d threads.\n",
            n.tokens, n.sentences, n.held_out, n.longest_sentence, n.longest_word, n.words - 1,
            n.characters - 1, n.tags, ashlar_rnn_cell_name(train->cell), train->layers,
            train->hidden, ashlar__blas_name(), ashlar__blas_threads());
    fflush(out);
}

ashlar_status ashlar__train_tagger_print_end(FILE *out, ashlar_task *task,
                                             const ashlar_tagger_evaluation *test,
                                             const ashlar_train_report *report) {
    ashlar_tagger_estimate estimate;
    ASHLAR_TRY(ashlar__task_tagger_estimate(task, &estimate));
    ashlar__tagger_estimate_print(out, &estimate, report->stats.reserved_peak_bytes);
    if (test->words > 0) {
        fprintf(
            out,
            "\nOf %zu held-out words %zu got the right label: %.2f %% (%.4f nats per word; driver "
            "calls for\nmemory, streams or attributes: %llu).\n",
            test->words, test->right, 100.0 * (double)test->right / (double)test->words, test->loss,
            (unsigned long long)test->management_calls);
    }
    return ASHLAR_OK;
}
