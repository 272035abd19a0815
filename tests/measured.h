/*
 * measured.h - what coverage wants otherwise, included before every file (tests/mcdc.py).
 *
 * Assertions are not compiled: their conditions are ours to keep true, so no test can show the
 * other side of one. And a child that ends without exit() writes down what it covered.
 */
/* Without a level it is Meson that tries what the compiler has. */
#if !defined(ASHLAR_MEASURED_H) && defined(ASHLAR_DEBUG)
#define ASHLAR_MEASURED_H

#include <stdlib.h>
#include <unistd.h>

#include "allocator/base/check_level.h"

#undef ASHLAR_ASSERT_AT
#define ASHLAR_ASSERT_AT(level, expr) ((void)0)

int __llvm_profile_write_file(void);
#define _exit(status)                      \
    do {                                   \
        const int status_ = (status);      \
        (void)__llvm_profile_write_file(); \
        _exit(status_);                    \
    } while (0)

static inline _Noreturn void ashlar_measured_abort(void) {
    (void)__llvm_profile_write_file();
    abort();
}
/* Without parentheses, so that a member of that name stays a member. */
#define abort ashlar_measured_abort

#endif /* ASHLAR_MEASURED_H */
