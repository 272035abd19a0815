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
                mib(s->bytes), (double)s->bytes / (double)r->step_bytes);
    }
    print_buckets(out, r);
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

static void put_value(ashlar_json_writer *w, const char *at, ashlar_member_kind kind) {
    const char *const text = kind == ASHLAR_MEMBER_TEXT ? *(const char *const *)at : at;
    switch (kind) {
    case ASHLAR_MEMBER_UINT64:
        ashlar__json_put_uint64(w, *(const uint64_t *)(const void *)at);
        break;
    case ASHLAR_MEMBER_DOUBLE:
        ashlar__json_put_double(w, *(const double *)(const void *)at);
        break;
    case ASHLAR_MEMBER_BOOL:
        ashlar__json_put_bool(w, *(const bool *)at);
        break;
    case ASHLAR_MEMBER_TEXT:
    case ASHLAR_MEMBER_CHARS:
        ashlar__json_put_string(w, text != NULL ? text : "");
        break;
    }
}

void ashlar__members_put(ashlar_json_writer *w, const void *from, const ashlar_member *members,
                         size_t count) {
    for (size_t i = 0; i < count; i++) {
        ashlar__json_put_key(w, members[i].key);
        put_value(w, (const char *)from + members[i].offset, members[i].kind);
    }
}

void ashlar__members_put_table(ashlar_json_writer *w, const char *key, const void *rows,
                               size_t row_count, size_t row_bytes, const ashlar_member *members,
                               size_t count) {
    const char *columns[ASHLAR_MEMBER_COLUMNS];
    for (size_t i = 0; i < count; i++) {
        columns[i] = members[i].key;
    }
    ashlar__json_put_key(w, key);
    ashlar__json_open_table(w, columns, count);
    for (size_t row = 0; row < row_count; row++) {
        ashlar__json_open_row(w);
        for (size_t i = 0; i < count; i++) {
            put_value(w, (const char *)rows + row * row_bytes + members[i].offset, members[i].kind);
        }
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

#define OF(field) ASHLAR_MEMBER(ashlar_train_report, #field, field)
#define AS(key, field) ASHLAR_MEMBER(ashlar_train_report, key, field)
static const ashlar_member report_members[] = ASHLAR_MEMBERS(
    OF(steps), OF(resumed), OF(steps_skipped), OF(parameters), OF(loss_first), OF(loss_last),
    OF(tokens), OF(epochs), OF(seconds), OF(tokens_per_s), OF(sequences), OF(lengths_distinct),
    OF(max_length), AS("driver_calls_setup", setup.management),
    AS("driver_calls_warmup", warmup.management),
    AS("driver_calls_after_warmup", training.management),
    AS("allocator_driver_calls_after_warmup", stats.driver_calls_sealed),
    AS("work_calls_after_warmup", training.work), AS("wait_calls_after_warmup", training.wait),
    AS("driver_calls_per_step", calls_per_step), AS("steps_launched", graphs.launched),
    AS("steps_padded_eager", graphs.eager), AS("graphs_captured", graphs.captured),
    AS("graphs_refused", graphs.refused), AS("graphs_refused_because", graphs.note),
    AS("live_peak_bytes", stats.live_peak_bytes),
    AS("reserved_peak_bytes", stats.reserved_peak_bytes), AS("allocations", stats.alloc_count),
    OF(weights_contiguous), AS("tf32", is_tf32),
    AS("step_reserved_bytes", step_memory.reserved_bytes),
    AS("bound_bytes", step_memory.bound_bytes), AS("plan_count", step_memory.plan_count),
    AS("plan_bytes", step_memory.plan_bytes), AS("plan_gap", step_memory.gap),
    AS("plan_hits", step_memory.hits), AS("plan_misses", step_memory.misses),
    AS("steps_replayed", step_memory.steps_replayed), AS("steady", step_memory.is_steady),
    AS("unsteady_because", step_memory.unsteady_because), OF(step_bytes));

#define TEXT(name, text) text,
static const char *const optimizers[] = {ASHLAR_OPTIMIZER_MAP(TEXT)};

static void put_config(ashlar_json_writer *w, const ashlar_train_config *c,
                       const ashlar_train_report *r) {
    ashlar__json_put_key(w, "config");
    ashlar__json_open_object(w);
    ashlar__train_put_options(w, c, r);
    ashlar__json_add_string(w, "optimizer", optimizers[c->optimizer.kind]);
    ashlar__json_add_double(w, "learning_rate", c->optimizer.learning_rate);
    ashlar__json_add_double(w, "weight_decay", c->optimizer.weight_decay);
    ashlar__json_add_double(w, "clip_norm", c->optimizer.clip_norm);
    ashlar__json_add_uint64(w, "seed", c->seed);
    ashlar__json_add_uint64(w, "buckets", c->buckets);
    ashlar__json_add_bool(w, "plan", !c->without_plan);
    ashlar__json_add_bool(w, "pad", ashlar__train_pads(c));
    ashlar__json_add_bool(w, "graphs", c->graphs);
    ashlar__json_add_string(w, "blas", ashlar_cpu_get_info().products);
    ashlar__json_add_uint64(w, "threads", (uint64_t)ashlar_cpu_get_info().threads);
    ashlar__json_close_object(w);
}

static void put_tags(ashlar_json_writer *w, const ashlar_train_report *r) {
    static const ashlar_member held[] = {
        ASHLAR_MEMBER(ashlar_tag_growth, "held", held_bytes),
        ASHLAR_MEMBER(ashlar_tag_growth, "held_after_warmup", first_bytes),
        ASHLAR_MEMBER(ashlar_tag_growth, "grows", is_growing),
        ASHLAR_MEMBER(ashlar_tag_growth, "grows_since_step", since_step),
        ASHLAR_MEMBER(ashlar_tag_growth, "grown_since_then", growth_bytes)};
    ashlar__json_put_key(w, "bytes_by_tag");
    ashlar__json_open_object(w);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar__json_put_key(w, ashlar_tag_name((ashlar_tag)tag));
        ashlar__json_open_object(w);
        ashlar__json_add_uint64(w, "at_peak", r->stats.tags[tag].at_peak_bytes);
        ashlar__json_add_uint64(w, "own_peak", r->stats.tags[tag].peak_bytes);
        ashlar__members_put(w, &r->growth[tag], held, r->growth[tag].is_growing ? 5 : 3);
        ashlar__json_close_object(w);
    }
    ashlar__json_close_object(w);
}

static void put_buckets(ashlar_json_writer *w, const ashlar_train_report *r) {
    static const ashlar_member members[] = {
        ASHLAR_MEMBER(ashlar_warmup_range, "first_length", first_length),
        ASHLAR_MEMBER(ashlar_warmup_range, "last_length", last_length),
        ASHLAR_MEMBER(ashlar_warmup_range, "plan_bytes", plan_bytes),
        ASHLAR_MEMBER(ashlar_warmup_range, "peak_bytes", peak_bytes),
        ASHLAR_MEMBER(ashlar_warmup_range, "steps", steps)};
    ashlar__json_put_key(w, "buckets");
    ashlar__json_open_array(w);
    for (size_t i = 0; i < r->bucket_count; i++) {
        const ashlar_warmup_range *b = &r->buckets[i];
        ashlar__json_open_object(w);
        ASHLAR_MEMBERS_PUT(w, b, members);
        ashlar__json_add_bool(w, "planned", b->plan_bytes > 0);
        ashlar__json_add_double(w, "driver_calls_per_step", per_step(b->calls, b));
        ashlar__json_add_double(w, "allocator_calls_per_step", per_step(b->own_calls, b));
        ashlar__json_close_object(w);
    }
    ashlar__json_close_array(w);
}

static void put_ranks(ashlar_json_writer *w, const ashlar_train_report *report) {
    ashlar__json_put_key(w, "ranks");
    ashlar__json_open_array(w);
    for (size_t i = 0; i < report->rank_count; i++) {
        const ashlar_train_rank *r = &report->ranks[i];
        ashlar__json_open_object(w);
        ashlar__json_add_uint64(w, "driver_calls_after_warmup", (uint64_t)r->management_calls);
        ashlar__json_add_double(w, "seconds", r->seconds);
        ashlar__json_add_double(w, "sum_seconds", r->sum_seconds);
        ashlar__json_add_uint64(w, "live_peak_bytes", (uint64_t)r->live_peak_bytes);
        ashlar__json_close_object(w);
    }
    ashlar__json_close_array(w);
}

void ashlar__report_put_device(ashlar_json_writer *w, const ashlar_device_info *device) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s:%d", kind_of(device), device->ordinal);
    ashlar__json_add_string(w, "device", name);
    ashlar__json_add_string(w, "device_name", device->name);
}

void ashlar__report_put(ashlar_json_writer *w, const ashlar_train_config *config,
                        const ashlar_train_report *r, const ashlar_evaluation *test) {
    static const ashlar_member held_out[] = {
        ASHLAR_MEMBER(ashlar_evaluation, "held_out_records", records),
        ASHLAR_MEMBER(ashlar_evaluation, "held_out_symbols", symbols),
        ASHLAR_MEMBER(ashlar_evaluation, "held_out_loss", loss),
        ASHLAR_MEMBER(ashlar_evaluation, "held_out_bits_per_byte", bits_per_byte),
        ASHLAR_MEMBER(ashlar_evaluation, "held_out_driver_calls", management_calls)};
    ashlar__json_open_document(w, "ashlar-train/1");
    ashlar__report_put_device(w, &r->device);
    ASHLAR_MEMBERS_PUT(w, r, report_members);
    /* served_idle is not added: such requests ask the driver whether another stream is idle. */
    ashlar__json_add_uint64(w, "allocations_served_without_driver",
                            r->stats.served_planned + r->stats.served_cached +
                                r->stats.served_same_stream);
    put_tags(w, r);
    put_buckets(w, r);
    ashlar__json_put_key(w, "step_bytes_without");
    ashlar__json_open_object(w);
    for (size_t i = 0; i < r->savings_count; i++) {
        ashlar__json_add_uint64(w, r->savings[i].option, r->savings[i].bytes);
    }
    ashlar__json_close_object(w);
    put_ranks(w, r);
    ASHLAR_MEMBERS_PUT(w, test, held_out);
    put_config(w, config, r);
}
