/* report.c - prints a training's results and costs; puts them into JSON. */
#include "rnn/programs/train_program.h"

#include <stdio.h>

static double mib(uint64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

static const char *kind_of(const ashlar_device_info *device) {
    return device->kind == ASHLAR_DEVICE_SOFT ? "soft" : "cuda";
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

static void print_step_memory(FILE *out, const ashlar_step_memory *m) {
    fprintf(out,
            "\nBeside what outlives it, a step needs %.2f MiB at its peak and has %.2f MiB (%.3f "
            "x)%s",
            mib(m->bound_bytes), mib(m->reserved_bytes),
            (double)m->reserved_bytes / (double)m->bound_bytes,
            m->is_planned ? ".\n" : ",\nwithout a plan.\n");
    if (m->is_planned) {
        fprintf(out,
                "The plan, %.2f MiB and %.2f %% above that peak, served %llu blocks of %llu steps "
                "and\nmissed %llu.\n",
                mib(m->plan_bytes), 100 * m->gap, (unsigned long long)m->hits,
                (unsigned long long)m->steps_replayed, (unsigned long long)m->misses);
    }
    if (m->is_steady) {
        fprintf(out, "Steady: no step takes memory after the warm-up, whatever its length.\n");
    } else {
        fprintf(out, "Not proven steady: %s.\n", m->unsteady_because);
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

static void print_ranks(FILE *out, const ashlar_train_report *report) {
    if (report->rank_count == 0) {
        return;
    }
    fprintf(out, "\nRank   driver calls after warm-up*   seconds   in sums and waits   live peak, "
                 "MiB\n");
    for (size_t i = 0; i < report->rank_count; i++) {
        const ashlar_train_rank *r = &report->ranks[i];
        fprintf(out, "%4zu   %26.0f   %9.1f   %15.1f %%   %14.2f\n", i, r->management_calls,
                r->seconds, r->seconds > 0 ? 100 * r->sum_seconds / r->seconds : 0,
                r->live_peak_bytes / 0x1p20);
    }
    fprintf(out, "* for memory, streams or attributes\n");
}

/* What becomes of what the longest step keeps, if it was to train in a given memory. */
static void print_tiers(FILE *out, const ashlar_model_tiers *t, size_t state_bytes) {
    if (t->least_bytes > 0) {
        fprintf(
            out,
            "Of what the longest step keeps, %.2f MiB stay on the device, %.2f MiB go to the "
            "host, and\n%.2f MiB are computed again; %.2f MiB of moments and masters are on the "
            "host. It should take\n%.2f of its time with enough memory. The least memory is %.0f "
            "MiB.\n",
            mib(t->resident_bytes), mib(t->host_bytes), mib(t->recomputed_bytes), mib(state_bytes),
            t->time, mib(t->least_bytes));
    }
}

void ashlar__report_print(FILE *out, const ashlar_train_report *r, const ashlar_evaluation *test) {
    char resumed[32] = "";
    if (r->resumed > 0) {
        (void)snprintf(resumed, sizeof resumed, " after %zu", r->resumed);
    }
    fprintf(out,
            "\n%zu steps%s on %s (%s:%d), %llu symbols in %.1f s: %.0f per second.\n"
            "The loss went from %.4f to %.4f nats per symbol.\n",
            r->steps, resumed, r->device.name, kind_of(&r->device), r->device.ordinal,
            (unsigned long long)r->tokens, r->seconds, r->tokens_per_s, r->loss_first,
            r->loss_last);
    print_warmup(out, r);
    fprintf(out, "The %zu parameters %s.\n", r->parameters,
            r->weights_contiguous ? "lie in one contiguous range, every view where it was placed"
                                  : "are NOT where the arena placed them");
    print_memory(out, &r->stats);
    print_step_memory(out, &r->step_memory);
    for (const ashlar_train_saving *s = r->savings; s < r->savings + r->savings_count; s++) {
        fprintf(out, "Without --%s %zu it would need %.2f MiB (%.2f x).\n", s->option, s->value,
                mib(s->bytes), (double)s->bytes / (double)r->step_memory.plan_bytes);
    }
    print_tiers(out, &r->tiers, r->state_bytes);
    print_calls(out, r);
    print_graphs(out, r);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar__report_print_growth(out, (ashlar_tag)tag, &r->growth[tag]);
    }
    print_ranks(out, r);
    if (test->records > 0) {
        fprintf(out,
                "\nOn %zu held-out records the loss is %.4f nats per symbol, %.3f bits per byte "
                "(driver calls for\nmemory, streams or attributes: %llu).\n",
                test->records, test->loss, test->bits_per_byte,
                (unsigned long long)test->management_calls);
    }
}

/* ---- JSON ---- */

static void put_training(ashlar_json_writer *w, const ashlar_train_report *r) {
    ASHLAR_JSON_ADD(w, "steps", r->steps);
    ASHLAR_JSON_ADD(w, "resumed", r->resumed);
    ASHLAR_JSON_ADD(w, "steps_skipped", r->steps_skipped);
    ASHLAR_JSON_ADD(w, "parameters", r->parameters);
    ASHLAR_JSON_ADD(w, "loss_first", r->loss_first);
    ASHLAR_JSON_ADD(w, "loss_last", r->loss_last);
    ASHLAR_JSON_ADD(w, "tokens", r->tokens);
    ASHLAR_JSON_ADD(w, "epochs", r->epochs);
    ASHLAR_JSON_ADD(w, "seconds", r->seconds);
    ASHLAR_JSON_ADD(w, "tokens_per_s", r->tokens_per_s);
    ASHLAR_JSON_ADD(w, "sequences", r->sequences);
    ASHLAR_JSON_ADD(w, "lengths_distinct", r->lengths_distinct);
    ASHLAR_JSON_ADD(w, "max_length", r->max_length);
}

static void put_calls(ashlar_json_writer *w, const ashlar_train_report *r) {
    ASHLAR_JSON_ADD(w, "driver_calls_setup", r->setup.management);
    ASHLAR_JSON_ADD(w, "driver_calls_warmup", r->warmup.management);
    ASHLAR_JSON_ADD(w, "driver_calls_after_warmup", r->training.management);
    ASHLAR_JSON_ADD(w, "allocator_driver_calls_after_warmup", r->stats.driver_calls_sealed);
    ASHLAR_JSON_ADD(w, "work_calls_after_warmup", r->training.work);
    ASHLAR_JSON_ADD(w, "wait_calls_after_warmup", r->training.wait);
    ASHLAR_JSON_ADD(w, "driver_calls_per_step", r->calls_per_step);
    ASHLAR_JSON_ADD(w, "steps_launched", r->graphs.launched);
    ASHLAR_JSON_ADD(w, "steps_padded_eager", r->graphs.eager);
    ASHLAR_JSON_ADD(w, "graphs_captured", r->graphs.captured);
    ASHLAR_JSON_ADD(w, "graphs_refused", r->graphs.refused);
    ASHLAR_JSON_ADD(w, "graphs_refused_because", r->graphs.note);
}

static void put_memory(ashlar_json_writer *w, const ashlar_train_report *r) {
    const ashlar_step_memory *m = &r->step_memory;
    ASHLAR_JSON_ADD(w, "live_peak_bytes", r->stats.live_peak_bytes);
    ASHLAR_JSON_ADD(w, "reserved_peak_bytes", r->stats.reserved_peak_bytes);
    ASHLAR_JSON_ADD(w, "allocations", r->stats.alloc_count);
    ASHLAR_JSON_ADD(w, "weights_contiguous", r->weights_contiguous);
    ASHLAR_JSON_ADD(w, "tf32", r->is_tf32);
    ASHLAR_JSON_ADD(w, "step_reserved_bytes", m->reserved_bytes);
    ASHLAR_JSON_ADD(w, "bound_bytes", m->bound_bytes);
    ASHLAR_JSON_ADD(w, "plan_count", m->plan_count);
    ASHLAR_JSON_ADD(w, "plan_bytes", m->plan_bytes);
    ASHLAR_JSON_ADD(w, "plan_gap", m->gap);
    ASHLAR_JSON_ADD(w, "plan_hits", m->hits);
    ASHLAR_JSON_ADD(w, "plan_misses", m->misses);
    ASHLAR_JSON_ADD(w, "steps_replayed", m->steps_replayed);
    ASHLAR_JSON_ADD(w, "steady", m->is_steady);
    ASHLAR_JSON_ADD(w, "unsteady_because", m->is_steady ? "" : m->unsteady_because);
    /* served_idle is not added: such requests ask the driver whether another stream is idle. */
    ASHLAR_JSON_ADD(w, "allocations_served_without_driver",
                    r->stats.served_planned + r->stats.served_cached + r->stats.served_same_stream);
}

static void put_config(ashlar_json_writer *w, const ashlar_train_config *c,
                       const ashlar_train_report *r) {
    ashlar__json_put_key(w, "config");
    ashlar__json_open_object(w);
    ASHLAR_JSON_ADD(w, "cell", ashlar_rnn_cell_name(c->cell));
    ASHLAR_JSON_ADD(w, "projection", c->projection);
    ASHLAR_JSON_ADD(w, "dropout", c->dropout);
    ASHLAR_JSON_ADD(w, "layers", c->layers);
    ASHLAR_JSON_ADD(w, "hidden", c->hidden);
    ASHLAR_JSON_ADD(w, "embedding", c->embedding);
    ASHLAR_JSON_ADD(w, "batch", c->batch);
    ASHLAR_JSON_ADD(w, "max_length", c->max_length);
    ASHLAR_JSON_ADD(w, "stride", c->stride);
    ASHLAR_JSON_ADD(w, "held_out", c->held_out);
    ASHLAR_JSON_ADD(w, "accumulate", c->accumulate);
    ASHLAR_JSON_ADD(w, "bptt", r->bptt);
    ASHLAR_JSON_ADD(w, "recompute", r->recompute);
    ASHLAR_JSON_ADD(w, "dtype", ashlar_dtype_name(c->dtype));
    ASHLAR_JSON_ADD(w, "optimizer", ashlar__train_optimizer_name(c->optimizer.kind));
    ASHLAR_JSON_ADD(w, "learning_rate", c->optimizer.learning_rate);
    ASHLAR_JSON_ADD(w, "weight_decay", c->optimizer.weight_decay);
    ASHLAR_JSON_ADD(w, "clip_norm", c->optimizer.clip_norm);
    ASHLAR_JSON_ADD(w, "seed", c->seed);
    ASHLAR_JSON_ADD(w, "buckets", c->buckets);
    ASHLAR_JSON_ADD(w, "plan", (bool)!c->without_plan);
    ASHLAR_JSON_ADD(w, "pad", ashlar__train_pads(c));
    ASHLAR_JSON_ADD(w, "graphs", c->graphs);
    ASHLAR_JSON_ADD(w, "blas", ashlar_cpu_get_info().products);
    ASHLAR_JSON_ADD(w, "threads", (uint64_t)ashlar_cpu_get_info().threads);
    ashlar__json_close_object(w);
}

static void put_tags(ashlar_json_writer *w, const ashlar_train_report *r) {
    ashlar__json_put_key(w, "bytes_by_tag");
    ashlar__json_open_object(w);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_growth *growth = &r->growth[tag];
        ashlar__json_put_key(w, ashlar_tag_name((ashlar_tag)tag));
        ashlar__json_open_object(w);
        ASHLAR_JSON_ADD(w, "at_peak", r->stats.tags[tag].at_peak_bytes);
        ASHLAR_JSON_ADD(w, "own_peak", r->stats.tags[tag].peak_bytes);
        ASHLAR_JSON_ADD(w, "held", growth->held_bytes);
        ASHLAR_JSON_ADD(w, "held_after_warmup", growth->first_bytes);
        ASHLAR_JSON_ADD(w, "grows", growth->is_growing);
        if (growth->is_growing) {
            ASHLAR_JSON_ADD(w, "grows_since_step", growth->since_step);
            ASHLAR_JSON_ADD(w, "grown_since_then", growth->growth_bytes);
        }
        ashlar__json_close_object(w);
    }
    ashlar__json_close_object(w);
}

static void put_ranks(ashlar_json_writer *w, const ashlar_train_report *report) {
    ashlar__json_put_key(w, "ranks");
    ashlar__json_open_array(w);
    for (size_t i = 0; i < report->rank_count; i++) {
        const ashlar_train_rank *r = &report->ranks[i];
        ashlar__json_open_object(w);
        ASHLAR_JSON_ADD(w, "driver_calls_after_warmup", (uint64_t)r->management_calls);
        ASHLAR_JSON_ADD(w, "seconds", r->seconds);
        ASHLAR_JSON_ADD(w, "sum_seconds", r->sum_seconds);
        ASHLAR_JSON_ADD(w, "live_peak_bytes", (uint64_t)r->live_peak_bytes);
        ashlar__json_close_object(w);
    }
    ashlar__json_close_array(w);
}

void ashlar__report_put_device(ashlar_json_writer *w, const ashlar_device_info *device) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s:%d", kind_of(device), device->ordinal);
    ASHLAR_JSON_ADD(w, "device", name);
    ASHLAR_JSON_ADD(w, "device_name", device->name);
}

void ashlar__report_put(ashlar_json_writer *w, const ashlar_train_config *config,
                        const ashlar_train_report *r, const ashlar_evaluation *test) {
    ashlar__json_open_document(w, "ashlar-train/2");
    ashlar__report_put_device(w, &r->device);
    put_training(w, r);
    put_calls(w, r);
    put_memory(w, r);
    put_tags(w, r);
    ashlar__json_put_key(w, "step_bytes_without");
    ashlar__json_open_object(w);
    for (size_t i = 0; i < r->savings_count; i++) {
        ASHLAR_JSON_ADD(w, r->savings[i].option, r->savings[i].bytes);
    }
    ashlar__json_close_object(w);
    if (r->tiers.least_bytes > 0) {
        ashlar__json_put_key(w, "tiers");
        ashlar__json_open_object(w);
        ASHLAR_JSON_ADD(w, "resident_bytes", r->tiers.resident_bytes);
        ASHLAR_JSON_ADD(w, "host_bytes", r->tiers.host_bytes);
        ASHLAR_JSON_ADD(w, "recomputed_bytes", r->tiers.recomputed_bytes);
        ASHLAR_JSON_ADD(w, "state_bytes", r->state_bytes);
        ASHLAR_JSON_ADD(w, "least_bytes", r->tiers.least_bytes);
        ASHLAR_JSON_ADD(w, "time", r->tiers.time);
        ashlar__json_close_object(w);
    }
    put_ranks(w, r);
    ASHLAR_JSON_ADD(w, "held_out_records", test->records);
    ASHLAR_JSON_ADD(w, "held_out_symbols", test->symbols);
    ASHLAR_JSON_ADD(w, "held_out_loss", test->loss);
    ASHLAR_JSON_ADD(w, "held_out_bits_per_byte", test->bits_per_byte);
    ASHLAR_JSON_ADD(w, "held_out_driver_calls", test->management_calls);
    put_config(w, config, r);
}
