/* version.h - the version of these headers, and that of the library in the process. */
#ifndef ASHLAR_VERSION_H
#define ASHLAR_VERSION_H

#include <ashlar/export.h>

#define ASHLAR_VERSION_MAJOR 0
#define ASHLAR_VERSION_MINOR 1
#define ASHLAR_VERSION_PATCH 0

/* As one number that grows from version to version: 1.2.3 is 10203. */
#define ASHLAR_VERSION \
    (ASHLAR_VERSION_MAJOR * 10000 + ASHLAR_VERSION_MINOR * 100 + ASHLAR_VERSION_PATCH)

#define ASHLAR_VERSION_QUOTE_(text) #text
#define ASHLAR_VERSION_JOIN_(major, minor, patch) \
    ASHLAR_VERSION_QUOTE_(major) "." ASHLAR_VERSION_QUOTE_(minor) "." ASHLAR_VERSION_QUOTE_(patch)

/* "1.2.3" */
#define ASHLAR_VERSION_TEXT \
    ASHLAR_VERSION_JOIN_(ASHLAR_VERSION_MAJOR, ASHLAR_VERSION_MINOR, ASHLAR_VERSION_PATCH)

ASHLAR_BEGIN_DECLS

/*
 * ASHLAR_VERSION of the library that the program runs with. It may be later than that of the
 * headers that the program was compiled with. If it is earlier, the program may use what the
 * library lacks.
 *
 * Threads: any. Cost: a call.
 */
ASHLAR_API int ashlar_version(void);

ASHLAR_END_DECLS

#endif /* ASHLAR_VERSION_H */
