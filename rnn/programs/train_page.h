/* train_page.h - a training's report as JSON, with what only the page shows: each step's loss and
 * memory, the buffers of one step, ways to take memory (internal). */
#ifndef ASHLAR_TRAIN_PAGE_H
#define ASHLAR_TRAIN_PAGE_H

#include "allocator/base/json.h"
#include "rnn/programs/compare.h"
#include "rnn/programs/train_command.h"
#include "rnn/train/step_record.h"

/* A step's loss, nats per token. */
typedef struct ashlar_page_loss {
    size_t step;
    double loss;   /* of its batch */
    double recent; /* mean of the recent steps */
} ashlar_page_loss;

typedef struct ashlar_train_page {
    ashlar_step_record *record; /* NULL: no page is wanted */
    ashlar_page_loss *losses;
    size_t loss_count, loss_capacity;
    ashlar_json_writer document; /* open, from ashlar__train_page_report() on, for a page */
} ashlar_train_page;

/* Begin, and have the training's buffers recorded, if --html was given. Only rank 0 writes. Errors:
 * ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_page_begin(ashlar_train_page *page,
                                                         ashlar_train_command *command);
void ashlar__train_page_end(ashlar_train_page *page);

/* Note a step's losses. If there is no host memory for them, the page lacks the step. */
void ashlar__train_page_note(ashlar_train_page *page, const ashlar_train_progress *now);

/* Write the report for --json; with --html, keep it for ashlar__train_page_write(), which also
 * writes it for --json. Errors: those of ashlar__json_writer_save(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_page_report(ashlar_train_page *page,
                                                          const ashlar_train_command *command,
                                                          const ashlar_task *task,
                                                          const ashlar_train_report *report);

/* With --html, compare ways to take memory, and write the page. The trainer must be gone, since it
 * would take memory from those that are compared. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_page_write(ashlar_train_page *page,
                                                         const ashlar_train_command *command,
                                                         ashlar_device *device,
                                                         ashlar_compare_task_fn make_task,
                                                         void *context);

#endif /* ASHLAR_TRAIN_PAGE_H */
