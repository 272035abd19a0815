/* rmm_file.c - a log as a file, plain or packed. */
#include "bench/replay/rmm_csv.h"

#include "allocator/base/file_read.h"
#include "allocator/base/host.h"
#include "bench/replay/gzip.h"

ashlar_status ashlar__rmm_log_read(const char *path, ashlar_rmm_log **out) {
    char *text = NULL, *plain = NULL;
    size_t bytes;
    ashlar_status status = ashlar__file_read_stream(path, &text, &bytes);
    if (status == ASHLAR_OK && ashlar__gzip_is_magic(text, bytes)) {
        status = ashlar__gzip_unpack(path, text, bytes, &plain, &bytes);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__rmm_log_parse(path, plain != NULL ? plain : text, bytes, out);
    }
    ashlar__host_free(plain);
    ashlar__host_free(text);
    return status;
}
