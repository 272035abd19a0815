/* text.c - writes the text that a model draws, and a JSON report on its time and memory. */
#include "rnn/programs/train_program.h"

#include <unistd.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "rnn/data/batcher.h"

/* Write a symbol. A terminal would obey control characters, so it gets "?" in place of all but line
 * ends and tabs. */
static void put_symbol(FILE *out, int32_t symbol, bool is_terminal) {
    const bool is_control = (symbol < ' ' && symbol != '\n' && symbol != '\t') || symbol == 0x7f ||
                            (symbol >= 0x80 && symbol < 0xa0);
    if (symbol == ASHLAR_BATCHER_MARK) {
        fputs("\n%\n", out);
    } else {
        fputc(is_terminal && is_control ? '?' : symbol, out);
    }
}

static ashlar_text_memory read_memory(ashlar_allocator *allocator) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    return (ashlar_text_memory){
        .live_bytes = stats.live_bytes,
        .reserved_bytes = stats.reserved_bytes,
        .alloc_count = stats.alloc_count,
    };
}

/* The texts being drawn. A single one is written symbol by symbol; several are drawn side by side,
 * so they are kept in memory until all are complete. */
typedef struct drawing {
    const ashlar_text_config *config;
    ashlar_text_sampler *sampler;
    FILE *out;
    bool is_terminal;
    size_t count;       /* B, the number of texts */
    int32_t *symbols;   /* [B], each text's symbol of the present step */
    unsigned char *all; /* [B, bytes], the texts; NULL: a single text, which is not kept */
} drawing;

static ashlar_status check_out(FILE *out) {
    ASHLAR_FAIL_IF(ferror(out) != 0, ASHLAR_EIO,
                   "the text could not be written; the disk is full, or its reader went away");
    return ASHLAR_OK;
}

/* Let the model read the prime. A single text begins with it, so it is written as well. */
static ashlar_status read_prime(const drawing *d) {
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; status == ASHLAR_OK && i < d->config->prime_bytes; i++) {
        const int32_t symbol = (unsigned char)d->config->prime[i];
        if (d->all == NULL) {
            put_symbol(d->out, symbol, d->is_terminal);
        }
        status = ashlar__text_sampler_read(d->sampler, symbol);
    }
    return status;
}

/* Draw symbol `i` of each text, and write or keep it. Writing to `out` fails if its reader is gone.
 */
static ashlar_status draw_step(const drawing *d, size_t i) {
    ASHLAR_TRY(ashlar__text_sampler_next(d->sampler, d->symbols));
    if (d->all == NULL) {
        put_symbol(d->out, d->symbols[0], d->is_terminal);
        return check_out(d->out);
    }
    for (size_t b = 0; b < d->count; b++) {
        d->all[b * d->config->bytes + i] = (unsigned char)d->symbols[b];
    }
    return ASHLAR_OK;
}

static ashlar_status draw(const drawing *d, ashlar_allocator *allocator,
                          ashlar_text_report *report) {
    ashlar_device *const device = ashlar_allocator_device(allocator);
    ashlar_driver_counts before;
    bool is_early = true;
    report->start = read_memory(allocator);
    ashlar_device_get_counts(device, &before);
    const double start_s = ashlar__clock_s();
    for (size_t i = 0; i < d->config->bytes; i++) {
        ASHLAR_TRY(draw_step(d, i));
        if (is_early && (i + 1) * d->count >= ASHLAR_TEXT_EARLY_BYTES) {
            report->early = read_memory(allocator);
            is_early = false;
        }
    }
    report->bytes = d->config->bytes * d->count;
    report->seconds = ashlar__clock_s() - start_s;
    report->calls = ashlar__phase_calls(device, &before);
    report->end = read_memory(allocator);
    return ASHLAR_OK;
}

/* Write the texts that were kept, each after the prime. */
static ashlar_status write_kept(const drawing *d) {
    const ashlar_text_config *c = d->config;
    for (size_t b = 0; b < d->count; b++) {
        fputs(b > 0 ? "\n%\n" : "", d->out);
        for (size_t i = 0; i < c->prime_bytes; i++) {
            put_symbol(d->out, (unsigned char)c->prime[i], d->is_terminal);
        }
        for (size_t i = 0; i < c->bytes; i++) {
            put_symbol(d->out, d->all[b * c->bytes + i], d->is_terminal);
        }
        ASHLAR_TRY(check_out(d->out));
    }
    return ASHLAR_OK;
}

static ashlar_status open_drawing(drawing *d, const ashlar_sampled_model *model) {
    size_t all = 0;
    ASHLAR_FAIL_IF(d->count > 1 && !ashlar__mul(d->count, d->config->bytes, &all), ASHLAR_EOVERFLOW,
                   "%zu texts of %zu bytes are too many to address", d->count, d->config->bytes);
    ASHLAR_TRY(ashlar__text_sampler_create(model, &d->config->sampler, &d->sampler));
    ASHLAR_HOST_NEW(d->symbols, d->count, "no host memory for %zu texts", d->count);
    if (d->count > 1) {
        ASHLAR_HOST_NEW(d->all, all, "no host memory for %zu texts of %zu bytes", d->count,
                        d->config->bytes);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__text_write(const ashlar_sampled_model *model, FILE *out,
                                 const ashlar_text_config *config, ashlar_text_report *report) {
    ashlar_text_report measured = {0};
    drawing d = {.config = config,
                 .out = out,
                 .is_terminal = isatty(fileno(out)) == 1,
                 .count = config->sampler.count == 0 ? 1 : config->sampler.count};
    ashlar_status status = open_drawing(&d, model);
    ASHLAR_THEN(status, read_prime(&d));
    ASHLAR_THEN(status, draw(&d, model->allocator, &measured));
    ASHLAR_THEN(status, d.all == NULL ? ASHLAR_OK : write_kept(&d));
    fputc('\n', out);
    ashlar__text_sampler_destroy(d.sampler);
    ashlar__host_free(d.symbols);
    ashlar__host_free(d.all);
    if (status == ASHLAR_OK && report != NULL) {
        *report = measured;
    }
    return status;
}

/* Put a value that was read after ASHLAR_TEXT_EARLY_BYTES bytes; null if the text is shorter. */
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

static void put_config(ashlar_json_writer *w, const ashlar_text_model_config *m,
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
    ashlar__json_add_uint64(w, "count", c->sampler.count);
    ashlar__json_add_bool(w, "bf16", c->sampler.is_bf16);
    ashlar__json_add_uint64(w, "prime_bytes", c->prime_bytes);
    ashlar__json_close_object(w);
}

ashlar_status ashlar__text_report_write(const char *path, const ashlar_sampled_model *model,
                                        const ashlar_text_config *config,
                                        const ashlar_text_report *r) {
    ashlar_json_writer w;
    ashlar_device_info device;
    ashlar_device_get_info(ashlar_allocator_device(model->allocator), &device);
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
