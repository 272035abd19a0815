/* train_page.c - the page of --html: collects a training's losses and buffers, compares ways to
 * take memory, and writes the page and the report. */
#include "rnn/programs/train_program.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "rnn/programs/program.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

typedef enum ashlar_compare_way {
    ASHLAR_COMPARE_CACHE,     /* the allocator, without a warm-up and without plans */
    ASHLAR_COMPARE_WARMUP,    /* the same, after a warm-up with the longest sequences */
    ASHLAR_COMPARE_PLAN,      /* a warm-up, and plans of the steps */
    ASHLAR_COMPARE_RECOMPUTE, /* the same, and backward recomputes the forward pass in chunks */
    ASHLAR_COMPARE_COUNT
} ashlar_compare_way;

enum { ASHLAR_COMPARE_STEPS = 6 };

/* What one way to take memory cost. The host waits when it is a step ahead of the device, so the
 * times of its steps are the device's, except for the first and the last step. */
typedef struct ashlar_compare_row {
    char why_not[160]; /* it has not run; "": it has */
    size_t steps;
    ashlar_train_held held[ASHLAR_COMPARE_STEPS];
    double loss;               /* mean of all steps, by tokens */
    uint64_t taken_peak_bytes; /* the most device memory that was allocated at a time */
} ashlar_compare_row;

static const char *const way_names[] = {
    [ASHLAR_COMPARE_CACHE] = "cache",
    [ASHLAR_COMPARE_WARMUP] = "warmup",
    [ASHLAR_COMPARE_PLAN] = "plan",
    [ASHLAR_COMPARE_RECOMPUTE] = "recompute",
};
ASHLAR_TABLE_IS_FULL(way_names, ASHLAR_COMPARE_COUNT);

void ashlar__train_page_begin(ashlar_train_page *page, const ashlar_train_command *c) {
    *page = (ashlar_train_page){.is_wanted = c->html != NULL};
}

void ashlar__train_page_end(ashlar_train_page *page) {
    ashlar__host_free(page->steps);
    ashlar__json_writer_finish(&page->document);
}

void ashlar__train_page_note(ashlar_train_page *page, const ashlar_train_progress *now) {
    void *grown = page->steps;
    if (page->is_wanted &&
        ashlar__host_grow(&grown, &page->step_capacity, page->step_count, sizeof page->steps[0])) {
        page->steps = grown;
        page->steps[page->step_count++] =
            (ashlar_page_step){now->step, now->loss_step, now->loss, now->held};
    }
}

/* ---- the first steps again, in each way to take memory ---- */

static ashlar_train_config config_of(const ashlar_train_config *c, ashlar_compare_way way) {
    const bool warms_up = way >= ASHLAR_COMPARE_WARMUP;
    ashlar_train_config config = *c;
    config.steps = c->steps < ASHLAR_COMPARE_STEPS ? c->steps : ASHLAR_COMPARE_STEPS;
    config.without_warmup = !warms_up;
    config.without_plan = way < ASHLAR_COMPARE_PLAN;
    config.pads = warms_up && c->pads;
    config.graphs = warms_up && c->graphs;
    config.recomputes_auto = way == ASHLAR_COMPARE_RECOMPUTE;
    config.recompute = 0;
    config.resume_file = config.save_file = NULL;
    config.save_every = 0;
    config.report = NULL;
    return config;
}

static void note_row(void *context, const ashlar_train_progress *now) {
    ashlar_compare_row *row = context;
    row->held[row->steps++] = now->held;
}

static ashlar_status compare_way(ashlar_device *device, const ashlar_train_config *config,
                                 ashlar_compare_way way, const ashlar_corpus *corpus,
                                 ashlar_compare_row *row) {
    const ashlar_train_config c = config_of(config, way);
    ashlar_trainer *trainer;
    ashlar_train_report report;
    ASHLAR_TRY(ashlar__trainer_create(device, corpus, &c, &trainer));
    const ashlar_status status = ashlar__trainer_run(trainer, note_row, row, &report);
    ashlar__trainer_destroy(trainer);
    if (status == ASHLAR_OK) {
        row->loss = report.loss_last;
        row->taken_peak_bytes = report.stats.reserved_peak_bytes;
    }
    return status;
}

/* Run the first steps of `config` in each way, from new weights and with an allocator of its own.
 * No file is written. If a way fails, for want of memory for instance, its row says why. */
static void run_all_ways(ashlar_device *device, const ashlar_train_config *config,
                         const ashlar_corpus *corpus,
                         ashlar_compare_row rows[static ASHLAR_COMPARE_COUNT]) {
    for (int way = 0; way < ASHLAR_COMPARE_COUNT; way++) {
        ashlar_compare_row *row = &rows[way];
        *row = (ashlar_compare_row){0};
        if (config->stop != NULL && *config->stop != 0) {
            (void)snprintf(row->why_not, sizeof row->why_not, "not run: the training was ended");
        } else if (compare_way(device, config, (ashlar_compare_way)way, corpus, row) != ASHLAR_OK) {
            (void)snprintf(row->why_not, sizeof row->why_not, "%s", ashlar_error_detail());
        }
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
    for (size_t i = 0; i < page->step_count; i++) {
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, page->steps[i].step);
        ashlar__json_put_double(w, page->steps[i].loss);
        ashlar__json_put_double(w, page->steps[i].recent);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static void put_memory(ashlar_json_writer *w, const ashlar_train_page *page) {
    static const char *const columns[] = {"step", "live_bytes", "reserved_bytes", "seconds"};
    ashlar__json_put_key(w, "memory");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < page->step_count; i++) {
        const ashlar_train_held *held = &page->steps[i].held;
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, page->steps[i].step);
        ashlar__json_put_uint64(w, held->live_bytes);
        ashlar__json_put_uint64(w, held->reserved_bytes);
        ashlar__json_put_double(w, held->seconds);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

/* The tag of what a buffer would be as a block of its own. */
static ashlar_tag tag_of(const ashlar_model_buffer *b) {
    return strncmp(b->role, "kept", 4) == 0        ? ASHLAR_TAG_SAVED
           : strncmp(b->role, "workspace", 9) == 0 ? ASHLAR_TAG_WORKSPACE
                                                   : ASHLAR_TAG_ACTIVATIONS;
}

/* The phase from which on a buffer's place is free, or that of one which comes in its place: that
 * is listed beside it, for a part of the same time. */
static size_t end_of(const ashlar_model_buffer *list, size_t count, const ashlar_model_buffer *b) {
    size_t end = b->last + 1;
    for (size_t i = 0; i < count; i++) {
        const ashlar_model_buffer *next = &list[i];
        if (next->offset == b->offset && next->first > b->first && next->first < end) {
            end = next->first;
        }
    }
    return end;
}

static void put_boxes(ashlar_json_writer *w, const ashlar_model_buffer *list, size_t count) {
    static const char *const columns[] = {"name", "tag", "address", "bytes", "taken", "given"};
    ashlar__json_put_key(w, "blocks");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < count; i++) {
        char name[96];
        (void)snprintf(name, sizeof name, "%s%s%s", list[i].operation,
                       list[i].operation[0] != '\0' ? ": " : "", list[i].role);
        ashlar__json_open_row(w);
        ashlar__json_put_string(w, name);
        ashlar__json_put_string(w, ashlar_tag_name(tag_of(&list[i])));
        ashlar__json_put_uint64(w, list[i].offset);
        ashlar__json_put_uint64(w, list[i].bytes);
        ashlar__json_put_uint64(w, list[i].first);
        ashlar__json_put_uint64(w, end_of(list, count, &list[i]));
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

/* The largest step: its buffers in the block that it takes, each live in some of its phases. */
static ashlar_status put_step(ashlar_json_writer *w, ashlar_trainer *trainer) {
    ashlar_train_picture p;
    ashlar_model_buffer *list;
    ASHLAR_TRY(ashlar__trainer_list_buffers(trainer, NULL, 0, &p));
    ASHLAR_HOST_NEW(list, p.count + 1, "no host memory for a list of %zu buffers", p.count);
    const ashlar_status status = ashlar__trainer_list_buffers(trainer, list, p.count, &p);
    ashlar__json_put_key(w, "step");
    ashlar__json_open_object(w);
    ashlar__json_add_uint64(w, "moments", p.need.phases);
    ashlar__json_add_uint64(w, "backward", p.forward_phases);
    ashlar__json_add_uint64(w, "peak_bytes", p.need.bound_bytes);
    put_boxes(w, list, p.count);
    ashlar__json_close_object(w);
    ashlar__host_free(list);
    return status;
}

static void put_way(ashlar_json_writer *w, const char *name, const ashlar_compare_row *row) {
    const bool has_run = row->why_not[0] == '\0';
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "way", name);
    ashlar__json_add_bool(w, "ran", has_run);
    if (!has_run) {
        ashlar__json_add_string(w, "why_not", row->why_not);
        ashlar__json_close_object(w);
        return;
    }
    ashlar__json_put_key(w, "calls");
    ashlar__json_open_row(w);
    for (size_t i = 0; i < row->steps; i++) {
        ashlar__json_put_uint64(w, row->held[i].memory_calls);
    }
    ashlar__json_close_array(w);
    ashlar__json_put_key(w, "ms");
    ashlar__json_open_row(w);
    for (size_t i = 0; i < row->steps; i++) {
        ashlar__json_put_double(w, 1e3 * row->held[i].seconds);
    }
    ashlar__json_close_array(w);
    ashlar__json_add_double(w, "loss", row->loss);
    ashlar__json_add_uint64(w, "taken_peak_bytes", row->taken_peak_bytes);
    ashlar__json_close_object(w);
}

/* ---- writing ---- */

ashlar_status ashlar__train_page_report(ashlar_train_page *page, const ashlar_train_command *c,
                                        ashlar_trainer *trainer, const ashlar_train_report *report,
                                        const ashlar_evaluation *test) {
    ashlar_json_writer *w = &page->document;
    if (c->json == NULL && c->html == NULL) {
        return ASHLAR_OK;
    }
    ashlar__json_writer_init(w, 2);
    ashlar__report_put(w, &c->train, report, test);
    if (c->html != NULL) {
        put_data(w, &c->data);
        ASHLAR_TRY(put_step(w, trainer));
        put_memory(w, page);
        put_losses(w, page);
        return ASHLAR_OK;
    }
    ashlar__json_close_object(w);
    return ashlar__json_writer_save(w, c->json);
}

/* Run all ways, and put their rows. Not for several ranks, all of which would have to take part. */
static void compare(ashlar_json_writer *w, const ashlar_train_command *c, ashlar_device *device,
                    const ashlar_corpus *corpus) {
    ashlar_compare_row rows[ASHLAR_COMPARE_COUNT];
    if (!c->is_quiet) {
        printf("\nThe first steps again, with other ways to take memory, for %s ...\n", c->html);
        fflush(stdout);
    }
    run_all_ways(device, &c->train, corpus, rows);
    ashlar__json_put_key(w, "comparison");
    ashlar__json_open_array(w);
    for (int i = 0; i < ASHLAR_COMPARE_COUNT; i++) {
        put_way(w, way_names[i], &rows[i]);
    }
    ashlar__json_close_array(w);
}

ashlar_status ashlar__train_page_write(ashlar_train_page *page, const ashlar_train_command *c,
                                       ashlar_device *device, const ashlar_corpus *corpus) {
    ashlar_json_writer *w = &page->document;
    if (c->html == NULL) {
        return ASHLAR_OK;
    }
    if (c->train.ranks == NULL) {
        compare(w, c, device, corpus);
    }
    ashlar__json_close_object(w);
    const ashlar_status status = c->json != NULL ? ashlar__json_writer_save(w, c->json) : ASHLAR_OK;
    return status == ASHLAR_OK ? ashlar__page_write(c->html, w) : status;
}
