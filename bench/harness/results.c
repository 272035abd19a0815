/* results.c - makes a table of one figure from a benchmark's rows. */
#include "bench/harness/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/error.h"

static ashlar_status fail_row(size_t row, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "results: row %zu %s", row, what);
}

/* Append a word to a label, after a blank if the label is not empty. False: it does not fit. */
static bool append(char *label, const char *format, const char *word) {
    const size_t used = strlen(label), left = ASHLAR_RESULTS_LABEL_BYTES - used;
    const int bytes = snprintf(label + used, left, format, used == 0 ? "" : " ", word);
    return bytes >= 0 && (size_t)bytes < left;
}

/* Append "4 KiB fragmented" for "4096-fragmented". False: it does not fit. */
static bool append_size(const char *text, char *label) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    char *rest = NULL, size[32];
    unsigned long long bytes = strtoull(text, &rest, 10);
    size_t unit = 0;
    for (; bytes >= 1024 && bytes % 1024 == 0 && unit < 3; unit++) {
        bytes /= 1024;
    }
    (void)snprintf(size, sizeof size, "%llu %s", bytes, units[unit]);
    if (rest == text) {
        return append(label, "%s%s", text);
    }
    return append(label, "%s%s", size) && (*rest == '\0' || append(label, "%s%s", rest + 1));
}

/* Append a row's member to its label, such as "random" or "one_size 4 KiB 2 threads": strings, and
 * the number of threads unless it is 1. False: it does not fit. */
static bool append_member(const ashlar_json *member, char *label) {
    uint64_t number = 0;
    char text[32];
    if (member->kind == ASHLAR_JSON_STRING) {
        if (strcmp(label, "one_size") == 0) {
            return append_size(member->text, label);
        }
        return member->count == 0 || append(label, "%s%s", member->text);
    }
    if (strcmp(member->key, "threads") == 0 && ashlar__json_get_uint64(member, &number) &&
        number != 1) {
        (void)snprintf(text, sizeof text, "%" PRIu64, number);
        return append(label, "%s%s threads", text);
    }
    return true;
}

static ashlar_status make_label(const ashlar_json *row, size_t number,
                                char label[static ASHLAR_RESULTS_LABEL_BYTES],
                                const ashlar_json **subject) {
    label[0] = '\0';
    *subject = NULL;
    if (row->kind != ASHLAR_JSON_OBJECT) {
        return fail_row(number, "is no object");
    }
    for (const ashlar_json *m = row->item; m != NULL && *subject == NULL; m = m->next) {
        if (strcmp(m->key, "subject") == 0) {
            *subject = m;
        } else if (!append_member(m, label)) {
            return fail_row(number, "has too long a label");
        }
    }
    const bool is_good = *subject != NULL && (*subject)->kind == ASHLAR_JSON_STRING &&
                         (*subject)->count > 0 && (*subject)->count < ASHLAR_RESULTS_NAME_BYTES;
    return is_good ? ASHLAR_OK : fail_row(number, "has no subject, or too long a one");
}

/* The index of `text` in a list of `*count` texts of `bytes` bytes each. A new text is appended; if
 * the list is full (`most` texts), the result is `most`. */
static size_t place_of(char *texts, size_t bytes, size_t *count, size_t most, const char *text) {
    size_t i = 0;
    while (i < *count && strcmp(texts + i * bytes, text) != 0) {
        i++;
    }
    if (i == *count && i < most) {
        (void)snprintf(texts + i * bytes, bytes, "%s", text);
        (*count)++;
    }
    return i;
}

static bool is_above_0(const ashlar_json *value) {
    return value != NULL && value->kind == ASHLAR_JSON_NUMBER && value->number > 0;
}

/* The row's number FIGURE_low or FIGURE_high; `figure` where there is none. */
static double bound_of(const ashlar_json *row, const char *key, const char *suffix, double figure) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", key, suffix);
    const ashlar_json *value = ashlar__json_member(row, name);
    return is_above_0(value) ? value->number : figure;
}

static ashlar_status add_row(ashlar_results *r, const ashlar_json *row, size_t number,
                             const char *figure) {
    char label[ASHLAR_RESULTS_LABEL_BYTES];
    const ashlar_json *subject = NULL, *value = ashlar__json_member(row, figure);
    ASHLAR_TRY(make_label(row, number, label, &subject));
    const size_t line = place_of(r->labels[0], sizeof r->labels[0], &r->line_count,
                                 ASHLAR_RESULTS_LINES_MAX, label);
    const size_t who = place_of(r->subjects[0], sizeof r->subjects[0], &r->subject_count,
                                ASHLAR_RESULTS_SUBJECTS_MAX, subject->text);
    if (line == ASHLAR_RESULTS_LINES_MAX || who == ASHLAR_RESULTS_SUBJECTS_MAX) {
        return fail_row(number, "is one too many for a table");
    }
    if (is_above_0(value)) {
        if (r->figures[line][who] > 0) {
            return fail_row(number, "is there twice");
        }
        r->figures[line][who] = value->number;
        r->low[line][who] = fmin(value->number, bound_of(row, figure, "_low", value->number));
        r->high[line][who] = fmax(value->number, bound_of(row, figure, "_high", value->number));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__results_read(const ashlar_json *document, const char *figure,
                                   ashlar_results *out) {
    const ashlar_json *rows =
        document->kind == ASHLAR_JSON_OBJECT ? ashlar__json_member(document, "rows") : document;
    size_t number = 0;
    if (rows == NULL || rows->kind != ASHLAR_JSON_ARRAY) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "results: neither an array nor an object with \"rows\"");
    }
    memset(out, 0, sizeof *out);
    for (const ashlar_json *row = rows->item; row != NULL; row = row->next) {
        ASHLAR_TRY(add_row(out, row, ++number, figure));
    }
    return ASHLAR_OK;
}

size_t ashlar__results_find_subject(const ashlar_results *results, const char *name) {
    size_t i = 0;
    while (i < results->subject_count && strcmp(results->subjects[i], name) != 0) {
        i++;
    }
    return i;
}

bool ashlar__results_are_even(const ashlar_results *results, size_t line, size_t a, size_t b) {
    return results->low[line][a] <= results->high[line][b] &&
           results->low[line][b] <= results->high[line][a];
}
