/* Preloaded into a process. Watches the calls that concern files below one directory, and at the n-th of the chosen kinds kills
   the process with SIGKILL or lets the call fail; or it records every change, so that a power loss can be played afterwards.
   Bulk reads are made without libc: only the other ones are seen here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE = 1, TRUNCATE = 2, SYNC = 4, SYNC_DIR = 8, CREATE = 16, RENAME = 32, REMOVE = 64, MAKE_DIR = 128, READ = 256, OPEN = 512 };
enum what { NOTHING, KILL, FAIL };

static char root[PATH_MAX];
static size_t root_size;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum what what;
static unsigned kinds;
static long calls_left;
static int half_a_write, error, for_good;
static long failures;
static int record = -1;

/* What follows is called from Python. */

void watch(const char *directory)
{
    root_size = strlen(directory);
    memcpy(root, directory, root_size + 1);
}

void kill_at(long call, int half)
{
    pthread_mutex_lock(&lock);
    what = KILL, kinds = ~(unsigned)(READ | OPEN), calls_left = call, half_a_write = half;
    pthread_mutex_unlock(&lock);
}

void fail_at(long call, unsigned which, int with, int and_all_later)
{
    pthread_mutex_lock(&lock);
    what = FAIL, kinds = which, calls_left = call, error = with, for_good = and_all_later, failures = 0;
    pthread_mutex_unlock(&lock);
}

/* No call fails any more. How many did. */
long stop_failing(void)
{
    pthread_mutex_lock(&lock);
    what = NOTHING;
    long found = failures;
    pthread_mutex_unlock(&lock);
    return found;
}

void record_to(int fd)
{
    record = fd;
}

/* An entry of a recording: this, then the path, then the data. */
struct entry {
    uint8_t kind;
    uint64_t file; /* its inode */
    int64_t at;
    uint32_t path_size, data_size;
} __attribute__((packed));

static void put(char kind, uint64_t file, int64_t at, const char *path, const void *data, size_t size)
{
    if (record < 0)
        return;
    struct entry entry = {(uint8_t)kind, file, at, (uint32_t)strlen(path), (uint32_t)size};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)path, entry.path_size}, {(void *)data, size}};
    size_t whole = sizeof entry + entry.path_size + size;
    pthread_mutex_lock(&lock);
    if (writev(record, parts, 3) != (ssize_t)whole)
        raise(SIGABRT); /* a recording with a gap proves nothing */
    pthread_mutex_unlock(&lock);
}

/* A note of the workload, in its place among the calls. */
void note(const void *text, size_t size)
{
    put('N', 0, 0, "", text, size);
}

/* What follows is called by the hooks. */

static int below(const char *path)
{
    return root_size && !strncmp(path, root, root_size) && path[root_size] == '/';
}

static int path_of(int fd, char *path)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return below(path);
}

static int path_at(int directory, const char *name, char *path)
{
    path[0] = 0;
    if (name[0] != '/' && directory != AT_FDCWD) {
        path_of(directory, path);
        strncat(path, "/", PATH_MAX - strlen(path) - 1);
    }
    strncat(path, name, PATH_MAX - strlen(path) - 1);
    return below(path);
}

static uint64_t inode(int fd)
{
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

/* Whether this is the call that is meant. */
static enum what meant(enum kind kind)
{
    enum what found = NOTHING;
    pthread_mutex_lock(&lock);
    if (what != NOTHING && kinds & kind) {
        if (calls_left-- == 0 || (calls_left < 0 && what == FAIL && for_good))
            found = what;
        failures += found == FAIL;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* 0, or -1 if the call has to fail. */
static int enter(enum kind kind)
{
    switch (meant(kind)) {
    case KILL:
        die();
        /* fall through */
    case FAIL:
        errno = error;
        return -1;
    default:
        return 0;
    }
}

/* errno belongs to the call. */
#define AFTER(done, record_it) do { int kept = errno; if (done) { record_it; } errno = kept; } while (0)
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    char path[PATH_MAX];
    if (!root_size || !path_of(fd, path))
        return real(fd, data, size, at);
    switch (meant(WRITE)) {
    case KILL:
        if (half_a_write)
            real(fd, data, size / 2, at);
        die();
        /* fall through */
    case FAIL:
        errno = error;
        return error ? -1 : (ssize_t)size; /* a disk that lies: nothing is written, and nobody hears of it */
    default:;
    }
    ssize_t done = real(fd, data, size, at);
    AFTER(done > 0, put('w', inode(fd), at, path, data, (size_t)done));
    return done;
}

int ftruncate64(int fd, off64_t size)
{
    REAL(ftruncate64);
    char path[PATH_MAX];
    if (!root_size || !path_of(fd, path))
        return real(fd, size);
    if (enter(TRUNCATE))
        return -1;
    int done = real(fd, size);
    AFTER(!done, put('t', inode(fd), size, path, "", 0));
    return done;
}

/* Covers what was recorded before its beginning, and counts from its end on. */
static int sync_file(int fd, int (*real)(int))
{
    char path[PATH_MAX];
    struct stat found;
    if (!root_size || (!path_of(fd, path) && strcmp(path, root)) || fstat(fd, &found))
        return real(fd);
    int directory = S_ISDIR(found.st_mode);
    if (enter(directory ? SYNC_DIR : SYNC))
        return -1;
    static int64_t number;
    int64_t mine = __atomic_fetch_add(&number, 1, __ATOMIC_SEQ_CST);
    put(directory ? 'D' : 'S', found.st_ino, mine, path, "", 0);
    int done = real(fd);
    AFTER(!done, put('e', found.st_ino, mine, path, "", 0));
    return done;
}

int fsync(int fd)
{
    REAL(fsync);
    return sync_file(fd, real);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    return sync_file(fd, real);
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if (!below(path))
        return real(path, flags, mode);
    int is_new = flags & O_CREAT && access(path, F_OK);
    if (enter(is_new ? CREATE : OPEN))
        return -1;
    int fd = real(path, flags, mode);
    AFTER(fd >= 0 && is_new, put('c', inode(fd), 0, path, "", 0));
    return fd;
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    if (!below(from))
        return real(from, to);
    if (enter(RENAME))
        return -1;
    int done = real(from, to);
    AFTER(!done, put('r', 0, 0, from, to, strlen(to)));
    return done;
}

#define REMOVES(name, parameters, arguments, directory, path_given) \
    int name parameters \
    { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (!root_size || !path_at(directory, path_given, path)) \
            return real arguments; \
        if (enter(REMOVE)) \
            return -1; \
        int done = real arguments; \
        AFTER(!done, put('u', 0, 0, path, "", 0)); \
        return done; \
    }

REMOVES(unlink, (const char *name), (name), AT_FDCWD, name)
REMOVES(rmdir, (const char *name), (name), AT_FDCWD, name)
REMOVES(unlinkat, (int parent, const char *name, int flags), (parent, name, flags), parent, name)

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    if (!below(path))
        return real(path, mode);
    if (enter(MAKE_DIR))
        return -1;
    int done = real(path, mode);
    AFTER(!done, put('m', 0, 0, path, "", 0));
    return done;
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at)
{
    REAL(pread64);
    char path[PATH_MAX];
    if (what == FAIL && path_of(fd, path) && enter(READ))
        return -1;
    return real(fd, data, size, at);
}

ssize_t read(int fd, void *data, size_t size)
{
    REAL(read);
    char path[PATH_MAX];
    if (what == FAIL && path_of(fd, path) && enter(READ))
        return -1;
    return real(fd, data, size);
}
