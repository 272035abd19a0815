/*
 * test_picture.c - that a picture shows each block where and when it was, says what it is in
 * colours and words, and is a file that anything can load.
 */
#include "allocator/trace/picture.h"

#include <stdint.h>

#include <ashlar/allocator.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "tests/allocator/base/locale_fixture.h"
#include "tests/allocator/trace/picture_fixture.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static ashlar_picture picture_of(const ashlar_picture_block *blocks, size_t count) {
    return (ashlar_picture){.title = "stone",
                            .time_unit = "events",
                            .blocks = blocks,
                            .count = count,
                            .has_tags = true};
}

static bool draw(const ashlar_picture *picture) {
    const ashlar_status status = ashlar__picture_write(picture, path);
    if (status != ASHLAR_OK) {
        printf("# %s\n", ashlar_error_detail());
    }
    return status == ASHLAR_OK && read_picture();
}

static bool draw_blocks(const ashlar_picture_block *blocks, size_t count) {
    const ashlar_picture picture = picture_of(blocks, count);
    return draw(&picture);
}

/* Most is live, 3 MiB, from 20 to 30. */
static const ashlar_picture_block sample[] = {
    {.begin = 0, .end = 50, .offset = 0, .bytes = MIB, .tag = ASHLAR_TAG_WEIGHTS},
    {.begin = 10, .end = 20, .offset = MIB, .bytes = MIB, .tag = ASHLAR_TAG_BATCH},
    {.begin = 20, .end = 30, .offset = 2 * MIB, .bytes = 2 * MIB, .tag = ASHLAR_TAG_BATCH},
    {.begin = 30, .end = 100, .offset = 3 * MIB, .bytes = MIB, .name = "last"},
};

CASE(each_block_is_a_rectangle_at_its_time_and_address) {
    REQUIRE(draw_blocks(sample, COUNT(sample)));
    CHECK_ZU(box_count, 4);
    CHECK(box_is("#0, weights: 1048576 B at 0, 0 to 50", 1000, 5375, 5400, 1525));
    CHECK(box_is("#1, batch: 1048576 B at 1048576, 10 to 20", 2080, 3850, 1080, 1525));
    CHECK(box_is("#2, batch: 2097152 B at 2097152, 20 to 30", 3160, 800, 1080, 3050));
    CHECK(box_is("last, user: 1048576 B at 3145728, 30 to 100", 4240, 800, 7560, 1525));
}

CASE(a_tag_has_a_colour_and_its_bytes_at_the_peak) {
    REQUIRE(draw_blocks(sample, COUNT(sample)));
    CHECK(strcmp(box_of("#1").fill, box_of("#2").fill) == 0);
    CHECK(strcmp(box_of("#0").fill, box_of("#2").fill) != 0);
    CHECK(strcmp(box_of("#0").fill, box_of("last").fill) != 0);
    CHECK_HAS(svg, ">weights: 1.00 MiB at peak<");
    CHECK_HAS(svg, ">batch: 2.00 MiB at peak<");
    CHECK_HAS(svg, ">user: 0 B at peak<");
    CHECK_ZU(times_in_picture(" at peak<"), 3);
    CHECK_ZU(times_in_picture(box_of("#1").fill), 2); /* the group and the legend */
}

CASE(colours_of_tags_are_all_different) {
    ashlar_picture_block blocks[ASHLAR_TAG_COUNT];
    for (unsigned i = 0; i < ASHLAR_TAG_COUNT; i++) {
        blocks[i] = (ashlar_picture_block){
            .begin = i, .end = i + 1, .bytes = 1 + i, .tag = (unsigned char)i};
    }
    REQUIRE(draw_blocks(blocks, COUNT(blocks)));
    CHECK_ZU(box_count, ASHLAR_TAG_COUNT);
    for (size_t i = 0; i < box_count; i++) {
        CHECK_ZU(times_in_picture(boxes[i].fill), 2);
    }
    CHECK_ZU(times_in_picture(" at peak<"), ASHLAR_TAG_COUNT);
    CHECK_HAS(svg, "<rect x=\"9100\" y=\"7670\" "); /* the eighth place */
}

CASE(lines_lie_at_the_peak_and_at_the_limit) {
    ashlar_picture picture = picture_of(sample, COUNT(sample));
    REQUIRE(draw(&picture));
    CHECK_HAS(svg, "4 blocks; peak of live bytes 3.00 MiB<");
    CHECK_HAS(svg, "<path d=\"M1000 2325H11800\"");            /* 3 of 4 MiB */
    CHECK_HAS(svg, "<path d=\"M3160 800V6900\"");              /* 20 of 100 */
    CHECK_HAS(svg, "y=\"2465\">peak of live bytes 3.00 MiB<"); /* below its line */
    CHECK(strstr(svg, "#c00000") == NULL);
    picture.limit_label = "plan";
    picture.limit_bytes = 8 * MIB; /* the axis has to reach there */
    REQUIRE(draw(&picture));
    CHECK_HAS(svg, "peak of live bytes 3.00 MiB; plan 8.00 MiB<");
    CHECK_HAS(svg, "<path d=\"M1000 800H11800\" stroke=\"#c00000\"");
    CHECK_HAS(svg, "y=\"760\" text-anchor=\"end\" fill=\"#c00000\">plan 8.00 MiB<");
    CHECK(box_is("#0", 1000, 6137, 5400, 763));
}

CASE(the_first_moment_of_the_peak_is_shown) {
    const ashlar_picture_block blocks[] = {
        {.begin = 0, .end = 8, .bytes = 1, .tag = ASHLAR_TAG_WEIGHTS},
        {.begin = 2, .end = 4, .offset = 1, .bytes = 5, .tag = ASHLAR_TAG_BATCH},
        {.begin = 6, .end = 8, .offset = 1, .bytes = 5},
    };
    REQUIRE(draw_blocks(blocks, COUNT(blocks)));
    CHECK_HAS(svg, "<path d=\"M3700 800V6900\"");
    CHECK_HAS(svg, ">batch: 5 B at peak<");
    CHECK_HAS(svg, ">user: 0 B at peak<");
}

/* Both orders of a block's end and another's begin at one moment. */
CASE(a_block_is_not_live_at_its_end) {
    const ashlar_picture_block blocks[] = {
        {.begin = 5, .end = 9, .offset = 0, .bytes = 100},
        {.begin = 0, .end = 5, .offset = 0, .bytes = 100},
    };
    REQUIRE(draw_blocks(blocks, 2));
    CHECK_HAS(svg, "peak of live bytes 100 B<");
    CHECK_HAS(svg, ">user: 100 B at peak<");
}

/* More is live than what the addresses end at, where blocks overlap: the line must be in the plot.
 */
CASE(the_axis_reaches_to_the_peak) {
    const ashlar_picture_block blocks[] = {
        {.begin = 0, .end = 2, .offset = 0, .bytes = 100},
        {.begin = 0, .end = 2, .offset = 0, .bytes = 100},
    };
    REQUIRE(draw_blocks(blocks, 2));
    CHECK(box_is("#0", 1000, 3850, 10800, 3050));
    CHECK_HAS(svg, "<path d=\"M1000 800H11800\"");
    CHECK_HAS(svg, "<text x=\"900\" y="); /* beside the plot */
}

/* Two blocks at either end of each colour's sizes. */
CASE(blocks_without_tags_are_coloured_by_size) {
    enum { SIZES = 8 };
    ashlar_picture_block blocks[2 * SIZES];
    char title[TEXT_MAX];
    for (size_t i = 0; i < SIZES; i++) {
        const size_t first = i == 0 ? 1 : ((size_t)512 << 3 * i) + 1;
        const size_t last = i == SIZES - 1 ? SIZE_MAX >> 1 : 4 * KIB << 3 * i;
        blocks[2 * i] = (ashlar_picture_block){.begin = 2 * i, .end = 2 * i + 1, .bytes = first};
        blocks[2 * i + 1] =
            (ashlar_picture_block){.begin = 2 * i + 1, .end = 2 * i + 2, .bytes = last};
    }
    ashlar_picture picture = picture_of(blocks, COUNT(blocks));
    picture.has_tags = false;
    REQUIRE(draw(&picture));
    CHECK_ZU(box_count, COUNT(blocks));
    for (size_t i = 0; i < box_count; i++) { /* the largest are drawn first */
        const size_t block = COUNT(blocks) - 2 - i / 2 * 2 + i % 2;
        (void)snprintf(title, sizeof title, "#%zu: %zu B at 0, ", block, blocks[block].bytes);
        CHECK_HAS(boxes[i].title, title);
        CHECK_ZU(times_in_picture(boxes[i].fill), 2);
        CHECK((strcmp(boxes[i].fill, boxes[i / 2 * 2].fill) == 0) &&
              (i < 2 || strcmp(boxes[i].fill, boxes[i / 2 * 2 - 1].fill) != 0));
    }
    CHECK_HAS(svg, ">up to 4 KiB: 0 B at peak<");
    CHECK_HAS(svg, ">up to 32 KiB: 0 B at peak<");
    CHECK_HAS(svg, ">up to 1 GiB: 0 B at peak<");
    CHECK_HAS(svg, ">above 1 GiB: 8.00 EiB at peak<");
    CHECK_ZU(times_in_picture(" at peak<"), SIZES);
}

CASE(a_block_too_small_to_see_is_made_visible_within_the_plot) {
    const ashlar_picture_block blocks[] = {
        {.begin = 0, .end = 1000000, .offset = 0, .bytes = (size_t)1 << 40},
        {.begin = 999999, .end = 1000000, .offset = 0, .bytes = 1},
        {.begin = 0, .end = 1, .offset = ((size_t)1 << 40) - 1, .bytes = 1},
    };
    REQUIRE(draw_blocks(blocks, COUNT(blocks)));
    CHECK(box_is("#1", 11790, 6890, 10, 10));
    CHECK(box_is("#2", 1000, 800, 10, 10));
}

CASE(axes_have_round_numbers_of_one_unit) {
    const ashlar_picture_block block = {.begin = 1234, .end = 8765, .bytes = 3 * MIB};
    REQUIRE(draw_blocks(&block, 1));
    CHECK_HAS(svg, "y=\"6940\">0 KiB<");
    CHECK_HAS(svg, "y=\"840\">3072 KiB<");
    CHECK_HAS(svg, "y=\"5923\">512 KiB<");
    CHECK_ZU(times_in_picture(" KiB<"), 7);
    CHECK_HAS(svg, "<text x=\"2098\" y=\"7090\">2000<");
    CHECK_HAS(svg, "<text x=\"10703\" y=\"7090\">8000<");
    CHECK_HAS(svg, ">3000<");
    CHECK_ZU(times_in_picture("000<"), 7);
    CHECK_HAS(svg, "<text x=\"6400\" y=\"7280\">events<");
    const ashlar_picture_block ten = {.begin = 20, .end = 30, .bytes = 10 * KIB};
    const ashlar_picture of_ten = picture_of(&ten, 1);
    REQUIRE(draw(&of_ten)); /* ten steps are not too many; both ends have a label */
    CHECK_ZU(times_in_picture(" KiB</text><path"), 11);
    CHECK_HAS(svg, "<text x=\"1000\" y=\"7090\">20<");
    CHECK_HAS(svg, "<text x=\"11800\" y=\"7090\">30<");
}

/* One step at a time up to ten; then in steps of 2, 5, 10. */
CASE(time_steps_are_one_two_and_five) {
    static const struct {
        uint64_t end;
        const char *last, *no;
    } cases[] = {{10, ">9<", ">11<"},   {11, ">10<", ">9<"},   {21, ">18<", ">15<"},
                 {22, ">15<", ">16<"},  {54, ">45<", ">48<"},  {55, ">50<", ">45<"},
                 {109, ">90<", ">95<"}, {110, ">80<", ">90<"}, {220, ">150<", ">180<"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const ashlar_picture_block block = {.end = cases[i].end, .bytes = 1};
        REQUIRE(draw_blocks(&block, 1));
        CHECK_HAS(svg, cases[i].last);
        CHECK(strstr(svg, cases[i].no) == NULL);
    }
}

CASE(sizes_are_rounded_to_hundredths_whatever_the_locale) {
    static const struct {
        size_t bytes;
        const char *text;
    } cases[] = {
        {1023, " 1023 B<"},
        {1024, " 1.00 KiB<"},
        {11 * KIB + 5, " 11.00 KiB<"},
        {11 * KIB + 6, " 11.01 KiB<"},
        {2 * KIB + 1023, " 3.00 KiB<"},
        {6690 * MIB, " 6.53 GiB<"},
        {SIZE_MAX, " 16.00 EiB<"},
    };
    const bool has_locale = enter_comma_locale();
    for (size_t i = 0; i < COUNT(cases); i++) {
        const ashlar_picture_block block = {.end = 1, .bytes = cases[i].bytes};
        CHECK(draw_blocks(&block, 1));
        CHECK_HAS(svg, cases[i].text);
    }
    if (has_locale) {
        leave_comma_locale();
    }
}

CASE(texts_are_escaped_and_cut) {
    char title[200], want[200];
    const ashlar_picture_block block = {
        .end = 1, .bytes = 1, .name = "a<b>&c\"\x01\n\xc3\x7f 012345678901234567890"};
    ashlar_picture picture = picture_of(&block, 1);
    memset(title, 't', sizeof title);
    title[0] = '<';
    title[sizeof title - 1] = '\0';
    picture.title = title;
    picture.limit_label = "a&b";
    picture.time_unit = "1 > 0";
    REQUIRE(draw(&picture));
    CHECK_HAS(svg, "<title>a&lt;b&gt;&amp;c\"???? 012345678901, user: 1 B at 0, 0 to 1</title>");
    (void)snprintf(want, sizeof want, ">&lt;%.119s</text>", title + 1);
    CHECK_HAS(svg, want);
    CHECK_HAS(svg, "; a&amp;b 0 B<");
    CHECK_HAS(svg, ">a&amp;b 0 B<");
    CHECK_HAS(svg, ">1 &gt; 0<");
}

CASE(many_blocks_are_all_there_in_a_file_of_a_moderate_size) {
    enum { MANY = 10000 };
    static ashlar_picture_block blocks[MANY];
    uint64_t random_state = 3;
    for (size_t i = 0; i < MANY; i++) {
        const size_t r = (size_t)(ashlar__random_step(&random_state) >> 33);
        blocks[i] = (ashlar_picture_block){.begin = 2000000000 + i,
                                           .end = 2000000001 + i + r % 1000,
                                           .offset = r * 4096,
                                           .bytes = (size_t)1 << r % 33,
                                           .tag = (unsigned char)(r % ASHLAR_TAG_COUNT)};
    }
    REQUIRE(draw_blocks(blocks, MANY));
    CHECK_ZU(box_count, MANY);
    CHECK(svg_bytes < 150 * (size_t)MANY);
    size_t outside = 0, invisible = 0;
    for (size_t i = 0; i < box_count; i++) {
        const box *b = &boxes[i];
        outside += b->x < 1000 || b->x + b->width > 11800 || b->y < 800 || b->y + b->height > 6900;
        invisible += b->width < 10 || b->height < 10;
    }
    CHECK_ZU(outside, 0);
    CHECK_ZU(invisible, 0);
}

CASE(the_same_blocks_make_the_same_bytes) {
    static char first[SVG_MAX_BYTES];
    const ashlar_picture picture = picture_of(sample, COUNT(sample));
    REQUIRE(draw(&picture));
    memcpy(first, svg, svg_bytes);
    const size_t bytes = svg_bytes;
    REQUIRE(draw(&picture));
    CHECK(svg_bytes == bytes && memcmp(first, svg, bytes) == 0);
    CHECK(strstr(svg, "script") == NULL && times_in_picture("http") == 1);
    CHECK_HAS(svg, "<rect width=\"12000\" height=\"8000\" fill=\"#fff\"/>");
}

CASE(the_largest_numbers_are_drawn) {
    const ashlar_picture_block blocks[] = {
        {.begin = 0, .end = UINT64_MAX, .offset = SIZE_MAX - 1, .bytes = 1},
        {.begin = UINT64_MAX - 1, .end = UINT64_MAX, .offset = 0, .bytes = SIZE_MAX - 1},
    };
    REQUIRE(draw_blocks(blocks, 2));
    CHECK_ZU(box_count, 2);
    CHECK(box_is("#0", 1000, 800, 10800, 10));
    CHECK(box_is("#1", 11790, 800, 10, 6100));
    CHECK_HAS(svg, ">18000000000000000000<");
    CHECK_HAS(svg, ">14 EiB<");
    CHECK(svg_bytes < 8000); /* no axis ran over */
}

CASE(no_blocks_are_an_empty_picture) {
    ashlar_picture picture = picture_of(NULL, 0);
    REQUIRE(draw(&picture));
    CHECK_ZU(box_count, 0);
    CHECK_HAS(svg, ">0 blocks; peak of live bytes 0 B<");
    CHECK_HAS(svg, ">stone<");
    CHECK_HAS(svg, "y=\"840\">1 B<");
    picture.limit_label = "reserved";
    picture.limit_bytes = 2 * MIB;
    REQUIRE(draw(&picture));
    CHECK_HAS(svg, ">2048 KiB<");
}

CASE(a_block_that_cannot_be_is_named) {
    static const struct {
        ashlar_picture_block block;
        const char *words;
    } cases[] = {
        {{.begin = 5, .end = 5, .bytes = 1}, "block 1: has to end after it begins"},
        {{.begin = 6, .end = 5, .bytes = 1}, "block 1: has to end after it begins"},
        {{.end = 1, .bytes = 0}, "block 1: bytes"},
        {{.end = 1, .offset = SIZE_MAX, .bytes = 1}, "block 1: bytes"},
        {{.end = 1, .bytes = 1, .tag = ASHLAR_TAG_COUNT}, "block 1: tag"},
        {{.end = 1, .bytes = SIZE_MAX}, "more bytes are live"},
    };
    write_bytes("old", 3);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const ashlar_picture_block blocks[] = {{.end = 1, .bytes = 1}, cases[i].block};
        const ashlar_picture picture = picture_of(blocks, 2);
        CHECK_FAILS(ashlar__picture_write(&picture, path), ASHLAR_EINVAL, cases[i].words);
        CHECK(is_alone_with("old"));
    }
}

CASE(no_host_memory_at_any_call_leaves_the_old_file) {
    const ashlar_picture picture = picture_of(sample, COUNT(sample));
    write_bytes("old", 3);
    FOR_HOST_FAILURES(n, status, ashlar__picture_write(&picture, path)) {
        CHECK(status == ASHLAR_OK || (is_alone_with("old") && ashlar_error_detail()[0] != '\0'));
    }
    CHECK(n > 2 && read_picture());
}

CASE(a_path_that_cannot_be_written_is_named) {
    const ashlar_picture picture = picture_of(sample, COUNT(sample));
    CHECK_FAILS(ashlar__picture_write(&picture, "/nowhere/picture.svg"), ASHLAR_EIO,
                "/nowhere/picture.svg");
    CHECK(ashlar__picture_write(&picture, folder) == ASHLAR_EINVAL);
}

RUN_CASES_IN_FOLDER()
