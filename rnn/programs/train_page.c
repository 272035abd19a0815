/* train_page.c - collects what a training's page shows beside the report, and writes both. */
#include "rnn/programs/train_page.h"

#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/programs/program.h"
#include "rnn/programs/report.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static const char *const way_names[] = {
    [ASHLAR_COMPARE_DRIVER] = "driver",       [ASHLAR_COMPARE_CACHE] = "cache",
    [ASHLAR_COMPARE_WARMUP] = "warmup",       [ASHLAR_COMPARE_PLAN] = "plan",
    [ASHLAR_COMPARE_RECOMPUTE] = "recompute",
};
ASHLAR_TABLE_IS_FULL(way_names, ASHLAR_COMPARE_COUNT);

ashlar_status ashlar__train_page_begin(ashlar_train_page *page, ashlar_train_command *c) {
    *page = (ashlar_train_page){0};
    if (c->html == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__step_record_create(NULL, &page->record));
    c->train.hooks = ashlar__step_record_hooks(page->record);
    return ASHLAR_OK;
}

void ashlar__train_page_end(ashlar_train_page *page) {
    ashlar__step_record_destroy(page->record);
    ashlar__host_free(page->losses);
    ashlar__json_writer_finish(&page->document);
}

void ashlar__train_page_note(ashlar_train_page *page, const ashlar_train_progress *now) {
    void *grown = page->losses;
    if (page->record != NULL &&
        ashlar__host_grow(&grown, &page->loss_capacity, page->loss_count, sizeof page->losses[0])) {
        page->losses = grown;
        page->losses[page->loss_count++] = (ashlar_page_loss){now->step, now->loss_step, now->loss};
    }
}

/* ---- the parts of the document ---- */

static void put_data(ashlar_json_writer *w, const ashlar_option_list *data) {
    ashlar__json_put_key(w, "data");
    ashlar__json_open_row(w);
    for (size_t i = 0; i < data->count; i++) {
        ashlar__json_put_string(w, data->items[i]);
    }
    ashlar__json_close_array(w);
}

static void put_losses(ashlar_json_writer *w, const ashlar_train_page *page) {
    static const char *const columns[] = {"step", "loss", "recent"};
    ashlar__json_put_key(w, "losses");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < page->loss_count; i++) {
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, page->losses[i].step);
        ashlar__json_put_double(w, page->losses[i].loss);
        ashlar__json_put_double(w, page->losses[i].recent);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static void put_memory(ashlar_json_writer *w, const ashlar_step_record *record) {
    static const char *const columns[] = {"step", "live_bytes", "reserved_bytes", "seconds"};
    size_t count;
    const ashlar_step_held *held = ashlar__step_record_held(record, &count);
    ashlar__json_put_key(w, "memory");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < count; i++) {
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, held[i].step);
        ashlar__json_put_uint64(w, held[i].live_bytes);
        ashlar__json_put_uint64(w, held[i].reserved_bytes);
        ashlar__json_put_double(w, held[i].seconds);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static void put_boxes(ashlar_json_writer *w, const ashlar_step_boxes *b) {
    static const char *const columns[] = {"name", "tag", "address", "bytes", "taken", "given"};
    ashlar__json_put_key(w, "blocks");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < b->count; i++) {
        ashlar__json_open_row(w);
        ashlar__json_put_string(w, b->list[i].name);
        ashlar__json_put_string(w, ashlar_tag_name(b->list[i].tag));
        ashlar__json_put_uint64(w, b->list[i].address);
        ashlar__json_put_uint64(w, b->list[i].bytes);
        ashlar__json_put_uint64(w, b->list[i].taken);
        ashlar__json_put_uint64(w, b->list[i].given);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static void put_step(ashlar_json_writer *w, const ashlar_step_boxes *b) {
    ashlar__json_put_key(w, "step");
    ashlar__json_open_object(w);
    ashlar__json_add_uint64(w, "moments", b->moments);
    ashlar__json_add_uint64(w, "backward", b->backward);
    ashlar__json_add_uint64(w, "peak_bytes", b->peak_bytes);
    ashlar__json_add_uint64(w, "merged", b->merged);
    ashlar__json_add_uint64(w, "left_out", b->left_out);
    put_boxes(w, b);
    ashlar__json_close_object(w);
}

static void put_way(ashlar_json_writer *w, const char *name, const ashlar_compare_row *row) {
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "way", name);
    ashlar__json_add_bool(w, "ran", row->has_run);
    if (!row->has_run) {
        ashlar__json_add_string(w, "why_not", row->why_not);
        ashlar__json_close_object(w);
        return;
    }
    ashlar__json_put_key(w, "calls");
    ashlar__json_open_row(w);
    for (size_t i = 0; i < row->steps; i++) {
        ashlar__json_put_uint64(w, row->calls[i]);
    }
    ashlar__json_close_array(w);
    ashlar__json_put_key(w, "ms");
    ashlar__json_open_row(w);
    for (size_t i = 0; i < row->steps; i++) {
        ashlar__json_put_double(w, row->ms[i]);
    }
    ashlar__json_close_array(w);
    ashlar__json_add_double(w, "loss", row->loss);
    ashlar__json_add_uint64(w, "taken_peak_bytes", row->taken_peak_bytes);
    ashlar__json_close_object(w);
}

/* ---- writing ---- */

ashlar_status ashlar__train_page_report(ashlar_train_page *page, const ashlar_train_command *c,
                                        const ashlar_task *task,
                                        const ashlar_train_report *report) {
    ashlar_json_writer *w = &page->document;
    if (c->json == NULL && c->html == NULL) {
        return ASHLAR_OK;
    }
    ashlar__json_writer_init(w, 2);
    ashlar__report_put(w, task, &c->train, report);
    if (c->html != NULL) {
        put_data(w, &c->data);
        put_step(w, ashlar__step_record_largest(page->record));
        put_memory(w, page->record);
        put_losses(w, page);
        return ASHLAR_OK;
    }
    ashlar__json_close_object(w);
    return ashlar__json_writer_save(w, c->json);
}

/* Several ranks compare nothing: each process would have to run every way, too. */
static void compare(ashlar_json_writer *w, const ashlar_train_command *c, ashlar_device *device,
                    ashlar_compare_task_fn make_task, void *context) {
    ashlar_compare_row rows[ASHLAR_COMPARE_COUNT];
    const int count = c->is_tagger ? ASHLAR_COMPARE_RECOMPUTE /* a tagger has none */
                                   : ASHLAR_COMPARE_COUNT;
    if (!c->is_quiet) {
        printf("\nThe first steps again, with other ways to take memory, for %s ...\n", c->html);
        fflush(stdout);
    }
    ashlar__compare(device, &c->train, make_task, context, rows);
    ashlar__json_put_key(w, "comparison");
    ashlar__json_open_array(w);
    for (int i = 0; i < count; i++) {
        put_way(w, way_names[i], &rows[i]);
    }
    ashlar__json_close_array(w);
}

ashlar_status ashlar__train_page_write(ashlar_train_page *page, const ashlar_train_command *c,
                                       ashlar_device *device, ashlar_compare_task_fn make_task,
                                       void *context) {
    ashlar_json_writer *w = &page->document;
    if (c->html == NULL) {
        return ASHLAR_OK;
    }
    if (c->train.ranks == NULL) {
        compare(w, c, device, make_task, context);
    }
    ashlar__json_close_object(w);
    const ashlar_status status = c->json != NULL ? ashlar__json_writer_save(w, c->json) : ASHLAR_OK;
    return status == ASHLAR_OK ? ashlar__page_write(c->html, w) : status;
}
