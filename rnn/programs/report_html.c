/* report_html.c - the page of a training: its frame, its figures and its tables. */
#include "rnn/programs/report_html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/version.h>

#include "allocator/base/compiler.h"

#include "allocator/base/error.h"
#include "allocator/base/svg.h"

/* Kinds of memory have the colours of our pictures; in the dark they are lighter. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d5dbe1;"
    "--main:#1f5fa8;--pale:#9dbfe6;--other:#a3470e;--band:#f1f4f8}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#15181c;--ink:#e6e9ec;--soft:#a4adb7;"
    "--line:#3a424b;--main:#84b8f3;--pale:#5580ad;--other:#eea06a;--band:#1d2228}"
    ".box,.key:not(.raw,.main,.second,.test){filter:brightness(1.15)}}\n"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:62rem;padding:1.5rem 1rem 4rem;background:var(--bg);"
    "color:var(--ink);font:1rem/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.2;margin:0 0 .25rem}h2{font-size:1.2rem;margin:2.5rem 0 "
    ".5rem}p{margin:.5rem 0;max-width:44rem;color:var(--soft)}h1+p{margin:0 0 1.5rem}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:1rem;margin:0}"
    "dl div{border-left:3px solid var(--main);padding-left:.75rem;display:flex;"
    "flex-direction:column-reverse;justify-content:flex-end}dd{margin:0;font-size:1.5rem;"
    "font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}dt{color:var(--soft);"
    "font-size:.9rem;line-height:1.35}\n"
    ".chart{padding-left:3.25rem;margin:1rem 0 .5rem}.unit{margin-left:-3.25rem;color:var(--soft);"
    "font-size:.85rem}.plot{position:relative;height:15rem;border-left:1px solid var(--soft);"
    "border-bottom:1px solid var(--soft)}.plot svg{position:absolute;inset:0;width:100%;"
    "height:100%;overflow:visible}\n"
    ".y span{position:absolute;right:100%;transform:translateY(50%);padding-right:.5rem;"
    "font-size:.85rem;color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".x{display:flex;justify-content:space-between;font-size:.85rem;color:var(--soft)}\n"
    "polyline,.tick{fill:none;vector-effect:non-scaling-stroke}.tick{stroke:var(--line)}"
    ".raw{stroke:var(--pale);background:var(--pale)}.main{stroke:var(--main);stroke-width:2;"
    "background:var(--main)}.second{stroke:var(--other);stroke-width:2;stroke-dasharray:6 4;"
    "background:var(--other)}.test{stroke:var(--ink);stroke-dasharray:2 4;stroke-width:2;"
    "background:var(--ink)}\n"
    ".keys{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.5rem 0;padding:0;"
    "font-size:.9rem}.key{display:inline-block;width:.9rem;height:.9rem;margin-right:.4rem;"
    "vertical-align:-.1rem;border-radius:2px}\n"
    ".step{height:24rem;overflow:hidden}.backward{position:absolute;top:0;bottom:0;right:0;"
    "background:var(--band)}.box{position:absolute;border:1px solid var(--bg);min-height:2px}"
    ".box:hover,.box:focus{border-color:var(--ink);outline:2px solid var(--ink);z-index:1}"
    ".box:hover::after,.box:focus::after{content:attr(aria-label);position:fixed;left:1rem;"
    "right:1rem;bottom:1rem;max-width:40rem;margin:auto;padding:.6rem .9rem;border-radius:6px;"
    "background:var(--ink);color:var(--bg);z-index:2}\n"
    ".phases{display:flex;font-size:.85rem;color:var(--soft)}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:"
    "tabular-nums}th,td{text-align:right;padding:.4rem .75rem;border-bottom:1px solid var(--line)}"
    "td,[scope=row]{white-space:nowrap}td[colspan]{white-space:normal}th:first-child{text-align:"
    "left}tr>th{"
    "font-weight:600}tr>th[scope=row]{font-weight:400}"
    ".ours{background:var(--band)}summary{cursor:pointer;color:var(--main)}"
    "footer{margin-top:3rem;border-top:1px solid var(--line);padding-top:.5rem}\n";

void ashlar__html_put_bytes(ashlar_file_buffer *file, uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    ashlar__file_buffer_print(file, unit == 0 || value >= 100 ? "%.0f %s" : "%.2f %s", value,
                              units[unit]);
}

static void put(ashlar_file_buffer *file, const char *text) {
    ashlar__file_buffer_put(file, text, strlen(text));
}

static void put_escaped(ashlar_file_buffer *file, const char *text) {
    ashlar__svg_put_text(file, text, strlen(text));
}

/* ---- the frame ---- */

static void put_head(ashlar_file_buffer *file, const ashlar_html *h) {
    put(file, "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
              "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
              "<title>Training report</title>\n<style>\n");
    put(file, style);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar__file_buffer_print(file, ".t%d{background:%s}", tag,
                                  ashlar__svg_colours[tag % ASHLAR_SVG_COLOURS]);
    }
    put(file, "\n</style></head><body><main>\n<h1>Training report</h1><p>");
    put_escaped(file, h->model);
    ashlar__file_buffer_print(file, ", %zu sequences of at most %zu, on ", h->report->batch,
                              h->report->max_length);
    put_escaped(file, h->report->device.name);
    put(file, " (");
    put_escaped(file, h->compute);
    put(file, ")</p>\n");
}

static void begin_figure(ashlar_file_buffer *file, const char *what) {
    ashlar__file_buffer_print(file, "<div><dt>%s</dt><dd>", what);
}

/* The keys and the values of `--json`. */
static void begin_count(ashlar_file_buffer *file, const char *key, uint64_t value) {
    ashlar__file_buffer_print(file, "<data id=%s value=\"%" PRIu64 "\">", key, value);
}

static void begin_real(ashlar_file_buffer *file, const char *key, double value) {
    ashlar__file_buffer_print(file, "<data id=%s value=\"%.17g\">", key, value);
}

static void end_figure(ashlar_file_buffer *file) {
    put(file, "</data></dd></div>\n");
}

static void put_headline(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_train_report *r = h->report;
    put(file, "<dl>\n");
    begin_figure(file, "driver calls for memory, streams, events or attributes after the warm-up");
    begin_count(file, "driver_calls_after_warmup", r->training.management);
    ashlar__file_buffer_print(file, "%" PRIu64, r->training.management);
    end_figure(file);
    begin_figure(file, "memory that all steps share");
    begin_count(file, "step_reserved_bytes", r->step_memory.reserved_bytes);
    ashlar__html_put_bytes(file, r->step_memory.reserved_bytes);
    end_figure(file);
    begin_figure(file, "taken from the device, with weights and optimizer");
    begin_count(file, "reserved_peak_bytes", r->stats.reserved_peak_bytes);
    ashlar__html_put_bytes(file, r->stats.reserved_peak_bytes);
    end_figure(file);
    begin_figure(file, "loss at the end, nats; mean of 10 steps");
    begin_real(file, "loss_last", r->loss_last);
    ashlar__file_buffer_print(file, "%.4f", r->loss_last);
    end_figure(file);
    ashlar__file_buffer_print(file, "<div><dt>%ss trained on in a second</dt><dd>",
                              r->unit != NULL ? r->unit : "symbol");
    begin_real(file, "tokens_per_s", r->tokens_per_s);
    ashlar__file_buffer_print(file, r->tokens_per_s < 1e4 ? "%.0f" : "%.1f k",
                              r->tokens_per_s / (r->tokens_per_s < 1e4 ? 1 : 1e3));
    end_figure(file);
    put(file, "</dl>\n");
}

/* ---- tables ---- */

static void put_size_cell(ashlar_file_buffer *file, uint64_t bytes) {
    put(file, "<td>");
    ashlar__html_put_bytes(file, bytes);
}

static void put_account(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_stats *s = &h->report->stats;
    uint64_t held = 0;
    put(file, "<section><h2>Memory by kind</h2><p>At the moment when most was in use, and between "
              "the steps.</p>\n<div class=wide><table><tr><th scope=col>kind<th scope=col>at the "
              "peak<th scope=col>held between steps</tr>\n");
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const uint64_t at_peak = s->tags[tag].at_peak_bytes;
        const uint64_t between = h->report->growth[tag].held_bytes;
        held += between;
        if (at_peak > 0 || between > 0) {
            ashlar__file_buffer_print(file, "<tr><th scope=row><b class=\"key t%d\"></b>%s", tag,
                                      ashlar_tag_name((ashlar_tag)tag));
            put_size_cell(file, at_peak);
            put_size_cell(file, between);
            put(file, "</tr>\n");
        }
    }
    put(file, "<tr><th scope=row>all");
    put_size_cell(file, s->live_peak_bytes);
    put_size_cell(file, held);
    put(file, "</tr></table></div></section>\n");
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Its times, and each step's beside that of the same step with the plan: the middle, and the range.
 */
static void put_times(ashlar_file_buffer *file, const ashlar_compare_row *row,
                      const ashlar_compare_row *plan) {
    double sum = 0, ratios[ASHLAR_COMPARE_STEPS];
    for (size_t i = 0; i < row->steps; i++) {
        sum += row->ms[i];
        ratios[i] = plan->has_run ? row->ms[i] / plan->ms[i] : 1;
    }
    qsort(ratios, row->steps, sizeof ratios[0], by_value);
    const double mean = sum / (double)row->steps;
    ashlar__file_buffer_print(file, "<td><data value=\"%.17g\">%.*f ms</data><td>", mean,
                              mean < 10 ? 2 : 0, mean);
    if (!plan->has_run || row == plan) {
        put(file, plan->has_run ? "1" : "-");
    } else {
        ashlar__file_buffer_print(file, "%.2f (%.2f to %.2f)", ratios[row->steps / 2], ratios[0],
                                  ratios[row->steps - 1]);
    }
}

static void put_row(ashlar_file_buffer *file, int way, const ashlar_compare_row *rows) {
    const ashlar_compare_row *row = &rows[way];
    static const char *const names[] = {
        [ASHLAR_COMPARE_DRIVER] = "a driver call per allocation",
        [ASHLAR_COMPARE_CACHE] = "a cache, without a warm-up",
        [ASHLAR_COMPARE_WARMUP] = "a warm-up, without a plan",
        [ASHLAR_COMPARE_PLAN] = "a warm-up and a plan",
        [ASHLAR_COMPARE_RECOMPUTE] = "the same with recomputation",
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_COMPARE_COUNT);
    ashlar__file_buffer_print(file, "<tr%s id=way-%d><th scope=row>%s",
                              way >= ASHLAR_COMPARE_PLAN ? " class=ours" : "", way, names[way]);
    if (!row->has_run) {
        put(file, "<td colspan=4>");
        put_escaped(file, row->why_not);
    } else {
        ashlar__file_buffer_print(file, "<td><data value=\"%.17g\">%.4g</data>",
                                  row->calls_per_step, row->calls_per_step);
        put_times(file, row, &rows[ASHLAR_COMPARE_PLAN]);
        put_size_cell(file, row->taken_peak_bytes);
    }
    put(file, "</tr>\n");
}

static void put_comparison(ashlar_file_buffer *file, const ashlar_html *h) {
    if (h->row_count == 0) {
        return;
    }
    ashlar__file_buffer_print(
        file,
        "<section><h2>What each choice costs and saves</h2><p>The first %zu steps again, from "
        "new weights, with %zu ways to take memory. The ratio is that of each step's time to "
        "the same step's with the plan: the middle one, the least and the greatest. ",
        h->config->steps < ASHLAR_COMPARE_STEPS ? h->config->steps : (size_t)ASHLAR_COMPARE_STEPS,
        h->row_count);
    put(file,
        h->report->device.kind == ASHLAR_DEVICE_SOFT
            ? "A ratio whose range holds 1 says nothing; on the software device computing takes "
              "nearly all of a step, and a call little."
            : "A ratio whose range holds 1 says nothing.");
    put(file, "</p>\n<div class=wide><table id=comparison><tr><th scope=col>memory comes from<th "
              "scope=col>driver calls a step<th scope=col>time of a step<th scope=col>ratio<th "
              "scope=col>taken from "
              "the device</tr>\n");
    for (size_t i = 0; i < h->row_count; i++) {
        put_row(file, (int)i, h->rows);
    }
    put(file, "</table></div></section>\n");
}

ashlar_status ashlar__html_write(const char *path, const ashlar_html *h) {
    ashlar_file_buffer *file;
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    put_head(file, h);
    put_headline(file, h);
    ashlar_status status = ashlar__html_put_loss(file, h);
    ASHLAR_THEN(status, ashlar__html_put_step(file, h));
    ASHLAR_THEN(status, ashlar__html_put_memory(file, h));
    if (status != ASHLAR_OK) {
        ashlar__file_buffer_abort(file);
        return status;
    }
    put_account(file, h);
    put_comparison(file, h);
    put(file, "</main><footer><p>Made by ashlar-train " ASHLAR_VERSION_TEXT
              ".</p></footer></body></html>\n");
    return ashlar__file_buffer_commit(file);
}
