/*
 * test_results.c - a folder that has no results is named. What is made of one is seen from a
 * shell (shell_bench_all.sh).
 */
#include "bench/harness/harness.h"

#include <unistd.h>

#include "tests/check.h"

enum { PATH_BYTES = 128 };

static char folder[] = "/tmp/ashlar-page-XXXXXX";
static const char *const names[] = {"machine.json", "plan.json"};

static const char *path_of(const char *name) {
    static char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void empty_folder(void) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)remove(path_of(names[i]));
    }
}

static ashlar_status put_results(void) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 0);
    const ashlar_status status = ashlar__results_put(folder, &w);
    ashlar__json_writer_finish(&w);
    return status;
}

CASE(what_is_no_result_is_named) {
    empty_folder();
    CHECK_FAILS(put_results(), ASHLAR_EIO, "no results");
    write_file("machine.json", "{}");
    CHECK_FAILS(put_results(), ASHLAR_EIO, "no results");
    write_file("plan.json", "{\"rows\": ");
    CHECK_FAILS(put_results(), ASHLAR_EFORMAT, "plan.json: ");
    write_file("plan.json", "{}");
    write_file("machine.json", "{");
    CHECK_FAILS(put_results(), ASHLAR_EFORMAT, "machine.json: ");
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 0);
    CHECK_FAILS(ashlar__results_put("/nowhere/at/all", &w), ASHLAR_EIO, "/nowhere/at/all");
    ashlar__json_writer_finish(&w);
}

int main(void) {
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    check_run_cases();
    empty_folder();
    (void)rmdir(folder);
    return check_report();
}
