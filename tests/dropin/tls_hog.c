/* tls_hog.c - a library that takes of the C library's room for static thread-locals. */
#include <ashlar/export.h>

ASHLAR_API int *hog(void);

int *hog(void) {
    static __thread int mine[2] __attribute__((tls_model("initial-exec")));
    return mine;
}
