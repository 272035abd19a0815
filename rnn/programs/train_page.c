/* train_page.c - the page of --html: collects a training's losses and buffers, compares ways to
 * take memory, and writes the page and the report. */
#include "rnn/programs/train_program.h"

#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/programs/program.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

typedef enum ashlar_compare_way {
    ASHLAR_COMPARE_DRIVER,    /* a driver call for each buffer allocated and each one freed */
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
    bool has_run;
    char why_not[160];
    size_t steps;
    uint64_t calls[ASHLAR_COMPARE_STEPS]; /* driver calls for memory in each step */
    double ms[ASHLAR_COMPARE_STEPS];      /* each step's time on the host */
    double loss;                          /* mean of all steps, by tokens */
    uint64_t taken_peak_bytes;            /* the most device memory that was allocated at a time */
} ashlar_compare_row;

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

/* ---- the first steps again, in each way to take memory ---- */

static ashlar_status take(void *context, const ashlar_buffer_request *request,
                          ashlar_allocator *allocator, ashlar_stream stream, void **out) {
    ashlar_device *device = ashlar_allocator_device(allocator);
    cu_ptr ptr = 0;
    (void)context, (void)stream;
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&ptr, request->bytes));
    ashlar__device_leave(device);
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(device->driver, "cuMemAlloc", result);
    }
    *out = ashlar__ptr_out(ptr);
    return ASHLAR_OK;
}

/* Free a buffer by a driver call, which waits for the device, as cudaFree() does. */
static ashlar_status give(void *context, ashlar_allocator *allocator, void *ptr) {
    ashlar_device *device = ashlar_allocator_device(allocator);
    (void)context;
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar__ptr_in(ptr)));
    ashlar__device_leave(device);
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(device->driver, "cuMemFree", result);
}

/* Counts the driver's calls for memory in each step. */
typedef struct call_counter {
    ashlar_device *device;
    ashlar_compare_row *row;
    uint64_t before; /* calls up to the end of the step before */
} call_counter;

/* Called after each step, and once before the first. */
static void queued(void *context, size_t step, const ashlar_stats *stats) {
    call_counter *c = context;
    ashlar_driver_counts now;
    (void)stats;
    ashlar_device_get_counts(c->device, &now);
    if (step > 0 && step <= ASHLAR_COMPARE_STEPS) {
        c->row->calls[step - 1] = now.memory - c->before;
    }
    c->before = now.memory;
}

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

static void fill_in(ashlar_compare_row *row, ashlar_compare_way way,
                    const ashlar_step_record *record, const ashlar_train_report *report) {
    size_t count;
    const ashlar_step_held *held = ashlar__step_record_held(record, &count);
    row->steps = count < ASHLAR_COMPARE_STEPS ? count : ASHLAR_COMPARE_STEPS;
    row->has_run = row->steps > 0;
    for (size_t i = 0; i < row->steps; i++) {
        row->ms[i] = 1e3 * held[i].seconds;
    }
    row->loss = report->loss_last;
    row->taken_peak_bytes = report->stats.reserved_peak_bytes;
    if (way == ASHLAR_COMPARE_DRIVER) {
        row->taken_peak_bytes += ashlar__step_record_largest(record)->peak_bytes;
    }
}

static ashlar_status run_way(ashlar_device *device, const ashlar_train_config *config,
                             ashlar_compare_task_fn make_task, void *context,
                             ashlar_train_report *report) {
    ashlar_task *task;
    ashlar_trainer *trainer;
    ASHLAR_TRY(make_task(context, config, &task));
    ASHLAR_TRY(ashlar__trainer_create(device, task, config, &trainer));
    const ashlar_status status = ashlar__trainer_run(trainer, NULL, NULL, report);
    ashlar__trainer_destroy(trainer);
    return status;
}

static ashlar_status compare_way(ashlar_device *device, const ashlar_train_config *config,
                                 ashlar_compare_way way, ashlar_compare_task_fn make_task,
                                 void *context, ashlar_compare_row *row) {
    ashlar_step_record *record;
    ashlar_train_report report;
    call_counter counter = {.device = device, .row = row};
    const bool is_driver = way == ASHLAR_COMPARE_DRIVER;
    const ashlar_buffer_hooks hooks = {.take = is_driver ? take : NULL,
                                       .give = is_driver ? give : NULL,
                                       .queued = queued,
                                       .context = &counter};
    ashlar_train_config c = config_of(config, way);
    ASHLAR_TRY(ashlar__step_record_create(&hooks, &record));
    c.hooks = ashlar__step_record_hooks(record);
    const ashlar_status status = run_way(device, &c, make_task, context, &report);
    if (status == ASHLAR_OK) {
        fill_in(row, way, record, &report);
    }
    ashlar__step_record_destroy(record);
    return status;
}

/* Run the first steps of `config` in each way, from new weights and with an allocator of its own.
 * No file is written. If a way fails, for want of memory for instance, its row says why. */
static void run_all_ways(ashlar_device *device, const ashlar_train_config *config,
                         ashlar_compare_task_fn make_task, void *context,
                         ashlar_compare_row rows[static ASHLAR_COMPARE_COUNT]) {
    for (int way = 0; way < ASHLAR_COMPARE_COUNT; way++) {
        rows[way] = (ashlar_compare_row){0};
        if (config->stop != NULL && *config->stop != 0) {
            (void)snprintf(rows[way].why_not, sizeof rows[way].why_not,
                           "not run: the training was ended");
        } else if (compare_way(device, config, (ashlar_compare_way)way, make_task, context,
                               &rows[way]) != ASHLAR_OK) {
            (void)snprintf(rows[way].why_not, sizeof rows[way].why_not, "%s",
                           ashlar_error_detail());
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

/* Run all ways, and put their rows. Not for several ranks, all of which would have to take part. */
static void compare(ashlar_json_writer *w, const ashlar_train_command *c, ashlar_device *device,
                    ashlar_compare_task_fn make_task, void *context) {
    ashlar_compare_row rows[ASHLAR_COMPARE_COUNT];
    const int count = c->is_tagger ? ASHLAR_COMPARE_RECOMPUTE /* a tagger cannot recompute */
                                   : ASHLAR_COMPARE_COUNT;
    if (!c->is_quiet) {
        printf("\nThe first steps again, with other ways to take memory, for %s ...\n", c->html);
        fflush(stdout);
    }
    run_all_ways(device, &c->train, make_task, context, rows);
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
