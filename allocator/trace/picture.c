/* picture.c - blocks over time drawn as an SVG: scales, rectangles, axes, legend. */
#include "allocator/trace/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ashlar/allocator.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/host.h"
#include "allocator/base/svg.h"

/* The page and the plot in it, in tenths of a pixel. */
enum {
    PAGE_WIDTH = 12000,
    PAGE_HEIGHT = 8000,
    LEFT = 1000,
    RIGHT = 11800,
    TOP = 800,
    BOTTOM = 6900,
    VISIBLE = 10, /* the shortest side of a rectangle */
    TICKS = 10,   /* the most steps on an axis */
};
_Static_assert(LEFT < RIGHT && RIGHT <= PAGE_WIDTH && TOP < BOTTOM && BOTTOM <= PAGE_HEIGHT,
               "the plot lies on the page");

/* A colour stands for a tag or for a range of sizes. */
enum { COLOURS = ASHLAR_SVG_COLOURS };
_Static_assert((int)ASHLAR_TAG_COUNT <= (int)COLOURS, "a colour for each tag");
_Static_assert(12 + 3 * (COLOURS - 1) < 64, "every size limit fits in size_t");

/* The upper end of a colour's range of sizes: 4 KiB, 32 KiB, ... The last colour has no limit. */
static size_t size_limit(unsigned colour) {
    return (size_t)4096 << 3 * colour;
}

/* Computed from a picture's blocks. Invariants: begin < end;  peak_bytes <= top;  top > 0. */
typedef struct scene {
    const ashlar_picture *picture;
    ashlar_file_buffer *file;
    uint64_t begin, end; /* of the time axis */
    size_t top;          /* end of the address axis, which begins at 0 */
    uint64_t peak_time;  /* the first moment when most bytes were live */
    size_t peak_bytes;
    size_t at_peak[COLOURS];
    bool is_used[COLOURS];
} scene;

static unsigned colour_of(const scene *s, const ashlar_picture_block *block) {
    unsigned colour = 0;
    if (s->picture->has_tags) {
        return block->tag;
    }
    while (colour < COLOURS - 1 && block->bytes > size_limit(colour)) {
        colour++;
    }
    return colour;
}

/* ---- measuring the blocks ---- */

static ashlar_status fail_block(size_t i, const char *what) {
    return ashlar__fail(ASHLAR_EINVAL, "picture: block %zu: %s", i, what);
}

static ashlar_status measure_blocks(scene *s) {
    const ashlar_picture *p = s->picture;
    s->top = p->limit_label != NULL ? p->limit_bytes : 0;
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_picture_block *block = &p->blocks[i];
        size_t end = 0;
        if (block->begin >= block->end) {
            return fail_block(i, "has to end after it begins");
        }
        if (block->bytes == 0 || !ashlar__add(block->offset, block->bytes, &end)) {
            return fail_block(i, "bytes have to be above 0 and end within size_t");
        }
        if (block->tag >= ASHLAR_TAG_COUNT) {
            return fail_block(i, "tag is no ashlar_tag");
        }
        s->begin = i == 0 || block->begin < s->begin ? block->begin : s->begin;
        s->end = block->end > s->end ? block->end : s->end;
        s->top = end > s->top ? end : s->top;
        s->is_used[colour_of(s, block)] = true;
    }
    if (p->count == 0) {
        s->end = 1;
    }
    s->top = s->top > 0 ? s->top : 1;
    ASHLAR_CHECK2(s->begin < s->end);
    return ASHLAR_OK;
}

typedef struct change {
    uint64_t time;
    size_t bytes;
    bool is_begin;
} change;

/* Order changes by time. At equal times ends come first, since a block is not live at its end. */
static int compare(const void *a, const void *b) {
    const change *x = a, *y = b;
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    return (int)x->is_begin - (int)y->is_begin;
}

static ashlar_status sweep(scene *s, change *changes) {
    size_t live = 0;
    for (size_t i = 0; i < s->picture->count; i++) {
        const ashlar_picture_block *block = &s->picture->blocks[i];
        changes[2 * i] = (change){block->begin, block->bytes, true};
        changes[2 * i + 1] = (change){block->end, block->bytes, false};
    }
    qsort(changes, 2 * s->picture->count, sizeof *changes, compare);
    for (size_t i = 0; i < 2 * s->picture->count; i++) {
        if (!changes[i].is_begin) {
            ASHLAR_CHECK2(live >= changes[i].bytes);
            live -= changes[i].bytes;
        } else if (!ashlar__add(live, changes[i].bytes, &live)) {
            return ashlar__fail(ASHLAR_EINVAL, "picture: more bytes are live than size_t holds");
        }
        if (live > s->peak_bytes) {
            s->peak_bytes = live;
            s->peak_time = changes[i].time;
        }
    }
    ASHLAR_CHECK2(live == 0); /* every block has ended */
    return ASHLAR_OK;
}

static ashlar_status find_peak(scene *s) {
    const ashlar_picture *p = s->picture;
    size_t count = 0;
    change *changes = NULL;
    if (ashlar__mul(p->count + 1, 2, &count)) { /* p->count may be 0 */
        changes = ashlar__host_calloc(count, sizeof *changes);
    }
    if (changes == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a picture of %zu blocks",
                            p->count);
    }
    const ashlar_status status = sweep(s, changes);
    ashlar__host_free(changes);
    s->top = s->peak_bytes > s->top ? s->peak_bytes : s->top;
    for (size_t i = 0; status == ASHLAR_OK && i < p->count; i++) {
        const ashlar_picture_block *block = &p->blocks[i];
        if (block->begin <= s->peak_time && s->peak_time < block->end) {
            s->at_peak[colour_of(s, block)] += block->bytes;
            ASHLAR_CHECK2(s->at_peak[colour_of(s, block)] <= s->peak_bytes);
        }
    }
    return status;
}

/* ---- text ---- */

enum { SIZE_TEXT_BYTES = 32, TITLE_BYTES = 120, NAME_BYTES = 24, LABEL_BYTES = 40 };

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
_Static_assert(10 * sizeof units / sizeof units[0] > 63, "the last unit is large enough for all");

/* The index of the smallest unit in which `bytes` is less than 1024. */
static unsigned unit_of(size_t bytes) {
    unsigned u = 0;
    while (bytes >> 10 * u >= 1024) {
        u++;
    }
    return u;
}

/* A size for people: "1.50 MiB". Printed from integers: printf() may write a decimal comma. */
static const char *readable(size_t bytes, char text[static SIZE_TEXT_BYTES]) {
    const unsigned u = unit_of(bytes);
    if (u == 0) {
        (void)snprintf(text, SIZE_TEXT_BYTES, "%zu B", bytes);
    } else {
        const size_t whole = bytes >> 10 * u, rest = bytes >> 10 * (u - 1) & 1023;
        const size_t hundredths = 100 * whole + (100 * rest + 512) / 1024;
        (void)snprintf(text, SIZE_TEXT_BYTES, "%zu.%02zu %s", hundredths / 100, hundredths % 100,
                       units[u]);
    }
    return text;
}

/* ---- places ---- */

static unsigned x_of(const scene *s, uint64_t time) {
    ASHLAR_CHECK2(s->begin <= time && time <= s->end);
    const double share = (double)(time - s->begin) / (double)(s->end - s->begin);
    return LEFT + (unsigned)(share * (RIGHT - LEFT) + 0.5);
}

static unsigned y_of(const scene *s, size_t address) {
    ASHLAR_CHECK2(address <= s->top);
    return BOTTOM - (unsigned)((double)address / (double)s->top * (BOTTOM - TOP) + 0.5);
}

/* ---- the parts of the file ---- */

static void put_head(const scene *s) {
    const ashlar_picture *p = s->picture;
    char peak[SIZE_TEXT_BYTES], limit[SIZE_TEXT_BYTES];
    ashlar__svg_begin(s->file, PAGE_WIDTH, PAGE_HEIGHT);
    ashlar__file_buffer_print(s->file, "<text x=\"%d\" y=\"300\" font-size=\"180\">", LEFT);
    ashlar__svg_put_text(s->file, p->title, TITLE_BYTES);
    ashlar__file_buffer_print(s->file,
                              "</text>\n<text x=\"%d\" y=\"520\">%zu blocks; peak of live "
                              "bytes %s",
                              LEFT, p->count, readable(s->peak_bytes, peak));
    if (p->limit_label != NULL) {
        ashlar__file_buffer_print(s->file, "; ");
        ashlar__svg_put_text(s->file, p->limit_label, LABEL_BYTES);
        ashlar__file_buffer_print(s->file, " %s", readable(p->limit_bytes, limit));
    }
    ashlar__file_buffer_print(s->file, "</text>\n");
}

static void put_rectangle(const scene *s, size_t i) {
    const ashlar_picture_block *block = &s->picture->blocks[i];
    unsigned x = x_of(s, block->begin), y = y_of(s, block->offset + block->bytes);
    unsigned width = x_of(s, block->end) - x, height = y_of(s, block->offset) - y;
    width = width > VISIBLE ? width : VISIBLE;
    height = height > VISIBLE ? height : VISIBLE;
    x = x + width > RIGHT ? RIGHT - width : x;
    y = y + height > BOTTOM ? BOTTOM - height : y;
    ASHLAR_CHECK2(x >= LEFT && x + width <= RIGHT && y >= TOP && y + height <= BOTTOM);
    ashlar__file_buffer_print(s->file, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\"><title>",
                              x, y, width, height);
    if (block->name != NULL) {
        ashlar__svg_put_text(s->file, block->name, NAME_BYTES);
    } else {
        ashlar__file_buffer_print(s->file, "#%zu", i);
    }
    ashlar__file_buffer_print(s->file, "%s%s: %zu B at %zu, %" PRIu64 " to %" PRIu64,
                              s->picture->has_tags ? ", " : "",
                              s->picture->has_tags ? ashlar_tag_name((ashlar_tag)block->tag) : "",
                              block->bytes, block->offset, block->begin, block->end);
    ashlar__file_buffer_print(s->file, "</title></rect>\n");
}

/* Each colour has a group, so that a rectangle need not name its colour. Small sizes are drawn
 * last: their rectangles are larger than their sizes, and must not vanish behind others. */
static void put_blocks(const scene *s) {
    ashlar__file_buffer_print(s->file, "<g stroke=\"#fff\" stroke-width=\"2\">\n");
    for (unsigned colour = COLOURS; colour-- > 0;) {
        if (!s->is_used[colour]) {
            continue;
        }
        ashlar__file_buffer_print(s->file, "<g fill=\"%s\">\n", ashlar__svg_colours[colour]);
        for (size_t i = 0; i < s->picture->count; i++) {
            if (colour_of(s, &s->picture->blocks[i]) == colour) {
                put_rectangle(s, i);
            }
        }
        ashlar__file_buffer_print(s->file, "</g>\n");
    }
    ashlar__file_buffer_print(s->file, "</g>\n");
}

/* The step is the least power of two that gives at most TICKS steps. So labels are whole
 * numbers. */
static void put_address_axis(const scene *s) {
    size_t step = 1;
    while (s->top / step > TICKS) {
        step *= 2;
    }
    const unsigned u = unit_of(step);
    ASHLAR_CHECK2(s->top / step <= TICKS);
    ashlar__file_buffer_print(s->file, "<g text-anchor=\"end\">\n");
    for (size_t n = 0; n <= s->top / step; n++) {
        const unsigned y = y_of(s, n * step);
        ashlar__file_buffer_print(
            s->file,
            "<text x=\"%d\" y=\"%u\">%zu %s</text><path d=\"M%d %uh60\" stroke=\"#222\" "
            "stroke-width=\"8\"/>\n",
            LEFT - 100, y + 40, n * step >> 10 * u, units[u], LEFT - 60, y);
    }
    ashlar__file_buffer_print(s->file, "</g>\n");
}

/* The step is the least of 1, 2, 5, 10, 20, ... that gives at most TICKS steps. All sums here stay
 * within the range of the axis, so none wraps. */
static void put_time_axis(const scene *s) {
    const uint64_t range = s->end - s->begin;
    uint64_t step = 1;
    for (unsigned n = 0; range / step > TICKS; n++) {
        step = n % 3 == 1 ? step / 2 * 5 : step * 2;
    }
    const uint64_t before = s->begin % step, first = before == 0 ? 0 : step - before;
    ASHLAR_CHECK2(first <= range); /* range - first does not wrap */
    ashlar__file_buffer_print(s->file, "<g text-anchor=\"middle\">\n");
    for (uint64_t n = 0; n <= (range - first) / step; n++) {
        const uint64_t time = s->begin + first + n * step;
        const unsigned x = x_of(s, time);
        ashlar__file_buffer_print(s->file,
                                  "<text x=\"%u\" y=\"%d\">%" PRIu64
                                  "</text><path d=\"M%u %dv60\" stroke=\"#222\" "
                                  "stroke-width=\"8\"/>\n",
                                  x, BOTTOM + 190, time, x, BOTTOM);
    }
    ashlar__file_buffer_print(s->file, "<text x=\"%d\" y=\"%d\">", (LEFT + RIGHT) / 2,
                              BOTTOM + 380);
    ashlar__svg_put_text(s->file, s->picture->time_unit, LABEL_BYTES);
    ashlar__file_buffer_print(s->file,
                              "</text>\n</g>\n<path d=\"M%d %dV%dH%d\" fill=\"none\" "
                              "stroke=\"#222\" stroke-width=\"8\"/>\n",
                              LEFT, TOP, BOTTOM, RIGHT);
}

/* The two labels are at opposite ends, one above its line and one below its line, since in a good
 * plan the two lines nearly meet. */
static void put_lines(const scene *s) {
    const ashlar_picture *p = s->picture;
    char text[SIZE_TEXT_BYTES];
    const unsigned peak = y_of(s, s->peak_bytes);
    ashlar__file_buffer_print(s->file,
                              "<g paint-order=\"stroke\" stroke=\"#fff\" "
                              "stroke-width=\"40\">\n<path d=\"M%d %uH%d\" "
                              "stroke=\"#222\" stroke-width=\"12\"/>\n",
                              LEFT, peak, RIGHT);
    ashlar__file_buffer_print(s->file,
                              "<path d=\"M%u %dV%d\" stroke=\"#222\" stroke-width=\"8\" "
                              "stroke-dasharray=\"20 40\"/>\n",
                              x_of(s, s->peak_time), TOP, BOTTOM);
    ashlar__file_buffer_print(s->file, "<text x=\"%d\" y=\"%u\">peak of live bytes %s</text>\n",
                              LEFT + 60, peak + 140, readable(s->peak_bytes, text));
    if (p->limit_label != NULL) {
        const unsigned limit = y_of(s, p->limit_bytes);
        ashlar__file_buffer_print(s->file,
                                  "<path d=\"M%d %uH%d\" stroke=\"#c00000\" "
                                  "stroke-width=\"12\" stroke-dasharray=\"80 50\"/>\n",
                                  LEFT, limit, RIGHT);
        ashlar__file_buffer_print(s->file,
                                  "<text x=\"%d\" y=\"%u\" text-anchor=\"end\" fill=\"#c00000\">",
                                  RIGHT, limit - 40);
        ashlar__svg_put_text(s->file, p->limit_label, LABEL_BYTES);
        ashlar__file_buffer_print(s->file, " %s</text>\n", readable(p->limit_bytes, text));
    }
    ashlar__file_buffer_print(s->file, "</g>\n");
}

static void put_colour_name(const scene *s, unsigned colour) {
    if (s->picture->has_tags) {
        ashlar__file_buffer_print(s->file, "%s", ashlar_tag_name((ashlar_tag)colour));
    } else {
        const bool is_last = colour == COLOURS - 1;
        const size_t limit = size_limit(is_last ? colour - 1 : colour);
        const unsigned u = unit_of(limit);
        ashlar__file_buffer_print(s->file, "%s %zu %s", is_last ? "above" : "up to",
                                  limit >> 10 * u, units[u]);
    }
}

static void put_legend(const scene *s) {
    enum { COLUMNS = 4, COLUMN_WIDTH = (RIGHT - LEFT) / COLUMNS, ROW_HEIGHT = 220 };
    char bytes[SIZE_TEXT_BYTES];
    unsigned place = 0;
    for (unsigned colour = 0; colour < COLOURS; colour++) {
        if (!s->is_used[colour]) {
            continue;
        }
        const unsigned x = LEFT + place % COLUMNS * COLUMN_WIDTH;
        const unsigned y = BOTTOM + 550 + place / COLUMNS * ROW_HEIGHT;
        ashlar__file_buffer_print(
            s->file, "<rect x=\"%u\" y=\"%u\" width=\"120\" height=\"120\" fill=\"%s\"/>", x, y,
            ashlar__svg_colours[colour]);
        ashlar__file_buffer_print(s->file, "<text x=\"%u\" y=\"%u\">", x + 180, y + 105);
        put_colour_name(s, colour);
        ashlar__file_buffer_print(s->file, ": %s at peak</text>\n",
                                  readable(s->at_peak[colour], bytes));
        place++;
    }
}

ashlar_status ashlar__picture_write(const ashlar_picture *picture, const char *path) {
    scene s = {.picture = picture};
    ashlar_status status = measure_blocks(&s);
    ASHLAR_THEN(status, find_peak(&s));
    ASHLAR_THEN(status, ashlar__file_buffer_create(path, &s.file));
    if (status != ASHLAR_OK) {
        return status;
    }
    put_head(&s);
    put_blocks(&s);
    put_address_axis(&s);
    put_time_axis(&s);
    put_lines(&s);
    put_legend(&s);
    ashlar__svg_end(s.file);
    return ashlar__file_buffer_commit(s.file);
}
