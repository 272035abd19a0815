/* rows.c - prints rows as a table, puts them into JSON, and judges targets on them. */
#include "bench/harness/harness.h"

#include <math.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__rows_add(ashlar_rows *rows, const ashlar_row *row) {
    ASHLAR_HOST_GROW(rows->items, &rows->capacity, rows->count,
                     "bench: no host memory for the results");
    rows->items[rows->count++] = *row;
    return ASHLAR_OK;
}

void ashlar__rows_finish(ashlar_rows *rows) {
    ashlar__host_free(rows->items);
    *rows = (ashlar_rows){.form = rows->form};
}

static bool has_label(const ashlar_rows_form *form, const ashlar_row *row, const ashlar_row *like,
                      size_t threads) {
    bool is_same = true;
    for (size_t i = 0; i < form->subject && is_same; i++) {
        const ashlar_rows_cell *cell = &row->cells[i], *other = &like->cells[i];
        is_same = form->columns[i].kind == ASHLAR_ROWS_TEXT
                      ? strcmp(cell->text, other->text) == 0
                      : cell->number == (threads != 0 ? (double)threads : other->number);
    }
    return is_same;
}

const ashlar_row *ashlar__rows_find(const ashlar_rows *rows, const ashlar_row *like,
                                    const char *subject, size_t threads) {
    for (size_t i = 0; i < rows->count; i++) {
        const ashlar_row *row = &rows->items[i];
        if (strcmp(row->cells[rows->form->subject].text, subject) == 0 &&
            has_label(rows->form, row, like, threads)) {
            return row;
        }
    }
    return NULL;
}

static double over(const ashlar_rows *rows, const ashlar_row *row, size_t column,
                   const char *base) {
    const ashlar_row *other = ashlar__rows_find(rows, row, base, 0);
    return other != NULL ? row->cells[column].number / other->cells[column].number : NAN;
}

void ashlar__rows_fill_ratios(ashlar_rows *rows, size_t first, size_t column, size_t of,
                              const char *base) {
    for (size_t i = first; i < rows->count; i++) {
        rows->items[i].cells[column].number = over(rows, &rows->items[i], of, base);
    }
}

/* ---- table ---- */

void ashlar__rows_print_head(FILE *out, const ashlar_rows *rows) {
    const ashlar_rows_form *form = rows->form;
    for (size_t i = 0; i < form->column_count; i++) {
        const ashlar_rows_column *c = &form->columns[i];
        if (c->heading != NULL) {
            fprintf(out, "%s%*s", i > 0 ? " " : "",
                    c->kind == ASHLAR_ROWS_TEXT ? -c->width : c->width, c->heading);
        }
    }
    fputc('\n', out);
}

static void print_cell(FILE *out, const ashlar_rows_column *c, ashlar_rows_cell cell) {
    if (c->kind == ASHLAR_ROWS_TEXT) {
        fprintf(out, "%-*s", c->width, cell.text);
    } else if (isnan(cell.number)) {
        fprintf(out, "%*s", c->width, "-");
    } else {
        fprintf(out, "%*.*f", c->width, c->digits, cell.number * (c->scale != 0 ? c->scale : 1));
    }
}

void ashlar__rows_print(FILE *out, const ashlar_rows *rows, size_t first) {
    const ashlar_rows_form *form = rows->form;
    for (size_t i = first; i < rows->count; i++) {
        for (size_t k = 0; k < form->column_count; k++) {
            if (form->columns[k].heading != NULL) {
                fputs(k > 0 ? " " : "", out);
                print_cell(out, &form->columns[k], rows->items[i].cells[k]);
            }
        }
        fputc('\n', out);
    }
    fflush(out);
    if (rows->on_print != NULL) {
        rows->on_print(rows->context);
    }
}

/* ---- targets ---- */

static bool is_for(const ashlar_rows_form *form, const ashlar_rows_target *t,
                   const ashlar_row *row) {
    bool is_one = t->subject == NULL || strcmp(row->cells[form->subject].text, t->subject) == 0;
    for (size_t i = 0; i < form->subject && is_one; i++) {
        const ashlar_rows_cell *cell = &row->cells[i];
        if (form->columns[i].kind != ASHLAR_ROWS_TEXT) {
            is_one = t->threads == 0 || cell->number == (double)t->threads;
        } else if (i < 2) {
            is_one = (t->names[i] == NULL || strcmp(t->names[i], cell->text) == 0) &&
                     (t->except == NULL || strcmp(t->except, cell->text) != 0);
        }
    }
    return is_one;
}

static void print_verdict(FILE *out, const ashlar_rows_form *form, const ashlar_row *row,
                          const ashlar_rows_target *t, double value) {
    const bool is_met = t->is_at_least ? value >= t->limit : value <= t->limit;
    fprintf(out, "%-8s", is_met ? "met" : "NOT MET");
    for (size_t i = 0; i < form->subject; i++) {
        const ashlar_rows_column *c = &form->columns[i];
        if (c->kind == ASHLAR_ROWS_TEXT) {
            fprintf(out, " %-*s", c->width, row->cells[i].text);
        } else {
            fprintf(out, " %s %.0f", c->heading, row->cells[i].number);
        }
    }
    fprintf(out, "  %-34s %9.3f  (%s %g)\n", t->what, value,
            t->is_at_least ? "at least" : "at most", t->limit);
}

void ashlar__rows_print_targets(FILE *out, const ashlar_rows *rows) {
    const ashlar_rows_form *form = rows->form;
    for (size_t i = 0; i < rows->count; i++) {
        for (size_t k = 0; k < form->target_count; k++) {
            const ashlar_row *row = &rows->items[i];
            const ashlar_rows_target *t = &form->targets[k];
            if (is_for(form, t, row)) {
                const double value = t->base == NULL ? row->cells[t->column].number
                                                     : over(rows, row, t->column, t->base);
                if (!isnan(value)) {
                    print_verdict(out, form, row, t, value);
                }
            }
        }
    }
}

/* ---- JSON ---- */

static void put_cell(ashlar_json_writer *w, const ashlar_rows_column *c, ashlar_rows_cell cell) {
    if (c->kind == ASHLAR_ROWS_TEXT) {
        ashlar__json_add_string(w, c->key, cell.text);
    } else if (c->kind == ASHLAR_ROWS_NUMBER || !isnan(cell.number)) {
        ashlar__json_put_key(w, c->key);
        if (c->kind == ASHLAR_ROWS_BOOL) {
            ashlar__json_put_bool(w, cell.number != 0);
        } else {
            ashlar__json_put_double(w, cell.number);
        }
    }
}

void ashlar__rows_put_members(ashlar_json_writer *w, const ashlar_rows_form *form,
                              const ashlar_row *row) {
    for (size_t i = 0; i < form->column_count; i++) {
        if (form->columns[i].key != NULL) {
            put_cell(w, &form->columns[i], row->cells[i]);
        }
    }
}

void ashlar__rows_put(ashlar_json_writer *w, const ashlar_rows *rows) {
    ashlar__json_open_array(w);
    for (size_t i = 0; i < rows->count; i++) {
        ashlar__json_open_object(w);
        ashlar__rows_put_members(w, rows->form, &rows->items[i]);
        ashlar__json_close_object(w);
    }
    ashlar__json_close_array(w);
}
