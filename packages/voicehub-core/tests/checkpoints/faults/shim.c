/* Makes one operation on the file system fail, below any language: load it with LD_PRELOAD.
 *
 * Only paths below the directory named by VOICEHUB_FAULT_DIR count. fault_arm() chooses the kind
 * of operation, which one of them strikes and what happens then:
 *
 *   error > 0   the operation fails with this errno; a write first writes half of its bytes
 *   error == 0  the process is killed there and then, a write half done
 *
 * Once it has struck, every operation of the kinds in `afterwards` fails as well, as on a disk that
 * is full and stays so. Counting is atomic: writers may be threads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, FSYNC = 4, RENAME = 8, MKDIR = 16, UNLINK = 32 };

static int armed_kinds, armed_error, armed_afterwards;
static long armed_at;
static atomic_long seen;
static atomic_int struck;

void fault_arm(int kinds, long at, int error, int afterwards) {
    armed_at = at, armed_error = error, armed_afterwards = afterwards;
    atomic_store(&seen, 0), atomic_store(&struck, 0);
    armed_kinds = kinds;
}

void fault_disarm(void) { armed_kinds = armed_afterwards = 0; }
long fault_seen(void) { return atomic_load(&seen); }
int fault_struck(void) { return atomic_load(&struck); }

static int below(const char *path) {
    const char *root = getenv("VOICEHUB_FAULT_DIR");
    size_t length = root ? strlen(root) : 0;
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int watched_path(int directory, const char *path) {
    char base[PATH_MAX], whole[2 * PATH_MAX];
    if (path[0] == '/') return below(path);
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    return below(whole);
}

static int watched_file(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int is_armed(int kind) { return (armed_kinds | armed_afterwards) & kind; }

/* 1 if this operation is to fail; the caller has checked that it is watched. */
static int strikes(int kind) {
    if (atomic_load(&struck) && armed_afterwards & kind) return 1;
    if (!(armed_kinds & kind)) return 0;
    if (atomic_fetch_add(&seen, 1) + 1 != armed_at) return 0;
    atomic_store(&struck, 1);
    return 1;
}

static int fail(void) {
    if (!armed_error) kill(getpid(), SIGKILL);
    errno = armed_error;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* ---- files opened or made for writing ---- */

static int makes(int flags) { return (flags & O_CREAT) || (flags & O_ACCMODE) != O_RDONLY; }

#define OPENER(name, signature, directory, call)                                                  \
    int name signature {                                                                          \
        mode_t mode = 0;                                                                          \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                    \
            va_list rest;                                                                         \
            va_start(rest, flags);                                                                \
            mode = va_arg(rest, mode_t);                                                          \
            va_end(rest);                                                                         \
        }                                                                                         \
        if (is_armed(OPEN) && makes(flags) && watched_path(directory, path) && strikes(OPEN)) return fail();        \
        return call;                                                                              \
    }

OPENER(open, (const char *path, int flags, ...), AT_FDCWD, REAL(open)(path, flags, mode))
OPENER(open64, (const char *path, int flags, ...), AT_FDCWD, REAL(open64)(path, flags, mode))
OPENER(openat, (int at, const char *path, int flags, ...), at, REAL(openat)(at, path, flags, mode))
OPENER(openat64, (int at, const char *path, int flags, ...), at,
       REAL(openat64)(at, path, flags, mode))

/* ---- writes: the one that strikes is half done; what follows on a full disk is not done ---- */

ssize_t write(int file, const void *data, size_t size) {
    int before = atomic_load(&struck);
    if (is_armed(WRITE) && watched_file(file) && strikes(WRITE)) {
        ssize_t done = before ? 0 : REAL(write)(file, data, size / 2);
        (void)done;
        return fail();
    }
    return REAL(write)(file, data, size);
}

#define POSITIONED(name, offset_type)                                                             \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) {                   \
        int before = atomic_load(&struck);                                                        \
        if (is_armed(WRITE) && watched_file(file) && strikes(WRITE)) {                        \
            ssize_t done = before ? 0 : REAL(name)(file, data, size / 2, offset);                 \
            (void)done;                                                                           \
            return fail();                                                                        \
        }                                                                                         \
        return REAL(name)(file, data, size, offset);                                              \
    }

POSITIONED(pwrite, off_t)
POSITIONED(pwrite64, off64_t)

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (is_armed(WRITE) && watched_file(file) && strikes(WRITE)) return fail();
    return REAL(writev)(file, parts, count);
}

/* safetensors reserves room before it writes. */
#define RESERVER(name, offset_type)                                                               \
    int name(int file, offset_type length) {                                                      \
        if (is_armed(WRITE) && watched_file(file) && strikes(WRITE)) return fail();           \
        return REAL(name)(file, length);                                                          \
    }

RESERVER(ftruncate, off_t)
RESERVER(ftruncate64, off64_t)

/* ---- what makes them last, and the directories they lie in ---- */

#define SYNCER(name)                                                                              \
    int name(int file) {                                                                          \
        if (is_armed(FSYNC) && watched_file(file) && strikes(FSYNC)) return fail();           \
        return REAL(name)(file);                                                                  \
    }

SYNCER(fsync)
SYNCER(fdatasync)

int rename(const char *from, const char *to) {
    if (is_armed(RENAME) && watched_path(AT_FDCWD, to) && strikes(RENAME)) return fail();
    return REAL(rename)(from, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
    if (is_armed(RENAME) && watched_path(to_at, to) && strikes(RENAME)) return fail();
    return REAL(renameat)(from_at, from, to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    if (is_armed(RENAME) && watched_path(to_at, to) && strikes(RENAME)) return fail();
    return REAL(renameat2)(from_at, from, to_at, to, flags);
}

int mkdir(const char *path, mode_t mode) {
    if (is_armed(MKDIR) && watched_path(AT_FDCWD, path) && strikes(MKDIR)) return fail();
    return REAL(mkdir)(path, mode);
}

int mkdirat(int at, const char *path, mode_t mode) {
    if (is_armed(MKDIR) && watched_path(at, path) && strikes(MKDIR)) return fail();
    return REAL(mkdirat)(at, path, mode);
}

int unlink(const char *path) {
    if (is_armed(UNLINK) && watched_path(AT_FDCWD, path) && strikes(UNLINK)) return fail();
    return REAL(unlink)(path);
}

int unlinkat(int at, const char *path, int flags) {
    if (is_armed(UNLINK) && watched_path(at, path) && strikes(UNLINK)) return fail();
    return REAL(unlinkat)(at, path, flags);
}

int rmdir(const char *path) {
    if (is_armed(UNLINK) && watched_path(AT_FDCWD, path) && strikes(UNLINK)) return fail();
    return REAL(rmdir)(path);
}
