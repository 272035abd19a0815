/* compare.c - trains a few steps in each of several ways to take memory, and notes calls and times.
 */
#include "rnn/programs/compare.h"

#include <stdio.h>

#include "allocator/base/error.h"
#include "allocator/device/device_impl.h"
#include "rnn/train/step_record.h"

/* ---- buffers from the driver ---- */

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

/* Waits for the device, as cudaFree() does. */
static ashlar_status give(void *context, ashlar_allocator *allocator, void *ptr) {
    ashlar_device *device = ashlar_allocator_device(allocator);
    (void)context;
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar__ptr_in(ptr)));
    ashlar__device_leave(device);
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(device->driver, "cuMemFree", result);
}

/* ---- one way ---- */

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
    config.graphs = warms_up ? c->graphs : 0;
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

void ashlar__compare(ashlar_device *device, const ashlar_train_config *config,
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
