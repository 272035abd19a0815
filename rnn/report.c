#include "report.h"

#include "blas.h"
#include "file.h"
#include "json.h"

static double mib(uint64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

static void print_memory(FILE *out, const ashlar_train_report *r) {
    const ashlar_stats *stats = &r->stats;
    fprintf(out, "\nWhere memory went (MiB)      at peak   own peak\n");
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_stats *t = &stats->tags[tag];
        if (t->peak_bytes > 0) {
            fprintf(out, "  %-24s %9.2f  %9.2f\n", ashlar_tag_name((ashlar_tag)tag),
                    mib(t->at_peak_bytes), mib(t->peak_bytes));
        }
    }
    fprintf(out, "  %-24s %9.2f\n", "live, all of them", mib(stats->live_peak_bytes));
    fprintf(out, "  %-24s %9.2f  (%.3f x live)\n", "reserved from the device",
            mib(stats->reserved_peak_bytes),
            (double)stats->reserved_peak_bytes / (double)stats->live_peak_bytes);
}

static void print_step_memory(FILE *out, const ashlar_step_memory *m) {
    fprintf(out,
            "\nBeside what outlives it, a step needs %.2f MiB at its peak and has %.2f MiB (%.3f x)",
            mib(m->bound_bytes), mib(m->reserved_bytes),
            (double)m->reserved_bytes / (double)m->bound_bytes);
    if (!m->is_planned) {
        fprintf(out, ",\nwithout a plan.\n");
        return;
    }
    fprintf(out,
            ".\nThe plan, %.2f MiB and %.2f %% above that peak, served %llu blocks of %llu steps and\n"
            "missed %llu.\n",
            mib(m->plan_bytes), 100 * m->gap, (unsigned long long)m->hits,
            (unsigned long long)m->steps_replayed, (unsigned long long)m->misses);
}

static void print_calls(FILE *out, const ashlar_train_report *r) {
    const struct {
        const char *phase;
        const ashlar_phase_calls *calls;
    } rows[] = {
        {"set-up", &r->setup}, {"warm-up", &r->warmup}, {"training, after it", &r->training}};
    fprintf(out, "\nCalls into the driver      memory, streams   copies, launches   host waits\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out, "  %-24s %15llu   %16llu   %10llu\n", rows[i].phase,
                (unsigned long long)rows[i].calls->management,
                (unsigned long long)rows[i].calls->work, (unsigned long long)rows[i].calls->wait);
    }
}

void ashlar_report_print(FILE *out, const ashlar_train_config *config,
                         const ashlar_train_report *r) {
    const ashlar_stats *stats = &r->stats;
    char resumed[32];
    (void)snprintf(resumed, sizeof resumed, " after %zu", r->resumed);
    fprintf(out,
            "\n%zu steps%s on %s (%s:%d), %llu symbols in %.1f s: %.0f per second.\n"
            "The loss went from %.4f to %.4f nats per symbol.\n",
            r->steps, r->resumed > 0 ? resumed : "", r->device.name,
            r->device.kind == ASHLAR_DEVICE_SOFT ? "soft" : "cuda",
            r->device.ordinal, (unsigned long long)r->tokens, r->seconds, r->tokens_per_s,
            r->loss_first, r->loss_last);
    fprintf(
        out,
        "Batches of %zu had %zu different lengths, up to %zu; the warm-up ran one step of %zu,\n"
        "and after it the process asked the driver for memory, streams or facts %llu times (calls\n"
        "of the allocator: %llu).\n",
        config->batch, r->lengths_distinct, r->max_length, r->max_length,
        (unsigned long long)r->training.management, (unsigned long long)stats->driver_calls_sealed);
    fprintf(out, "The %zu parameters %s.\n", r->parameters,
            r->weights_contiguous ? "lie in one contiguous range, every view where it was placed"
                                  : "are NOT where the arena placed them");
    print_memory(out, r);
    print_step_memory(out, &r->step_memory);
    print_calls(out, r);
}

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

static void put_config(ashlar_json_writer *w, const ashlar_train_config *c) {
    ashlar_json_put_key(w, "config");
    ashlar_json_open_object(w);
    put_text(w, "cell", ashlar_rnn_cell_name(c->cell));
    put_uint(w, "layers", c->layers);
    put_uint(w, "hidden", c->hidden);
    put_uint(w, "projection", c->projection);
    put_real(w, "dropout", c->dropout);
    put_uint(w, "embedding", c->embedding);
    put_uint(w, "batch", c->batch);
    put_uint(w, "max_length", c->max_length);
    put_text(w, "optimizer", ashlar_optimizer_name(c->optimizer.kind));
    put_real(w, "learning_rate", c->optimizer.learning_rate);
    put_real(w, "weight_decay", c->optimizer.weight_decay);
    put_real(w, "clip_norm", c->optimizer.clip_norm);
    put_uint(w, "seed", c->seed);
    put_uint(w, "buckets", c->buckets);
    ashlar_json_put_key(w, "plan");
    ashlar_json_put_bool(w, !c->without_plan);
    put_text(w, "blas", ashlar_blas_name());
    put_uint(w, "threads", (uint64_t)ashlar_blas_threads());
    ashlar_json_close_object(w);
}

static void put_training(ashlar_json_writer *w, const ashlar_train_report *r) {
    put_uint(w, "steps", r->steps);
    put_uint(w, "resumed", r->resumed);
    put_uint(w, "steps_skipped", r->steps_skipped);
    put_uint(w, "parameters", r->parameters);
    put_real(w, "loss_first", r->loss_first);
    put_real(w, "loss_last", r->loss_last);
    put_uint(w, "tokens", r->tokens);
    put_real(w, "epochs", r->epochs);
    put_real(w, "seconds", r->seconds);
    put_real(w, "tokens_per_s", r->tokens_per_s);
    put_uint(w, "sequences", r->sequences);
    put_uint(w, "lengths_distinct", r->lengths_distinct);
    put_uint(w, "max_length", r->max_length);
}

static void put_calls(ashlar_json_writer *w, const ashlar_train_report *r) {
    put_uint(w, "driver_calls_setup", r->setup.management);
    put_uint(w, "driver_calls_warmup", r->warmup.management);
    put_uint(w, "driver_calls_after_warmup", r->training.management);
    put_uint(w, "allocator_driver_calls_after_warmup", r->stats.driver_calls_sealed);
    put_uint(w, "work_calls_after_warmup", r->training.work);
    put_uint(w, "wait_calls_after_warmup", r->training.wait);
}

static void put_step_memory(ashlar_json_writer *w, const ashlar_step_memory *m) {
    put_uint(w, "step_reserved_bytes", m->reserved_bytes);
    put_uint(w, "bound_bytes", m->bound_bytes);
    put_uint(w, "plan_count", m->plan_count);
    put_uint(w, "plan_bytes", m->plan_bytes);
    put_real(w, "plan_gap", m->gap);
    put_uint(w, "plan_hits", m->hits);
    put_uint(w, "plan_misses", m->misses);
    put_uint(w, "steps_replayed", m->steps_replayed);
}

static void put_memory(ashlar_json_writer *w, const ashlar_train_report *r) {
    const ashlar_stats *s = &r->stats;
    put_uint(w, "bytes_live_peak", s->live_peak_bytes);
    put_uint(w, "bytes_reserved_peak", s->reserved_peak_bytes);
    put_uint(w, "allocations", s->alloc_count);
    put_uint(w, "allocations_served_without_driver",
             s->served_planned + s->served_cached + s->served_same_stream + s->served_idle);
    ashlar_json_put_key(w, "weights_contiguous");
    ashlar_json_put_bool(w, r->weights_contiguous);
    ashlar_json_put_key(w, "bytes_at_peak_by_tag");
    ashlar_json_open_object(w);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        put_uint(w, ashlar_tag_name((ashlar_tag)tag), s->tags[tag].at_peak_bytes);
    }
    ashlar_json_close_object(w);
}

ashlar_status ashlar_report_write(const char *path, const ashlar_train_config *config,
                                  const ashlar_train_report *report) {
    char device[ASHLAR_DEVICE_NAME_BYTES + 32];
    snprintf(device, sizeof device, "%s:%d",
             report->device.kind == ASHLAR_DEVICE_SOFT ? "soft" : "cuda", report->device.ordinal);
    ashlar_json_writer w;
    ashlar_json_writer_init(&w, 2);
    ashlar_json_open_object(&w);
    put_text(&w, "device", device);
    put_text(&w, "device_name", report->device.name);
    put_training(&w, report);
    put_calls(&w, report);
    put_memory(&w, report);
    put_step_memory(&w, &report->step_memory);
    put_config(&w, config);
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
