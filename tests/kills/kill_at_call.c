/* Preloaded into a process: kills it with SIGKILL at the n-th call that changes a file system. A write may die half done. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

static long calls_left = -1; /* negative: not armed */
static int half;

void kill_at_call(long n, int half_a_write)
{
    half = half_a_write;
    __atomic_store_n(&calls_left, n, __ATOMIC_SEQ_CST);
}

static int is_last(void)
{
    return __atomic_load_n(&calls_left, __ATOMIC_SEQ_CST) >= 0 && __atomic_fetch_sub(&calls_left, 1, __ATOMIC_SEQ_CST) == 0;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define DIES(name, type, parameters, arguments) \
    type name parameters { REAL(name); if (is_last()) die(); return real arguments; }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    if (is_last()) {
        if (half)
            real(fd, data, size / 2, at);
        die();
    }
    return real(fd, data, size, at);
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    if (flags & O_CREAT && is_last())
        die();
    return real(path, flags, mode);
}

DIES(fsync, int, (int fd), (fd))
DIES(fdatasync, int, (int fd), (fd))
DIES(ftruncate64, int, (int fd, off64_t size), (fd, size))
DIES(rename, int, (const char *from, const char *to), (from, to))
DIES(unlink, int, (const char *path), (path))
DIES(unlinkat, int, (int fd, const char *path, int flags), (fd, path, flags))
DIES(mkdir, int, (const char *path, mode_t mode), (path, mode))
