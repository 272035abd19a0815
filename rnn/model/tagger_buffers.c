#include "rnn/model/tagger_buffers.h"

#define BUFFER_INFO(name, text, shape, tag, first, last) \
    {text, shape, ASHLAR_TAG_##tag, ASHLAR_TAGGER_##first, ASHLAR_TAGGER_##last},
const ashlar_tagger_buffer_info ashlar__tagger_buffers[] = {ASHLAR_TAGGER_BUFFER_MAP(BUFFER_INFO)};

#define MOMENT_TEXT(name, text) text,
const char *const ashlar__tagger_phases[] = {ASHLAR_TAGGER_PHASE_MAP(MOMENT_TEXT)};

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
