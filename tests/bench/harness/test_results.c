/*
 * test_results.c - the document that is made from a folder of raw results, and the machine in it.
 */
#include "bench/harness/harness.h"

#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

enum { PATH_BYTES = 128, TEXT_BYTES = 8192 };

static char folder[] = "/tmp/ashlar-page-XXXXXX";
static const char *const names[] = {"machine.json", "alloc.json", "alloc.txt", "plan.json",
                                    "ran.txt"};

static const char *path_of(const char *name) {
    static char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static const char *read_file(const char *name) {
    static char text[TEXT_BYTES];
    FILE *file = fopen(path_of(name), "rb");
    size_t bytes = 0;
    if (file != NULL) {
        bytes = fread(text, 1, sizeof text - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    return text;
}

static void empty_folder(void) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)remove(path_of(names[i]));
    }
}

/* Put the folder's results, and compare the document. NULL: it fails, and `want` is not looked at.
 */
static ashlar_status put_results(const char *want) {
    ashlar_json_writer w;
    const char *text = "";
    size_t bytes;
    ashlar__json_writer_init(&w, 0);
    ashlar_status status = ashlar__results_put(folder, &w);
    ASHLAR_THEN(status, ashlar__json_writer_text(&w, &text, &bytes));
    if (status == ASHLAR_OK && want != NULL && strcmp(text, want) != 0) {
        printf("# %s\n", text);
        CHECK(false);
    }
    ashlar__json_writer_finish(&w);
    return status;
}

static void write_all(void) {
    write_file("machine.json", "{\"cores\": 2}\n");
    write_file("plan.json", "{\"rows\": []}");
    write_file("alloc.json", "[{\"ns\": 1.50}]");
    write_file("alloc.txt", "a \"b\"\n");
    write_file("ran.txt", "tests: passed\n");
}

CASE(all_files_are_in_one_document) {
    empty_folder();
    write_all();
    CHECK(put_results("{\"schema\":\"ashlar-results/1\",\"machine\":{\"cores\": 2}\n,\"groups\":{"
                      "\"alloc\":[{\"ns\": 1.50}],\"plan\":{\"rows\": []}},"
                      "\"printed\":{\"alloc\":\"a \\\"b\\\"\\n\"},"
                      "\"ran\":\"tests: passed\\n\"}") == ASHLAR_OK);
}

CASE(what_is_no_result_is_named) {
    empty_folder();
    CHECK_FAILS(put_results(NULL), ASHLAR_EIO, "no results");
    write_file("machine.json", "{}");
    CHECK_FAILS(put_results(NULL), ASHLAR_EIO, "no results");
    write_file("plan.json", "{\"rows\": ");
    CHECK_FAILS(put_results(NULL), ASHLAR_EFORMAT, "plan.json: ");
    write_file("plan.json", "{}");
    write_file("machine.json", "{");
    CHECK_FAILS(put_results(NULL), ASHLAR_EFORMAT, "machine.json: ");
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 0);
    CHECK_FAILS(ashlar__results_put("/nowhere/at/all", &w), ASHLAR_EIO, "/nowhere/at/all");
    ashlar__json_writer_finish(&w);
}

/* ---- the machine ---- */

CASE(the_machine_is_told_without_its_name) {
    ashlar_device *device = NULL;
    char host[256] = "";
    const ashlar_machine_part part = {"cub", "2.1.0"};
    const ashlar_machine_config config = {
        .date = "1970-01-01", .commit = "abc", .is_smoke = true, .parts = &part, .part_count = 1};
    empty_folder();
    REQUIRE(ashlar__soft_configure("") == ASHLAR_OK);
    REQUIRE(ashlar_device_open("soft", &device) == ASHLAR_OK);
    CHECK(ashlar__machine_write(&config, device, path_of("machine.json")) == ASHLAR_OK);
    const char *text = read_file("machine.json");
    CHECK_HAS(text, "{\n  \"schema\": \"ashlar-machine/1\",\n  \"date\": \"1970-01-01\",\n  "
                    "\"commit\": \"abc\",\n  \"smoke\": true,\n");
    CHECK_HAS(text, "\"cores\": ");
    CHECK_HAS(text, "\"memory_gib\": ");
    CHECK(strstr(text, "\"memory_gib\": 0,") == NULL);
    CHECK_HAS(text, "\"compiler\": \"");
    CHECK_HAS(text, "\"device\": \"");
    CHECK_HAS(text, "\"products\": \"");
    CHECK_HAS(text, "\"cub\": \"2.1.0\"\n}");
    CHECK(strchr(text, '/') == NULL || getenv("HOME") == NULL || strstr(text, "/home") == NULL);
    CHECK(gethostname(host, sizeof host - 1) == 0);
    CHECK(host[0] == '\0' || strcmp(host, "localhost") == 0 || strstr(text, host) == NULL);
    const ashlar_machine_config plain = {0};
    CHECK(ashlar__machine_write(&plain, device, path_of("machine.json")) == ASHLAR_OK);
    text = read_file("machine.json");
    CHECK_HAS(text, "{\n  \"schema\": \"ashlar-machine/1\",\n  \"date\": \"20");
    CHECK(strstr(text, "commit") == NULL && strstr(text, "smoke") == NULL);
    CHECK(ashlar__machine_write(&plain, device, "/nowhere/at/all.json") == ASHLAR_EIO);
    ashlar_device_close(device);
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
