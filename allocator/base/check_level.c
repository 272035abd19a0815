/* check_level.c - printing a failed assertion, and ending the process. */
#include "allocator/base/check_level.h"

#include <stdio.h>
#include <stdlib.h>

void ashlar__assert_fail(const char *expr, const char *file, int line) {
    fprintf(stderr, "ashlar: %s:%d: assertion failed: %s\n", file, line, expr);
    abort();
}
