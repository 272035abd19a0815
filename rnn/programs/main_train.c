/* main_train.c - ashlar-train: train a character RNN on text. */
#include <errno.h>
#include <string.h>

#include <ashlar/device.h>
#include <ashlar/trace.h>

#include "allocator/base/error.h"
#include "rnn/programs/train_program.h"
#include "rnn/programs/program.h"
#include "rnn/train/train.h"

static const char program[] = "ashlar-train";

static void print_start(const ashlar_train_command *c, const ashlar_corpus *corpus) {
    const size_t count = ashlar__corpus_count(corpus), each = c->train.held_out;
    printf("Text: %zu records, %zu of these for the test, %zu bytes from %zu files (%zu skipped). "
           "Model: %s, %zu layers of %zu. Matrix products: %s, %zu threads.\n",
           count, each > 0 ? count / each : 0, ashlar__corpus_bytes(corpus),
           ashlar__corpus_file_count(corpus), ashlar__corpus_skipped_count(corpus),
           ashlar_rnn_cell_name(c->train.cell), c->train.layers, c->train.hidden,
           ashlar_cpu_get_info().products, ashlar_cpu_get_info().threads);
    fflush(stdout);
}

static ashlar_status write_sample(const ashlar_train_command *c, ashlar_trainer *trainer) {
    const ashlar_sampled_model model = ashlar__trainer_model(trainer);
    const ashlar_text_config text = {
        .sampler = {.sampling = {.temperature = 0.7, .top_p = 1}, .seed = c->train.seed},
        .bytes = c->sample_bytes,
    };
    printf("\nA sample:\n");
    return ashlar__text_write(&model, stdout, &text, NULL);
}

static bool is_first_rank(const ashlar_train_command *c) {
    return c->train.ranks == NULL || ashlar_ranks_get_info(c->train.ranks).rank == 0;
}

/* Do what needs the model after the training: first save it, since results would be lost otherwise,
 * then evaluate and report. After a failure the snapshot and the printing are still tried; returns
 * the first failure. */
static ashlar_status finish(const ashlar_train_command *c, ashlar_trainer *trainer,
                            const ashlar_train_report *report, ashlar_train_page *page) {
    const char *file = c->train.save_file;
    ashlar_evaluation test = {0};
    if (!is_first_rank(c)) {
        return ASHLAR_OK; /* only rank 0 saves, evaluates and reports */
    }
    ashlar_status first = file != NULL ? ashlar__trainer_save(trainer, file) : ASHLAR_OK;
    ASHLAR_THEN(first, ashlar__trainer_evaluate(trainer, &test));
    ASHLAR_THEN(first, ashlar__train_page_write(page, trainer, report, &test));
    if (c->snapshot != NULL) {
        const ashlar_status status =
            ashlar_allocator_write_snapshot(ashlar__trainer_model(trainer).allocator, c->snapshot);
        first = first == ASHLAR_OK ? status : first;
    }
    if (!c->is_quiet) {
        const ashlar_status status = c->sample_bytes > 0 ? write_sample(c, trainer) : ASHLAR_OK;
        ashlar__report_print(stdout, report, &test);
        first = first == ASHLAR_OK ? status : first;
    }
    return first;
}

/* Where to show each step's progress. */
typedef struct showing {
    ashlar_progress progress;
    const ashlar_train_command *command;
    FILE *losses; /* the file of --losses, or NULL */
    ashlar_train_page *page;
} showing;

static void show(void *context, const ashlar_train_progress *now) {
    showing *s = context;
    if (!s->command->is_quiet) {
        ashlar__progress_show(&s->progress, now);
    }
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) { /* warn at once, even if is_quiet */
        if ((now->found & 1u << tag) != 0) {
            ashlar__report_print_growth(stderr, (ashlar_tag)tag, &now->growth[tag]);
        }
    }
    ashlar__train_page_note(s->page, now);
    if (s->losses != NULL) { /* flush each line, so that the file can be watched */
        fprintf(s->losses, "%zu %.17g\n", now->step, now->loss_step);
        fflush(s->losses);
    }
}

static ashlar_status fail_losses(const char *path) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "--losses: cannot write %s: %s", path, strerror(error));
}

static ashlar_status run_trainer(const ashlar_train_command *c, ashlar_trainer *trainer,
                                 ashlar_train_page *page, ashlar_train_report *report) {
    showing s = {.command = c, .page = page};
    ashlar__progress_init(&s.progress, stdout);
    s.losses = c->losses != NULL ? fopen(c->losses, "we") : NULL;
    if (c->losses != NULL && s.losses == NULL) {
        return fail_losses(c->losses);
    }
    ashlar_status status = ashlar__trainer_run(trainer, show, &s, report);
    const bool is_bad = s.losses != NULL && ferror(s.losses) != 0;
    if (s.losses != NULL && (fclose(s.losses) != 0 || is_bad) && status == ASHLAR_OK) {
        status = fail_losses(c->losses);
    }
    return status;
}

static void print_stopped(const ashlar_train_command *c, const ashlar_train_report *report) {
    const char *file = c->train.save_file;
    fprintf(stderr, "%s: %s ended the training after step %zu of %zu; %s%s\n", program,
            ashlar__interrupt_number() == SIGINT ? "SIGINT" : "SIGTERM",
            report->resumed + report->steps, c->train.steps,
            file != NULL ? "go on with --resume " : "it is lost, since there was no --save",
            file != NULL ? file : "");
}

static ashlar_status train_and_report(ashlar_train_command *c, ashlar_device *device,
                                      const ashlar_corpus *corpus, ashlar_train_page *page) {
    ashlar_trainer *trainer;
    ashlar_train_report report;
    ASHLAR_TRY(ashlar__trainer_create(device, corpus, &c->train, &trainer));
    ashlar_status status =
        c->init == NULL
            ? ASHLAR_OK
            : ashlar__weights_init(c->init, &c->map, c->is_quiet || !is_first_rank(c),
                                   ashlar_model_arena(ashlar__trainer_model(trainer).model));
    ASHLAR_THEN(status, run_trainer(c, trainer, page, &report));
    ASHLAR_THEN(status, ashlar__train_ranks_gather(c, &report));
    ASHLAR_THEN(status, finish(c, trainer, &report, page));
    ashlar__trainer_destroy(trainer);
    if (status == ASHLAR_OK && report.is_stopped && is_first_rank(c)) {
        print_stopped(c, &report);
        c->is_stopped = true;
    }
    return status;
}

static ashlar_status verify(const ashlar_train_command *c, ashlar_device *device,
                            const ashlar_corpus *corpus) {
    ashlar_verification found;
    ASHLAR_TRY(ashlar__train_verify(device, corpus, &c->train, &found));
    if (!c->is_quiet) {
        printf("Verified: the first step's loss and the gradients of %zu tensors are the CPU's; "
               "the furthest off by\n%.1f %% of what is allowed.\n",
               found.tensors, 100 * found.worst);
    }
    return ASHLAR_OK;
}

/* Train, and write the page about it. */
static ashlar_status run_text(ashlar_train_command *c, ashlar_device *device) {
    ashlar_train_page page = {.command = c};
    ashlar_corpus *corpus;
    ASHLAR_TRY(ashlar__corpus_open(c->data.items, c->data.count, &corpus));
    if (!c->is_quiet) {
        print_start(c, corpus);
    }
    ashlar_status status = c->verifies ? verify(c, device, corpus) : ASHLAR_OK;
    ASHLAR_THEN(status, train_and_report(c, device, corpus, &page));
    ashlar__train_page_end(&page);
    ashlar__corpus_destroy(corpus);
    return status;
}

static int run(ashlar_train_command *c, ashlar_device *device) {
    ashlar_status status = ashlar__train_command_check_writable(c);
    ASHLAR_THEN(status, run_text(c, device));
    ashlar_device_close(device);
    status = status == ASHLAR_ENOMEM ? ashlar__train_fit_explain(c) : status;
    return status == ASHLAR_OK ? 0 : ashlar__train_ranks_fail(c, program, status);
}

static int run_command(int argc, char **argv) {
    ashlar_train_command c;
    if (ashlar__train_command_answer(program, argc, argv)) {
        return 0;
    }
    if (ashlar__train_command_read(argc, argv, &c) != ASHLAR_OK) {
        return ashlar__program_fail(program, ASHLAR_EINVAL);
    }
    if (c.fit != NULL) {
        ashlar_status fitted = ashlar__train_command_check_writable(&c);
        ASHLAR_THEN(fitted, ashlar__train_fit(&c)); /* opens a software device of its own */
        return fitted == ASHLAR_OK ? 0 : ashlar__program_fail(program, fitted);
    }
    const ashlar_status joined = ashlar__train_ranks_open(&c, argc, argv);
    if (joined != ASHLAR_OK) {
        return ashlar__train_ranks_close(&c, ashlar__train_ranks_fail(&c, program, joined));
    }
    ASHLAR_IGNORE(ashlar_set_threads(c.threads, NULL)); /* its range is that of the option */
    c.train.stop = ashlar__interrupt_catch();
    ashlar_device *device = NULL;
    int status = ashlar__program_open_device(program, c.device, &device);
    if (status == 0) {
        status = run(&c, device);
    }
    status = ashlar__train_ranks_close(&c, status);
    return status == 0 && c.is_stopped ? 128 + ashlar__interrupt_number() : status;
}

int main(int argc, char **argv) {
    ashlar__program_init();
    return ashlar__program_finish(program, run_command(argc, argv));
}
