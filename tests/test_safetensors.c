/*
 * test_safetensors.c - the checkpoint file: what is written, what is read back, what is refused,
 * and that nothing half-written ever stands under the target's name (file.h).
 */
#include "safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "file.h"
#include "host.h"

enum { FILE_MAX_BYTES = 4096 };

static char folder[] = "/tmp/ashlar-safetensors-XXXXXX";
static char path[64]; /* the one file that the cases write */

static const float narrow[6] = {1, 2, 3, 4, 5, 6.5F};
static const float one = -1;
static const double wide[2] = {0.1, 1e300};

/* Narrow ones before the wide one: the writer has to reorder them. */
static const ashlar_safetensors_entry sample[] = {
    {"layer.0/W \"\xc3\xa4\"", ASHLAR_F32, 2, {2, 3}, narrow},
    {"one", ASHLAR_F32, 0, {0}, &one},
    {"none", ASHLAR_F32, 3, {4, 0, 2}, NULL},
    {"wide", ASHLAR_F64, 1, {2}, wide},
};
enum { SAMPLE_COUNT = sizeof sample / sizeof sample[0] };
static const ashlar_safetensors_pair pairs[] = {{"step", "12"}, {"note", "a\nb \xe2\x82\xac"}};

static ashlar_status write_sample(void) {
    return ashlar_safetensors_write(path, sample, SAMPLE_COUNT, pairs, 2);
}

static size_t read_bytes(unsigned char *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    const size_t got = fread(bytes, 1, FILE_MAX_BYTES, file);
    (void)fclose(file);
    return got;
}

static void write_bytes(const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) {
        perror(path);
        exit(99);
    }
}

/* A file of this header, without padding, and `data_bytes` bytes of data. */
static void write_header(const char *header, size_t data_bytes) {
    unsigned char bytes[FILE_MAX_BYTES] = {0};
    const size_t count = strlen(header);
    bytes[0] = (unsigned char)(count & 0xff);
    bytes[1] = (unsigned char)(count >> 8);
    memcpy(bytes + 8, header, count);
    write_bytes(bytes, 8 + count + data_bytes);
}

static int names_in_folder(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count - 2; /* "." and ".." */
}

/* --- writing and reading back --------------------------------------------------------------- */

static void tensors_and_metadata_come_back(void) {
    ashlar_safetensors *file;
    REQUIRE(write_sample() == ASHLAR_OK);
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(ashlar_safetensors_count(file), SAMPLE_COUNT);
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        const ashlar_safetensors_entry *got = ashlar_safetensors_find(file, sample[i].name);
        size_t bytes = 1;
        REQUIRE(got != NULL);
        CHECK(strcmp(got->name, sample[i].name) == 0);
        CHECK(got->dtype == sample[i].dtype && got->rank == sample[i].rank);
        CHECK(memcmp(got->shape, sample[i].shape, sizeof got->shape) == 0);
        CHECK(ashlar_safetensors_entry_bytes(got, &bytes) == ASHLAR_OK);
        CHECK(bytes == 0 || memcmp(got->data, sample[i].data, bytes) == 0);
        CHECK((uintptr_t)got->data % ashlar_dtype_bytes(got->dtype) == 0);
    }
    CHECK(ashlar_safetensors_find(file, "on") == NULL);
    CHECK(ashlar_safetensors_find(file, "__metadata__") == NULL);
    CHECK(strcmp(ashlar_safetensors_metadata(file, "step"), "12") == 0);
    CHECK(strcmp(ashlar_safetensors_metadata(file, "note"), pairs[1].value) == 0);
    CHECK(ashlar_safetensors_metadata(file, "other") == NULL);
    CHECK(strcmp(ashlar_safetensors_at(file, 0)->name, "wide") == 0);
    for (size_t i = 1; i < SAMPLE_COUNT; i++) {
        CHECK((uintptr_t)ashlar_safetensors_at(file, i)->data >=
              (uintptr_t)ashlar_safetensors_at(file, i - 1)->data);
    }
    ashlar_safetensors_close(file);
}

/* The bytes, spelt out: what other programs rely on. */
static void the_file_is_what_the_format_says(void) {
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"},\"t\":{\"dtype\":\"F32\","
                                 "\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    const ashlar_safetensors_entry entry = {"t", ASHLAR_F32, 2, {2, 1}, narrow};
    const ashlar_safetensors_pair pair = {"k", "v"};
    unsigned char bytes[FILE_MAX_BYTES];
    REQUIRE(ashlar_safetensors_write(path, &entry, 1, &pair, 1) == ASHLAR_OK);
    const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    CHECK(padded > sizeof header - 1); /* so that there is padding to look at */
    REQUIRE(read_bytes(bytes) == 8 + padded + 8);
    CHECK(bytes[0] == padded && bytes[1] == 0 && bytes[7] == 0);
    CHECK(memcmp(bytes + 8, header, sizeof header - 1) == 0);
    for (size_t i = sizeof header - 1; i < padded; i++) {
        CHECK(bytes[8 + i] == ' ');
    }
    CHECK(memcmp(bytes + 8 + padded, narrow, 8) == 0);
}

/* Names of 1 .. 8 bytes: each length of padding once, and never 8. */
static void the_header_is_padded_no_more_than_needed(void) {
    char name[9] = "";
    int seen[8] = {0};
    for (size_t i = 0; i < 8; i++) {
        unsigned char bytes[FILE_MAX_BYTES];
        name[i] = 'n';
        const ashlar_safetensors_entry entry = {name, ASHLAR_F32, 0, {0}, &one};
        REQUIRE(ashlar_safetensors_write(path, &entry, 1, NULL, 0) == ASHLAR_OK);
        const size_t count = read_bytes(bytes);
        REQUIRE(count > 8 && count == 8 + (size_t)bytes[0] + sizeof one);
        CHECK(bytes[0] % 8 == 0);
        const size_t end = 8 + (size_t)bytes[0];
        size_t padding = 0;
        while (bytes[end - 1 - padding] == ' ') {
            padding++;
        }
        REQUIRE(padding < 8);
        seen[padding]++;
    }
    for (int i = 0; i < 8; i++) {
        CHECK(seen[i] == 1);
    }
}

static bool is_mapped(void) {
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        found = found || strstr(line, path) != NULL;
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return found;
}

static void a_closed_file_holds_nothing(void) {
    ashlar_safetensors *file;
    REQUIRE(write_sample() == ASHLAR_OK);
    const int free_fd = open("/dev/null", O_RDONLY);
    CHECK(free_fd >= 0 && close(free_fd) == 0);
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    CHECK(is_mapped());
    const int next_fd = open("/dev/null", O_RDONLY);
    CHECK(next_fd == free_fd && close(next_fd) == 0);
    ashlar_safetensors_close(file);
    CHECK(!is_mapped());
}

static void a_file_without_tensors_is_a_file(void) {
    ashlar_safetensors *file;
    REQUIRE(ashlar_safetensors_write(path, NULL, 0, NULL, 0) == ASHLAR_OK);
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    CHECK_ZU(ashlar_safetensors_count(file), 0);
    CHECK(ashlar_safetensors_find(file, "x") == NULL);
    CHECK(ashlar_safetensors_metadata(file, "x") == NULL);
    ashlar_safetensors_close(file);
}

static void many_tensors_are_found_by_name(void) {
    enum { MANY = 500 };
    static char names[MANY][8];
    static ashlar_safetensors_entry entries[MANY];
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%d", i * 7 % MANY);
        entries[i] =
            (ashlar_safetensors_entry){names[i], ASHLAR_F32, 1, {1}, &narrow[i * 7 % MANY % 6]};
    }
    ashlar_safetensors *file;
    REQUIRE(ashlar_safetensors_write(path, entries, MANY, NULL, 0) == ASHLAR_OK);
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%d", i);
        const ashlar_safetensors_entry *found = ashlar_safetensors_find(file, name);
        REQUIRE(found != NULL);
        CHECK(memcmp(found->data, &narrow[i % 6], sizeof(float)) == 0);
    }
    ashlar_safetensors_close(file);
}

static void check_write_refused(const ashlar_safetensors_entry *entries, size_t count,
                                const ashlar_safetensors_pair *pair, ashlar_status status,
                                const char *part) {
    CHECK(ashlar_safetensors_write(path, entries, count, pair, pair != NULL) == status);
    CHECK_HAS(ashlar_error_detail(), part);
    CHECK(access(path, F_OK) != 0);
}

static void what_cannot_be_read_back_is_not_written(void) {
    const size_t big = (size_t)1 << 40;
    ashlar_safetensors_entry e[3] = {sample[0], sample[1], sample[0]};
    (void)unlink(path);
    check_write_refused(e, 3, NULL, ASHLAR_EINVAL, "twice");
    e[0].name = "__metadata__";
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "reserved");
    e[0].name = "a\xff";
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "UTF-8");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 9, {1}, narrow};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_DTYPE_COUNT, 1, {1}, narrow};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 2, {big, big}, narrow};
    check_write_refused(e, 1, NULL, ASHLAR_EOVERFLOW, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 3, {big, big, 0}, NULL};
    check_write_refused(e, 1, NULL, ASHLAR_EOVERFLOW, "'t'");
    e[0] = (ashlar_safetensors_entry){"t", ASHLAR_F32, 1, {1}, NULL};
    check_write_refused(e, 1, NULL, ASHLAR_EINVAL, "no data");
    e[0] = (ashlar_safetensors_entry){"a", ASHLAR_F32, 1, {SIZE_MAX / 4}, narrow};
    e[1] = (ashlar_safetensors_entry){"b", ASHLAR_F32, 1, {SIZE_MAX / 4}, narrow};
    check_write_refused(e, 2, NULL, ASHLAR_EOVERFLOW, "'b'");
    check_write_refused(sample, 1, &(ashlar_safetensors_pair){"k", "\x80"}, ASHLAR_EINVAL, "'k'");
    check_write_refused(sample, 1, &(ashlar_safetensors_pair){"\x80", "v"}, ASHLAR_EINVAL,
                        "UTF-8");
}

/* --- refusing ------------------------------------------------------------------------------- */

static void check_refused(const char *part) {
    ashlar_safetensors *const untouched = (ashlar_safetensors *)folder;
    ashlar_safetensors *file = untouched;
    CHECK(ashlar_safetensors_open(path, &file) == ASHLAR_EFORMAT);
    CHECK(file == untouched);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK_HAS(ashlar_error_detail(), part);
}

#define T(dtype, shape, offsets) \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *reason;
} foreign[] = {
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 8, NULL}, /* good: the frame of the others */
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 7, "outside the file"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") "}", 9, "9 bytes of data, 8 described"},
    {"{\"t\":" T("\"BF16\"", "[2]", "[0,4]") "}", 4, "dtype that is none of F32 F64"},
    {"{\"t\":" T("\"F3\"", "[2]", "[0,8]") "}", 8, "dtype"},
    {"{\"t\":" T("32", "[2]", "[0,8]") "}", 8, "dtype"},
    {"{\"t\":" T("\"F32\"", "[3]", "[0,8]") "}", 8, "does not match its data_offsets"},
    {"{\"t\":" T("\"F32\"", "[-2]", "[0,8]") "}", 8, "a shape"},
    {"{\"t\":" T("\"F32\"", "[2.0]", "[0,8]") "}", 8, "a shape"},
    {"{\"t\":" T("\"F32\"", "2", "[0,8]") "}", 8, "a shape"},
    {"{\"t\":" T("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, "too high a rank"},
    {"{\"t\":" T("\"F32\"", "[4611686018427387906]", "[0,8]") "}", 8, "does not match"},
    {"{\"t\":" T("\"F32\"", "[2]", "[8,0]") "}", 8, "outside the file"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0]") "}", 8, "data_offsets"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8,8]") "}", 8, "data_offsets"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,18446744073709551615]") "}", 8, "outside the file"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "not described by"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
     "not described by"},
    {"{\"t\":{\"dtype\":\"F32\",\"x\":[2],\"data_offsets\":[0,8]}}", 8, "not described by"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"x\":[0,8]}}", 8, "not described by"},
    {"{\"t\":" T("\"F32\"", "[0]", "[0]") "}", 0, "data_offsets"},
    {"{\"t\":" T("\"F32\"", "[\"\"]", "[0,0]") "}", 0, "a shape"},
    {"{\"t\":" T("\"F32\"", "[4611686018427387904]", "[0,0]") "}", 0, "does not match"},
    {"{\"t\":[1,2,3]}", 0, "not described by"},
    {"{\"t\":1}", 0, "not described by"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"t\":" T("\"F32\"", "[1]", "[4,8]") "}", 8,
     "'t' is there twice"},
    {"{\"t\":" T("\"F32\"", "[1]", "[0,4]") ",\"u\":" T("\"F32\"", "[1]", "[5,9]") "}", 9,
     "does not begin where the last ended"},
    {"{\"t\":" T("\"F32\"", "[2]", "[0,8]") ",\"u\":" T("\"F32\"", "[2]", "[4,12]") "}", 12,
     "does not begin where the last ended"},
    {"{\"t\":" T("\"F32\"", "[1]", "[4,8]") "}", 8, "does not begin where the last ended"},
    {"{\"a\\u0000b\":" T("\"F32\"", "[2]", "[0,8]") "}", 8, "byte 0"},
    {"{\"__metadata__\":[]}", 0, "not one object"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "not one object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is metadata other than text"},
    {"{\"__metadata__\":{\"k\":\"\\u0000\"}}", 0, "'k' is metadata other than text"},
    {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", 0, "'k' is metadata given twice"},
    {"[]", 0, "not an object"},
    {"{} x", 0, "JSON, byte 3"},
    {"", 0, "JSON, byte 0"},
};

static void foreign_and_inconsistent_files_are_refused_with_the_reason(void) {
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        write_header(foreign[i].header, foreign[i].data_bytes);
        if (foreign[i].reason != NULL) {
            check_refused(foreign[i].reason);
            continue;
        }
        ashlar_safetensors *file;
        REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
        ashlar_safetensors_close(file);
    }
}

/* Tensors in any order of the header, an empty one between them. */
static void the_order_of_the_header_is_free(void) {
    write_header("{\"b\":" T("\"F32\"", "[1]", "[4,8]") ",\"e\":" T("\"F64\"", "[0]", "[4,4]")
                 ",\"a\":" T("\"F32\"", "[]", "[0,4]") "}  \n", 8);
    ashlar_safetensors *file;
    REQUIRE(ashlar_safetensors_open(path, &file) == ASHLAR_OK);
    CHECK(strcmp(ashlar_safetensors_at(file, 0)->name, "a") == 0);
    CHECK(strcmp(ashlar_safetensors_at(file, 1)->name, "e") == 0);
    CHECK(strcmp(ashlar_safetensors_at(file, 2)->name, "b") == 0);
    ashlar_safetensors_close(file);
}

static void a_header_longer_than_file_or_limit_is_refused(void) {
    static const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const unsigned char long_by_one[10] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    write_bytes(huge, sizeof huge);
    check_refused("longer than the file");
    write_bytes(long_by_one, sizeof long_by_one);
    check_refused("longer than the file");
    write_bytes(huge, 7);
    check_refused("too short");
    /* A sparse file: 100,000,001 bytes of header, were it read. */
    static const unsigned char limit[8] = {0x01, 0xe1, 0xf5, 0x05};
    write_bytes(limit, sizeof limit);
    REQUIRE(truncate(path, 200000000) == 0);
    check_refused("the format allows");
    (void)unlink(path);
    ashlar_safetensors *file;
    CHECK(ashlar_safetensors_open(path, &file) == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK(ashlar_safetensors_open(folder, &file) == ASHLAR_EFORMAT);
}

static void a_file_cut_anywhere_is_refused(void) {
    unsigned char bytes[FILE_MAX_BYTES];
    REQUIRE(write_sample() == ASHLAR_OK);
    const size_t count = read_bytes(bytes);
    REQUIRE(count > 100 && count < FILE_MAX_BYTES);
    for (size_t i = 0; i < count; i++) {
        write_bytes(bytes, i);
        check_refused("");
    }
}

/* Read every element of every tensor: what is accepted must lie inside the file. */
static unsigned int touch_everything(const ashlar_safetensors *file, size_t *bytes_total) {
    unsigned int sum = 0;
    *bytes_total = 0;
    for (size_t i = 0; i < ashlar_safetensors_count(file); i++) {
        const ashlar_safetensors_entry *entry = ashlar_safetensors_at(file, i);
        const unsigned char *data = entry->data;
        size_t bytes = 0;
        CHECK(ashlar_safetensors_entry_bytes(entry, &bytes) == ASHLAR_OK);
        for (size_t k = 0; k < bytes; k++) {
            sum += data[k];
        }
        *bytes_total += bytes;
        sum += ashlar_safetensors_find(file, entry->name) == entry;
    }
    return sum;
}

static void a_flipped_header_byte_never_leads_outside(void) {
    unsigned char bytes[FILE_MAX_BYTES];
    REQUIRE(write_sample() == ASHLAR_OK);
    const size_t count = read_bytes(bytes);
    const size_t header_end = 8 + (size_t)bytes[0] + (size_t)bytes[1] * 256;
    REQUIRE(header_end < count && count < FILE_MAX_BYTES);
    unsigned int sum = 0;
    int accepted = 0;
    for (size_t i = 0; i < header_end; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char)(1 << bit);
            write_bytes(bytes, count);
            bytes[i] ^= (unsigned char)(1 << bit);
            ashlar_safetensors *file;
            const ashlar_status status = ashlar_safetensors_open(path, &file);
            CHECK(status == ASHLAR_OK || status == ASHLAR_EFORMAT);
            if (status == ASHLAR_OK) {
                size_t total;
                sum += touch_everything(file, &total);
                CHECK_ZU(total, count - header_end);
                accepted++;
                ashlar_safetensors_close(file);
            }
        }
    }
    printf("# %zu header bytes, %d flips accepted (in names and texts), sum %u\n", header_end,
           accepted, sum);
    CHECK(accepted > 0 && sum > 0); /* a flipped letter of a name is another name */
}

/* --- nothing half-written ------------------------------------------------------------------- */

/* A file with an old text, and a new one begun beside it. */
static bool begin_replacement(ashlar_file **file) {
    write_bytes("old", 3);
    return ashlar_file_create(path, file) == ASHLAR_OK &&
           ashlar_file_write(*file, "new text", 8) == ASHLAR_OK;
}

static void the_target_is_old_until_the_commit(void) {
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_file *file;
    REQUIRE(begin_replacement(&file));
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
    CHECK(names_in_folder() == 2);
    CHECK(ashlar_file_commit(file) == ASHLAR_OK);
    CHECK(read_bytes(bytes) == 8 && memcmp(bytes, "new text", 8) == 0);
    CHECK(names_in_folder() == 1);
}

static void an_abort_leaves_the_old_file_and_nothing_else(void) {
    unsigned char bytes[FILE_MAX_BYTES];
    ashlar_file *file;
    REQUIRE(begin_replacement(&file));
    ashlar_file_abort(file);
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
    CHECK(names_in_folder() == 1);
    ashlar_file_abort(NULL);
}

static void a_disk_that_fills_leaves_the_old_file(void) {
    unsigned char bytes[FILE_MAX_BYTES];
    struct rlimit before;
    write_bytes("old", 3);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const struct rlimit small = {100, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const ashlar_status status = write_sample();
    /* One write that goes in half, too: the half is no success. */
    ashlar_file *file;
    CHECK(ashlar_file_create(path, &file) == ASHLAR_OK);
    CHECK(ashlar_file_write(file, sample, sizeof sample) == ASHLAR_EIO);
    ashlar_file_abort(file);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    (void)signal(SIGXFSZ, handler);
    CHECK(status == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), path);
    CHECK(read_bytes(bytes) == 3 && memcmp(bytes, "old", 3) == 0);
    CHECK(names_in_folder() == 1);
}

static void a_rename_that_fails_removes_the_temporary(void) {
    ashlar_file *file;
    (void)unlink(path);
    REQUIRE(ashlar_file_create(path, &file) == ASHLAR_OK);
    CHECK(mkdir(path, 0700) == 0); /* comes up meanwhile: a file cannot replace a folder */
    CHECK(ashlar_file_commit(file) == ASHLAR_EIO);
    CHECK(names_in_folder() == 1);
    CHECK(ashlar_file_create(path, &file) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "not a regular file");
    CHECK(rmdir(path) == 0);
}

static void permissions_and_links_are_kept(void) {
    char link_path[80];
    struct stat info;
    ashlar_file *file;
    write_bytes("old", 3);
    CHECK(chmod(path, 0604) == 0);
    (void)snprintf(link_path, sizeof link_path, "%s/link", folder);
    CHECK(symlink(path, link_path) == 0);
    REQUIRE(ashlar_file_create(link_path, &file) == ASHLAR_OK);
    CHECK(ashlar_file_commit(file) == ASHLAR_OK);
    CHECK(lstat(link_path, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0604 && info.st_size == 0);
    CHECK(unlink(link_path) == 0);
    /* A new file is as open as the umask lets it be. */
    CHECK(unlink(path) == 0);
    const mode_t mask = umask(027);
    REQUIRE(ashlar_file_create(path, &file) == ASHLAR_OK);
    (void)umask(mask);
    CHECK(ashlar_file_commit(file) == ASHLAR_OK);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);
}

static void a_leftover_of_a_crash_is_no_obstacle(void) {
    char name[128];
    char last[128] = "";
    ashlar_file *file;
    (void)unlink(path);
    REQUIRE(ashlar_file_create(path, &file) == ASHLAR_OK);
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strstr(entry->d_name, ".tmp") != NULL) {
            (void)snprintf(last, sizeof last, "%.100s", entry->d_name);
        }
    }
    (void)closedir(dir);
    ashlar_file_abort(file);
    /* "file.<process>.<number>.tmp": take the place of the next number. */
    char *end = strstr(last, ".tmp");
    REQUIRE(end != NULL);
    *end = '\0';
    char *number = strrchr(last, '.');
    REQUIRE(number != NULL);
    const unsigned long next = strtoul(number + 1, NULL, 10) + 1;
    (void)snprintf(name, sizeof name, "%s.%ld.%lu.tmp", path, (long)getpid(), next);
    FILE *leftover = fopen(name, "wb");
    REQUIRE(leftover != NULL);
    (void)fclose(leftover);
    REQUIRE(ashlar_file_create(path, &file) == ASHLAR_OK);
    CHECK(names_in_folder() == 2);
    CHECK(ashlar_file_commit(file) == ASHLAR_OK);
    CHECK(access(name, F_OK) == 0 && unlink(name) == 0);
}

static void a_missing_folder_is_named(void) {
    ashlar_file *file;
    CHECK(ashlar_file_create("/nowhere/at/all", &file) == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), "/nowhere/at/all");
    CHECK(ashlar_file_create("", &file) == ASHLAR_EINVAL);
    char long_path[5000];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    CHECK(ashlar_file_create(long_path, &file) == ASHLAR_EINVAL);
    CHECK(ashlar_file_create("/dev/null", &file) == ASHLAR_EINVAL);
}

/* --- host memory ---------------------------------------------------------------------------- */

static void no_host_memory_at_any_call_leaks_nothing(void) {
    unsigned long n = 0;
    ashlar_status status = ASHLAR_EHOSTMEM;
    (void)unlink(path);
    while (status == ASHLAR_EHOSTMEM && n < 100) {
        ashlar_host_fail_at(++n);
        status = write_sample();
        ashlar_host_fail_at(0);
        CHECK((status == ASHLAR_OK) == (access(path, F_OK) == 0));
        CHECK(names_in_folder() == (status == ASHLAR_OK));
    }
    CHECK(status == ASHLAR_OK);
    CHECK(n > 4);
    n = 0;
    status = ASHLAR_EHOSTMEM;
    ashlar_safetensors *file = NULL;
    while (status == ASHLAR_EHOSTMEM && n < 100) {
        ashlar_host_fail_at(++n);
        status = ashlar_safetensors_open(path, &file);
        ashlar_host_fail_at(0);
        CHECK((status == ASHLAR_OK) == (file != NULL));
    }
    CHECK(status == ASHLAR_OK);
    CHECK(n > 4);
    ashlar_safetensors_close(file);
}

int main(void) {
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 99;
    }
    (void)snprintf(path, sizeof path, "%s/file", folder);
    RUN(tensors_and_metadata_come_back);
    RUN(the_file_is_what_the_format_says);
    RUN(the_header_is_padded_no_more_than_needed);
    RUN(a_closed_file_holds_nothing);
    RUN(a_file_without_tensors_is_a_file);
    RUN(many_tensors_are_found_by_name);
    RUN(what_cannot_be_read_back_is_not_written);
    RUN(foreign_and_inconsistent_files_are_refused_with_the_reason);
    RUN(the_order_of_the_header_is_free);
    RUN(a_header_longer_than_file_or_limit_is_refused);
    RUN(a_file_cut_anywhere_is_refused);
    RUN(a_flipped_header_byte_never_leads_outside);
    RUN(the_target_is_old_until_the_commit);
    RUN(an_abort_leaves_the_old_file_and_nothing_else);
    RUN(a_disk_that_fills_leaves_the_old_file);
    RUN(a_rename_that_fails_removes_the_temporary);
    RUN(permissions_and_links_are_kept);
    RUN(a_leftover_of_a_crash_is_no_obstacle);
    RUN(a_missing_folder_is_named);
    RUN(no_host_memory_at_any_call_leaks_nothing);
    (void)unlink(path);
    (void)rmdir(folder);
    return check_report();
}
