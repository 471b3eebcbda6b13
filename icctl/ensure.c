/* service ensure: start a daemon if there is none; icd/admin/service/detach.py is the reference.

   Hooks call it, so it prints nothing to stdout, always succeeds and never takes longer than a second:
   an alarm ends it, and the daemon goes on starting.
   - The daemon is no child of the caller: it has a session of its own, and none of its descriptors.
   - The daemon's own lock decides who is the daemon.  The lock of its directory only lets one caller
     at a time start it, and the others wait until it is there.
   - The daemon's stderr is a pipe to us until it listens: its end is that, or a failed start. */

#define _GNU_SOURCE
#include "client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 600, INPUT_MS = 100, INPUT_BYTES = 1 << 20, LINE_BYTES = 1 << 12 };

extern char **environ;

/* What the daemon reads, and what it passes on to programs that it starts. */
static const char *const kept[] = {
    "PATH=", "HOME=", "USER=", "LOGNAME=", "SHELL=", "LANG=", "LC_", "TZ=", "TMPDIR=",
    "XDG_RUNTIME_DIR=", "XDG_STATE_HOME=", "IC_LOG_LEVEL=", "INTERBAND_ROOT=", "INTERCORE_SOCKET=",
    "INTERCORE_MODE=", "INTERCORE_DURABILITY=", "INTERCORE_IDLE_SECONDS=",
};

static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

static void limit_time(void)
{
    struct sigaction ended = {.sa_handler = leave};
    struct itimerval limit = {.it_value = {.tv_usec = LIMIT_MS * 1000}};
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigaction(SIGALRM, &ended, NULL);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    setitimer(ITIMER_REAL, &limit, NULL);
}

/* An agent writes its event to us, and must not find that it has no reader. */
static void discard_input(void)
{
    char buffer[1 << 16];
    struct stat s;
    int64_t until = now() + INPUT_MS;
    if (fstat(0, &s) || !(S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode))) return;
    for (ssize_t n, all = 0; all < INPUT_BYTES && ready(0, POLLIN, until); all += n)
        if ((n = read(0, buffer, sizeof buffer)) <= 0) return;
}

static bool is_there(void)
{
    struct call at_once = {0};
    int fd = dial(&at_once);
    if (fd >= 0) close(fd);
    return fd >= 0 || fd == -EAGAIN; /* its backlog is full: it is alive, and busy */
}

/* Wait until no other caller starts a daemon.  What is wrong with the directory, the daemon says. */
static void take_turn(void)
{
    char path[PATH_MAX];
    struct stat s;
    const char *given = getenv("INTERCORE_SOCKET");
    snprintf(path, sizeof path, "/run/user/%u", geteuid());
    bool usual = !stat(path, &s) && S_ISDIR(s.st_mode);
    if (given && *given) snprintf(path, sizeof path, "%s", given);
    else if (usual) snprintf(path, sizeof path, "/run/user/%u/intercore/", geteuid());
    else snprintf(path, sizeof path, "/tmp/intercore-%u/", geteuid());
    char *slash = strrchr(path, '/');
    if (!slash) return;
    *slash = 0;
    mkdir(path, 0700);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && !fstat(fd, &s) && s.st_uid == geteuid()) flock(fd, LOCK_EX);
}

static void close_others(void)
{
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, 3, ~0U, 0)) return;
#endif
    DIR *open_ones = opendir("/proc/self/fd");
    for (struct dirent *each; open_ones && (each = readdir(open_ones));)
        if (atoi(each->d_name) > 2 && atoi(each->d_name) != dirfd(open_ones)) close(atoi(each->d_name));
    if (open_ones) closedir(open_ones);
}

/* The daemon has another directory. */
static void name_whole_socket(void)
{
    char path[PATH_MAX];
    const char *given = getenv("INTERCORE_SOCKET");
    if (!given || !*given || *given == '/' || !getcwd(path, sizeof path)) return;
    size_t size = strlen(path);
    snprintf(path + size, sizeof path - size, "/%s", given);
    setenv("INTERCORE_SOCKET", path, 1);
}

/* In the process that becomes the daemon. */
static _Noreturn void become_daemon(int told)
{
    static char *env[64];
    char path[PATH_MAX];
    char *argv[] = {path, "serve", "--exit-idle", "--log-to-file", NULL};
    sigset_t none;
    int null = open("/dev/null", O_RDWR);
    size_t count = 0;
    dup2(null, 0);
    dup2(null, 1);
    dup2(told, 2);
    close_others();
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(077);
    name_whole_socket();
    for (char **each = environ; *each && count < sizeof env / sizeof *env - 1; each++)
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (!strncmp(*each, kept[i], strlen(kept[i]))) env[count++] = *each;
    beside(path, sizeof path, "icd");
    if (!chdir("/")) execve(path, argv, env);
    dprintf(2, "cannot start %s: %s; reinstall intercore\n", path, strerror(errno));
    _exit(2);
}

/* The last line of what the daemon says until it listens, or has ended. */
static void pass_on(const struct call *c, int told)
{
    char said[LINE_BYTES + 1];
    size_t size = 0;
    for (ssize_t n; (n = read(told, said + size, LINE_BYTES - size)) != 0;) {
        if (n < 0 && errno != EINTR) break;
        if (n > 0) size += (size_t)n;
        if (size == LINE_BYTES) size = 0;
    }
    while (size && said[size - 1] == '\n') size--;
    said[size] = 0;
    char *line = memrchr(said, '\n', size);
    line = line ? line + 1 : said;
    if (!strncmp(line, "icd: ", 5)) line += 5;
    if (*line) fprintf(stderr, "%s: service ensure: %s\n", c->program, line);
}

static void start_daemon(const struct call *c)
{
    int told[2];
    if (!pipe2(told, O_CLOEXEC)) {
        pid_t child = fork();
        if (!child) {
            setsid();
            pid_t daemon = fork();
            if (!daemon) become_daemon(told[1]);
            _exit(daemon < 0 ? errno : 0);
        }
        int status = 0;
        close(told[1]);
        if (child > 0) waitpid(child, &status, 0);
        if (child > 0 && !status) return pass_on(c, told[0]);
        if (child > 0) errno = WEXITSTATUS(status);
    }
    fprintf(stderr, "%s: service ensure: no process can be started: %s; retry\n", c->program, strerror(errno));
}

int ensure(const struct call *c)
{
    limit_time();
    discard_input();
    if (is_there()) return 0;
    take_turn();
    if (!is_there()) start_daemon(c);
    return 0;
}
