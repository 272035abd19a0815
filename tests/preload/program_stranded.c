/*
 * program_stranded.c - in place of program.c: fills a device, makes holes, and prints what can be
 * had then, and what was said to be free (tests/stranded.h).
 */
#include "tests/stranded.h"

#include <dlfcn.h>

static stranded state;

/* The driver's own call and no more: the table's takes a block of its own to look at. */
static int ask_driver(size_t *free_bytes, size_t *total_bytes) {
    int (*ask)(size_t *, size_t *) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemGetInfo_v2");
    memcpy(&ask, &address, sizeof ask);
    return ask == NULL ? -1 : ask(free_bytes, total_bytes);
}

int run_program(const gpu *calls, int argc, char **argv) {
    const bool is_on_streams = argc == 2 && strcmp(argv[1], "on-streams") == 0;
    if (argc != 2 || (!is_on_streams && strcmp(argv[1], "at-once") != 0)) {
        printf("usage: %s at-once|on-streams\n", argv[0]);
        return 2;
    }
    if (calls->use(0) != 0) {
        printf("there is no device\n");
        return 2;
    }
    gpu g = *calls;
    g.info = ask_driver;
    stranded_run(&state, &g, is_on_streams);
    for (size_t i = 0; i < state.row_count; i++) {
        printf("%s %zu %zu\n", state.rows[i].name, state.rows[i].bytes, state.rows[i].promised);
    }
    return state.failures > 0;
}
