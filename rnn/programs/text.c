/* text.c - writes the text that a model draws, and a JSON report on its time and memory. */
#include "rnn/programs/text.h"

#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "rnn/data/batcher.h"
#include "rnn/programs/report.h"

/* A terminal obeys control characters, so it gets only line ends and tabs. */
static void put_symbol(FILE *out, int32_t symbol, bool is_terminal) {
    const bool is_control = (symbol < ' ' && symbol != '\n' && symbol != '\t') || symbol == 0x7f ||
                            (symbol >= 0x80 && symbol < 0xa0);
    if (symbol == ASHLAR_BATCHER_MARK) {
        fputs("\n%\n", out);
    } else {
        fputc(is_terminal && is_control ? '?' : symbol, out);
    }
}

static ashlar_status write_prime(ashlar_text_sampler *sampler, FILE *out, bool is_terminal,
                                 const ashlar_text_config *config) {
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; status == ASHLAR_OK && i < config->prime_bytes; i++) {
        const int32_t symbol = (unsigned char)config->prime[i];
        put_symbol(out, symbol, is_terminal);
        status = ashlar__text_sampler_read(sampler, symbol);
    }
    return status;
}

static ashlar_text_memory read_memory(const ashlar_model *model) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(model->allocator, &stats);
    return (ashlar_text_memory){
        .live_bytes = stats.live_bytes,
        .reserved_bytes = stats.reserved_bytes,
        .alloc_count = stats.alloc_count,
    };
}

/* Write `bytes` drawn symbols. Stops when writing to `out` fails: its reader may be gone. */
static ashlar_status write_drawn(ashlar_text_sampler *sampler, FILE *out, bool is_terminal,
                                 const ashlar_model *model, size_t bytes,
                                 ashlar_text_report *report) {
    ashlar_driver_counts before;
    report->start = read_memory(model);
    ashlar_device_get_counts(model->device, &before);
    const double start_s = ashlar__clock_s();
    for (size_t i = 1; i <= bytes; i++) {
        int32_t symbol;
        ASHLAR_TRY(ashlar__text_sampler_next(sampler, &symbol));
        put_symbol(out, symbol, is_terminal);
        ASHLAR_FAIL_IF(ferror(out) != 0, ASHLAR_EIO,
                       "the text could not be written; the disk is full, or its reader went away");
        if (i == ASHLAR_TEXT_EARLY_BYTES) {
            report->early = read_memory(model);
        }
    }
    report->bytes = bytes;
    report->seconds = ashlar__clock_s() - start_s;
    report->calls = ashlar__phase_calls(model->device, &before);
    report->end = read_memory(model);
    return ASHLAR_OK;
}

ashlar_status ashlar__text_write(ashlar_model *model, FILE *out, const ashlar_text_config *config,
                                 ashlar_text_report *report) {
    const bool is_terminal = isatty(fileno(out)) == 1;
    ashlar_text_report measured = {0};
    ashlar_text_sampler *sampler = NULL;
    ashlar_status status = ashlar__text_sampler_create(model, &config->sampler, &sampler);
    ASHLAR_THEN(status, write_prime(sampler, out, is_terminal, config));
    ASHLAR_THEN(status, write_drawn(sampler, out, is_terminal, model, config->bytes, &measured));
    fputc('\n', out);
    ashlar__text_sampler_destroy(sampler);
    if (status == ASHLAR_OK && report != NULL) {
        *report = measured;
    }
    return status;
}

/* Put a value at the early point; null if the text was too short to reach it. */
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
    ashlar__json_add_uint64(w, "live_start_bytes", r->start.live_bytes);
    ashlar__json_add_uint64(w, "reserved_start_bytes", r->start.reserved_bytes);
    put_early(w, "live_after_1000_bytes", r, r->early.live_bytes);
    put_early(w, "reserved_after_1000_bytes", r, r->early.reserved_bytes);
    ashlar__json_add_uint64(w, "live_end_bytes", r->end.live_bytes);
    ashlar__json_add_uint64(w, "reserved_end_bytes", r->end.reserved_bytes);
    ashlar__json_add_uint64(w, "allocations_after_start",
                            r->end.alloc_count - r->start.alloc_count);
}

static void put_calls(ashlar_json_writer *w, const ashlar_phase_calls *calls) {
    ashlar__json_add_uint64(w, "driver_calls_after_start", calls->management);
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
    ashlar__json_open_document(&w, "ashlar-sample/1");
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
