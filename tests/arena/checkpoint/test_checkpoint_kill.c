/*
 * test_checkpoint_kill.c - a process that is killed at any moment of a save leaves the old
 * checkpoint or the new one, whole, and beside it at most the file that it was writing.
 *
 * Every value of a checkpoint is its generation, which its metadata tells too, so that a mixture of
 * two would show. The parent has no device; each child opens its own.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ashlar/arena.h>

#include "tests/arena/checkpoint/safetensors_find.h"
#include "allocator/base/random.h"

enum { TENSORS = 32, REGIONS = 3 };

static char folder[64], path[96];

/* ---- the child ---- */

static ashlar_arena *open_arena(size_t elements) {
    ashlar_arena *arena = NULL;
    bool is_good = set_up("memory=256MiB") && ashlar_arena_create(&arena) == ASHLAR_OK;
    for (int i = 0; i < TENSORS && is_good; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "tensor%d", i);
        is_good = ashlar_arena_add(arena, name, ASHLAR_F32, 1, &elements, NULL) == ASHLAR_OK;
    }
    if (!is_good ||
        ashlar_arena_commit(arena, allocator, streams[0], ASHLAR_REGIONS_ALL) != ASHLAR_OK ||
        ashlar_stream_synchronize(device, streams[0]) != ASHLAR_OK) {
        _exit(1);
    }
    return arena;
}

static ashlar_status save(const ashlar_arena *arena, unsigned long generation) {
    static const ashlar_region regions[REGIONS] = {ASHLAR_REGION_PARAMETERS, ASHLAR_REGION_MOMENT1,
                                                   ASHLAR_REGION_MOMENT2};
    for (int r = 0; r < REGIONS; r++) {
        float *values = ashlar_arena_region(arena, regions[r]);
        for (size_t i = 0; i < ashlar_arena_region_bytes(arena, regions[r]) / sizeof *values; i++) {
            values[i] = (float)generation;
        }
    }
    char text[24];
    (void)snprintf(text, sizeof text, "%lu", generation);
    const ashlar_checkpoint_pair pair = {"generation", text};
    return ashlar_checkpoint_save(arena, path, ASHLAR_CHECKPOINT_STATE, &pair, 1, streams[0]);
}

/* ---- what is found ---- */

static bool is_of(const ashlar_safetensors *file, size_t tensor, float generation) {
    const ashlar_safetensors_entry *entry = ashlar__safetensors_at(file, tensor);
    float *values = copy_elements(file, entry);
    size_t wrong = values == NULL;
    for (size_t i = 0; values != NULL && i < entry->shape[0]; i++) {
        wrong += values[i] != generation;
    }
    free(values);
    return wrong == 0;
}

/* The generation of a checkpoint that is whole. */
static unsigned long find_generation(void) {
    ashlar_safetensors *file = NULL;
    CHECK(ashlar__safetensors_open(path, &file) == ASHLAR_OK);
    if (file == NULL) {
        printf("# %s\n", ashlar_error_detail());
        return 0;
    }
    const char *text = ashlar__safetensors_metadata(file, "generation");
    const unsigned long generation = text != NULL ? strtoul(text, NULL, 10) : 0;
    CHECK_ZU(ashlar__safetensors_count(file), TENSORS * REGIONS);
    for (size_t i = 0; i < ashlar__safetensors_count(file); i++) {
        CHECK(is_of(file, i, (float)generation));
    }
    ashlar__safetensors_close(file);
    return generation;
}

/* Remove what lies beside the checkpoint; returns how much that was. */
static size_t remove_leftovers(void) {
    static const char begin[] = "checkpoint.ashlar-", end[] = ".tmp";
    size_t count = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry = dir == NULL ? NULL : readdir(dir); entry != NULL;
         entry = readdir(dir)) {
        const size_t bytes = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "checkpoint") == 0) {
            continue;
        }
        CHECK(strncmp(entry->d_name, begin, sizeof begin - 1) == 0);
        CHECK(strcmp(entry->d_name + bytes - (sizeof end - 1), end) == 0);
        CHECK(unlinkat(dirfd(dir), entry->d_name, 0) == 0);
        count++;
    }
    CHECK(dir != NULL && closedir(dir) == 0);
    return count;
}

/* After a child: the checkpoint, and a leftover or none. */
static unsigned long check_found(unsigned long least, unsigned long most) {
    const unsigned long generation = find_generation();
    CHECK(generation >= least && generation <= most);
    CHECK(remove_leftovers() <= 1);
    return generation;
}

/* ---- the cases ---- */

/* In memory where there is such a folder: a save would mostly wait for the disk. */
static bool make_folder(void) {
    (void)snprintf(folder, sizeof folder, "/dev/shm/ashlar-kill-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        (void)snprintf(folder, sizeof folder, "/tmp/ashlar-kill-XXXXXX");
        if (mkdtemp(folder) == NULL) {
            return false;
        }
    }
    (void)snprintf(path, sizeof path, "%s/checkpoint", folder);
    return true;
}

static void remove_folder(void) {
    CHECK_ZU(remove_leftovers(), 0); /* of a save that ends */
    (void)unlink(path);
    CHECK(rmdir(folder) == 0);
}

/* Let a child save to the end. */
static void save_whole(unsigned long generation, size_t elements) {
    int status = 1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        _exit(save(open_arena(elements), generation) == ASHLAR_OK ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

enum { NOT_ALLOWED = 77 };

static pid_t start_traced(unsigned long generation, size_t elements) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(NOT_ALLOWED);
        }
        const ashlar_arena *arena = open_arena(elements);
        (void)raise(SIGSTOP);
        _exit(save(arena, generation) == ASHLAR_OK ? 0 : 1);
    }
    return child;
}

/* Kill the child at the n-th entry to or return from a system call; false: it had ended. */
static bool kill_at(pid_t child, size_t n, int *status) {
    for (size_t i = 0; i < n; i++) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) != 0 || waitpid(child, status, 0) != child ||
            !WIFSTOPPED(*status)) {
            return false;
        }
    }
    (void)kill(child, SIGKILL);
    return waitpid(child, status, 0) == child && WIFSIGNALED(*status);
}

CASE(at_each_system_call_of_a_save_the_old_or_the_new_is_whole) {
    enum { ELEMENTS = 2048, STOPS_MAX = 2000 }; /* some writes */
    size_t old_count = 0, new_count = 0;
    bool is_killed = true;
    unsigned long generation = 1;
    REQUIRE(make_folder());
    save_whole(generation, ELEMENTS);
    for (size_t n = 1; is_killed && n < STOPS_MAX; n++) {
        int status = 0;
        const pid_t child = start_traced(generation + 1, ELEMENTS);
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED) {
            remove_folder();
            SKIP("this process may not trace its children");
        }
        REQUIRE(WIFSTOPPED(status));
        is_killed = kill_at(child, n, &status);
        CHECK(is_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        const unsigned long found = check_found(generation, generation + 1);
        old_count += found == generation;
        new_count += found == generation + 1;
        generation = found;
    }
    printf("# killed at %zu moments before the new one was there, and at %zu after\n", old_count,
           new_count);
    CHECK(!is_killed && old_count >= 30 && new_count >= 2);
    save_whole(generation + 1, ELEMENTS);
    CHECK(find_generation() == generation + 1);
    remove_folder();
}

RUN_CASES()
