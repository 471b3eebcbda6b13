"""How far long work is: drawn for a person who waits, on a real terminal, and nowhere else."""

import base64
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from icd.app import registry
from icd.db import backup, check, lock
from icd.db.connection import connect
from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, until

DIRECT = {"INTERCORE_MODE": "direct"}
WIPE = "\r\x1b[K"


class Screen:
    """The other side of a terminal: what was written to it so far."""

    def __init__(self) -> None:
        self._ours, self.terminal = os.openpty()
        self.seen = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # what Linux says when the last one has closed it
            while data := os.read(self._ours, 65_536):
                self.seen += data.decode()

    def all(self) -> str:
        os.close(self.terminal)
        self._reader.join(PATIENCE)
        os.close(self._ours)
        return self.seen.replace("\r\n", "\n")


@contextlib.contextmanager
def held(project: Path) -> Iterator[lock.FileLock]:
    """The lock of a project's database: whoever wants it waits."""
    holder = lock.FileLock(str(project / ".clavain" / "intercore.db.lock"), lock.poll)
    holder.acquire(time.monotonic() + PATIENCE)
    try:
        yield holder
    finally:
        holder.close()


def start(
    *argv: str, cwd: Path, screen: Screen, env: dict[str, str], **streams: object
) -> subprocess.Popen[bytes]:
    given = {"stdout": screen.terminal, "stderr": screen.terminal, **streams}
    return subprocess.Popen(
        [processes.door / "icctl", *argv], cwd=cwd, stdin=subprocess.DEVNULL,
        env={**CLEAN, "TERM": "xterm", **env}, **given,
    )  # fmt: skip


def test_what_takes_long_says_so_until_it_is_done_and_leaves_no_trace(
    initialized: Path, daemon: Daemon
):
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(initialized)}
    screen = Screen()

    with held(initialized):
        running = start("db", "vacuum", "--timeout=1m", cwd=initialized, screen=screen, env=env)
        until(lambda: "vacuuming" in screen.seen)
    assert running.wait(PATIENCE) == 0

    seen = screen.all()
    assert re.match(r"\r\x1b\[K. vacuuming  \d+s\r", seen)
    assert re.fullmatch(r"\d+ bytes before, \d+ after\n", seen.rpartition(WIPE)[2])


@pytest.mark.parametrize(
    ("words", "told"),
    [(("health", "--check"), "checking"), (("compat", "import"), "importing")],
)
def test_further_commands_say_what_they_wait_for(
    words: tuple[str, ...], told: str, initialized: Path, daemon: Daemon, tmp_path: Path
):
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(initialized), "TMPDIR": str(tmp_path)}
    screen = Screen()

    with held(initialized):
        running = start(*words, "--timeout=1m", cwd=initialized, screen=screen, env=env)
        until(lambda: told in screen.seen)
    assert running.wait(PATIENCE) == 0

    screen.all()


def test_a_look_without_check_is_the_daemons(initialized: Path, daemon: Daemon):
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(initialized)}
    screen = Screen()

    assert start("health", cwd=initialized, screen=screen, env=env).wait(PATIENCE) == 0

    assert screen.all() == "ok\n"
    assert daemon.call("icd.status")["calls"]["db.health"] == 1


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("mode", ["auto", "daemon"])
def test_a_search_is_the_daemons_and_its_caller_says_how_long_it_waits(
    initialized: Path, daemon: Daemon, mode: str
):
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(initialized), "INTERCORE_MODE": mode}
    embedding = base64.b64encode(b"\0\0\x80\x3f" * 2).decode()
    given = {"source": "s", "source_id": "1", "title": "t", "embedding": embedding}
    found = daemon.call("discovery.submit", cwd=str(initialized), **given)["id"]
    (initialized / "q").write_bytes(b"\0\0\x80\x3f" * 2)
    screen = Screen()
    words = ("discovery", "search", "--embedding=@q", "--timeout=1m")

    with held(initialized):
        running = start(*words, cwd=initialized, screen=screen, env=env)
        until(lambda: "searching" in screen.seen)
    assert running.wait(PATIENCE) == 0

    assert screen.all().rpartition(WIPE)[2].split("\n")[1].startswith(f"{found}  ")
    assert daemon.call("icd.status")["calls"]["discovery.search"] == 1


def test_without_a_daemon_a_search_is_done_here(initialized: Path):
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock", "HOME": str(initialized)}
    screen = Screen()
    (initialized / "q").write_bytes(b"\0\0\x80\x3f" * 2)

    words = ("discovery", "search", "--embedding=@q")
    running = start(*words, cwd=initialized, screen=screen, env=env)

    assert running.wait(PATIENCE) == 0
    assert "Nothing like it" in screen.all()


def test_a_mistake_is_told_as_ever(initialized: Path):
    screen = Screen()
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock", "HOME": str(initialized)}

    running = start("discovery", "search", "--timeout", cwd=initialized, screen=screen, env=env)

    assert running.wait(PATIENCE) == 3
    assert screen.all().startswith("icctl: --timeout needs a value; ")


def test_a_script_sees_none_of_it(initialized: Path, daemon: Daemon):
    """By the daemon, which did it before; a script may have a terminal for its errors."""
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(initialized)}
    screen = Screen()
    quiet = [
        start("db", "vacuum", flag, "--timeout=1m", cwd=initialized, screen=screen,
              env={**env, **more}, stdout=subprocess.PIPE)
        for flag, more in (("--json", {}), ("--plain", {}), ("--verbose", {"TERM": "dumb"}))
    ]  # fmt: skip
    watched = Screen()

    with held(initialized):
        shown = start("db", "vacuum", "--timeout=1m", cwd=initialized, screen=watched, env=env)
        until(lambda: "vacuuming" in watched.seen)  # as long as it takes for one to be drawn
    for running in (*quiet, shown):
        running.communicate(timeout=PATIENCE)
        assert running.returncode == 0

    watched.all()
    assert "vacuuming" not in screen.all()


def test_what_is_done_soon_draws_nothing(initialized: Path):
    screen = Screen()
    env = {**DIRECT, "HOME": str(initialized)}

    running = start("export", "file", cwd=initialized, screen=screen, env=env)

    assert running.wait(PATIENCE) == 0
    assert re.fullmatch(r"exported \d+ rows\n", screen.all())


PROGRAM = """
import sys
from icctl.progress import Line
with Line("exporting") as line:
    line(0, 0, "counting")
    sys.stdin.readline()
    line(1, 2, "")
    sys.stdin.readline()
print("done", file=sys.stderr)
"""


def test_a_line_says_what_is_done_and_how_much_of_it():
    screen = Screen()

    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=screen.terminal,
        env=CLEAN, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert running.stdin is not None
    until(lambda: "counting" in screen.seen)
    running.stdin.write(b"\n")
    running.stdin.flush()
    until(lambda: "50%" in screen.seen)
    running.communicate(b"\n", timeout=PATIENCE)

    *drawn, last = screen.all().split(WIPE)
    assert re.fullmatch(r". exporting █{12} {12}  50%  \d+s", drawn[-1])
    assert last == "done\n"


def test_every_method_of_the_whole_database_says_what_it_does():
    silent = [m.name for m in registry.every() if m.runs.whole and not m.runs.long]

    assert silent == []


@pytest.fixture
def database(initialized: Path) -> str:
    return str(initialized / ".clavain" / "intercore.db")


def test_a_backup_tells_how_many_pages_are_copied(database: str, tmp_path: Path):
    told: list[tuple[int, int, str]] = []

    with closing(connect(database)) as conn:
        backup.to(conn, str(tmp_path / "file"), tell=lambda *how_far: told.append(how_far))

    copied = [how_far for how_far in told if how_far[2] == "copying"]
    assert copied[-1][0] == copied[-1][1] > 0
    assert told[-1] == (0, 0, "verifying the copy")


def test_a_check_tells_which_table_is_looked_at(database: str):
    told: list[tuple[int, int, str]] = []

    with closing(connect(database)) as conn:
        check.findings(conn, deadline=1e12, tell=lambda *how_far: told.append(how_far))

    assert [what for _, _, what in told[:2]] == ["checking the pages", "checking the references"]
    tables = told[2:]
    assert [done for done, _, _ in tables] == list(range(tables[0][1]))
    assert any(what == "checking the rows of state" for _, _, what in tables)
