/* report_html_chart.c - the page's lines over the steps: losses, and memory. */
#include "rnn/programs/report_html.h"

#include <math.h>
#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Points of a line beyond which each column shows its least and its greatest value. */
enum { COLUMNS = 400, TICKS = 4 };

typedef struct frame {
    double x0, x1; /* the first and the last step */
    double y0, y1;
} frame;

typedef struct line {
    const char *class;
    const double *x, *y;
    size_t count;
} line;

/* The largest of 1, 2, 5 times a power of ten that cuts `range` into TICKS parts or more. */
static double tick_of(double range) {
    const double raw = range / TICKS, power = pow(10, floor(log10(raw)));
    return power * (raw >= 5 * power ? 5 : raw >= 2 * power ? 2 : 1);
}

static frame frame_of(const line *lines, size_t count, bool from_zero) {
    frame f = {.x0 = lines[0].x[0], .y0 = lines[0].y[0], .y1 = lines[0].y[0]};
    for (size_t l = 0; l < count; l++) {
        for (size_t i = 0; i < lines[l].count; i++) {
            f.y0 = fmin(f.y0, lines[l].y[i]);
            f.y1 = fmax(f.y1, lines[l].y[i]);
            f.x1 = fmax(f.x1, lines[l].x[i]);
        }
    }
    f.y0 = from_zero ? 0 : f.y0;
    const double room = f.y1 > f.y0 ? 0.04 * (f.y1 - f.y0) : 1;
    f.y1 += room;
    f.y0 -= from_zero ? 0 : room;
    f.x1 = f.x1 > f.x0 ? f.x1 : f.x0 + 1;
    return f;
}

static void put_point(ashlar_file_buffer *file, const frame *f, double x, double y) {
    ashlar__file_buffer_print(file, "%.1f,%.1f ", 1000 * (x - f->x0) / (f->x1 - f->x0),
                              1000 * (f->y1 - y) / (f->y1 - f->y0));
}

static void put_column(ashlar_file_buffer *file, const frame *f, const line *l, size_t from,
                       size_t to) {
    size_t least = from, most = from;
    for (size_t i = from; i < to; i++) {
        least = l->y[i] < l->y[least] ? i : least;
        most = l->y[i] > l->y[most] ? i : most;
    }
    const size_t first = least < most ? least : most, second = least < most ? most : least;
    put_point(file, f, l->x[first], l->y[first]);
    put_point(file, f, l->x[second], l->y[second]);
}

static void put_line(ashlar_file_buffer *file, const frame *f, const line *l) {
    ashlar__file_buffer_print(file, "<polyline class=%s points=\"", l->class);
    if (l->count <= 2 * COLUMNS) {
        for (size_t i = 0; i < l->count; i++) {
            put_point(file, f, l->x[i], l->y[i]);
        }
    } else {
        for (size_t c = 0; c < COLUMNS; c++) {
            put_column(file, f, l, c * l->count / COLUMNS, (c + 1) * l->count / COLUMNS);
        }
    }
    ashlar__file_buffer_print(file, "\"/>");
}

/* Lines across, and their values beside the picture, where they stay readable at any width. */
static void put_ticks(ashlar_file_buffer *file, const frame *f, bool are_labels) {
    const double tick = tick_of(f->y1 - f->y0);
    for (double y = tick * ceil(f->y0 / tick); y <= f->y1; y += tick) {
        const double up = (y - f->y0) / (f->y1 - f->y0);
        if (are_labels) {
            ashlar__file_buffer_print(file, "<span style=\"bottom:%.2f%%\">%.6g</span>", 100 * up,
                                      fabs(y) < tick / 2 ? 0 : y);
        } else {
            ashlar__file_buffer_print(file, "<path class=tick d=\"M0 %.1fH1000\"/>",
                                      1000 * (1 - up));
        }
    }
}

static void put_chart(ashlar_file_buffer *file, const line *lines, size_t count, bool from_zero,
                      const char *unit, const char *label) {
    const frame f = frame_of(lines, count, from_zero);
    ashlar__file_buffer_print(file, "<div class=chart><div class=unit>%s</div><div class=plot>",
                              unit);
    ashlar__file_buffer_print(file,
                              "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=none role=img "
                              "aria-label=\"%s\">",
                              label);
    put_ticks(file, &f, false);
    for (size_t l = 0; l < count; l++) {
        put_line(file, &f, &lines[l]);
    }
    ashlar__file_buffer_print(file, "</svg><div class=y aria-hidden=true>");
    put_ticks(file, &f, true);
    ashlar__file_buffer_print(file,
                              "</div></div><div class=x aria-hidden=true><span>step "
                              "%.0f</span><span>%.0f</span></div></div>\n",
                              f.x0, f.x1);
}

static void put_key(ashlar_file_buffer *file, const char *class, const char *text) {
    ashlar__file_buffer_print(file, "<li><b class=\"key %s\"></b>%s</li>", class, text);
}

ashlar_status ashlar__html_put_loss(ashlar_file_buffer *file, const ashlar_html *h) {
    const size_t n = h->loss_count;
    double *numbers;
    char label[200], last[96];
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
    const char *unit = h->report->unit != NULL ? h->report->unit : "symbol";
    (void)snprintf(last, sizeof last, "%.4f nats per %s, which is %.4f bits", smooth[n - 1], unit,
                   smooth[n - 1] / log(2));
    (void)snprintf(label, sizeof label, "Loss from step %.0f to step %.0f: from %.3f to %s.", x[0],
                   x[n - 1], raw[0], last);
    ashlar__file_buffer_print(file, "<section><h2>Loss</h2><p>At the end it is %s", last);
    if (h->test_loss > 0) {
        ashlar__file_buffer_print(file, "; on held-out text it is %.4f nats", h->test_loss);
    }
    if (h->test_bits > 0) {
        ashlar__file_buffer_print(file, ", or %.3f bits per byte", h->test_bits);
    }
    ashlar__file_buffer_print(file, ".</p>\n");
    put_chart(file, lines, h->test_loss > 0 ? 3 : 2, false, "nats", label);
    ashlar__file_buffer_print(file, "<ul class=keys>");
    put_key(file, "raw", "each batch");
    put_key(file, "main", "mean of 10 steps");
    if (h->test_loss > 0) {
        put_key(file, "test", "held-out text, at the end");
    }
    ashlar__file_buffer_print(file, "</ul></section>\n");
    ashlar__host_free(numbers);
    return ASHLAR_OK;
}

ashlar_status ashlar__html_put_memory(ashlar_file_buffer *file, const ashlar_html *h) {
    size_t n;
    const ashlar_step_held *held = ashlar__step_record_held(h->record, &n);
    double *numbers;
    char label[200];
    if (n == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_NEW(numbers, 3 * n, "no host memory for a chart of %zu steps", n);
    double *const x = numbers, *const live = numbers + n, *const reserved = numbers + 2 * n;
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)held[i].step;
        live[i] = (double)held[i].live_bytes / (1 << 20);
        reserved[i] = (double)held[i].reserved_bytes / (1 << 20);
    }
    const line lines[] = {{"main", x, live, n}, {"second", x, reserved, n}};
    (void)snprintf(label, sizeof label,
                   "Memory in each step: %.2f MiB in use at the end, %.2f MiB reserved.",
                   live[n - 1], reserved[n - 1]);
    ashlar__file_buffer_print(file,
                              "<section><h2>Memory over the steps</h2><p>What a step has in use at "
                              "its peak changes with its length. What is reserved, taken from the "
                              "device, %s.</p>\n",
                              reserved[n - 1] > reserved[0] ? "grew with the steps"
                                                            : "stays as the warm-up left it");
    put_chart(file, lines, 2, true, "MiB", label);
    ashlar__file_buffer_print(file, "<ul class=keys>");
    put_key(file, "main", "in use at the step's peak");
    put_key(file, "second", "reserved");
    ashlar__file_buffer_print(file, "</ul></section>\n");
    ashlar__host_free(numbers);
    return ASHLAR_OK;
}
