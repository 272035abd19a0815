/* report_html_step.c - the report page's picture of one step: a box for each buffer, by time and
 * address. */
#include "rnn/programs/report_html.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/svg.h"

enum {
    FOCUS_COUNT = 100, /* with more boxes, the keyboard stops at large ones only, ... */
    FOCUS_SHARE = 200, /* ... of more than 1/200 of the peak */
    CUT_SHARE = 50,    /* longer empty ranges of addresses are cut to 1/50 of the peak */
    TABLE_ROWS = 200,
    NAME_BYTES = 80,
};

/* Boxes at least so large have their name on them. */
static const double named_width = 8, named_height = 4.5; /* per cent of the picture */

/* ---- places ---- */

typedef struct layout {
    const ashlar_step_boxes *boxes;
    const ashlar_step_box **sorted; /* by address */
    size_t *places;                 /* how far each box lies above the lowest, after the cuts */
    size_t height;
    bool is_cut;
} layout;

static int by_address(const void *a, const void *b) {
    const ashlar_step_box *const *x = a, *const *y = b;
    return ((*x)->address > (*y)->address) - ((*x)->address < (*y)->address);
}

static void place(layout *l) {
    const ashlar_step_boxes *b = l->boxes;
    const size_t most = (size_t)b->peak_bytes / CUT_SHARE;
    for (size_t i = 0; i < b->count; i++) {
        l->sorted[i] = &b->list[i];
    }
    qsort(l->sorted, b->count, sizeof l->sorted[0], by_address);
    uintptr_t end = l->sorted[0]->address; /* of the boxes so far; in the picture: l->height */
    for (size_t i = 0; i < b->count; i++) {
        const ashlar_step_box *box = l->sorted[i];
        if (box->address > end) {
            const size_t gap = box->address - end;
            l->is_cut = l->is_cut || gap > most;
            l->height += gap > most ? most : gap;
            end = box->address;
        }
        const size_t at = l->height - (end - box->address);
        l->places[box - b->list] = at;
        if (box->address + box->bytes > end) {
            l->height = at + box->bytes;
            end = box->address + box->bytes;
        }
    }
}

static ashlar_status lay_out(const ashlar_step_boxes *b, layout *l) {
    *l = (layout){.boxes = b};
    ASHLAR_HOST_NEW(l->sorted, b->count, "no host memory for %zu boxes", b->count);
    l->places = ashlar__host_calloc(b->count, sizeof l->places[0]);
    if (l->places == NULL) {
        ashlar__host_free(l->sorted);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu boxes", b->count);
    }
    place(l);
    return ASHLAR_OK;
}

/* ---- the picture ---- */

static double percent(double part, double whole) {
    return 100 * part / (whole > 0 ? whole : 1);
}

static void put_name(ashlar_file_buffer *file, const ashlar_step_box *box) {
    ashlar__svg_put_text(file, box->name, NAME_BYTES);
}

static void put_box(ashlar_file_buffer *file, const layout *l, size_t i) {
    const ashlar_step_boxes *b = l->boxes;
    const ashlar_step_box *box = &b->list[i];
    const double width = percent((double)(box->given - box->taken), (double)b->moments);
    const double height = percent((double)box->bytes, (double)l->height);
    const bool stops = b->count <= FOCUS_COUNT || box->bytes > b->peak_bytes / FOCUS_SHARE;
    ashlar__file_buffer_print(
        file,
        "<div class=\"box t%d\" style=\"left:%.2f%%;width:%.2f%%;bottom:%.2f%%;"
        "height:%.2f%%\"%s role=img aria-label=\"",
        (int)box->tag, percent((double)box->taken, (double)b->moments), width,
        percent((double)l->places[i], (double)l->height), height, stops ? " tabindex=0" : "");
    put_name(file, box);
    ashlar__file_buffer_print(file, ": %s, ", ashlar__html_tag_name(box->tag));
    ashlar__html_put_bytes(file, box->bytes);
    ashlar__file_buffer_print(file, ", held from event %zu to %zu of %zu\">", box->taken + 1,
                              box->given + 1, b->moments);
    if (width >= named_width && height >= named_height) {
        put_name(file, box);
    }
    ashlar__html_put(file, "</div>\n");
}

static void put_keys(ashlar_file_buffer *file, const ashlar_step_boxes *b) {
    bool is_there[ASHLAR_TAG_COUNT] = {false};
    for (size_t i = 0; i < b->count; i++) {
        is_there[b->list[i].tag] = true;
    }
    ashlar__html_put(file, "<ul class=keys>");
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        if (is_there[tag]) {
            ashlar__file_buffer_print(file, "<li><span class=\"key t%d\"></span>%s</li>", tag,
                                      ashlar__html_tag_name((ashlar_tag)tag));
        }
    }
    ashlar__html_put(file, "</ul>\n");
}

static void put_table(ashlar_file_buffer *file, const ashlar_step_boxes *b) {
    ashlar__html_put(file, "<details><summary>The same as a table</summary>\n<table id=buffers>"
                           "<thead><tr><th scope=col>buffer</th><th scope=col>kind</th><th "
                           "scope=col>size</th><th scope=col>taken at</th><th scope=col>given back "
                           "at</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < b->count && i < TABLE_ROWS; i++) {
        const ashlar_step_box *box = &b->list[i];
        ashlar__html_put(file, "<tr><th scope=row>");
        put_name(file, box);
        ashlar__file_buffer_print(file, "</th><td>%s</td><td>", ashlar_tag_name(box->tag));
        ashlar__html_put_bytes(file, box->bytes);
        ashlar__file_buffer_print(file, "</td><td>%zu</td><td>%zu</td></tr>\n", box->taken + 1,
                                  box->given + 1);
    }
    ashlar__html_put(file, "</tbody></table>");
    if (b->count > TABLE_ROWS) {
        ashlar__file_buffer_print(file, "<p>The first %d of %zu.</p>", (int)TABLE_ROWS, b->count);
    }
    ashlar__html_put(file, "</details></section>\n");
}

static void put_text(ashlar_file_buffer *file, const ashlar_html *h, const layout *l) {
    const ashlar_step_boxes *b = l->boxes;
    const ashlar_step_memory *m = &h->report->step_memory;
    ashlar__file_buffer_print(file,
                              "<section><h2>One step in memory</h2>\n<p>The largest step takes "
                              "%zu buffers, and at its peak holds ",
                              b->count + b->merged + b->left_out);
    ashlar__html_put_bytes(file, b->peak_bytes);
    ashlar__html_put(file, ". Each box is one: as wide as it is held long, as high as it is large, "
                           "in the place that it got. Buffers that are never held together share "
                           "addresses");
    ashlar__html_put(file, l->is_cut ? "; long empty ranges of addresses are cut." : ".");
    if (m->is_planned) {
        ashlar__file_buffer_print(file, " The plan has room for %.2f&nbsp;%% more than the peak.",
                                  100 * m->gap);
    }
    if (b->merged > 0) {
        ashlar__file_buffer_print(file,
                                  " %zu boxes at the end are one with those before them in "
                                  "their places.",
                                  b->merged);
    }
    if (b->left_out > 0) {
        ashlar__file_buffer_print(file, " %zu are left out.", b->left_out);
    }
    ashlar__html_put(file, " Point at a box, or go there with the tab key, to read what it is.</p>"
                           "\n");
}

static void put_picture(ashlar_file_buffer *file, const layout *l) {
    const ashlar_step_boxes *b = l->boxes;
    const char *unit;
    const double divisor = ashlar__html_unit(l->height, &unit);
    const double backward = percent((double)b->backward, (double)b->moments);
    ashlar__file_buffer_print(file,
                              "<div class=chart><div class=unit>%s</div><div class=phases "
                              "aria-hidden=true><span style=\"width:%.2f%%\">forward</span><span>"
                              "%s</span></div>\n",
                              unit, backward, backward < 100 ? "backward" : "");
    ashlar__file_buffer_print(file,
                              "<div class=\"plot step\" role=group aria-label=\"Buffers of one "
                              "step, in the order in which they are taken\">\n"
                              "<div class=backward style=\"left:%.2f%%\"></div>\n",
                              backward);
    for (size_t i = 0; i < b->count; i++) {
        put_box(file, l, i);
    }
    ashlar__html_put_y_axis(file, 0, (double)l->height / divisor);
    ashlar__html_put(file, "</div>");
    ashlar__html_put_x_axis(file, 0, (double)b->moments,
                            "buffers taken and given back, in their order");
    ashlar__html_put(file, "</div>\n");
}

ashlar_status ashlar__html_put_step(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_step_boxes *b = ashlar__step_record_largest(h->record);
    layout l;
    if (b->count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(lay_out(b, &l));
    put_text(file, h, &l);
    put_picture(file, &l);
    put_keys(file, b);
    put_table(file, b);
    ashlar__host_free(l.places);
    ashlar__host_free(l.sorted);
    return ASHLAR_OK;
}
