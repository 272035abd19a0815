/* fuzz_pack_table.c - any bytes as a packing problem, packed and written where they are one. */
#include "tests/fuzz/fuzz.h"

#include "bench/replay/bench_pack.h"

const char fuzz_claim[] = "every_problem_is_refused_or_read_packed_and_written_back_the_same";

#define HEADER "id,lower,upper,size\n"

static const char *const samples[] = {
    HEADER "0,995328,1000448,656384\n1,779264,828416,183296\n2,0,1048576,5120\n",
    "\xef\xbb\xbfsize, id ,offset,upper,lower\r\n\r\n4,a,,7,1\r\n9,b,3,8,2",
    HEADER "0,0,2,3\n1,1,3,2\n2,2,4,3\n3,3,5,1\n4,0,5,1\n",
    HEADER "0,0,18446744073709551615,18446744073709551615\n1,0,1,1\n",
    HEADER "0,0,18446744073709551615,9223372036854775807\n1,1,2,9223372036854775807\n",
    HEADER "0,1,1,1\n",
    HEADER "0,-1,1,1\n",
    HEADER "0,1,2,3\n0,1,2,3\n",
    HEADER,
    "id,lower,upper,size,gaps\n",
};

FUZZ_SEEDS(samples)

static void check_rows(const ashlar_pack_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        FUZZ_CHECK(table->buffers[i].bytes > 0);
        FUZZ_CHECK(table->buffers[i].begin < table->buffers[i].end);
        FUZZ_CHECK(table->ids[i].bytes > 0);
    }
}

/* A plan, or more bytes than size_t holds. */
static void check_plan(const ashlar_pack_table *table) {
    size_t *offsets = malloc((table->count + 1) * sizeof *offsets);
    size_t bytes = 0;
    ashlar_pack_result result;
    FUZZ_CHECK(offsets != NULL);
    const ashlar_status status = ashlar_pack(table->buffers, table->count, NULL, offsets, &result);
    FUZZ_CHECK(status == ASHLAR_OK || status == ASHLAR_EOVERFLOW);
    if (status == ASHLAR_OK) {
        FUZZ_CHECK(ashlar__pack_check(table->buffers, table->count, offsets, &bytes) ==
                   ASHLAR_OK);
        FUZZ_CHECK(bytes == result.plan_bytes && bytes >= result.bound_bytes);
    }
    free(offsets);
}

static void check_same(const ashlar_pack_table *a, const ashlar_pack_table *b) {
    FUZZ_CHECK(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        FUZZ_CHECK(a->buffers[i].bytes == b->buffers[i].bytes);
        FUZZ_CHECK(a->buffers[i].begin == b->buffers[i].begin);
        FUZZ_CHECK(a->buffers[i].end == b->buffers[i].end);
        FUZZ_CHECK(a->ids[i].bytes == b->ids[i].bytes);
        FUZZ_CHECK(memcmp(a->ids[i].text, b->ids[i].text, a->ids[i].bytes) == 0);
    }
}

static char folder[] = "/tmp/ashlar-fuzz-XXXXXX";
static char path[64];

static void remove_folder(void) {
    (void)unlink(path);
    (void)rmdir(folder);
}

static void make_folder(void) {
    if (path[0] != '\0') {
        return;
    }
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/problem.csv", folder);
    (void)atexit(remove_folder);
}

/* Written to a file and read back. */
static void check_written(const ashlar_pack_table *table) {
    ashlar_pack_table back;
    make_folder();
    FUZZ_CHECK(ashlar__pack_table_write(table, NULL, path) == ASHLAR_OK);
    FUZZ_CHECK(ashlar__pack_table_read(path, &back) == ASHLAR_OK);
    check_same(table, &back);
    ashlar__pack_table_finish(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    ashlar_pack_table table = {0};
    const ashlar_status status =
        ashlar__pack_table_parse("stone", (const char *)data, bytes, &table);
    if (status != ASHLAR_OK) {
        FUZZ_CHECK(status == ASHLAR_EFORMAT && table.buffers == NULL);
        FUZZ_CHECK(strncmp(ashlar_error_detail(), "stone:", 6) == 0);
        return 0;
    }
    check_rows(&table);
    check_plan(&table);
    check_written(&table);
    ashlar__pack_table_finish(&table);
    return 0;
}
