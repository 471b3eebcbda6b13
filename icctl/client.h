/* What the client, the helper, `hold` and `service ensure` share: a call, and how it can end. */

#ifndef CLIENT_H
#define CLIENT_H

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
    UNTRIED = '-',    /* not for us */
    ABSENT = 'a',     /* no daemon executed it */
    LOST = 'l',       /* the daemon may have executed it, and left */
    LATE = 'e',       /* the deadline passed before it was sent */
    UNKNOWN = 'u',    /* the deadline passed after it was sent */
    UNWRITABLE = 'w', /* it was executed, but its output cannot be written */
    NONSENSE = 'n',   /* the reply is none */
    BROKEN = 'b',     /* the daemon left in the middle of a stream */
};

struct bytes { /* grow while `file` is written to */
    FILE *file;
    char *data;
    size_t size;
};

struct call {
    const char *program, *door;
    bool keeps; /* a helper's call: the answer and the connection are kept */
    int line;   /* the connection that was kept, or 0 */
    pid_t parent, child; /* `child` is to become a command, or 0 */
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

_Noreturn void fail(const char *what);
void start(struct bytes *b);
void stop(struct bytes *b);
int64_t now(void);
bool ready(int fd, short events, int64_t deadline);
int dial(const struct call *c);
void beside(char *path, size_t room, const char *program);
int write_all(int fd, const char *data, size_t size);
enum outcome insist(struct call *c);
enum outcome follow(struct call *c, const char *words, size_t size);
char **arguments(const struct call *c, char *program);
void describe(const struct call *c, enum outcome why, int fd, FILE *to);
_Noreturn void hand_over(struct call *c, enum outcome why, char **argv);
enum outcome hold(struct call *c, char *program);
bool help(struct call *c, pid_t owner);
int ensure(const struct call *c);

#endif
