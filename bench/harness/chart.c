/* chart.c - draws an SVG chart of a benchmark: each subject's figures divided by those of one of
 * the subjects, the base. */
#include "bench/harness/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/svg.h"

/* The page and the plot in it, in tenths of a pixel. */
enum {
    WIDTH = 9600,
    LEFT = 2600,
    RIGHT = 8400,
    FIGURES = 9500, /* where the base's own figures end */
    LEGEND = 850,   /* its first line */
    TOP = 400,      /* from the legend to the plot */
    BELOW = 500,
    PITCH = 90,         /* from a mark to the next one of its line: none hides another */
    GAP = 90,           /* from one line's marks to the next one's */
    MARK = 42,          /* a mark's radius, or half its side */
    LEGEND_COLUMNS = 6, /* half as many if a name is longer than LEGEND_LETTERS */
    LEGEND_LETTERS = 18,
    LEGEND_WIDTH = WIDTH - 400,
    LEGEND_HEIGHT = 200,
    LABELLED_TICKS = 8 /* of more ticks than this, only powers of ten have a label */
};

/* Invariants: low < 0 < high;  tick(low) <= each ratio <= tick(high). */
typedef struct scene {
    const ashlar_chart *chart;
    const ashlar_results *results;
    ashlar_file_buffer *file;
    int low, high; /* ticks at the ends of the axis */
    int top, bottom;
    int legend_columns;
} scene;

/* The ticks are ..., 0.5, 1, 2, 5, 10, ...; that at 1 has number 0. */
static double tick(int number) {
    static const double steps[] = {1, 2, 5};
    const int power = (int)floor(number / 3.0);
    return steps[number - 3 * power] * pow(10, power);
}

static double base_of(const scene *s, size_t line) {
    return s->chart->base < s->results->subject_count ? s->results->figures[line][s->chart->base]
                                                      : 0;
}

static int count_marks(const scene *s, size_t line) {
    int count = 0;
    for (size_t i = 0; i < s->results->subject_count; i++) {
        count += s->results->figures[line][i] > 0;
    }
    return base_of(s, line) > 0 ? count : 1; /* 1: a line of text instead of marks */
}

static int line_height(const scene *s, size_t line) {
    return count_marks(s, line) * PITCH + GAP;
}

static int count_legend_columns(const ashlar_results *results) {
    int columns = LEGEND_COLUMNS;
    for (size_t i = 0; i < results->subject_count; i++) {
        columns = strlen(results->subjects[i]) > LEGEND_LETTERS ? LEGEND_COLUMNS / 2 : columns;
    }
    return columns;
}

static ashlar_status measure(scene *s) {
    double least = INFINITY, most = 0;
    int height = 0;
    for (size_t i = 0; i < s->results->line_count; i++) {
        const double base = base_of(s, i);
        for (size_t k = 0; k < s->results->subject_count && base > 0; k++) {
            if (s->results->figures[i][k] > 0) {
                least = fmin(least, s->results->low[i][k] / base);
                most = fmax(most, s->results->high[i][k] / base);
            }
        }
        height += line_height(s, i);
    }
    if (most == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "chart: there is no figure above 0 to compare with");
    }
    while (tick(s->low) > least || s->low == 0) {
        s->low--;
    }
    while (tick(s->high) < most || s->high == 0) {
        s->high++;
    }
    s->legend_columns = count_legend_columns(s->results);
    const int rows = ((int)s->results->subject_count + s->legend_columns - 1) / s->legend_columns;
    s->top = LEGEND + (rows - 1) * LEGEND_HEIGHT + TOP;
    s->bottom = s->top + height;
    return ASHLAR_OK;
}

static int x_of(const scene *s, double ratio) {
    const double low = log10(tick(s->low)), high = log10(tick(s->high));
    return LEFT + (int)((log10(ratio) - low) / (high - low) * (RIGHT - LEFT) + 0.5);
}

/* Draw a disc; for subjects from ASHLAR_SVG_COLOURS on, whose colours repeat, a square. */
static void put_mark(const scene *s, size_t subject, int x, int y) {
    if (subject < ASHLAR_SVG_COLOURS) {
        ashlar__file_buffer_print(s->file, "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" fill=\"%s\"", x, y,
                                  MARK, ashlar__svg_colours[subject]);
    } else {
        ashlar__file_buffer_print(
            s->file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"", x - MARK,
            y - MARK, 2 * MARK, 2 * MARK, ashlar__svg_colours[subject % ASHLAR_SVG_COLOURS]);
    }
}

static void put_text(const scene *s, int x, int y, const char *anchor, const char *text) {
    ashlar__file_buffer_print(s->file, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">", x, y, anchor);
    ashlar__svg_put_text(s->file, text, strlen(text));
    ashlar__file_buffer_print(s->file, "</text>\n");
}

static void put_head(const scene *s) {
    const ashlar_chart *c = s->chart;
    ashlar__svg_begin(s->file, WIDTH, s->bottom + BELOW);
    ashlar__file_buffer_print(s->file, "<text x=\"200\" y=\"340\" font-size=\"180\">");
    ashlar__svg_put_text(s->file, c->title, strlen(c->title));
    ashlar__file_buffer_print(s->file, "</text>\n");
    put_text(s, 200, 560, "start", c->where);
    for (size_t i = 0; i < s->results->subject_count; i++) {
        const int x = 300 + (int)i % s->legend_columns * (LEGEND_WIDTH / s->legend_columns);
        const int y = LEGEND + (int)i / s->legend_columns * LEGEND_HEIGHT;
        put_mark(s, i, x, y);
        ashlar__file_buffer_print(s->file, "/>\n");
        put_text(s, x + 120, y + 40, "start", s->results->subjects[i]);
    }
}

static void put_tick(const scene *s, int number, bool has_label) {
    const int x = x_of(s, tick(number));
    const bool is_power = number % 3 == 0;
    ashlar__file_buffer_print(s->file,
                              "<path d=\"M%d %dV%d\" stroke=\"%s\" stroke-width=\"%d\"/>\n", x,
                              s->top, s->bottom,
                              number == 0 ? "#222"
                              : is_power  ? "#ccc"
                                          : "#eee",
                              number == 0 ? 16 : 8);
    if (has_label || is_power) {
        ashlar__file_buffer_print(s->file,
                                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.7g</text>\n", x,
                                  s->bottom + 180, tick(number));
    }
}

static void put_axis(const scene *s) {
    char text[256];
    const ashlar_chart *c = s->chart;
    const char *base = s->results->subjects[c->base];
    for (int number = s->low; number <= s->high; number++) {
        if (number != 0) {
            put_tick(s, number, s->high - s->low < LABELLED_TICKS);
        }
    }
    put_tick(s, 0, true); /* over the others */
    (void)snprintf(text, sizeof text,
                   "%s / that of %s: lower is better; bars: middle half of the rounds", c->what,
                   base);
    put_text(s, (LEFT + RIGHT) / 2, s->bottom + 400, "middle", text);
    (void)snprintf(text, sizeof text, "%s%s%s", base, c->unit[0] != '\0' ? ", " : "", c->unit);
    put_text(s, FIGURES, s->top - 80, "end", text);
}

/* Draw a mark, and behind it the spread. */
static void put_ratio(const scene *s, size_t line, size_t subject, int y) {
    const ashlar_results *r = s->results;
    const double base = base_of(s, line), figure = r->figures[line][subject];
    if (r->low[line][subject] < r->high[line][subject]) {
        ashlar__file_buffer_print(
            s->file, "<path d=\"M%d %dH%d\" stroke=\"%s\" stroke-width=\"24\"/>\n",
            x_of(s, r->low[line][subject] / base), y, x_of(s, r->high[line][subject] / base),
            ashlar__svg_colours[subject % ASHLAR_SVG_COLOURS]);
    }
    put_mark(s, subject, x_of(s, figure / base), y);
    ashlar__file_buffer_print(s->file, "><title>");
    ashlar__svg_put_text(s->file, r->subjects[subject], ASHLAR_RESULTS_NAME_BYTES);
    ashlar__file_buffer_print(s->file, ": %.4g %s, %.3g to %.3g; ratio %.3g</title></%s>\n", figure,
                              s->chart->unit, r->low[line][subject], r->high[line][subject],
                              figure / base, subject < ASHLAR_SVG_COLOURS ? "circle" : "rect");
}

static void put_line(const scene *s, size_t line, int y) {
    char text[64];
    const double base = base_of(s, line);
    const int middle = y + line_height(s, line) / 2 + 40;
    ashlar__file_buffer_print(
        s->file, "<path d=\"M%d %dH%d\" stroke=\"#ccc\" stroke-width=\"4\"/>\n", 200, y, FIGURES);
    put_text(s, LEFT - 120, middle, "end", s->results->labels[line]);
    if (base <= 0) {
        put_text(s, LEFT + 120, middle, "start", "nothing to compare with: see the table");
        return;
    }
    (void)snprintf(text, sizeof text, "%.4g", base);
    put_text(s, FIGURES, middle, "end", text);
    y += (GAP + PITCH) / 2;
    for (size_t i = 0; i < s->results->subject_count; i++) {
        if (s->results->figures[line][i] > 0) {
            put_ratio(s, line, i, y);
            y += PITCH;
        }
    }
}

ashlar_status ashlar__chart_write(const ashlar_chart *chart, const char *path) {
    scene s = {.chart = chart, .results = chart->results};
    ASHLAR_TRY(measure(&s));
    ASHLAR_TRY(ashlar__file_buffer_create(path, &s.file));
    put_head(&s);
    put_axis(&s);
    int y = s.top;
    for (size_t i = 0; i < s.results->line_count; i++) {
        put_line(&s, i, y);
        y += line_height(&s, i);
    }
    ashlar__svg_end(s.file);
    return ashlar__file_buffer_commit(s.file);
}
