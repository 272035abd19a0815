/* report_html_chart.c - the report page's line charts over the steps: losses, and memory. */
#include "rnn/programs/report_html.h"

#include <math.h>
#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* A line of more than twice as many points shows the least and the greatest value of each column.
 */
enum { COLUMNS = 400 };

typedef struct line {
    const char *class;
    const double *x, *y;
    size_t count;
} line;

typedef struct chart {
    const line *lines;
    size_t count;
    bool from_zero;
    double x0, x1, y0, y1; /* what frame() finds */
    const char *unit;      /* of y */
    const char *label;     /* what the chart shows, for screen readers */
} chart;

static void frame(chart *c) {
    c->x0 = c->lines[0].x[0];
    c->x1 = c->x0;
    c->y0 = c->y1 = c->lines[0].y[0];
    for (size_t l = 0; l < c->count; l++) {
        const line *n = &c->lines[l];
        for (size_t i = 0; i < n->count; i++) {
            c->y0 = fmin(c->y0, n->y[i]);
            c->y1 = fmax(c->y1, n->y[i]);
            c->x1 = fmax(c->x1, n->x[i]);
        }
    }
    c->y0 = c->from_zero ? 0 : c->y0;
    const double room = c->y1 > c->y0 ? 0.05 * (c->y1 - c->y0) : 1;
    c->y1 += room;
    c->y0 -= c->from_zero ? 0 : room;
    c->x1 = c->x1 > c->x0 ? c->x1 : c->x0 + 1;
}

static void put_point(ashlar_file_buffer *file, const chart *c, double x, double y) {
    ashlar__file_buffer_print(file, "%.1f,%.1f ", 1000 * (x - c->x0) / (c->x1 - c->x0),
                              1000 * (c->y1 - y) / (c->y1 - c->y0));
}

static void put_column(ashlar_file_buffer *file, const chart *c, const line *l, size_t from,
                       size_t to) {
    size_t least = from, most = from;
    for (size_t i = from; i < to; i++) {
        least = l->y[i] < l->y[least] ? i : least;
        most = l->y[i] > l->y[most] ? i : most;
    }
    const size_t first = least < most ? least : most, second = least < most ? most : least;
    put_point(file, c, l->x[first], l->y[first]);
    put_point(file, c, l->x[second], l->y[second]);
}

static void put_points(ashlar_file_buffer *file, const chart *c, const line *l) {
    if (l->count <= 2 * COLUMNS) {
        for (size_t i = 0; i < l->count; i++) {
            put_point(file, c, l->x[i], l->y[i]);
        }
        return;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        put_column(file, c, l, i * l->count / COLUMNS, (i + 1) * l->count / COLUMNS);
    }
}

static void put_lines(ashlar_file_buffer *file, const chart *c) {
    if (c->from_zero) { /* the first line bounds an area */
        const line *l = &c->lines[0];
        ashlar__html_put(file, "<polygon points=\"");
        put_point(file, c, l->x[0], 0);
        put_points(file, c, l);
        put_point(file, c, l->x[l->count - 1], 0);
        ashlar__html_put(file, "\"/>");
    }
    for (size_t i = 0; i < c->count; i++) {
        ashlar__file_buffer_print(file, "<polyline class=%s points=\"", c->lines[i].class);
        put_points(file, c, &c->lines[i]);
        ashlar__html_put(file, "\"/>");
    }
}

/* Text lies beside the picture, where it stays readable at any width. */
static void put_chart(ashlar_file_buffer *file, chart *c) {
    frame(c);
    const double tick = ashlar__html_tick(c->y1 - c->y0, 4);
    ashlar__file_buffer_print(file, "<div class=chart><div class=unit>%s</div><div class=plot>",
                              c->unit);
    ashlar__html_put(file, "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=none role=img "
                           "aria-label=\"");
    ashlar__html_put(file, c->label);
    ashlar__html_put(file, "\">");
    for (double i = ceil(c->y0 / tick); i * tick <= c->y1; i++) {
        ashlar__file_buffer_print(file, "<path d=\"M0 %.1fH1000\"/>",
                                  1000 * (c->y1 - i * tick) / (c->y1 - c->y0));
    }
    put_lines(file, c);
    ashlar__html_put(file, "</svg>");
    ashlar__html_put_y_axis(file, c->y0, c->y1);
    ashlar__html_put(file, "</div>");
    ashlar__html_put_x_axis(file, c->x0, c->x1, "step");
    ashlar__html_put(file, "</div>\n");
}

static void put_key(ashlar_file_buffer *file, const char *class, const char *text) {
    ashlar__file_buffer_print(file,
                              "<li><svg viewBox=\"0 0 28 10\" aria-hidden=true><polyline class=%s "
                              "points=\"0,5 28,5\"/></svg>%s</li>",
                              class, text);
}

/* ---- loss ---- */

static void put_loss_text(ashlar_file_buffer *file, const ashlar_html *h, double last) {
    const char *unit = h->report->unit != NULL ? h->report->unit : "symbol";
    ashlar__file_buffer_print(file,
                              "<section><h2>Loss</h2>\n<p>The mean of the last 10 steps went from "
                              "%.3f to %.3f nats per %s, which is %.3f bits",
                              h->losses[0].recent, last, unit, last / log(2));
    if (h->test_loss > 0) {
        ashlar__file_buffer_print(file, "; on held-out text, which was not trained on, it is %.3f",
                                  h->test_loss);
    }
    if (h->test_bits > 0) {
        ashlar__file_buffer_print(file,
                                  " or <data id=bits_per_byte value=\"%.17g\">%.3f</data> bits"
                                  " per byte",
                                  h->test_bits, h->test_bits);
    }
    ashlar__html_put(file,
                     ". A model that learns has a falling line; a held-out loss far above the "
                     "end of it would mean learning by heart.</p>\n");
}

static void put_loss_keys(ashlar_file_buffer *file, bool has_test) {
    ashlar__html_put(file, "<ul class=keys>");
    put_key(file, "raw", "each batch");
    put_key(file, "main", "mean of 10 steps");
    if (has_test) {
        put_key(file, "test", "held-out text, at the end");
    }
    ashlar__html_put(file, "</ul></section>\n");
}

ashlar_status ashlar__html_put_loss(ashlar_file_buffer *file, const ashlar_html *h) {
    const size_t n = h->loss_count;
    double *numbers;
    char label[160];
    if (n == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_NEW(numbers, 3 * n, "no host memory for a chart of %zu steps", n);
    double *const x = numbers, *const raw = numbers + n, *const smooth = numbers + 2 * n;
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)h->losses[i].step;
        raw[i] = h->losses[i].loss;
        smooth[i] = h->losses[i].recent;
    }
    const double ends[] = {x[0], x[n - 1]}, test[] = {h->test_loss, h->test_loss};
    const line lines[] = {{"raw", x, raw, n}, {"main", x, smooth, n}, {"test", ends, test, 2}};
    (void)snprintf(label, sizeof label,
                   "Loss from step %.0f to step %.0f: %.3f at first, %.3f at "
                   "the end.",
                   x[0], x[n - 1], raw[0], smooth[n - 1]);
    chart c = {.lines = lines, .count = h->test_loss > 0 ? 3 : 2, .unit = "nats", .label = label};
    put_loss_text(file, h, smooth[n - 1]);
    put_chart(file, &c);
    put_loss_keys(file, h->test_loss > 0);
    ashlar__host_free(numbers);
    return ASHLAR_OK;
}

/* ---- memory ---- */

ashlar_status ashlar__html_put_memory(ashlar_file_buffer *file, const ashlar_html *h) {
    size_t n;
    const ashlar_step_held *held = ashlar__step_record_held(h->record, &n);
    double *numbers;
    char label[160];
    const char *unit;
    if (n == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_NEW(numbers, 3 * n, "no host memory for a chart of %zu steps", n);
    double *const x = numbers, *const live = numbers + n, *const reserved = numbers + 2 * n;
    const double divisor = ashlar__html_unit(h->report->stats.reserved_peak_bytes, &unit);
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)held[i].step;
        live[i] = (double)held[i].live_bytes / divisor;
        reserved[i] = (double)held[i].reserved_bytes / divisor;
    }
    const line lines[] = {{"main", x, live, n}, {"second", x, reserved, n}};
    (void)snprintf(label, sizeof label,
                   "Memory of %zu steps: in the last one %.2f %s in use, %.2f "
                   "%s reserved.",
                   n, live[n - 1], unit, reserved[n - 1], unit);
    chart c = {.lines = lines, .count = 2, .from_zero = true, .unit = unit, .label = label};
    ashlar__file_buffer_print(
        file,
        "<section><h2>Memory over the steps</h2>\n<p>What a step has in use at "
        "its peak follows the length of its sequences. What is reserved, taken"
        " from the device, %s.</p>\n",
        reserved[n - 1] > reserved[0] ? "grew with the steps" : "stays as the warm-up left it");
    put_chart(file, &c);
    ashlar__html_put(file, "<ul class=keys>");
    put_key(file, "main", "in use at the step's peak");
    put_key(file, "second", "reserved");
    ashlar__html_put(file, "</ul></section>\n");
    ashlar__host_free(numbers);
    return ASHLAR_OK;
}
