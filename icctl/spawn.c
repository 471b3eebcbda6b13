/* dispatch spawn and retry, natively; icd/features/dispatches/spawn.py is the reference.

   The daemon makes the row of the dispatch and spells out which runner to start, and its job.  We
   start it, because an agent has our directory, environment, limits, groups and namespaces, wait for
   its report, and send that to the daemon, which records it and answers.  A runner that hears
   nothing from us records the start itself; so if we are killed, or no daemon is there any more,
   nothing is lost.  Whatever cannot be done here is left to the Python client. */

#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 60000 };  /* an interpreter starts, and a program; a loaded machine is no failure */
enum { END_MS = 15000 };    /* what is asked to end has 5 s, what is killed 5 s, and it is recorded */
enum { REPORT_BYTES = 1 << 16 };
static const char RECORDED[] = "r";

extern char **environ;

/* In the child: start the runner, which nothing of ours holds.  It leads no session, so that it can
   never get a terminal, and the kernel gives it the orphans among all that it starts. */
static _Noreturn void become(char **argv, int job, int report)
{
    int null = open("/dev/null", O_RDWR);
    setsid();
    pid_t runner = fork();
    if (runner > 0) _exit(0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (!runner && null >= 0 && dup2(job, 0) == 0 && dup2(report, 1) == 1 && dup2(null, 2) == 2) {
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        execve(argv[0], argv, environ);
    }
    dprintf(report, "no cannot start a process: %s", strerror(errno));
    _exit(127);
}

/* A line with two lengths, the job, and our environment. */
static void give_job(const struct call *c, int to)
{
    struct bytes whole = {0};
    size_t size = 0;
    for (char **word = environ; *word; word++) size += strlen(*word) + 1;
    start(&whole);
    add_number(&whole, (int64_t)c->err);
    add_text(&whole, " ");
    add_number(&whole, (int64_t)size);
    add_text(&whole, "\n");
    add(&whole, c->said + c->out, c->err);
    for (char **word = environ; *word; word++) add(&whole, *word, strlen(*word) + 1);
    write_all(to, whole.data, whole.size); /* if it cannot be given, the report says so */
    stop(&whole);
}

/* What the runner says before it closes its end. */
static void hear_report(int from, struct bytes *told)
{
    char said[REPORT_BYTES];
    size_t size = 0;
    int64_t deadline = now() + START_MS;
    for (ssize_t n = 1; n && size < sizeof said;) {
        if (!ready(from, POLLIN, deadline)) {
            add_text(told, "no its runner did not report within 60 s");
            return;
        }
        n = read(from, said + size, sizeof said - size);
        if (n > 0) size += (size_t)n;
        else if (n < 0 && errno != EINTR) n = 0;
    }
    for (size_t i = 0; i < size; i++)
        if (!said[i]) said[i] = ' ';
    add(told, said, size);
}

static void say_no(struct bytes *told)
{
    add_text(told, "no cannot start a process: ");
    add_text(told, strerror(errno));
}

/* Start the runner that the daemon has ordered; a descriptor to talk to it, or -1. */
static int launch(const struct call *c, char **argv, struct bytes *told)
{
    int job[2], report[2];
    if (pipe2(job, O_CLOEXEC)) return say_no(told), -1;
    pid_t child = pipe2(report, O_CLOEXEC) ? -1 : fork();
    if (child < 0) {
        say_no(told);
        return close(job[0]), close(job[1]), -1; /* and we end soon */
    }
    if (!child) become(argv, job[0], report[1]);
    close(job[0]);
    close(report[1]);
    give_job(c, job[1]);
    hear_report(report[0], told);
    close(report[0]);
    waitpid(child, NULL, 0);
    return job[1];
}

/* The words of the runner's command; the last one is the id of the dispatch. */
static char **words(char *first, size_t size, const char **last)
{
    size_t count = 0, n = 0;
    for (size_t i = 0; i < size; i++) count += !first[i];
    char **argv = calloc(count + 1, sizeof *argv);
    if (!argv) fail("no memory");
    for (char *at = first; n < count; at += strlen(at) + 1) argv[n++] = at;
    *last = argv[count - 1];
    return argv;
}

/* The dispatch was cancelled meanwhile: the runner finds out, and ends with all that it started. */
static void see_it_end(const char *report)
{
    int runner = 0;
    const char *ok = strchr(report, ' ');
    if (!ok || sscanf(ok, " ok %*d %*s %d", &runner) != 1 || runner <= 0) return;
    int fd = (int)syscall(SYS_pidfd_open, runner, 0);
    if (fd < 0) return;
    ready(fd, POLLIN, now() + END_MS);
    close(fd);
}

/* How the call ended. */
enum outcome spawn(struct call *c)
{
    const char *id;
    static struct bytes told; /* its data is told until we end */
    c->launched = "";
    enum outcome ended = insist(c);
    if (ended != ORDERED) return ended;
    char **argv = words(c->said, c->out, &id);
    start(&told);
    add_text(&told, id);
    add_text(&told, " ");
    int control = launch(c, argv, &told);
    free(argv);
    c->launched = told.data;
    ended = insist(c);
    if (control >= 0 && ended == ANSWERED && !c->exit) write_all(control, RECORDED, 1);
    if (control >= 0) close(control);
    if (ended == ANSWERED && c->exit) see_it_end(told.data);
    /* To tell a start again changes nothing, so whatever went wrong, it may be told by another. */
    return ended == ANSWERED || ended == UNWRITABLE ? ended : ABSENT;
}
