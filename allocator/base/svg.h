/*
 * svg.h - what all our pictures have in common: each is one SVG file with a light background, which
 * fetches and executes nothing (internal).
 *
 * Lengths are tenths of a pixel: whole numbers make short elements.
 */
#ifndef ASHLAR_SVG_H
#define ASHLAR_SVG_H

#include "allocator/base/file_buffer.h"

/* Neighbours differ in lightness too, for those who cannot tell the hues apart. */
enum { ASHLAR_SVG_COLOURS = 8 };
extern const char *const ashlar__svg_colours[ASHLAR_SVG_COLOURS];

/* Open the picture. What follows is drawn in dark grey, text in 12 pixels. */
void ashlar__svg_begin(ashlar_file_buffer *file, int width, int height);
void ashlar__svg_end(ashlar_file_buffer *file);

/* Write at most `most` bytes of the text, escaped for XML; what is not ASCII becomes "?". */
void ashlar__svg_put_text(ashlar_file_buffer *file, const char *text, size_t most);

#endif /* ASHLAR_SVG_H */
