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
      ends it, and the daemon goes on starting.  The second begins with the process: where all
      cores are busy, Python itself may need half of it.
"""

import _signal as signal  # type: ignore[import-not-found]  # its module in Python makes enums
import fcntl
import posix  # `os` takes as long to load as all the rest
import sys
from posix import _exit as leave
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_SECONDS, LEAST_SECONDS, INPUT_SECONDS = 0.8, 0.2, 0.1
S_IFMT, S_IFIFO, S_IFSOCK, S_IFDIR = 0o170000, 0o010000, 0o140000, 0o040000  # `stat` has a price
STARTED = 19  # the field of /proc/self/stat behind the name, in ticks since the machine started
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
        posix.write(2, line.encode("utf-8", "surrogateescape"))
    except OSError:  # there is no one to hear it, and a hook must not fail of that
        pass


def _limit_time() -> None:
    signal.signal(signal.SIGALRM, lambda _number, _frame: leave(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, max(LEAST_SECONDS, LIMIT_SECONDS - _age()))


def _age() -> float:
    """How many seconds ago this process was started; 0 if that is not known."""
    try:
        fd = posix.open("/proc/self/stat", posix.O_RDONLY | posix.O_CLOEXEC)
        fields = posix.read(fd, LINE_BYTES).rpartition(b") ")[2].split()
        posix.close(fd)
        ticks = posix.sysconf("SC_CLK_TCK")
        return max(0.0, clock_gettime(CLOCK_BOOTTIME) - int(fields[STARTED]) / ticks)
    except (OSError, ValueError, IndexError):
        return 0.0


def _discard_input() -> None:
    """An agent writes its event to us, and must not find that it has no reader."""
    if posix.fstat(0).st_mode & S_IFMT not in (S_IFIFO, S_IFSOCK):
        return
    from select import POLLIN, poll

    stdin, size, until = poll(), 0, monotonic() + INPUT_SECONDS
    stdin.register(0, POLLIN)
    while size < INPUT_BYTES and stdin.poll(max(0, 1000 * (until - monotonic()))):
        try:
            data = posix.read(0, READ_BYTES)
        except OSError:
            return
        if not data:
            return
        size += len(data)


def take_turn(*, wait: bool = True) -> bool:
    """Wait until no other caller starts a daemon; what is wrong there, the daemon says.

    The lock is held until this process ends.  False: another has it, and `wait` was not asked for.
    """
    directory = _directory()
    try:  # noqa: SIM105 -- contextlib has a price
        posix.mkdir(directory, 0o700)
    except OSError:
        pass
    try:
        fd = posix.open(directory, posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError:
        return True
    try:
        if posix.fstat(fd).st_uid == posix.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        posix.close(fd)
        return False
    except OSError:
        pass
    return True


def _directory() -> bytes:
    """Of the socket at which a daemon would listen."""
    given = posix.environ.get(b"INTERCORE_SOCKET")
    if given:
        return given.rpartition(b"/")[0]
    home = b"/run/user/%d" % posix.geteuid()
    return home + b"/intercore" if _is_directory(home) else b"/tmp/intercore-%d" % posix.geteuid()


def _is_directory(path: bytes) -> bool:
    try:
        return posix.stat(path).st_mode & S_IFMT == S_IFDIR
    except OSError:
        return False


def start() -> int:
    """Start a daemon; a descriptor that tells why it failed, and ends when that is known."""
    listening, telling = posix.pipe()
    child = posix.fork()
    if not child:
        _leave_and_become(telling)
    posix.close(telling)
    try:
        status = posix.WEXITSTATUS(posix.waitpid(child, 0)[1])
    except ChildProcessError:  # our parent ignores its children, and so do we
        status = 0
    if status:
        posix.close(listening)
        raise OSError(status, posix.strerror(status))
    return listening


def _leave_and_become(telling: int) -> None:
    """In the child; it never returns."""
    status = 1
    try:
        posix.dup2(telling, 2)
        posix.setsid()
        if posix.fork():
            leave(0)
        _become_daemon()
    except OSError as exc:
        status = exc.errno or 1
        _say(f"cannot start {sys.executable}: {exc.strerror}; reinstall intercore\n")
    finally:
        leave(status)


def _become_daemon() -> None:
    null = posix.open("/dev/null", posix.O_RDWR)
    environment = _environment()
    posix.dup2(null, 0)
    posix.dup2(null, 1)
    posix.closerange(3, _highest())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    posix.umask(0o077)
    posix.chdir("/")
    posix.execve(sys.executable, [sys.executable, "-E", "-P", "-m", "icd", *FLAGS], environment)


def _environment() -> dict[bytes, bytes]:
    found = {n: v for n, v in posix.environ.items() if n in KEPT or n.startswith(b"LC_")}
    given = found.get(b"INTERCORE_SOCKET")
    if given and not given.startswith(b"/"):  # the daemon has another directory
        found[b"INTERCORE_SOCKET"] = posix.getcwdb() + b"/" + given
    return found


def _highest() -> int:
    """The descriptor after all that are open."""
    return 1 + max(int(name) for name in posix.listdir("/proc/self/fd"))


def hear(listening: int) -> bytes:
    """What a daemon says until it listens or has ended; the end of it, if it is much."""
    said = b""
    while data := posix.read(listening, LINE_BYTES):
        said = (said + data)[-LINE_BYTES:]
    posix.close(listening)
    return said


def last_line(said: bytes) -> str:
    line = said.rstrip(b"\n").rpartition(b"\n")[2]
    return line.removeprefix(b"icd: ").decode("utf-8", "surrogateescape")
