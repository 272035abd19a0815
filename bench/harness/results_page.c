/* results_page.c - writes a page and charts about a folder of raw results. */
#include "bench/harness/results.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/file_read.h"
#include "allocator/base/host.h"

enum { PATH_BYTES = 4096, BOUNDS = 3, FIGURES = 2 };

/* A figure for which less is better, and how the page shows it. */
typedef struct figure {
    const char *key, *what, *unit;
    double scale; /* factor from the file's value to the page's */
} figure;

/* The benchmarks of one command of ashlar-bench. `ours` is this library's subject. */
typedef struct group {
    const char *name, *title;
    const char *ours;
    const char *bounds[BOUNDS]; /* subjects that only show the least possible cost; "*": all */
    figure figures[FIGURES];    /* the first is charted; unused ones have key NULL */
} group;

#define STEP(size)                                                                            \
    {                                                                                         \
        "step_" size, "A training step beside PyTorch's, " size, "ashlar", {"ashlar_graphs"}, \
            {{"ms_step", "time of a step", "ms", 1},                                          \
             {"reserved_bytes", "memory reserved", "MiB", 0x1p-20}},                          \
    }

static const group groups[] = {
    {"alloc",
     "A pair of malloc and free",
     "ashlar",
     {"floor", "none"},
     {{"ns_pair", "time of a pair", "ns", 1},
      {"reserved_over_live", "memory reserved for each byte in use", "", 1}}},
    {"plan",
     "A pair served from a plan",
     "plan",
     {"floor", "none"},
     {{"ns_pair", "time of a pair", "ns", 1}}},
    {"arena",
     "Operations over all tensors of a model",
     "arena",
     {NULL},
     {{"ns", "time of the operation", "us", 1e-3}}},
    {"rnn",
     "A step of a recurrent network",
     "ashlar",
     {"static_buffer"},
     {{"ms_step", "time of a step", "ms", 1}}},
    {"rnn_train",
     "A whole step of training a text model",
     "ashlar",
     {NULL},
     {{"ms_step", "time of a step", "ms", 1}}},
    {"streams",
     "Streams beside each other",
     "ashlar",
     {NULL},
     {{"time_over_ideal", "virtual time beside the ideal", "", 1},
      {"reserved_over_need", "memory reserved for each byte that is needed", "", 1}}},
    {"ranks",
     "A step of training on several ranks",
     "ashlar",
     {NULL},
     {{"ms_step", "time of a step", "ms", 1}}},
    STEP("small"),
    STEP("medium"),
    STEP("large"),
    {"updates",
     "The optimizer's kernels beside a copy of as many bytes",
     "ashlar",
     {"copy"},
     {{"ns", "time of a pass", "us", 1e-3}}},
    {"products",
     "Products in fp32 as the library asks for them, and as PyTorch does",
     "pedantic",
     {NULL},
     {{"ns", "time of a product", "us", 1e-3}}},
    {"costs",
     "The driver's calls for memory by size, and beside other handles",
     "2 MiB",
     {"*"},
     {{"ns", "time of a call", "us", 1e-3}}},
    {"calls",
     "What a whole process calls in a step of training",
     "training",
     {NULL},
     {{"each_step", "calls in a step", "", 1}}},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

/* A group's results as read from its files. Figures are in the page's units. */
typedef struct chapter {
    const group *of;
    bool is_there;
    ashlar_results results[FIGURES];
    char *printed; /* the text of GROUP.txt; NULL: no such file */
} chapter;

typedef struct page {
    const char *folder;
    chapter chapters[GROUPS];
    ashlar_json *machine; /* machine.json; NULL: no such file */
    char *ran;            /* the text of ran.txt; NULL: no such file */
    char device[64];      /* "software device", or a GPU's name */
    char where[256];      /* the device, the processor and the date */
    ashlar_file_buffer *file;
    bool has_loss;
} page;

/* ---- reading ---- */

static ashlar_status join(const page *p, const char *name, const char *suffix,
                          char path[static PATH_BYTES]) {
    const int bytes = snprintf(path, PATH_BYTES, "%s/%s%s", p->folder, name, suffix);
    return bytes > 0 && bytes < PATH_BYTES
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EIO, "report: the folder's name is too long");
}

/* Read a file of the folder. A missing file is no error: *out is then not set. */
static ashlar_status read_if_there(const page *p, const char *name, const char *suffix,
                                   char **out) {
    char path[PATH_BYTES];
    size_t bytes = 0;
    ASHLAR_TRY(join(p, name, suffix, path));
    return access(path, F_OK) == 0 ? ashlar__file_read(path, out, &bytes) : ASHLAR_OK;
}

static ashlar_status parse_if_there(const page *p, const char *name, ashlar_json **out) {
    char *text = NULL;
    ashlar_status status = read_if_there(p, name, ".json", &text);
    if (status == ASHLAR_OK && text != NULL) {
        status = ashlar__json_parse(text, strlen(text), out);
        if (status == ASHLAR_EFORMAT) {
            char detail[160];
            (void)snprintf(detail, sizeof detail, "%s", ashlar_error_detail());
            status = ashlar__fail(ASHLAR_EFORMAT, "%s.json: %s", name, detail);
        }
    }
    ashlar__host_free(text);
    return status;
}

static void scale(ashlar_results *results, double factor) {
    for (size_t i = 0; i < results->line_count; i++) {
        for (size_t k = 0; k < results->subject_count; k++) {
            results->figures[i][k] *= factor;
            results->low[i][k] *= factor;
            results->high[i][k] *= factor;
        }
    }
}

static const char *machine_text(const page *p, const char *key) {
    const ashlar_json *member = ashlar__json_member(p->machine, key);
    return member != NULL && member->kind == ASHLAR_JSON_STRING ? member->text : "";
}

static const char soft[] = "software device";

static void name_device(page *p) {
    const char *device = machine_text(p, "device");
    const char *processor = machine_text(p, "processor"), *date = machine_text(p, "date");
    (void)snprintf(p->device, sizeof p->device, "%s",
                   strstr(device, soft) != NULL ? soft
                   : device[0] != '\0'          ? device
                                                : "unknown device");
    (void)snprintf(p->where, sizeof p->where, "On the %s%s%.120s%s%.20s", p->device,
                   processor[0] != '\0' ? ", " : "", processor, date[0] != '\0' ? ", " : "", date);
}

/* Subjects that call the device each time are "driver" and "driver_each_step" in the files. A
 * software device has no driver: show "software device" instead of "driver". */
static void name_driver(const page *p, ashlar_results *results) {
    static const char driver[] = "driver";
    for (size_t i = 0; i < results->subject_count && strcmp(p->device, soft) == 0; i++) {
        char *name = results->subjects[i], rest[ASHLAR_RESULTS_NAME_BYTES];
        if (strncmp(name, driver, strlen(driver)) == 0) {
            (void)snprintf(rest, sizeof rest, "%s", name + strlen(driver));
            for (char *c = strchr(rest, '_'); c != NULL; c = strchr(c, '_')) {
                *c = ' ';
            }
            (void)snprintf(name, ASHLAR_RESULTS_NAME_BYTES, "%s%.16s", soft, rest);
        }
    }
}

static ashlar_status read_chapter(const page *p, chapter *c) {
    ashlar_json *document = NULL;
    ashlar_status status = parse_if_there(p, c->of->name, &document);
    c->is_there = document != NULL;
    for (size_t i = 0; i < FIGURES && document != NULL && status == ASHLAR_OK; i++) {
        const figure *f = &c->of->figures[i];
        if (f->key != NULL) {
            status = ashlar__results_read(document, f->key, &c->results[i]);
            scale(&c->results[i], f->scale);
            name_driver(p, &c->results[i]);
        }
    }
    ashlar__json_free(document);
    return status == ASHLAR_OK ? read_if_there(p, c->of->name, ".txt", &c->printed) : status;
}

static ashlar_status read_all(page *p) {
    bool is_empty = true;
    ASHLAR_TRY(parse_if_there(p, "machine", &p->machine));
    ASHLAR_TRY(read_if_there(p, "ran", ".txt", &p->ran));
    name_device(p);
    for (size_t i = 0; i < GROUPS; i++) {
        p->chapters[i].of = &groups[i];
        ASHLAR_TRY(read_chapter(p, &p->chapters[i]));
        is_empty = is_empty && !p->chapters[i].is_there;
    }
    return !is_empty ? ASHLAR_OK
                     : ashlar__fail(ASHLAR_EIO,
                                    "report: %.200s has no results: none of alloc.json, "
                                    "plan.json, arena.json, rnn.json, rnn_train.json, streams.json, "
                                    "ranks.json",
                                    p->folder);
}

/* ---- writing ---- */

static void put(page *p, const char *text) {
    ashlar__file_buffer_put(p->file, text, strlen(text));
}

static void put_member(page *p, const ashlar_json *member) {
    if (member->kind == ASHLAR_JSON_STRING) {
        ashlar__file_buffer_print(p->file, "| %s | %.180s |\n", member->key, member->text);
    } else if (member->kind == ASHLAR_JSON_NUMBER) {
        ashlar__file_buffer_print(p->file, "| %s | %g |\n", member->key, member->number);
    }
}

static void put_head(page *p) {
    const ashlar_json *date = ashlar__json_member(p->machine, "date");
    const ashlar_json *smoke = ashlar__json_member(p->machine, "smoke");
    put(p, "# Results");
    if (date != NULL && date->kind == ASHLAR_JSON_STRING) {
        ashlar__file_buffer_print(p->file, " of %.40s", date->text);
    }
    put(p, "\n\nMade by `ashlar-bench report` from the files beside it; do not edit.\n");
    if (smoke != NULL && smoke->kind == ASHLAR_JSON_BOOL && smoke->boolean) {
        put(p, "\n**A smoke run: a few short rounds, to see it run. Its figures mean nothing.**\n");
    }
    if (p->machine != NULL && p->machine->kind == ASHLAR_JSON_OBJECT) {
        put(p, "\n| | |\n|---|---|\n");
        for (const ashlar_json *m = p->machine->item; m != NULL; m = m->next) {
            if (strcmp(m->key, "schema") != 0) {
                put_member(p, m);
            }
        }
    }
}

static bool is_bound(const group *g, const char *subject) {
    bool is_one = strcmp(subject, g->ours) == 0;
    for (size_t i = 0; i < BOUNDS && g->bounds[i] != NULL; i++) {
        is_one = is_one || strcmp(g->bounds[i], "*") == 0 || strcmp(subject, g->bounds[i]) == 0;
    }
    return is_one;
}

static void put_loss(page *p, const chapter *c, size_t which, size_t line, size_t other,
                     double ours) {
    const ashlar_results *r = &c->results[which];
    const figure *f = &c->of->figures[which];
    const double theirs = r->figures[line][other];
    p->has_loss = true;
    ashlar__file_buffer_print(p->file, "- %s, %s: `%s` has %.3g of our %s", c->of->name,
                              r->labels[line], r->subjects[other], theirs / ours, f->what);
    ashlar__file_buffer_print(p->file, " (%.4g of %.4g%s%s)\n", theirs, ours,
                              f->unit[0] != '\0' ? " " : "", f->unit);
}

static void put_losses(page *p, const chapter *c, size_t which) {
    const ashlar_results *r = &c->results[which];
    const size_t mine = ashlar__results_find_subject(r, c->of->ours);
    for (size_t line = 0; line < r->line_count && mine < r->subject_count; line++) {
        const double ours = r->figures[line][mine];
        for (size_t k = 0; k < r->subject_count; k++) {
            const double theirs = r->figures[line][k];
            if (theirs > 0 && theirs < ours && !is_bound(c->of, r->subjects[k]) &&
                !ashlar__results_are_even(r, line, mine, k)) {
                put_loss(p, c, which, line, k, ours);
            }
        }
    }
}

/* Copy the lines of GROUP.txt that begin with "NOT MET" to the page, runs of blanks as one. */
static void put_missed_targets(page *p, const chapter *c) {
    static const char mark[] = "NOT MET ";
    const char *line = c->printed;
    while (line != NULL && *line != '\0') {
        const size_t bytes = strcspn(line, "\n");
        if (strncmp(line, mark, strlen(mark)) == 0) {
            p->has_loss = true;
            ashlar__file_buffer_print(p->file, "- %s, target missed:", c->of->name);
            for (size_t i = strlen(mark); i < bytes; i++) {
                const bool is_doubled = line[i] == ' ' && line[i - 1] == ' ';
                if (!is_doubled || i == strlen(mark)) {
                    ashlar__file_buffer_put(p->file, line + i, 1);
                }
            }
            put(p, "\n");
        }
        line += bytes + (line[bytes] == '\n');
    }
}

static void put_all_losses(page *p) {
    put(p, "\n## Where we lose\n\n");
    for (size_t i = 0; i < GROUPS; i++) {
        for (size_t k = 0; k < FIGURES; k++) {
            put_losses(p, &p->chapters[i], k);
        }
        put_missed_targets(p, &p->chapters[i]);
    }
    if (!p->has_loss) {
        put(p, "Nowhere in these files.\n");
    }
}

static bool has_spread(const ashlar_results *r) {
    for (size_t i = 0; i < r->line_count; i++) {
        for (size_t k = 0; k < r->subject_count; k++) {
            if (r->low[i][k] < r->high[i][k]) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the group's own subject has a figure that the others can be compared with. */
static bool has_chart(const chapter *c) {
    const ashlar_results *r = &c->results[0];
    const size_t mine = ashlar__results_find_subject(r, c->of->ours);
    bool has_one = false;
    for (size_t i = 0; i < r->line_count && mine < r->subject_count; i++) {
        has_one = has_one || r->figures[i][mine] > 0;
    }
    return has_one;
}

static void put_table_head(page *p, const chapter *c, size_t mine) {
    const ashlar_results *r = &c->results[0];
    const char *unit = c->of->figures[0].unit;
    ashlar__file_buffer_print(p->file, "\n| | %s%s%s |", c->of->ours, unit[0] != '\0' ? ", " : "",
                              unit);
    for (size_t k = 0; k < r->subject_count; k++) {
        if (k != mine) {
            ashlar__file_buffer_print(p->file, " %s |", r->subjects[k]);
        }
    }
    put(p, "\n|---|---:|");
    for (size_t k = 0; k < r->subject_count; k++) {
        put(p, k != mine ? "---:|" : "");
    }
    put(p, "\n");
}

/* Another subject's figure over ours, or the figure itself where we have none. */
static void put_other(page *p, const chapter *c, size_t line, size_t other, size_t mine) {
    const ashlar_results *r = &c->results[0];
    const double ours = mine < r->subject_count ? r->figures[line][mine] : 0;
    const double theirs = r->figures[line][other];
    if (theirs <= 0) {
        put(p, " - |");
    } else if (ours <= 0) {
        const char *unit = c->of->figures[0].unit;
        ashlar__file_buffer_print(p->file, " %.4g%s%s |", theirs, unit[0] != '\0' ? " " : "", unit);
    } else {
        const bool is_even = theirs != ours && ashlar__results_are_even(r, line, mine, other);
        ashlar__file_buffer_print(p->file, " %s%.2f |", is_even ? "~" : "", theirs / ours);
    }
}

static void put_table(page *p, const chapter *c) {
    const ashlar_results *r = &c->results[0];
    const size_t mine = ashlar__results_find_subject(r, c->of->ours);
    put_table_head(p, c, mine);
    for (size_t line = 0; line < r->line_count; line++) {
        const double ours = mine < r->subject_count ? r->figures[line][mine] : 0;
        ashlar__file_buffer_print(p->file, "| %s | ", r->labels[line]);
        ashlar__file_buffer_print(p->file, ours > 0 ? "%.4g" : "-", ours);
        if (ours > 0 && r->low[line][mine] < r->high[line][mine]) {
            ashlar__file_buffer_print(p->file, " (%.3g to %.3g)", r->low[line][mine],
                                      r->high[line][mine]);
        }
        put(p, " |");
        for (size_t k = 0; k < r->subject_count; k++) {
            if (k != mine) {
                put_other(p, c, line, k, mine);
            }
        }
        put(p, "\n");
    }
}

static void put_chapter(page *p, const chapter *c) {
    const char *what = c->of->figures[0].what;
    ashlar__file_buffer_print(p->file, "\n## %s (`%s`)\n", c->of->title, c->of->name);
    if (has_chart(c)) {
        ashlar__file_buffer_print(p->file, "\n![%s: %s beside that of %s](%s.svg)\n", c->of->title,
                                  what, c->of->ours, c->of->name);
    }
    ashlar__file_buffer_print(p->file,
                              "\nOn the %s. Lower is better. `%s`: %s; the others: theirs over "
                              "that, so above 1 they take more.\n",
                              p->device, c->of->ours, what);
    put(p, has_spread(&c->results[0])
               ? "Figures are medians of rounds; the bars, and what stands in brackets, are the "
                 "middle half of the rounds. Where those of two overlap (~) neither is better.\n"
               : "These files have no spread: every difference counts.\n");
    put_table(p, c);
}

static ashlar_status write_charts(const page *p) {
    char path[PATH_BYTES];
    for (size_t i = 0; i < GROUPS; i++) {
        const chapter *c = &p->chapters[i];
        if (c->is_there && has_chart(c)) {
            const ashlar_chart chart = {
                .results = &c->results[0],
                .base = ashlar__results_find_subject(&c->results[0], c->of->ours),
                .title = c->of->title,
                .where = p->where,
                .what = c->of->figures[0].what,
                .unit = c->of->figures[0].unit};
            ASHLAR_TRY(join(p, c->of->name, ".svg", path));
            ASHLAR_TRY(ashlar__chart_write(&chart, path));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status write_page(page *p) {
    char path[PATH_BYTES];
    ASHLAR_TRY(join(p, "README", ".md", path));
    ASHLAR_TRY(ashlar__file_buffer_create(path, &p->file));
    put_head(p);
    if (p->ran != NULL) {
        put(p, "\n## What was run\n\n```\n");
        put(p, p->ran);
        put(p, "```\n");
    }
    put_all_losses(p);
    for (size_t i = 0; i < GROUPS; i++) {
        if (p->chapters[i].is_there) {
            put_chapter(p, &p->chapters[i]);
        }
    }
    return ashlar__file_buffer_commit(p->file);
}

ashlar_status ashlar__results_page_write(const char *folder) {
    page *p = ashlar__host_calloc(1, sizeof *p);
    if (p == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a page");
    }
    p->folder = folder;
    ashlar_status status = read_all(p);
    ASHLAR_THEN(status, write_charts(p));
    ASHLAR_THEN(status, write_page(p));
    for (size_t i = 0; i < GROUPS; i++) {
        ashlar__host_free(p->chapters[i].printed);
    }
    ashlar__json_free(p->machine);
    ashlar__host_free(p->ran);
    ashlar__host_free(p);
    return status;
}
