"""How a runner comes to itself: from a process that was just started to one that is nobody's."""

import _ctypes
import marshal
import os

from icd.features.dispatches.agent import trees

LENGTH_BYTES = 8
PROGRAMS = b"/usr/bin:/bin"
SUBREAPER = 36  # PR_SET_CHILDSUBREAPER


class Refused(Exception):
    """Why an agent cannot be started, as a sentence."""


def settle() -> tuple[int, int]:
    """Become nobody's child with two descriptors of our own; everything else is closed."""
    if os.fork():
        os._exit(0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing itself
    control, to = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return control, to


def adopt_orphans() -> None:
    libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl = _ctypes.dlsym(libc, "prctl")
    _ctypes.call_function(prctl, (SUBREAPER, 1, 0, 0, 0))


def receive(control: int) -> dict[str, object]:
    size = int.from_bytes(_read(control, LENGTH_BYTES), "big")
    found: dict[str, object] = marshal.loads(_read(control, size))  # noqa: S302 -- our own client's
    return found


def _read(fd: int, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        data = os.read(fd, size - len(parts))
        if not data:
            raise Refused("whoever wanted it has left")
        parts += data
    return parts


def environment() -> dict[bytes, bytes]:
    """As it was given to us: Python adds its own choice of a locale where there is none."""
    try:
        with open("/proc/self/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(word.split(b"=", 1) for word in words if b"=" in word)


def own_start() -> int:
    ours = trees.look(os.getpid())
    return ours.start if ours else 0


def place() -> list[str]:
    """The boot and the namespace that our pids belong to, as flags."""
    found = []
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            found.append(f"--boot={file.read(100).decode().strip()}")
        found.append(f"--pidns={os.readlink('/proc/self/ns/pid')}")
    except OSError:
        return found  # then nobody can tell
    return found


def open_file(path: object, flags: int, mode: int = 0) -> int:
    assert isinstance(path, bytes)
    try:  # a pipe that nobody reads is refused instead of waited for
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
        os.set_blocking(fd, True)
    except OSError as exc:
        raise Refused(f"cannot open {os.fsdecode(path)}: {exc.strerror}") from exc
    return fd


def enter(directory: object) -> None:
    assert isinstance(directory, bytes)
    try:
        os.chdir(directory)
    except OSError as exc:
        raise Refused(f"cannot enter {os.fsdecode(directory)}: {exc.strerror}") from exc


def search_absolute() -> None:
    """Look for programs in no directory that is relative, and so would lie in the project.

    Only ours: the agent keeps the variable as its caller has it.
    """
    found = [each for each in os.environb.get(b"PATH", b"").split(b":") if each.startswith(b"/")]
    os.environb[b"PATH"] = b":".join(found) or PROGRAMS


def report(to: int, facts: dict[str, object]) -> None:
    try:
        os.write(to, marshal.dumps(facts))
    except OSError:
        return  # it has left; the agent is watched all the same
    finally:
        os.close(to)


def sentence(exc: Exception) -> str:
    return str(exc) if isinstance(exc, Refused) else f"{exc!r} in the runner"
