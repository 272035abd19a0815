/*
 * test_safetensors_memory.c - that a header takes no more host memory than a few times its length,
 * whatever is in it.
 */
#include <sys/resource.h>

#include "tests/arena/checkpoint/safetensors_fixture.h"
#include "tests/child.h"

enum { HEADER_BYTES = 8 << 20, TIMES = 10 };

static char header[HEADER_BYTES + 1];
static size_t used;
static bool is_good; /* the header is to be accepted */

static void put(const char *text) {
    const size_t bytes = strlen(text);
    memcpy(header + used, text, bytes);
    used += bytes;
}

/* As many pieces as there is room for, but for the text behind them. */
static void fill(const char *piece, const char *behind) {
    while (used + strlen(piece) + strlen(behind) < HEADER_BYTES) {
        put(piece);
    }
    put(behind);
}

static size_t address_bytes(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        CHECK(fscanf(file, "%zu", &pages) == 1);
        (void)fclose(file);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void open_it(void) {
    ashlar_safetensors *file = NULL;
    const rlim_t most = address_bytes() + (rlim_t)TIMES * HEADER_BYTES;
    const struct rlimit limit = {most, most};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    const ashlar_status status = ashlar__safetensors_open(path, &file);
    if (status != (is_good ? ASHLAR_OK : ASHLAR_EFORMAT)) {
        fprintf(stderr, "%s\n", ashlar_error_detail());
    }
    CHECK(status == (is_good ? ASHLAR_OK : ASHLAR_EFORMAT));
    ashlar__safetensors_close(file);
}

/* In a child, since the limit is for good. */
static bool is_opened_in_little_memory(bool good) {
    unsigned char length[8];
    is_good = good;
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)(used >> (8 * i));
    }
    FILE *file = fopen(path, "wb");
    const bool is_there = file != NULL && fwrite(length, 1, 8, file) == 8 &&
                          fwrite(header, 1, used, file) == used && fclose(file) == 0;
    used = 0;
    return is_there && child_passes(open_it);
}

static bool has_sanitizer(void) {
    return address_bytes() >> 40 > 0; /* it reserves addresses, which the limit counts */
}

CASE(a_header_of_tensors_takes_a_few_times_its_length) {
    char piece[80];
    SKIP_IF(has_sanitizer(), "a sanitizer's memory has no limit");
    put("{");
    for (unsigned i = 0; used + sizeof piece < HEADER_BYTES; i++) {
        (void)snprintf(piece, sizeof piece,
                       "%s\"%x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                       i > 0 ? "," : "", i);
        put(piece);
    }
    put("}");
    CHECK(is_opened_in_little_memory(true));
}

CASE(a_header_of_metadata_takes_a_few_times_its_length) {
    char piece[20];
    SKIP_IF(has_sanitizer(), "a sanitizer's memory has no limit");
    put("{\"__metadata__\":{");
    for (unsigned i = 0; used + sizeof piece < HEADER_BYTES; i++) {
        (void)snprintf(piece, sizeof piece, "%s\"%x\":\"\"", i > 0 ? "," : "", i);
        put(piece);
    }
    put("}}");
    CHECK(is_opened_in_little_memory(true));
}

/* Values as short as they can be, in each place where there may be one. */
CASE(a_header_of_anything_takes_a_few_times_its_length) {
    static const struct {
        const char *before, *piece, *behind;
    } texts[] = {
        {"{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,0],\"shape\":[0", ",0", "]}}"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0", ",0", "]}}"},
        {"{\"t\":{\"dtype\":[0", ",0", "],\"shape\":[0],\"data_offsets\":[0,0]}}"},
        {"{\"t\":[0", ",0", "]}"},
        {"{\"t\":0", ",\"\":0", "}"},
        {"{\"__metadata__\":{\"k\":[0", ",0", "]}}"},
        {"[0", ",0", "]"},
        {"[[]", ",[]", "]"},
        {"{\"t\":\"", "{[,", "\"}"},
        {"{\"__metadata__\":{\"k\":\"", "{[,", "\"},\"t\":0}"},
    };
    SKIP_IF(has_sanitizer(), "a sanitizer's memory has no limit");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put(texts[i].before);
        fill(texts[i].piece, texts[i].behind);
        CHECK(is_opened_in_little_memory(false));
    }
}

RUN_CASES_IN_FOLDER()
