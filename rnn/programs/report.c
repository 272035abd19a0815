/* report.c - prints a training's results and costs; puts them into JSON. */
#include "rnn/programs/train_program.h"

#include <stdio.h>

#include "rnn/product/blas.h"

static double mib(uint64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

static void print_memory(FILE *out, const ashlar_stats *stats) {
    fprintf(out, "\nWhere memory went (MiB)      at peak    at most\n");
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

void ashlar__report_print_growth(FILE *out, ashlar_tag tag, const ashlar_tag_growth *growth) {
    if (growth->is_growing) {
        fprintf(out,
                "Memory for %s grows from step to step since step %llu, by %llu bytes so far: a "
                "leak.\n",
                ashlar_tag_name(tag), (unsigned long long)growth->since_step,
                (unsigned long long)growth->growth_bytes);
    }
}

static void put_tag(ashlar_json_writer *w, const ashlar_tag_stats *stats,
                    const ashlar_tag_growth *growth) {
    ashlar__json_open_object(w);
    ashlar__json_add_uint64(w, "at_peak", stats->at_peak_bytes);
    ashlar__json_add_uint64(w, "own_peak", stats->peak_bytes);
    ashlar__json_add_uint64(w, "held", growth->held_bytes);
    ashlar__json_add_uint64(w, "held_after_warmup", growth->first_bytes);
    ashlar__json_add_bool(w, "grows", growth->is_growing);
    if (growth->is_growing) {
        ashlar__json_add_uint64(w, "grows_since_step", growth->since_step);
        ashlar__json_add_uint64(w, "grown_since_then", growth->growth_bytes);
    }
    ashlar__json_close_object(w);
}

static void put_tags(ashlar_json_writer *w, const ashlar_stats *stats,
                     const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]) {
    ashlar__json_put_key(w, "bytes_by_tag");
    ashlar__json_open_object(w);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar__json_put_key(w, ashlar_tag_name((ashlar_tag)tag));
        put_tag(w, &stats->tags[tag], &growth[tag]);
    }
    ashlar__json_close_object(w);
}

static void print_plan(FILE *out, const ashlar_step_memory *m) {
    fprintf(
        out,
        "\nBeside what outlives it, a step needs %.2f MiB at its peak and has %.2f MiB (%.3f x)",
        mib(m->bound_bytes), mib(m->reserved_bytes),
        (double)m->reserved_bytes / (double)m->bound_bytes);
    if (!m->is_planned) {
        fprintf(out, ",\nwithout a plan.\n");
        return;
    }
    fprintf(
        out,
        ".\nThe plan, %.2f MiB and %.2f %% above that peak, served %llu blocks of %llu steps and\n"
        "missed %llu.\n",
        mib(m->plan_bytes), 100 * m->gap, (unsigned long long)m->hits,
        (unsigned long long)m->steps_replayed, (unsigned long long)m->misses);
}

static void print_step_memory(FILE *out, const ashlar_step_memory *m) {
    print_plan(out, m);
    if (m->is_steady) {
        fprintf(out, "Steady: no step takes memory after the warm-up, whatever its length.\n");
    } else {
        fprintf(out, "Not proven steady: %s.\n", m->unsteady_because);
    }
}

static double per_step(uint64_t count, const ashlar_warmup_range *b) {
    return b->steps > 0 ? (double)count / (double)b->steps : 0;
}

static void print_buckets(FILE *out, const ashlar_train_report *r) {
    fprintf(out, "\nLengths            plan, MiB   peak, MiB      steps  "
                 "driver calls inside, allocator's\n");
    for (size_t i = 0; i < r->bucket_count; i++) {
        const ashlar_warmup_range *b = &r->buckets[i];
        fprintf(out, "  %5zu to %5zu", b->first_length, b->last_length);
        if (b->plan_bytes > 0) {
            fprintf(out, "  %11.2f %11.2f", mib(b->plan_bytes), mib(b->peak_bytes));
        } else {
            fprintf(out, "  %11s %11s", "none", "");
        }
        fprintf(out, " %10llu  %19.1f  %11.1f\n", (unsigned long long)b->steps,
                per_step(b->calls, b), per_step(b->own_calls, b));
    }
}

static void print_savings(FILE *out, const ashlar_train_report *r) {
    for (size_t i = 0; i < r->savings_count; i++) {
        const ashlar_train_saving *s = &r->savings[i];
        fprintf(out, "Without --%s %zu it would need %.2f MiB (%.2f x).\n", s->option, s->value,
                mib(s->bytes), (double)s->bytes / (double)r->step_bytes);
    }
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

static void print_graphs(FILE *out, const ashlar_train_report *r) {
    const ashlar_graph_report *g = &r->graphs;
    fprintf(out, "A step was %.2f driver calls on average, copies and waits around it included.",
            r->calls_per_step);
    if (g->captured > 0) {
        fprintf(out, "\n%llu steps were one launch each, of %llu graphs.",
                (unsigned long long)g->launched, (unsigned long long)g->captured);
    }
    fputc('\n', out);
    if (g->refused > 0) {
        fprintf(out, "%llu steps were queued call by call; the last reason: %s.\n",
                (unsigned long long)(r->steps - g->launched), g->note);
    }
}

/* Say what the warm-up ran, and how often the driver was asked for memory after it. On a software
 * device only ashlar can ask, so the number is that of the whole process. */
static void print_warmup(FILE *out, const ashlar_train_report *r) {
    const bool is_alone = r->device.kind == ASHLAR_DEVICE_SOFT;
    char warmed[64];
    (void)(r->warmed_count > 1
               ? snprintf(warmed, sizeof warmed, "%zu batches of lengths %zu to %zu",
                          r->warmed_count, r->warmed_length, r->warmed_least)
               : snprintf(warmed, sizeof warmed, "one batch of length %zu", r->warmed_length));
    fprintf(out,
            "Batches of %zu had %zu different lengths, up to %zu; the warm-up ran %s,\n"
            "and after it %s asked the driver for memory, streams or attributes %llu times (calls\n"
            "of the allocator: %llu).\n",
            r->batch, r->lengths_distinct, r->max_length, warmed,
            is_alone ? "the process" : "ashlar", (unsigned long long)r->training.management,
            (unsigned long long)r->stats.driver_calls_sealed);
    if (!is_alone) {
        fprintf(out, "What cuDNN, cuBLAS and the CUDA runtime ask by themselves is not counted: "
                     "`nsys profile\n"
                     "--trace=cuda` shows the calls of the whole process.\n");
    }
    if (r->is_tf32) {
        fprintf(out, "The layers multiplied f32 in TF32: factors had 10 bits of mantissa.\n");
    }
}

void ashlar__report_print(FILE *out, const ashlar_train_report *r) {
    char resumed[32];
    (void)snprintf(resumed, sizeof resumed, " after %zu", r->resumed);
    fprintf(out,
            "\n%zu steps%s on %s (%s:%d), %llu symbols in %.1f s: %.0f per second.\n"
            "The loss went from %.4f to %.4f nats per symbol.\n",
            r->steps, r->resumed > 0 ? resumed : "", r->device.name,
            r->device.kind == ASHLAR_DEVICE_SOFT ? "soft" : "cuda", r->device.ordinal,
            (unsigned long long)r->tokens, r->seconds, r->tokens_per_s, r->loss_first,
            r->loss_last);
    print_warmup(out, r);
    fprintf(out, "The %zu parameters %s.\n", r->parameters,
            r->weights_contiguous ? "lie in one contiguous range, every view where it was placed"
                                  : "are NOT where the arena placed them");
    print_memory(out, &r->stats);
    print_step_memory(out, &r->step_memory);
    print_savings(out, r);
    print_buckets(out, r);
    print_calls(out, r);
    print_graphs(out, r);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar__report_print_growth(out, (ashlar_tag)tag, &r->growth[tag]);
    }
}

static void put_config(ashlar_json_writer *w, const ashlar_train_config *c,
                       const ashlar_train_report *r) {
    ashlar__json_put_key(w, "config");
    ashlar__json_open_object(w);
    ashlar__train_put_options(w, c, r);
    ashlar__json_add_string(w, "optimizer", ashlar_optimizer_name(c->optimizer.kind));
    ashlar__json_add_double(w, "learning_rate", c->optimizer.learning_rate);
    ashlar__json_add_double(w, "weight_decay", c->optimizer.weight_decay);
    ashlar__json_add_double(w, "clip_norm", c->optimizer.clip_norm);
    ashlar__json_add_uint64(w, "seed", c->seed);
    ashlar__json_add_uint64(w, "buckets", c->buckets);
    ashlar__json_add_bool(w, "plan", !c->without_plan);
    ashlar__json_add_bool(w, "pad", ashlar__train_pads(c));
    ashlar__json_add_bool(w, "graphs", c->graphs);
    ashlar__json_add_string(w, "blas", ashlar__blas_name());
    ashlar__json_add_uint64(w, "threads", (uint64_t)ashlar__blas_threads());
    ashlar__json_close_object(w);
}

static void put_training(ashlar_json_writer *w, const ashlar_train_report *r) {
    ashlar__json_add_uint64(w, "steps", r->steps);
    ashlar__json_add_uint64(w, "resumed", r->resumed);
    ashlar__json_add_uint64(w, "steps_skipped", r->steps_skipped);
    ashlar__json_add_uint64(w, "parameters", r->parameters);
    ashlar__json_add_double(w, "loss_first", r->loss_first);
    ashlar__json_add_double(w, "loss_last", r->loss_last);
    ashlar__json_add_uint64(w, "tokens", r->tokens);
    ashlar__json_add_double(w, "epochs", r->epochs);
    ashlar__json_add_double(w, "seconds", r->seconds);
    ashlar__json_add_double(w, "tokens_per_s", r->tokens_per_s);
    ashlar__json_add_uint64(w, "sequences", r->sequences);
    ashlar__json_add_uint64(w, "lengths_distinct", r->lengths_distinct);
    ashlar__json_add_uint64(w, "max_length", r->max_length);
}

static void put_calls(ashlar_json_writer *w, const ashlar_train_report *r) {
    ashlar__json_add_uint64(w, "driver_calls_setup", r->setup.management);
    ashlar__json_add_uint64(w, "driver_calls_warmup", r->warmup.management);
    ashlar__json_add_uint64(w, "driver_calls_after_warmup", r->training.management);
    ashlar__json_add_uint64(w, "allocator_driver_calls_after_warmup", r->stats.driver_calls_sealed);
    ashlar__json_add_uint64(w, "work_calls_after_warmup", r->training.work);
    ashlar__json_add_uint64(w, "wait_calls_after_warmup", r->training.wait);
    ashlar__json_add_double(w, "driver_calls_per_step", r->calls_per_step);
    ashlar__json_add_uint64(w, "steps_launched", r->graphs.launched);
    ashlar__json_add_uint64(w, "steps_padded_eager", r->graphs.eager);
    ashlar__json_add_uint64(w, "graphs_captured", r->graphs.captured);
    ashlar__json_add_uint64(w, "graphs_refused", r->graphs.refused);
    ashlar__json_add_string(w, "graphs_refused_because", r->graphs.note);
}

static void put_step_memory(ashlar_json_writer *w, const ashlar_step_memory *m) {
    ashlar__json_add_uint64(w, "step_reserved_bytes", m->reserved_bytes);
    ashlar__json_add_uint64(w, "bound_bytes", m->bound_bytes);
    ashlar__json_add_uint64(w, "plan_count", m->plan_count);
    ashlar__json_add_uint64(w, "plan_bytes", m->plan_bytes);
    ashlar__json_add_double(w, "plan_gap", m->gap);
    ashlar__json_add_uint64(w, "plan_hits", m->hits);
    ashlar__json_add_uint64(w, "plan_misses", m->misses);
    ashlar__json_add_uint64(w, "steps_replayed", m->steps_replayed);
    ashlar__json_add_bool(w, "steady", m->is_steady);
    ashlar__json_add_string(w, "unsteady_because",
                            m->unsteady_because != NULL ? m->unsteady_because : "");
}

static void put_bucket(ashlar_json_writer *w, const ashlar_warmup_range *b) {
    ashlar__json_open_object(w);
    ashlar__json_add_uint64(w, "first_length", b->first_length);
    ashlar__json_add_uint64(w, "last_length", b->last_length);
    ashlar__json_add_bool(w, "planned", b->plan_bytes > 0);
    ashlar__json_add_uint64(w, "plan_bytes", b->plan_bytes);
    ashlar__json_add_uint64(w, "peak_bytes", b->peak_bytes);
    ashlar__json_add_uint64(w, "steps", b->steps);
    ashlar__json_add_double(w, "driver_calls_per_step", per_step(b->calls, b));
    ashlar__json_add_double(w, "allocator_calls_per_step", per_step(b->own_calls, b));
    ashlar__json_close_object(w);
}

static void put_buckets(ashlar_json_writer *w, const ashlar_train_report *r) {
    ashlar__json_put_key(w, "buckets");
    ashlar__json_open_array(w);
    for (size_t i = 0; i < r->bucket_count; i++) {
        put_bucket(w, &r->buckets[i]);
    }
    ashlar__json_close_array(w);
}

static void put_savings(ashlar_json_writer *w, const ashlar_train_report *r) {
    ashlar__json_add_uint64(w, "step_bytes", r->step_bytes);
    ashlar__json_put_key(w, "step_bytes_without");
    ashlar__json_open_object(w);
    for (size_t i = 0; i < r->savings_count; i++) {
        ashlar__json_add_uint64(w, r->savings[i].option, r->savings[i].bytes);
    }
    ashlar__json_close_object(w);
}

static void put_memory(ashlar_json_writer *w, const ashlar_train_report *r) {
    const ashlar_stats *s = &r->stats;
    ashlar__json_add_uint64(w, "live_peak_bytes", s->live_peak_bytes);
    ashlar__json_add_uint64(w, "reserved_peak_bytes", s->reserved_peak_bytes);
    ashlar__json_add_uint64(w, "allocations", s->alloc_count);
    /* served_idle is not added: such requests ask the driver whether another stream is idle. */
    ashlar__json_add_uint64(w, "allocations_served_without_driver",
                            s->served_planned + s->served_cached + s->served_same_stream);
    ashlar__json_add_bool(w, "weights_contiguous", r->weights_contiguous);
    ashlar__json_add_bool(w, "tf32", r->is_tf32);
    put_tags(w, s, r->growth);
}

void ashlar__report_put_device(ashlar_json_writer *w, const ashlar_device_info *device) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s:%d", device->kind == ASHLAR_DEVICE_SOFT ? "soft" : "cuda",
                   device->ordinal);
    ashlar__json_add_string(w, "device", name);
    ashlar__json_add_string(w, "device_name", device->name);
}

static void put_evaluation(ashlar_json_writer *w, const ashlar_evaluation *test) {
    ashlar__json_add_uint64(w, "held_out_records", test->records);
    ashlar__json_add_uint64(w, "held_out_symbols", test->symbols);
    ashlar__json_add_double(w, "held_out_loss", test->loss);
    ashlar__json_add_double(w, "held_out_bits_per_byte", test->bits_per_byte);
    ashlar__json_add_uint64(w, "held_out_driver_calls", test->management_calls);
}

void ashlar__report_put(ashlar_json_writer *w, const ashlar_train_config *config,
                        const ashlar_train_report *report, const ashlar_evaluation *test) {
    ashlar__json_open_document(w, "ashlar-train/1");
    ashlar__report_put_device(w, &report->device);
    put_training(w, report);
    put_calls(w, report);
    put_memory(w, report);
    put_step_memory(w, &report->step_memory);
    put_buckets(w, report);
    put_savings(w, report);
    ashlar__train_ranks_put(w, report);
    put_evaluation(w, test);
    put_config(w, config, report);
}
