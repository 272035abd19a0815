/* file_temporary.c - making new files that nobody sees, naming them, and removing stale ones. */
#include "allocator/base/file_temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"

#define MARK ".ashlar-"
#define END ".tmp"
enum {
    DIGITS = 16,
    SUFFIX_BYTES = sizeof MARK - 1 + DIGITS + sizeof END - 1,
    NEW_MODE = 0666, /* as for any file that is not a program */
    HIDDEN_MODE = 0600,
};

static atomic_bool needs_names;

void ashlar__temporary_need_names(bool need) {
    atomic_store(&needs_names, need);
}

/* ---- names ---- */

/* The number of bytes that a temporary's name copies from the target's name. */
static size_t base_bytes(const char *base) {
    const size_t bytes = strlen(base);
    return bytes + SUFFIX_BYTES <= NAME_MAX ? bytes : NAME_MAX - SUFFIX_BYTES;
}

/* Draw a random name, which no file has except by chance. */
static void draw_name(const char *base, char name[static NAME_MAX + 1]) {
    static atomic_uint_fast64_t next;
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
        number = (uint64_t)ashlar__clock_ns() ^ (uint64_t)getpid() << 40;
    }
    number += atomic_fetch_add(&next, 1);
    const int bytes = snprintf(name, NAME_MAX + 1, "%.*s" MARK "%016" PRIx64 END,
                               (int)base_bytes(base), base, number);
    ASHLAR_CHECK2(bytes > 0 && bytes <= NAME_MAX);
    (void)bytes;
}

static bool is_temporary(const char *name, const char *base) {
    const size_t bytes = base_bytes(base);
    if (strlen(name) != bytes + SUFFIX_BYTES || strncmp(name, base, bytes) != 0 ||
        strncmp(name + bytes, MARK, sizeof MARK - 1) != 0) {
        return false;
    }
    const char *digits = name + bytes + sizeof MARK - 1;
    return strspn(digits, "0123456789abcdef") == DIGITS && strcmp(digits + DIGITS, END) == 0;
}

/* ---- temporary files that killed writers left ---- */

/* Whether the open file belongs to this user and has one name. If it was unlinked, another file may
 * have its name by now, and unlinking the name would remove that one. */
static bool is_named_and_ours(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 &&
           info.st_uid == geteuid();
}

bool ashlar__temporary_lock(int fd) {
    ASHLAR_CHECK2(fd >= 0);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return errno != EWOULDBLOCK; /* other errors: no locks here, so nobody can remove it */
    }
    return is_named_and_ours(fd);
}

static void remove_if_stale(int folder, const char *name) {
    /* Non-blocking: if the name is a pipe, a blocking open would wait for the pipe's writer. */
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_named_and_ours(fd)) {
        (void)unlinkat(folder, name, 0);
    }
    (void)close(fd);
}

void ashlar__temporary_remove_stale(int folder, const char *base) {
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    if (names == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return;
    }
    for (const struct dirent *entry = readdir(names); entry != NULL; entry = readdir(names)) {
        if (is_temporary(entry->d_name, base)) {
            remove_if_stale(folder, entry->d_name);
        }
    }
    (void)closedir(names);
}

/* ---- without a name ---- */

enum { FD_PATH_BYTES = 32 };
_Static_assert(FD_PATH_BYTES >= sizeof "/proc/self/fd/-2147483648", "for any descriptor");

static void print_fd_path(int fd, char path[static FD_PATH_BYTES]) {
    (void)snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
}

/*
 * Make a file without a name. False: that is impossible here, or the file could not get a name
 * later.
 */
static bool open_unnamed(ashlar_file_temporary *t) {
    char path[FD_PATH_BYTES];
    struct stat info;
    if (atomic_load(&needs_names)) {
        return false;
    }
    t->fd = openat(t->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, NEW_MODE);
    if (t->fd < 0) {
        return false;
    }
    print_fd_path(t->fd, path);
    if (access(path, F_OK) != 0 || fstat(t->fd, &info) != 0) {
        (void)close(t->fd);
        t->fd = -1;
        return false;
    }
    t->mode = info.st_mode & 0777;
    (void)flock(t->fd, LOCK_EX | LOCK_NB); /* nobody else can hold this lock */
    return true;
}

/* False with EEXIST: the name is taken. */
static bool link_as(const ashlar_file_temporary *t, const char *name) {
    char path[FD_PATH_BYTES];
    print_fd_path(t->fd, path);
    return linkat(AT_FDCWD, path, t->folder, name, AT_SYMLINK_FOLLOW) == 0;
}

static bool link_as_temporary(ashlar_file_temporary *t) {
    char name[NAME_MAX + 1];
    do {
        draw_name(t->base, name);
        if (link_as(t, name)) {
            memcpy(t->name, name, sizeof name);
            return true;
        }
    } while (errno == EEXIST);
    return false;
}

/* ---- with a name ---- */

/* Read the process's umask from /proc, since umask() would change it for a moment in which other
 * threads may make files. Without /proc, assume the strictest one. */
static mode_t read_umask(void) {
    char line[128];
    unsigned long mask = 077;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "Umask:", sizeof "Umask:" - 1) == 0) {
            mask = strtoul(line + sizeof "Umask:" - 1, NULL, 8);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (mode_t)mask & 0777;
}

static bool open_named(ashlar_file_temporary *t) {
    for (;;) {
        ASHLAR_CHECK2(t->fd < 0); /* an open descriptor would leak */
        draw_name(t->base, t->name);
        t->fd = openat(t->folder, t->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       HIDDEN_MODE);
        if (t->fd >= 0 && ashlar__temporary_lock(t->fd)) {
            t->mode = NEW_MODE & ~read_umask();
            return true;
        }
        if (t->fd < 0 && errno != EEXIST) {
            return false; /* without a descriptor nothing is removed at the end */
        }
        if (t->fd >= 0) {
            (void)close(t->fd);
            t->fd = -1;
        }
    }
}

/* ---- the interface ---- */

bool ashlar__temporary_open(ashlar_file_temporary *t, int folder, const char *base) {
    *t = (ashlar_file_temporary){.folder = folder, .base = base, .fd = -1};
    return open_unnamed(t) || open_named(t);
}

bool ashlar__temporary_place(ashlar_file_temporary *t) {
    ASHLAR_CHECK2(t->fd >= 0);
    if (t->name[0] == '\0') {
        if (link_as(t, t->base)) {
            return true; /* there was no file of that name: nothing to replace */
        }
        if (errno != EEXIST || !link_as_temporary(t)) {
            return false;
        }
    }
    if (renameat(t->folder, t->name, t->folder, t->base) != 0) {
        return false;
    }
    t->name[0] = '\0';
    return true;
}

void ashlar__temporary_close(ashlar_file_temporary *t) {
    if (t->fd < 0) {
        return;
    }
    if (t->name[0] != '\0') {
        (void)unlinkat(t->folder, t->name, 0);
        t->name[0] = '\0';
    }
    (void)close(t->fd);
    t->fd = -1;
}
