/* text_report.c - what writing a text took, as JSON. */
#include "text.h"

#include "file.h"
#include "json.h"

static void put_uint(ashlar_json_writer *w, const char *key, uint64_t value) {
    ashlar_json_put_key(w, key);
    ashlar_json_put_uint64(w, value);
}

static void put_real(ashlar_json_writer *w, const char *key, double value) {
    ashlar_json_put_key(w, key);
    ashlar_json_put_double(w, value);
}

static void put_text(ashlar_json_writer *w, const char *key, const char *text) {
    ashlar_json_put_key(w, key);
    ashlar_json_put_string(w, text);
}

static void put_device(ashlar_json_writer *w, const ashlar_device *device) {
    ashlar_device_info info;
    char name[32];
    ashlar_device_info_read(device, &info);
    (void)snprintf(name, sizeof name, "%s:%d", info.kind == ASHLAR_DEVICE_SOFT ? "soft" : "cuda",
                   info.ordinal);
    put_text(w, "device", name);
    put_text(w, "device_name", info.name);
}

/* A text too short for the early look has none to show. */
static void put_early(ashlar_json_writer *w, const char *key, const ashlar_text_report *r,
                      uint64_t value) {
    ashlar_json_put_key(w, key);
    if (r->bytes >= ASHLAR_TEXT_EARLY_BYTES) {
        ashlar_json_put_uint64(w, value);
    } else {
        ashlar_json_put_null(w);
    }
}

static void put_memory(ashlar_json_writer *w, const ashlar_text_report *r) {
    put_uint(w, "bytes_live_start", r->start.live_bytes);
    put_uint(w, "bytes_reserved_start", r->start.reserved_bytes);
    put_early(w, "bytes_live_after_1000", r, r->early.live_bytes);
    put_early(w, "bytes_reserved_after_1000", r, r->early.reserved_bytes);
    put_uint(w, "bytes_live_end", r->end.live_bytes);
    put_uint(w, "bytes_reserved_end", r->end.reserved_bytes);
    put_uint(w, "allocations_after_start", r->end.alloc_count - r->start.alloc_count);
}

static void put_calls(ashlar_json_writer *w, const ashlar_driver_counts *calls) {
    put_uint(w, "driver_calls_after_start", calls->query + calls->memory + calls->order);
    put_uint(w, "work_calls_after_start", calls->work);
    put_uint(w, "wait_calls_after_start", calls->wait);
}

static void put_config(ashlar_json_writer *w, const ashlar_model_config *m,
                       const ashlar_text_config *c) {
    ashlar_json_put_key(w, "config");
    ashlar_json_open_object(w);
    put_text(w, "cell", ashlar_rnn_cell_name(m->cell));
    put_uint(w, "layers", m->layers);
    put_uint(w, "hidden", m->hidden);
    put_uint(w, "projection", m->projection);
    put_uint(w, "embedding", m->embedding);
    put_real(w, "temperature", c->sampler.choice.temperature);
    put_uint(w, "top_k", c->sampler.choice.top_k);
    put_real(w, "top_p", c->sampler.choice.top_p);
    put_uint(w, "seed", c->sampler.seed);
    put_uint(w, "prime_bytes", c->prime_bytes);
    ashlar_json_close_object(w);
}

ashlar_status ashlar_text_report_write(const char *path, const ashlar_model *model,
                                       const ashlar_text_config *config,
                                       const ashlar_text_report *r) {
    ashlar_json_writer w;
    ashlar_json_writer_init(&w, 2);
    ashlar_json_open_object(&w);
    put_device(&w, model->device);
    put_uint(&w, "bytes", r->bytes);
    put_real(&w, "seconds", r->seconds);
    put_real(&w, "bytes_per_s", (double)r->bytes / r->seconds);
    put_memory(&w, r);
    put_calls(&w, &r->calls);
    put_config(&w, &model->config, config);
    ashlar_json_close_object(&w);
    const char *text = NULL;
    size_t bytes = 0;
    ashlar_status status = ashlar_json_writer_text(&w, &text, &bytes);
    if (status == ASHLAR_OK) {
        status = ashlar_file_write_line(path, text, bytes);
    }
    ashlar_json_writer_finish(&w);
    return status;
}
