"""A helper for a shell that makes several calls: no process is started for a call.

`icctl --helper PID`, for lib-intercore.sh only, goes to the background, prints its own pid and a
directory, and serves the shell PID until that ends.  icctl/helper.c is the same without Python.

The directory is private and holds two named pipes, which the shell opens for each call, for reading
and writing, so that it keeps no descriptor and never waits in open(2).
    in      a frame: `ic1 N`, and the fields d, e and a that the keyhole would have sent; input
            that the command may ask for, in the file stdin, written before
    out     the answer, each of its fields ended by NUL: `EXIT` STDOUT STDERR;
            or `EXIT@`: they are in the files stdout and stderr;
            or `!HANDOVER`: run icctl, with this as its INTERCORE_HANDOVER
One call at a time; a shell that gave up on a call does not use the helper again.
"""

import contextlib
import os
import select
import signal
import stat
import time
from typing import NoReturn

from icctl import client

# A shell reads a pipe byte by byte, and a file in one go.
INLINE_BYTES = 512
# A shell may have become another program; if it has not, it starts another helper.
IDLE_MS = 60_000
DEADLY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FILES = ("in", "out", "stdin", "stdout", "stderr")


def serve(arguments: list[str], program: str) -> int:
    """Fork a helper; only the process that was started returns."""
    os.closerange(3, 4096)
    try:
        (word,) = arguments
        owner = int(word)
        shell = os.pidfd_open(owner)
    except (ValueError, OSError, OverflowError):
        raise client.GiveUp("shell") from None
    signal.pthread_sigmask(signal.SIG_BLOCK, DEADLY)  # until somebody would clear up
    helper = Helper(program, owner, settle())
    if not os.fork():
        try:
            detach(helper)
            helper.attend(shell)
        finally:
            helper.leave()
    return 0  # whoever waits for our output waits for the child's


def detach(helper: "Helper") -> None:
    """Become a process of our own, once the shell knows where we are."""
    os.setsid()
    for number in DEADLY:
        signal.signal(number, lambda *_: helper.leave())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEADLY)
    os.chdir("/")
    os.write(1, os.fsencode(f"{os.getpid()} {helper.directory}\n"))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def settle() -> str:
    """Make the private directory with its pipes."""
    for place in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):
        directory = f"{place}/intercore-helper-{os.urandom(6).hex()}"
        try:
            if not place or not is_safe(place):
                continue
            os.mkdir(directory, 0o700)
            for name in FILES[:2]:
                os.mkfifo(os.path.join(directory, name), 0o600)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        else:
            return directory
    raise client.GiveUp("pipes")


def is_safe(place: str) -> bool:
    """Whether nobody else can move a directory of ours that is made there."""
    found = os.stat(place)
    sticky = found.st_uid == 0 and found.st_mode & stat.S_ISVTX
    return place.startswith("/") and (found.st_uid == os.geteuid() or bool(sticky))


class Kept(client.Request):
    """A request whose answer is kept, not printed, and which the shell runs if we cannot."""

    door = b"python-helper"
    streams = False
    deadline = 0.0
    exit = 0
    out = err = told = b""

    def deliver(self, out: bytes, err: bytes) -> bool:
        self.out, self.err = out, err
        return True

    def ask(self, limit: float, *, has_stdin: bool) -> str:
        """The reason to hand over, or nothing if there is an answer."""
        self.deadline = time.monotonic() + limit
        try:
            if client.stays_here(self.argv):
                return "-"
            while not isinstance(answer := client.ask(self, self.deadline), int):
                if answer is None:
                    return "a"
                if isinstance(answer, client.Request):
                    return "n"  # we did not say that we know how
                if answer[0] != b"stdin" or not has_stdin:
                    return "-"  # the shell can read it
                self.attach(answer, limit)
                self.deadline = time.monotonic() + limit
            self.exit = answer
        except client.Lost:
            return "l"
        except client.Expired as exc:
            return "u" if exc.args[0] else "e"
        except client.GiveUp as exc:
            return "n" if exc.args[0] == "nonsense" else "-"
        except (client.Absent, OSError):
            return "a"
        return ""


class Helper:
    def __init__(self, program: str, owner: int, directory: str) -> None:
        self.program = program
        self.owner = owner
        self.directory = directory
        self.discarded = f"{directory}.x"
        self.inbox = os.open(self.path("in"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.outbox = os.open(self.path("out"), os.O_RDWR | os.O_CLOEXEC)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def leave(self) -> NoReturn:
        with contextlib.suppress(OSError):  # or a shell would make plain files where its pipes were
            os.rename(self.directory, self.discarded)
        for name in FILES:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.discarded, name))
        with contextlib.suppress(OSError):
            os.rmdir(self.discarded)
        os._exit(0)

    def attend(self, shell: int) -> NoReturn:
        poll = select.poll()
        poll.register(self.inbox, select.POLLIN)
        poll.register(shell, select.POLLIN)
        request = b""
        while True:
            ready = poll.poll(IDLE_MS)
            if not ready:  # close the door, and look whether somebody slipped in
                os.rename(self.directory, self.discarded)
                ready = poll.poll(0)
                os.rename(self.discarded, self.directory)
            if not ready or any(fd == shell for fd, _ in ready):
                self.leave()
            with contextlib.suppress(BlockingIOError):
                request += os.read(self.inbox, 1 << 16)
            fields = complete(request)
            if fields is not None:
                os.write(self.outbox, self.answer(fields))
                request = b""

    def answer(self, fields: list[bytes]) -> bytes:
        world = [b"p%d" % self.owner, *(f for f in fields if f[:1] in (b"d", b"e"))]
        argv = [os.fsdecode(f[1:]) for f in fields if f[:1] == b"a"]
        enter(fields)
        has_stdin = self.take_stdin()
        kept = Kept(argv, self.program, world)
        limit = client.timeout_ms(argv) / 1000
        reason = kept.ask(limit, has_stdin=has_stdin)
        os.chdir("/")  # pin nobody's directory
        if not reason and self.keep(kept):
            return kept.told
        times = f"{limit * 1000:.0f} {kept.deadline * 1000:.0f}"
        return os.fsencode(
            f"!{reason or 'w'} {kept.id} {times} -1 {kept.door.decode()} {self.program}\0"
        )

    def take_stdin(self) -> bool:
        """Input comes as a file: it may be too long for a pipe."""
        path = self.path("stdin")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        os.unlink(path)
        os.dup2(fd, 0)
        os.close(fd)
        return True

    def keep(self, kept: Kept) -> bool:
        """Put what is long, or holds what a shell cannot read from a pipe, into files."""
        if len(kept.out + kept.err) <= INLINE_BYTES and b"\0" not in kept.out + kept.err:
            kept.told = b"%d\0%b\0%b\0" % (kept.exit, kept.out, kept.err)
            return True
        try:
            for name, data in (("stdout", kept.out), ("stderr", kept.err)):
                with open(self.path(name), "wb") as file:
                    file.write(data)
        except OSError:
            return False
        kept.told = b"%d@\0" % kept.exit
        return True


def enter(fields: list[bytes]) -> None:
    """Paths are relative to the caller's directory, which comes as a field."""
    with contextlib.suppress(OSError):
        for field in fields:
            if field[:1] == b"d":
                os.chdir(field[1:])


def complete(request: bytes) -> list[bytes] | None:
    """The fields of a request that has arrived completely; a shell sends one at a time."""
    head, _, rest = request.partition(b"\0")
    fields = rest.split(b"\0")[:-1]
    return fields if rest and len(fields) >= int(head.removeprefix(b"ic1 ")) else None
