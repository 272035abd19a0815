/* chart.c - draws the figures of several subjects as an SVG with a logarithmic axis. */
#include "bench/harness/results.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/svg.h"

/* The page and the plot in it, in tenths of a pixel. */
enum {
    WIDTH = 9600,
    LEFT = 3000,
    RIGHT = 9200,
    TOP = 850, /* without the legend */
    LINE_HEIGHT = 220,
    BELOW = 500,
    MARK = 60,          /* a mark's radius, or half its side */
    LEGEND_COLUMNS = 6, /* half as many if a name is longer than LEGEND_LETTERS */
    LEGEND_LETTERS = 18,
    LEGEND_WIDTH = WIDTH - 400,
    LEGEND_HEIGHT = 200,
};

/*
 * Invariants: low < high;  10^low <= each figure <= 10^high;
 *             bottom == top + line_count * LINE_HEIGHT.
 */
typedef struct scene {
    const ashlar_results *results;
    const char *unit;
    ashlar_file_buffer *file;
    int low, high; /* exponents of ten */
    int top, bottom;
    int legend_columns;
} scene;

static int count_legend_columns(const ashlar_results *results) {
    int columns = LEGEND_COLUMNS;
    for (size_t i = 0; i < results->subject_count; i++) {
        columns = strlen(results->subjects[i]) > LEGEND_LETTERS ? LEGEND_COLUMNS / 2 : columns;
    }
    return columns;
}

static ashlar_status measure(scene *s) {
    double least = 0, most = 0;
    for (size_t i = 0; i < s->results->line_count; i++) {
        for (size_t k = 0; k < s->results->subject_count; k++) {
            const double figure = s->results->figures[i][k];
            if (figure > 0) {
                least = least == 0 || figure < least ? figure : least;
                most = figure > most ? figure : most;
            }
        }
    }
    if (least == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "chart: there is no figure above 0");
    }
    s->legend_columns = count_legend_columns(s->results);
    const int rows = ((int)s->results->subject_count + s->legend_columns - 1) / s->legend_columns;
    s->low = (int)floor(log10(least));
    s->high = (int)ceil(log10(most));
    s->high += s->high == s->low;
    s->top = TOP + rows * LEGEND_HEIGHT;
    s->bottom = s->top + (int)s->results->line_count * LINE_HEIGHT;
    return ASHLAR_OK;
}

static int x_of(const scene *s, double figure) {
    const double share = (log10(figure) - s->low) / (s->high - s->low);
    return LEFT + (int)(share * (RIGHT - LEFT) + 0.5);
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
    ashlar__svg_put_text(s->file, text, ASHLAR_RESULTS_LABEL_BYTES);
    ashlar__file_buffer_print(s->file, "</text>\n");
}

static void put_head(const scene *s, const char *title) {
    ashlar__svg_begin(s->file, WIDTH, s->bottom + BELOW);
    ashlar__file_buffer_print(s->file, "<text x=\"200\" y=\"340\" font-size=\"180\">");
    ashlar__svg_put_text(s->file, title, ASHLAR_RESULTS_LABEL_BYTES);
    ashlar__file_buffer_print(s->file, "</text>\n");
    for (size_t i = 0; i < s->results->subject_count; i++) {
        const int x = 300 + (int)i % s->legend_columns * (LEGEND_WIDTH / s->legend_columns);
        const int y = 650 + (int)i / s->legend_columns * LEGEND_HEIGHT;
        put_mark(s, i, x, y);
        ashlar__file_buffer_print(s->file, "/>\n");
        put_text(s, x + 120, y + 40, "start", s->results->subjects[i]);
    }
}

static void put_power(const scene *s, int exponent) {
    const int x = LEFT + (exponent - s->low) * (RIGHT - LEFT) / (s->high - s->low);
    ashlar__file_buffer_print(s->file,
                              "<path d=\"M%d %dV%d\" stroke=\"#ccc\" stroke-width=\"8\"/>\n", x,
                              s->top, s->bottom);
    ashlar__file_buffer_print(s->file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                              x, s->bottom + 180, pow(10, exponent));
}

/* Draw the fainter grid lines at 2 to 9 times a power of ten. */
static void put_steps(const scene *s, int exponent) {
    ashlar__file_buffer_print(s->file, "<path d=\"");
    for (int n = 2; n <= 9; n++) {
        ashlar__file_buffer_print(s->file, "M%d %dV%d", x_of(s, n * pow(10, exponent)), s->top,
                                  s->bottom);
    }
    ashlar__file_buffer_print(s->file, "\" stroke=\"#eee\" stroke-width=\"4\"/>\n");
}

static void put_axis(const scene *s) {
    for (int exponent = s->low; exponent < s->high; exponent++) {
        put_steps(s, exponent);
    }
    for (int exponent = s->low; exponent <= s->high; exponent++) {
        put_power(s, exponent);
    }
    put_text(s, (LEFT + RIGHT) / 2, s->bottom + 400, "middle", s->unit);
}

/* Draw a line's marks; the first subject's comes last, so that no other mark hides it. */
static void put_line(const scene *s, size_t line) {
    const int y = s->top + (int)line * LINE_HEIGHT + LINE_HEIGHT / 2;
    put_text(s, LEFT - 120, y + 40, "end", s->results->labels[line]);
    ashlar__file_buffer_print(
        s->file, "<path d=\"M%d %dH%d\" stroke=\"#ccc\" stroke-width=\"4\"/>\n", LEFT, y, RIGHT);
    for (size_t i = s->results->subject_count; i-- > 0;) {
        const double figure = s->results->figures[line][i];
        if (figure > 0) {
            put_mark(s, i, x_of(s, figure), y);
            ashlar__file_buffer_print(s->file, "><title>");
            ashlar__svg_put_text(s->file, s->results->subjects[i], ASHLAR_RESULTS_NAME_BYTES);
            ashlar__file_buffer_print(s->file, ": %.4g</title></%s>\n", figure,
                                      i < ASHLAR_SVG_COLOURS ? "circle" : "rect");
        }
    }
}

ashlar_status ashlar__chart_write(const ashlar_results *results, const char *title,
                                  const char *unit, const char *path) {
    scene s = {.results = results, .unit = unit};
    ashlar_status status = measure(&s);
    if (status == ASHLAR_OK) {
        status = ashlar__file_buffer_create(path, &s.file);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    put_head(&s, title);
    put_axis(&s);
    for (size_t i = 0; i < results->line_count; i++) {
        put_line(&s, i);
    }
    ashlar__svg_end(s.file);
    return ashlar__file_buffer_commit(s.file);
}
