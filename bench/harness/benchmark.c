/* benchmark.c - finds a benchmark's workloads and subjects by name, runs it, and writes its JSON.
 */
#include "bench/harness/harness.h"

#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"

/* `text` is NAME, which stands for all its variants, or NAME/VARIANT. */
static bool is_named(const char *text, ashlar_bench_name n) {
    const size_t bytes = strlen(n.name);
    if (strncmp(text, n.name, bytes) != 0) {
        return false;
    }
    const char *rest = text + bytes;
    return *rest == '\0' || (*rest == '/' && n.variant != NULL && strcmp(rest + 1, n.variant) == 0);
}

bool ashlar__bench_wants(const ashlar_option_list *list, ashlar_bench_name name) {
    bool is_in_list = list->count == 0;
    for (size_t i = 0; i < list->count; i++) {
        is_in_list = is_in_list || is_named(list->items[i], name);
    }
    return is_in_list;
}

enum { NAMES_BYTES = 600 };

/* Append a name to a list of names, unless the list has it; leave it out if it does not fit. */
static void list_name(char *names, const char *name) {
    const size_t bytes = strlen(name), used = strlen(names);
    const char *at = names;
    while (bytes > 0 && (at = strstr(at, name)) != NULL) {
        if ((at == names || at[-1] == ' ') && (at[bytes] == ',' || at[bytes] == '\0')) {
            return;
        }
        at += bytes;
    }
    if (bytes > 0 && used + bytes + 3 < NAMES_BYTES) {
        (void)snprintf(names + used, NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
    }
}

static ashlar_status check_workload(const ashlar_benchmark *b, const char *text) {
    char names[NAMES_BYTES] = "", variants[NAMES_BYTES] = "";
    ashlar_bench_name n = {0};
    for (size_t i = 0; b->workload(i, &n); i++) {
        if (is_named(text, n)) {
            return ASHLAR_OK;
        }
        list_name(names, n.name);
        list_name(variants, n.variant != NULL ? n.variant : "");
    }
    return ashlar__fail(ASHLAR_EINVAL, "--workload: there is no \"%.80s\"; there are %s%s%s", text,
                        names, variants[0] != '\0' ? ", alone or with a / and one of " : "",
                        variants);
}

static ashlar_status check_subject(const ashlar_benchmark *b, const char *text) {
    char names[NAMES_BYTES] = "";
    const char *name = NULL;
    for (size_t i = 0; (name = b->subject(i)) != NULL; i++) {
        if (strcmp(name, text) == 0) {
            return ASHLAR_OK;
        }
        list_name(names, name);
    }
    return ashlar__fail(
        ASHLAR_EINVAL, "--subject: there is no \"%.80s\" in this build; there are %s", text, names);
}

ashlar_status ashlar__benchmark_check(const ashlar_benchmark *b,
                                      const ashlar_bench_request *request) {
    for (size_t i = 0; i < request->workloads.count; i++) {
        ASHLAR_TRY(check_workload(b, request->workloads.items[i]));
    }
    for (size_t i = 0; i < request->subjects.count; i++) {
        ASHLAR_TRY(check_subject(b, request->subjects.items[i]));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__benchmark_write(const ashlar_benchmark *b, const char *path,
                                      const ashlar_rows *rows, const ashlar_rows *more) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 2);
    ashlar__json_open_document(&w, "ashlar-bench/1");
    if (b->put_head != NULL) {
        b->put_head(&w);
    }
    ashlar__json_put_key(&w, "rows");
    ashlar__rows_put(&w, rows);
    if (b->more != NULL) {
        ashlar__json_put_key(&w, b->more_key);
        ashlar__rows_put(&w, more);
    }
    ashlar__json_close_object(&w);
    return ashlar__json_writer_end(&w, path);
}

/* Before the figures and behind them: wherever they are read from. */
static void say_smoke(FILE *out, bool is_smoke) {
    if (is_smoke) {
        fputs("A smoke run: a few short rounds, to see it run. Its figures mean nothing.\n", out);
    }
}

/* What a run that is ended early leaves. */
typedef struct kept {
    const ashlar_benchmark *benchmark;
    const char *json;
    const ashlar_rows *rows, *more;
} kept;

/* A failure is that of the whole document, too, which is written last. */
static void keep_rows(void *context) {
    const kept *k = context;
    ASHLAR_IGNORE(ashlar__benchmark_write(k->benchmark, k->json, k->rows, k->more));
}

ashlar_status ashlar__benchmark_run(const ashlar_benchmark *b,
                                    const ashlar_bench_request *request) {
    ashlar_rows rows = {.form = b->form}, more = {.form = b->more};
    kept so_far = {b, request->json, &rows, &more};
    if (request->json != NULL && !ashlar__stream_is(request->json)) {
        rows.on_print = keep_rows;
        rows.context = &so_far;
    }
    ashlar_device *device = NULL;
    ASHLAR_TRY(ashlar_device_open(request->device, &device));
    say_smoke(request->out, request->is_smoke);
    ashlar_status status = b->run(request, device, &rows, &more);
    ashlar_device_close(device);
    if (status == ASHLAR_OK && rows.count > 0) {
        fputc('\n', request->out);
        ashlar__rows_print_targets(request->out, &rows);
        if (b->more != NULL) {
            ashlar__rows_print_targets(request->out, &more);
        }
        say_smoke(request->out, request->is_smoke);
    }
    if (status == ASHLAR_OK && request->json != NULL) {
        status = ashlar__benchmark_write(b, request->json, &rows, &more);
    }
    ashlar__rows_finish(&rows);
    ashlar__rows_finish(&more);
    return status;
}
