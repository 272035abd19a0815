/*
 * file_temporary.h - a new file until it takes the place of another (internal; for file.c and its
 * tests).
 *
 * If the file system supports it (O_TMPFILE), the file has no name: nobody else can open it, and
 * nothing is left of it if the process is killed. On other file systems, and for a moment before it
 * replaces a file, it is named BASE.ashlar-<16 hexadecimal digits>.tmp in the target's folder,
 * where BASE is the target's name, or its beginning, and the digits are random. Until it has the
 * target's name, only its owner can open it.
 *
 * A process that is killed may leave a file with such a name. A writer holds a lock (flock(2)) on
 * its file until the end, and the kernel drops the locks of a process that dies. So a file that has
 * such a name, belongs to this user and can be locked was left by a killed writer of this user, and
 * may be removed. If the file system has no such locks, nothing is removed.
 *
 * Functions that return bool set errno when they return false.
 */
#ifndef ASHLAR_FILE_TEMPORARY_H
#define ASHLAR_FILE_TEMPORARY_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct ashlar_file_temporary {
    int folder;              /* the target's folder; the caller's */
    const char *base;        /* the target's name in the folder; the caller's */
    int fd;                  /* open for writing; -1: none */
    mode_t mode;             /* the permissions that the umask gives a new file */
    char name[NAME_MAX + 1]; /* in the folder; "": it has none */
} ashlar_file_temporary;

/* Make and lock a new file. */
bool ashlar__temporary_open(ashlar_file_temporary *t, int folder, const char *base);

/* Give the file the target's name, replacing any file that has it. */
bool ashlar__temporary_place(ashlar_file_temporary *t);

/* If the file is open, close it, and remove its name unless that is the target's. */
void ashlar__temporary_close(ashlar_file_temporary *t);

/* Remove files left by killed writers of this target. Failures are ignored. */
void ashlar__temporary_remove_stale(int folder, const char *base);

/*
 * Lock a named file that was just made. False: another process took the file for stale and is
 * removing it, so the caller must make another one.
 */
bool ashlar__temporary_lock(int fd);

/* For tests: whether to behave as on a file system that does not support files without a name. */
void ashlar__temporary_need_names(bool need);

#endif /* ASHLAR_FILE_TEMPORARY_H */
