/*
 * report_fixture.h - a program's report that was read back, and checks of its members, for tests.
 */
#ifndef ASHLAR_REPORT_FIXTURE_H
#define ASHLAR_REPORT_FIXTURE_H

#include "tests/allocator/base/file_fixture.h"

#include "tests/json_tree.h"

static ashlar_json *document; /* the report that was read last */

static inline void drop_document(void) {
    json_free(document);
    document = NULL;
}

/* The report in the case's file, which ends in a line's end. */
static inline bool read_document(void) {
    static unsigned char bytes[FILE_MAX_BYTES];
    const size_t count = read_bytes(bytes);
    drop_document();
    CHECK(count > 2 && count < FILE_MAX_BYTES && bytes[count - 1] == '\n');
    CHECK(strncmp((const char *)bytes, "{\n  \"schema\": \"ashlar-", 22) == 0);
    CHECK(json_parse((const char *)bytes, count, &document) == ASHLAR_OK);
    return document != NULL && check_at_end(drop_document);
}

static inline void check_uint(const ashlar_json *object, const char *key, uint64_t want) {
    uint64_t got = ~want;
    CHECK(ashlar__json_get_uint64(json_member(object, key), &got));
    if (got != want) {
        printf("# %s\n", key);
    }
    CHECK(got == want);
}

static inline void check_real(const ashlar_json *object, const char *key, double want) {
    const ashlar_json *value = json_member(object, key);
    CHECK(value != NULL && value->kind == ASHLAR_JSON_NUMBER && value->number == want);
}

static inline void check_text(const ashlar_json *object, const char *key, const char *want) {
    const ashlar_json *value = json_member(object, key);
    CHECK(value != NULL && value->kind == ASHLAR_JSON_STRING && strcmp(value->text, want) == 0);
}

#endif /* ASHLAR_REPORT_FIXTURE_H */
