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

void ashlar__train_page_end(ashlar_train_page *page) {
    ashlar__host_free(page->steps);
    ashlar__json_writer_finish(&page->document);
}

void ashlar__train_page_note(ashlar_train_page *page, const ashlar_train_progress *now) {
    void *grown = page->steps;
    if (page->command->html != NULL &&
        ashlar__host_grow(&grown, &page->step_capacity, page->step_count, sizeof page->steps[0])) {
        page->steps = grown;
        page->steps[page->step_count++] =
            (ashlar_page_step){now->step, now->loss_step, now->loss, now->held};
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

#define OF(key, field) ASHLAR_MEMBER(ashlar_page_step, key, field)
static void put_steps(ashlar_train_page *page) {
    static const ashlar_member losses[] =
        ASHLAR_MEMBERS(OF("step", step), OF("loss", loss), OF("recent", recent));
    static const ashlar_member memory[] =
        ASHLAR_MEMBERS(OF("step", step), OF("live_bytes", held.live_bytes),
                       OF("reserved_bytes", held.reserved_bytes), OF("seconds", held.seconds));
    ashlar__members_put_table(&page->document, "memory", page->steps, page->step_count,
                              sizeof page->steps[0], memory, COUNT(memory));
    ashlar__members_put_table(&page->document, "losses", page->steps, page->step_count,
                              sizeof page->steps[0], losses, COUNT(losses));
}
#undef OF

/* A buffer as a box: `given` is the phase from which on its place is free, or that of one which
 * comes in its place: that is listed beside it, for a part of the same time. */
typedef struct box {
    char name[96];
    const char *tag; /* of what the buffer would be as a block of its own */
    uint64_t address, bytes, taken, given;
} box;

static box box_of(const ashlar_model_buffer *list, size_t count, const ashlar_model_buffer *b) {
    const ashlar_tag tag = strncmp(b->role, "kept", 4) == 0        ? ASHLAR_TAG_SAVED
                           : strncmp(b->role, "workspace", 9) == 0 ? ASHLAR_TAG_WORKSPACE
                                                                   : ASHLAR_TAG_ACTIVATIONS;
    box made = {"", ashlar_tag_name(tag), b->offset, b->bytes, b->first, b->last + 1};
    (void)snprintf(made.name, sizeof made.name, "%s%s%s", b->operation,
                   b->operation[0] != '\0' ? ": " : "", b->role);
    for (const ashlar_model_buffer *next = list; next < list + count; next++) {
        if (next->offset == b->offset && next->first > b->first && next->first < made.given) {
            made.given = next->first;
        }
    }
    return made;
}

#define OF(field) ASHLAR_MEMBER(box, #field, field)
static const ashlar_member box_members[] =
    ASHLAR_MEMBERS(OF(name), OF(tag), OF(address), OF(bytes), OF(taken), OF(given));

/* The largest step: its buffers in the block that it takes, each live in some of its phases. */
static ashlar_status put_step(ashlar_json_writer *w, ashlar_trainer *trainer) {
    ashlar_train_picture p;
    ashlar_model_buffer *list;
    ASHLAR_TRY(ashlar__trainer_list_buffers(trainer, NULL, 0, &p));
    ASHLAR_HOST_NEW(list, p.count + 1, "no host memory for a list of %zu buffers", p.count);
    box *const boxes = ashlar__host_calloc(p.count + 1, sizeof *boxes);
    ashlar_status status =
        boxes == NULL ? ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for %zu boxes", p.count)
                      : ashlar__trainer_list_buffers(trainer, list, p.count, &p);
    for (size_t i = 0; status == ASHLAR_OK && i < p.count; i++) {
        boxes[i] = box_of(list, p.count, &list[i]);
    }
    if (status == ASHLAR_OK) {
        ashlar__json_put_key(w, "step");
        ashlar__json_open_object(w);
        ashlar__json_add_uint64(w, "moments", p.need.phases);
        ashlar__json_add_uint64(w, "backward", p.forward_phases);
        ashlar__json_add_uint64(w, "peak_bytes", p.need.bound_bytes);
        ashlar__members_put_table(w, "blocks", boxes, p.count, sizeof boxes[0], box_members,
                                  COUNT(box_members));
        ashlar__json_close_object(w);
    }
    ashlar__host_free(boxes);
    ashlar__host_free(list);
    return status;
}

ashlar_status ashlar__train_page_report(ashlar_train_page *page, ashlar_trainer *trainer,
                                        const ashlar_train_report *report,
                                        const ashlar_evaluation *test) {
    const ashlar_train_command *c = page->command;
    ashlar_json_writer *w = &page->document;
    if (c->json == NULL && c->html == NULL) {
        return ASHLAR_OK;
    }
    ashlar__json_writer_init(w, 2);
    ashlar__report_put(w, &c->train, report, test);
    if (c->html != NULL) {
        put_data(w, &c->data);
        put_steps(page);
        return put_step(w, trainer);
    }
    ashlar__json_close_object(w);
    return ashlar__json_writer_save(w, c->json);
}

/* ---- the first steps again, in each way to take memory ---- */

typedef enum compare_way {
    CACHE,     /* the allocator, without a warm-up and without plans */
    WARMUP,    /* the same, after a warm-up with the longest sequences */
    PLAN,      /* a warm-up, and plans of the steps */
    RECOMPUTE, /* the same, and backward recomputes the forward pass in chunks */
    WAY_COUNT
} compare_way;

static const char *const way_names[] = {
    [CACHE] = "cache", [WARMUP] = "warmup", [PLAN] = "plan", [RECOMPUTE] = "recompute"};
ASHLAR_TABLE_IS_FULL(way_names, WAY_COUNT);

enum { COMPARED_STEPS = 6 };

/* The steps of one way. The host waits when it is a step ahead of the device, so their times are
 * the device's, except for those of the first and the last step. */
typedef struct compared {
    size_t steps;
    ashlar_train_held held[COMPARED_STEPS];
} compared;

static ashlar_train_config config_of(const ashlar_train_config *c, compare_way way) {
    const bool warms_up = way >= WARMUP;
    ashlar_train_config config = *c;
    config.steps = c->steps < COMPARED_STEPS ? c->steps : COMPARED_STEPS;
    config.without_warmup = !warms_up;
    config.without_plan = way < PLAN;
    config.pads = warms_up && c->pads;
    config.graphs = warms_up && c->graphs;
    config.recomputes_auto = way == RECOMPUTE;
    config.recompute = 0;
    config.resume_file = config.save_file = NULL;
    config.save_every = 0;
    config.report = NULL;
    return config;
}

static void note_held(void *context, const ashlar_train_progress *now) {
    compared *all = context;
    all->held[all->steps++] = now->held;
}

/* Train from new weights and with an allocator of its own. No file is written. */
static ashlar_status run_way(const ashlar_train_config *config, compare_way way,
                             ashlar_device *device, const ashlar_corpus *corpus, compared *all,
                             ashlar_train_report *report) {
    const ashlar_train_config c = config_of(config, way);
    ashlar_trainer *trainer;
    ASHLAR_FAIL_IF(c.stop != NULL && *c.stop != 0, ASHLAR_EINVAL,
                   "not run: the training was ended");
    ASHLAR_TRY(ashlar__trainer_create(device, corpus, &c, &trainer));
    const ashlar_status status = ashlar__trainer_run(trainer, note_held, all, report);
    ashlar__trainer_destroy(trainer);
    return status;
}

/* Run a way and put its row. If it fails, for want of memory for instance, the row says why. */
static void put_way(ashlar_json_writer *w, const ashlar_train_config *config, compare_way way,
                    ashlar_device *device, const ashlar_corpus *corpus) {
    compared all = {0};
    ashlar_train_report report;
    const bool has_run = run_way(config, way, device, corpus, &all, &report) == ASHLAR_OK;
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "way", way_names[way]);
    ashlar__json_add_bool(w, "ran", has_run);
    if (has_run) {
        ashlar__json_put_key(w, "calls");
        ashlar__json_open_row(w);
        for (size_t i = 0; i < all.steps; i++) {
            ashlar__json_put_uint64(w, all.held[i].memory_calls);
        }
        ashlar__json_close_array(w);
        ashlar__json_put_key(w, "ms");
        ashlar__json_open_row(w);
        for (size_t i = 0; i < all.steps; i++) {
            ashlar__json_put_double(w, 1e3 * all.held[i].seconds);
        }
        ashlar__json_close_array(w);
        ashlar__json_add_double(w, "loss", report.loss_last);
        ashlar__json_add_uint64(w, "taken_peak_bytes", report.stats.reserved_peak_bytes);
    } else {
        ashlar__json_add_string(w, "why_not", ashlar_error_detail());
    }
    ashlar__json_close_object(w);
}

ashlar_status ashlar__train_page_write(ashlar_train_page *page, ashlar_device *device,
                                       const ashlar_corpus *corpus) {
    const ashlar_train_command *c = page->command;
    ashlar_json_writer *w = &page->document;
    if (c->html == NULL) {
        return ASHLAR_OK;
    }
    if (c->train.ranks == NULL) { /* else all ranks would have to take part */
        if (!c->is_quiet) {
            printf("\nThe first steps again, with other ways to take memory, for %s ...\n",
                   c->html);
            fflush(stdout);
        }
        ashlar__json_put_key(w, "comparison");
        ashlar__json_open_array(w);
        for (int i = 0; i < WAY_COUNT; i++) {
            put_way(w, &c->train, (compare_way)i, device, corpus);
        }
        ashlar__json_close_array(w);
    }
    ashlar__json_close_object(w);
    const ashlar_status status = c->json != NULL ? ashlar__json_writer_save(w, c->json) : ASHLAR_OK;
    return status == ASHLAR_OK ? ashlar__page_write(c->html, w) : status;
}
