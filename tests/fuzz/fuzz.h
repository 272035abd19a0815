/*
 * fuzz.h - what a fuzz target is made of.
 *
 * A target is one file, fuzz_<what>.c, with the three names declared here. It is linked twice:
 * with libFuzzer's main(), which explores (./run test fuzz), and with replay_main.c, which tries
 * some thousand inputs in every test run and replays what libFuzzer has found.
 */
#ifndef ASHLAR_FUZZ_H
#define ASHLAR_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ashlar/base.h>

/* Try one input. Returns 0; whatever is wrong ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Write valid input number `i` to out[0, cap) and return its bytes; 0: there are no more. */
size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap);

/* What holds for every input: the name of the test case. */
extern const char fuzz_claim[];

/* Never compiled out. The status detail is shown, as it often says what went wrong. */
#define FUZZ_CHECK(expr)                                                                       \
    do {                                                                                       \
        if (!(expr)) {                                                                         \
            fprintf(stderr, "%s:%d: FUZZ_CHECK(%s); last detail: %s\n", __FILE__, __LINE__,    \
                    #expr, ashlar_error_detail());                                             \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

/* The fuzz_seed() of a target whose valid inputs are texts. */
#define FUZZ_SEEDS(texts)                                                            \
    size_t fuzz_seed(unsigned i, uint8_t *out, size_t cap) {                         \
        return i < sizeof texts / sizeof *texts ? fuzz_copy(texts[i], out, cap) : 0; \
    }

/* Returns the text's bytes, which have room. */
static inline size_t fuzz_copy(const char *text, uint8_t *out, size_t cap) {
    const size_t bytes = strlen(text);
    FUZZ_CHECK(bytes <= cap);
    memcpy(out, text, bytes);
    return bytes;
}

/* The input as a string, to be freed. */
static inline char *fuzz_text(const uint8_t *data, size_t bytes) {
    char *text = calloc(bytes + 1, 1);
    FUZZ_CHECK(text != NULL);
    if (bytes > 0) {
        memcpy(text, data, bytes);
    }
    return text;
}

enum { FUZZ_PATH_BYTES = 40 };

/* A file in memory that holds these bytes and can be opened by `path`. Close it after use. */
static inline int fuzz_open_bytes(const uint8_t *data, size_t bytes, char path[FUZZ_PATH_BYTES]) {
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    for (size_t at = 0; at < bytes;) {
        const ssize_t put = write(fd, data + at, bytes - at);
        FUZZ_CHECK(put > 0);
        at += (size_t)put;
    }
    (void)snprintf(path, FUZZ_PATH_BYTES, "/proc/self/fd/%d", fd);
    return fd;
}

#endif /* ASHLAR_FUZZ_H */
