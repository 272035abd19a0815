/* corpus.c - reads text files and folders, cuts them into records, and computes a checksum. */
#include "rnn/data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

typedef struct record_span {
    size_t offset; /* in corpus->text */
    size_t bytes;
} record_span;

/* Identity of a file: two names with equal ids lead to the same file. */
typedef struct file_id {
    dev_t device;
    ino_t inode;
} file_id;

/*
 * Invariants: each span lies inside text[0, text_bytes) and holds no byte 0
 *             record_bytes = sum of the spans' bytes
 */
struct ashlar_corpus {
    unsigned char *text; /* the files that were read, one after the other */
    size_t text_bytes;
    size_t text_capacity;
    record_span *records;
    size_t record_count;
    size_t record_capacity;
    size_t record_bytes;
    file_id *read; /* files read so far, skipped ones too */
    size_t read_count;
    size_t read_capacity;
    size_t file_count;
    size_t skipped_count;
    size_t repeat_count; /* names of files that were already in `read` */
};

/* Paths of a folder's files. */
typedef struct path_list {
    char **paths;
    size_t count;
    size_t capacity;
} path_list;

/*
 * Return `items` with room for `need` > 0 items of `bytes` bytes each, reallocated if it was too
 * small. NULL: no host memory; the error detail is set, and `items` is still valid and unchanged.
 */
static void *reserve(void *items, size_t *capacity, size_t need, size_t bytes) {
    if (need <= *capacity) {
        return items;
    }
    /* Half as much again, so that at most a third of the memory is unused. */
    size_t more;
    if (!ashlar__add(need, need / 2, &more)) {
        more = need;
    }
    void *grown = ashlar__host_realloc(items, more, bytes);
    if (grown == NULL) {
        (void)ashlar__fail(ASHLAR_EHOSTMEM, "corpus: no host memory for %zu items of %zu bytes",
                           more, bytes);
        return NULL;
    }
    *capacity = more;
    return grown;
}

/* --- cutting a text into records ------------------------------------------------------------- */

typedef struct text_line {
    size_t start;
    size_t end;  /* excludes the line end */
    size_t next; /* start of the following line */
} text_line;

/* The line that starts at `start` < `bytes`. */
static text_line line_at(const unsigned char *text, size_t start, size_t bytes) {
    const unsigned char *newline = memchr(text + start, '\n', bytes - start);
    if (newline == NULL) {
        return (text_line){start, bytes, bytes};
    }
    size_t end = (size_t)(newline - text);
    const size_t next = end + 1;
    if (end > start && text[end - 1] == '\r') {
        end--;
    }
    return (text_line){start, end, next};
}

static bool is_separator(const unsigned char *text, text_line line) {
    return line.end - line.start == 1 && text[line.start] == '%';
}

static bool is_blank(const unsigned char *text, text_line line) {
    for (size_t i = line.start; i < line.end; i++) {
        if (text[i] != ' ' && text[i] != '\t') {
            return false;
        }
    }
    return true;
}

static bool has_separator(const unsigned char *text, size_t start, size_t bytes) {
    while (start < bytes) {
        const text_line line = line_at(text, start, bytes);
        if (is_separator(text, line)) {
            return true;
        }
        start = line.next;
    }
    return false;
}

static ashlar_status add_record(ashlar_corpus *corpus, size_t start, size_t end) {
    record_span *records = reserve(corpus->records, &corpus->record_capacity,
                                   corpus->record_count + 1, sizeof *records);
    if (records == NULL) {
        return ASHLAR_EHOSTMEM;
    }
    corpus->records = records;
    corpus->records[corpus->record_count++] = (record_span){start, end - start};
    corpus->record_bytes += end - start;
    return ASHLAR_OK;
}

/* Cut text[start, text_bytes), one file, into records. */
static ashlar_status split_file(ashlar_corpus *corpus, size_t start) {
    const unsigned char *text = corpus->text;
    const size_t bytes = corpus->text_bytes;
    const bool fortune = has_separator(text, start, bytes);
    bool open = false; /* whether a line since the last record's end is not blank */
    size_t record_start = start;
    size_t record_end = start;
    while (start < bytes) {
        const text_line line = line_at(text, start, bytes);
        const bool blank = is_blank(text, line);
        if (fortune ? is_separator(text, line) : blank) {
            if (open) {
                ASHLAR_TRY(add_record(corpus, record_start, record_end));
            }
            open = false;
            record_start = line.next;
        } else {
            open = open || !blank;
        }
        record_end = line.end;
        start = line.next;
    }
    return open ? add_record(corpus, record_start, record_end) : ASHLAR_OK;
}

/* --- reading files --------------------------------------------------------------------------- */

static ashlar_status fail_errno(const char *verb, const char *path) {
    const int error = errno;
    return ashlar__fail(ASHLAR_EIO, "corpus: cannot %s %s: %s; check the path and its permissions",
                        verb, path, strerror(error));
}

/* Append the whole file `fd` to corpus->text. `hint` is its size in bytes, 0 if unknown. */
static ashlar_status append_file(ashlar_corpus *corpus, int fd, size_t hint, const char *path) {
    enum { READ_STEP = 4096 };
    size_t room = hint;
    for (;;) {
        size_t need;
        /* A byte more than the hint, so that the end of the file needs no second growth. */
        if (!ashlar__add(corpus->text_bytes, room, &need) || !ashlar__add(need, 1, &need)) {
            return ashlar__fail(ASHLAR_EOVERFLOW, "corpus: %s is too large", path);
        }
        unsigned char *text = reserve(corpus->text, &corpus->text_capacity, need, 1);
        if (text == NULL) {
            return ASHLAR_EHOSTMEM;
        }
        corpus->text = text;
        const ssize_t got =
            read(fd, text + corpus->text_bytes, corpus->text_capacity - corpus->text_bytes);
        if (got == 0) {
            return ASHLAR_OK;
        }
        if (got < 0 && errno != EINTR) {
            return fail_errno("read", path);
        }
        corpus->text_bytes += got > 0 ? (size_t)got : 0;
        room = READ_STEP;
    }
}

/* Set *met to whether this file was read before; if it was not, remember it. */
static ashlar_status meet_file(ashlar_corpus *corpus, const struct stat *info, bool *met) {
    /* Linear: with some thousands of files it costs less than reading them. */
    for (size_t i = 0; i < corpus->read_count; i++) {
        if (corpus->read[i].inode == info->st_ino && corpus->read[i].device == info->st_dev) {
            corpus->repeat_count++;
            *met = true;
            return ASHLAR_OK;
        }
    }
    file_id *ids =
        reserve(corpus->read, &corpus->read_capacity, corpus->read_count + 1, sizeof *ids);
    if (ids == NULL) {
        return ASHLAR_EHOSTMEM;
    }
    corpus->read = ids;
    corpus->read[corpus->read_count++] = (file_id){info->st_dev, info->st_ino};
    *met = false;
    return ASHLAR_OK;
}

/* Read and cut one open file. A file without text is an error if `named`, else it is skipped. */
static ashlar_status add_open_file(ashlar_corpus *corpus, int fd, const char *path, bool named) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_errno("stat", path);
    }
    bool met;
    ashlar_status status = meet_file(corpus, &info, &met);
    if (status != ASHLAR_OK || met) {
        return status;
    }
    const size_t start = corpus->text_bytes;
    const size_t record_count = corpus->record_count;
    ASHLAR_TRY(append_file(corpus, fd, info.st_size > 0 ? (size_t)info.st_size : 0, path));
    const size_t bytes = corpus->text_bytes - start;
    const bool binary = bytes > 0 && memchr(corpus->text + start, 0, bytes) != NULL;
    if (!binary) {
        status = split_file(corpus, start);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    if (corpus->record_count > record_count) {
        corpus->file_count++;
        return ASHLAR_OK;
    }
    corpus->text_bytes = start;
    corpus->skipped_count++;
    if (named) {
        return ashlar__fail(ASHLAR_EFORMAT, "corpus: %s %s; give plain text files", path,
                            binary ? "is not text (it holds a byte 0)" : "has no text in it");
    }
    return ASHLAR_OK;
}

static ashlar_status add_file(ashlar_corpus *corpus, const char *path, bool named) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_errno("open", path);
    }
    const ashlar_status status = add_open_file(corpus, fd, path, named);
    (void)close(fd); /* nothing was written: close has nothing to report */
    return status;
}

/* --- folders --------------------------------------------------------------------------------- */

static ashlar_status add_path(path_list *list, const char *folder, const char *name) {
    char **paths = reserve(list->paths, &list->capacity, list->count + 1, sizeof *paths);
    if (paths == NULL) {
        return ASHLAR_EHOSTMEM;
    }
    list->paths = paths;
    const size_t bytes = strlen(folder) + strlen(name) + sizeof "/";
    char *path;
    ASHLAR_HOST_NEW(path, bytes, "corpus: no host memory to list %s", folder);
    (void)snprintf(path, bytes, "%s/%s", folder, name);
    list->paths[list->count++] = path;
    return ASHLAR_OK;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static ashlar_status list_folder(const char *folder, path_list *list) {
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return fail_errno("open", folder);
    }
    ashlar_status status = ASHLAR_OK;
    while (status == ASHLAR_OK) {
        errno = 0; /* readdir() returns NULL at the end and on failure: only errno tells which */
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            status = errno != 0 ? fail_errno("list", folder) : ASHLAR_OK;
            break;
        }
        if (entry->d_name[0] != '.') {
            status = add_path(list, folder, entry->d_name);
        }
    }
    (void)closedir(dir);
    if (list->count > 1) {
        qsort(list->paths, list->count, sizeof *list->paths, compare_paths);
    }
    return status;
}

static ashlar_status add_listed(ashlar_corpus *corpus, const path_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        struct stat info;
        /* Skip dangling links, and all but regular files: reading a pipe might never end. */
        if (stat(list->paths[i], &info) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        ASHLAR_TRY(add_file(corpus, list->paths[i], false));
    }
    return ASHLAR_OK;
}

static ashlar_status add_folder(ashlar_corpus *corpus, const char *folder) {
    path_list list = {0};
    const size_t record_count = corpus->record_count;
    const size_t repeat_count = corpus->repeat_count;
    ashlar_status status = list_folder(folder, &list);
    if (status == ASHLAR_OK) {
        status = add_listed(corpus, &list);
    }
    for (size_t i = 0; i < list.count; i++) {
        ashlar__host_free(list.paths[i]);
    }
    ashlar__host_free(list.paths);
    if (status != ASHLAR_OK || corpus->record_count > record_count ||
        corpus->repeat_count > repeat_count) {
        return status;
    }
    return ashlar__fail(ASHLAR_EFORMAT,
                        "corpus: no text in the folder %s (%zu names, hidden ones not counted); "
                        "give a folder that has text files directly in it",
                        folder, list.count);
}

static ashlar_status add_named(ashlar_corpus *corpus, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return fail_errno("find", path);
    }
    if (S_ISDIR(info.st_mode)) {
        return add_folder(corpus, path);
    }
    if (!S_ISREG(info.st_mode)) {
        return ashlar__fail(ASHLAR_EFORMAT,
                            "corpus: %s is neither a file nor a folder; give plain text files",
                            path);
    }
    return add_file(corpus, path, true);
}

/* --- the interface --------------------------------------------------------------------------- */

ashlar_status ashlar__corpus_open(const char *const *paths, size_t count, ashlar_corpus **out) {
    if (count == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "corpus: no path; give at least one file or folder");
    }
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
    ashlar__host_free(corpus->text);
    ashlar__host_free(corpus->records);
    ashlar__host_free(corpus->read);
    ashlar__host_free(corpus);
}

size_t ashlar__corpus_count(const ashlar_corpus *corpus) {
    return corpus->record_count;
}

ashlar_record ashlar__corpus_record(const ashlar_corpus *corpus, size_t i) {
    ASHLAR_ASSERT(i < corpus->record_count);
    const record_span span = corpus->records[i];
    return (ashlar_record){corpus->text + span.offset, span.bytes};
}

size_t ashlar__corpus_bytes(const ashlar_corpus *corpus) {
    return corpus->record_bytes;
}

size_t ashlar__corpus_file_count(const ashlar_corpus *corpus) {
    return corpus->file_count;
}

size_t ashlar__corpus_skipped_count(const ashlar_corpus *corpus) {
    return corpus->skipped_count;
}

/*
 * Add a record to the checksum. Like FNV-1a, but eight bytes at a time; not secure against an
 * attacker. The shift in the last line marks the record's end: the same bytes cut into other
 * records give another checksum.
 */
static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t count) {
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t word;
    for (; count >= sizeof word; count -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        sum = (sum ^ word) * prime;
        sum ^= sum >> 29; /* else high bits would never reach low ones */
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
