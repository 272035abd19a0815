/* text.c - writes the text that a model draws, and a JSON report on its time and memory. */
#include "rnn/programs/train_program.h"

#include <unistd.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "rnn/data/batcher.h"

/* The texts being drawn. A single one is written symbol by symbol; several are drawn side by side,
 * so they are kept in memory until all are complete. */
typedef struct drawing {
    const ashlar_text_config *config;
    ashlar_text_sampler *sampler;
    FILE *out;
    bool is_terminal;
    size_t count;     /* B, the number of texts */
    int32_t *symbols; /* [B], each text's symbol of the present step */
    char *all;        /* [B, bytes], the texts; NULL: a single text, which is not kept */
} drawing;

/* Write a symbol. A terminal would obey control characters, so it gets "?" in place of all but line
 * ends and tabs. */
static void put_symbol(const drawing *d, int32_t symbol) {
    const bool is_control = (symbol < ' ' && symbol != '\n' && symbol != '\t') || symbol == 0x7f ||
                            (symbol >= 0x80 && symbol < 0xa0);
    if (symbol == ASHLAR_BATCHER_MARK) {
        fputs("\n%\n", d->out);
    } else {
        fputc(d->is_terminal && is_control ? '?' : symbol, d->out);
    }
}

static ashlar_status put_text(const drawing *d, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        put_symbol(d, (unsigned char)text[i]);
    }
    ASHLAR_FAIL_IF(ferror(d->out) != 0, ASHLAR_EIO,
                   "the text could not be written; the disk is full, or its reader went away");
    return ASHLAR_OK;
}

/* Let the model read the prime. A single text begins with it, so it is written as well. */
static ashlar_status read_prime(const drawing *d) {
    const ashlar_text_config *c = d->config;
    ashlar_status status = d->all == NULL ? put_text(d, c->prime, c->prime_bytes) : ASHLAR_OK;
    for (size_t i = 0; status == ASHLAR_OK && i < c->prime_bytes; i++) {
        status = ashlar__text_sampler_read(d->sampler, (unsigned char)c->prime[i]);
    }
    return status;
}

/* Draw symbol `i` of each text, and write or keep it. Writing to `out` fails if its reader is gone.
 */
static ashlar_status draw_step(const drawing *d, size_t i) {
    ASHLAR_TRY(ashlar__text_sampler_next(d->sampler, d->symbols));
    if (d->all == NULL) {
        const char symbol = (char)d->symbols[0];
        return put_text(d, &symbol, 1);
    }
    for (size_t b = 0; b < d->count; b++) {
        d->all[b * d->config->bytes + i] = (char)d->symbols[b];
    }
    return ASHLAR_OK;
}

static ashlar_status draw(const drawing *d, ashlar_allocator *allocator,
                          ashlar_text_report *report) {
    ashlar_device *const device = ashlar_allocator_device(allocator);
    ashlar_driver_counts before;
    ashlar_allocator_get_stats(allocator, &report->start);
    before = ashlar_device_get_info(device).calls;
    const double start_s = ashlar__clock_s();
    for (size_t i = 0; i < d->config->bytes; i++) {
        ASHLAR_TRY(draw_step(d, i));
    }
    report->bytes = d->config->bytes * d->count;
    report->seconds = ashlar__clock_s() - start_s;
    report->calls = ashlar__phase_calls(device, &before);
    ashlar_allocator_get_stats(allocator, &report->end);
    return ASHLAR_OK;
}

/* Write the texts that were kept, each after the prime. */
static ashlar_status write_kept(const drawing *d) {
    const ashlar_text_config *c = d->config;
    for (size_t b = 0; b < d->count; b++) {
        fputs(b > 0 ? "\n%\n" : "", d->out);
        ASHLAR_TRY(put_text(d, c->prime, c->prime_bytes));
        ASHLAR_TRY(put_text(d, d->all + b * c->bytes, c->bytes));
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

ashlar_status ashlar__text_report_write(const char *path, const ashlar_sampled_model *model,
                                        const ashlar_text_config *config,
                                        const ashlar_text_report *r) {
    ashlar_json_writer w;
    const ashlar_device_info device =
        ashlar_device_get_info(ashlar_allocator_device(model->allocator));
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_document(&w, "ashlar-sample/2");
    ashlar__report_put_device(&w, &device);
    ASHLAR_JSON_ADD(&w, "bytes", r->bytes);
    ASHLAR_JSON_ADD(&w, "seconds", r->seconds);
    ASHLAR_JSON_ADD(&w, "bytes_per_s", (double)r->bytes / r->seconds);
    ASHLAR_JSON_ADD(&w, "live_start_bytes", r->start.live_bytes);
    ASHLAR_JSON_ADD(&w, "reserved_start_bytes", r->start.reserved_bytes);
    ASHLAR_JSON_ADD(&w, "live_end_bytes", r->end.live_bytes);
    ASHLAR_JSON_ADD(&w, "reserved_end_bytes", r->end.reserved_bytes);
    ASHLAR_JSON_ADD(&w, "driver_calls_after_start", r->calls.management);
    ASHLAR_JSON_ADD(&w, "work_calls_after_start", r->calls.work);
    ASHLAR_JSON_ADD(&w, "wait_calls_after_start", r->calls.wait);
    ASHLAR_JSON_ADD(&w, "allocations_after_start", r->end.alloc_count - r->start.alloc_count);
    ashlar__json_put_key(&w, "config");
    ashlar__json_open_object(&w);
    ASHLAR_JSON_ADD(&w, "cell", ashlar_rnn_cell_name(model->config.cell));
    ASHLAR_JSON_ADD(&w, "layers", model->config.layers);
    ASHLAR_JSON_ADD(&w, "hidden", model->config.hidden);
    ASHLAR_JSON_ADD(&w, "projection", model->config.projection);
    ASHLAR_JSON_ADD(&w, "embedding", model->config.embedding);
    ASHLAR_JSON_ADD(&w, "temperature", config->sampler.sampling.temperature);
    ASHLAR_JSON_ADD(&w, "top_k", config->sampler.sampling.top_k);
    ASHLAR_JSON_ADD(&w, "top_p", config->sampler.sampling.top_p);
    ASHLAR_JSON_ADD(&w, "seed", config->sampler.seed);
    ASHLAR_JSON_ADD(&w, "count", config->sampler.count);
    ASHLAR_JSON_ADD(&w, "bf16", config->sampler.is_bf16);
    ASHLAR_JSON_ADD(&w, "prime_bytes", config->prime_bytes);
    ashlar__json_close_object(&w);
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}
