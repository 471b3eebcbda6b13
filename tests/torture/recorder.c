/* Loaded into a daemon: a log of what it asks of the disk, and of what it answers.

   Each record is a line `KIND OFFSET LENGTH PATH` and, after it, LENGTH bytes of data:
   W a write, T a truncation (to OFFSET), S a sync of a file or directory, U a file that is removed,
   A an answer on a socket.  A record of a sync is written after the sync, any other one before what
   it tells: so whatever is in the log before an answer had been asked for by then. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static int log_fd(void) {
    static int fd = -1;
    const char *path = getenv("TORTURE_RECORD");
    if (fd < 0 && path)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return fd;
}

static void record(char kind, long long offset, const void *data, size_t length, const char *path) {
    char head[4400];
    int saved = errno, size;
    pthread_mutex_lock(&turn);
    size = snprintf(head, sizeof head, "%c %lld %zu %s\n", kind, offset, length, path);
    struct iovec parts[2] = {{head, (size_t) size}, {(void *) data, length}};
    if (log_fd() >= 0 && writev(log_fd(), parts, 2) != (ssize_t) (size + length))
        abort(); /* half a log would prove nothing */
    pthread_mutex_unlock(&turn);
    errno = saved;
}

/* Whether it is a file of a database, or the directory of one. */
static int is_ours(int fd, char *path, size_t room) {
    char link[64];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, room - 1);
    errno = saved;
    if (size < 0)
        return 0;
    path[size] = 0;
    return strstr(path, "/.clavain") != NULL && strstr(path, "-shm") == NULL;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    char path[4096];
    if (is_ours(fd, path, sizeof path))
        record('W', offset, data, length, path);
    return REAL(pwrite64)(fd, data, length, offset);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    return pwrite64(fd, data, length, offset);
}

ssize_t write(int fd, const void *data, size_t length) {
    char path[4096];
    if (is_ours(fd, path, sizeof path))
        record('W', lseek(fd, 0, SEEK_CUR), data, length, path);
    return REAL(write)(fd, data, length);
}

int ftruncate64(int fd, off64_t size) {
    char path[4096];
    if (is_ours(fd, path, sizeof path))
        record('T', size, "", 0, path);
    return REAL(ftruncate64)(fd, size);
}

int ftruncate(int fd, off_t size) {
    return ftruncate64(fd, size);
}

static int synced(int fd, int failed) {
    char path[4096];
    if (!failed && is_ours(fd, path, sizeof path))
        record('S', 0, "", 0, path);
    return failed;
}

int fsync(int fd) {
    return synced(fd, REAL(fsync)(fd));
}

int fdatasync(int fd) {
    return synced(fd, REAL(fdatasync)(fd));
}

int unlink(const char *path) {
    if (strstr(path, "/.clavain"))
        record('U', 0, "", 0, path);
    return REAL(unlink)(path);
}

ssize_t send(int fd, const void *data, size_t length, int flags) {
    record('A', 0, data, length, "socket");
    return REAL(send)(fd, data, length, flags);
}
