/* tagger_memory.c - the table of the buffers of a tagger's step, its sums, the printed estimate. */

#include "allocator/base/error.h"
#include "rnn/model/tagger.h"

#define BUFFER_INFO(name, text, shape, tag, first, last) \
    {text, ASHLAR_TAG_##tag, ASHLAR_TAGGER_##first, ASHLAR_TAGGER_##last},
const ashlar_tagger_buffer_info ashlar__tagger_buffers[] = {ASHLAR_TAGGER_BUFFER_MAP(BUFFER_INFO)};

ashlar_tagger_phase ashlar__tagger_last_phase(const ashlar_tagger_bytes *bytes,
                                              ashlar_tagger_buffer buffer) {
    if (bytes->keeps_outputs && buffer == ASHLAR_TAGGER_BUFFER_CHAR_OUTPUTS) {
        return ASHLAR_TAGGER_CHAR_WEIGHTS;
    }
    if (bytes->keeps_outputs && buffer == ASHLAR_TAGGER_BUFFER_WORD_OUTPUTS) {
        return ASHLAR_TAGGER_WORD_WEIGHTS;
    }
    return ashlar__tagger_buffers[buffer].last;
}

size_t ashlar__tagger_bytes_at(const ashlar_tagger_bytes *bytes, ashlar_tagger_phase phase) {
    size_t sum = 0;
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_phase last = ashlar__tagger_last_phase(bytes, (ashlar_tagger_buffer)i);
        sum += ashlar__tagger_buffers[i].first <= phase && phase <= last ? bytes->of[i] : 0;
    }
    return sum;
}

ashlar_tagger_phase ashlar__tagger_peak_phase(const ashlar_tagger_bytes *bytes) {
    ashlar_tagger_phase peak = 0;
    for (int i = 1; i < ASHLAR_TAGGER_PHASE_COUNT; i++) {
        const ashlar_tagger_phase phase = (ashlar_tagger_phase)i;
        peak = ashlar__tagger_bytes_at(bytes, phase) > ashlar__tagger_bytes_at(bytes, peak) ? phase
                                                                                            : peak;
    }
    return peak;
}

ashlar_status ashlar__tagger_estimate_make(const ashlar_tagger *tagger,
                                           const ashlar_tagger_shape *shape, size_t batches,
                                           ashlar_tagger_estimate *out) {
    ashlar_tagger_estimate made = {.tagger = tagger, .shape = *shape};
    ASHLAR_TRY(ashlar__tagger_sizes(tagger, shape, &made.buffers));
    ASHLAR_TRY(ashlar__tagger_batch_bytes(shape, &made.batches_bytes));
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const ashlar_region region = (ashlar_region)i;
        if ((ashlar_arena_regions(tagger->arena) & ASHLAR_REGION_BIT(i)) != 0) {
            made.weights_bytes += ashlar_arena_region_bytes(tagger->arena, region);
        }
    }
    made.batches_bytes *= batches;
    made.peak = ashlar__tagger_peak_phase(&made.buffers);
    made.step_bytes = ashlar__tagger_bytes_at(&made.buffers, made.peak);
    made.needed_bytes = made.weights_bytes + made.batches_bytes + made.step_bytes;
    *out = made;
    return ASHLAR_OK;
}

static double mib(uint64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

static void print_row(FILE *out, const char *text, uint64_t bytes, char mark) {
    fprintf(out, "%c %-34s %9.2f", mark, text, mib(bytes));
}

static void print_regions(FILE *out, const ashlar_tagger_estimate *a) {
    for (int i = 0; i < ASHLAR_REGION_COUNT; i++) {
        const ashlar_region region = (ashlar_region)i;
        const size_t bytes = ashlar_arena_region_bytes(a->tagger->arena, region);
        if ((ashlar_arena_regions(a->tagger->arena) & ASHLAR_REGION_BIT(i)) != 0 && bytes > 0) {
            print_row(out, ashlar_region_text(region), bytes, '*');
            fprintf(out, "  always\n");
        }
    }
}

static const char *phase_name(ashlar_tagger_phase phase) {
#define PHASE_NAME(name, text) #name,
    static const char *const names[] = {ASHLAR_TAGGER_PHASE_MAP(PHASE_NAME)};
    return names[phase];
}

static void print_buffers(FILE *out, const ashlar_tagger_estimate *a) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_buffer_info *b = &ashlar__tagger_buffers[i];
        if (a->buffers.of[i] == 0) {
            continue;
        }
        const ashlar_tagger_phase last =
            ashlar__tagger_last_phase(&a->buffers, (ashlar_tagger_buffer)i);
        const bool is_at_peak = b->first <= a->peak && a->peak <= last;
        print_row(out, b->text, a->buffers.of[i], is_at_peak ? '*' : ' ');
        fprintf(out, "  %s%s%s\n", phase_name(b->first), b->first == last ? "" : " to ",
                b->first == last ? "" : phase_name(last));
    }
}

void ashlar__tagger_estimate_print(FILE *out, const ashlar_tagger_estimate *a,
                                   uint64_t measured_bytes) {
    fprintf(out, "\n  what the tagger needs                    MiB  live\n");
    print_regions(out, a);
    print_row(out, "batches", a->batches_bytes, '*');
    fprintf(out, "  always\n");
    print_buffers(out, a);
    fprintf(out, "\nNeeded: %.2f MiB always and %.2f MiB at %s, the peak (*): %.2f MiB.\n",
            mib(a->weights_bytes + a->batches_bytes), mib(a->step_bytes), phase_name(a->peak),
            mib(a->needed_bytes));
    if (measured_bytes > 0) {
        fprintf(out, "Measured: %.2f MiB from the device, %.3f times that.\n", mib(measured_bytes),
                (double)measured_bytes / (double)a->needed_bytes);
    }
}
