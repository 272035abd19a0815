/*
 * svg.h - what all our pictures share: the beginning, the end, colours and text (internal).
 *
 * A picture is one SVG file with a light background that fetches and executes nothing. Lengths are
 * in tenths of a pixel, as whole numbers, which keeps the file small.
 */
#ifndef ASHLAR_SVG_H
#define ASHLAR_SVG_H

#include "allocator/base/file_buffer.h"

/* Neighbouring colours differ in lightness too, for people who cannot tell the hues apart. */
enum { ASHLAR_SVG_COLOURS = 8 };
extern const char *const ashlar__svg_colours[ASHLAR_SVG_COLOURS];

/* Write the beginning. By default elements are then drawn in dark grey, and text is 12 pixels
 * high. */
void ashlar__svg_begin(ashlar_file_buffer *file, int width, int height);
void ashlar__svg_end(ashlar_file_buffer *file);

/* Write at most the first `most` bytes of the text, escaped for XML. Each byte that is not
 * printable ASCII becomes "?". */
void ashlar__svg_put_text(ashlar_file_buffer *file, const char *text, size_t most);

#endif /* ASHLAR_SVG_H */
