/* text_report.c - what writing a text took, as JSON. */
#include "rnn/programs/text.h"

#include "rnn/programs/report.h"

/* A text too short for the early look has none to show. */
static void put_early(ashlar_json_writer *w, const char *key, const ashlar_text_report *r,
                      uint64_t value) {
    ashlar__json_put_key(w, key);
    if (r->bytes >= ASHLAR_TEXT_EARLY_BYTES) {
        ashlar__json_put_uint64(w, value);
    } else {
        ashlar__json_put_null(w);
    }
}

static void put_memory(ashlar_json_writer *w, const ashlar_text_report *r) {
    ashlar__json_add_uint64(w, "bytes_live_start", r->start.live_bytes);
    ashlar__json_add_uint64(w, "bytes_reserved_start", r->start.reserved_bytes);
    put_early(w, "bytes_live_after_1000", r, r->early.live_bytes);
    put_early(w, "bytes_reserved_after_1000", r, r->early.reserved_bytes);
    ashlar__json_add_uint64(w, "bytes_live_end", r->end.live_bytes);
    ashlar__json_add_uint64(w, "bytes_reserved_end", r->end.reserved_bytes);
    ashlar__json_add_uint64(w, "allocations_after_start",
                            r->end.alloc_count - r->start.alloc_count);
}

static void put_calls(ashlar_json_writer *w, const ashlar_driver_counts *calls) {
    ashlar__json_add_uint64(w, "driver_calls_after_start",
                            calls->query + calls->memory + calls->order);
    ashlar__json_add_uint64(w, "work_calls_after_start", calls->work);
    ashlar__json_add_uint64(w, "wait_calls_after_start", calls->wait);
}

static void put_config(ashlar_json_writer *w, const ashlar_model_config *m,
                       const ashlar_text_config *c) {
    ashlar__json_put_key(w, "config");
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "cell", ashlar_rnn_cell_name(m->cell));
    ashlar__json_add_uint64(w, "layers", m->layers);
    ashlar__json_add_uint64(w, "hidden", m->hidden);
    ashlar__json_add_uint64(w, "projection", m->projection);
    ashlar__json_add_uint64(w, "embedding", m->embedding);
    ashlar__json_add_double(w, "temperature", c->sampler.sampling.temperature);
    ashlar__json_add_uint64(w, "top_k", c->sampler.sampling.top_k);
    ashlar__json_add_double(w, "top_p", c->sampler.sampling.top_p);
    ashlar__json_add_uint64(w, "seed", c->sampler.seed);
    ashlar__json_add_uint64(w, "prime_bytes", c->prime_bytes);
    ashlar__json_close_object(w);
}

ashlar_status ashlar__text_report_write(const char *path, const ashlar_model *model,
                                        const ashlar_text_config *config,
                                        const ashlar_text_report *r) {
    ashlar_json_writer w;
    ashlar_device_info device;
    ashlar_device_get_info(model->device, &device);
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_object(&w);
    ashlar__report_put_device(&w, &device);
    ashlar__json_add_uint64(&w, "bytes", r->bytes);
    ashlar__json_add_double(&w, "seconds", r->seconds);
    ashlar__json_add_double(&w, "bytes_per_s", (double)r->bytes / r->seconds);
    put_memory(&w, r);
    put_calls(&w, &r->calls);
    put_config(&w, &model->config, config);
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}
