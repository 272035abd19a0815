#include "rnn/programs/text.h"

#include <unistd.h>

#include "rnn/data/batcher.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"

/* A terminal obeys control characters: show it none but the end of a line and the tab. */
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

static ashlar_driver_counts counts_since(const ashlar_model *model,
                                         const ashlar_driver_counts *before) {
    ashlar_driver_counts now;
    ashlar_device_get_counts(model->device, &now);
    return (ashlar_driver_counts){
        .query = now.query - before->query,
        .memory = now.memory - before->memory,
        .context = now.context - before->context,
        .order = now.order - before->order,
        .work = now.work - before->work,
        .wait = now.wait - before->wait,
    };
}

/* Without the check a text for a reader that went away would be written to its end. */
static ashlar_status write_drawn(ashlar_text_sampler *sampler, FILE *out, bool is_terminal,
                                 const ashlar_model *model, size_t bytes,
                                 ashlar_text_report *report) {
    ashlar_driver_counts before;
    report->start = read_memory(model);
    ashlar_device_get_counts(model->device, &before);
    const double start_s = ashlar__clock_s();
    for (size_t i = 1; i <= bytes; i++) {
        int32_t symbol;
        const ashlar_status status = ashlar__text_sampler_next(sampler, &symbol);
        if (status != ASHLAR_OK) {
            return status;
        }
        put_symbol(out, symbol, is_terminal);
        if (ferror(out) != 0) {
            return ashlar__fail(ASHLAR_EIO, "the text could not be written; the disk is full, or "
                                            "its reader went away");
        }
        if (i == ASHLAR_TEXT_EARLY_BYTES) {
            report->early = read_memory(model);
        }
    }
    report->bytes = bytes;
    report->seconds = ashlar__clock_s() - start_s;
    report->calls = counts_since(model, &before);
    report->end = read_memory(model);
    return ASHLAR_OK;
}

ashlar_status ashlar__text_write(ashlar_model *model, FILE *out, const ashlar_text_config *config,
                                 ashlar_text_report *report) {
    const bool is_terminal = isatty(fileno(out)) == 1;
    ashlar_text_report measured = {0};
    ashlar_text_sampler *sampler = NULL;
    ashlar_status status = ashlar__text_sampler_create(model, &config->sampler, &sampler);
    if (status == ASHLAR_OK) {
        status = write_prime(sampler, out, is_terminal, config);
    }
    if (status == ASHLAR_OK) {
        status = write_drawn(sampler, out, is_terminal, model, config->bytes, &measured);
    }
    fputc('\n', out);
    ashlar__text_sampler_destroy(sampler);
    if (status == ASHLAR_OK && report != NULL) {
        *report = measured;
    }
    return status;
}
