/* report_html.c - the HTML page of a training: frame, key figures, memory by kind, settings. */
#include "rnn/programs/report_html.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ashlar/version.h>

#include "allocator/base/error.h"
#include "allocator/base/svg.h"

static void put(ashlar_file_buffer *file, const char *text) {
    ashlar__html_put(file, text);
}

static void put_escaped(ashlar_file_buffer *file, const char *text) {
    ashlar__svg_put_text(file, text, strlen(text));
}

static void put_head(ashlar_file_buffer *file, const ashlar_html *h) {
    put(file, "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
              "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
              "<title>Training report</title>\n<style>\n");
    ashlar__html_put_style(file);
    put(file, "</style></head><body><main>\n<h1>Training report</h1>\n<p>");
    put_escaped(file, h->model);
    ashlar__file_buffer_print(file, ": %zu steps on ", h->report->steps);
    put_escaped(file, h->report->device.name);
    put(file, "</p>\n");
}

/* ---- figures, with the keys and the values of `--json` ---- */

static void put_count(ashlar_file_buffer *file, const char *key, const char *what, uint64_t value,
                      bool is_size) {
    ashlar__file_buffer_print(file, "<div><dt>%s</dt><dd><data id=%s value=\"%" PRIu64 "\">", what,
                              key, value);
    if (is_size) {
        ashlar__html_put_bytes(file, value);
    } else {
        ashlar__file_buffer_print(file, "%" PRIu64, value);
    }
    put(file, "</data></dd></div>\n");
}

static void put_real(ashlar_file_buffer *file, const char *key, const char *what, double value,
                     int digits) {
    const double unit = value < 1e4 ? 1 : value < 1e7 ? 1e3 : 1e6;
    ashlar__file_buffer_print(file,
                              "<div><dt>%s</dt><dd><data id=%s value=\"%.17g\">%.*f%s</data></dd>"
                              "</div>\n",
                              what, key, value, unit > 1 ? 1 : digits, value / unit,
                              unit > 1e3 ? "&nbsp;M"
                              : unit > 1 ? "&nbsp;k"
                                         : "");
}

static const char *unit_of(const ashlar_html *h) {
    return h->report->unit != NULL ? h->report->unit : "symbol";
}

static void put_headline(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_train_report *r = h->report;
    char speed[64];
    (void)snprintf(speed, sizeof speed, "%ss trained on in a second", unit_of(h));
    put(file, "<dl class=figures>\n");
    put_count(file, "driver_calls_after_warmup",
              "driver calls for memory, streams or attributes after the warm-up",
              r->training.management, false);
    put_count(file, "step_reserved_bytes", "memory that all steps share",
              r->step_memory.reserved_bytes, true);
    put_count(file, "reserved_peak_bytes", "taken from the device, with weights and optimizer",
              r->stats.reserved_peak_bytes, true);
    put_real(file, "loss_last", "loss in nats, mean of the last 10 steps", r->loss_last, 4);
    put_real(file, "tokens_per_s", speed, r->tokens_per_s, 0);
    put(file, "</dl>\n");
}

/* ---- memory by kind ---- */

static void put_size_cell(ashlar_file_buffer *file, uint64_t bytes) {
    put(file, "<td>");
    if (bytes > 0) {
        ashlar__html_put_bytes(file, bytes);
    } else {
        put(file, "0");
    }
    put(file, "</td>");
}

static void put_kind(ashlar_file_buffer *file, ashlar_tag tag, uint64_t at_peak, uint64_t between) {
    ashlar__file_buffer_print(file, "<tr><th scope=row><span class=\"key t%d\"></span>%s</th>",
                              (int)tag, ashlar__html_tag_name(tag));
    put_size_cell(file, at_peak);
    put_size_cell(file, between);
    put(file, "</tr>\n");
}

static void put_account(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_stats *s = &h->report->stats;
    uint64_t held = 0;
    put(file,
        "<section><h2>Memory by kind</h2>\n<p>What was in use at the moment when most was, "
        "and what stays in use from step to step. Only weights, gradients, what the optimizer "
        "keeps and the batches should be in the right column.</p>\n<table id=account><thead>"
        "<tr><th scope=col>kind</th><th scope=col>at the peak</th><th scope=col>between "
        "steps</th></tr></thead>\n<tbody>");
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const uint64_t at_peak = s->tags[tag].at_peak_bytes;
        const uint64_t between = h->report->growth[tag].held_bytes;
        held += between;
        if (at_peak > 0 || between > 0) {
            put_kind(file, (ashlar_tag)tag, at_peak, between);
        }
    }
    put(file, "<tr class=sum><th scope=row>all</th>");
    put_size_cell(file, s->live_peak_bytes);
    put_size_cell(file, held);
    put(file, "</tr></tbody></table></section>\n");
}

/* ---- settings ---- */

static void begin_fact(ashlar_file_buffer *file, const char *name) {
    ashlar__file_buffer_print(file, "<div><dt>%s</dt><dd>", name);
}

static void end_fact(ashlar_file_buffer *file) {
    put(file, "</dd></div>\n");
}

static void put_data(ashlar_file_buffer *file, const ashlar_html *h) {
    begin_fact(file, "data");
    for (size_t i = 0; i < h->data_count; i++) {
        put(file, i > 0 ? ", " : "");
        put_escaped(file, h->data[i]);
    }
    end_fact(file);
}

static void put_settings(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_train_config *c = h->config;
    const ashlar_train_report *r = h->report;
    put(file, "<section><h2>How it was trained</h2>\n<dl class=facts>\n");
    begin_fact(file, "model");
    put_escaped(file, h->model);
    ashlar__file_buffer_print(file, ", %zu parameters", r->parameters);
    end_fact(file);
    put_data(file, h);
    begin_fact(file, "batches");
    ashlar__file_buffer_print(file, "%zu sequences of at most %zu, with %zu different lengths",
                              r->batch, r->max_length, r->lengths_distinct);
    end_fact(file);
    begin_fact(file, "steps");
    ashlar__file_buffer_print(file, "%zu in %.1f s", r->steps, r->seconds);
    if (r->resumed > 0) {
        ashlar__file_buffer_print(file, ", after %zu before", r->resumed);
    }
    end_fact(file);
    begin_fact(file, "optimizer");
    ashlar__file_buffer_print(file, "%s, learning rate %g, seed %" PRIu64,
                              ashlar_optimizer_name(c->optimizer.kind), c->optimizer.learning_rate,
                              c->seed);
    end_fact(file);
    begin_fact(file, "device");
    put_escaped(file, r->device.name);
    put(file, "; products: ");
    put_escaped(file, h->compute);
    end_fact(file);
    put(file, "</dl></section>\n");
}

ashlar_status ashlar__html_write(const char *path, const ashlar_html *h) {
    ashlar_file_buffer *file;
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    put_head(file, h);
    put_headline(file, h);
    ashlar__html_put_comparison(file, h);
    ashlar_status status = ashlar__html_put_step(file, h);
    ASHLAR_THEN(status, ashlar__html_put_memory(file, h));
    if (status == ASHLAR_OK) {
        put_account(file, h);
    }
    ASHLAR_THEN(status, ashlar__html_put_loss(file, h));
    if (status != ASHLAR_OK) {
        ashlar__file_buffer_abort(file);
        return status;
    }
    put_settings(file, h);
    put(file, "</main><footer><p>Made by ashlar-train " ASHLAR_VERSION_TEXT
              ". This page fetches nothing and runs no script.</p></footer></body></html>\n");
    return ashlar__file_buffer_commit(file);
}
