/* train_html.c - collects what a training's page shows, and has the page written. */
#include "rnn/programs/train_html.h"

#include <stdio.h>

#include "allocator/base/host.h"
#include "rnn/product/blas.h"

ashlar_status ashlar__train_html_begin(ashlar_train_html *html, ashlar_train_command *c) {
    *html = (ashlar_train_html){0};
    if (c->html == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__step_record_create(NULL, &html->record));
    c->train.hooks = ashlar__step_record_hooks(html->record);
    return ASHLAR_OK;
}

void ashlar__train_html_end(ashlar_train_html *html) {
    ashlar__step_record_destroy(html->record);
    ashlar__host_free(html->losses);
}

void ashlar__train_html_note(ashlar_train_html *html, const ashlar_train_progress *now) {
    void *grown = html->losses;
    if (html->record != NULL &&
        ashlar__host_grow(&grown, &html->loss_capacity, html->loss_count, sizeof html->losses[0])) {
        html->losses = grown;
        html->losses[html->loss_count++] = (ashlar_html_loss){now->step, now->loss_step, now->loss};
    }
}

ashlar_status ashlar__train_html_write(const ashlar_train_html *html, const ashlar_train_command *c,
                                       ashlar_device *device, ashlar_compare_task_fn make_task,
                                       void *context, const ashlar_train_report *report) {
    ashlar_compare_row rows[ASHLAR_COMPARE_COUNT];
    char model[96], compute[96];
    const bool compares = c->train.ranks == NULL;
    if (html->record == NULL) {
        return ASHLAR_OK;
    }
    if (compares && !c->is_quiet) {
        printf("\nThe first steps again, with other ways to take memory, for %s ...\n", c->html);
        fflush(stdout);
    }
    if (compares) {
        ashlar__compare(device, &c->train, make_task, context, rows);
    }
    (void)snprintf(model, sizeof model, "%s%s, %zu layer%s of %zu", c->is_tagger ? "tagger, " : "",
                   ashlar_rnn_cell_name(c->train.cell), c->train.layers,
                   c->train.layers == 1 ? "" : "s", c->train.hidden);
    (void)snprintf(compute, sizeof compute, "%s, %d threads", ashlar__blas_name(),
                   ashlar__blas_threads());
    const ashlar_html page = {
        .model = model,
        .compute = compute,
        .data = c->data.items,
        .data_count = c->data.count,
        .config = &c->train,
        .report = report,
        .losses = html->losses,
        .loss_count = html->loss_count,
        .test_loss = html->test_loss,
        .test_bits = html->test_bits,
        .record = html->record,
        .rows = rows,
        .row_count = !compares      ? 0 /* a tagger has no recomputation */
                     : c->is_tagger ? (size_t)ASHLAR_COMPARE_RECOMPUTE
                                    : (size_t)ASHLAR_COMPARE_COUNT,
    };
    return ashlar__html_write(c->html, &page);
}
