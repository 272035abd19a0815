/*
 * picture_fixture.h - reading a picture back: its text, its rectangles, and whether it is XML, for
 * tests.
 */
#ifndef ASHLAR_PICTURE_FIXTURE_H
#define ASHLAR_PICTURE_FIXTURE_H

#include "tests/allocator/base/file_fixture.h"

enum { SVG_MAX_BYTES = 4 << 20, BOX_MAX = 20000, TEXT_MAX = 256 };

/* A rectangle with a tooltip. */
typedef struct box {
    unsigned x, y, width, height;
    char title[TEXT_MAX];
    char fill[8];
} box;

static char svg[SVG_MAX_BYTES + 1]; /* of the case */
static size_t svg_bytes;
static box boxes[BOX_MAX];
static size_t box_count;

static inline bool is_entity(const char *text) {
    return strncmp(text, "&amp;", 5) == 0 || strncmp(text, "&lt;", 4) == 0 ||
           strncmp(text, "&gt;", 4) == 0;
}

/* Attributes as name="value", each name once or not looked at: what our writer could get wrong. */
static inline bool are_attributes(const char *tag, size_t bytes) {
    size_t quotes = 0;
    for (size_t i = 0; i < bytes; i++) {
        quotes += tag[i] == '"';
        if ((tag[i] == '=' && tag[i + 1] != '"') || tag[i] == '<' || tag[i] == '&') {
            return quotes % 2 == 1 && tag[i] == '=';
        }
    }
    return quotes % 2 == 0;
}

/* Tags open and close in order, texts hold no stray mark, all bytes are printable ASCII. */
static inline bool is_xml(void) {
    enum { DEPTH_MAX = 16, NAME_MAX_BYTES = 16 };
    char open[DEPTH_MAX][NAME_MAX_BYTES];
    size_t depth = 0;
    for (const char *at = svg; *at != '\0'; at++) {
        if (*at == '&' && !is_entity(at)) {
            return false;
        }
        if (*at == '>' || (*at != '\n' && (*at < ' ' || *at > '~'))) {
            return false;
        }
        if (*at != '<') {
            continue;
        }
        const char *end = strchr(at, '>');
        if (end == NULL) {
            return false;
        }
        const bool closes = at[1] == '/', is_empty = end[-1] == '/';
        const char *name = at + 1 + closes;
        const size_t name_bytes = strcspn(name, " />");
        if (name_bytes == 0 || name_bytes >= NAME_MAX_BYTES ||
            !are_attributes(at + 1, (size_t)(end - at - 1))) {
            return false;
        }
        if (closes) {
            if (depth == 0 || strlen(open[depth - 1]) != name_bytes ||
                strncmp(open[--depth], name, name_bytes) != 0) {
                return false;
            }
        } else if (!is_empty) {
            if (depth == DEPTH_MAX) {
                return false;
            }
            memcpy(open[depth], name, name_bytes);
            open[depth++][name_bytes] = '\0';
        }
        at = end;
    }
    return depth == 0 && strncmp(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 40) == 0;
}

static inline void read_boxes(void) {
    char fill[8] = "";
    box_count = 0;
    for (const char *line = svg; line != NULL && box_count < BOX_MAX;
         line = strchr(line, '\n') == NULL ? NULL : strchr(line, '\n') + 1) {
        box *b = &boxes[box_count];
        (void)sscanf(line, "<g fill=\"%7[^\"]\">", fill);
        if (sscanf(line, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\"><title>%255[^<]<",
                   &b->x, &b->y, &b->width, &b->height, b->title) == 5) {
            memcpy(b->fill, fill, sizeof fill);
            box_count++;
        }
    }
}

/* Read the picture at `path`. False if it is not well-formed. */
static inline bool read_picture(void) {
    FILE *file = fopen(path, "rb");
    svg_bytes = 0;
    if (file != NULL) {
        svg_bytes = fread(svg, 1, SVG_MAX_BYTES, file);
        (void)fclose(file);
    }
    svg[svg_bytes] = '\0';
    read_boxes();
    return is_xml();
}

/* The rectangle whose tooltip begins with `title`; one with nothing in it if there is none. */
static inline box box_of(const char *title) {
    for (size_t i = 0; i < box_count; i++) {
        if (strncmp(boxes[i].title, title, strlen(title)) == 0) {
            return boxes[i];
        }
    }
    return (box){0};
}

static inline bool box_is(const char *title, unsigned x, unsigned y, unsigned width,
                          unsigned height) {
    const box b = box_of(title);
    if (b.x == x && b.y == y && b.width == width && b.height == height) {
        return true;
    }
    printf("# %s: %u %u %u %u\n", title, b.x, b.y, b.width, b.height);
    return false;
}

static inline size_t times_in_picture(const char *part) {
    size_t count = 0;
    for (const char *at = svg; (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

#endif /* ASHLAR_PICTURE_FIXTURE_H */
