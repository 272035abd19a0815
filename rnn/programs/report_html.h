/* report_html.h - a training's report as one page, which fetches and executes nothing (internal).
 */
#ifndef ASHLAR_REPORT_HTML_H
#define ASHLAR_REPORT_HTML_H

#include "allocator/base/file_buffer.h"
#include "rnn/programs/compare.h"
#include "rnn/train/step_record.h"

/* A step's loss, nats per symbol. */
typedef struct ashlar_html_loss {
    size_t step;
    double loss;   /* of its batch */
    double recent; /* mean of the recent steps */
} ashlar_html_loss;

typedef struct ashlar_html {
    const char *model;   /* "LSTM, 2 layers of 256" */
    const char *compute; /* "OpenBLAS, 2 threads" */
    const ashlar_train_config *config;
    const ashlar_train_report *report; /* its `buckets` are not used */
    const ashlar_html_loss *losses;
    size_t loss_count;
    double test_loss, test_bits; /* held-out: nats per symbol, bits per byte; 0: there was no test,
                                  * or it has no bits */
    const ashlar_step_record *record;
    const ashlar_compare_row *rows; /* in the order of the enum */
    size_t row_count;               /* 0: nothing was compared */
} ashlar_html;

/* Write the page; after an error the file is as it was. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__html_write(const char *path, const ashlar_html *html);

/* ---- parts (report_html_chart.c, report_html_step.c) ---- */

/* "12.3 MiB", "512 B". */
void ashlar__html_put_bytes(ashlar_file_buffer *file, uint64_t bytes);

ASHLAR_MUST_CHECK ashlar_status ashlar__html_put_loss(ashlar_file_buffer *file,
                                                      const ashlar_html *html);
ASHLAR_MUST_CHECK ashlar_status ashlar__html_put_memory(ashlar_file_buffer *file,
                                                        const ashlar_html *html);
/* The boxes of the largest step. */
ASHLAR_MUST_CHECK ashlar_status ashlar__html_put_step(ashlar_file_buffer *file,
                                                      const ashlar_html *html);

#endif /* ASHLAR_REPORT_HTML_H */
