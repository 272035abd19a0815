/* svg.c - the colours of an SVG picture, its beginning and its end, and escaping text for XML. */
#include "allocator/base/svg.h"

#include "allocator/base/check_level.h"

const char *const ashlar__svg_colours[] = {
    "#1f5f99", "#f0a830", "#38a08c", "#b03a2e", "#b79ae0", "#55702a", "#6fc3ee", "#5c5c66"};
ASHLAR_TABLE_IS_FULL(ashlar__svg_colours, ASHLAR_SVG_COLOURS);

void ashlar__svg_begin(ashlar_file_buffer *file, int width, int height) {
    ASHLAR_CHECK2(width > 0 && height > 0);
    ashlar__file_buffer_print(
        file,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" font-family=\"sans-serif\" font-size=\"120\" fill=\"#222\">\n",
        width, height, width / 10, height / 10);
    ashlar__file_buffer_print(file, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width,
                              height);
}

void ashlar__svg_end(ashlar_file_buffer *file) {
    ashlar__file_buffer_print(file, "</svg>\n");
}

void ashlar__svg_put_text(ashlar_file_buffer *file, const char *text, size_t most) {
    for (size_t i = 0; i < most && text[i] != '\0'; i++) {
        const char c = text[i];
        if (c == '&' || c == '<' || c == '>') {
            ashlar__file_buffer_print(file, "&%s;", c == '&' ? "amp" : c == '<' ? "lt" : "gt");
        } else {
            ashlar__file_buffer_put(file, c >= ' ' && c <= '~' ? &c : "?", 1);
        }
    }
}
