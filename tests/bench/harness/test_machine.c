/*
 * test_machine.c - the machine, as it is told beside raw results.
 */
#include "bench/harness/harness.h"

#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

enum { PATH_BYTES = 128, TEXT_BYTES = 8192 };

static char folder[] = "/tmp/ashlar-page-XXXXXX";

static const char *path_of(const char *name) {
    static char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
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

CASE(the_machine_is_told_without_its_name) {
    ashlar_device *device = NULL;
    char host[256] = "";
    const ashlar_machine_part part = {"cub", "2.1.0"};
    const ashlar_machine_config config = {
        .commit = "abc", .is_smoke = true, .parts = &part, .part_count = 1};
    REQUIRE(ashlar__soft_configure("") == ASHLAR_OK);
    REQUIRE(ashlar_device_open("soft", &device) == ASHLAR_OK);
    CHECK(ashlar__machine_write(&config, device, path_of("machine.json")) == ASHLAR_OK);
    const char *text = read_file("machine.json");
    CHECK_HAS(text, "{\n  \"schema\": \"ashlar-machine/1\",\n  \"date\": \"20");
    CHECK_HAS(text, "  \"commit\": \"abc\",\n  \"smoke\": true,\n");
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
    (void)remove(path_of("machine.json"));
    (void)rmdir(folder);
    return check_report();
}
