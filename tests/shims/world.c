/* A world with faults, preloaded into a program that is tested.
 *
 * WORLD names a directory with three files that are looked at on every call, so that a fault can
 * come and go while the program runs:
 *     clock    seconds by which the wall clock is wrong; other clocks are right
 *     full     a directory below which no file may grow
 *     failing  a directory below which a database can be neither read, written nor synchronized
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static ssize_t look(const char *name, char *text, size_t size)
{
    const char *world = getenv("WORLD");
    char path[4096];
    if (!world)
        return -1;
    snprintf(path, sizeof path, "%s/%s", world, name);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = syscall(SYS_read, fd, text, size - 1);
    syscall(SYS_close, fd);
    if (got < 0)
        return -1;
    text[got] = 0;
    return got;
}

static long ahead(void)
{
    int before = errno;
    char text[32];
    long seconds = look("clock", text, sizeof text) > 0 ? atol(text) : 0;
    errno = before;
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found))
        return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}

/* Whether the file lies below the directory that this fault names; it is a regular one then. */
static int is_struck(const char *fault, int fd, struct stat *found)
{
    char directory[4096], link[64], path[4096];
    if (look(fault, directory, sizeof directory) <= 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    path[got > 0 ? got : 0] = 0;
    return !strncmp(path, directory, strlen(directory)) && !fstat(fd, found) &&
           S_ISREG(found->st_mode);
}

static int is_failing(int fd)
{
    struct stat found;
    int before = errno, failing = is_struck("failing", fd, &found);
    errno = failing ? EIO : before;
    return failing;
}

/* Whether the disk has no room for the file to end at `end`, or does not take it at all. */
static int is_refused(int fd, off_t end)
{
    struct stat found;
    int before = errno, full = is_struck("full", fd, &found) && end > found.st_size;
    errno = full ? ENOSPC : before;
    return full || is_failing(fd);
}

ssize_t write(int fd, const void *data, size_t size)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at >= 0 && is_refused(fd, at + (off_t)size) ? -1 : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return is_refused(fd, at + (off_t)size) ? -1 : syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    return pwrite(fd, data, size, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    return is_failing(fd) ? -1 : syscall(SYS_pread64, fd, data, size, at);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at)
{
    return pread(fd, data, size, at);
}

int fsync(int fd)
{
    return is_failing(fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return is_failing(fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}
