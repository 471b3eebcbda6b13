/* The native client: forward a command line to the daemon and print what comes back.

   Hooks pay for every process they start, and this one is done before a Python has found its
   library.  It knows the way there and back, nothing else.  Everything else -- no daemon, a socket
   of another user, a lost reply, a deadline that passed, any sentence to be said -- is handed over
   to the Python client beside it, `icctl-python`, which goes on where this one stopped.

   Promises, those of icctl/client.py, which is the reference:
   - stdin belongs to the hook: it is read only when the daemon or the command line asks for it;
   - one total deadline covers connecting, sending and receiving;
   - a request that may have been executed is only ever repeated under its own id;
   - a part of a reply is printed once it is complete, so that a retry prints nothing twice. */

#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_MS = 5000, MAX_MS = 300000, MARGIN_MS = 500, PART_BYTES = 1 << 28 };
enum { EVENT_BYTES = 1 << 16 }; /* of icd/features/statusline/agent.py */
enum { FIRST_BYTES = 256, AHEAD_BYTES = 1024 }; /* most replies fit */
enum { SHELL_FD = 12 }; /* the highest that /bin/sh needs to start the Python client */
enum { SEARCH_MS = 10000 }; /* comparing takes longer than a look-up, and no hook waits for it */
enum { PATIENCE_MS = 1000 }; /* how long a lock is waited for; the daemon answers within the usual time */

struct reply {
    int fd;
    int64_t deadline; /* -1: a stream may be silent for as long as it likes */
    bool sent, started;
    char ahead[AHEAD_BYTES]; /* what was received with what was taken, from `next` on */
    size_t next, end;
};

int failure = 2;

_Noreturn void fail(const char *what)
{
    fprintf(stderr, "icctl: %s: %s; if it stays so, reinstall intercore\n", what, strerror(errno));
    exit(failure);
}

/* --- bytes and time --- */

void start(struct bytes *b)
{
    *b = (struct bytes){.data = calloc(1, FIRST_BYTES), .room = FIRST_BYTES};
    if (!b->data) fail("no memory");
}

void stop(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

void add(struct bytes *b, const void *data, size_t size)
{
    size_t room = b->room;
    while (room - b->size <= size) room *= 2;
    if (room > b->room && !(b->data = realloc(b->data, b->room = room))) fail("no memory");
    if (size) memcpy(b->data + b->size, data, size);
    b->data[b->size += size] = 0;
}

void add_text(struct bytes *b, const char *text)
{
    add(b, text, strlen(text));
}

void add_number(struct bytes *b, int64_t number)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0) *--at = '-';
    add(b, at, (size_t)(digits + sizeof digits - at));
}

/* One of the fields of which a frame consists: its kind, its text, and a NUL. */
void add_field(struct bytes *b, char kind, const char *text)
{
    add(b, &kind, 1);
    add(b, text, strlen(text) + 1);
}

static void add_number_field(struct bytes *b, char kind, int64_t number)
{
    add(b, &kind, 1);
    add_number(b, number);
    add(b, "", 1);
}

int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether the descriptor becomes ready before the deadline. */
bool ready(int fd, short events, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline < 0 ? -1 : deadline - now();
        if (deadline >= 0 && left <= 0) return false;
        if (poll(&(struct pollfd){fd, events, 0}, 1, left < INT_MAX ? (int)left : INT_MAX) > 0) return true;
    }
}

/* 0, or why not everything was written. */
int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n >= 0) data += n, size -= (size_t)n;
        else if (errno == EAGAIN) ready(fd, POLLOUT, -1);
        else if (errno != EINTR) return errno;
    }
    return 0;
}

/* --- the call --- */

/* The argument after `last`, if it stands before `--`. */
static const char *next_word(const struct call *c, const char *last)
{
    const char *at = last ? last + strlen(last) + 1 : c->fields.data;
    for (; at < c->fields.data + c->fields.size; at += strlen(at) + 1)
        if (*at == 'a') return strcmp(at + 1, "--") ? at + 1 : NULL;
    return NULL;
}

/* A number and `ms`, `s` or `m`; 0 for every other duration, which the Python client reads. */
int64_t milliseconds(const char *text)
{
    unsigned number = 0;
    int end = 0, unit = 1;
    if (*text < '0' || *text > '9') return 0;
    sscanf(text, "%6ums%n", &number, &end);
    if (!end) sscanf(text, "%6us%n", &number, &end), unit = 1000;
    if (!end) sscanf(text, "%6um%n", &number, &end), unit = 60000;
    return end && !text[end] ? (int64_t)number * unit : 0;
}

/* The word after `last` that is neither a flag nor the value of one. */
static const char *plain_word(const struct call *c, const char *last)
{
    for (const char *word = next_word(c, last); word; word = next_word(c, word)) {
        if (*word != '-') return word;
        if (strcmp(word, "--db") && strcmp(word, "--timeout")) continue;
        if (!(word = next_word(c, word))) break;
    }
    return "";
}

static const char *verb(const struct call *c)
{
    return plain_word(c, NULL);
}

/* Whether a runner is to be started; which of them the daemon may prepare, it says itself. */
static bool spawns(const struct call *c)
{
    const char *noun = verb(c), *what = strcmp(noun, "dispatch") ? "" : plain_word(c, noun);
    return !strcmp(what, "spawn") || !strcmp(what, "retry");
}

/* Give a call whose fields are there its id and its time; false if it is not for us. */
static bool begin(struct call *c)
{
    const char *mode = getenv("INTERCORE_MODE"), *value = NULL, *last = "";
    bool holds = !strcmp(verb(c), "hold"), locks = holds || !strcmp(verb(c), "lock");
    /* The owner of a lock is our child, or our parent: a helper has neither. */
    bool ours = holds ? c->child > 0 : !locks || !c->keeps;
    int64_t usual = locks ? PATIENCE_MS : DEFAULT_MS;
    unsigned char random[12];
    if (getrandom(random, sizeof random, 0) != sizeof random) fail("no random numbers");
    for (size_t i = 0; i < 2 * sizeof random; i++)
        c->id[i] = "0123456789abcdef"[random[i / 2] >> (i % 2 ? 0 : 4) & 15];
    for (const char *word = next_word(c, NULL); word; word = next_word(c, word)) {
        if (!strcmp(word, "--no-daemon")) ours = false;
        /* They are about a daemon that may hang. */
        if (!strcmp(last, "service") && (!strcmp(word, "start") || !strcmp(word, "stop"))) ours = false;
        if (!strcmp(last, "discovery") && !strcmp(word, "search")) usual = SEARCH_MS;
        last = word;
        if (!strncmp(word, "--timeout=", 10)) value = word + 10;
        if (!strcmp(word, "--timeout") && !(value = word = next_word(c, word))) break;
    }
    c->limit = value && !c->launched ? milliseconds(value) : usual; /* an agent has its own time */
    ours = ours && c->limit > 0;
    if (locks) c->limit += DEFAULT_MS; /* to wait for a lock is not to wait for the daemon */
    else if (c->limit > MAX_MS) c->limit = MAX_MS;
    c->began = now();
    c->deadline = c->began + c->limit;
    if (mode && *mode && strcmp(mode, "auto") && strcmp(mode, "daemon")) return false;
    return ours;
}

/* What a person's terminal is like, as icctl/terminal.py says it: width, clock, colours. */
static void face(struct bytes *f)
{
    struct winsize size = {0};
    time_t at = time(NULL);
    struct tm local = {0};
    const char *term = getenv("TERM"), *force = getenv("CLICOLOR_FORCE");
    bool forced = force && *force && strcmp(force, "0"), dumb = !term || !*term || !strcmp(term, "dumb");
    char said[64];
    ioctl(1, TIOCGWINSZ, &size);
    localtime_r(&at, &local);
    snprintf(said, sizeof said, "%d %ld %d", size.ws_col, local.tm_gmtoff, forced || !dumb);
    add_field(f, 'w', said);
}

static void frame(struct call *c, struct bytes *f)
{
    bool person = isatty(1); /* a helper's stdout is a pipe */
    /* The daemon is told to be done a little before we stop listening: its "no" still arrives. */
    int64_t margin = (c->deadline - now()) / 10;
    int64_t deadline = c->deadline - (margin < MARGIN_MS ? margin : MARGIN_MS);
    int count = c->count + c->inputs + 9 + person + (c->child > 0) + (c->launched != NULL);
    char terminals[] = {isatty(0) ? '1' : '0', person ? '1' : '0', isatty(2) ? '1' : '0', 0};
    add_text(f, "ic1 ");
    add_number(f, count);
    add(f, "", 1);
    add_field(f, 'i', c->id);
    add_field(f, 'n', c->program);
    add_field(f, 'v', c->door);
    add_number_field(f, 'p', c->parent);
    add_number_field(f, 't', deadline);
    add_field(f, 'y', terminals);
    add_field(f, 'r', INTERCORE_VERSION);
    add_field(f, 'c', c->keeps ? "0" : "1");
    add_number_field(f, 'b', c->began);
    if (person) face(f);
    if (c->child > 0) add_number_field(f, 'h', c->child);
    if (c->launched) add_field(f, 'l', c->launched);
    add(f, c->fields.data, c->fields.size);
    add(f, c->heads.data, c->heads.size);
    add(f, c->tail.data, c->tail.size);
}

static bool is_pipe(int fd)
{
    struct stat s;
    return !fstat(fd, &s) && S_ISFIFO(s.st_mode);
}

/* Read what was asked for; a byte too many tells "too large" from "just fits".  The writer of a pipe
   may take as long as it likes; a pipe without a writer is EPIPE, as no read ever is. */
int read_all(int fd, size_t left, bool in_vain, struct bytes *to)
{
    char buffer[1 << 16];
    while (left) {
        ssize_t n = read(fd, buffer, left < sizeof buffer ? left : sizeof buffer);
        if (n == 0) return in_vain ? EPIPE : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return errno;
        in_vain = false;
        if (n < 0) ready(fd, POLLIN, -1); /* there is a writer, and it takes its time */
        else add(to, buffer, (size_t)n), left -= (size_t)n;
    }
    return 0;
}

/* Add what was asked for to the input. */
static void attach(struct call *c)
{
    const char *path = c->needs_file ? c->said : NULL;
    struct bytes content = {0};
    int at_once = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = path ? open(path, at_once) : 0;
    if (fd < 0 && errno == EAGAIN) /* a lease of Samba or NFS has to be given back first */
        fd = open(path, at_once & ~O_NONBLOCK);
    int failed = fd < 0 ? errno : 0;
    start(&content);
    if (!failed) {
        bool in_vain = path && is_pipe(fd) && !ready(fd, POLLIN, now() + c->limit);
        failed = read_all(fd, c->needs + 1, in_vain, &content);
    }
    if (fd > 0) close(fd);
    add_text(&c->heads, !path ? "s" : failed ? "x" : "f");
    add_number(&c->heads, !failed ? (int64_t)content.size : path ? failed : 0);
    add_field(&c->heads, ':', path ? path : "");
    if (!failed) add(&c->tail, content.data, content.size);
    stop(&content);
    c->inputs++;
}

/* --- there --- */

/* 0 if no other user can have put the socket there, else the errno.  The sentence about it is said
   by the Python client, which looks at the same (icctl/client.py, is_ours). */
static int refuse_strange(const char *path)
{
    char directory[sizeof ((struct sockaddr_un *)0)->sun_path];
    struct stat home, sock;
    const char *slash = strrchr(path, '/');
    size_t size = !slash || slash == path ? 1 : (size_t)(slash - path);
    memcpy(directory, slash ? path : ".", size);
    directory[size] = 0;
    if (lstat(directory, &home) || lstat(path, &sock)) return errno;
    bool shared = home.st_mode & (S_IWGRP | S_IWOTH) && !(home.st_mode & S_ISVTX);
    bool known = home.st_uid == geteuid() || home.st_uid == 0;
    if (!S_ISDIR(home.st_mode) || shared || !known) return EACCES;
    return S_ISSOCK(sock.st_mode) && sock.st_uid == geteuid() ? 0 : EACCES;
}

/* A connection to a daemon of our own user, or the errno, negative. */
static int dial_at(const struct sockaddr_un *to)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    int strange = refuse_strange(to->sun_path);
    if (strange) return -strange;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int failed = connect(fd, (const struct sockaddr *)to, sizeof *to) ? errno : 0;
    if (!failed && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) failed = errno;
    if (!failed && peer.uid != geteuid()) failed = EACCES;
    if (failed) close(fd);
    return failed ? -failed : fd;
}

static bool is_absent(int failed)
{
    return failed == -ENOENT || failed == -ECONNREFUSED || failed == -ENOTDIR;
}

static void name_usual(struct sockaddr_un *to, const char *before, const char *after)
{
    struct bytes path = {0};
    start(&path);
    add_text(&path, before);
    add_number(&path, geteuid());
    add_text(&path, after);
    memcpy(to->sun_path, path.data, path.size + 1);
    stop(&path);
}

/* Where a daemon may listen: how many places, or 0 if the one that was given cannot be one. */
static size_t find_places(struct sockaddr_un to[2])
{
    const char *given = getenv("INTERCORE_SOCKET");
    if (!given || !*given) {
        name_usual(&to[0], "/run/user/", "/intercore/icd.sock");
        name_usual(&to[1], "/tmp/intercore-", "/icd.sock");
        return 2;
    }
    if (strlen(given) >= sizeof to->sun_path) return 0;
    strcpy(to[0].sun_path, given);
    return 1;
}

/* A connection, or the errno, negative; -EAGAIN: it was full until the call's deadline. */
int dial(const struct call *c)
{
    struct sockaddr_un to[2] = {{.sun_family = AF_UNIX}, {.sun_family = AF_UNIX}};
    size_t places = find_places(to);
    if (!places) return -EINVAL;
    for (;;) {
        int fd = -ENOENT;
        for (size_t i = 0; i < places && is_absent(fd); i++) fd = dial_at(&to[i]);
        if (fd != -EAGAIN || now() >= c->deadline) return fd;
        poll(NULL, 0, 2); /* its backlog is full: the daemon is alive, and busy */
    }
}

/* ABSENT: the daemon closed before it had read everything, so it executed nothing. */
static enum outcome send_all(const struct call *c, int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n >= 0) data += n, size -= (size_t)n;
        else if (errno == EAGAIN && !ready(fd, POLLOUT, c->deadline)) return LATE;
        else if (errno != EAGAIN && errno != EINTR) return ABSENT;
    }
    return ANSWERED;
}

/* --- and back --- */

/* Receive at least a byte, and as much as there is room for. */
static enum outcome receive(struct reply *r, char *to, size_t room, size_t *got)
{
    for (;;) {
        ssize_t n = recv(r->fd, to, room, 0);
        if (n > 0) return r->started = true, *got = (size_t)n, ANSWERED;
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            if (r->deadline < 0) return BROKEN;
            return (n == 0 ? r->sent : r->started) ? LOST : ABSENT;
        }
        if (!ready(r->fd, POLLIN, r->deadline)) return r->sent ? UNKNOWN : LATE;
    }
}

static enum outcome take(struct reply *r, char *to, size_t size)
{
    size_t got = r->end - r->next;
    if (got > size) got = size;
    memcpy(to, r->ahead + r->next, got);
    r->next += got;
    while (to += got, size -= got) {
        enum outcome ended = receive(r, to, size, &got);
        if (ended) return ended;
    }
    return ANSWERED;
}

static enum outcome take_line(struct reply *r, char *line, size_t room)
{
    for (char *at = line; at < line + room; at++) {
        if (r->next == r->end) {
            enum outcome ended = receive(r, r->ahead, sizeof r->ahead, &r->end);
            if (ended) return ended;
            r->next = 0;
        }
        *at = r->ahead[r->next++];
        if (*at == '\n') return *at = 0, ANSWERED;
    }
    return NONSENSE;
}

/* Take a part of the reply. */
static enum outcome hear(struct call *c, struct reply *r, size_t out, size_t err)
{
    free(c->said);
    if (!(c->said = malloc(out + err + 1))) fail("no memory");
    c->said[out + err] = 0;
    c->out = out;
    c->err = err;
    return take(r, c->said, out + err);
}

/* Whether everything was written; a reader that has gone away did not want it. */
static enum outcome print(struct call *c, bool *gone)
{
    int failed = write_all(1, c->said, c->out);
    write_all(2, c->said + c->out, c->err);
    *gone = failed == EPIPE || failed == EBADF;
    return failed && !*gone ? UNWRITABLE : ANSWERED;
}

/* Whether a line is `word` and then as many numbers as there are places for them. */
static bool is(const char *line, const char *word, size_t *numbers, size_t count)
{
    size_t size = strlen(word);
    if (strncmp(line, word, size)) return false;
    for (const char *at = line + size; count--; numbers++) {
        char *end;
        if (*at < '0' || *at > '9') return false;
        *numbers = strtoul(at, &end, 10);
        if (*numbers > PART_BYTES || *end != (count ? ' ' : 0)) return false;
        at = end + 1;
    }
    return true;
}

/* The same caller with other arguments, each ended by NUL. */
enum outcome follow(struct call *c, const char *words, size_t size)
{
    c->fields.size = c->world;
    for (const char *word = words; word < words + size; word += strlen(word) + 1)
        add_field(&c->fields, 'a', word);
    c->count = 0;
    for (const char *at = c->fields.data; at < c->fields.data + c->fields.size; at += strlen(at) + 1)
        c->count++;
    return FOLLOWED;
}

static enum outcome read_reply(struct call *c, struct reply *r)
{
    for (bool more = true, gone = false; more && !gone;) {
        char line[64];
        size_t n[3] = {0};
        enum outcome ended = take_line(r, line, sizeof line);
        if (ended) return ended;
        if (!strcmp(line, "! local")) return ABSENT; /* it concerns no daemon */
        c->needs_file = is(line, "? file ", n, 2);
        if (c->needs_file || is(line, "? stdin ", n, 1)) {
            c->needs = n[0];
            return (ended = hear(c, r, n[1], 0)) ? ended : NEEDED;
        }
        if (!c->keeps && is(line, "& ", n, 3)) {
            if ((ended = hear(c, r, n[0] + n[1], n[2]))) return ended;
            c->out = n[0], c->err = n[1];
            if (!n[2] || c->said[n[0] + n[1] + n[2] - 1]) return NONSENSE;
            if ((ended = print(c, &gone)) || gone) return c->exit = 0, ended;
            return follow(c, c->said + n[0] + n[1], n[2]);
        }
        if (c->child > 0 && is(line, "* ", n, 2)) {
            if ((ended = hear(c, r, n[0], n[1]))) return ended;
            return n[0] && n[1] && !c->said[n[0] - 1] && !c->said[n[0] + n[1] - 1] ? GRANTED : NONSENSE;
        }
        if (c->launched && !*c->launched && is(line, "@ ", n, 3)) {
            if ((ended = hear(c, r, n[0] + n[1], n[2]))) return ended;
            c->out = n[0], c->err = n[1];
            write_all(2, c->said + n[0] + n[1], n[2]);
            return n[0] && !c->said[n[0] - 1] ? ORDERED : NONSENSE;
        }
        more = is(line, "+ ", n + 1, 2);
        if (!more && (!is(line, "", n, 3) || n[0] > 255)) return NONSENSE;
        if (more && c->keeps) return LOST; /* a stream wants a process of its own */
        if (more) r->deadline = -1;
        if ((ended = hear(c, r, n[1], n[2]))) return ended;
        c->exit = more ? 0 : (int)n[0];
        if (!c->keeps && (ended = print(c, &gone))) return ended;
    }
    return ANSWERED;
}

/* Whether a connection that was kept is still there, and says nothing unasked. */
static bool is_quiet(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

/* One attempt.  A connection that was kept may be stale: then it executed nothing, and a new one
   is tried. */
static enum outcome ask(struct call *c)
{
    bool kept = c->line > 0 && is_quiet(c->line);
    if (c->line > 0 && !kept) close(c->line);
    struct reply r = {.fd = kept ? c->line : dial(c), .deadline = c->deadline};
    struct bytes f = {0};
    if (r.fd < 0) return r.fd == -EAGAIN ? LATE : ABSENT;
    start(&f);
    frame(c, &f);
    enum outcome ended = send_all(c, r.fd, f.data, f.size);
    r.sent = ended == ANSWERED;
    if (ended != LATE) ended = read_reply(c, &r);
    stop(&f);
    bool keeps = ended == NEEDED || ended == FOLLOWED || ended == ORDERED || (ended == ANSWERED && c->keeps);
    c->line = keeps && r.next == r.end ? r.fd : 0; /* it says nothing unasked */
    if (!c->line) close(r.fd);
    return kept && ended == ABSENT ? ask(c) : ended;
}

/* Whether the command line says that an event is on stdin: to be asked for it would take as long as
   the rest.  Not from a terminal, where a person may want to read the help. */
static bool brings_event(const struct call *c)
{
    if (c->keeps || strcmp(verb(c), "statusline") || isatty(0)) return false;
    for (const char *word = next_word(c, NULL); word; word = next_word(c, word))
        if (!strncmp(word, "--from", 6)) return true;
    return false;
}

/* Ask for a call whose fields are there, as long as the daemon wants input. */
enum outcome insist(struct call *c)
{
    stop(&c->heads);
    stop(&c->tail);
    start(&c->heads);
    start(&c->tail);
    c->inputs = 0;
    if (!begin(c)) return UNTRIED;
    enum outcome ended = NEEDED;
    c->needs_file = false;
    c->needs = EVENT_BYTES;
    if (!brings_event(c)) ended = ask(c);
    for (; ended == NEEDED; ended = ask(c)) {
        if (c->keeps && (c->needs_file || !c->has_stdin)) return UNTRIED; /* the shell can read it */
        attach(c);
        c->deadline = now() + c->limit; /* reading the input was the caller's own time */
    }
    return ended;
}

/* --- handing over --- */

void describe(const struct call *c, enum outcome why, int fd, struct bytes *to)
{
    char *told = NULL;
    int size = asprintf(&told, "%c %s %lld %lld %d %s %s", (char)why, c->id, (long long)c->limit,
                        (long long)c->deadline, fd, c->door, c->program);
    if (size < 0) fail("no memory");
    add(to, told, (size_t)size);
    free(told);
}

/* A file that has no name, or -1. */
int open_memory(void)
{
    int fd = memfd_create("intercore-input", 8 /* MFD_NOEXEC_SEAL, which newer kernels may ask for */);
    return fd < 0 ? memfd_create("intercore-input", 0) : fd;
}

static int keep_input(struct call *c)
{
    struct bytes b = {0};
    start(&b);
    bool reports = c->launched && *c->launched;
    add_number(&b, c->inputs + reports);
    add(&b, "", 1);
    if (reports) add_field(&b, 'l', c->launched);
    add(&b, c->heads.data, c->heads.size);
    add(&b, c->tail.data, c->tail.size);
    int fd = open_memory();
    if (fd < 0 || write_all(fd, b.data, b.size) || lseek(fd, 0, SEEK_SET)) fail("no memory");
    return fd;
}

/* The path of a program of our own installation. */
void beside(char *path, size_t room, const char *program)
{
    ssize_t size = readlink("/proc/self/exe", path, room);
    if (size <= 0) size = snprintf(path, room, "%s", (const char *)getauxval(AT_EXECFN));
    char *name = size > 0 && (size_t)size < room ? memrchr(path, '/', (size_t)size) : NULL;
    if (!name || (size_t)(++name - path) + strlen(program) >= room) fail("cannot find my own directory");
    strcpy(name, program);
}

/* Become the Python client as its first lines, which are a shell's, would start it: with the Python
   that `icd` beside it names.  It returns where that is in doubt, and then the shell decides. */
static void become_python(char *script, char **argv)
{
    char path[PATH_MAX], text[1024];
    beside(path, sizeof path, "icd");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (size <= 0) return;
    text[size] = 0;
    char *end = strpbrk(text, " \n");
    if (strncmp(text, "#!/", 3) || !end || *end != '\n' || !strstr(end, "from icd.")) return;
    *end = 0;
    if (strncmp(strrchr(text, '/'), "/py", 3)) return; /* a path with spaces is told to a shell */
    size_t count = 0;
    while (argv[count]) count++;
    char **all = calloc(count + 5, sizeof *all);
    if (!all) return;
    char *first[] = {text + 2, "-E", "-P", "-S", script};
    memcpy(all, first, sizeof first);
    if (count) memcpy(all + 5, argv + 1, count * sizeof *all);
    execv(text + 2, all);
    free(all);
}

_Noreturn void hand_over(struct call *c, enum outcome why, char **argv)
{
    char path[PATH_MAX];
    struct bytes told = {0};
    beside(path, sizeof path, "icctl-python");
    int spare = fcntl(2, F_DUPFD_CLOEXEC, SHELL_FD);
    if (spare < 0) { /* the shell would say so in words of its own, or not at all */
        fprintf(stderr, "%s: too few descriptors left to open a file; raise 'ulimit -n'\n", c->program);
        exit(failure);
    }
    close(spare);
    start(&told);
    bool keeps = c->inputs || (c->launched && *c->launched);
    describe(c, why, keeps ? keep_input(c) : -1, &told);
    setenv("INTERCORE_HANDOVER", told.data, 0); /* what a helper said comes first */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    become_python(path, argv);
    execv(path, argv);
    fail(path);
}

/* Fields for a directory and the environment. */
void surround(struct call *c, const char *directory)
{
    static const char *names[] = {"INTERCORE_DB", "INTERCORE_SESSION", "CLAUDE_SESSION_ID",
                                  "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID",
                                  "IC_TRACE_ID", "IC_SPAN_ID", "HOME", "INTERCORE_LOCK_DIR",
                                  "INTERCORE_AGENT", "INTERCORE_EVENT", "COLUMNS", "NO_COLOR", "TMPDIR",
                                  "CLAVAIN_DISPATCH_SH"};
    add_field(&c->fields, 'd', directory);
    c->count = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (!value) continue;
        c->count++;
        add_text(&c->fields, "e");
        add_text(&c->fields, names[i]);
        add_field(&c->fields, '=', value);
    }
    c->world = c->fields.size;
}

/* Fields for the directory, the environment and the arguments; false without a directory. */
static bool look_around(struct call *c, char **argv)
{
    char *directory = getcwd(NULL, 0);
    if (!directory) return false;
    surround(c, directory);
    free(directory);
    for (; *argv; argv++) c->count++, add_field(&c->fields, 'a', *argv);
    return true;
}

/* The arguments of a call that followed another, for the client that takes over. */
char **arguments(const struct call *c, char *program)
{
    static char **argv;
    free(argv);
    if (!(argv = calloc((size_t)c->count + 2, sizeof *argv))) fail("no memory");
    size_t n = 0;
    argv[n++] = program;
    for (char *at = c->fields.data + c->world; at < c->fields.data + c->fields.size; at += strlen(at) + 1)
        argv[n++] = at + 1;
    return argv;
}

int main(int argc, char **argv)
{
    for (int fd = 0; fd < 3; fd++) /* what was closed would be given to the next file we open */
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* as Python does: what cannot be written is an error, not a death */
    static struct call c;
    char *slash = argc ? strrchr(argv[0], '/') : NULL;
    c.program = slash ? slash + 1 : argc ? argv[0] : "icctl";
    c.door = "native-keyhole";
    c.parent = getppid();
    start(&c.fields);
    bool helper = argc > 1 && !strcmp(argv[1], "--helper");
    if (helper && argc == 3 && help(&c, atoi(argv[2]))) return 0;
    if (argc == 3 && !strcmp(argv[1], "service") && !strcmp(argv[2], "ensure")) return ensure(&c);
    bool handed = helper || getenv("INTERCORE_HANDOVER");
    bool hooks = !handed && argc > 2 && !strcmp(argv[1], "hook");
    if (hooks) failure = 1; /* to an agent, 2 means "blocked" */
    for (char **word = argv + 2; hooks && *word && strcmp(*word, "--"); word++)
        if (!strcmp(*word, "--fail-closed")) failure = 2;
    hooks = hooks && (*argv[2] == '-' || !strcmp(argv[2], "run"));
    bool ours = !handed && !hooks && look_around(&c, argv + (argc > 0));
    enum outcome ended = UNTRIED;
    if (hooks) ended = hook(&c, argv);
    else if (ours && !strcmp(verb(&c), "hold")) ended = hold(&c, argv[0]);
    else if (ours) ended = spawns(&c) ? spawn(&c) : insist(&c);
    while (ended == FOLLOWED) argv = arguments(&c, argv[0]), ended = insist(&c);
    if (ended != ANSWERED) hand_over(&c, ended, argv);
    return c.exit;
}
