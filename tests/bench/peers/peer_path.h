/*
 * peer_path.h - where the shared objects lie that the tests of peers load.
 */
#ifndef ASHLAR_PEER_PATH_H
#define ASHLAR_PEER_PATH_H

#include <stdio.h>
#include <stdlib.h>

enum { PATH_BYTES = 512 };

/* In the folder ASHLAR_TEST_PEERS; until the next call. */
static inline const char *path_of(const char *name) {
    static char path[PATH_BYTES];
    const char *folder = getenv("ASHLAR_TEST_PEERS");
    (void)snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : ".", name);
    return path;
}

#endif /* ASHLAR_PEER_PATH_H */
