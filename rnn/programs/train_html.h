/* train_html.h - collects what the page of a training shows, while it runs (internal). */
#ifndef ASHLAR_TRAIN_HTML_H
#define ASHLAR_TRAIN_HTML_H

#include "rnn/programs/report_html.h"
#include "rnn/programs/train_command.h"

typedef struct ashlar_train_html {
    ashlar_step_record *record; /* NULL: no page is wanted */
    ashlar_html_loss *losses;
    size_t loss_count, loss_capacity;
    double test_loss, test_bits; /* as in ashlar_html */
} ashlar_train_html;

/* Begin, and have the training's buffers recorded, if --html was given. Only rank 0 writes. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_html_begin(ashlar_train_html *html,
                                                         ashlar_train_command *command);
void ashlar__train_html_end(ashlar_train_html *html);

/* Note a step's losses. If there is no host memory for them, the page lacks the step. */
void ashlar__train_html_note(ashlar_train_html *html, const ashlar_train_progress *now);

/* Compare ways to take memory, and write the page. The trainer must be gone, since it would take
 * memory from those that are compared. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_html_write(
    const ashlar_train_html *html, const ashlar_train_command *command, ashlar_device *device,
    ashlar_compare_task_fn make_task, void *context, const ashlar_train_report *report);

#endif /* ASHLAR_TRAIN_HTML_H */
