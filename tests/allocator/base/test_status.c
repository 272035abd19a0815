/*
 * test_status.c - that each status has a name and a text, and each thread its own detail.
 */
#include "tests/check.h"
#include "tests/thread.h"

#include <ashlar/base.h>

#include "allocator/base/error.h"

CASE(every_status_has_its_own_name_and_sentence) {
    static const struct {
        ashlar_status status;
        const char *name, *text;
    } rows[] = {
#define X(name, text) {ASHLAR_##name, "ASHLAR_" #name, text},
        ASHLAR_STATUS_MAP(X)
#undef X
    };
    CHECK_ZU(sizeof rows / sizeof *rows, ASHLAR_STATUS_COUNT);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_ZU(rows[i].status, i);
        CHECK(strcmp(ashlar_status_name(rows[i].status), rows[i].name) == 0);
        CHECK(strcmp(ashlar_status_text(rows[i].status), rows[i].text) == 0);
    }
    CHECK(ASHLAR_OK == 0);
    CHECK(strcmp(ashlar_status_name(ASHLAR_ENOMEM), "ASHLAR_ENOMEM") == 0);
    CHECK(strcmp(ashlar_status_text(ASHLAR_ENOMEM), "no device memory left") == 0);
}

CASE(a_value_that_is_no_status_is_called_unknown) {
    const int values[] = {ASHLAR_STATUS_COUNT, ASHLAR_STATUS_COUNT + 1, -1};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK(strcmp(ashlar_status_name((ashlar_status)values[i]), "ASHLAR_UNKNOWN") == 0);
        CHECK(strcmp(ashlar_status_text((ashlar_status)values[i]), "unknown status") == 0);
    }
}

CASE(the_library_has_the_version_of_its_headers) {
    char text[32];
    CHECK(ashlar_version() == ASHLAR_VERSION);
    (void)snprintf(text, sizeof text, "%d.%d.%d", ASHLAR_VERSION / 10000,
                   ASHLAR_VERSION / 100 % 100, ASHLAR_VERSION % 100);
    CHECK(strcmp(text, ASHLAR_VERSION_TEXT) == 0);
}

CASE(the_old_detail_may_be_an_argument_of_the_new) {
    (void)ashlar__fail(ASHLAR_EIO, "inner");
    (void)ashlar__fail(ASHLAR_EIO, "outer, because %s", ashlar_error_detail());
    CHECK(strcmp(ashlar_error_detail(), "outer, because inner") == 0);
}

CASE(a_long_detail_is_cut_and_terminated) {
    char text[3 * ASHLAR_DETAIL_BYTES];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    (void)ashlar__fail(ASHLAR_EIO, "%s", text);
    CHECK_ZU(strlen(ashlar_error_detail()), ASHLAR_DETAIL_BYTES - 1);
    text[ASHLAR_DETAIL_BYTES - 1] = '\0';
    CHECK(strcmp(ashlar_error_detail(), text) == 0);
}

static void *fail_elsewhere(void *is_empty_at_first) {
    *(bool *)is_empty_at_first = ashlar_error_detail()[0] == '\0';
    (void)ashlar__fail(ASHLAR_EIO, "elsewhere");
    return NULL;
}

CASE(each_thread_has_its_own_detail) {
    bool is_empty_at_first = false;
    (void)ashlar__fail(ASHLAR_EIO, "here");
    run_thread(fail_elsewhere, &is_empty_at_first);
    CHECK(is_empty_at_first);
    CHECK(strcmp(ashlar_error_detail(), "here") == 0);
}

RUN_CASES()
