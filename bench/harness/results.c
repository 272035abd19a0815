/* results.c - makes a table of one figure from a benchmark's rows. */
#include "bench/harness/results.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
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

/* Append a row's member to its label, such as "random" or "one_size 4096 2 threads": strings, and
 * the number of threads unless it is 1. False: it does not fit. */
static bool append_member(const ashlar_json *member, char *label) {
    uint64_t number = 0;
    char text[32];
    if (member->kind == ASHLAR_JSON_STRING) {
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
    if (value != NULL && value->kind == ASHLAR_JSON_NUMBER && value->number > 0) {
        if (r->figures[line][who] > 0) {
            return fail_row(number, "is there twice");
        }
        r->figures[line][who] = value->number;
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
