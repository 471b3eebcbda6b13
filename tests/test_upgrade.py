"""From the last release to this code, under load: no call is refused, lost or done twice.

The release is an installation of its own, with its own daemon and clients; this code is another
one.  Clients of both work side by side, native and Python, through the daemon, while it goes on
with the new code.  Then the database has the new schema, which the release refuses to open itself:
the way back is the backup that the upgrade made.
"""

import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.data import later, original
from tests.data.databases.make import HERE
from tests.support import installations
from tests.support.installations import ROOT, Installation
from tests.support.processes import CLEAN, Daemon, icctl, until

pytestmark = pytest.mark.long

OLD, NEW = "0.4.0", "0.99.0"
DIRECT = {"INTERCORE_MODE": "direct"}
# Calls that everybody makes before, between and after the changes of the daemon.
CALLS = 3

# One caller: counts for itself, and asks for guards that let one of all callers through.
CALLER = """
import json, subprocess, sys, os
icctl, name, end, progress = sys.argv[1:]
won, number = [], 0
while not os.path.exists(end):
    number += 1
    argv = [icctl, "state", "incr", "n", name, "--timeout=60s"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{number}\\n", ""), done
    argv = [icctl, "sentinel", "check", f"g{number}", "all", "--interval=0", "--timeout=60s"]
    done = subprocess.run(argv, capture_output=True, text=True)
    expected = {0: "allowed\\n", 1: "throttled\\n"}.get(done.returncode)
    assert (done.stdout, done.stderr) == (expected, ""), done
    if done.returncode == 0:
        won.append(number)
    with open(progress, "a") as file:
        file.write(".")
print(json.dumps({"calls": number, "won": won}))
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return installations.released(tmp_path_factory.mktemp("old"), OLD)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return installations.current(tmp_path_factory.mktemp("new"), NEW)


@pytest.fixture
def served(tmp_path: Path, old: Installation) -> Iterator[Daemon]:
    """A daemon of the release."""
    link = tmp_path / "installed"
    installations.switch(link, old)
    with closing(installations.daemon(link)) as daemon:
        daemon.start()
        assert daemon.call("icd.ping")["version"] == OLD
        yield daemon


@pytest.fixture
def made(old: Installation, project: Path) -> Path:
    """A project that the release made."""
    done = icctl("init", cwd=project, env=DIRECT, program=old.clients["python"])
    assert (done.returncode, done.stderr) == (0, b"")
    return project


class Load:
    """Callers of both versions, until they are told to end."""

    def __init__(self, project: Path, daemon: Daemon, place: Path) -> None:
        self._project, self._daemon = project, daemon
        self._place = place
        self._end = place / "end"
        self._callers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, installation: Installation, mode: str = "auto") -> None:
        self._place.mkdir(exist_ok=True)
        for kind, program in installation.clients.items():
            self._start(f"{installation.version}-{kind}-{mode}", program, mode)

    def _start(self, name: str, program: Path, mode: str) -> None:
        env = {
            **CLEAN, "HOME": str(self._project), "INTERCORE_SOCKET": self._daemon.socket,
            "INTERCORE_MODE": mode,
        }  # fmt: skip
        argv = [sys.executable, "-c", CALLER, program, name, self._end, self._place / name]
        self._callers[name] = subprocess.Popen(
            argv, cwd=self._project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def last(self) -> None:
        """Until each of them has made some calls more."""
        wanted = {name: self._progress(name) + CALLS for name in self._callers}
        until(lambda: self._failed() or all(self._progress(n) >= w for n, w in wanted.items()))
        assert not self._failed(), self.end()

    def _progress(self, name: str) -> int:
        file = self._place / name
        return file.stat().st_size if file.exists() else 0

    def _failed(self) -> bool:
        return any(caller.poll() is not None for caller in self._callers.values())

    def end(self) -> dict[str, tuple[Any, str]]:
        """What each of them did, and what it complained about."""
        self._end.touch()
        told = {name: caller.communicate(timeout=120) for name, caller in self._callers.items()}
        return {
            name: (json.loads(out) if out else None, err.decode())
            for name, (out, err) in told.items()
        }

    def close(self) -> None:
        for caller in self._callers.values():
            caller.kill()
            caller.communicate()


@contextmanager
def loaded(project: Path, daemon: Daemon, place: Path) -> Iterator[Load]:
    load = Load(project, daemon, place)
    try:
        yield load
    finally:
        load.close()


def assert_all_done_once(load: Load, daemon: Daemon, project: Path) -> None:
    told = load.end()
    assert {name: said for name, (_, said) in told.items() if said} == {}
    counted = {
        name: daemon.call("state.get", cwd=str(project), key="n", scope_id=name)["payload"]
        for name in told
    }
    assert counted == {name: done["calls"] for name, (done, _) in told.items()}
    won = Counter(number for done, _ in told.values() for number in done["won"])
    assert won == Counter(range(1, max(counted.values()) + 1))


@pytest.mark.timeout(300)
def test_an_upgrade_under_load_refuses_loses_and_repeats_no_call(
    old: Installation, new: Installation, served: Daemon, made: Path, tmp_path: Path
) -> None:
    with loaded(made, served, tmp_path / "load") as load:
        load.start(old)
        load.last()

        load.start(new)  # they are there first, and speak to the daemon of the release
        load.last()
        installations.switch(tmp_path / "installed", new)
        done = icctl(
            "service", "reload", "--timeout=60s", cwd=made, program=new.clients["native"],
            env={"INTERCORE_SOCKET": served.socket}, timeout=90,
        )  # fmt: skip
        load.last()
        load.start(new, "direct")
        load.last()

        told = f"reloaded: {OLD} -> {NEW}, pid {served.pid}\n"
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, told, b"")
        assert_all_done_once(load, served, made)
        assert served.call("icd.ping") == {"pid": served.pid, "version": NEW}
        checked = icctl("db", "check", cwd=made, env=DIRECT, program=new.clients["python"])
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"ok\n", b"")


def test_the_way_back_is_the_backup_of_the_upgrade(
    old: Installation, new: Installation, served: Daemon, made: Path, tmp_path: Path
) -> None:
    """The release refuses the new schema, changes nothing, and restores what was there before."""

    def run(version: Installation, *argv: str) -> subprocess.CompletedProcess[bytes]:
        return icctl(*argv, cwd=made, env=DIRECT, program=version.clients["python"])

    served.call("state.set", cwd=str(made), key="k", scope_id="s", payload=1)
    served.stop()
    path = made / ".clavain" / "intercore.db"
    assert run(new, "state", "set", "k", "s", "--value=2").returncode == 0
    (backup,) = path.parent.glob("intercore.db.backup-*")
    upgraded = run(new, "export", "-").stdout

    refused = run(old, "state", "get", "k", "s")

    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"upgrade intercore" in refused.stderr
    assert run(new, "export", "-").stdout == upgraded
    restored = run(old, "restore", str(backup))
    assert restored.returncode == 0, restored
    assert run(old, "state", "get", "k", "s").stdout == b"1\n"


def test_a_connection_that_was_made_to_the_release_goes_on(
    new: Installation, served: Daemon, made: Path, tmp_path: Path
) -> None:
    """With calls sent ahead, as a helper of a shell or a consumer of events has one for hours."""
    calls = 500
    request = {"jsonrpc": "2.0", "id": 1, "method": "state.incr"}
    request["params"] = {"cwd": str(made), "key": "n", "scope_id": "ahead"}  # type: ignore[assignment]
    line = json.dumps(request).encode() + b"\n"
    with served.connect() as sock, sock.makefile("rb") as replies:
        sock.sendall(line * calls)
        installations.switch(tmp_path / "installed", new)
        assert served.process is not None
        served.process.send_signal(signal.SIGHUP)
        sock.sendall(line * calls)

        values = [json.loads(replies.readline())["result"]["value"] for _ in range(2 * calls)]

        until(lambda: served.call("icd.ping")["version"] == NEW)
        assert values == list(range(1, 2 * calls + 1))


def test_this_library_works_with_the_helper_of_the_release(
    old: Installation, daemon: Daemon, initialized: Path
) -> None:
    """As in a shell that finds an older icctl: that helper does not know how to drop what it prints."""
    script = """
    source lib-intercore.sh
    echo "$(( $? ))"
    intercore_state_set k s '{"a":1}'; echo "set $?"
    intercore_state_get -v said k s; echo "got $said $?"
    intercore_sentinel_check n s 3600; echo "first $?"
    intercore_sentinel_check n s 3600; echo "second $?"
    intercore_state_get -v said k absent; echo "none ${said:-nothing} $?"
    intercore_coordination_reserve -v _ a 5m ann; echo "reserved $?"
    intercore_coordination_check a bob >/dev/null; echo "held $?"
    [[ $_intercore_pipes == */intercore-helper-?????? && -e /proc/$_intercore_helper ]] && echo helped
    """.replace("lib-intercore.sh", str(ROOT / "lib-intercore.sh"))
    reach = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_BIN": str(old.clients["native"])}
    env = {**CLEAN, "HOME": str(initialized), "TMPDIR": str(initialized), **reach}

    done = subprocess.run(
        ["bash", "-c", script],
        cwd=initialized,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "0", "set 0", 'got {"a":1} 0', "first 0", "second 1", "none nothing 0", "reserved 0",
        "held 1", "helped",
    ]  # fmt: skip


def test_what_a_killed_daemon_of_the_release_left_in_its_log_is_there(
    new: Installation, served: Daemon, made: Path
) -> None:
    for number in range(10):
        served.call("state.set", cwd=str(made), key="k", scope_id=f"s{number}", payload=number)
    served.kill()

    done = icctl("state", "list", "k", cwd=made, env=DIRECT, program=new.clients["python"])

    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) == 10


# --- databases that the release made --------------------------------------------------------


def fresh(path: Path) -> None:
    del path


def of_the_original(schema: int) -> Any:
    return lambda path: original.write(str(path), schema)


def with_a_table_of_a_person(path: Path) -> None:
    """The release left such tables alone, and `db check` had nothing against them."""
    original.write(str(path), 9)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("CREATE TABLE lanes (id TEXT PRIMARY KEY, run_id TEXT)")
        conn.execute("CREATE INDEX lanes_by_run ON lanes (run_id)")
        conn.execute("INSERT INTO lanes VALUES ('l1', 'r1')")


def earlier(schema: int) -> Any:
    def write(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:
            conn.executescript(f"BEGIN;\n{(HERE / f'ours-{schema}.sql').read_text()}COMMIT;")

    return write


def taken_over_long_ago(path: Path) -> None:
    original.write(str(path), 9)
    original.take_over_long_ago(str(path), 1003)


SOURCES = {
    "init": fresh,
    **{f"original v{schema}": of_the_original(schema) for schema in range(1, 10)},
    **{f"ours v{schema}": earlier(schema) for schema in range(1001, 1006)},
    "an original that ours took over long ago": taken_over_long_ago,
    "an original that is too new": lambda path: later.write(str(path)),
}
# What the release did with it before the upgrade.
DEEDS = {
    "nothing": [],
    "vacuumed": ["db vacuum"],
    "restored": ["backup backup.db", "restore backup.db"],
    "imported": ["export rows.jsonl", "import rows.jsonl"],
}
TRIED = [
    *((source, "nothing") for source in SOURCES),
    *(("init", deed) for deed in DEEDS if deed != "nothing"),
    ("original v9", "vacuumed"),
]


def make(source: str, deed: str, project: Path, old: Installation) -> Path:
    """With the release's own client."""

    def run(*argv: str) -> None:
        done = icctl(*argv, cwd=project, env=DIRECT, program=old.clients["python"])
        assert done.returncode == 0, done

    path = project / ".clavain" / "intercore.db"
    path.parent.mkdir(mode=0o700)
    SOURCES[source](path)
    run("init", "--adopt") if path.exists() and "too new" in source else run("init")
    run("state", "set", "k", "s", "--value=1")
    for command in DEEDS[deed]:
        run(*command.split())
    return path


def test_a_table_that_is_not_ours_is_in_the_backup_and_no_longer_in_the_database(
    project: Path, old: Installation, new: Installation
) -> None:
    """The release left it alone; a stranger's looks the same."""
    path = project / ".clavain" / "intercore.db"
    path.parent.mkdir(mode=0o700)
    with_a_table_of_a_person(path)
    old_one = icctl("health", cwd=project, env=DIRECT, program=old.clients["python"])
    assert (old_one.returncode, old_one.stdout) == (0, b"ok\n")
    before = set(path.parent.glob("intercore.db.backup-*"))

    done = icctl("health", cwd=project, env=DIRECT, program=new.clients["python"])

    assert (done.returncode, done.stdout) == (0, b"ok\n"), done.stderr
    (backup,) = set(path.parent.glob("intercore.db.backup-*")) - before
    with closing(sqlite3.connect(backup)) as conn:
        assert conn.execute("SELECT * FROM lanes").fetchall() == [("l1", "r1")]
    with closing(sqlite3.connect(path)) as conn:
        assert not conn.execute("SELECT 1 FROM lanes").fetchall()  # it is ours now
        assert not conn.execute(
            "SELECT 1 FROM sqlite_schema WHERE name IN ('original_lanes', 'lanes_by_run')"
        ).fetchall()


USES = (
    "state set k t --value=2", "db check", "export -", "state get k s", "state list k", "health",
    "sentinel list", "run list", "statusline",
)  # fmt: skip


@pytest.mark.parametrize(("source", "deed"), TRIED)
def test_a_database_that_the_release_made_is_used_without_a_question(
    source: str, deed: str, project: Path, old: Installation, new: Installation
) -> None:
    make(source, deed, project, old)

    for argv in USES if source == "init" else USES[:3]:
        done = icctl(*argv.split(), cwd=project, env=DIRECT, program=new.clients["python"])
        assert (done.returncode, done.stderr) == (0, b""), (argv, done)


@pytest.mark.parametrize("source", ["init", "original v9", "ours v1003"])
def test_a_daemon_of_this_code_uses_it_without_a_question(
    source: str, project: Path, old: Installation, new: Installation, tmp_path: Path
) -> None:
    make(source, "nothing", project, old)
    link = tmp_path / "installed"
    installations.switch(link, new)
    with closing(installations.daemon(link)) as daemon:
        daemon.start()
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}

        def run(version: Installation, argv: str) -> subprocess.CompletedProcess[bytes]:
            return icctl(*argv.split(), cwd=project, env=env, program=version.clients["native"])

        for argv in ("state get k s", "health", "state set k t --value=2"):
            for version in (new, old):
                done = run(version, argv)
                assert (done.returncode, done.stderr) == (0, b""), (argv, done)
        assert run(new, "db check").stdout == b"ok\n"
        # It opens the file in its own process, and does not know the schema.
        assert b"upgrade intercore" in run(old, "db check").stderr
