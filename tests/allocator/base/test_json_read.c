/*
 * test_json_read.c - what the JSON reader accepts and what it refuses.
 */
#include "tests/json_tree.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"

static ashlar_json *json; /* of the case */

static void free_json(void) {
    json_free(json);
    json = NULL;
}

/* A page behind which nothing can be read. */
static char *last_page(size_t page_bytes) {
    static char *page;
    if (page == NULL) {
        page =
            mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED && mprotect(page + page_bytes, page_bytes, PROT_NONE) == 0);
    }
    return page;
}

/* Parse a copy without a terminator, so that any read past the end shows. */
static ashlar_status parse(const char *text, size_t bytes) {
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *copy = last_page(page_bytes) + page_bytes - bytes;
    CHECK(bytes <= page_bytes);
    memcpy(copy, text, bytes);
    free_json();
    const ashlar_status status = json_parse(copy, bytes, &json);
    (void)check_at_end(free_json);
    return status;
}

CASE(a_document_becomes_a_tree) {
    static const char text[] = " { \"a\" : [ 1 , -2.5e1 , \"x\\u00e4\\n\" ] ,\t\"b\":{} ,\r\n"
                               "\"c\":null,\"d\":true,\"e\":false,\"\":\"\" } ";
    REQUIRE(parse(text, sizeof text - 1) == ASHLAR_OK);
    CHECK(json->kind == ASHLAR_JSON_OBJECT && json->key == NULL && json->next == NULL);
    CHECK_ZU(json->count, 6);
    const ashlar_json *a = json_member(json, "a");
    REQUIRE(a != NULL && a->kind == ASHLAR_JSON_ARRAY && a->count == 3);
    CHECK(a->item->number == 1 && a->item->next->number == -25);
    CHECK(!a->item->next->is_integer && a->item->key == NULL);
    const ashlar_json *text_item = a->item->next->next;
    REQUIRE(text_item->kind == ASHLAR_JSON_STRING && text_item->next == NULL);
    CHECK(strcmp(text_item->text, "x\xc3\xa4\n") == 0 && text_item->count == 4);
    CHECK(json_member(json, "b")->kind == ASHLAR_JSON_OBJECT);
    CHECK(json_member(json, "b")->item == NULL);
    CHECK(json_member(json, "c")->kind == ASHLAR_JSON_NULL);
    CHECK(json_member(json, "d")->boolean);
    CHECK(json_member(json, "e")->kind == ASHLAR_JSON_BOOL);
    CHECK(!json_member(json, "e")->boolean);
    CHECK_ZU(json_member(json, "")->count, 0);
    CHECK(json_member(json, "f") == NULL);
    CHECK(json_member(a, "a") == NULL && json_member(NULL, "a") == NULL);
}

CASE(escapes_are_decoded) {
    static const char text[] = "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u0039\\u007f\\u0080"
                               "\\u07FF\\u0800\\uFFFF\\uD83d\\uDE00\\u0000.\"";
    static const char want[] =
        "\"\\/\b\f\n\r\tA9\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x9f\x98\x80\0.";
    REQUIRE(parse(text, sizeof text - 1) == ASHLAR_OK);
    CHECK_ZU(json->count, sizeof want - 1);
    CHECK(memcmp(json->text, want, sizeof want) == 0);
}

CASE(integers_are_exact) {
    static const struct {
        const char *text;
        bool is_unsigned, is_signed;
        uint64_t u;
        int64_t s;
    } cases[] = {
        {"0", true, true, 0, 0},
        {"-0", true, true, 0, 0},
        {"18446744073709551615", true, false, UINT64_MAX, 0},
        {"18446744073709551616", false, false, 0, 0},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", true, false, UINT64_C(1) << 63, 0},
        {"-9223372036854775808", false, true, 0, INT64_MIN},
        {"-9223372036854775809", false, false, 0, 0},
        {"-1", false, true, 0, -1},
        {"1.0", false, false, 0, 0},
        {"1e2", false, false, 0, 0},
        {"\"1\"", false, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t u = 0;
        int64_t s = 0;
        REQUIRE(parse(cases[i].text, strlen(cases[i].text)) == ASHLAR_OK);
        CHECK(ashlar__json_get_uint64(json, &u) == cases[i].is_unsigned && u == cases[i].u);
        CHECK(json_get_int64(json, &s) == cases[i].is_signed && s == cases[i].s);
    }
    uint64_t u = 0;
    int64_t s = 0;
    REQUIRE(parse("[123,4]", 7) == ASHLAR_OK); /* a shorter one after a longer one */
    CHECK(ashlar__json_get_uint64(json->item->next, &u) && u == 4);
    CHECK(!ashlar__json_get_uint64(NULL, &u) && !json_get_int64(NULL, &s));
}

/* Text, and the byte that the message must name. */
static const struct {
    const char *text;
    size_t at;
} refused[] = {
    {"", 0},           {" ", 1},          {"nul", 0},        {"nulll", 4},
    {"True", 0},       {"[1,]", 3},       {"[1 2]", 3},      {"[1", 2},
    {"[", 1},          {"]", 0},          {"[,", 1},         {"{", 1},
    {"{\"a\"}", 4},    {"{\"a\":}", 5},   {"{\"a\":1,}", 7}, {"{a:1}", 1},
    {"{\"a\":1 \"b\":2}", 7},             {"{1:1}", 1},      {"[1}", 2},
    {"01", 1},         {"-", 1},          {"+1", 0},         {".5", 0},
    {"1.", 2},         {"1.e5", 2},       {"1e", 2},         {"1e+", 3},
    {"-a", 1},         {"0x10", 1},       {"1e999", 0},      {"NaN", 0},
    {"\"", 0},         {"\"abc", 0},      {"\"\\", 2},       {"\"\\x\"", 2},
    {"\"\t\"", 1},     {"\"\\u12g4\"", 5},{"\"\\u12", 5},    {"\"\\ud800\"", 3},
    {"\"\\ud800\\u0041\"", 3},            {"\"\\udc00\"", 3},{"\"\xff\"", 1},
    {"\"\xc3\"", 1},   {"\"\xed\xa0\x80\"", 1},              {"1 1", 2},
    {"\xef\xbb\xbf""1", 0},               {"'a'", 0},        {"/**/1", 0},
    {"\"\\udc00\\udc00\"", 3},            {"\"\\ud800\\xdc00\"", 3},
    {"\"\\ud800\\ue000\"", 3},            {"\"\\ud800xx0041\"", 3},
};

CASE(what_the_grammar_lacks_is_refused_at_its_byte) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char byte[32];
        (void)snprintf(byte, sizeof byte, "byte %zu:", refused[i].at);
        CHECK_FAILS(parse(refused[i].text, strlen(refused[i].text)), ASHLAR_EFORMAT, byte);
        CHECK(json == NULL);
    }
    CHECK(parse("1\0", 2) == ASHLAR_EFORMAT);
    CHECK(parse("\"\0\"", 3) == ASHLAR_EFORMAT);
    CHECK(parse("\"\\\0\"", 4) == ASHLAR_EFORMAT);
}

CASE(nesting_has_a_limit) {
    char text[4 * ASHLAR_JSON_DEPTH];
    for (size_t depth = ASHLAR_JSON_DEPTH; depth <= ASHLAR_JSON_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        const ashlar_status status = parse(text, 2 * depth);
        CHECK((status == ASHLAR_OK) == (depth == ASHLAR_JSON_DEPTH));
    }
    CHECK_HAS(ashlar_error_detail(), "nested too deep");
    /* Depth, not number: as many empty arrays side by side. */
    text[0] = '[';
    for (size_t i = 0; i <= ASHLAR_JSON_DEPTH; i++) {
        memcpy(text + 1 + 3 * i, "[],", 3);
    }
    text[3 * (ASHLAR_JSON_DEPTH + 1)] = ']';
    CHECK(parse(text, 3 * (ASHLAR_JSON_DEPTH + 1) + 1) == ASHLAR_OK);
}

RUN_CASES()
