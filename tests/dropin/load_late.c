/*
 * load_late.c - load a library when there is no room for static thread-locals left, in a process
 * that has threads already, and use it: load_late LIBRARY HOG...
 *
 * Each HOG takes a little of that room; the last ones have to find none. At the end a thread is
 * still at work, and a block is freed by a destructor, when all exit handlers have run.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef void *(*alloc_fn)(size_t bytes, int device, void *stream);
typedef void (*free_fn)(void *ptr, size_t bytes, int device, void *stream);

static alloc_fn take;
static free_fn give;
static pthread_barrier_t together;
static void *kept;

__attribute__((destructor)) static void free_at_the_end(void) {
    if (give != NULL) {
        give(kept, 3000, 1, NULL);
        give(take(3000, 1, NULL), 3000, 1, NULL);
    }
}

static void *work_on(void *unused) {
    for (;;) {
        give(take(2000, 0, NULL), 2000, 0, NULL);
    }
    return unused;
}

static void find(void *library, const char *name, void *function) {
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
}

static int use(void) {
    char *block = take(1000, 0, NULL), *other = take(5 << 20, 1, NULL);
    if (block == NULL || other == NULL) {
        return 1;
    }
    memset(block, 1, 1000);
    memset(other, 2, 5 << 20);
    const int bad = block[999] != 1 || other[0] != 2;
    give(block, 1000, 0, NULL);
    give(other, 5 << 20, 1, NULL);
    return bad;
}

static void *use_later(void *bad) {
    (void)pthread_barrier_wait(&together); /* the thread is older than the library */
    (void)pthread_barrier_wait(&together);
    *(int *)bad = use();
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int bad = 1, refused = 0;
    if (argc < 3 || pthread_barrier_init(&together, NULL, 2) != 0 ||
        pthread_create(&thread, NULL, use_later, &bad) != 0) {
        return 2;
    }
    (void)pthread_barrier_wait(&together);
    for (int i = 2; i < argc; i++) {
        refused += dlopen(argv[i], RTLD_NOW) == NULL;
    }
    if (refused == 0) {
        printf("%d hogs found room: give more of them\n", argc - 2);
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    find(library, "ashlar_torch_alloc", &take);
    find(library, "ashlar_torch_free", &give);
    const int bad_here = take == NULL || give == NULL || use();
    /* Its memory would be gone with it. */
    (void)dlclose(library);
    const int is_gone = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL;
    (void)pthread_barrier_wait(&together);
    (void)pthread_join(thread, NULL);
    kept = take(3000, 1, NULL);
    const int bad_end = kept == NULL || pthread_create(&thread, NULL, work_on, NULL) != 0;
    printf("%d hogs refused, bad: here %d, in an older thread %d, unloaded %d\n", refused, bad_here,
           bad, is_gone);
    return bad_here || bad || is_gone || bad_end;
}
