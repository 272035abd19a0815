/* report_html_step.c - the page's picture of one step: a box for each buffer, in its place. */
#include "rnn/programs/report_html.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/svg.h"

enum {
    FOCUS_SHARE = 200, /* of the peak: smaller boxes are not stops for the keyboard */
    CUT_SHARE = 50,    /* of the peak: empty ranges of addresses above that are cut to it */
    TABLE_ROWS = 200,
};

/* ---- places ---- */

static int by_address(const void *a, const void *b) {
    const ashlar_step_box *const *x = a, *const *y = b;
    return ((*x)->address > (*y)->address) - ((*x)->address < (*y)->address);
}

/* Where each box begins above the lowest, without long empty ranges, which lie between segments.
 * Returns the height of all. */
static size_t place(const ashlar_step_boxes *b, const ashlar_step_box **sorted, size_t *places,
                    bool *is_cut) {
    const size_t most = (size_t)b->peak_bytes / CUT_SHARE;
    for (size_t i = 0; i < b->count; i++) {
        sorted[i] = &b->list[i];
    }
    qsort(sorted, b->count, sizeof sorted[0], by_address);
    uintptr_t end = sorted[0]->address; /* of the boxes so far */
    size_t height = 0;                  /* where that is in the picture */
    for (size_t i = 0; i < b->count; i++) {
        const ashlar_step_box *box = sorted[i];
        if (box->address > end) {
            const size_t gap = box->address - end;
            *is_cut = *is_cut || gap > most;
            height += gap > most ? most : gap;
            end = box->address;
        }
        const size_t at = height - (end - box->address);
        places[box - b->list] = at;
        if (box->address + box->bytes > end) {
            height = at + box->bytes;
            end = box->address + box->bytes;
        }
    }
    return height;
}

/* ---- the picture ---- */

static double percent(double part, double whole) {
    return 100 * part / (whole > 0 ? whole : 1);
}

static void put_box(ashlar_file_buffer *file, const ashlar_step_boxes *b, size_t i, size_t at,
                    size_t height) {
    const ashlar_step_box *box = &b->list[i];
    const double moments = (double)b->moments;
    ashlar__file_buffer_print(
        file,
        "<div class=\"box t%d\" style=\"left:%.2f%%;width:%.2f%%;bottom:%.2f%%;height:%.2f%%\"",
        (int)box->tag, percent((double)box->taken, moments),
        percent((double)(box->given - box->taken), moments), percent((double)at, (double)height),
        percent((double)box->bytes, (double)height));
    ashlar__file_buffer_print(file, "%s role=img aria-label=\"",
                              box->bytes >= b->peak_bytes / FOCUS_SHARE ? " tabindex=0" : "");
    ashlar__svg_put_text(file, box->name, 80);
    ashlar__file_buffer_print(file, ": %s, ", ashlar_tag_name(box->tag));
    ashlar__html_put_bytes(file, box->bytes);
    ashlar__file_buffer_print(file, ", held from event %zu to %zu of %zu\"></div>\n",
                              box->taken + 1, box->given + 1, b->moments);
}

static void put_keys(ashlar_file_buffer *file, const ashlar_step_boxes *b) {
    bool is_there[ASHLAR_TAG_COUNT] = {false};
    for (size_t i = 0; i < b->count; i++) {
        is_there[b->list[i].tag] = true;
    }
    ashlar__file_buffer_print(file, "<ul class=keys>");
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        if (is_there[tag]) {
            ashlar__file_buffer_print(file, "<li><b class=\"key t%d\"></b>%s</li>", tag,
                                      tag == ASHLAR_TAG_SAVED ? "saved for backward"
                                                              : ashlar_tag_name((ashlar_tag)tag));
        }
    }
    ashlar__file_buffer_print(file, "</ul>\n");
}

static void put_table(ashlar_file_buffer *file, const ashlar_step_boxes *b) {
    ashlar__file_buffer_print(file, "<details><summary>The same as a table</summary><div "
                                    "class=wide><table><tr><th>buffer<th>kind<th>size<th>taken at"
                                    "<th>given back at</tr>\n");
    for (size_t i = 0; i < b->count && i < TABLE_ROWS; i++) {
        const ashlar_step_box *box = &b->list[i];
        ashlar__file_buffer_print(file, "<tr><th scope=row>");
        ashlar__svg_put_text(file, box->name, 80);
        ashlar__file_buffer_print(file, "<td>%s<td>", ashlar_tag_name(box->tag));
        ashlar__html_put_bytes(file, box->bytes);
        ashlar__file_buffer_print(file, "<td>%zu<td>%zu</tr>\n", box->taken + 1, box->given + 1);
    }
    ashlar__file_buffer_print(file, "</table></div>");
    if (b->count > TABLE_ROWS) {
        ashlar__file_buffer_print(file, "<p>The first %d of %zu.</p>", (int)TABLE_ROWS, b->count);
    }
    ashlar__file_buffer_print(file, "</details>\n");
}

static void put_text(ashlar_file_buffer *file, const ashlar_step_boxes *b, bool is_cut) {
    ashlar__file_buffer_print(file,
                              "<section><h2>One step in memory</h2><p>The largest step takes "
                              "%zu buffers, at most ",
                              b->count + b->left_out);
    ashlar__html_put_bytes(file, b->peak_bytes);
    ashlar__file_buffer_print(file,
                              " at once. Each box is one: its width is how long it is held, "
                              "its height its size, its place the address it got. Boxes above "
                              "each other are held together");
    ashlar__file_buffer_print(file, "%s.",
                              is_cut ? "; long empty ranges of addresses are cut" : "");
    if (b->left_out > 0) {
        ashlar__file_buffer_print(file, " The last %zu are left out.", b->left_out);
    }
    ashlar__file_buffer_print(file, "</p>\n");
}

ashlar_status ashlar__html_put_step(ashlar_file_buffer *file, const ashlar_html *h) {
    const ashlar_step_boxes *b = ashlar__step_record_largest(h->record);
    const ashlar_step_box **sorted;
    size_t *places;
    bool is_cut = false;
    if (b->count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_NEW(sorted, b->count, "no host memory for %zu boxes", b->count);
    places = ashlar__host_calloc(b->count, sizeof *places);
    if (places == NULL) {
        ashlar__host_free(sorted);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu boxes", b->count);
    }
    const size_t height = place(b, sorted, places, &is_cut);
    put_text(file, b, is_cut);
    const double backward = percent((double)b->backward, (double)b->moments);
    ashlar__file_buffer_print(file, "<div class=chart><div class=unit>");
    ashlar__html_put_bytes(file, height);
    ashlar__file_buffer_print(file,
                              "</div><div class=\"plot step\" role=group "
                              "aria-label=\"Buffers of one step\">\n<div class=backward "
                              "style=\"left:%.2f%%\"></div>\n",
                              backward);
    for (size_t i = 0; i < b->count; i++) {
        put_box(file, b, i, places[i], height);
    }
    ashlar__file_buffer_print(file,
                              "</div><div class=phases aria-hidden=true><span "
                              "style=\"width:%.2f%%\">forward</span>"
                              "<span>backward</span></div></div>\n",
                              backward);
    put_keys(file, b);
    put_table(file, b);
    ashlar__file_buffer_print(file, "</section>\n");
    ashlar__host_free(places);
    ashlar__host_free(sorted);
    return ASHLAR_OK;
}
