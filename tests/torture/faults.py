"""Faults: whatever happens to a machine, under load, one fault after the other by chance.

Clients write all the while, over the socket and as commands, and a ledger keeps what they are told.
A fault comes, lasts for some calls, and is repaired.  Then: the daemon answers, every acknowledged
write is there and no refused one is (see `ledger` for files that were replaced), whoever was
refused was told one of the facts that this fault may cause, as a sentence with exit status 2, and
the daemon's log has no traceback.  Where files of the database were damaged, what was acknowledged
may be lost if the next call said so.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.breakages import BREAKAGES, DIRECT, ORDINARY, PAGE, Place, preloaded
from tests.support.companions import TELLING, Files
from tests.support.processes import PATIENCE, Daemon, until
from tests.torture import damaged
from tests.torture.registers import Ledger
from tests.torture.suite import Broken, Run
from tests.torture.writers import Client, Commander, Speaker, outcome

SPEAKERS = 3
COMMANDERS = 2
# A database, its log and a copy of it; what is left is soon filled.
DISK = "16m"
# Calls that a fault lasts for, and how long it is waited for them: some faults let nobody through.
CALLS = 6
LASTS_SECONDS = 0.3
JUMPS = (3600, -3600, 86_400 * 400, -86_400 * 400)
LARGE = "x" * 90_000
SETTINGS = "idle_seconds = 0.05\n"


@dataclass
class Stage:
    """Where it happens: `switches` is the directory whose files are faults (shims/world.c)."""

    run: Run
    place: Place
    switches: Path
    env: dict[str, str]
    daemon: Daemon
    is_small: bool
    ledger: Ledger = field(default_factory=Ledger)
    heard: dict[str, object] = field(default_factory=dict)  # by the last look

    @property
    def files(self) -> Files:
        """Beside the project's own, on the same file system."""
        return Files(self.place.database, self.place.project / "aside")

    def command(self, *argv: str) -> list[str]:
        return [*ORDINARY, *self.run.code.client(*argv)]

    def icctl(self, *argv: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.command(*argv), cwd=self.place.project, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=2 * PATIENCE, check=False,
        )  # fmt: skip

    def last(self) -> None:
        """Let the fault last for a moment, and for some calls if there are any."""
        enough = self.ledger.attempts + self.run.rng.randrange(1, CALLS)
        until_at = time.monotonic() + LASTS_SECONDS
        time.sleep(self.run.rng.random() * LASTS_SECONDS / 2)
        while self.ledger.attempts < enough and time.monotonic() < until_at:
            time.sleep(0.005)

    def respond(self, method: str, **params: object) -> dict[str, object]:
        return self.daemon.respond(
            method, cwd=str(self.place.project), deadline_ms=int(PATIENCE * 1000), **params
        )

    def answers(self) -> bool:
        """The ledger hears what it is told: it may be the only call after a damage."""
        since = time.monotonic()
        try:
            answer = self.respond("state.get", key="r", scope_id="-")
        except (OSError, ValueError):  # closed unread, for want of descriptors
            return False
        self.heard = answer
        if "error" in answer:
            self.ledger.looked(str(answer["error"]["data"]["name"]), since=since)  # type: ignore[index]
        return "result" in answer


@dataclass(frozen=True)
class Fault:
    """`allowed`: what calls may fail with meanwhile; `is_void`: what they write is lost.

    `may_lose`: so may be what was written before, if that is told.
    """

    strike: Callable[[Stage], AbstractContextManager[None]]
    allowed: frozenset[str] = frozenset()
    is_void: bool = False
    may_lose: bool = False


# --- the disk -------------------------------------------------------------------------------


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    """Really, where a small file system could be mounted."""
    if not stage.is_small:
        with _switched(stage, "full", os.path.realpath(stage.place.directory)):
            yield
        return
    filler = stage.place.project / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"x" * PAGE):
                pass
        yield
    finally:
        filler.unlink()


def disk_failing(stage: Stage) -> AbstractContextManager[None]:
    return _switched(stage, "failing", os.path.realpath(stage.place.directory))


def clock_jumps(stage: Stage) -> AbstractContextManager[None]:
    return _switched(stage, "clock", str(stage.run.rng.choice(JUMPS)))


@contextmanager
def _switched(stage: Stage, name: str, text: str) -> Iterator[None]:
    """At once: whoever looks in between must not find half of it."""
    fresh = stage.switches / f"{name}.fresh"
    fresh.write_text(text)
    fresh.rename(stage.switches / name)
    try:
        yield
    finally:
        (stage.switches / name).unlink()


# --- processes ------------------------------------------------------------------------------


@contextmanager
def no_descriptors(stage: Stage) -> Iterator[None]:
    """None, or a few, are left to the daemon."""
    pid = stage.daemon.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + stage.run.rng.randrange(3), hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def daemon_stopped(stage: Stage) -> Iterator[None]:
    assert stage.daemon.process is not None
    stage.daemon.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        stage.daemon.process.send_signal(signal.SIGCONT)


@contextmanager
def client_stopped(stage: Stage) -> Iterator[None]:
    """Somewhere in its work, through the daemon or, with the lock in its hands, without one."""
    env = stage.env | (DIRECT if stage.run.rng.random() < 0.5 else {})
    since = time.monotonic()
    process = subprocess.Popen(
        stage.command("state", "incr", "n", "stopped", f"--timeout={PATIENCE:g}s"),
        cwd=stage.place.project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        time.sleep(stage.run.rng.random() * 0.15)
        process.send_signal(signal.SIGSTOP)
        yield
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate(timeout=2 * PATIENCE)
        found = outcome(process.returncode, told.decode())
        stage.ledger.counted("n/stopped", found, since=since)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def peers_that_say_half(stage: Stage) -> Iterator[None]:
    frames = [b"ic1 3\0astate\0aget\0", b'{"jsonrpc":"2.0","id":1,"me', b"i", b"ic1 1\0s1000:\0x"]
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(stage.daemon.connect())
            sock.sendall(stage.run.rng.choice(frames))
        yield


@contextmanager
def peers_that_never_read(stage: Stage) -> Iterator[None]:
    """They ask for more than the kernel keeps for them."""
    where = {"cwd": str(stage.place.project), "key": "large", "scope_id": "s"}
    stage.daemon.call("state.set", **where, payload=LARGE)
    request = (
        '{"jsonrpc":"2.0","id":1,"method":"state.get","params":{"key":"large","scope_id":"s",'
        f'"cwd":"{stage.place.project}"}}}}\n'
    ).encode()
    with ExitStack() as stack:
        for _ in range(3):
            sock = stack.enter_context(stage.daemon.connect())
            sock.settimeout(0.05)
            with contextlib.suppress(socket.timeout):  # it is not read from either
                sock.sendall(request * 100)
        yield


# --- files ----------------------------------------------------------------------------------


def broken(name: str) -> Callable[[Stage], AbstractContextManager[None]]:
    """One of the breakages that single tests know."""

    @contextmanager
    def strike(stage: Stage) -> Iterator[None]:
        with BREAKAGES[name](stage.place):
            yield

    return strike


@contextmanager
def socket_unlinked(stage: Stage) -> Iterator[None]:
    with BREAKAGES["socket unlinked"](Place(stage.place.project, stage.daemon.home)):
        yield


# What opening a file can end with that is no longer, or not yet, what it was.
STRANGE = frozenset(TELLING | {"permission_denied", "told"})
# While files are away there is no database, and a project may be found further up.  A direct call
# whose lock and log are removed while it runs does not know whether a daemon recovers its commit.
LOSING = frozenset(TELLING | {"told", "unknown"})
FAULTS: dict[str, Fault] = {
    "disk full": Fault(disk_full, frozenset({"disk_full", "told"})),
    # SQLite calls a file damaged that the disk does not give (SQLITE_IOERR_CORRUPTFS).
    "disk failing": Fault(disk_failing, frozenset({"io_error", "corrupt", "told"})),
    "clock jumps": Fault(clock_jumps),
    "no descriptors": Fault(
        no_descriptors, frozenset({"too_few_descriptors", "unreachable", "unknown", "told"})
    ),
    "daemon stopped": Fault(daemon_stopped),
    "client stopped": Fault(client_stopped),
    "peers that say half": Fault(peers_that_say_half),
    "peers that never read": Fault(peers_that_never_read),
    "lock held by a stopped process": Fault(broken("lock held by a stopped process")),
    "socket unlinked": Fault(socket_unlinked, frozenset({"unreachable"})),
    "database read-only": Fault(
        broken("database read-only"), frozenset({"permission_denied", "told"})
    ),
    "directory read-only": Fault(
        broken("directory read-only"), frozenset({"permission_denied", "told"})
    ),
    "directory a symlink": Fault(
        broken("directory a symlink"), frozenset({"symlink_refused", "no_database", "told"})
    ),
    "database deleted": Fault(broken("database deleted"), STRANGE, is_void=True),
    "database replaced": Fault(broken("database replaced"), STRANGE, is_void=True),
    "database replaced by a text": Fault(
        broken("database replaced by a text"), STRANGE, is_void=True
    ),
    "database truncated": Fault(broken("database truncated"), STRANGE, is_void=True),
    "database emptied": Fault(broken("database emptied"), STRANGE, is_void=True),
    "page damaged": Fault(broken("page damaged"), STRANGE, is_void=True),
    "companions damaged": Fault(damaged.companions, LOSING, may_lose=True),
    "files moved away and back": Fault(damaged.moved, LOSING, may_lose=True),
    "directory moved away and back": Fault(damaged.directory_moved, LOSING, may_lose=True),
    "cleaned by git": Fault(damaged.cleaned, LOSING, may_lose=True),
    "database overwritten in place": Fault(broken("database overwritten"), STRANGE, is_void=True),
}


# --- the suite ------------------------------------------------------------------------------


def run(run: Run, only: tuple[str, ...] = ()) -> None:
    """`only`: these faults, in place of all."""
    with ExitStack() as stack:
        stage = stack.enter_context(_stage(run))
        clients = _clients(stage)
        stack.callback(lambda: [client.end() for client in clients])
        for client in clients:
            client.start()
        while not run.is_over:
            names = run.rng.sample(only or sorted(FAULTS), len(only or FAULTS))
            for name in names:
                _try(stage, name, clients)
                run.figures["faults"] += 1
                if run.is_over:
                    break
        run.figures["acknowledged writes"] = stage.ledger.acknowledged
        run.figures["refused writes"] = stage.ledger.refused
        run.figures["losses that were told"] = stage.ledger.losses


def _try(stage: Stage, name: str, clients: list[Client]) -> None:
    fault = FAULTS[name]
    window = stage.ledger.open(name, fault.allowed, is_void=fault.is_void, may_lose=fault.may_lose)
    try:
        with fault.strike(stage):
            stage.last()
    finally:
        for client in clients:
            client.pause()
    try:
        until(stage.answers)
        for client in clients:
            client.rest()
        stage.ledger.close(window)
        _judge(stage)
        if fault.may_lose:
            _agree(stage)
    except AssertionError as exc:
        raise Broken(
            f"after the fault {name!r}: {exc}; heard last: {stage.heard}; "
            f"log:\n{_tail(stage.daemon)}"
        ) from exc
    for client in clients:
        client.go_on()


def _judge(stage: Stage) -> None:
    stage.ledger.compare(_found(stage))
    log = stage.daemon.log.read_text()
    if "Traceback" in log or "internal error" in log:
        raise Broken("the daemon's log has a traceback")
    checked = stage.icctl("db", "check")
    if (checked.returncode, checked.stdout) != (0, b"ok\n"):
        raise Broken(f"db check: {checked}")


def _agree(stage: Stage) -> None:
    """Whoever comes without the daemon finds the same."""
    done = subprocess.run(
        stage.command("export", "-"), cwd=stage.place.project, env=stage.env | DIRECT,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * PATIENCE, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Broken(f"without the daemon: {done}")
    rows = [row for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "state"]
    there = {f"{row['key']}/{row['scope_id']}": json.loads(row["payload"]) for row in rows}
    found = _found(stage)
    if {name: there.get(name) for name in found} != found:
        raise Broken(f"the daemon finds {found}, and who comes without it {there}")


def _found(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = {}
    for key in ("r", "n"):
        for row in stage.daemon.call("state.list", cwd=str(stage.place.project), key=key):
            scope = row["scope_id"]
            got = stage.daemon.call(
                "state.get", cwd=str(stage.place.project), key=key, scope_id=scope
            )
            found[f"{key}/{scope}"] = got["payload"]
    return found


def _tail(daemon: Daemon) -> str:
    return daemon.log.read_text()[-3000:]


def _clients(stage: Stage) -> list[Client]:
    seed, ledger, project = stage.run.seed, stage.ledger, stage.place.project
    speakers = [
        Speaker(f"speaker{n}", seed, ledger, stage.daemon.socket, project) for n in range(SPEAKERS)
    ]
    modes = ({}, DIRECT)
    commanders = [
        Commander(
            f"command{n}", seed, ledger, stage.command(), cwd=project, env=stage.env | modes[n % 2]
        )
        for n in range(COMMANDERS)
    ]
    return [*speakers, *commanders]


@contextmanager
def _stage(run: Run) -> Iterator[Stage]:
    project = run.directory / "project"
    project.mkdir()
    with _small(project) as is_small, preloaded() as (world, switches), ExitStack() as stack:
        (project / ".git").mkdir()
        daemon = run.code.daemon(env=world.env)
        stack.callback(daemon.close)
        daemon._command = [*ORDINARY, *daemon._command]
        env = {
            **run.code.env, **world.env, "HOME": str(project), "INTERCORE_SOCKET": daemon.socket,
        }  # fmt: skip
        stage = Stage(run, Place(project, daemon.home), switches, env, daemon, is_small)
        made = stage.icctl("init", "--no-daemon")
        assert made.returncode == 0, made
        (stage.place.directory / "intercore.toml").write_text(SETTINGS)
        stage.files.aside.mkdir()
        stage.files.track()
        daemon.start()
        yield stage


@contextmanager
def _small(directory: Path) -> Iterator[bool]:
    """Whether a small file system could be mounted there."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", directory]
    if (
        not shutil.which("mount")
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)
