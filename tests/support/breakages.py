"""Ways to break a healthy project, each with its way back.

A breakage is a context manager: it takes a `Place`, breaks it in one way, yields the `World` in
which programs feel it, and repairs it at the end.  A daemon may run all the while: what is done
here is done by another process, as in real life.

    with BREAKAGES["schema from the future"](place) as world:
        world.icctl("health", cwd=place.project, env=DIRECT)

Programs are run through the world, the healthy one too: root would ignore permissions, so even as
root they run as an ordinary owner of the files.  What cannot be done here is a visible skip.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, until

PAGE = 4096
STRANGER = 12345  # no process and no file of ours has this uid
HOUR = 3600
DIRECT = {"INTERCORE_MODE": "direct"}
# Enough for a shell and for Python, too few for a lock, a database, its log and its index.
DESCRIPTORS = 3
SMALL_BYTES = 2 * 1024 * 1024

# Without these two root is an owner like any other.
ORDINARY = (
    ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"]
    if os.geteuid() == 0
    else []
)

# Denies socket(AF_UNIX, ...) with EPERM to itself and to the program that it becomes.
NO_SOCKETS = """
import ctypes, os, platform, struct, sys
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH_EPERM = 0x7FFF0000, 0x00050001
SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
program = b"".join(struct.pack("HBBI", *line) for line in [
    (LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 3, SOCKET),
    (LOAD, 0, 0, 16), (JUMP_IF_EQUAL, 0, 1, 1),
    (RETURN, 0, 0, FAIL_WITH_EPERM), (RETURN, 0, 0, ALLOW),
])
code = ctypes.create_string_buffer(program, len(program))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0
):
    sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[1], sys.argv[1:])
"""

HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
time.sleep(999)
"""

# Leaves so many descriptors to the program that it becomes; the others are in use.
CROWDED = """
import os, resource, sys
for fd in range(3, 10):  # a shell wants one above these
    os.dup2(0, fd)
limit = 10 + int(sys.argv[1])
os.closerange(10, 64)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Place:
    """A project with a database, and where its daemon listens or would listen."""

    project: Path
    runtime: Path

    @property
    def directory(self) -> Path:
        return self.project / ".clavain"

    @property
    def database(self) -> Path:
        return self.directory / "intercore.db"

    @property
    def socket(self) -> Path:
        return self.runtime / "icd.sock"


@dataclass(frozen=True)
class World:
    """How to run a program so that it meets the fault; the healthy world is `World()`."""

    prefix: list[str] = field(default_factory=lambda: list(ORDINARY))
    env: dict[str, str] = field(default_factory=dict)

    def icctl(
        self, *argv: str, cwd: Path, env: dict[str, str] | None = None, stdin: bytes = b""
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*self.prefix, processes.door / "icctl", *argv],
            cwd=cwd,
            env={**CLEAN, "HOME": str(cwd), **self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )

    def daemon(self, **env: str) -> Daemon:
        """A daemon that is not started yet."""
        return Daemon(command=[*self.prefix, sys.executable, "-m", "icd"], env={**self.env, **env})


Breakage = Callable[[Place], AbstractContextManager[World]]


# --- the daemon's directory -----------------------------------------------------------------


@contextmanager
def runtime_removed(place: Place) -> Iterator[World]:
    """As systemd does at logout; what was there stays lost."""
    shutil.rmtree(place.runtime)
    yield World()
    with contextlib.suppress(FileExistsError):
        place.runtime.mkdir(mode=0o700)


@contextmanager
def socket_unlinked(place: Place) -> Iterator[World]:
    """As cleaners of /tmp do; the way back is the daemon's own."""
    place.socket.unlink()
    yield World()


@contextmanager
def runtime_open(place: Place) -> Iterator[World]:
    with _mode(place.runtime, 0o777):
        yield World()


# --- the file -------------------------------------------------------------------------------


@contextmanager
def deleted(place: Place) -> Iterator[World]:
    with _kept(place):
        for path in _files(place):
            path.unlink(missing_ok=True)
        yield World()


@contextmanager
def replaced(place: Place) -> Iterator[World]:
    """Another project's database is moved over it; its state is empty."""
    with _kept(place), tempfile.TemporaryDirectory(dir=place.project) as elsewhere:
        (Path(elsewhere) / ".git").mkdir()
        made = World().icctl("init", "--db=.clavain/intercore.db", cwd=Path(elsewhere), env=DIRECT)
        assert made.returncode == 0, made
        os.replace(Path(elsewhere) / ".clavain" / "intercore.db", place.database)
        yield World()


@contextmanager
def replaced_by_a_text(place: Place) -> Iterator[World]:
    with _kept(place):
        text = place.directory / "text"
        text.write_bytes(b"This is not a database.\n" * 1000)
        os.replace(text, place.database)
        yield World()


@contextmanager
def truncated(place: Place) -> Iterator[World]:
    """Its first half is left, as after a copy that was cut off."""
    with _kept(place):
        with _at_rest(place):
            pages = place.database.stat().st_size // PAGE
            os.truncate(place.database, pages // 2 * PAGE)
        yield World()


@contextmanager
def emptied(place: Place) -> Iterator[World]:
    with _kept(place):
        with _at_rest(place):
            os.truncate(place.database, 0)
        yield World()


@contextmanager
def page_damaged(place: Place) -> Iterator[World]:
    """The page of the table `state`; the header and the schema are as they were."""
    with _kept(place):
        with _at_rest(place) as conn:
            (root,) = conn.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'state'"
            ).fetchone()
            _overwrite(place.database, (root - 1) * PAGE, b"\xff" * PAGE)
        yield World()


@contextmanager
def overwritten(place: Place) -> Iterator[World]:
    """As `cp` does it: the same file, and in it another database, without our rows."""
    with _kept(place), tempfile.TemporaryDirectory(dir=place.project) as elsewhere:
        (Path(elsewhere) / ".git").mkdir()
        # With a row of its own: two that are empty, and made in the same second, are the same.
        for argv in (["init"], ["state", "set", "another", "s", "--value=1"]):
            made = World().icctl(
                *argv, "--db=.clavain/intercore.db", cwd=Path(elsewhere), env=DIRECT
            )
            assert made.returncode == 0, made
        with _locked(place):
            shutil.copyfile(Path(elsewhere) / ".clavain" / "intercore.db", place.database)
        yield World()


@contextmanager
def from_the_future(place: Place) -> Iterator[World]:
    with _kept(place):
        with _locked(place), closing(sqlite3.connect(place.database)) as conn:
            conn.execute("INSERT INTO migrations VALUES (9999, '99.0', 0)")
            conn.execute("PRAGMA user_version = 9999")
            conn.commit()
        yield World()


# --- permissions ----------------------------------------------------------------------------


@contextmanager
def file_read_only(place: Place) -> Iterator[World]:
    with _mode(place.database, 0o400):
        yield World()


@contextmanager
def directory_read_only(place: Place) -> Iterator[World]:
    with _mode(place.directory, 0o500):
        yield World()


@contextmanager
def log_unreadable(place: Place) -> Iterator[World]:
    """A log is there, as after a crash, and only root could read it."""
    log = place.database.with_name("intercore.db-wal")
    _leave_log_behind(place)
    with _mode(log, 0):
        yield World()


@contextmanager
def symlinked(place: Place) -> Iterator[World]:
    real = place.project / "real"
    place.directory.rename(real)
    place.directory.symlink_to(real)
    try:
        yield World()
    finally:
        place.directory.unlink()
        real.rename(place.directory)


@contextmanager
def of_somebody_else(place: Place) -> Iterator[World]:
    """The database belongs to another user; the caller is not root."""
    with _given_away(place.database), _mode(place.database, 0o666):
        yield _as_a_user()


@contextmanager
def directory_of_somebody_else(place: Place) -> Iterator[World]:
    """The directory belongs to another user, and nobody else may look into it."""
    with _given_away(place.directory):
        yield _as_a_user()


@contextmanager
def directory_open(place: Place) -> Iterator[World]:
    """Everybody could replace the database."""
    with _mode(place.directory, 0o777):
        yield World()


# --- resources ------------------------------------------------------------------------------


@contextmanager
def disk_full(place: Place) -> Iterator[World]:
    """A small filesystem that is full; where none can be mounted, one that says so."""
    if not _can_mount(place):
        with disk_said_to_be_full(place) as world:
            yield world
        return
    with small_disk(place), disk_filled(place) as world:
        yield world


@contextmanager
def small_disk(place: Place) -> Iterator[None]:
    """The directory is on a small filesystem, with room left."""
    if not _can_mount(place):
        pytest.skip("nothing can be mounted here")
    with _kept(place), _small_filesystem(place):
        yield


@contextmanager
def disk_filled(place: Place) -> Iterator[World]:
    """What is left of the small filesystem is used up, whoever has the database open."""
    filler = place.directory / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * PAGE):
            pass
    yield World()
    filler.unlink()


@contextmanager
def disk_said_to_be_full(place: Place) -> Iterator[World]:
    """No file in the directory can grow."""
    with preloaded() as (world, faults):
        (faults / "full").write_text(os.path.realpath(place.directory))
        yield world


@contextmanager
def few_descriptors(place: Place) -> Iterator[World]:
    del place
    yield World(prefix=[*ORDINARY, sys.executable, "-c", CROWDED, str(DESCRIPTORS)])


@contextmanager
def lock_held_by_a_stopped_process(place: Place) -> Iterator[World]:
    lock = f"{place.database}.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        until(lambda: _process_state(holder.pid) == "T")
        yield World()
    finally:
        holder.kill()
        holder.communicate()


@contextmanager
def no_sockets(place: Place) -> Iterator[World]:
    """As sandboxes of agents do; EPERM for every socket of the family."""
    del place
    yield World(prefix=[*ORDINARY, sys.executable, "-c", NO_SOCKETS])


# --- time -----------------------------------------------------------------------------------


@contextmanager
def clock_ahead(place: Place) -> Iterator[World]:
    del place
    with preloaded() as (world, faults):
        (faults / "clock").write_text(str(HOUR))
        yield world


@contextmanager
def clock_behind(place: Place) -> Iterator[World]:
    del place
    with preloaded() as (world, faults):
        (faults / "clock").write_text(str(-HOUR))
        yield world


@contextmanager
def preloaded() -> Iterator[tuple[World, Path]]:
    """A world whose faults are files in a directory; they may come and go: see shims/world.c."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: this fault cannot be injected")
    source = Path(__file__).parents[1] / "shims" / "world.c"
    with tempfile.TemporaryDirectory(prefix="world-", dir="/tmp") as made:
        shim = f"{made}/world.so"
        options = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, source, "-o", shim, "-ldl"], check=True)
        # The sanitizers of the native client want to be the first library; here they are not.
        env = {"LD_PRELOAD": shim, "WORLD": made, "ASAN_OPTIONS": "verify_asan_link_order=0"}
        yield World(env=env), Path(made)


# --- all of them ----------------------------------------------------------------------------

BREAKAGES: dict[str, Breakage] = {
    "runtime directory removed": runtime_removed,
    "runtime directory open to others": runtime_open,
    "socket unlinked": socket_unlinked,
    "database deleted": deleted,
    "database replaced": replaced,
    "database replaced by a text": replaced_by_a_text,
    "database truncated": truncated,
    "database emptied": emptied,
    "page damaged": page_damaged,
    "database overwritten": overwritten,
    "schema from the future": from_the_future,
    "database read-only": file_read_only,
    "directory read-only": directory_read_only,
    "log unreadable": log_unreadable,
    "directory a symlink": symlinked,
    "database of somebody else": of_somebody_else,
    "directory of somebody else": directory_of_somebody_else,
    "directory open to others": directory_open,
    "disk full": disk_full,
    "disk said to be full": disk_said_to_be_full,
    "too few descriptors": few_descriptors,
    "lock held by a stopped process": lock_held_by_a_stopped_process,
    "no Unix sockets": no_sockets,
    "clock ahead": clock_ahead,
    "clock behind": clock_behind,
}


# --- ways back ------------------------------------------------------------------------------


def _files(place: Place) -> list[Path]:
    return [place.database.with_name(f"intercore.db{end}") for end in ("", "-wal", "-shm")]


@contextmanager
def _kept(place: Place) -> Iterator[None]:
    """Keep a copy, and put it back as a new file, as a person would."""
    copy = place.project / "kept.db"
    with (
        _locked(place),
        closing(sqlite3.connect(place.database)) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    copy.chmod(0o600)
    try:
        yield
    finally:
        with _locked(place):
            for path in _files(place)[1:]:
                path.unlink(missing_ok=True)
            os.replace(copy, place.database)


@contextmanager
def _at_rest(place: Place) -> Iterator[sqlite3.Connection]:
    """All of the database is in its file, and what a daemon remembers of it is void."""
    with _locked(place), closing(sqlite3.connect(place.database)) as conn:
        conn.execute("REPLACE INTO counters VALUES ('touched', 1)")
        conn.commit()
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        yield conn


@contextmanager
def _locked(place: Place) -> Iterator[None]:
    """What an orderly program does before it touches the database."""
    with open(f"{place.database}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _mode(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode & 0o7777
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)


def _leave_log_behind(place: Place) -> None:
    """A log with a commit in it, whose writer, one of our own programs, was killed."""
    code = (
        "import os, sys, time\n"
        "from icd.config import Settings\n"
        "from icd.db.database import Database\n"
        "database = Database(sys.argv[1], Settings())\n"
        "with database.hold(time.monotonic() + 30):\n"
        "    conn = database.connection()\n"
        "    conn.execute(\"REPLACE INTO counters VALUES ('left behind', 1)\")\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, place.database], check=True)


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    """In a process of its own: here the close would drop the locks of our own connection."""
    command = ["dd", f"of={path}", f"seek={offset}", "oflag=seek_bytes", "conv=notrunc"]
    subprocess.run(command, input=data, capture_output=True, check=True)


def _process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def _given_away(path: Path) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    before = path.stat()
    os.chown(path, STRANGER, STRANGER)
    try:
        yield
    finally:
        os.chown(path, before.st_uid, before.st_gid)


def _as_a_user() -> World:
    """Our own uid under another name: what we own is still ours, and we are not root."""
    prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespaces here: root cannot be an ordinary user")
    return World(prefix=prefix)


def _can_mount(place: Place) -> bool:
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(place.directory)]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@contextmanager
def _small_filesystem(place: Place) -> Iterator[None]:
    """Mounted over the directory, with what was in it."""
    options = f"size={SMALL_BYTES},mode=0700"
    with tempfile.TemporaryDirectory(dir=place.project) as aside:
        ignore = shutil.ignore_patterns("*-wal", "*-shm")  # all is in the file by now
        with _at_rest(place):
            shutil.copytree(place.directory, aside, dirs_exist_ok=True, ignore=ignore)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place.directory], check=True
        )
        try:
            shutil.copytree(aside, place.directory, dirs_exist_ok=True)
            yield
        finally:
            # Lazily: a daemon may still have the database open.
            subprocess.run(["umount", "--lazy", place.directory], check=True)
