/* What the parts of the client share: a call, and how it can end. */

#ifndef CLIENT_H
#define CLIENT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#ifndef INTERCORE_VERSION
#error "INTERCORE_VERSION is that of icd/__init__.py; build with make, or pip"
#endif

/* How a call ended; the Python client is told the letter (icctl/handover.py). */
enum outcome {
    ANSWERED,
    FOLLOWED,         /* all was written, and another call is to follow */
    NEEDED,           /* nothing was done: once more, with the input that was asked for */
    GRANTED,          /* the child may become the command, and another call is to follow */
    ORDERED,          /* a runner is to be started, and the call is to be repeated */
    UNTRIED = '-',    /* not for us */
    ABSENT = 'a',     /* no daemon executed it */
    LOST = 'l',       /* the daemon may have executed it, and left */
    LATE = 'e',       /* the deadline passed before it was sent */
    UNKNOWN = 'u',    /* the deadline passed after it was sent */
    UNWRITABLE = 'w', /* it was executed, but its output cannot be written */
    NONSENSE = 'n',   /* the reply is none */
    BROKEN = 'b',     /* the daemon left in the middle of a stream */
};

/* Bytes that grow.  No stream of the C library: each would cost three new pages, and a call has many. */
struct bytes {
    char *data; /* a NUL follows, which is not counted */
    size_t size, room;
};

struct call {
    const char *program, *door;
    bool keeps; /* a helper's call: the answer and the connection are kept */
    int line;   /* the connection that was kept, or 0 */
    pid_t parent, child; /* `child` is to become a command, or 0 */
    const char *launched; /* what a runner reported; empty before there is one; NULL if there is none */
    char id[25];
    int64_t began, limit, deadline;   /* in milliseconds, as all times here */
    struct bytes fields, heads, tail; /* the caller's; of the input asked for; that input itself */
    int count, inputs;                /* the number of fields of either kind */
    size_t world;                     /* fields before the arguments, in bytes */
    bool has_stdin;                   /* a helper's call: there is input that may be asked for */
    bool needs_file;                  /* asked for is the file `said`, else stdin */
    size_t needs;                     /* at most so many bytes of it */
    char *said;                       /* the last part of the reply: stdout, then stderr */
    size_t out, err;
    int exit;
};

enum { NOT_STARTED = 127 }; /* as a shell tells it */

/* A process that waits, and then is a command, or ends. */
struct child {
    pid_t pid;
    int gate, failed;
};

extern int failure; /* the exit status of what fails here */

_Noreturn void fail(const char *what);
void start(struct bytes *b);
void stop(struct bytes *b);
void add(struct bytes *b, const void *data, size_t size);
void add_text(struct bytes *b, const char *text);
void add_number(struct bytes *b, int64_t number);
void add_field(struct bytes *b, char kind, const char *text);
int64_t now(void);
bool ready(int fd, short events, int64_t deadline);
int dial(const struct call *c);
void beside(char *path, size_t room, const char *program);
int write_all(int fd, const char *data, size_t size);
int read_all(int fd, size_t left, bool in_vain, struct bytes *to);
int64_t milliseconds(const char *text);
int open_memory(void);
void surround(struct call *c, const char *directory);
enum outcome insist(struct call *c);
enum outcome follow(struct call *c, const char *words, size_t size);
char **arguments(const struct call *c, char *program);
void describe(const struct call *c, enum outcome why, int fd, struct bytes *to);
_Noreturn void hand_over(struct call *c, enum outcome why, char **argv);
void listen_for(sigset_t *heard, sigset_t *before);
int execute(char **argv);
int accompany(pid_t child, const sigset_t *heard);
bool hatch(struct child *it);
int let(struct child *it, const char *words, size_t size, sigset_t *before, int *why);
void give_back(struct call *c, char *program, const sigset_t *before);
enum outcome hold(struct call *c, char *program);
enum outcome hook(struct call *c, char **argv);
enum outcome spawn(struct call *c);
bool help(struct call *c, pid_t owner);
int ensure(const struct call *c);

#endif
