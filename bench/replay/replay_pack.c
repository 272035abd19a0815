/* replay_pack.c - packing a MiniMalloc problem, and what is said about it. */
#include "bench/replay/replay_pack.h"

#include <stdint.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/pack/pack_csv.h"
#include "allocator/trace/picture.h"

typedef struct outcome {
    ashlar_pack_result result;
    double gap; /* share of the bound that the plan is larger by */
    double seconds;
    bool fits;
} outcome;

static bool show_progress(void *user, const ashlar_pack_progress *now) {
    fprintf(user, "\r%s: %zu bytes, bound %zu, %.1f s\033[K", now->strategy, now->plan_bytes,
            now->bound_bytes, 1e-3 * (double)now->elapsed_ms);
    (void)fflush(user);
    return true;
}

static void print_line(FILE *out, const ashlar_replay_pack *c, const ashlar_pack_table *table,
                       const outcome *o) {
    fprintf(out, "%s: %zu buffers, bound %zu, plan %zu bytes, gap %.3f %%, %.3f s (%s)", c->path,
            table->count, o->result.bound_bytes, o->result.plan_bytes, 100 * o->gap, o->seconds,
            o->result.strategy);
    if (c->capacity_bytes > 0) {
        fprintf(out, ", capacity %zu: %s", c->capacity_bytes, o->fits ? "fits" : "does not fit");
    }
    fputc('\n', out);
}

static void put_object(ashlar_json_writer *w, const ashlar_replay_pack *c,
                       const ashlar_pack_table *table, const outcome *o) {
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "problem", c->path);
    ashlar__json_add_uint64(w, "buffers", table->count);
    ashlar__json_add_uint64(w, "plan_bytes", o->result.plan_bytes);
    ashlar__json_add_uint64(w, "bound_bytes", o->result.bound_bytes);
    ashlar__json_add_double(w, "gap", o->gap);
    ashlar__json_put_key(w, "capacity");
    if (c->capacity_bytes > 0) {
        ashlar__json_put_uint64(w, c->capacity_bytes);
    } else {
        ashlar__json_put_null(w);
    }
    ashlar__json_add_bool(w, "fits", o->fits);
    ashlar__json_add_double(w, "seconds", o->seconds);
    ashlar__json_add_string(w, "strategy", o->result.strategy);
    ashlar__json_close_object(w);
}

static ashlar_status pack(const ashlar_replay_pack *c, const ashlar_pack_table *table,
                          size_t *offsets, outcome *o) {
    const ashlar_pack_options options = {
        .capacity_bytes = c->capacity_bytes,
        .time_budget_ms = (uint64_t)c->seconds * 1000,
        .progress = c->progress == NULL ? NULL : show_progress,
        .user = c->progress,
    };
    size_t bytes = 0;
    const double begin = ashlar__clock_s();
    ashlar_status status = ashlar_pack(table->buffers, table->count, &options, offsets, &o->result);
    o->seconds = ashlar__clock_s() - begin;
    if (c->progress != NULL) {
        fputs("\r\033[K", c->progress);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_pack_verify(table->buffers, table->count, 1, offsets, &bytes);
    }
    if (status == ASHLAR_OK && bytes != o->result.plan_bytes) {
        status = ashlar__fail(ASHLAR_EFORMAT, "%s: the plan ends at %zu, not at %zu", c->path,
                              bytes, o->result.plan_bytes);
    }
    if (status == ASHLAR_OK) {
        o->fits = c->capacity_bytes == 0 || bytes <= c->capacity_bytes;
        o->gap = bytes == 0 ? 0 : (double)bytes / (double)o->result.bound_bytes - 1;
    }
    return status;
}

static ashlar_status draw(const ashlar_replay_pack *c, const ashlar_pack_table *table,
                          const size_t *offsets, const outcome *o) {
    ashlar_picture_block *blocks = ashlar__host_calloc(table->count + 1, sizeof *blocks);
    if (blocks == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory to draw its plan", c->path);
    }
    for (size_t i = 0; i < table->count; i++) {
        const ashlar_pack_buffer *buffer = &table->buffers[i];
        blocks[i] = (ashlar_picture_block){.begin = buffer->begin,
                                           .end = buffer->end,
                                           .offset = offsets[i],
                                           .bytes = buffer->bytes};
    }
    const ashlar_picture picture = {
        .title = c->path,
        .time_unit = "time",
        .blocks = blocks,
        .count = table->count,
        .limit_label = c->capacity_bytes > 0 ? "capacity" : "plan",
        .limit_bytes = c->capacity_bytes > 0 ? c->capacity_bytes : o->result.plan_bytes,
    };
    const ashlar_status status = ashlar__picture_write(&picture, c->svg);
    ashlar__host_free(blocks);
    return status;
}

static ashlar_status run(const ashlar_replay_pack *c, const ashlar_pack_table *table,
                         size_t *offsets, FILE *out, ashlar_json_writer *w) {
    outcome o;
    ashlar_status status = pack(c, table, offsets, &o);
    if (status == ASHLAR_OK && c->solution != NULL) {
        status = ashlar__pack_table_write(table, offsets, c->solution);
    }
    if (status == ASHLAR_OK && c->svg != NULL) {
        status = draw(c, table, offsets, &o);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    print_line(out, c, table, &o);
    put_object(w, c, table, &o);
    if (!o.fits) {
        return ashlar__fail(ASHLAR_ENOMEM,
                            "%s: the best plan of %zu s needs %zu bytes, the capacity is %zu%s",
                            c->path, c->seconds, o.result.plan_bytes, c->capacity_bytes,
                            o.result.bound_bytes > c->capacity_bytes || o.result.is_optimal
                                ? "; no plan fits"
                                : "; more --seconds may help");
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__replay_pack_run(const ashlar_replay_pack *command, FILE *out,
                                      ashlar_json_writer *w) {
    ashlar_pack_table table;
    ashlar_status status = ashlar__pack_table_read(command->path, &table);
    if (status != ASHLAR_OK) {
        return status;
    }
    size_t *offsets = ashlar__host_calloc(table.count + 1, sizeof *offsets); /* count may be 0 */
    status = offsets == NULL ? ashlar__fail(ASHLAR_EHOSTMEM, "%s: no host memory for %zu offsets",
                                            command->path, table.count)
                             : run(command, &table, offsets, out, w);
    ashlar__host_free(offsets);
    ashlar__pack_table_finish(&table);
    return status;
}
