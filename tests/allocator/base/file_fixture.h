/*
 * file_fixture.h - a temporary folder and a file in it, for tests.
 */
#ifndef ASHLAR_FILE_FIXTURE_H
#define ASHLAR_FILE_FIXTURE_H

#include "tests/check.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 8192 };

static char folder[] = "/tmp/ashlar-file-XXXXXX";
static char path[64]; /* the one file that the cases write */

static inline bool make_folder(void) {
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/file", folder);
    return true;
}

static inline void remove_folder(void) {
    (void)unlink(path);
    (void)rmdir(folder);
}

static inline size_t read_bytes(unsigned char *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    const size_t got = fread(bytes, 1, FILE_MAX_BYTES, file);
    (void)fclose(file);
    return got;
}

static inline void write_bytes(const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) {
        perror(path);
        exit(99);
    }
}

static inline int names_in_folder(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count - 2; /* "." and ".." */
}

static inline bool file_is(const char *text) {
    unsigned char bytes[FILE_MAX_BYTES];
    const size_t count = read_bytes(bytes);
    const bool is_so = count == strlen(text) && memcmp(bytes, text, count) == 0;
    if (!is_so) {
        printf("# the file is %.*s\n", (int)count, (const char *)bytes);
    }
    return is_so;
}

/* The file is this text, and alone in its folder. */
static inline bool is_alone_with(const char *text) {
    return file_is(text) && names_in_folder() == 1;
}

/* No file is written past this, or past what was allowed at first. */
static inline void limit_files(rlim_t bytes) {
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN); /* a write that fails says so */
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

#define RUN_CASES_IN_FOLDER()  \
    int main(void) {           \
        if (!make_folder()) {  \
            return 99;         \
        }                      \
        check_run_cases();     \
        remove_folder();       \
        return check_report(); \
    }

#endif /* ASHLAR_FILE_FIXTURE_H */
