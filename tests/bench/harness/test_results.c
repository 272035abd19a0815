/*
 * test_results.c - raw results read again, and drawn.
 */
#include "bench/harness/results.h"

#include "tests/check.h"
#include "allocator/base/error.h"
#include "tests/allocator/base/file_fixture.h"

static ashlar_results results;

static ashlar_status read_text(const char *text, const char *figure) {
    ashlar_json *document = NULL;
    CHECK(ashlar__json_parse(text, strlen(text), &document) == ASHLAR_OK);
    const ashlar_status status = ashlar__results_read(document, figure, &results);
    ashlar__json_free(document);
    return status;
}

static const char rows_text[] =
    "[{\"workload\":\"mix\",\"variant\":\"reverse\",\"threads\":1,\"subject\":\"ashlar\",\"ns\":20}"
    ","
    "{\"workload\":\"mix\",\"variant\":\"reverse\",\"threads\":1,\"subject\":\"cub\",\"ns\":2500},"
    "{\"workload\":\"random\",\"variant\":\"\",\"threads\":2,\"subject\":\"ashlar\",\"ns\":30.5},"
    "{\"workload\":\"random\",\"variant\":\"\",\"threads\":2,\"subject\":\"cub\",\"ns\":null}]";

static void check_rows(void) {
    CHECK_ZU(results.line_count, 2);
    CHECK_ZU(results.subject_count, 2);
    CHECK(strcmp(results.labels[0], "mix reverse") == 0);
    CHECK(strcmp(results.labels[1], "random 2 threads") == 0);
    CHECK(strcmp(results.subjects[0], "ashlar") == 0 && strcmp(results.subjects[1], "cub") == 0);
    CHECK_NEAR(results.figures[0][0], 20, 0, 0);
    CHECK_NEAR(results.figures[0][1], 2500, 0, 0);
    CHECK_NEAR(results.figures[1][0], 30.5, 0, 0);
    CHECK_NEAR(results.figures[1][1], 0, 0, 0);
}

CASE(rows_become_lines_and_subjects) {
    char text[sizeof rows_text + 64];
    CHECK(read_text(rows_text, "ns") == ASHLAR_OK);
    check_rows();
    CHECK_ZU(ashlar__results_find_subject(&results, "cub"), 1);
    CHECK_ZU(ashlar__results_find_subject(&results, "cu"), 2);
    (void)snprintf(text, sizeof text, "{\"packings\": [], \"rows\": %s}", rows_text);
    memset(&results, 1, sizeof results);
    CHECK(read_text(text, "ns") == ASHLAR_OK);
    check_rows();
}

CASE(other_figures_are_not_known) {
    CHECK(read_text(rows_text, "driver_calls") == ASHLAR_OK);
    CHECK_ZU(results.line_count, 2);
    CHECK_NEAR(results.figures[0][0], 0, 0, 0);
    CHECK(read_text("[{\"subject\":\"a\",\"ns\":\"8\"},{\"subject\":\"b\",\"ns\":-8}]", "ns") ==
          ASHLAR_OK);
    CHECK(results.labels[0][0] == '\0');
    CHECK_NEAR(results.figures[0][0] + results.figures[0][1], 0, 0, 0);
}

static void check_refused(const char *text, const char *word) {
    CHECK_FAILS(read_text(text, "ns"), ASHLAR_EFORMAT, word);
}

CASE(what_is_no_row_is_refused) {
    check_refused("7", "neither");
    check_refused("{\"row\":[]}", "neither");
    check_refused("{\"rows\":{}}", "neither");
    check_refused("[{\"subject\":\"a\"},3]", "row 2 is no object");
    check_refused("[{\"case\":\"a\"}]", "row 1 has no subject");
    check_refused("[{\"case\":\"a\",\"subject\":7}]", "row 1 has no subject");
    check_refused("[{\"case\":\"a\",\"subject\":\"\"}]", "row 1 has no subject");
    check_refused("[{\"subject\":\"0123456789 0123456789 0123456789\"}]", "too long");
    check_refused("[{\"case\":\"0123456789 0123456789 0123456789 0123456789 0123456789\","
                  "\"variant\":\"012345678\",\"subject\":\"a\"}]",
                  "too long a label");
    check_refused("[{\"subject\":\"a\",\"ns\":1},{\"subject\":\"a\",\"ns\":2}]", "row 2 is there");
}

enum { TEXT_BYTES = 16384 };

/* So many rows, of other cases or of other subjects. */
static const char *many_rows(size_t count, bool is_of_subjects) {
    static char text[TEXT_BYTES];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(
            text + used, TEXT_BYTES - used, "%c{\"case\":\"c%zu\",\"subject\":\"s%zu\",\"ns\":%zu}",
            i == 0 ? '[' : ',', is_of_subjects ? 0 : i, is_of_subjects ? i : 0, i + 1);
    }
    (void)snprintf(text + used, TEXT_BYTES - used, "]");
    return text;
}

CASE(a_table_has_room_for_so_many) {
    CHECK(read_text(many_rows(ASHLAR_RESULTS_LINES_MAX, false), "ns") == ASHLAR_OK);
    CHECK_ZU(results.line_count, ASHLAR_RESULTS_LINES_MAX);
    check_refused(many_rows(ASHLAR_RESULTS_LINES_MAX + 1, false), "row 129 is one too many");
    CHECK(read_text(many_rows(ASHLAR_RESULTS_SUBJECTS_MAX, true), "ns") == ASHLAR_OK);
    CHECK_NEAR(results.figures[0][15], 16, 0, 0);
    check_refused(many_rows(ASHLAR_RESULTS_SUBJECTS_MAX + 1, true), "row 17 is one too many");
}

/* ---- charts ---- */

static char *draw(const char *title, const char *unit) {
    static char text[2 * TEXT_BYTES];
    FILE *file = NULL;
    size_t bytes = 0;
    const ashlar_chart chart = {.results = &results,
                                .title = title,
                                .where = "On the software device",
                                .what = "time",
                                .unit = unit};
    CHECK(ashlar__chart_write(&chart, path) == ASHLAR_OK);
    file = fopen(path, "rb");
    if (file != NULL) {
        bytes = fread(text, 1, sizeof text - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    return text;
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* The plot is 5800 wide from 2600 on; with ratios from 1 to 125 it goes from 0.5 to 200. */
CASE(each_figure_is_a_mark_at_its_ratio) {
    REQUIRE(read_text(rows_text, "ns") == ASHLAR_OK);
    const char *text = draw("Times", "ns");
    CHECK_ZU(count_of(text, "<circle"), 2 + 3);
    CHECK_HAS(text, "cx=\"3271\" cy=\"1340\" r=\"42\" fill=\"#1f5f99\"><title>ashlar: 20 ns");
    CHECK_HAS(text,
              "cx=\"7945\" cy=\"1430\" r=\"42\" fill=\"#f0a830\"><title>cub: 2500 ns, 2.5e+03 "
              "to 2.5e+03; ratio 125</title>");
    CHECK_HAS(text, "cx=\"3271\" cy=\"1610\" r=\"42\" fill=\"#1f5f99\"><title>ashlar: 30.5 ns");
    CHECK_HAS(text, ">mix reverse</text>");
    CHECK_HAS(text, ">Times</text>");
    CHECK_HAS(text, ">On the software device</text>");
    CHECK_HAS(text, ">time / that of ashlar: lower is better; ");
    CHECK_HAS(text, ">ashlar, ns</text>");
    CHECK_HAS(text, ">30.5</text>");
    CHECK_HAS(text, "M3271 1250V1700\" stroke=\"#222\"");
    CHECK_HAS(text, "<text x=\"3271\" y=\"1880\" text-anchor=\"middle\">1</text>");
    CHECK_HAS(text, "width=\"960\" height=\"220\"");
    CHECK_ZU(count_of(text, "stroke=\"#eee\""), 6); /* 0.5, 2, 5, 20, 50, 200 */
    CHECK_ZU(count_of(text, "stroke=\"#ccc\" stroke-width=\"8\""), 2);
    CHECK_ZU(count_of(text, "stroke-width=\"24\""), 0);
    CHECK(strcmp(text + strlen(text) - 7, "</svg>\n") == 0);
}

CASE(the_spread_is_a_bar) {
    REQUIRE(read_text("[{\"subject\":\"a\",\"ns\":10,\"ns_low\":8,\"ns_high\":20},"
                      "{\"subject\":\"b\",\"ns\":15,\"ns_low\":15,\"ns_high\":16},"
                      "{\"subject\":\"c\",\"ns\":21}]",
                      "ns") == ASHLAR_OK);
    CHECK(ashlar__results_are_even(&results, 0, 0, 1));
    CHECK(ashlar__results_are_even(&results, 0, 1, 0));
    CHECK(!ashlar__results_are_even(&results, 0, 0, 2));
    CHECK(!ashlar__results_are_even(&results, 0, 2, 1));
    const char *text = draw("", "");
    CHECK_ZU(count_of(text, "stroke-width=\"24\""), 2);
    CHECK_HAS(text, "<title>a: 10 , 8 to 20; ratio 1</title>");
}

CASE(sizes_are_told_in_units) {
    static const char *const variants[] = {"512", "4096-fragmented", "1048576", "x"};
    static const char *const labels[] = {"one_size 512 B", "one_size 4 KiB fragmented",
                                         "one_size 1 MiB", "one_size x"};
    for (size_t i = 0; i < 4; i++) {
        char text[128];
        (void)snprintf(text, sizeof text,
                       "[{\"workload\":\"one_size\",\"variant\":\"%s\",\"subject\":\"a\"}]",
                       variants[i]);
        REQUIRE(read_text(text, "ns") == ASHLAR_OK);
        CHECK(strcmp(results.labels[0], labels[i]) == 0);
    }
}

/* The others' figures are in the table. */
CASE(a_line_without_the_base_says_so) {
    REQUIRE(read_text("[{\"case\":\"x\",\"subject\":\"a\",\"ns\":1},"
                      "{\"case\":\"y\",\"subject\":\"b\",\"ns\":1}]",
                      "ns") == ASHLAR_OK);
    const char *text = draw("", "");
    CHECK_HAS(text, "nothing to compare with");
    CHECK_ZU(count_of(text, "<circle"), 2 + 1);
}

CASE(texts_are_as_xml_has_to_have_them) {
    REQUIRE(read_text("[{\"case\":\"a<b\",\"subject\":\"c&d\",\"ns\":1}]", "ns") == ASHLAR_OK);
    const char *text = draw("e>f", "\xc2\xb5s");
    CHECK_HAS(text, "a&lt;b</text>");
    CHECK_HAS(text, "<title>c&amp;d: 1 ");
    CHECK_HAS(text, ">e&gt;f</text>");
    CHECK_HAS(text, ", ??s</text>");
    CHECK(strstr(text, "a<b") == NULL && strstr(text, "c&d") == NULL);
}

CASE(one_figure_has_an_axis_too) {
    REQUIRE(read_text("[{\"subject\":\"a\",\"ns\":100}]", "ns") == ASHLAR_OK);
    const char *text = draw("", "");
    CHECK_HAS(text, "<circle cx=\"5500\" cy=\"1340\"");
    CHECK_HAS(text, ">0.5</text>");
    CHECK_HAS(text, ">2</text>");
}

CASE(the_ninth_subject_is_a_square) {
    REQUIRE(read_text(many_rows(ASHLAR_RESULTS_SUBJECTS_MAX, true), "ns") == ASHLAR_OK);
    const char *text = draw("", "");
    CHECK_ZU(count_of(text, "<circle"), 2 * 8);
    CHECK_ZU(count_of(text, "<rect"), 1 + 2 * 8);
    CHECK_HAS(text, "<title>s8: 9 , 9 to 9; ratio 9</title></rect>");
    CHECK_HAS(text, "V3180\" stroke=\"#222\""); /* 17 * 90 below three rows of a legend, 1650 */
}

/* A name of 19 letters would reach into the next column, were there six of them. */
CASE(long_names_have_room_in_the_legend) {
    REQUIRE(read_text("[{\"subject\":\"a\",\"ns\":100},{\"subject\":\"b23456789012345678\"},"
                      "{\"subject\":\"c\"},{\"subject\":\"d\"}]",
                      "ns") == ASHLAR_OK);
    CHECK_HAS(draw("", ""), "<circle cx=\"4899\" cy=\"850\"");
    REQUIRE(read_text("[{\"subject\":\"a\",\"ns\":100},{\"subject\":\"b234567890123456789\"},"
                      "{\"subject\":\"c\"},{\"subject\":\"d\"}]",
                      "ns") == ASHLAR_OK);
    const char *text = draw("", "");
    CHECK_HAS(text, "<circle cx=\"3366\" cy=\"850\"");
    CHECK_HAS(text, "<circle cx=\"300\" cy=\"1050\"");
}

CASE(nothing_to_draw_is_an_error) {
    ashlar_chart chart = {&results, 0, "", "", "", ""};
    REQUIRE(read_text("[]", "ns") == ASHLAR_OK);
    CHECK(ashlar__chart_write(&chart, path) == ASHLAR_EINVAL);
    REQUIRE(read_text(rows_text, "ns") == ASHLAR_OK);
    CHECK(ashlar__chart_write(&chart, "/nowhere/at/all.svg") == ASHLAR_EIO);
    chart.base = results.subject_count;
    CHECK(ashlar__chart_write(&chart, path) == ASHLAR_EINVAL);
}

RUN_CASES_IN_FOLDER()
