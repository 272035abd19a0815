/* page.c - puts a document into the page that is built into the programs. */
#include "rnn/programs/page.h"

#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"

extern const char ashlar__viewer[]; /* tools/viewer.html, made a string as the programs are built */

static const char place[] = "<script id=data type=\"application/json\">";

/* In JSON "<" stands in strings only. Escaped, no string can end the script. */
static void put_inside_script(ashlar_file_buffer *file, const char *text, size_t bytes) {
    const char *const end = text + bytes;
    while (text < end) {
        const char *mark = memchr(text, '<', (size_t)(end - text));
        const char *stop = mark != NULL ? mark : end;
        ashlar__file_buffer_put(file, text, (size_t)(stop - text));
        if (mark != NULL) {
            ashlar__file_buffer_put(file, "\\u003c", 6);
        }
        text = mark != NULL ? mark + 1 : end;
    }
}

ashlar_status ashlar__page_write(const char *path, ashlar_json_writer *document) {
    ashlar_file_buffer *file;
    const char *text;
    size_t bytes;
    ASHLAR_TRY(ashlar__json_writer_text(document, &text, &bytes));
    ASHLAR_TRY(ashlar__file_buffer_create(path, &file));
    const char *const rest = strstr(ashlar__viewer, place) + sizeof place - 1;
    ashlar__file_buffer_put(file, ashlar__viewer, (size_t)(rest - ashlar__viewer));
    put_inside_script(file, text, bytes);
    ashlar__file_buffer_put(file, rest, strlen(rest));
    return ashlar__file_buffer_commit(file);
}
