/* A helper for a shell that makes several calls: no process is started for a call.

   `icctl --helper PID`, for lib-intercore.sh only, goes to the background, prints its own pid and a
   directory, and serves the shell PID until that ends.  The helper lives in a session of its own,
   keeps no descriptor of the shell, and ends with it, or with the call that it is serving then.
   Without a C compiler there is none, and the library starts a process for each call.

   The directory is private and holds two named pipes, which the shell opens for each call, for
   reading and writing, so that it keeps no descriptor and never waits in open(2).
       in      a frame: `ic1 N`, and the fields d, e and a that the client would have sent; input
               that the command may ask for, in the file stdin, written before.  `ic1 N.` drops
               what goes to stdout
       out     the answer, each of its fields ended by NUL: `EXIT` STDOUT STDERR;
               or `EXIT.`: there is nothing to print, and STDOUT was to be dropped;
               or `EXIT@`: they are in the files stdout and stderr;
               or `!HANDOVER`: run icctl, with this as its INTERCORE_HANDOVER
   One call at a time; a shell that gave up on a call does not use the helper again.
   The `2` in the name of the directory tells the library that this helper knows the dot. */

#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* the same numbers on every machine, for headers older than the kernel */
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { INLINE_BYTES = 512 }; /* a shell reads a pipe byte by byte, and a file in one go */
enum { IDLE_MS = 60000 };    /* a shell may have become another program; if not, it starts another */

static char directory[256], discarded[256 + 2];
static int home;   /* the directory, opened */
static bool drops; /* what goes to stdout */

static _Noreturn void leave(int signal)
{
    (void)signal;
    rename(directory, discarded); /* or a shell would make plain files where its pipes were */
    unlinkat(home, "in", 0);
    unlinkat(home, "out", 0);
    unlinkat(home, "stdin", 0);
    unlinkat(home, "stdout", 0);
    unlinkat(home, "stderr", 0);
    rmdir(discarded);
    rmdir(directory);
    _exit(0);
}

/* Whether no other user can move a directory of ours that is made there. */
static bool is_safe(const char *place)
{
    struct stat s;
    if (!place || *place != '/' || stat(place, &s)) return false;
    return s.st_uid == geteuid() || (s.st_uid == 0 && s.st_mode & S_ISVTX);
}

/* Make the private directory with its pipes. */
static bool settle(int *in, int *out)
{
    const char *places[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    for (int i = 0; i < 3; i++) {
        size_t room = sizeof directory;
        if (!is_safe(places[i])) continue;
        if ((size_t)snprintf(directory, room, "%s/intercore-helper-2-XXXXXX", places[i]) >= room) continue;
        if (!mkdtemp(directory)) continue;
        snprintf(discarded, sizeof discarded, "%s.x", directory);
        home = open(directory, O_DIRECTORY | O_CLOEXEC);
        mkfifoat(home, "in", 0600);
        mkfifoat(home, "out", 0600);
        *in = openat(home, "in", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        *out = openat(home, "out", O_RDWR | O_CLOEXEC);
        if (*in >= 0 && *out >= 0) return true;
        unlinkat(home, "in", 0);
        rmdir(directory);
    }
    return false;
}

/* The fields of a request that has arrived completely, or NULL; a shell sends one at a time. */
static const char *complete(struct call *c, const struct bytes *b, size_t *size)
{
    int head = 0;
    const char *at = b->data, *end = b->data + b->size;
    if (!memchr(at, 0, b->size)) return NULL;
    if (sscanf(at, "ic1 %6d%n", &c->count, &head) != 1) leave(0);
    if ((drops = at[head] == '.')) head++;
    if (at[head]) leave(0);
    const char *fields = at += head + 1;
    for (int i = 0; i < c->count; i++, at++)
        if (at == end || !(at = memchr(at, 0, (size_t)(end - at)))) return NULL;
    *size = (size_t)(at - fields);
    return fields;
}

/* Paths are relative to the caller's directory, which comes as a field. */
static void enter(const struct bytes *fields)
{
    for (const char *at = fields->data; at < fields->data + fields->size; at += strlen(at) + 1)
        if (*at == 'd' && !chdir(at + 1)) return;
    if (chdir("/")) leave(0);
}

static bool keep(const char *name, const char *data, size_t size)
{
    int fd = openat(home, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool kept = fd >= 0 && !write_all(fd, data, size);
    if (fd >= 0) close(fd);
    return kept;
}

static void answer(const struct call *c, enum outcome ended, struct bytes *to)
{
    bool fits = c->out + c->err <= INLINE_BYTES && (!c->said || !memchr(c->said, 0, c->out + c->err));
    if (ended == ANSWERED && drops && !c->err) { /* a shell takes four system calls for each byte */
        add_number(to, c->exit);
        add(to, ".", 2);
    } else if (ended == ANSWERED && fits) {
        add_number(to, c->exit);
        add(to, "", 1);
        if (!drops) add(to, c->said, c->out);
        add(to, "", 1);
        add(to, c->said + c->out, c->err + 1);
    } else if (ended == ANSWERED && keep("stdout", c->said, c->out) &&
               keep("stderr", c->said + c->out, c->err)) {
        add_number(to, c->exit);
        add(to, "@", 2);
    } else {
        add_text(to, "!");
        describe(c, ended == ANSWERED ? UNWRITABLE : ended, -1, to);
        add(to, "", 1);
    }
}

/* Input comes as a file: it may be too long for a pipe. */
static bool take_stdin(void)
{
    int fd = openat(home, "stdin", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    unlinkat(home, "stdin", 0);
    dup2(fd, 0);
    return !close(fd);
}

static void serve(struct call *c, const char *fields, size_t size, int out)
{
    struct bytes told = {0};
    start(&c->fields);
    add(&c->fields, fields, size);
    enter(&c->fields);
    c->has_stdin = take_stdin();
    enum outcome ended = insist(c);
    start(&told);
    answer(c, ended, &told);
    write_all(out, told.data, told.size);
    stop(&told);
    stop(&c->fields);
    stop(&c->heads);
    stop(&c->tail);
    c->inputs = 0;
    if (chdir("/")) leave(0); /* pin no caller's directory */
}

static _Noreturn void attend(struct call *c, int in, int out, int shell)
{
    struct bytes request = {0};
    char buffer[1 << 16];
    start(&request);
    for (;;) {
        struct pollfd either[] = {{in, POLLIN, 0}, {shell, POLLIN, 0}};
        int ready = poll(either, 2, IDLE_MS);
        if (ready > 0 && either[1].revents) leave(0);
        if (!ready) { /* move away, and look whether a call came in between */
            rename(directory, discarded);
            if (!poll(either, 1, 0)) leave(0);
            rename(discarded, directory);
        }
        ssize_t n = read(in, buffer, sizeof buffer);
        if (n <= 0) continue;
        add(&request, buffer, (size_t)n);
        size_t size;
        const char *fields = complete(c, &request, &size);
        if (!fields) continue;
        serve(c, fields, size, out);
        stop(&request);
        start(&request);
    }
}

/* Become a process of our own, once the shell knows where we are. */
static void detach(void)
{
    setsid();
    printf("%d %s\n", (int)getpid(), directory);
    fflush(stdout);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    close(null);
}

/* Serve the shell `owner` from the background; false if that cannot be. */
bool help(struct call *c, pid_t owner)
{
    int in, out, signals[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t deadly, before;
    if (syscall(SYS_close_range, 3, ~0U, 0))
        for (int fd = 3; fd < 1024; fd++) close(fd);
    int shell = owner > 0 ? (int)syscall(SYS_pidfd_open, owner, 0) : -1;
    if (shell < 0) return false;
    sigemptyset(&deadly); /* a signal here would leave the directory behind */
    for (int i = 0; i < 3; i++) sigaddset(&deadly, signals[i]);
    sigprocmask(SIG_BLOCK, &deadly, &before);
    bool settled = settle(&in, &out);
    pid_t child = settled ? fork() : 1;
    if (child < 0) leave(0);
    if (!child)
        for (int i = 0; i < 3; i++) signal(signals[i], leave);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child) return settled; /* a reader of our output waits for the child's */
    c->keeps = true;
    c->door = "native-helper";
    c->parent = owner;
    if (chdir("/")) leave(0);
    detach();
    attend(c, in, out, shell);
}
