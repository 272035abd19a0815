/* check_level.c - the last words of a process whose assertion failed. */
#include "allocator/base/check_level.h"

#include <stdio.h>
#include <stdlib.h>

void ashlar__assert_fail(const char *expr, const char *file, int line) {
    fprintf(stderr, "ashlar: %s:%d: assertion failed: %s\n", file, line, expr);
    abort();
}
