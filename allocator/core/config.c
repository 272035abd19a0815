/* config.c - reading and checking an allocator's options (ASHLAR_CONFIG_MAP). */
#include "allocator/core/core.h"

#include <ashlar/allocator.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/parse.h"

typedef enum kind { BYTES, COUNT, FRACTION, CHOICE } kind;

/* A row of ASHLAR_CONFIG_MAP, without the field's type. */
typedef struct option {
    const char *field, *key;
    kind kind;
    uint64_t low, high;
    uint64_t initial;
    const char *words; /* CHOICE: "a|b|c"; else a word that stands for `initial`, or NULL */
    const char *text;
} option;

static const option options[] = {
#define X(type, field, key, kind, low, high, initial, words, text) \
    {#field, key, kind, low, high, (uint64_t)(initial), words, text},
    ASHLAR_CONFIG_MAP(X)
#undef X
};
ASHLAR_TABLE_IS_FULL(options, ASHLAR_CONFIG_COUNT);

/* The index of each option: IDX_limit_bytes and so on. */
enum {
#define X(type, field, ...) IDX_##field,
    ASHLAR_CONFIG_MAP(X)
#undef X
};

#define NONE ASHLAR_CACHE_NONE

/* The value of an option of any kind: FRACTION uses `real`, the others `whole`. */
typedef struct value {
    uint64_t whole;
    double real;
} value;

#define PART_BYTES whole
#define PART_COUNT whole
#define PART_FRACTION real
#define PART_CHOICE whole

static value load(const ashlar_config *config, size_t i) {
    value v = {0};
    switch (i) {
#define X(type, field, key, kind, ...) \
    case IDX_##field:                  \
        v.PART_##kind = config->field; \
        break;
        ASHLAR_CONFIG_MAP(X)
#undef X
    }
    return v;
}

static void store(ashlar_config *config, size_t i, value v) {
    switch (i) {
#define X(type, field, key, kind, ...)       \
    case IDX_##field:                        \
        config->field = (type)v.PART_##kind; \
        break;
        ASHLAR_CONFIG_MAP(X)
#undef X
    }
}

/* ---- one value ---- */

static bool has_named_initial(const option *o) {
    return o->kind != CHOICE && o->words != NULL;
}

/* Whether the text "0" is stored as NONE, since a field of 0 means the default. */
static bool has_none(const option *o) {
    return has_named_initial(o) && strcmp(o->words, "0") != 0;
}

static bool is_allowed(const option *o, value v) {
    if (o->kind == FRACTION) {
        return v.real > (double)o->low && v.real <= (double)o->high;
    }
    return (v.whole >= o->low && v.whole <= o->high) || (has_none(o) && v.whole == NONE);
}

/* Whether the program left the field out, so that the default applies. */
static bool is_left_out(const option *o, value v) {
    return o->kind == FRACTION ? v.real >= 0 && v.real <= 0 : v.whole == 0;
}

static value initial_of(const option *o) {
    return (value){.whole = o->initial, .real = (double)o->initial};
}

/* Find the index of a word in a list "a|b|c", from 0. */
static bool parse_word(const char *words, ashlar_piece text, uint64_t *out) {
    ashlar_piece rest = ashlar__piece_of(words);
    for (uint64_t i = 0; rest.bytes > 0; i++) {
        const ashlar_piece word = ashlar__piece_cut(&rest, '|');
        if (word.bytes == text.bytes && memcmp(word.text, text.text, word.bytes) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* Write the word with index i. If it has no word, write the index itself, for messages. */
static void write_word(const option *o, uint64_t i, char out[static ASHLAR_NUMBER_BYTES]) {
    if (i > o->high) {
        ashlar__write_count(i, out);
        return;
    }
    ASHLAR_CHECK2(o->kind == CHOICE && o->words != NULL);
    ashlar_piece rest = ashlar__piece_of(o->words);
    for (; i > 0; i--) {
        (void)ashlar__piece_cut(&rest, '|');
    }
    const ashlar_piece word = ashlar__piece_cut(&rest, '|');
    (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%.*s", (int)word.bytes, word.text);
}

/* Read the value of an option. The caller has zeroed *out. */
static bool parse_value(const option *o, ashlar_piece text, value *out) {
    bool is_read = false;
    ASHLAR_CHECK2(out->whole == 0 && out->real == 0);
    if (has_named_initial(o) && ashlar__piece_is(text, o->words)) {
        out->whole = o->initial;
        return true;
    }
    switch (o->kind) {
    case BYTES:
        is_read = ashlar__parse_bytes(text, &out->whole);
        break;
    case COUNT:
        is_read = ashlar__parse_count(text, &out->whole);
        break;
    case FRACTION:
        is_read = ashlar__parse_real(text, &out->real);
        break;
    case CHOICE:
        is_read = parse_word(o->words, text, &out->whole);
        break;
    }
    if (is_read && has_named_initial(o) && out->whole == 0) {
        out->whole = has_none(o) ? NONE : 0;
        return true;
    }
    /* A text may give NONE only as "0", not by NONE's own value. */
    return is_read && out->whole <= o->high && is_allowed(o, *out);
}

/* Write a value as it would stand in ASHLAR_CONF. If the field was left out, write the default. */
static void write_value(const option *o, value v, char out[static ASHLAR_NUMBER_BYTES]) {
    if (has_named_initial(o) && v.whole == o->initial) {
        (void)snprintf(out, ASHLAR_NUMBER_BYTES, "%s", o->words);
        return;
    }
    v = is_left_out(o, v) ? initial_of(o) : v;
    switch (o->kind) {
    case BYTES:
        ashlar__write_bytes(has_none(o) && v.whole == NONE ? 0 : v.whole, out);
        break;
    case CHOICE:
        write_word(o, v.whole, out);
        break;
    case COUNT:
        ashlar__write_count(v.whole, out);
        break;
    case FRACTION:
        ashlar__write_real(v.real, out);
        break;
    }
}

enum { ALLOWED_BYTES = 128 };

/* Write the values that an option may have, for messages. Returns `out`. */
static const char *write_allowed(const option *o, char out[static ALLOWED_BYTES]) {
    char low[ASHLAR_NUMBER_BYTES], high[ASHLAR_NUMBER_BYTES];
    switch (o->kind) {
    case BYTES:
        ashlar__write_bytes(o->low, low);
        ashlar__write_bytes(o->high, high);
        (void)snprintf(out, ALLOWED_BYTES, "%s%s%s to %s, with a unit B, KiB, MiB, GiB or TiB",
                       has_named_initial(o) ? o->words : "", has_named_initial(o) ? ", or " : "",
                       low, high);
        break;
    case COUNT:
        (void)snprintf(out, ALLOWED_BYTES, "%" PRIu64 " to %" PRIu64, o->low, o->high);
        break;
    case FRACTION:
        (void)snprintf(out, ALLOWED_BYTES, "a number above %" PRIu64 ", at most %" PRIu64, o->low,
                       o->high);
        break;
    case CHOICE:
        (void)snprintf(out, ALLOWED_BYTES, "%s", o->words);
        break;
    }
    return out;
}

/* ---- a line ---- */

static const char *const keys[] = {
#define X(type, field, key, ...) key,
    ASHLAR_CONFIG_MAP(X)
#undef X
};

/* The options read so far, and where the text comes from. */
typedef struct reading {
    ashlar_config config;
    const char *source;
} reading;

static ashlar_status set_option(void *context, size_t i, ashlar_piece given) {
    reading *l = context;
    char allowed[ALLOWED_BYTES];
    value v = {0};
    if (!parse_value(&options[i], given, &v)) {
        return ashlar__pairs_refuse(l->source, options[i].key, given,
                                    write_allowed(&options[i], allowed));
    }
    store(&l->config, i, v);
    return ASHLAR_OK;
}

ashlar_status ashlar_config_parse(ashlar_config *config, const char *text, const char *source) {
    const ashlar_pairs_format format = {
        .source = source, .keys = keys, .count = ASHLAR_CONFIG_COUNT, .set = set_option};
    reading l = {.config = *config, .source = source};
    if (text == NULL) {
        const char *conf = secure_getenv("ASHLAR_CONF");
        return conf == NULL ? ASHLAR_OK : ashlar_config_parse(config, conf, "ASHLAR_CONF");
    }
    const ashlar_status status = ashlar__pairs_read(&format, text, &l);
    if (status == ASHLAR_OK) {
        *config = l.config;
    }
    return status;
}

ashlar_status ashlar__config_take(ashlar_config *out, const ashlar_config *config) {
    *out = ASHLAR_OR_ZERO(ashlar_config, config);
    for (size_t i = 0; i < ASHLAR_CONFIG_COUNT; i++) {
        const value v = load(out, i);
        if (is_left_out(&options[i], v)) {
            store(out, i, initial_of(&options[i]));
        } else if (!is_allowed(&options[i], v)) {
            char shown[ASHLAR_NUMBER_BYTES], allowed[ALLOWED_BYTES];
            write_value(&options[i], v, shown);
            return ashlar__fail(ASHLAR_EINVAL, "config: %s is %s; give %s", options[i].field, shown,
                                write_allowed(&options[i], allowed));
        }
    }
    return ASHLAR_OK;
}
