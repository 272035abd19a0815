/* train_page.c - the page of --html: collects a training's losses and buffers, and writes the page
 * and the report. */
#include "rnn/programs/train_program.h"

#include <stdio.h>
#include <string.h>

#include "allocator/base/host.h"
#include "rnn/programs/program.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

void ashlar__train_page_end(ashlar_train_page *page) {
    ashlar__host_free(page->steps);
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

static void put_steps(ashlar_json_writer *w, const ashlar_train_page *page) {
    static const char *const memory[] = {"step", "live_bytes", "reserved_bytes", "seconds"};
    static const char *const losses[] = {"step", "loss", "recent"};
    const ashlar_page_step *const end = page->steps + page->step_count;
    ashlar__json_put_key(w, "memory");
    ashlar__json_open_table(w, memory, COUNT(memory));
    for (const ashlar_page_step *s = page->steps; s < end; s++) {
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, s->step);
        ashlar__json_put_uint64(w, s->held.live_bytes);
        ashlar__json_put_uint64(w, s->held.reserved_bytes);
        ashlar__json_put_double(w, s->held.seconds);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
    ashlar__json_put_key(w, "losses");
    ashlar__json_open_table(w, losses, COUNT(losses));
    for (const ashlar_page_step *s = page->steps; s < end; s++) {
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, s->step);
        ashlar__json_put_double(w, s->loss);
        ashlar__json_put_double(w, s->recent);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

/* A buffer as a box, under the tag that it would have as a block of its own. It is `given` back in
 * the phase from which on its place is free, or that of a buffer which comes in its place: that is
 * listed beside it, for a part of the same time. */
static void put_box(ashlar_json_writer *w, const ashlar_model_buffer *list, size_t count,
                    const ashlar_model_buffer *b) {
    const ashlar_tag tag = strncmp(b->role, "kept", 4) == 0        ? ASHLAR_TAG_SAVED
                           : strncmp(b->role, "workspace", 9) == 0 ? ASHLAR_TAG_WORKSPACE
                                                                   : ASHLAR_TAG_ACTIVATIONS;
    size_t given = b->last + 1;
    char name[96];
    for (const ashlar_model_buffer *next = list; next < list + count; next++) {
        if (next->offset == b->offset && next->first > b->first && next->first < given) {
            given = next->first;
        }
    }
    (void)snprintf(name, sizeof name, "%s%s%s", b->operation, b->operation[0] != '\0' ? ": " : "",
                   b->role);
    ashlar__json_open_row(w);
    ashlar__json_put_string(w, name);
    ashlar__json_put_string(w, ashlar_tag_name(tag));
    ashlar__json_put_uint64(w, b->offset);
    ashlar__json_put_uint64(w, b->bytes);
    ashlar__json_put_uint64(w, b->first);
    ashlar__json_put_uint64(w, given);
    ashlar__json_close_array(w);
}

/* The longest step: its buffers in the block that it takes, each live in some of its phases. Those
 * of a walk without backward are the forward ones. */
static ashlar_status put_step(ashlar_json_writer *w, const ashlar_trainer *trainer) {
    static const char *const columns[] = {"name", "tag", "address", "bytes", "taken", "given"};
    ashlar_model *const model = ashlar__trainer_model(trainer).model;
    const ashlar_model_batch batch = ashlar__trainer_longest(trainer);
    ashlar_model_need need, forward;
    ashlar_model_buffer *list;
    size_t count;
    ASHLAR_TRY(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &batch, &need));
    ASHLAR_TRY(ashlar_model_get_need(model, ASHLAR_WALK_TEST, &batch, &forward));
    ASHLAR_TRY(ashlar_model_list_buffers(model, ASHLAR_WALK_TRAIN, &batch, NULL, 0, &count));
    ASHLAR_HOST_NEW(list, count + 1, "no host memory for a list of %zu buffers", count);
    const ashlar_status status =
        ashlar_model_list_buffers(model, ASHLAR_WALK_TRAIN, &batch, list, count, &count);
    ashlar__json_put_key(w, "step");
    ashlar__json_open_object(w);
    ASHLAR_JSON_ADD(w, "moments", need.phases);
    ASHLAR_JSON_ADD(w, "backward", forward.phases);
    ASHLAR_JSON_ADD(w, "peak_bytes", need.bound_bytes);
    ashlar__json_put_key(w, "blocks");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; status == ASHLAR_OK && i < count; i++) {
        put_box(w, list, count, &list[i]);
    }
    ashlar__json_close_table(w);
    ashlar__json_close_object(w);
    ashlar__host_free(list);
    return status;
}

ashlar_status ashlar__train_page_write(ashlar_train_page *page, ashlar_trainer *trainer,
                                       const ashlar_train_report *report,
                                       const ashlar_evaluation *test) {
    const ashlar_train_command *c = page->command;
    ashlar_status status = ASHLAR_OK;
    ashlar_json_writer w;
    if (c->json == NULL && c->html == NULL) {
        return ASHLAR_OK;
    }
    ashlar__json_writer_init(&w, 2);
    ashlar__report_put(&w, &c->train, report, test);
    if (c->html != NULL) {
        put_data(&w, &c->data);
        put_steps(&w, page);
        status = put_step(&w, trainer);
    }
    ashlar__json_close_object(&w);
    ASHLAR_THEN(status, c->json != NULL ? ashlar__json_writer_save(&w, c->json) : ASHLAR_OK);
    ASHLAR_THEN(status, c->html != NULL ? ashlar__page_write(c->html, &w) : ASHLAR_OK);
    ashlar__json_writer_finish(&w);
    return status;
}
