/* results.c - reads a folder of raw results and puts them into one document. */
#include "bench/harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"

enum { PATH_BYTES = 4096 };

static const char ending[] = ".json";

/* The length of NAME in NAME.json; 0: the name has another ending. */
static size_t stem_bytes(const char *name) {
    const size_t bytes = strlen(name), end_bytes = sizeof ending - 1;
    return bytes > end_bytes && strcmp(name + bytes - end_bytes, ending) == 0 ? bytes - end_bytes
                                                                              : 0;
}

static int is_document(const struct dirent *entry) {
    return stem_bytes(entry->d_name) > 0;
}

static ashlar_status join(const char *folder, const char *name, size_t bytes, const char *end,
                          char path[static PATH_BYTES]) {
    const int length = snprintf(path, PATH_BYTES, "%s/%.*s%s", folder, (int)bytes, name, end);
    return length > 0 && length < PATH_BYTES
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EIO, "report: the folder's name is too long");
}

static void put_key(ashlar_json_writer *w, const char *name, size_t bytes) {
    char key[256]; /* of a file's name */
    (void)snprintf(key, sizeof key, "%.*s", (int)bytes, name);
    ashlar__json_put_key(w, key);
}

static ashlar_status put_document(ashlar_json_writer *w, const char *folder, const char *name) {
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    ASHLAR_TRY(join(folder, name, strlen(name), "", path));
    ASHLAR_TRY(ashlar__file_read(path, &text, &bytes));
    put_key(w, name, stem_bytes(name));
    ashlar__json_put_parsed(w, text, bytes);
    ashlar_status status = ashlar__json_check(text, bytes); /* which changes the text */
    if (status != ASHLAR_OK) {
        status = ashlar__fail(status, "%s: %s", name, ashlar_error_detail());
    }
    ashlar__host_free(text);
    return status;
}

/* A file that is not there is no error. */
static ashlar_status put_text(ashlar_json_writer *w, const char *folder, const char *name,
                              size_t name_bytes) {
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    ASHLAR_TRY(join(folder, name, name_bytes, ".txt", path));
    if (access(path, F_OK) != 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__file_read(path, &text, &bytes));
    put_key(w, name, name_bytes);
    ashlar__json_put_text(w, text, bytes);
    ashlar__host_free(text);
    return ASHLAR_OK;
}

static ashlar_status put_files(ashlar_json_writer *w, const char *folder, struct dirent **files,
                               size_t count) {
    static const char machine[] = "machine.json";
    ashlar_status status = ASHLAR_OK;
    size_t groups = 0;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        const bool is_machine = strcmp(files[i]->d_name, machine) == 0;
        status = is_machine ? put_document(w, folder, machine) : ASHLAR_OK;
        groups += !is_machine;
    }
    if (status == ASHLAR_OK && groups == 0) {
        status = ashlar__fail(
            ASHLAR_EIO, "report: %.200s has no results: no GROUP.json of ashlar-bench", folder);
    }
    ashlar__json_put_key(w, "groups");
    ashlar__json_open_object(w);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = strcmp(files[i]->d_name, machine) != 0 ? put_document(w, folder, files[i]->d_name)
                                                        : ASHLAR_OK;
    }
    ashlar__json_close_object(w);
    ashlar__json_put_key(w, "printed");
    ashlar__json_open_object(w);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = put_text(w, folder, files[i]->d_name, stem_bytes(files[i]->d_name));
    }
    ashlar__json_close_object(w);
    return status == ASHLAR_OK ? put_text(w, folder, "ran", 3) : status;
}

ashlar_status ashlar__results_put(const char *folder, ashlar_json_writer *w) {
    struct dirent **files = NULL;
    const int count = scandir(folder, &files, is_document, alphasort);
    if (count < 0) {
        return ashlar__fail(ASHLAR_EIO, "report: cannot read the folder %.200s: %s", folder,
                            strerror(errno));
    }
    ashlar__json_open_document(w, "ashlar-results/1");
    const ashlar_status status = put_files(w, folder, files, (size_t)count);
    ashlar__json_close_object(w);
    for (int i = 0; i < count; i++) {
        free(files[i]);
    }
    free(files);
    return status;
}
