/* report_html_compare.c - the report page's table that compares ways to take memory. */
#include "rnn/programs/report_html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/svg.h"

static const char *const names[] = {
    [ASHLAR_COMPARE_DRIVER] = "a driver call per allocation",
    [ASHLAR_COMPARE_CACHE] = "a cache, no warm-up",
    [ASHLAR_COMPARE_WARMUP] = "warm-up, no plan",
    [ASHLAR_COMPARE_PLAN] = "warm-up and plan",
    [ASHLAR_COMPARE_RECOMPUTE] = "the same, with recomputation",
};
ASHLAR_TABLE_IS_FULL(names, ASHLAR_COMPARE_COUNT);

static void put_calls(ashlar_file_buffer *file, const ashlar_compare_row *row) {
    ashlar__html_put(file, "<td class=calls><div>");
    for (size_t i = 0; i < row->steps; i++) {
        ashlar__file_buffer_print(file, "<data value=%" PRIu64 ">%" PRIu64 "</data> ",
                                  row->calls[i], row->calls[i]);
    }
    ashlar__html_put(file, "</div></td>");
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each step's time beside that of the same step with the plan: the middle one and the range. */
static void put_ratio(ashlar_file_buffer *file, const ashlar_compare_row *row,
                      const ashlar_compare_row *plan) {
    double ratios[ASHLAR_COMPARE_STEPS];
    if (!plan->has_run || row == plan) {
        return;
    }
    for (size_t i = 0; i < row->steps; i++) {
        ratios[i] = row->ms[i] / plan->ms[i];
    }
    qsort(ratios, row->steps, sizeof ratios[0], by_value);
    ashlar__file_buffer_print(file, "<small>%.2f (%.2f&ndash;%.2f)</small>", ratios[row->steps / 2],
                              ratios[0], ratios[row->steps - 1]);
}

static void put_times(ashlar_file_buffer *file, const ashlar_compare_row *row,
                      const ashlar_compare_row *plan) {
    double sum = 0;
    for (size_t i = 0; i < row->steps; i++) {
        sum += row->ms[i];
    }
    const double mean = sum / (double)row->steps;
    ashlar__file_buffer_print(file, "<td><data class=ms value=\"%.17g\">%.*f&nbsp;ms</data>", mean,
                              mean >= 100  ? 0
                              : mean >= 10 ? 1
                                           : 2,
                              mean);
    put_ratio(file, row, plan);
    ashlar__html_put(file, "</td>");
}

static void put_row(ashlar_file_buffer *file, int way, const ashlar_compare_row *rows) {
    const ashlar_compare_row *row = &rows[way];
    ashlar__file_buffer_print(file, "<tr%s id=way-%d><th scope=row>%s</th>",
                              way >= ASHLAR_COMPARE_PLAN ? " class=ours" : "", way, names[way]);
    if (!row->has_run) {
        ashlar__html_put(file, "<td colspan=3>");
        ashlar__svg_put_text(file, row->why_not, strlen(row->why_not));
    } else {
        put_calls(file, row);
        put_times(file, row, &rows[ASHLAR_COMPARE_PLAN]);
        ashlar__file_buffer_print(file, "<td><data class=bytes value=%" PRIu64 ">",
                                  row->taken_peak_bytes);
        ashlar__html_put_bytes(file, row->taken_peak_bytes);
        ashlar__html_put(file, "</data>");
    }
    ashlar__html_put(file, "</td></tr>\n");
}

/* The least and the most calls of a step. */
static void put_range(ashlar_file_buffer *file, const ashlar_compare_row *row) {
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < row->steps; i++) {
        least = row->calls[i] < least ? row->calls[i] : least;
        most = row->calls[i] > most ? row->calls[i] : most;
    }
    if (least < most) {
        ashlar__file_buffer_print(file, "%" PRIu64 " to ", least);
    }
    ashlar__file_buffer_print(file, "%" PRIu64, most);
}

/* Whether all ways have equal losses, except recomputation, which adds up in another order. */
static bool are_losses_equal(const ashlar_html *h) {
    bool are_equal = true;
    for (int i = 0; i < ASHLAR_COMPARE_RECOMPUTE; i++) {
        are_equal = are_equal && h->rows[i].has_run && h->rows[i].loss == h->rows[0].loss;
    }
    return are_equal;
}

static void put_findings(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_compare_row *driver = &h->rows[ASHLAR_COMPARE_DRIVER];
    const ashlar_compare_row *plan = &h->rows[ASHLAR_COMPARE_PLAN];
    if (driver->has_run && plan->has_run) {
        ashlar__html_put(file, "Where each allocation and each free is a call of the driver, every "
                               "step makes ");
        put_range(file, driver);
        ashlar__html_put(file, "; with the warm-up and the plan, ");
        put_range(file, plan);
        ashlar__html_put(file, ". ");
    }
    if (are_losses_equal(h)) {
        ashlar__html_put(file, h->row_count == ASHLAR_COMPARE_COUNT ? "The first four" : "All");
        ashlar__html_put(file, " compute the same losses, to the last bit. ");
    }
    ashlar__html_put(file, "Below each time: the times of its steps beside those of the same steps "
                           "with the plan, the middle one and the range. A range that holds 1 says "
                           "nothing. ");
    ashlar__html_put(file, h->report->device.kind == ASHLAR_DEVICE_SOFT
                               ? "On a software device computing takes most of a step.</p>\n"
                               : "</p>\n");
}

void ashlar__html_put_comparison(ashlar_file_buffer *file, const ashlar_html *h) {
    ashlar__html_put(file, "<section><h2>What each way to take memory costs</h2>\n<p>");
    if (h->row_count == 0) {
        ashlar__html_put(file, "Not compared: several processes trained together.</p></section>\n");
        return;
    }
    ashlar__file_buffer_print(
        file, "The first %zu steps again, from new weights, in %s ways. ",
        h->config->steps < ASHLAR_COMPARE_STEPS ? h->config->steps : (size_t)ASHLAR_COMPARE_STEPS,
        h->row_count == ASHLAR_COMPARE_COUNT ? "five" : "four");
    put_findings(file, h);
    ashlar__html_put(file, "<table id=comparison><thead><tr><th scope=col>memory by</th><th "
                           "scope=col>driver calls for memory, step by step</th><th scope=col>time "
                           "of a step</th><th scope=col>taken from the device</th></tr></thead>\n"
                           "<tbody>");
    for (size_t i = 0; i < h->row_count; i++) {
        put_row(file, (int)i, h->rows);
    }
    ashlar__html_put(file, "</tbody></table></section>\n");
}
