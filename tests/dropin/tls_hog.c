/* What fills the room that the C library keeps for thread-locals found without a call. */
#include <ashlar/export.h>

ASHLAR_API int *hog(void);

int *hog(void) {
    static __thread int mine[2] __attribute__((tls_model("initial-exec")));
    return mine;
}
