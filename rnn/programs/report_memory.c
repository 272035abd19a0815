#include "rnn/programs/report_memory.h"

static double mib(uint64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

void ashlar__report_print_memory(FILE *out, const ashlar_stats *stats) {
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

/* What is held now over what was held after the warm-up; it may be less. */
static int64_t grown_bytes(const ashlar_tag_growth *growth) {
    return (int64_t)(growth->held_bytes - growth->first_bytes);
}

static void print_row(FILE *out, const char *name, uint64_t at_peak, uint64_t held, int64_t grown) {
    fprintf(out, "  %-16s %16llu  %16llu  %16lld\n", name, (unsigned long long)at_peak,
            (unsigned long long)held, (long long)grown);
}

void ashlar__report_print_account(FILE *out, const ashlar_stats *stats,
                                  const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]) {
    uint64_t held = 0;
    int64_t grown = 0;
    fprintf(out, "\nMemory in bytes           at peak  held across steps  "
                 "grown since warm-up\n");
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_growth *g = &growth[tag];
        print_row(out, ashlar_tag_name((ashlar_tag)tag), stats->tags[tag].at_peak_bytes,
                  g->held_bytes, grown_bytes(g));
        held += g->held_bytes;
        grown += grown_bytes(g);
    }
    print_row(out, "all", stats->live_peak_bytes, held, grown);
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

void ashlar__report_put_memory(ashlar_json_writer *w, const ashlar_stats *stats,
                               const ashlar_tag_growth growth[static ASHLAR_TAG_COUNT]) {
    ashlar__json_put_key(w, "bytes_by_tag");
    ashlar__json_open_object(w);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar__json_put_key(w, ashlar_tag_name((ashlar_tag)tag));
        put_tag(w, &stats->tags[tag], &growth[tag]);
    }
    ashlar__json_close_object(w);
}
