"""Start a daemon that has nothing of its starter, and `service ensure`, which hooks call.

Every import here is paid for by a hook, so there are few.  The native client does the same without
Python (icctl/ensure.c); this is the reference.

Promises
    - the daemon is no child of its starter: it has a session of its own, none of the starter's
      descriptors, and of the environment only what a daemon reads;
    - the daemon's own lock decides who is the daemon: the lock of its directory only lets one
      caller at a time start it, and the others wait until it is there;
    - the daemon's stderr is a pipe to its starter until it listens: its end is that, or a failed
      start;
    - `ensure` prints nothing to stdout, succeeds and never takes longer than a second: an alarm
      ends it, and the daemon goes on starting.
"""

import _signal as signal  # type: ignore[import-not-found]  # its module in Python makes enums
import fcntl
import os
import stat
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_SECONDS, INPUT_SECONDS = 0.6, 0.1
INPUT_BYTES, READ_BYTES, LINE_BYTES = 1 << 20, 1 << 16, 1 << 12
# What the daemon reads, and what it passes on to programs that it starts.
KEPT = frozenset(
    {b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"TZ", b"TMPDIR"}
    | {b"XDG_RUNTIME_DIR", b"XDG_STATE_HOME", b"IC_LOG_LEVEL", b"INTERBAND_ROOT"}
    | {b"INTERCORE_SOCKET", b"INTERCORE_MODE", b"INTERCORE_DURABILITY", b"INTERCORE_IDLE_SECONDS"}
)
FLAGS = ("serve", "--exit-idle", "--log-to-file")


def ensure(is_there: "Callable[[], bool]", program: str) -> int:
    """Start a daemon if there is none; the exit status is returned."""
    _limit_time()
    _discard_input()
    if is_there():
        return 0
    try:
        take_turn()
        said = "" if is_there() else last_line(hear(start()))
    except OSError as exc:
        said = f"no process can be started: {exc.strerror}; retry"
    if said:
        _say(f"{program}: service ensure: {said}\n")
    return 0


def _say(line: str) -> None:
    try:  # noqa: SIM105 -- contextlib has a price
        os.write(2, line.encode("utf-8", "surrogateescape"))
    except OSError:  # there is no one to hear it, and a hook must not fail of that
        pass


def _limit_time() -> None:
    signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)


def _discard_input() -> None:
    """An agent writes its event to us, and must not find that it has no reader."""
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    from select import POLLIN, poll

    stdin, size, until = poll(), 0, monotonic() + INPUT_SECONDS
    stdin.register(0, POLLIN)
    while size < INPUT_BYTES and stdin.poll(max(0, 1000 * (until - monotonic()))):
        try:
            data = os.read(0, READ_BYTES)
        except OSError:
            return
        if not data:
            return
        size += len(data)


def take_turn() -> None:
    """Wait until no other caller starts a daemon; what is wrong there, the daemon says.

    The lock is held until this process ends.
    """
    directory = _directory()
    try:  # noqa: SIM105 -- contextlib has a price
        os.mkdir(directory, 0o700)
    except OSError:
        pass
    try:
        fd = os.open(directory, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass


def _directory() -> bytes:
    """Of the socket at which a daemon would listen."""
    given = os.environb.get(b"INTERCORE_SOCKET")
    if given:
        return given.rpartition(b"/")[0]
    home = b"/run/user/%d" % os.geteuid()
    return home + b"/intercore" if os.path.isdir(home) else b"/tmp/intercore-%d" % os.geteuid()


def start() -> int:
    """Start a daemon; a descriptor that tells why it failed, and ends when that is known."""
    listening, telling = os.pipe()
    child = os.fork()
    if not child:
        _leave_and_become(telling)
    os.close(telling)
    try:
        status = os.WEXITSTATUS(os.waitpid(child, 0)[1])
    except ChildProcessError:  # our parent ignores its children, and so do we
        status = 0
    if status:
        os.close(listening)
        raise OSError(status, os.strerror(status))
    return listening


def _leave_and_become(telling: int) -> None:
    """In the child; it never returns."""
    status = 1
    try:
        os.dup2(telling, 2)
        os.setsid()
        if os.fork():
            os._exit(0)
        _become_daemon()
    except OSError as exc:
        status = exc.errno or 1
        _say(f"cannot start {sys.executable}: {exc.strerror}; reinstall intercore\n")
    finally:
        os._exit(status)


def _become_daemon() -> None:
    null = os.open("/dev/null", os.O_RDWR)
    environment = _environment()
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.closerange(3, _highest())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    os.chdir("/")
    os.execve(sys.executable, [sys.executable, "-E", "-P", "-m", "icd", *FLAGS], environment)  # noqa: S606


def _environment() -> dict[bytes, bytes]:
    found = {n: v for n, v in os.environb.items() if n in KEPT or n.startswith(b"LC_")}
    given = found.get(b"INTERCORE_SOCKET")
    if given and not given.startswith(b"/"):  # the daemon has another directory
        found[b"INTERCORE_SOCKET"] = os.getcwdb() + b"/" + given
    return found


def _highest() -> int:
    """The descriptor after all that are open."""
    return 1 + max(int(name) for name in os.listdir("/proc/self/fd"))


def hear(listening: int) -> bytes:
    """What a daemon says until it listens or has ended; the end of it, if it is much."""
    said = b""
    while data := os.read(listening, LINE_BYTES):
        said = (said + data)[-LINE_BYTES:]
    os.close(listening)
    return said


def last_line(said: bytes) -> str:
    line = said.rstrip(b"\n").rpartition(b"\n")[2]
    return line.removeprefix(b"icd: ").decode("utf-8", "surrogateescape")
