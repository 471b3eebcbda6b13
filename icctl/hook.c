/* hook: run a command for an agent's event, natively; icd/features/hook/run.py is the reference.

   The event is read once.  Before another needs it, it is put into a memory file that is our stdin
   from then on: so the command reads the same bytes, and the Python client can start over as
   long as nothing was claimed.
   That client does what is rare, or waits anyway: --debounce, the scope of a user, a line that is
   not plain, a lock without a daemon.  A failure of ours never blocks an agent. */

#define _GNU_SOURCE
#include "client.h"
#include "event.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKED = 2, LOG_BYTES = 1 << 20, LINE_BYTES = 1000, PROGRAM_BYTES = 40, NAME_DIGITS = 8 };

/* What the options say; NULL where they do not. */
struct wish {
    bool once, skip, closed;
    const char *every, *name, *scope, *serial, *when, *timeout;
    char **command;
    char made[64]; /* the name, if none was given */
};

/* One call of a hook. */
struct job {
    struct call *c;
    struct wish w;
    struct event e;
    const char *session;
    char *program, *project;
    struct child child; /* its pid is 0 as long as there is none */
    char *release;      /* what to send when the lock is not needed any more, or NULL */
    size_t size;
    sigset_t before;
    struct bytes input; /* what was read of stdin */
    bool taken;         /* it was, and no other can read it until it is put back */
};

/* How a question ended. */
enum verdict { YES, NO, FAILED, LEFT /* to the Python client */ };

/* --- the command line: what is not plain, and right, is left to the Python client --- */

/* The value of an option, from this word or the next; NULL if the word is another one. */
static const char *value(char ***at, const char *name)
{
    size_t size = strlen(name);
    if (strncmp(**at, name, size)) return NULL;
    if ((**at)[size] == '=') return **at + size + 1;
    return (**at)[size] || !(*at)[1] ? NULL : *++*at;
}

static bool read_word(char ***at, struct wish *w)
{
    const struct { const char *name; const char **to; } valued[] = {
        {"--every", &w->every}, {"--name", &w->name}, {"--scope", &w->scope}, {"--serial", &w->serial},
        {"--when", &w->when}, {"--timeout", &w->timeout},
    };
    const struct { const char *name; bool *to; } switches[] = {
        {"--once", &w->once}, {"--skip", &w->skip}, {"--fail-closed", &w->closed},
    };
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (!strcmp(**at, switches[i].name)) return !*switches[i].to && (*switches[i].to = true);
    for (size_t i = 0; i < sizeof valued / sizeof *valued; i++) {
        const char *given = value(at, valued[i].name);
        if (given) return !*valued[i].to && *given != '-' && (*valued[i].to = given);
    }
    return false;
}

static bool read_words(char **at, struct wish *w)
{
    for (char **word = at; *word; word++)
        if (!is_utf8(*word, strlen(*word))) return false;
    for (; *at && strcmp(*at, "--"); at++)
        if (!read_word(&at, w)) return false;
    if (!*at || !at[1]) return false;
    w->command = at + 1;
    return true;
}

/* Seconds, or a number and one unit; not so many that they could be too many. */
static bool is_interval(const char *text)
{
    size_t size = strspn(text, "0123456789");
    if (!text[size]) return size && size < 10;
    return size && size < 6 && strchr("smhd", text[size]) && !text[size + 1];
}

/* Conditions without brackets, each `KEY=GLOB,GLOB`. */
static bool are_conditions(const char *text)
{
    static const char *keys[] = {"tool=", "path=", "event=", "agent="};
    int count = 0;
    if (strchr(text, '[')) return false;
    for (const char *at = text + strspn(text, " \t\n\r\v\f"); *at; count++) {
        size_t size = strcspn(at, " \t\n\r\v\f"), known = 0;
        for (int i = 0; i < 4; i++)
            if (!strncmp(at, keys[i], strlen(keys[i]))) known = strlen(keys[i]);
        if (!known || known == size || at[known] == ',' || at[size - 1] == ',') return false;
        if (memmem(at, size, ",,", 2)) return false;
        at += size;
        at += strspn(at, " \t\n\r\v\f");
    }
    return count > 0;
}

static bool is_for_us(const struct wish *w)
{
    static const char *scopes[] = {"session", "project", "file"};
    bool scoped = !w->scope;
    for (int i = 0; i < 3; i++) scoped = scoped || !strcmp(w->scope, scopes[i]);
    if (!scoped || (w->once && w->every) || (w->skip && !w->serial)) return false;
    if (w->every && !is_interval(w->every)) return false;
    if ((w->name && !is_plain(w->name)) || (w->serial && !is_plain(w->serial))) return false;
    if (w->timeout && milliseconds(w->timeout) <= 0) return false;
    return !w->when || are_conditions(w->when);
}

/* A name that tells a command from others of the same program. */
static void name_command(struct wish *w)
{
    const char *program = strrchr(w->command[0], '/');
    char *to = w->made;
    struct bytes words = {0};
    program = program ? program + 1 : w->command[0];
    for (; *program && to < w->made + PROGRAM_BYTES; program++) {
        char c = *program;
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
        *to++ = plain ? c : '-';
    }
    *to++ = '-';
    start(&words);
    for (char **word = w->command; *word; word++) add(&words, *word, strlen(*word) + 1);
    hash(words.data, words.size - 1, NAME_DIGITS, to);
    stop(&words);
    w->name = w->made;
}

/* --- stdin --- */

/* Write what was read, and then the rest, for who reads it; also what is not read any more: an agent
   may wait until all of it was taken. */
static _Noreturn void pass_on(const char *data, size_t size, int to)
{
    char buffer[1 << 16];
    close(1), close(2); /* a reader of ours waits for their end */
    bool wanted = !write_all(to, data, size);
    for (ssize_t n; (n = read(0, buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR);)
        if (wanted && n > 0) wanted = !write_all(to, buffer, (size_t)n);
    _exit(0);
}

/* A descriptor from which all of stdin can be read, of which this is what was read; or -1. */
static int again(const char *data, size_t size)
{
    int ends[2], fd = size > EVENT_BYTES ? -1 : open_memory();
    if (fd >= 0 && !write_all(fd, data, size) && !lseek(fd, 0, SEEK_SET)) return fd;
    if (fd >= 0) close(fd);
    if (pipe2(ends, O_CLOEXEC)) return -1;
    pid_t other = fork();
    if (!other) {
        close(ends[0]);
        pid_t feeder = fork(); /* it is no child of the command that we become */
        if (feeder) _exit(feeder < 0);
        pass_on(data, size, ends[1]);
    }
    close(ends[1]);
    int failed = other < 0;
    if (other > 0) waitpid(other, &failed, 0);
    return failed ? close(ends[0]), -1 : ends[0];
}

/* All of stdin can be read again. */
static void put_back(struct job *j)
{
    int fd = j->taken ? again(j->input.data, j->input.size) : -1;
    if (fd >= 0) dup2(fd, 0), close(fd);
    j->taken = false;
}

/* Read the event; false if there is something that is none.  The event of a throttled call is not put
   back; of one that is too long, the rest has to be read. */
static bool take_event(struct job *j)
{
    start(&j->input);
    j->taken = !isatty(0);
    if (j->taken) read_all(0, EVENT_BYTES + 1, false, &j->input);
    bool fits = j->input.size <= EVENT_BYTES;
    if (!fits) put_back(j);
    return read_event(j->input.data, fits ? j->input.size : 0, &j->e) || !j->input.size;
}

static const char *session_of(const struct event *e)
{
    static const char *names[] = {"INTERCORE_SESSION", "CLAUDE_SESSION_ID", "CLAUDE_CODE_SESSION_ID",
                                  "CODEX_THREAD_ID", "GEMINI_SESSION_ID"};
    const char *found = e->session;
    for (int i = 0; i < 5 && !*found; i++) found = getenv(names[i]) ? getenv(names[i]) : "";
    return found;
}

static void tell_command(const struct event *e, const char *session)
{
    const char *told[][2] = {
        {"INTERCORE_SESSION", session}, {"INTERCORE_EVENT", e->event}, {"INTERCORE_TOOL", e->tool},
        {"INTERCORE_FILE", e->file}, {"INTERCORE_CWD", e->cwd}, {"INTERCORE_AGENT", e->agent},
        {"INTERCORE_STOP_ACTIVE", e->stop_active ? "true" : ""},
    };
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (setenv(told[i][0], told[i][1], 1)) fail("no memory");
}

/* --- when --- */

/* `*` and `?`, byte by byte. */
static bool glob(const char *pattern, const char *end, const char *word)
{
    const char *star = NULL, *from = NULL;
    for (; *word;) {
        if (pattern < end && *pattern == '*') star = pattern++, from = word;
        else if (pattern < end && (*pattern == '?' || *pattern == *word)) pattern++, word++;
        else if (star) pattern = star + 1, word = ++from;
        else return false;
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}

static bool fits(const char *globs, const char *end, const char *word, const char *last)
{
    for (const char *at = globs; *word && at <= end; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *to = comma ? comma : end;
        if (glob(at, to, word) || glob(at, to, last)) return true;
        at = to;
    }
    return false;
}

static bool matches(const char *when, const struct event *e)
{
    for (const char *at = when + strspn(when, " \t\n\r\v\f"); *at;) {
        const char *end = at + strcspn(at, " \t\n\r\v\f"), *globs = memchr(at, '=', (size_t)(end - at)) + 1;
        const char *word = *at == 't' ? e->tool : *at == 'p' ? e->file : *at == 'e' ? e->event : e->agent;
        const char *slash = *at == 'p' ? strrchr(word, '/') : NULL;
        if (!fits(globs, end, word, slash ? slash + 1 : word)) return false;
        at = end + strspn(end, " \t\n\r\v\f");
    }
    return true;
}

/* --- where, and for whom --- */

static bool is_directory(const char *path)
{
    struct stat s;
    return path && *path == '/' && !stat(path, &s) && S_ISDIR(s.st_mode);
}

static char *find_project(const struct event *e)
{
    const char *claude = getenv("CLAUDE_PROJECT_DIR");
    if (is_directory(e->cwd)) return strdup(e->cwd);
    return is_directory(claude) ? strdup(claude) : getcwd(NULL, 0);
}

static void put_hash(const char *kind, const char *text, char *to)
{
    hash(text, strlen(text), HASH_DIGITS, stpcpy(to, kind));
}

/* The git top level, else the nearest directory with a `.clavain`, else the directory itself; as
   icd/db/paths.py has it. */
static void project_scope(const char *directory, char *to)
{
    char at[PATH_MAX], path[PATH_MAX + 16], root[PATH_MAX];
    struct stat s;
    bool top = false, marked = false;
    if (!realpath(directory, at)) snprintf(at, sizeof at, "%s", directory);
    strcpy(root, at);
    if (!at[1]) *at = 0; /* the root is the empty path here */
    for (;; *strrchr(at, '/') = 0) {
        snprintf(path, sizeof path, "%s/.git", at);
        top = !lstat(path, &s);
        snprintf(path, sizeof path, "%s/.clavain", at);
        bool here = !marked && !stat(path, &s) && S_ISDIR(s.st_mode);
        if (top || here) strcpy(root, *at ? at : "/");
        marked = marked || here;
        if (top || !*at) break;
    }
    put_hash("p-", root, to);
}

static void file_scope(const struct event *e, char *to)
{
    size_t size = *e->file == '/' ? 0 : strlen(e->cwd);
    const char *slash = size && e->cwd[size - 1] != '/' ? "/" : "";
    char *path = NULL;
    if (asprintf(&path, "%.*s%s%s", (int)size, e->cwd, slash, e->file) < 0) fail("no memory");
    put_hash("f-", path, to);
    free(path);
}

/* --- what went wrong --- */

static bool open_log(char *path, size_t room, int *fd)
{
    const char *given = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool stated = given && *given == '/';
    if (!stated && (!home || *home != '/')) return false;
    int size = snprintf(path, room, "%s%s/intercore/hook.log", stated ? given : home, stated ? "" : "/.local/state");
    if (size < 0 || (size_t)size >= room) return false;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    return *fd >= 0;
}

/* Leave a line in the user's log; where that cannot be, there is none to tell. */
static void note(const char *name, const char *told)
{
    char path[PATH_MAX], aside[PATH_MAX + 2], line[LINE_BYTES + 2], clock[32];
    time_t now = time(NULL);
    struct tm utc;
    struct stat s;
    int fd;
    if (!open_log(path, sizeof path, &fd)) return;
    strftime(clock, sizeof clock, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    int size = snprintf(line, LINE_BYTES, "%s hook %s: %s", clock, name, told);
    size = size < LINE_BYTES ? size : LINE_BYTES - 1;
    for (int i = 0; i < size; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127) line[i] = '?';
    line[size] = '\n';
    write_all(fd, line, (size_t)size + 1);
    snprintf(aside, sizeof aside, "%s.1", path);
    if (!fstat(fd, &s) && s.st_size > LOG_BYTES) rename(path, aside);
    close(fd);
}

/* The reason within what a call said last on stderr, `icctl: VERB: REASON`. */
static const char *reason(struct call *c)
{
    char *said = c->said ? c->said + c->out : NULL;
    size_t size = said ? strlen(said) : 0;
    while (size && said[size - 1] == '\n') said[--size] = 0;
    const char *line = size ? strrchr(said, '\n') : NULL, *colon;
    line = line ? line + 1 : said;
    for (int i = 0; i < 2 && line && (colon = strstr(line, ": ")); i++) line = colon + 2;
    return line && *line ? line : "it is not known why";
}

/* --- asking, and doing --- */

static void find_scope(const struct job *j, const char *usual, char *to)
{
    const char *kind = j->w.scope ? j->w.scope : usual;
    if (!strcmp(kind, "project")) project_scope(j->project, to);
    else if (!strcmp(kind, "file") && *j->e.file) file_scope(&j->e, to);
    else if (!strcmp(kind, "session") && is_plain(j->session)) strcpy(to, j->session);
    else if (!strcmp(kind, "session") && *j->session) put_hash("s-", j->session, to);
    else strcpy(to, "none");
}

/* A failure of ours: no reason to stop an agent, unless it was said to be one. */
static enum outcome give_up(struct job *j, const char *told)
{
    j->c->exit = j->w.closed ? BLOCKED : 0;
    if (!j->w.closed) note(j->w.name, told);
    else fprintf(stderr, "%s: hook %s fails closed: %s\n", j->c->program, j->w.name, told);
    return ANSWERED;
}

static void say(struct job *j, const char *const *words)
{
    struct call *c = j->c;
    stop(&c->fields);
    start(&c->fields);
    surround(c, j->project);
    for (; *words; words++) c->count++, add_field(&c->fields, 'a', *words);
}

/* What the Python client, in the project, says to the same call, under the same id: its exit status. */
static int ask_python(struct job *j, enum outcome ended)
{
    struct call *c = j->c;
    int told = open_memory(), null = open("/dev/null", O_RDWR | O_CLOEXEC), status = 0;
    signal(SIGCHLD, SIG_DFL); /* else we would not learn how it ended */
    pid_t other = told < 0 ? -1 : fork();
    if (!other) {
        dup2(null, 0), dup2(told, 1), dup2(told, 2);
        if (chdir(j->project)) fail(j->project);
        hand_over(c, ended, arguments(c, j->program));
    }
    if (other > 0) waitpid(other, &status, 0);
    free(c->said);
    if (!(c->said = calloc(1, LINE_BYTES + 1))) fail("no memory");
    c->out = c->err = 0;
    if (other > 0 && pread(told, c->said, LINE_BYTES, 0) < 0) c->said[0] = 0;
    close(told), close(null);
    return other > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : BLOCKED;
}

/* Claim the sentinel. */
static enum verdict claim(struct job *j)
{
    struct call *c = j->c;
    char name[SCOPE_ROOM], scope[SCOPE_ROOM] = "project", interval[32];
    strcpy(stpcpy(name, "hook-"), j->w.name);
    strcpy(stpcpy(interval, "--interval="), j->w.once ? "0" : j->w.every);
    if (!j->w.scope || strcmp(j->w.scope, "project")) find_scope(j, "session", scope);
    say(j, (const char *[]){"sentinel", "check", name, scope, interval, NULL});
    enum outcome ended = insist(c);
    if (ended != ANSWERED) c->exit = ask_python(j, ended);
    if (!c->exit) return YES;
    return c->exit == 1 && !strncmp(c->said, "throttled", 9) ? NO : FAILED;
}

/* Ask for the lock, for the child. */
static enum outcome ask_for_lock(struct job *j, const char *patience)
{
    char name[SCOPE_ROOM], scope[SCOPE_ROOM], timeout[32];
    snprintf(name, sizeof name, "hook-%s", j->w.serial);
    snprintf(timeout, sizeof timeout, "--timeout=%s", patience);
    find_scope(j, "project", scope);
    say(j, (const char *[]){"hold", name, scope, timeout, "--", "hook", NULL});
    j->c->child = j->child.pid;
    enum outcome ended = insist(j->c);
    j->c->child = 0;
    return ended;
}

/* Take the lock for the child.  Not at once with all the patience there is: a daemon that hangs would
   be waited for as long as one that waits for the lock. */
static enum verdict take(struct job *j)
{
    struct call *c = j->c;
    put_back(j); /* the child reads it */
    if (!hatch(&j->child)) return LEFT;
    enum outcome ended = ask_for_lock(j, "1ms");
    if (ended == ANSWERED && c->exit == 1 && !j->w.skip)
        ended = ask_for_lock(j, j->w.timeout ? j->w.timeout : "10m");
    if (ended == ANSWERED) return c->exit == 1 && j->w.skip ? NO : FAILED;
    if (ended != GRANTED) return LEFT; /* nothing was claimed: the Python client does all of it */
    if (!(j->release = malloc(j->size = c->err))) fail("no memory");
    memcpy(j->release, c->said + c->out, j->size);
    return YES;
}

/* Whether the command runs. */
static enum verdict decide(struct job *j)
{
    enum verdict found = j->w.serial ? take(j) : YES;
    return found == YES && (j->w.once || j->w.every) ? claim(j) : found;
}

/* Be the command; without a lock there is nothing to do after it, and who ends us ends it.  Why
   that failed is returned. */
static int become(struct job *j)
{
    put_back(j);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGCHLD, SIG_DFL); /* a shell that was started without it could not wait for its jobs */
    return execute(j->w.command);
}

/* Let the child, which has the lock, be the command. */
static int let_child(struct job *j, int *why)
{
    struct bytes words = {0};
    start(&words);
    for (char **word = j->w.command; *word; word++) add(&words, *word, strlen(*word) + 1);
    int status = let(&j->child, words.data, words.size, &j->before, why);
    stop(&words);
    return status;
}

/* Run the command; only that of a child ends before us. */
static void run(struct job *j)
{
    if (j->c->line > 0) close(j->c->line); /* the daemon need not wait for the command */
    j->c->line = 0;
    int why, status = 0;
    if (j->child.pid > 0) status = let_child(j, &why);
    else why = become(j);
    j->c->exit = why ? 1 : status;
    if (why)
        fprintf(stderr, "%s: hook run: cannot run %s: %s; check its spelling and that it is executable\n",
                j->c->program, j->w.command[0], strerror(why));
}

/* Give the lock back, while its owner is a zombie, and then count that. */
static void clean_up(struct job *j)
{
    int status = j->c->exit;
    if (j->release) {
        free(j->c->said);
        j->c->said = j->release;
        j->c->out = 0, j->c->err = j->size;
        j->c->keeps = false; /* this call is about a lock of ours */
        give_back(j->c, j->program, &j->before);
    }
    if (j->child.pid > 0) waitpid(j->child.pid, NULL, 0);
    sigprocmask(SIG_SETMASK, &j->before, NULL);
    j->c->exit = status;
}

static enum outcome serve(struct job *j)
{
    bool throttles = j->w.serial || j->w.once || j->w.every;
    if (throttles && !j->project) return give_up(j, "the current directory no longer exists");
    enum verdict found = decide(j);
    if (found == YES) {
        run(j);
    } else {
        j->c->exit = 0;
        if (found == FAILED) give_up(j, reason(j->c));
        if (j->child.pid > 0) close(j->child.gate), close(j->child.failed); /* it ends by itself */
    }
    clean_up(j);
    if (found == LEFT) put_back(j);
    return found == LEFT ? UNTRIED : ANSWERED;
}

/* How it ended; UNTRIED if the Python client is to do all of it. */
enum outcome hook(struct call *c, char **argv)
{
    static struct job j;
    j.c = c;
    j.program = argv[0];
    if (!read_words(argv + (strcmp(argv[2], "run") ? 2 : 3), &j.w) || !is_for_us(&j.w)) return UNTRIED;
    if (!j.w.name) name_command(&j.w);
    c->keeps = true; /* what a call says is for us, not for the agent */
    sigprocmask(SIG_BLOCK, NULL, &j.before);
    bool known = take_event(&j);
    if (!known && j.w.when && j.w.closed) return give_up(&j, "the event on stdin is too long, or is not JSON");
    if (j.w.when && !matches(j.w.when, &j.e)) return ANSWERED;
    if (!(j.session = strdup(session_of(&j.e)))) fail("no memory"); /* the environment changes */
    tell_command(&j.e, j.session);
    j.project = find_project(&j.e);
    return serve(&j);
}
