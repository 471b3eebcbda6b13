#!/bin/sh
''':'
# This file is the installed command `icctl` and a Python module at once.  /bin/sh runs this
# paragraph, which Python reads as a string: it finds the interpreter that `icd` beside it was
# installed with and starts it on this file without `site`, which would cost a third of the call.
d=${0%/*}
[ -f "$d/icd" ] || { d=$(readlink -f "$0") && d=${d%/*}; }
p= ours=
{ IFS= read -r first && IFS= read -r second && while IFS= read -r line; do
    case $line in *"from icd."*) ours=yes; break;; esac
done; } <"$d/icd" 2>/dev/null
case $first in
    "#!/bin/sh") p=${second#*"exec' "} p=${p%%' "$0"'*} p=${p#'"'} p=${p%'"'};;
    "#!"*) p=${first#"#!"} p=${p%" -E"};;
esac
[ "$ours" ] && [ -x "$p" ] && exec "$p" -E -P -S "$0" "$@"
echo "icctl: cannot find the Python that intercore was installed with; reinstall intercore" >&2
exit 2
'''

# The keyhole: forward a command line to the daemon and print what comes back.
#
# Every hook pays for every import here, so this file loads `sys`, `posix`, `time` (all built in and
# loaded already) and `_socket`, nothing else; tests/test_import_budget.py holds it to that.
#
# Promises
#   - stdin belongs to the hook: it is read only when the daemon asks for it;
#   - one total deadline covers connecting, sending and receiving;
#   - the command runs in this process (`icctl.direct`) only if no daemon is there, or if it is
#     proven that none executed it; a lost reply is asked for again under the same request id.

import posix
import sys
import time

from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

ENOENT, EACCES, EPERM, EAGAIN, EPIPE, EBADF = 2, 13, 1, 11, 32, 9
EAFNOSUPPORT, ECONNREFUSED, ECONNRESET, ENOTCONN, ENOTDIR = 97, 111, 104, 107, 20
ABSENT = (ENOENT, ECONNREFUSED, ENOTDIR)
FORBIDDEN = (EPERM, EACCES, EAFNOSUPPORT)
# Reading or writing failed because the peer closed before it had read our request.
NOT_EXECUTED = (EPIPE, ECONNRESET, ENOTCONN)

DEFAULT_MS = 5000
MAX_MS = 300_000
ENVIRONMENT = (b"INTERCORE_DB", b"CLAUDE_SESSION_ID", b"IC_TRACE_ID", b"IC_SPAN_ID", b"HOME")
UNITS_MS = {"ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7, "us": 1e-3, "ns": 1e-6}


class Give_up(Exception):  # noqa: N801, N818 -- said as a sentence: raise Give_up(message, hint)
    """Nothing more can be done; what to tell the caller."""


def main(argv, program):
    """Run a command line; the exit status is returned."""
    words = [word for word in argv if not word.startswith("-")][:2]
    try:
        return run(argv, program)
    except Give_up as exc:
        say(f"{program}: {' '.join(words) or 'call'}: {exc.args[0]}; {exc.args[1]}\n")
        return exc.args[2] if len(exc.args) > 2 else 2
    except KeyboardInterrupt:
        return 130


def run(argv, program):
    mode = posix.environ.get(b"INTERCORE_MODE", b"auto")
    if mode not in (b"auto", b"daemon", b"direct"):
        raise Give_up("INTERCORE_MODE is none of auto, daemon, direct", "unset it", 3)
    try:
        cwd = posix.getcwdb()
    except OSError:
        raise Give_up("the current directory no longer exists", "change into one that does") from None
    limit = timeout_ms(argv) / 1000
    request = Request(argv, program, cwd)
    if mode == b"direct" or "--no-daemon" in before_dashes(argv):
        return direct(request, limit)
    deadline = time.monotonic() + limit
    unknown = False
    while True:
        try:
            answer = ask(request, deadline)
        except Lost:
            unknown = True
            answer = None
        except Absent:
            if mode != b"daemon":
                return direct(request, max(deadline - time.monotonic(), 0.05))
            answer = None
        except Expired as exc:
            raise told_late(limit, sent=unknown or exc.args[0]) from None
        if isinstance(answer, int):
            return answer
        if answer is LOCAL:
            return direct(request, limit)
        if answer is not None:  # the daemon wants input; reading it is the caller's own time
            request.attach(answer)
            deadline = time.monotonic() + limit
        elif time.monotonic() >= deadline:
            if not unknown:
                raise Give_up("no daemon answers, and INTERCORE_MODE is daemon", "start: icd serve")
            raise told_late(limit, sent=True)
        else:
            time.sleep(0.005)


def told_late(limit, *, sent):
    if sent:
        return Give_up(
            f"unknown_outcome: the daemon did not answer within {limit:g} s",
            "ask again: read the state before you repeat a write",
        )
    return Give_up(f"the daemon is too busy to listen within {limit:g} s", "try again")


class Absent(Exception):  # noqa: N818
    """No daemon executed the request, and none is there to ask."""


class Lost(Exception):  # noqa: N818
    """The daemon may have executed the request, and will not say."""


class Expired(Exception):  # noqa: N818
    """The deadline has passed; the argument says whether the request was sent."""


LOCAL = object()


class Request:
    """A keyhole frame: `ic1 N`, N fields that end in NUL, then the attachments they announce."""

    def __init__(self, argv, program, cwd):
        encoding = sys.getfilesystemencoding()
        self.argv = argv
        self.program = program
        self.id = posix.urandom(12).hex()
        self.inputs = []  # (kind, path, content or errno)
        self.fields = [
            b"i" + self.id.encode(),
            b"n" + program.encode(encoding, "surrogateescape"),
            b"d" + cwd,
            b"p%d" % posix.getppid(),
            b"y" + b"".join(b"1" if tty(fd) else b"0" for fd in (0, 1, 2)),
        ]
        environ = posix.environ
        self.fields += [b"e%b=%b" % (n, environ[n]) for n in ENVIRONMENT if n in environ]
        self.fields += [b"a" + word.encode(encoding, "surrogateescape") for word in argv]

    def frame(self, deadline):
        fields = [*self.fields, b"t%d" % max(1, (deadline - time.monotonic()) * 1000)]
        tail = []
        for kind, path, content in self.inputs:
            if isinstance(content, int):
                fields.append(b"x%d:%b" % (content, path))
            else:
                fields.append(b"%b%d:%b" % (kind, len(content), path))
                tail.append(content)
        return b"\0".join([b"ic1 %d" % len(fields), *fields, b""]) + b"".join(tail)

    def attach(self, need):
        kind, limit, path = need
        if kind == b"stdin":
            self.inputs.append((b"s", b"", read_all(0, limit)))
        else:
            self.inputs.append((b"f", path, read_file(path, limit)))


def ask(request, deadline):
    """One attempt, one connection: an exit status, an input that is needed, or LOCAL."""
    sock = connect(deadline)
    try:
        sent = False
        try:
            sock.settimeout(left(deadline, sent=False))
            sock.sendall(request.frame(deadline))
            sent = True
        except TimeoutError:
            raise Expired(False) from None
        except OSError as exc:
            if exc.errno not in NOT_EXECUTED:
                raise
        return Reply(sock, deadline, sent).read()
    finally:
        sock.close()


class Reply:
    """What the daemon sends back, printed only once a part of it is complete."""

    def __init__(self, sock, deadline, sent):
        self.sock = sock
        self.deadline = deadline
        self.sent = sent
        self.buffer = b""

    def read(self):
        while True:
            words = self.line().split()
            if words[0] == b"?":
                path = self.take(int(words[3])) if words[1] == b"file" else b""
                return words[1], int(words[2]), path
            if words[0] == b"!":
                return LOCAL
            out, err = self.take(int(words[1])), self.take(int(words[2]))
            failed = not write(1, out)
            write(2, err)
            if failed:
                raise Give_up("cannot write to stdout", "check where it is redirected to")
            if words[0] != b"+":
                return int(words[0])

    def line(self):
        while b"\n" not in self.buffer:
            self.more(65536)
        head, _, self.buffer = self.buffer.partition(b"\n")
        return head

    def take(self, size):
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

    def more(self, size):
        try:
            self.sock.settimeout(left(self.deadline, sent=self.sent))
            data = self.sock.recv(size)
        except TimeoutError:
            raise Expired(self.sent) from None
        except OSError as exc:
            if exc.errno not in NOT_EXECUTED:
                raise
            raise Absent from None
        if not data:
            raise (Lost if self.sent else Absent)
        self.buffer += data


def connect(deadline):
    while True:
        try:
            return connect_once(deadline)
        except BlockingIOError:  # the backlog is full: the daemon is alive, and busy
            left(deadline, sent=False)
            time.sleep(0.002)


def connect_once(deadline):
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
            raise Expired(False) from None
        except OSError as exc:
            if exc.errno is None:
                raise Give_up(f"the socket path {path} is too long", "use one of 107 bytes") from None
            if exc.errno not in ABSENT and exc.errno not in FORBIDDEN:
                raise Give_up(f"cannot connect to {path}: {exc.strerror}", "is it a socket?") from None
        sock.close()
    raise Absent


def sockets():
    """Where a daemon may listen: a function of the uid alone, unless it is overridden."""
    given = posix.environ.get(b"INTERCORE_SOCKET")
    if given:
        return [given.decode("utf-8", "surrogateescape")]
    uid = posix.geteuid()
    return [f"/run/user/{uid}/intercore/icd.sock", f"/tmp/intercore-{uid}/icd.sock"]


def peer_uid(sock):
    return int.from_bytes(sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)[4:8], sys.byteorder)


def direct(request, limit):
    """Run the command here.  Only now is the rest of Python worth its price."""
    import site

    if sys.flags.no_site:
        site.main()
    from icctl.direct import run_here

    return run_here(
        request.argv, request.program, request.id, request.inputs, read_all, read_file, write, limit
    )


def timeout_ms(argv):
    """The value of --timeout; whoever parses it in earnest complains if it is wrong."""
    value = None
    words = iter(before_dashes(argv))
    for word in words:
        if word == "--timeout":
            value = next(words, None)
        elif word.startswith("--timeout="):
            value = word[10:]
    return min(go_duration(value) or DEFAULT_MS, MAX_MS) if value else DEFAULT_MS


def go_duration(text):
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


def before_dashes(argv):
    return argv[: argv.index("--")] if "--" in argv else argv


def left(deadline, *, sent):
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise Expired(sent)
    return remaining


def read_file(path, limit):
    """The content of a file, or the errno that says why not."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError as exc:
        return exc.errno
    try:
        return read_all(fd, limit)
    finally:
        posix.close(fd)


def read_all(fd, limit):
    """Everything up to just past the limit, so that "too large" can be told from "just fits"."""
    parts, size = [], 0
    while size <= limit:
        try:
            data = posix.read(fd, min(1 << 20, limit + 1 - size))
        except OSError as exc:
            return exc.errno if fd else b""
        if not data:
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def write(fd, data):
    """Whether everything was written.  A reader that has gone away did not want it."""
    while data:
        try:
            data = data[posix.write(fd, data) :]
        except OSError as exc:
            return exc.errno in (EPIPE, EBADF)
    return True


def say(text):
    write(2, text.encode("utf-8", "backslashreplace"))


def tty(fd):
    try:
        return posix.isatty(fd)
    except OSError:
        return False


if __name__ == "__main__":
    posix._exit(main(sys.argv[1:], sys.argv[0].rpartition("/")[2]))  # skips a slow, needless farewell
