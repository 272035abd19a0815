/* file_target.c - following a path to the file that is to be replaced, link by link. */
#include "allocator/base/file_target.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

enum { LINKS_MAX = 40 }; /* as in Linux */

/* A path that is being followed, link by link. */
typedef struct walk {
    const char *path;    /* as the caller gave it, for messages */
    char text[PATH_MAX]; /* what is left to follow, from `folder` on */
    int folder;          /* O_PATH; AT_FDCWD at first */
    char base[NAME_MAX + 1];
    int links; /* followed so far */
} walk;

static ashlar_status fail_errno(const walk *w) {
    const int error = errno;
    if (error == ENOENT && w->links > 0) {
        return ashlar__fail(ASHLAR_EINVAL, "%s is a link to nothing; remove it, or make the file",
                            w->path);
    }
    return ashlar__fail(ASHLAR_EIO, "cannot write %s: %s; check the folder and its permissions",
                        w->path, strerror(error));
}

static ashlar_status fail_kind(const walk *w) {
    return ashlar__fail(ASHLAR_EINVAL, "%s is not a regular file; give the path of a file",
                        w->path);
}

static void leave(walk *w) {
    if (w->folder >= 0) {
        (void)close(w->folder);
    }
    w->folder = AT_FDCWD;
}

/* Split `text` into a folder, which is opened, and a name in that folder. */
static ashlar_status enter_folder(walk *w) {
    char *slash = strrchr(w->text, '/');
    const char *base = slash != NULL ? slash + 1 : w->text;
    const size_t bytes = strlen(base);
    if (bytes == 0) {
        return fail_kind(w);
    }
    if (bytes > NAME_MAX) {
        errno = ENAMETOOLONG;
        return fail_errno(w);
    }
    memcpy(w->base, base, bytes + 1);
    if (slash != NULL) {
        slash[slash == w->text] = '\0'; /* the folder of "/name" is "/" */
    }
    const int next =
        openat(w->folder, slash != NULL ? w->text : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (next < 0) {
        return fail_errno(w);
    }
    leave(w);
    w->folder = next;
    return ASHLAR_OK;
}

/* The rule of fs.protected_symlinks. */
static bool may_follow(const struct stat *link, const struct stat *folder) {
    const mode_t shared = S_ISVTX | S_IWOTH;
    return (folder->st_mode & shared) != shared || link->st_uid == geteuid() ||
           link->st_uid == folder->st_uid;
}

static ashlar_status read_link(walk *w, const struct stat *link) {
    struct stat folder;
    if (fstat(w->folder, &folder) != 0) {
        return fail_errno(w);
    }
    if (!may_follow(link, &folder)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "%s is a link that another user has put into a folder for all; remove "
                            "it, or give the path of its file",
                            w->path);
    }
    if (++w->links > LINKS_MAX) {
        errno = ELOOP;
        return fail_errno(w);
    }
    const ssize_t bytes = readlinkat(w->folder, w->base, w->text, sizeof w->text - 1);
    if (bytes < 0) {
        return fail_errno(w);
    }
    w->text[bytes] = '\0'; /* a link's text is never longer */
    return ASHLAR_OK;
}

/* Follow links until there is none. */
static ashlar_status follow(walk *w, ashlar_file_target *out) {
    struct stat info;
    for (;;) {
        ASHLAR_TRY(enter_folder(w));
        if (fstatat(w->folder, w->base, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            out->exists = false;
            return errno == ENOENT && w->links == 0 ? ASHLAR_OK : fail_errno(w);
        }
        if (!S_ISLNK(info.st_mode)) {
            break;
        }
        ASHLAR_TRY(read_link(w, &info));
    }
    if (!S_ISREG(info.st_mode)) {
        /*
         * A rename would replace a device file. Over a folder it would fail, but only after all the
         * work.
         */
        return fail_kind(w);
    }
    out->exists = true;
    out->mode = info.st_mode & 0777;
    out->owner = info.st_uid;
    return ASHLAR_OK;
}

ashlar_status ashlar__file_target_find(const char *path, ashlar_file_target *out) {
    walk w = {.path = path, .folder = AT_FDCWD};
    ashlar_file_target found = {.folder = -1};
    const size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof w.text) {
        return ashlar__fail(ASHLAR_EINVAL, "a path of %zu bytes; give 1 .. %zu", bytes,
                            sizeof w.text - 1);
    }
    memcpy(w.text, path, bytes + 1);
    ashlar_status status = follow(&w, &found);
    if (status == ASHLAR_OK) {
        memcpy(found.base, w.base, sizeof found.base);
        found.folder = openat(w.folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = found.folder >= 0 ? ASHLAR_OK : fail_errno(&w);
    }
    leave(&w);
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(found.base[0] != '\0');
        *out = found;
    }
    return status;
}
