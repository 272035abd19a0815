/* csv_read.c - splitting a comma-separated table into lines and fields, and finding its columns by
 * their names in the header. */
#include "allocator/base/csv_read.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

ashlar_status ashlar__csv_fail(const ashlar_csv *csv, const char *what, ashlar_piece field) {
    char shown[ASHLAR_SHOWN_BYTES];
    ASHLAR_CHECK2(csv->line > 0); /* lines are numbered from 1: at least one has been read */
    return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: %s, not \"%s\"", csv->name, csv->line, what,
                        ashlar__piece_show(field, shown));
}

/* The next line that is not blank; false at the end. */
static bool next_line(ashlar_csv *csv, ashlar_piece *line) {
    while (csv->rest.bytes > 0) {
        *line = ashlar__piece_trim(ashlar__piece_cut(&csv->rest, '\n'));
        csv->line++;
        if (line->bytes > 0) {
            return true;
        }
    }
    return false;
}

/* Cut the next field off *line. *is_last: whether it was the last one. */
static ashlar_piece next_field(ashlar_piece *line, bool *is_last) {
    ASHLAR_CHECK2(line->text != NULL);
    *is_last = memchr(line->text, ',', line->bytes) == NULL;
    return ashlar__piece_trim(ashlar__piece_cut(line, ','));
}

static ashlar_status note_column(ashlar_csv *csv, ashlar_piece name) {
    const ashlar_csv_format *f = csv->format;
    for (size_t i = 0; f->refused != NULL && f->refused[i] != NULL; i++) {
        if (ashlar__piece_is(name, f->refused[i])) {
            return ashlar__fail(ASHLAR_EFORMAT,
                                "%s:%zu: a column %s is not supported; take it out if every row "
                                "can do without it",
                                csv->name, csv->line, f->refused[i]);
        }
    }
    for (size_t c = 0; c < f->count; c++) {
        if (ashlar__piece_is(name, f->columns[c])) {
            if (csv->places[c] != SIZE_MAX) {
                return ashlar__csv_fail(csv, "each column has to be there once", name);
            }
            csv->places[c] = csv->field_count;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__csv_begin(ashlar_csv *csv, const ashlar_csv_format *format, const char *name,
                                const char *text, size_t bytes) {
    static const char mark[] = "\xef\xbb\xbf"; /* U+FEFF: some editors begin a file with it */
    const size_t skipped = bytes >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
    ashlar_piece line = {"", 0};
    ASHLAR_CHECK2(format->count >= 1 && format->count <= ASHLAR_CSV_COLUMNS_MAX);
    *csv = (ashlar_csv){
        .format = format, .name = name, .rest = {text + skipped, bytes - skipped}};
    for (size_t c = 0; c < format->count; c++) {
        csv->places[c] = SIZE_MAX;
    }
    if (!next_line(csv, &line)) {
        return ashlar__fail(ASHLAR_EFORMAT, "%s: empty; %s", name, format->begins);
    }
    for (bool is_last = false; !is_last; csv->field_count++) {
        ASHLAR_TRY(note_column(csv, next_field(&line, &is_last)));
    }
    for (size_t c = 0; c < format->count; c++) {
        if (csv->places[c] == SIZE_MAX) {
            return ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: no column %s; %s", name, csv->line,
                                format->columns[c], format->begins);
        }
        ASHLAR_CHECK2(csv->places[c] < csv->field_count);
    }
    return ASHLAR_OK;
}

bool ashlar__csv_next(ashlar_csv *csv, ashlar_piece *fields, size_t *count) {
    ashlar_piece line;
    ASHLAR_CHECK2(csv->field_count > 0); /* ashlar__csv_begin() has succeeded */
    if (!next_line(csv, &line)) {
        return false;
    }
    *count = 0;
    for (size_t c = 0; c < csv->format->count; c++) {
        fields[c] = (ashlar_piece){"", 0};
    }
    for (bool is_last = false; !is_last; (*count)++) {
        const ashlar_piece field = next_field(&line, &is_last);
        for (size_t c = 0; c < csv->format->count; c++) {
            if (csv->places[c] == *count) {
                fields[c] = field;
            }
        }
    }
    return true;
}

ashlar_status ashlar__csv_check(const ashlar_csv *csv, size_t count) {
    return count == csv->field_count
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "%s:%zu: %zu fields where the header has %zu",
                              csv->name, csv->line, count, csv->field_count);
}
