/*
 * file_target.h - finding the file that a path leads to, which is then replaced (internal).
 *
 * If the path is a symbolic link, the file that it leads to is replaced, with one exception. In a
 * folder where everybody may make files and only their owners may remove them, such as /tmp, a link
 * is followed only if it belongs to this process's user or to the folder's owner. Anybody might
 * have put any other link there, to have a file of this user replaced. Linux has the same rule
 * (fs.protected_symlinks), but it can be switched off, and does not cover links that a program
 * follows by itself.
 *
 * Each folder is opened once and links are read in it, so that nobody can change the path between a
 * check and its use.
 */
#ifndef ASHLAR_FILE_TARGET_H
#define ASHLAR_FILE_TARGET_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include <ashlar/status.h>

typedef struct ashlar_file_target {
    int folder;              /* open for reading; the caller closes it */
    char base[NAME_MAX + 1]; /* the file's name in the folder; not a link */
    bool exists;             /* a regular file has the name now, ... */
    mode_t mode;             /* ... with these permissions */
    uid_t owner;
} ashlar_file_target;

/* Errors: ASHLAR_EIO (no such folder, no permission), ASHLAR_EINVAL (something other than a regular
 * file has the name, or a link that leads nowhere or is not followed; no path at all). */
ASHLAR_MUST_CHECK ashlar_status ashlar__file_target_find(const char *path, ashlar_file_target *out);

#endif /* ASHLAR_FILE_TARGET_H */
