"""The client: forward a command line to the daemon and print what comes back.

Every hook pays for every import here, so this file loads `sys`, `posix`, `time` (all built in),
`_socket` and `icd` (the version), no more; a test holds it to that.  icctl/client.c does
the same without Python, and hands over to this one (icctl/handover.py) what it cannot do.

Promises
    - stdin belongs to the hook: it is read only when the daemon asks for it;
    - one total deadline covers connecting, sending and receiving;
    - the command runs in this process (`icctl.direct`) only if no daemon is there, or if it is
      proven that none executed it; a lost reply is asked for again under the same request id.
"""

import posix
import sys
import time
from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

from icd import __version__

ENOENT, EACCES, EPERM, EPIPE, EBADF, ENOTDIR = 2, 13, 1, 32, 9, 20
EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, ENOTCONN, ENFILE, EMFILE = 97, 111, 104, 107, 23, 24
ABSENT, FORBIDDEN = (ENOENT, ECONNREFUSED, ENOTDIR), (EPERM, EACCES, EAFNOSUPPORT)
# Reading or writing failed because the peer closed before it had read our request.
NOT_EXECUTED = (EPIPE, ECONNRESET, ENOTCONN)
# The reader of our output has left, and did not want it.
GONE, NOT_SENT = (EPIPE, EBADF), False
DEFAULT_MS, SEARCH_MS, MAX_MS, MARGIN = 5000, 10_000, 300_000, 0.5  # comparing takes longer
PATIENCE_MS = 1000  # how long a lock is waited for; the daemon answers within the usual time
PART_BYTES, LINE_BYTES, PATH_BYTES = 1 << 28, 64, 107
# The module `stat` has a price.
S_IFMT, S_IFDIR, S_IFSOCK, STICKY, OTHERS_WRITE = 0o170000, 0o040000, 0o140000, 0o1000, 0o022
HANDOVER = b"INTERCORE_HANDOVER"
ENVIRONMENT = (
    *(b"INTERCORE_DB", b"INTERCORE_SESSION", b"CLAUDE_SESSION_ID", b"CLAUDE_CODE_SESSION_ID"),
    *(b"CODEX_THREAD_ID", b"GEMINI_SESSION_ID", b"IC_TRACE_ID", b"IC_SPAN_ID", b"HOME"),
    *(b"INTERCORE_LOCK_DIR", b"INTERCORE_AGENT", b"INTERCORE_EVENT", b"COLUMNS", b"NO_COLOR"),
)
# What an agent's hook may answer; all else below `hook` is a child of this process.
ANSWERS = (["hook", "context"], ["hook", "block"], ["hook", "allow"])
Need = tuple[bytes, int, bytes]  # kind, limit, path
Input = tuple[bytes, bytes, bytes | int]  # kind, path, content or errno


class GiveUp(Exception):
    """Nothing more can be done; the name of a sentence, and what to fill in."""


def main(argv: list[str], program: str) -> int:
    """Run a command line; the exit status is returned."""
    handed = None
    if HANDOVER in posix.environ:
        from icctl.handover import accept

        handed = accept()
        program = handed.program if handed else program
    for fd in (0, 1, 2):  # what is closed would be given to the next file, and written into
        try:
            posix.fstat(fd)
        except OSError:
            posix.open("/dev/null", posix.O_RDWR)
    try:
        return handed.resume(argv) if handed else run(Request(argv, program, world()))
    except GiveUp as exc:
        from icctl.messages import tell

        return harmless(argv, tell(program, argv, *exc.args))
    except Exception as exc:  # noqa: BLE001 -- never a traceback on a hook author's screen
        return harmless(argv, confess(program, exc))


class Absent(Exception):
    """No daemon executed the request, and none is there to ask."""


class Lost(Exception):
    """The daemon may have executed the request, and will not say."""


class Expired(Exception):
    """The deadline has passed; the argument says whether the request was sent."""


class Request:
    """A frame: `ic1 N`, N fields that end in NUL, then the attachments they announce."""

    def __init__(
        self, argv: list[str], program: str, world: list[bytes], door: bytes = b"python-client"
    ) -> None:
        encoding = sys.getfilesystemencoding()
        self.argv, self.program, self.world, self.door = argv, program, world, door
        self.id, self.began = posix.urandom(12).hex(), time.monotonic()
        self.inputs: list[Input] = []
        self.fields = [
            b"n" + program.encode(encoding, "surrogateescape"),
            b"r" + __version__.encode(),
            b"y" + b"".join(b"1" if posix.isatty(fd) else b"0" for fd in (0, 1, 2)),
            b"c1",
            *world,
            *(b"a" + word.encode(encoding, "surrogateescape") for word in argv),
        ]
        if posix.isatty(1):  # a person pays for it
            from icctl import terminal

            self.fields.append(terminal.field())

    def frame(self, deadline: float) -> bytes:
        # The same clock on both ends: a daemon that wakes up too late must not execute it.  It is
        # told to be done a little before we stop listening, so that its "no" still arrives.
        margin = min(MARGIN, (deadline - time.monotonic()) / 10)
        fields = [b"i" + self.id.encode(), b"v" + self.door, *self.fields]
        fields += b"t%d" % ((deadline - margin) * 1000), b"b%d" % (self.began * 1000)
        tail = b""
        if self.inputs:
            from icctl.replies import attach

            tail = attach(self.inputs, fields)
        return b"\0".join([b"ic1 %d" % len(fields), *fields, b""]) + tail

    def deliver(self, out: bytes, err: bytes) -> bool:
        """Print a part of the reply; False if its reader has left."""
        failed = write(1, out)
        write(2, err)
        if failed and failed not in GONE:
            raise GiveUp("unwritable")
        return not failed

    def run_here(self, limit: float) -> int:
        """Run the command in this process.  Only now is the rest of Python worth its price."""
        from icctl.direct import run_here

        return run_here(self, limit)


# An exit status, a need for input, the request to go on with, or None for "run it there".
Answer = int | Need | Request | None


def world() -> list[bytes]:
    """The caller's directory, environment and parent, as fields."""
    try:
        cwd = posix.getcwdb()
    except OSError:
        raise GiveUp("no directory") from None
    environ = posix.environ
    found = [b"d" + cwd, b"p%d" % posix.getppid()]
    return found + [b"e%b=%b" % (n, environ[n]) for n in ENVIRONMENT if n in environ]


def run(request: Request) -> int:
    if request.argv[:1] == ["--helper"]:
        raise GiveUp("no helper")
    if request.argv == ["service", "ensure"]:
        from icd.admin.service.detach import ensure

        return ensure(is_there, request.program)
    words, flags = typed(request.argv)
    limit = timeout_ms(request.argv) / 1000
    # A command under a lock is a child of this process, and so is that of a hook; a daemon that is
    # to stop may hang.
    is_local = (
        words[:1] == ["hold"]
        or (words[:1] == ["hook"] and words[:2] not in ANSWERS)
        or words[:2] in (["service", "start"], ["service", "stop"])
        or "--no-daemon" in flags
    )
    if is_local or chosen_mode(words) == b"direct":
        return request.run_here(limit)
    return insist(request, limit, request.began + limit, alone=chosen_mode(words) == b"daemon")


def typed(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """What stands before `--`: the words, of which the verb is the first, and the flags."""
    words, flags = [], {}
    rest = iter(argv[: argv.index("--")] if "--" in argv else argv)
    for word in rest:
        if word[:1] != "-":
            words.append(word)
            continue
        flag, equals, value = word.partition("=")
        flags[flag] = value if equals or flag not in {"--db", "--timeout"} else next(rest, "")
    return words, flags


def chosen_mode(words: list[str]) -> bytes:
    """Whom to ask; locks need no daemon, whatever was chosen."""
    mode = posix.environ.get(b"INTERCORE_MODE") or b"auto"
    if words[:1] in (["lock"], ["hold"]):
        return b"auto" if mode in {b"auto", b"daemon"} else b"direct"
    if mode not in {b"auto", b"daemon", b"direct"}:
        raise GiveUp("mode")
    return mode


def insist(
    request: Request, limit: float, deadline: float, *, alone: bool, unknown: bool = False
) -> int:
    """Ask until there is an answer or no time; `alone`: the daemon is the only one to ask."""
    absent = False
    while True:
        try:
            answer = ask(request, deadline)
        except Lost:
            unknown = True
        except Absent:
            remaining = deadline - time.monotonic()
            if not alone:
                return request.run_here(max(remaining, 0.05))
            if remaining <= 0:
                raise GiveUp("unknown" if unknown else "no daemon", limit) from None
            absent = True
        except Expired as exc:
            if absent and not unknown:
                raise GiveUp("no daemon") from None
            raise GiveUp("unknown" if unknown or exc.args[0] else "late", limit, request) from None
        else:
            if answer is None or isinstance(answer, int):
                return request.run_here(limit) if answer is None else answer
            if isinstance(answer, Request):
                request, unknown = answer, False
            else:
                from icctl.replies import read

                request.inputs.append(read(*answer, patience=limit))
            deadline = time.monotonic() + limit  # reading the input was the caller's own time
            continue
        time.sleep(0.005)


def ask(request: Request, deadline: float) -> Answer:
    """One attempt, one connection."""
    sock, sent = connect(deadline, request.program), False
    try:
        sock.settimeout(left(deadline, sent=sent))
        try:
            sock.sendall(request.frame(deadline))
            sent = True
        except TimeoutError:
            raise Expired(NOT_SENT) from None
        except OSError as exc:
            if exc.errno not in NOT_EXECUTED:
                raise
        return Reply(request, sock, deadline, sent=sent).read()
    except (ValueError, TypeError):
        raise GiveUp("nonsense") from None
    finally:
        sock.close()


class Reply:
    """What the daemon sends back, delivered only once a part of it is complete."""

    def __init__(self, request: Request, sock: socket, deadline: float, *, sent: bool) -> None:
        self.request, self.sock, self.deadline, self.sent = request, sock, deadline, sent
        self.buffer, self.started, self.streaming = b"", False, False

    def read(self) -> Answer:
        while True:
            head, *words = line = self.line().split(b" ")
            if line == [b"!", b"local"]:
                return None
            if head in (b"?", b"&"):
                from icctl import replies

                return replies.need(self, *words) if head == b"?" else replies.follow(self, *words)
            goes_on = head == b"+"
            status = 0 if goes_on else number(head, most=255)
            self.streaming |= goes_on  # it may also be silent for as long as it likes
            out, err = (number(word) for word in words)
            wanted = self.request.deliver(self.take(out), self.take(err))
            if not (goes_on and wanted):
                return status

    def line(self) -> bytes:
        while b"\n" not in self.buffer[:LINE_BYTES]:
            if len(self.buffer) >= LINE_BYTES:
                raise ValueError
            self.more(65536)
        head, _, self.buffer = self.buffer.partition(b"\n")
        return head

    def take(self, size: int) -> bytes:
        parts = [self.buffer]
        have = len(self.buffer)
        while have < size:
            self.buffer = b""
            self.more(min(size - have, 1 << 20))
            parts.append(self.buffer)
            have += len(self.buffer)
        whole = b"".join(parts)
        self.buffer = whole[size:]
        return whole[:size]

    def more(self, size: int) -> None:
        try:
            self.sock.settimeout(None if self.streaming else left(self.deadline, sent=self.sent))
            data = self.sock.recv(size)
        except TimeoutError:
            raise Expired(self.sent) from None
        except OSError as exc:
            if exc.errno not in NOT_EXECUTED:
                raise
            data = b""
            self.sent = self.started  # the rest of what we sent was not even read
        if not data:
            if self.streaming:
                raise GiveUp("broken") from None
            raise (Lost if self.sent else Absent) from None
        self.started = True
        self.buffer += data


def number(digits: bytes, most: int = PART_BYTES) -> int:
    if not digits.isdigit() or int(digits) > most:
        raise ValueError
    return int(digits)


def connect(deadline: float, program: str) -> socket:
    while True:
        try:
            return connect_once(deadline, program)
        except BlockingIOError:  # the backlog is full: the daemon is alive, and busy
            left(deadline, sent=False)
            time.sleep(0.002)


def connect_once(deadline: float, program: str) -> socket:
    for path in sockets():
        if len(path.encode("utf-8", "surrogateescape")) > PATH_BYTES:
            raise GiveUp("long path", path)
        try:
            if is_ours(path) and (sock := dial(path, deadline)):
                return sock
        except BlockingIOError:
            raise
        except TimeoutError:
            raise Expired(NOT_SENT) from None
        except OSError as exc:
            if exc.errno in ABSENT or exc.errno in FORBIDDEN:
                continue
            raise GiveUp("no socket", path, exc.strerror) from None
        from icctl.messages import ignore

        ignore(path, program)
    raise Absent


def is_there() -> bool:
    """Whether a daemon listens, without a word about what is ignored."""
    for path in sockets():
        try:
            if is_ours(path) and (sock := dial(path, time.monotonic() + MARGIN)):
                sock.close()
                return True
        except BlockingIOError:  # the backlog is full: the daemon is alive, and busy
            return True
        except OSError:
            continue
    return False


def is_ours(path: str) -> bool:
    """Whether no other user can have put the socket there; an OSError if nothing is there."""
    head, slash, _ = path.rpartition("/")
    home, sock, uid = posix.lstat(head or slash or "."), posix.lstat(path), posix.geteuid()
    shared = home.st_mode & OTHERS_WRITE and not home.st_mode & STICKY
    if home.st_mode & S_IFMT != S_IFDIR or shared or home.st_uid not in (uid, 0):
        return False
    return sock.st_mode & S_IFMT == S_IFSOCK and sock.st_uid == uid


def dial(path: str, deadline: float) -> socket | None:
    """A connection; None if a process of another user listens."""
    sock, found = socket(AF_UNIX, SOCK_STREAM), None
    try:
        sock.settimeout(left(deadline, sent=False))
        sock.connect(path)
        uid = sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8]
        found = sock if int.from_bytes(uid, sys.byteorder) == posix.geteuid() else None
    finally:
        if found is None:
            sock.close()
    return found


def sockets() -> list[str]:
    """Where a daemon may listen: a function of the uid alone, unless it is overridden."""
    given = posix.environ.get(b"INTERCORE_SOCKET")
    if given:
        return [given.decode("utf-8", "surrogateescape")]
    uid = posix.geteuid()
    return [f"/run/user/{uid}/intercore/icd.sock", f"/tmp/intercore-{uid}/icd.sock"]


def timeout_ms(argv: list[str]) -> int:
    """How long we wait; the command's own parser complains of a --timeout that is none."""
    words, flags = typed(argv)
    is_lock = words[:1] in (["lock"], ["hold"])
    usual = SEARCH_MS if words[:2] == ["discovery", "search"] else DEFAULT_MS
    asked = PATIENCE_MS if is_lock else usual
    if "--timeout" in flags:
        from icd.durations import duration_ms

        given = duration_ms(flags["--timeout"]) or 0
        asked = given if given > 0 else asked
    # To wait for a lock is not to wait for the daemon.
    return asked + DEFAULT_MS if is_lock else min(asked, MAX_MS)


def left(deadline: float, *, sent: bool) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise Expired(sent)
    return remaining


def write(fd: int, data: bytes) -> int:
    """0, or the errno that says why not everything was written."""
    while data:
        try:
            data = data[posix.write(fd, data) :]
        except BlockingIOError:
            time.sleep(0.002)
        except OSError as exc:
            return exc.errno or -1
    return 0


def say(text: str) -> None:
    write(2, text.encode(sys.getfilesystemencoding(), "surrogateescape"))


def harmless(argv: list[str], status: int) -> int:
    """An agent takes 2 of its hook for "blocked", so it is never said by accident."""
    words, flags = typed(argv)
    if words[:1] != ["hook"]:
        return status
    return 2 if "--fail-closed" in flags and status == 2 else min(status, 1)


def confess(program: str, exc: Exception) -> int:
    """Tell an unexpected error; without descriptors no module can be loaded to do it."""
    if isinstance(exc, OSError) and exc.errno in (EMFILE, ENFILE):
        say(f"{program}: too few descriptors left to open a file; raise 'ulimit -n'\n")
    else:
        say(f"{program}: internal error: {exc!r}; this is a bug in intercore, please report it\n")
    return 2
