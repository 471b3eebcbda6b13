/* hold: run a command under a lock, natively; icd/features/locks/hold.py is the reference.

   The lock belongs to a child of ours, which becomes the command once the daemon has granted the
   lock to it.  So it lives as long as the command does, also if we are killed; and if we are killed
   before, the child reads the end of a pipe, ends, and its lock is a dead process's.
   We pass on what is sent to us, and give the lock back while the child is a zombie: until it is
   counted, its number is no other's.  Whatever cannot be done here is left to the Python client. */

#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED = 128 };

extern char **environ;

/* Keep back what is meant for a child, for who accompanies it; `before` is what was kept back until now. */
void listen_for(sigset_t *heard, sigset_t *before)
{
    static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    signal(SIGCHLD, SIG_DFL); /* else we would not learn how a child ended */
    sigemptyset(heard);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaddset(heard, passed[i]);
    sigprocmask(SIG_BLOCK, heard, before);
}

/* Pass on what a process sent us, until the child has ended; its exit status, as a shell tells it. */
int accompany(pid_t child, const sigset_t *heard)
{
    for (;;) {
        siginfo_t end = {0}, told;
        waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT); /* no signal tells of one before */
        if (end.si_pid) return end.si_code == CLD_EXITED ? end.si_status : KILLED + end.si_status;
        if (sigwaitinfo(heard, &told) < 0 || told.si_signo == SIGCHLD) continue;
        if (told.si_code <= 0) kill(child, told.si_signo); /* the kernel tells the whole group of a terminal */
    }
}

/* As Python's os.execvp: no shell reads what is no program.  Why it failed is returned: of several
   reasons, the first that is more than "not there". */
int execute(char **argv)
{
    const char *path = getenv("PATH");
    int why = ENOENT;
    if (strchr(argv[0], '/')) return execve(argv[0], argv, environ), errno;
    for (const char *at = path ? path : "/bin:/usr/bin"; at;) {
        char file[8192];
        int room = (int)strcspn(at, ":");
        int size = snprintf(file, sizeof file, "%.*s%s%s", room, at, room ? "/" : "", argv[0]);
        if (size > 0 && (size_t)size < sizeof file) execve(file, argv, environ);
        if (why == ENOENT || why == ENOTDIR) why = errno;
        at = at[room] ? at + room + 1 : NULL;
    }
    return why;
}

/* In the child: wait for the command, then be it. */
static _Noreturn void become(int gate, int failed)
{
    char buffer[1 << 12], **argv;
    size_t count = 0, n = 0, whole;
    struct bytes words = {0};
    start(&words);
    for (ssize_t size; (size = read(gate, buffer, sizeof buffer)) > 0;)
        add(&words, buffer, (size_t)size);
    if (words.size < sizeof whole) _exit(NOT_STARTED);
    memcpy(&whole, words.data, sizeof whole);
    if (words.size - sizeof whole != whole) _exit(NOT_STARTED); /* our parent was killed meanwhile */
    char *first = words.data + sizeof whole;
    for (size_t i = 0; i < whole; i++) count += !first[i];
    if (!count || !(argv = calloc(count + 1, sizeof *argv))) _exit(NOT_STARTED);
    for (char *at = first; n < count; at += strlen(at) + 1) argv[n++] = at;
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    char why = (char)execute(argv);
    write_all(failed, &why, 1);
    _exit(NOT_STARTED);
}

/* Make the process that waits; false if that cannot be. */
bool hatch(struct child *it)
{
    int gate[2], failed[2];
    if (pipe2(gate, O_CLOEXEC)) return false;
    if (pipe2(failed, O_CLOEXEC)) return close(gate[0]), close(gate[1]), false;
    it->pid = fork();
    if (!it->pid) {
        close(gate[1]);
        become(gate[0], failed[1]);
    }
    close(gate[0]);
    close(failed[1]);
    it->gate = gate[1];
    it->failed = failed[0];
    if (it->pid < 0) close(it->gate), close(it->failed);
    return it->pid > 0;
}

/* Let it be the command, until that ends: its exit status, and the errno if it was not started.
   It is a zombie then, and signals are blocked; `before` is what was blocked until now. */
int let(struct child *it, const char *words, size_t size, sigset_t *before, int *why)
{
    sigset_t heard;
    unsigned char told = 0;
    listen_for(&heard, before);
    /* Its size comes first, so that the child runs all of the command, or nothing. */
    write_all(it->gate, (const char *)&size, sizeof size);
    write_all(it->gate, words, size); /* it may have been killed while we waited */
    close(it->gate);
    int status = accompany(it->pid, &heard);
    *why = read(it->failed, &told, 1) > 0 ? told : 0;
    close(it->failed);
    return status;
}

/* Send the request that the daemon gave us for this; without it, the Python client does it.  The
   owner is dead, so a failure is no reason to keep the command's exit status from the caller. */
void give_back(struct call *c, char *program, const sigset_t *before)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 1; fd < 3; fd++) dup2(null, fd);
    follow(c, c->said + c->out, c->err);
    enum outcome ended = insist(c);
    pid_t other = ended == ANSWERED ? -1 : fork();
    if (!other) {
        sigprocmask(SIG_SETMASK, before, NULL);
        hand_over(c, ended, arguments(c, program));
    }
    if (other > 0) waitpid(other, NULL, 0);
}

/* Run a command under the lock that the daemon has granted to the child. */
static enum outcome run(struct call *c, char *program, struct child *it)
{
    sigset_t before;
    int why, status = let(it, c->said, c->out, &before, &why);
    if (!why) give_back(c, program, &before);
    waitpid(it->pid, NULL, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    c->exit = status;
    return why ? UNTRIED : ANSWERED; /* the Python client tries again, and says why it cannot */
}

/* How the call ended; UNTRIED if the Python client is to do all of it. */
enum outcome hold(struct call *c, char *program)
{
    struct child it;
    if (!hatch(&it)) return UNTRIED;
    c->child = it.pid;
    enum outcome ended = insist(c);
    c->child = 0;
    if (ended == GRANTED) return run(c, program, &it);
    close(it.gate); /* the child ends by itself */
    close(it.failed);
    waitpid(it.pid, NULL, 0);
    return ended;
}
