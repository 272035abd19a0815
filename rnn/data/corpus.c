/* corpus.c - reads text files and folders, cuts them into records, and computes a checksum. */
#include "rnn/data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "allocator/base/check_level.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/parse.h"

/* Identity of a file: two names with equal ids lead to the same file. */
typedef struct file_id {
    dev_t device;
    ino_t inode;
} file_id;

/* Invariants: each record lies inside one of the texts and holds no byte 0; record_bytes is the sum
 * of the records' bytes */
struct ashlar_corpus {
    char **texts; /* [text_count], each the contents of a file with at least one record */
    size_t text_count, text_capacity;
    ashlar_record *records;
    size_t record_count, record_capacity;
    size_t record_bytes;
    file_id *read; /* files read so far, skipped ones too */
    size_t read_count, read_capacity;
    size_t skipped_count;
    size_t repeat_count; /* names of files that were already in `read` */
};

/* Cut the next line off a text, without its line end. Reads the byte after the text, a 0. */
static ashlar_piece cut_line(ashlar_piece *rest) {
    ashlar_piece line = ashlar__piece_cut(rest, '\n');
    line.bytes -=
        line.bytes > 0 && line.text[line.bytes] == '\n' && line.text[line.bytes - 1] == '\r';
    return line;
}

static bool is_blank(ashlar_piece line) {
    for (size_t i = 0; i < line.bytes; i++) {
        if (line.text[i] != ' ' && line.text[i] != '\t') {
            return false;
        }
    }
    return true;
}

static bool has_separator(ashlar_piece rest) {
    while (rest.bytes > 0) {
        if (ashlar__piece_is(cut_line(&rest), "%")) {
            return true;
        }
    }
    return false;
}

static ashlar_status add_record(ashlar_corpus *corpus, const char *start, const char *end) {
    ASHLAR_HOST_GROW(corpus->records, &corpus->record_capacity, corpus->record_count,
                     "corpus: no host memory for %zu items", corpus->record_count);
    corpus->records[corpus->record_count++] =
        (ashlar_record){(const unsigned char *)start, (size_t)(end - start)};
    corpus->record_bytes += (size_t)(end - start);
    return ASHLAR_OK;
}

static ashlar_status split_file(ashlar_corpus *corpus, ashlar_piece rest) {
    const bool fortune = has_separator(rest);
    bool open = false; /* whether a line since the last record's end is not blank */
    const char *start = rest.text, *end = start;
    while (rest.bytes > 0) {
        const ashlar_piece line = cut_line(&rest);
        const bool blank = is_blank(line);
        if (fortune ? ashlar__piece_is(line, "%") : blank) {
            if (open) {
                ASHLAR_TRY(add_record(corpus, start, end));
            }
            open = false;
            start = rest.text;
        } else {
            open = open || !blank;
        }
        end = line.text + line.bytes;
    }
    return open ? add_record(corpus, start, end) : ASHLAR_OK;
}

static ashlar_status fail_errno(const char *verb, const char *path) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "corpus: cannot %s %s: %s; check the path and its permissions",
                        verb, path, strerror(error));
}

/* Set *met to whether this file was read before, by another name; if it was not, remember it. */
static ashlar_status meet_file(ashlar_corpus *corpus, const struct stat *info, bool *met) {
    /* A linear search: with some thousands of files it costs less than reading them. */
    *met = false;
    for (size_t i = 0; i < corpus->read_count && !*met; i++) {
        *met = corpus->read[i].inode == info->st_ino && corpus->read[i].device == info->st_dev;
    }
    if (*met) {
        corpus->repeat_count++;
        return ASHLAR_OK;
    }
    ASHLAR_HOST_GROW(corpus->read, &corpus->read_capacity, corpus->read_count,
                     "corpus: no host memory for %zu items", corpus->read_count);
    corpus->read[corpus->read_count++] = (file_id){info->st_dev, info->st_ino};
    return ASHLAR_OK;
}

/* Read one file, and cut it into records. A binary file, or one without a record, is an error if
 * the caller named it, and is skipped if it was found in a folder. */
static ashlar_status add_file(ashlar_corpus *corpus, const char *path, const struct stat *info,
                              bool named) {
    const size_t record_count = corpus->record_count;
    ashlar_piece text;
    char *bytes;
    bool met;
    ASHLAR_TRY(meet_file(corpus, info, &met));
    if (met) {
        return ASHLAR_OK;
    }
    ASHLAR_HOST_GROW(corpus->texts, &corpus->text_capacity, corpus->text_count,
                     "corpus: no host memory for %zu items", corpus->text_count);
    /* A file of /proc has no size, but may have text. */
    ASHLAR_TRY(info->st_size > 0 ? ashlar__file_read(path, &bytes, &text.bytes)
                                 : ashlar__file_read_stream(path, &bytes, &text.bytes));
    corpus->texts[corpus->text_count++] = bytes;
    text.text = bytes;
    const bool binary = memchr(bytes, 0, text.bytes) != NULL;
    if (!binary) {
        ASHLAR_TRY(split_file(corpus, text));
    }
    if (corpus->record_count > record_count) {
        return ASHLAR_OK;
    }
    ashlar__host_free(corpus->texts[--corpus->text_count]);
    corpus->skipped_count++;
    return named ? ashlar__fail(ASHLAR_EFORMAT, "corpus: %s %s; give plain text files", path,
                                binary ? "is not text (it holds a byte 0)" : "has no text in it")
                 : ASHLAR_OK;
}

static int is_not_hidden(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Skip dangling links, and all but regular files: reading a pipe might never end. */
static ashlar_status add_listed(ashlar_corpus *corpus, const char *folder, const char *name) {
    const size_t bytes = strlen(folder) + strlen(name) + sizeof "/";
    struct stat info;
    char *path;
    ASHLAR_HOST_NEW(path, bytes, "corpus: no host memory to list %s", folder);
    (void)snprintf(path, bytes, "%s/%s", folder, name);
    const bool is_file = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    const ashlar_status status = is_file ? add_file(corpus, path, &info, false) : ASHLAR_OK;
    ashlar__host_free(path);
    return status;
}

static ashlar_status add_folder(ashlar_corpus *corpus, const char *folder) {
    struct dirent **entries;
    const size_t record_count = corpus->record_count, repeat_count = corpus->repeat_count;
    const int count = scandir(folder, &entries, is_not_hidden, by_bytes);
    ashlar_status status = count < 0 ? fail_errno("list", folder) : ASHLAR_OK;
    for (int i = 0; i < count; i++) {
        ASHLAR_THEN(status, add_listed(corpus, folder, entries[i]->d_name));
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    if (status != ASHLAR_OK || corpus->record_count > record_count ||
        corpus->repeat_count > repeat_count) {
        return status;
    }
    return ashlar__fail(ASHLAR_EFORMAT,
                        "corpus: no text in the folder %s (%d names, hidden ones not counted); "
                        "give a folder that has text files directly in it",
                        folder, count);
}

static ashlar_status add_named(ashlar_corpus *corpus, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return fail_errno("find", path);
    }
    if (S_ISDIR(info.st_mode)) {
        return add_folder(corpus, path);
    }
    ASHLAR_FAIL_IF(!S_ISREG(info.st_mode), ASHLAR_EFORMAT,
                   "corpus: %s is neither a file nor a folder; give plain text files", path);
    return add_file(corpus, path, &info, true);
}

ashlar_status ashlar__corpus_open(const char *const *paths, size_t count, ashlar_corpus **out) {
    ASHLAR_FAIL_IF(count == 0, ASHLAR_EINVAL, "corpus: no path; give at least one file or folder");
    ashlar_corpus *corpus;
    ASHLAR_HOST_NEW(corpus, 1, "corpus: no host memory");
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = add_named(corpus, paths[i]);
    }
    ASHLAR_HAND_OUT(status, corpus, ashlar__corpus_destroy, out);
}

void ashlar__corpus_destroy(ashlar_corpus *corpus) {
    if (corpus == NULL) {
        return;
    }
    for (size_t i = 0; i < corpus->text_count; i++) {
        ashlar__host_free(corpus->texts[i]);
    }
    ashlar__host_free(corpus->texts);
    ashlar__host_free(corpus->records);
    ashlar__host_free(corpus->read);
    ashlar__host_free(corpus);
}

size_t ashlar__corpus_count(const ashlar_corpus *corpus) {
    return corpus->record_count;
}

ashlar_record ashlar__corpus_record(const ashlar_corpus *corpus, size_t i) {
    ASHLAR_ASSERT(i < corpus->record_count);
    return corpus->records[i];
}

size_t ashlar__corpus_bytes(const ashlar_corpus *corpus) {
    return corpus->record_bytes;
}

size_t ashlar__corpus_file_count(const ashlar_corpus *corpus) {
    return corpus->text_count;
}

size_t ashlar__corpus_skipped_count(const ashlar_corpus *corpus) {
    return corpus->skipped_count;
}

/* Add a record to the checksum. Like FNV-1a, but eight bytes at a time; not secure against an
 * attacker. The shift in the last line marks the record's end: the same bytes cut into other
 * records give another checksum. */
static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t count) {
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * prime;
        sum ^= sum >> 29; /* otherwise high bits would never reach low ones */
    }
    for (; count > 0; count--, bytes++) {
        sum = (sum ^ *bytes) * prime;
    }
    return sum ^ sum >> 32;
}

uint64_t ashlar__corpus_checksum(const ashlar_corpus *corpus) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < ashlar__corpus_count(corpus); i++) {
        const ashlar_record record = ashlar__corpus_record(corpus, i);
        sum = mix(sum, record.bytes, record.count);
    }
    return sum;
}
