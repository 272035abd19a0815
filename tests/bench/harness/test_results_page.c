/*
 * test_results_page.c - the page that is made from a folder of raw results, to the byte.
 */
#include "bench/harness/results.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "bench/harness/machine.h"
#include "allocator/soft/soft.h"

enum { PATH_BYTES = 128, TEXT_BYTES = 8192 };

static char folder[] = "/tmp/ashlar-page-XXXXXX";
static const char *const names[] = {
    "machine.json", "alloc.json", "alloc.txt",       "plan.json",     "arena.json", "rnn.json",
    "ran.txt",      "README.md",  "alloc.svg",       "plan.svg",      "arena.svg",  "rnn.svg",
    "costs.json",   "costs.svg",  "step_large.json", "step_large.svg"};

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

static bool is_there(const char *name) {
    struct stat info;
    return stat(path_of(name), &info) == 0;
}

static void empty_folder(void) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)remove(path_of(names[i]));
    }
}

#define ROW(who, ns, reserved)                                                             \
    "{\"workload\":\"mix\",\"variant\":\"reverse\",\"threads\":1,\"subject\":\"" who "\"," \
    "\"ns_pair\":" #ns ",\"reserved_over_live\":" #reserved "}"

static void write_alloc(void) {
    write_file("alloc.json", "[" ROW("ashlar", 20, 1.5) "," ROW("floor", 10, null) "," ROW(
                                 "cub", 50, 1.2) "," ROW("jemalloc", 15, null) "]");
}

static const char page[] =
    "# Results of 2026-11-21\n\n"
    "Made by `ashlar-bench report` from the files beside it; do not edit.\n\n"
    "| | |\n|---|---|\n| date | 2026-11-21 |\n| cores | 2 |\n\n"
    "## What was run\n\n```\ntests: passed\n```\n\n"
    "## Where we lose\n\n"
    "- alloc, mix reverse: `jemalloc` has 0.75 of our time of a pair (15 of 20 ns)\n"
    "- alloc, mix reverse: `cub` has 0.8 of our memory reserved for each byte in use (1.2 of "
    "1.5)\n"
    "- alloc, target missed: mix reverse pair cost / floor 9.1 (at most 8)\n\n"
    "## A pair of malloc and free (`alloc`)\n\n"
    "![A pair of malloc and free: time of a pair beside that of ashlar](alloc.svg)\n\n"
    "On the unknown device. Lower is better. `ashlar`: time of a pair; the others: theirs over "
    "that, so above 1 they take more.\n"
    "These files have no spread: every difference counts.\n\n"
    "| | ashlar, ns | floor | cub | jemalloc |\n|---|---:|---:|---:|---:|\n"
    "| mix reverse | 20 | 0.50 | 2.50 | 0.75 |\n";

CASE(the_page_says_where_we_lose) {
    empty_folder();
    write_alloc();
    write_file("alloc.txt",
               "a table\nmet      x\n"
               "NOT MET  mix       reverse   pair cost / floor     9.1  (at most 8)\n");
    write_file("machine.json",
               "{\"schema\":\"x/1\",\"date\":\"2026-11-21\",\"cores\":2,\"other\":null}");
    write_file("ran.txt", "tests: passed\n");
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
        const char *text = read_file("README.md");
        CHECK(strcmp(text, page) == 0);
        if (strcmp(text, page) != 0) {
            printf("# got:\n%s", text);
        }
    }
    CHECK(is_there("alloc.svg") && !is_there("plan.svg"));
    CHECK_HAS(read_file("alloc.svg"), "<svg ");
}

CASE(every_group_has_its_figures) {
    empty_folder();
    write_file("plan.json", "{\"rows\":[" ROW("ashlar", 20, 1) "," ROW("floor", 9, 1) "," ROW(
                                "plan", 10, 1) "],\"packings\":[]}");
    write_file("arena.json",
               "[{\"case\":\"model\",\"operation\":\"norm\",\"subject\":\"arena\",\"ns\":1500},"
               "{\"case\":\"model\",\"operation\":\"norm\",\"subject\":\"per_tensor\",\"ns\":3000},"
               "{\"case\":\"model\",\"operation\":\"zero\",\"subject\":\"per_tensor\",\"ns\":1}]");
    write_file("rnn.json", "{\"rows\":[{\"case\":\"lstm\",\"subject\":\"ashlar\",\"ms_step\":9},"
                           "{\"case\":\"lstm\",\"subject\":\"onednn\",\"ms_step\":9},"
                           "{\"case\":\"lstm\",\"subject\":\"static_buffer\",\"ms_step\":8}]}");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    const char *text = read_file("README.md");
    CHECK_HAS(text, "# Results\n");
    CHECK(strstr(text, "smoke") == NULL && strstr(text, "What was run") == NULL);
    CHECK_HAS(text, "## Where we lose\n\nNowhere in these files.\n");
    CHECK_HAS(text, "| | plan, ns | ashlar | floor |\n|---|---:|---:|---:|\n"
                    "| mix reverse | 10 | 2.00 | 0.90 |\n");
    CHECK_HAS(text, "| model norm | 1.5 | 2.00 |\n| model zero | - | 0.001 us |\n");
    CHECK_HAS(text, "| lstm | 9 | 1.00 | 0.89 |\n");
    CHECK(is_there("plan.svg") && is_there("arena.svg") && is_there("rnn.svg"));
}

/* cub's times overlap ours, jemalloc's do not. */
CASE(a_difference_inside_the_spread_is_no_loss) {
    empty_folder();
    write_file("alloc.json",
               "[{\"case\":\"x\",\"subject\":\"ashlar\",\"ns_pair\":20,\"ns_pair_low\":18,"
               "\"ns_pair_high\":22},{\"case\":\"x\",\"subject\":\"cub\",\"ns_pair\":17,"
               "\"ns_pair_low\":16,\"ns_pair_high\":19},{\"case\":\"x\",\"subject\":\"jemalloc\","
               "\"ns_pair\":15,\"ns_pair_low\":14,\"ns_pair_high\":16},"
               "{\"case\":\"x\",\"subject\":\"driver_each_step\",\"ns_pair\":900}]");
    write_file("machine.json", "{\"device\":\"ashlar software device\"}");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    const char *text = read_file("README.md");
    CHECK_HAS(text, "`jemalloc` has 0.75 of our time");
    CHECK(strstr(text, "`cub` has") == NULL);
    CHECK_HAS(text, "On the software device. Lower is better.");
    CHECK_HAS(text, "Where those of two overlap (~) neither is better.");
    CHECK_HAS(text, "| | ashlar, ns | cub | jemalloc | software device each step |\n");
    CHECK_HAS(text, "| x | 20 (18 to 22) | ~0.85 | 0.75 | 45.00 |\n");
    CHECK_HAS(read_file("alloc.svg"), "On the software device</text>");
    write_file("machine.json", "{\"device\":\"NVIDIA H200\"}"); /* which has one */
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    CHECK_HAS(read_file("README.md"), "On the NVIDIA H200. ");
    CHECK_HAS(read_file("README.md"), "| jemalloc | driver_each_step |\n");
}

/* Then there is nothing to draw the others beside. */
/* A larger size that is faster is no loss; PyTorch's step is, our own graphs' is not. */
CASE(what_a_gpu_was_asked_has_its_tables) {
    empty_folder();
    write_file("costs.json", "[{\"call\":\"cuMemMap\",\"subject\":\"2 MiB\",\"ns\":4000},"
                             "{\"call\":\"cuMemMap\",\"subject\":\"4 MiB\",\"ns\":1000}]");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    CHECK_HAS(read_file("README.md"), "Nowhere in these files.\n");
    CHECK_HAS(read_file("README.md"), "| | 2 MiB, us | 4 MiB |\n|---|---:|---:|\n"
                                      "| cuMemMap | 4 | 0.25 |\n");
    write_file("step_large.json",
               "[{\"case\":\"large_bf16\",\"subject\":\"ashlar\",\"ms_step\":4},"
               "{\"case\":\"large_bf16\",\"subject\":\"ashlar_graphs\",\"ms_step\":2},"
               "{\"case\":\"large_bf16\",\"subject\":\"torch\",\"ms_step\":3}]");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    CHECK_HAS(read_file("README.md"),
              "## Where we lose\n\n- step_large, large_bf16: `torch` has 0.75 of our time of a "
              "step (3 of 4 ms)\n\n## ");
    CHECK(is_there("step_large.svg"));
}

CASE(without_our_figures_there_is_a_table_only) {
    empty_folder();
    write_file("alloc.json", "[{\"case\":\"x\",\"subject\":\"cub\",\"ns_pair\":17}]");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    CHECK(!is_there("alloc.svg") && strstr(read_file("README.md"), ".svg") == NULL);
    CHECK_HAS(read_file("README.md"), "| x | - | 17 ns |\n");
}

CASE(a_smoke_run_is_called_one) {
    empty_folder();
    write_alloc();
    write_file("machine.json", "{\"smoke\":true}");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    CHECK_HAS(read_file("README.md"), "Its figures mean nothing");
    write_file("machine.json", "{\"smoke\":false}");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_OK);
    CHECK(strstr(read_file("README.md"), "mean nothing") == NULL);
}

CASE(bad_files_are_errors) {
    empty_folder();
    CHECK_FAILS(ashlar__results_page_write(folder), ASHLAR_EIO, "no results");
    CHECK(ashlar__results_page_write("/nowhere/at/all") == ASHLAR_EIO);
    write_file("alloc.json", "[{]");
    CHECK_FAILS(ashlar__results_page_write(folder), ASHLAR_EFORMAT, "alloc.json");
    write_file("alloc.json", "[7]");
    CHECK(ashlar__results_page_write(folder) == ASHLAR_EFORMAT);
    write_alloc();
    write_file("machine.json", "{");
    CHECK_FAILS(ashlar__results_page_write(folder), ASHLAR_EFORMAT, "machine.json");
    CHECK(!is_there("README.md"));
}

CASE(host_memory_may_end_at_every_point) {
    empty_folder();
    write_alloc();
    write_file("machine.json", "{\"cores\":2}");
    FOR_HOST_FAILURES(n, status, ashlar__results_page_write(folder)) {
        CHECK(n < 200);
    }
    CHECK(n > 5);
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
