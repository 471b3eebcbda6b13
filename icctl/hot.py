"""The keyhole: forward a command line to the daemon and print what comes back.

Every hook pays for every import here, so this file loads `sys`, `posix`, `time` (all built in and
loaded already) and `_socket`, nothing else; tests/test_import_budget.py holds it to that.

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

ENOENT, EACCES, EPERM, EPIPE, EBADF, EIO, ENOTDIR = 2, 13, 1, 32, 9, 5, 20
EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, ENOTCONN = 97, 111, 104, 107
ABSENT = (ENOENT, ECONNREFUSED, ENOTDIR)
FORBIDDEN = (EPERM, EACCES, EAFNOSUPPORT)
# Reading or writing failed because the peer closed before it had read our request.
NOT_EXECUTED = (EPIPE, ECONNRESET, ENOTCONN)

NOT_SENT = False
START = "start it with: icd serve"
DEFAULT_MS = 5000
MARGIN = 0.05
MAX_MS = 300_000
ENVIRONMENT = (b"INTERCORE_DB", b"CLAUDE_SESSION_ID", b"IC_TRACE_ID", b"IC_SPAN_ID", b"HOME")
Need = tuple[bytes, int, bytes]  # kind, limit, path
Input = tuple[bytes, bytes, bytes | int]  # kind, path, content or errno
UNITS_MS = {"ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7, "us": 1e-3, "ns": 1e-6}


class GiveUp(Exception):
    """Nothing more can be done; what to tell the caller."""


def main(argv: list[str], program: str) -> int:
    """Run a command line; the exit status is returned."""
    try:
        fill_standard_descriptors()
        return run(argv, program)
    except GiveUp as exc:
        say(f"{program}: {context(argv)}: {exc.args[0]}; {exc.args[1]}\n")
        return exc.args[2] if len(exc.args) > 2 else 2
    except KeyboardInterrupt:
        return 130
    except Exception as exc:  # noqa: BLE001 -- never a traceback on a hook author's screen
        say(f"{program}: internal error: {exc!r}; this is a bug in intercore, please report it\n")
        return 2


class Absent(Exception):
    """No daemon executed the request, and none is there to ask."""


class Lost(Exception):
    """The daemon may have executed the request, and will not say."""


class Expired(Exception):
    """The deadline has passed; the argument says whether the request was sent."""


class Request:
    """A keyhole frame: `ic1 N`, N fields that end in NUL, then the attachments they announce."""

    def __init__(self, argv: list[str], program: str, cwd: bytes) -> None:
        encoding = sys.getfilesystemencoding()
        self.argv = argv
        self.program = program
        self.id = posix.urandom(12).hex()
        self.inputs: list[Input] = []
        self.fields = [
            b"i" + self.id.encode(),
            b"n" + program.encode(encoding, "surrogateescape"),
            b"d" + cwd,
            b"p%d" % posix.getppid(),
            b"y" + b"".join(b"1" if posix.isatty(fd) else b"0" for fd in (0, 1, 2)),
        ]
        environ = posix.environ
        self.fields += [b"e%b=%b" % (n, environ[n]) for n in ENVIRONMENT if n in environ]
        self.fields += [b"a" + word.encode(encoding, "surrogateescape") for word in argv]

    def frame(self, deadline: float) -> bytes:
        # The same clock on both ends: a daemon that wakes up too late must not execute it.  It is
        # told to be done a little before we stop listening, so that its "no" still arrives.
        margin = min(MARGIN, (deadline - time.monotonic()) / 10)
        fields = [*self.fields, b"t%d" % ((deadline - margin) * 1000)]
        tail: list[bytes] = []
        for kind, path, content in self.inputs:
            if isinstance(content, int):
                fields.append(b"x%d:%b" % (content, path))
            else:
                fields.append(b"%b%d:%b" % (kind, len(content), path))
                tail.append(content)
        return b"\0".join([b"ic1 %d" % len(fields), *fields, b""]) + b"".join(tail)

    def attach(self, need: Need) -> None:
        kind, limit, path = need
        if kind == b"stdin":
            content = read_all(0, limit)
            self.inputs.append((b"s", b"", content if isinstance(content, bytes) else b""))
        else:
            self.inputs.append((b"f", path, read_file(path, limit)))


def run(argv: list[str], program: str) -> int:
    mode = posix.environ.get(b"INTERCORE_MODE") or b"auto"
    if mode not in {b"auto", b"daemon", b"direct"}:
        raise GiveUp("INTERCORE_MODE is none of auto, daemon, direct", "unset it", 3)
    try:
        cwd = posix.getcwdb()
    except OSError:
        raise GiveUp("the current directory no longer exists", "change to one that does") from None
    request = Request(argv, program, cwd)
    limit = timeout_ms(argv) / 1000
    if mode == b"direct" or "--no-daemon" in before_dashes(argv):
        return direct(request, limit)
    return insist(request, limit, alone=mode == b"daemon")


def insist(request: Request, limit: float, *, alone: bool) -> int:
    """Ask until there is an answer or no time; `alone`: the daemon is the only one to ask."""
    deadline, unknown, absent = time.monotonic() + limit, False, False
    while True:
        try:
            answer = ask(request, deadline)
        except Lost:
            unknown = True
        except Absent:
            if not alone:
                return direct(request, max(deadline - time.monotonic(), 0.05))
            absent = True
        except Expired as exc:
            if absent and not unknown:
                raise GiveUp("no daemon answers, and INTERCORE_MODE is daemon", START) from None
            raise told_late(limit, sent=unknown or exc.args[0]) from None
        else:
            if answer is None:
                return direct(request, limit)
            if isinstance(answer, int):
                return answer
            request.attach(answer)
            deadline = time.monotonic() + limit  # reading the input was the caller's own time
            continue
        time.sleep(0.005)


def context(argv: list[str]) -> str:
    """The verb, as far as it can be told without knowing the commands."""
    pairs = zip(["", *argv], argv, strict=False)
    words = [w for flag, w in pairs if w[:1] != "-" and flag not in {"--db", "--timeout"}]
    return " ".join(words[:2]) or "call"


def told_late(limit: float, *, sent: bool) -> GiveUp:
    if not sent:
        return GiveUp(f"the daemon is too busy to listen within {limit:g} s", "try again")
    told = f"unknown_outcome: the daemon did not answer within {limit:g} s"
    return GiveUp(told, "ask again: read the state before you repeat a write")


def ask(request: Request, deadline: float) -> int | Need | None:
    """One attempt, one connection: an exit status, a need for input, or None for "run it there"."""
    sock = connect(deadline)
    try:
        sent = False
        try:
            sock.settimeout(left(deadline, sent=sent))
            sock.sendall(request.frame(deadline))
            sent = True
        except TimeoutError:
            raise Expired(NOT_SENT) from None
        except OSError as exc:
            if exc.errno not in NOT_EXECUTED:
                raise
        return Reply(sock, deadline, sent=sent).read()
    finally:
        sock.close()


class Reply:
    """What the daemon sends back, printed only once a part of it is complete."""

    def __init__(self, sock: socket, deadline: float, *, sent: bool) -> None:
        self.sock = sock
        self.deadline = deadline
        self.sent = sent
        self.started = False
        self.buffer = b""

    def read(self) -> int | Need | None:
        while True:
            words = self.line().split()
            if words[0] == b"?":
                path = self.take(int(words[3])) if words[1] == b"file" else b""
                return words[1], int(words[2]), path
            if words[0] == b"!":
                return None
            out, err = self.take(int(words[1])), self.take(int(words[2]))
            failed = not write(1, out)
            write(2, err)
            if failed:
                raise GiveUp("cannot write to stdout", "check where it is redirected to")
            if words[0] != b"+":
                return int(words[0])

    def line(self) -> bytes:
        while b"\n" not in self.buffer:
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
            self.sock.settimeout(left(self.deadline, sent=self.sent))
            data = self.sock.recv(size)
        except TimeoutError:
            raise Expired(self.sent) from None
        except OSError as exc:
            if exc.errno not in NOT_EXECUTED:
                raise
            raise (Lost if self.started else Absent) from None
        if not data:
            raise (Lost if self.sent else Absent)
        self.started = True
        self.buffer += data


def connect(deadline: float) -> socket:
    while True:
        try:
            return connect_once(deadline)
        except BlockingIOError:  # the backlog is full: the daemon is alive, and busy
            left(deadline, sent=False)
            time.sleep(0.002)


def connect_once(deadline: float) -> socket:
    for path in sockets():
        try:
            sock = socket(AF_UNIX, SOCK_STREAM)
        except OSError as exc:
            if exc.errno in FORBIDDEN:
                raise Absent from None
            raise
        try:
            sock.settimeout(left(deadline, sent=False))
            sock.connect(path)
            if peer_uid(sock) == posix.geteuid():
                return sock
            say(f"icctl: the socket {path} belongs to another user and is not used\n")
        except BlockingIOError:
            sock.close()
            raise
        except TimeoutError:
            raise Expired(NOT_SENT) from None
        except OSError as exc:
            if exc.errno is None:
                raise GiveUp(
                    f"the socket path {path} is too long", "use one of 107 bytes"
                ) from None
            if exc.errno not in ABSENT and exc.errno not in FORBIDDEN:
                raise GiveUp(
                    f"cannot connect to {path}: {exc.strerror}", "is it a socket?"
                ) from None
        sock.close()
    raise Absent


def sockets() -> list[str]:
    """Where a daemon may listen: a function of the uid alone, unless it is overridden."""
    given = posix.environ.get(b"INTERCORE_SOCKET")
    if given:
        return [given.decode("utf-8", "surrogateescape")]
    uid = posix.geteuid()
    return [f"/run/user/{uid}/intercore/icd.sock", f"/tmp/intercore-{uid}/icd.sock"]


def peer_uid(sock: socket) -> int:
    return int.from_bytes(sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8], sys.byteorder)


def direct(request: Request, limit: float) -> int:
    """Run the command here.  Only now is the rest of Python worth its price."""
    try:
        from icctl.direct import run_here
    except ImportError:  # click or msgspec live where only `site` looks
        import site

        site.main()
        from icctl.direct import run_here
    return run_here(request, limit)


def timeout_ms(argv: list[str]) -> float:
    """The value of --timeout; whoever parses it in earnest complains if it is wrong."""
    value = None
    words = iter(before_dashes(argv))
    for word in words:
        if word == "--timeout":
            value = next(words, None)
        elif word.startswith("--timeout="):
            value = word[10:]
    return min(go_duration(value) or DEFAULT_MS, MAX_MS) if value else DEFAULT_MS


def go_duration(text: str) -> float | None:
    """Milliseconds, or None for what is not a positive duration."""
    total, number, unit = 0.0, "", ""
    for char in [*text, "0"]:
        if char in "0123456789." and unit:
            if unit not in UNITS_MS or number.count(".") > 1 or number in ("", "."):
                return None
            total += float(number) * UNITS_MS[unit]
            number, unit = "", ""
        if char in "0123456789.":
            number += char
        else:
            unit += char
    return total if total > 0 else None


def before_dashes(argv: list[str]) -> list[str]:
    return argv[: argv.index("--")] if "--" in argv else argv


def left(deadline: float, *, sent: bool) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise Expired(sent)
    return remaining


def read_file(path: bytes, limit: int) -> bytes | int:
    """The content of a file, or the errno that says why not."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError as exc:
        return exc.errno or EIO
    try:
        return read_all(fd, limit)
    finally:
        posix.close(fd)


def read_all(fd: int, limit: int) -> bytes | int:
    """Everything up to just past the limit, so that "too large" can be told from "just fits"."""
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        try:
            data = posix.read(fd, min(1 << 20, limit + 1 - size))
        except OSError as exc:
            return exc.errno or EIO
        if not data:
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def write(fd: int, data: bytes) -> bool:
    """Whether everything was written.  A reader that has gone away did not want it."""
    while data:
        try:
            data = data[posix.write(fd, data) :]
        except BlockingIOError:
            time.sleep(0.002)
        except OSError as exc:
            return exc.errno in {EPIPE, EBADF}
    return True


def say(text: str) -> None:
    write(2, text.encode("utf-8", "backslashreplace"))


def fill_standard_descriptors() -> None:
    """What was closed would be given to the next file we open, and our output written into it."""
    for fd in (0, 1, 2):
        try:
            posix.fstat(fd)
        except OSError:
            posix.open("/dev/null", posix.O_RDWR)
