#include "rnn/model/tagger_buffers.h"

#define BUFFER_INFO(name, text, shape, tag, first, last) \
    {text, shape, ASHLAR_TAG_##tag, ASHLAR_TAGGER_##first, ASHLAR_TAGGER_##last},
const ashlar_tagger_buffer_info ashlar_tagger_buffers[] = {ASHLAR_TAGGER_BUFFER_MAP(BUFFER_INFO)};

#define MOMENT_TEXT(name, text) text,
const char *const ashlar_tagger_moments[] = {ASHLAR_TAGGER_MOMENT_MAP(MOMENT_TEXT)};

ashlar_tagger_moment ashlar_tagger_last(const ashlar_tagger_bytes *bytes,
                                        ashlar_tagger_buffer buffer) {
    if (bytes->keeps_outputs && buffer == ASHLAR_TAGGER_BUFFER_SPELL_OUTPUTS) {
        return ASHLAR_TAGGER_SPELL_WEIGHTS;
    }
    if (bytes->keeps_outputs && buffer == ASHLAR_TAGGER_BUFFER_OUTPUTS) {
        return ASHLAR_TAGGER_READ_WEIGHTS;
    }
    return ashlar_tagger_buffers[buffer].last;
}

size_t ashlar_tagger_bytes_at(const ashlar_tagger_bytes *bytes, ashlar_tagger_moment moment) {
    size_t sum = 0;
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_moment last = ashlar_tagger_last(bytes, (ashlar_tagger_buffer)i);
        sum += ashlar_tagger_buffers[i].first <= moment && moment <= last ? bytes->of[i] : 0;
    }
    return sum;
}

ashlar_tagger_moment ashlar_tagger_peak(const ashlar_tagger_bytes *bytes) {
    ashlar_tagger_moment peak = 0;
    for (int i = 1; i < ASHLAR_TAGGER_MOMENT_COUNT; i++) {
        const ashlar_tagger_moment moment = (ashlar_tagger_moment)i;
        peak = ashlar_tagger_bytes_at(bytes, moment) > ashlar_tagger_bytes_at(bytes, peak) ? moment
                                                                                           : peak;
    }
    return peak;
}
