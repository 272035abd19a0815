/* torch_settings.c - reads PyTorch's settings of its allocator, PYTORCH_CUDA_ALLOC_CONF, which
 * snapshots record too. */
#include <stdio.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"
#include "bench/replay/torch.h"

#define MIB (UINT64_C(1) << 20)

/* How keys without a say in where blocks lie begin. */
static const char *const other_keys[] = {
    "backend", "release_lock_on_",        "graph_capture_record_stream_reuse",
    "pinned_", "throw_on_cudamalloc_oom", "expandable_segments_"};

static bool parse_mib(ashlar_piece value, uint64_t least, uint64_t *out) {
    uint64_t mib = 0;
    if (!ashlar__parse_count(value, &mib) || mib < least || mib >= UINT64_C(1) << 40) {
        return false;
    }
    *out = mib * MIB;
    return true;
}

static bool parse_share(ashlar_piece value, double *out) {
    return ashlar__parse_real(value, out) && *out >= 0 && *out <= 1;
}

/* A power of two, or 0. */
static bool parse_power(ashlar_piece value, uint64_t *out) {
    return ashlar__parse_count(value, out) && (*out & (*out - 1)) == 0;
}

/* "4" for all intervals, or "[256:1,512:2,>:4]": divisions of those that begin at a power of two of
 * MiB. The first one that is named stands for all below it, too, and > for all above. */
static bool parse_roundups(ashlar_piece value, uint64_t *roundups) {
    const bool is_list = value.bytes >= 2 && value.text[0] == '[';
    size_t next = 0;
    value = is_list ? (ashlar_piece){value.text + 1, value.bytes - 2} : value;
    while (value.bytes > 0) {
        ashlar_piece pair = ashlar__piece_cut(&value, ',');
        const ashlar_piece begin =
            is_list ? ashlar__piece_trim(ashlar__piece_cut(&pair, ':')) : ashlar__piece_of(">");
        const bool is_rest = ashlar__piece_is(begin, ">");
        uint64_t divisions, mib = 0;
        size_t last = 0;
        if (!parse_power(ashlar__piece_trim(pair), &divisions) ||
            (!is_rest && (!parse_power(begin, &mib) || mib == 0))) {
            return false;
        }
        while (last < ASHLAR_TORCH_ROUNDUPS - 1 && (is_rest || mib >> last > 1)) {
            last++;
        }
        for (size_t i = is_rest || next == 0 ? next : last; i <= last; i++) {
            roundups[i] = divisions;
        }
        next = last + 1;
    }
    return true;
}

static ashlar_status set(const char *source, ashlar_piece key, ashlar_piece value,
                         ashlar_torch_settings *s) {
    char shown[2][ASHLAR_SHOWN_BYTES];
    bool is_good = false;
    if (ashlar__piece_is(key, "max_split_size_mb")) {
        is_good = parse_mib(value, 11, &s->max_split_bytes);
    } else if (ashlar__piece_is(key, "max_non_split_rounding_mb")) {
        is_good = parse_mib(value, 11, &s->max_non_split_rounding_bytes);
    } else if (ashlar__piece_is(key, "large_segment_size_mb")) {
        is_good = parse_mib(value, 11, &s->large_segment_bytes);
    } else if (ashlar__piece_is(key, "garbage_collection_threshold")) {
        is_good = parse_share(value, &s->gc_threshold);
    } else if (ashlar__piece_is(key, "per_process_memory_fraction")) {
        is_good = parse_share(value, &s->fraction);
    } else if (ashlar__piece_is(key, "roundup_power2_divisions")) {
        is_good = parse_roundups(value, s->roundups);
    } else if (ashlar__piece_is(key, "expandable_segments")) {
        s->is_expandable = ashlar__piece_is(value, "True");
        is_good = s->is_expandable || ashlar__piece_is(value, "False");
    } else {
        for (size_t i = 0; i < sizeof other_keys / sizeof other_keys[0]; i++) {
            const size_t bytes = strlen(other_keys[i]);
            is_good =
                is_good || (key.bytes >= bytes && memcmp(key.text, other_keys[i], bytes) == 0);
        }
        ASHLAR_FAIL_IF(!is_good, ASHLAR_EINVAL, "%s: PyTorch's allocator has no setting \"%s\"",
                       source, ashlar__piece_show(key, shown[0]));
    }
    ASHLAR_FAIL_IF(!is_good, ASHLAR_EINVAL, "%s: \"%s\" is no value of %s", source,
                   ashlar__piece_show(value, shown[1]), ashlar__piece_show(key, shown[0]));
    return ASHLAR_OK;
}

/* The value of a key, which may be a list in brackets. */
static ashlar_piece cut_value(ashlar_piece *rest) {
    const ashlar_piece begin = ashlar__piece_trim(*rest);
    const char *end =
        begin.bytes > 0 && begin.text[0] == '[' ? memchr(begin.text, ']', begin.bytes) : NULL;
    if (end == NULL) {
        return ashlar__piece_trim(ashlar__piece_cut(rest, ','));
    }
    const ashlar_piece list = {begin.text, (size_t)(end - begin.text) + 1};
    *rest = (ashlar_piece){end + 1, begin.bytes - list.bytes};
    (void)ashlar__piece_cut(rest, ',');
    return list;
}

ashlar_status ashlar__torch_settings_parse(const char *source, const char *text,
                                           ashlar_torch_settings *out) {
    ashlar_piece rest = ashlar__piece_of(text == NULL ? "" : text);
    *out = (ashlar_torch_settings){.max_split_bytes = UINT64_MAX,
                                   .large_segment_bytes = 20 * MIB,
                                   .fraction = 1,
                                   .is_by_number = true};
    ashlar_status status = ASHLAR_OK;
    while (rest.bytes > 0) {
        const ashlar_piece key = ashlar__piece_trim(ashlar__piece_cut(&rest, ':'));
        const ashlar_status of_key = set(source, key, cut_value(&rest), out);
        status = of_key != ASHLAR_OK ? of_key : status;
    }
    if (out->max_non_split_rounding_bytes == 0) {
        out->max_non_split_rounding_bytes = out->large_segment_bytes;
    }
    ASHLAR_FAIL_IF(status == ASHLAR_OK &&
                       (out->max_split_bytes < out->large_segment_bytes ||
                        out->max_non_split_rounding_bytes < out->large_segment_bytes),
                   ASHLAR_EINVAL,
                   "%s: max_split_size_mb and max_non_split_rounding_mb have to be at least %llu, "
                   "as large_segment_size_mb is",
                   source, (unsigned long long)(out->large_segment_bytes / MIB));
    return status;
}

ashlar_status ashlar__torch_settings_recorded(const ashlar_events *events,
                                              ashlar_torch_settings *out) {
    char name[16];
    ashlar_status status = ashlar__torch_settings_parse(
        "recorded settings", ashlar__events_setting(events, "PYTORCH_CUDA_ALLOC_CONF"), out);
    for (unsigned i = 0; i < ASHLAR_TORCH_ROUNDUPS; i++) {
        (void)snprintf(name, sizeof name, "roundup.%u", 1U << i);
        const char *value = ashlar__events_setting(events, name);
        uint64_t divisions = 0;
        if (value != NULL && !parse_power(ashlar__piece_of(value), &divisions)) {
            status = ashlar__fail(ASHLAR_EINVAL, "recorded settings: %s is no power of two", name);
        }
        out->roundups[i] = value == NULL ? out->roundups[i] : divisions;
    }
    return status;
}
