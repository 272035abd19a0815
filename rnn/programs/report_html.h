/* report_html.h - a training's report as one HTML page, which fetches and executes nothing
 * (internal). */
#ifndef ASHLAR_REPORT_HTML_H
#define ASHLAR_REPORT_HTML_H

#include "allocator/base/file_buffer.h"
#include "rnn/programs/compare.h"
#include "rnn/train/step_record.h"

/* A step's loss, nats per token. */
typedef struct ashlar_html_loss {
    size_t step;
    double loss;   /* of its batch */
    double recent; /* mean of the recent steps */
} ashlar_html_loss;

typedef struct ashlar_html {
    const char *model;   /* "LSTM, 2 layers of 256" */
    const char *compute; /* "OpenBLAS, 2 threads" */
    const char *const *data; /* names of files and folders */
    size_t data_count;
    const ashlar_train_config *config;
    const ashlar_train_report *report; /* its `buckets` are not used */
    const ashlar_html_loss *losses;
    size_t loss_count;
    double test_loss, test_bits; /* held-out: nats per token, bits per byte; 0: there was no test,
                                  * or it has no bits */
    const ashlar_step_record *record;
    const ashlar_compare_row *rows; /* in the order of the enum */
    size_t row_count;               /* 0: nothing was compared */
} ashlar_html;

/* Write the page; after an error the file is as it was. Errors: ASHLAR_EIO, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__html_write(const char *path, const ashlar_html *html);

/* ---- what the page's parts share ---- */

void ashlar__html_put(ashlar_file_buffer *file, const char *text); /* as it is, of any length */

/* The style sheet. Classes t0, t1, ... each have a tag's colour, and a readable one for text on it.
 */
void ashlar__html_put_style(ashlar_file_buffer *file);

/* "12.3 MiB", "512 B". */
void ashlar__html_put_bytes(ashlar_file_buffer *file, uint64_t bytes);

/* The unit in which `bytes` is written, and its name. */
double ashlar__html_unit(uint64_t bytes, const char **name);

/* A tag's name in words: "saved for backward" rather than "saved". */
const char *ashlar__html_tag_name(ashlar_tag tag);

/* Put the values beside a plot, from y0 at its bottom to y1 at its top. */
void ashlar__html_put_y_axis(ashlar_file_buffer *file, double y0, double y1);

/* Put the numbers below a plot, from x0 at its left to x1 at its right, and `what` they count. */
void ashlar__html_put_x_axis(ashlar_file_buffer *file, double x0, double x1, const char *what);

/* The largest of 1, 2, 5 times a power of ten that cuts `range` into `parts` or more. */
double ashlar__html_tick(double range, int parts);

/* ---- the page's parts ---- */

ASHLAR_MUST_CHECK ashlar_status ashlar__html_put_loss(ashlar_file_buffer *file,
                                                      const ashlar_html *html);
/* The boxes of the largest step. */
ASHLAR_MUST_CHECK ashlar_status ashlar__html_put_step(ashlar_file_buffer *file,
                                                      const ashlar_html *html);
ASHLAR_MUST_CHECK ashlar_status ashlar__html_put_memory(ashlar_file_buffer *file,
                                                        const ashlar_html *html);
void ashlar__html_put_comparison(ashlar_file_buffer *file, const ashlar_html *html);

#endif /* ASHLAR_REPORT_HTML_H */
