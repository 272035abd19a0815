#include "allocator/base/file_stale.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a name may still be removed: once it is gone, another file may get it. */
static bool has_name(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink > 0;
}

bool ashlar__file_lock(int fd) {
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return errno != EWOULDBLOCK; /* else there are no locks here, and so no other remover */
    }
    return has_name(fd);
}

/* Behind ".<digits>"; NULL: it is not there. */
static const char *skip_number(const char *text) {
    const size_t digits = *text == '.' ? strspn(text + 1, "0123456789") : 0;
    return digits > 0 ? text + 1 + digits : NULL;
}

static bool is_temporary(const char *name, const char *base) {
    const size_t bytes = strlen(base);
    const char *next = strncmp(name, base, bytes) == 0 ? skip_number(name + bytes) : NULL;
    next = next != NULL ? skip_number(next) : NULL;
    return next != NULL && strcmp(next, ".tmp") == 0;
}

static void remove_if_stale(int folder, const char *name) {
    /* Non-blocking, or a pipe of that name would wait for its writer. */
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && has_name(fd)) {
        (void)unlinkat(folder, name, 0);
    }
    (void)close(fd);
}

void ashlar__file_remove_stale(const char *target) {
    char path[PATH_MAX];
    const char *slash = strrchr(target, '/');
    const char *base = slash != NULL ? slash + 1 : target;
    const size_t bytes = (size_t)(base - target); /* with its slash */
    if (bytes >= sizeof path) {
        return;
    }
    memcpy(path, target, bytes);
    path[bytes] = '\0';
    DIR *folder = opendir(bytes > 0 ? path : ".");
    if (folder == NULL) {
        return; /* creating the file will tell why */
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (is_temporary(entry->d_name, base)) {
            remove_if_stale(dirfd(folder), entry->d_name);
        }
    }
    (void)closedir(folder);
}
