/* rnn_results.c - rows of `ashlar-bench rnn`: table, JSON, and targets met or missed. */
#include "bench/rnn/rnn_results.h"

#include "rnn/layer/blas.h"
#include "allocator/base/json.h"
#include "bench/harness/bench_rows.h"
#include "bench/harness/machine.h"

/* ---- table ---- */

void ashlar__rnn_results_print_head(FILE *out) {
    fprintf(out, "%-30s %-16s %9s %9s %9s %9s %8s %8s %9s\n", "case", "subject", "forward",
            "backward", "ms/step", "steps/s", "/ static", "/ onednn", "products");
}

static void print_ratio(FILE *out, double value) {
    if (value > 0) {
        fprintf(out, " %8.3f", value);
    } else {
        fprintf(out, " %8s", "-");
    }
}

void ashlar__rnn_results_print(FILE *out, const ashlar_rnn_results *results, size_t first) {
    for (size_t i = first; i < results->count; i++) {
        const ashlar_rnn_result *r = &results->items[i];
        fprintf(out, "%-30s %-16s %9.3f %9.3f %9.3f %9.1f", r->case_name,
                ashlar__rnn_subject_name(r->subject), r->ms_forward, r->ms_backward, r->ms_step,
                1e3 / r->ms_step);
        print_ratio(out, r->over_static);
        print_ratio(out, r->over_onednn);
        if (r->product_share > 0) {
            fprintf(out, " %7.0f %%\n", 100 * r->product_share);
        } else {
            fprintf(out, " %9s\n", "-");
        }
    }
    fflush(out);
}

/* ---- targets ---- */

static const double static_limit = 1.01, onednn_limit = 1;

static void print_verdict(FILE *out, const ashlar_rnn_result *r, const char *what, double value,
                          double limit) {
    if (value > 0) {
        fprintf(out, "%-8s %-30s %-22s %7.3f  (at most %g)\n", value <= limit ? "met" : "NOT MET",
                r->case_name, what, value, limit);
    }
}

void ashlar__rnn_results_print_targets(FILE *out, const ashlar_rnn_results *results) {
    for (size_t i = 0; i < results->count; i++) {
        const ashlar_rnn_result *r = &results->items[i];
        if (r->subject == ASHLAR_RNN_SUBJECT_ASHLAR) {
            print_verdict(out, r, "ashlar / static_buffer", r->over_static, static_limit);
            print_verdict(out, r, "ashlar / onednn", r->over_onednn, onednn_limit);
        }
    }
}

/* ---- JSON ---- */

static void put_result(ashlar_json_writer *w, const ashlar_rnn_result *r) {
    ashlar__json_open_object(w);
    ashlar__json_add_string(w, "case", r->case_name);
    ashlar__json_add_string(w, "subject", ashlar__rnn_subject_name(r->subject));
    ashlar__json_add_double(w, "ms_forward", r->ms_forward);
    ashlar__bench_put_known(w, "ms_backward", r->is_inference ? 0 : r->ms_backward);
    ashlar__json_add_double(w, "ms_step", r->ms_step);
    ashlar__json_add_double(w, "steps_per_s", 1e3 / r->ms_step);
    ashlar__bench_put_known(w, "over_static", r->over_static);
    ashlar__bench_put_known(w, "over_onednn", r->over_onednn);
    ashlar__bench_put_known(w, "product_share", r->product_share);
    ashlar__json_close_object(w);
}

ashlar_status ashlar__rnn_results_write(const char *path, const ashlar_rnn_results *results) {
    ashlar_json_writer w;
    char processor[ASHLAR_MACHINE_TEXT_BYTES];
    ashlar__machine_processor(processor);
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_object(&w);
    ashlar__json_add_string(&w, "processor", processor);
    ashlar__json_add_string(&w, "products", ashlar__blas_name());
    ashlar__json_put_key(&w, "onednn");
    if (ashlar__onednn_name() != NULL) {
        ashlar__json_put_string(&w, ashlar__onednn_name());
    } else {
        ashlar__json_put_null(&w);
    }
    ashlar__json_add_uint64(&w, "threads", results->threads);
    ashlar__json_put_key(&w, "rows");
    ashlar__json_open_array(&w);
    for (size_t i = 0; i < results->count; i++) {
        put_result(&w, &results->items[i]);
    }
    ashlar__json_close_array(&w);
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}
