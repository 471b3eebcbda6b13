"""`icctl doctor` on healthy projects and on every breakage: it names the cause, and what to do."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd.admin.doctor.checks import CHECKS, REPAIRS
from tests.support.breakages import BREAKAGES, Place, World
from tests.support.mounts import mounted
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl

ROOT = Path(__file__).parents[3]
SOURCES = "".join(
    file.read_text("utf-8") for file in (ROOT / "icd" / "admin" / "doctor").glob("*.py")
)
# With time enough for a machine that has other things to do.
DOCTOR = ("doctor", "--json", "--timeout=15s")

# What the doctor says about each breakage, with and without a daemon: the check, and a part of the
# sentence.  None: without a daemon nothing is wrong, and nothing is said.
ALONE: dict[str, tuple[str, str] | None] = {
    "runtime directory removed": None,
    "runtime directory open to others": ("socket", "is open to other users (mode 0777)"),
    "socket unlinked": None,
    "database deleted": ("database", "intercore.db is gone"),
    "database replaced": None,
    "database replaced by a text": ("integrity", "is not a SQLite database"),
    "database truncated": ("integrity", "damaged"),
    "database emptied": ("database", "(0 bytes)"),
    "page damaged": ("integrity", "damaged"),
    "database overwritten": None,
    "schema from the future": ("schema", "it was written by intercore 99.0"),
    "database read-only": ("permissions", "may not read and write"),
    "directory read-only": ("permissions", "may not read and write"),
    "log unreadable": ("permissions", "intercore.db-wal (mode 0000 instead of 0600)"),
    "directory a symlink": ("symlinks", ".clavain is a symlink"),
    "database of somebody else": ("permissions", "belongs to another user"),
    "directory of somebody else": ("permissions", ".clavain"),
    "directory open to others": ("permissions", "other users may change"),
    "disk full": ("space", "is full"),
    "disk said to be full": ("space", "No space left on device"),
    "too few descriptors": ("limits", "files at once"),
    "lock held by a stopped process": ("lock", "and is stopped"),
    "no Unix sockets": ("socket", "Unix sockets may not be used here (Operation not permitted)"),
    "clock ahead": ("clock", "s ahead of"),
    "clock behind": ("clock", "s behind"),
}
# As said above, but for these.
REMOVED = ("socket", "its socket was removed")
SERVED = ALONE | {
    "runtime directory removed": REMOVED,
    "socket unlinked": REMOVED,
    "database replaced": ("replaced", "was replaced or deleted under the daemon"),
    "database overwritten": ("failures", "was overwritten while it was in use"),
}
# Nobody has to do anything about it: the exit status stays 0.
HARMLESS = {"no Unix sockets", "database replaced"}


def test_every_breakage_has_its_sentence() -> None:
    assert ALONE.keys() == BREAKAGES.keys()


def test_the_table_of_checks_is_documented_as_it_is() -> None:
    documented = re.findall(r"^\| `([\w ]+)` \| (.+) \|$", _doctors_section(ROOT), re.MULTILINE)

    assert documented == [(check.name, check.looks_at) for check in CHECKS]


def test_every_finding_is_of_a_check_in_the_table() -> None:
    made = re.findall(
        r"\b(?:ok|note|warning|error|from_error|severity)\)?\(\s*\"([\w ]+)\"", SOURCES
    )
    mapped = re.findall(r"^    [A-Z]\w+: \"(\w+)\",", SOURCES, re.MULTILINE)

    assert {*made, *mapped} == {check.name for check in CHECKS}


def test_every_repair_stands_with_the_checks_that_offer_it() -> None:
    offered = re.findall(r"\(\"([\w ]+)\", .*, Repair\(\"([\w ]+)\"", SOURCES)

    assert len(offered) == SOURCES.count(' Repair("')
    assert set(offered) == {(check.name, action) for check in CHECKS for action in check.repairs}
    assert {action for _check, action in offered} == REPAIRS.keys()


def _doctors_section(root: Path) -> str:
    text = (root / "docs" / "cli.md").read_text("utf-8")
    return text.partition("\n### doctor\n")[2].partition("\n### ")[0]


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Not started yet; its directory is there, and it touches nothing unless it is asked to."""
    found = World().daemon(INTERCORE_IDLE_SECONDS="86400")
    yield found
    found.close()


@pytest.fixture
def place(initialized: Path, daemon: Daemon) -> Place:
    (initialized / "legacy").mkdir()
    return Place(initialized, daemon.home)


def world(place: Place) -> dict[str, str]:
    return {
        "INTERCORE_SOCKET": str(place.socket),
        "INTERCORE_LEGACY_DIR": str(place.project / "legacy"),
    }


def findings(done: "subprocess.CompletedProcess[bytes]") -> list[dict[str, object]]:
    told = [line for line in done.stderr.splitlines() if b": ignoring the socket " not in line]
    assert told == [], done
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def said(done: "subprocess.CompletedProcess[bytes]", check: str) -> list[str]:
    """What was said about a check, unless that it is fine."""
    return [
        str(one["message"])
        for one in findings(done)
        if one["check"] == check and one["severity"] != "ok"
    ]


@pytest.mark.parametrize("name", [name for name, said in ALONE.items() if said])
def test_the_doctor_names_the_cause_without_a_daemon(name: str, place: Place) -> None:
    expected = ALONE[name]
    assert expected is not None
    place.socket.touch()  # some breakages remove it
    place.socket.unlink()

    with BREAKAGES[name](place) as broken:
        done = broken.icctl(*DOCTOR, cwd=place.project, env=world(place))

    check, part = expected
    assert any(part in sentence for sentence in said(done, check)), done.stdout.decode()
    assert done.returncode == (0 if name in HARMLESS else 1)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, said in SERVED.items() if said])
def test_the_doctor_names_the_cause_with_a_daemon(name: str, place: Place, daemon: Daemon) -> None:
    check, part = SERVED[name] or ("", "")
    daemon.start()
    daemon.call("state.set", cwd=str(place.project), key="k", scope_id="s", payload=1)

    with BREAKAGES[name](place) as broken:
        if SERVED[name] == REMOVED:  # else it would have listened again before anybody looks
            os.kill(daemon.pid, signal.SIGSTOP)
        elif name in ("database replaced", "database overwritten"):
            told = daemon.respond("state.list", cwd=str(place.project), key="k")
            assert told["error"]["data"]["name"] == "log_lost"
            daemon.call("state.list", cwd=str(place.project), key="k")
        done = broken.icctl(*DOCTOR, cwd=place.project, env=world(place))

    assert any(part in sentence for sentence in said(done, check)), done.stdout.decode()
    assert done.returncode == (0 if name in HARMLESS else 1)


@pytest.mark.parametrize("served", [False, True])
def test_a_healthy_project_is_fine_and_stays_as_it_is(
    served: bool, place: Place, daemon: Daemon, door: Path
) -> None:
    if served:
        daemon.start()
        daemon.call("state.set", cwd=str(place.project), key="k", scope_id="s", payload=1)
    before = _everything(place.project)

    done = World().icctl("doctor", "--timeout=15s", cwd=place.project, env=world(place))

    assert (done.returncode, done.stderr) == (0, b"")
    assert "warning" not in done.stdout.decode()
    assert "error" not in done.stdout.decode()
    assert done.stdout.decode().splitlines()[-1].endswith("no action needed")
    assert _everything(place.project) == before


def test_a_database_that_is_not_trusted_is_worth_a_note(initialized: Path) -> None:
    database = initialized / ".clavain" / "intercore.db"
    env = {"INTERCORE_MODE": "direct"}
    before = json.loads(icctl(*DOCTOR, cwd=initialized, env=env).stdout)
    shutil.copy2(database, initialized / "copy")
    (initialized / "copy").rename(database)

    after = json.loads(icctl(*DOCTOR, cwd=initialized, env=env).stdout)

    (found,) = [each for each in after if each["check"] == "trust"]
    assert [each["severity"] for each in before if each["check"] == "trust"] == ["ok"]
    assert found["severity"] == "note"
    assert found["message"].startswith("its database starts no agents and mirrors no rows: it is ")
    assert "'icctl trust'" in found["hint"]


def _log_has_content(place: Place) -> bool:
    log = place.database.with_name("intercore.db-wal")
    return log.exists() and log.stat().st_size > 0


def _everything(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Of every file what would tell that it was touched, but for SQLite's own scratch memory."""
    found = {}
    for path in [root, *(path for path in root.rglob("*") if path.suffix != ".db-shm")]:
        at = path.lstat()
        found[str(path)] = (at.st_ino, at.st_mode, at.st_size, at.st_mtime_ns)
    return found


def test_a_database_with_a_log_is_read_as_it_is(place: Place, daemon: Daemon) -> None:
    daemon.start()
    daemon.call("state.set", cwd=str(place.project), key="k", scope_id="s", payload=1)
    daemon.kill()
    place.socket.unlink()
    before = _everything(place.directory)
    assert _log_has_content(place)

    done = World().icctl(*DOCTOR, cwd=place.project, env=world(place))

    assert done.returncode == 0
    assert said(done, "integrity") == []
    assert _everything(place.directory) == before


def test_without_a_database_the_doctor_says_so_and_looks_at_the_rest(
    project: Path, tmp_path: Path
) -> None:
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock", "INTERCORE_LEGACY_DIR": str(tmp_path)}

    done = icctl("doctor", cwd=project, env=env)

    lines = done.stdout.decode().splitlines()
    assert done.returncode == 1
    assert f"warning: database: no .clavain/intercore.db in {project} or above it" in lines
    assert "  do this: run 'icctl init' in the project's directory to create it" in lines
    assert any(line.startswith("ok: environment: ") for line in lines)
    assert not (project / ".clavain").exists()


def test_a_stopped_daemon_is_named(place: Place, daemon: Daemon, door: Path) -> None:
    daemon.start()
    os.kill(daemon.pid, signal.SIGSTOP)

    done = World().icctl(*DOCTOR, cwd=place.project, env=world(place))

    (sentence,) = said(done, "socket")
    assert sentence.startswith(f"process {daemon.pid} (")
    assert sentence.endswith("does not answer, because it is stopped")
    assert done.returncode == 1


def test_a_stale_socket_is_removed_on_demand(place: Place, daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()

    looked = World().icctl(*DOCTOR, cwd=place.project, env=world(place))
    assert place.socket.exists()
    fixed = World().icctl(*DOCTOR, "--fix", cwd=place.project, env=world(place))

    assert looked.returncode == 1
    assert said(looked, "socket") == [f"{place.socket} is stale: its daemon was killed"]
    assert fixed.returncode == 0
    assert said(fixed, "socket") == [f"removed the socket {place.socket}"]
    assert not place.socket.exists()


def test_the_socket_of_a_living_daemon_is_never_removed(place: Place, daemon: Daemon) -> None:
    daemon.start()
    place.runtime.chmod(0o755)

    done = World().icctl("doctor", "--fix", cwd=place.project, env=world(place))

    assert done.returncode == 0, done
    assert daemon.answers()
    assert place.runtime.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name",
    [
        "runtime directory open to others",
        "database read-only",
        "directory read-only",
        "log unreadable",
        "directory open to others",
    ],
)
def test_modes_are_set_right_on_demand(name: str, place: Place) -> None:
    with BREAKAGES[name](place) as broken:
        done = broken.icctl(*DOCTOR, "--fix", cwd=place.project, env=world(place))

    assert done.returncode == 0, done
    assert [one["check"] for one in findings(done) if one["severity"] == "fixed"]


def test_what_is_broken_otherwise_is_left_alone_with_fix(place: Place) -> None:
    with BREAKAGES["page damaged"](place) as broken:
        before = _everything(place.project)
        done = broken.icctl("doctor", "--fix", cwd=place.project, env=world(place))
        after = _everything(place.project)

    assert done.returncode == 1
    assert after == before


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[" * 100_000 + b"\n"], ids=["http", "deep"]
)
def test_something_else_at_the_socket_is_named(place: Place, door: Path, reply: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place.socket))
        other.listen()
        command = [door / "icctl", *DOCTOR]
        asked = subprocess.Popen(
            command, cwd=place.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**CLEAN, "HOME": str(place.project), **world(place)},
        )  # fmt: skip
        other.settimeout(0.05)
        sessions = []
        try:
            while asked.poll() is None:
                try:
                    session, _ = other.accept()
                except TimeoutError:
                    continue
                session.sendall(reply)
                session.shutdown(socket.SHUT_WR)
                sessions.append(session)
        finally:
            out, err = asked.communicate(timeout=PATIENCE)
            for session in sessions:
                session.close()

    done = subprocess.CompletedProcess(command, asked.returncode, out, err)
    assert said(done, "socket") == [f"the program that listens at {place.socket} is not icd"]
    assert done.returncode == 1


def test_a_path_that_is_too_long_is_named(initialized: Path, door: Path) -> None:
    path = f"/tmp/{'x' * 120}/icd.sock"

    done = icctl(*DOCTOR, cwd=initialized, env={"INTERCORE_SOCKET": path})

    assert said(done, "socket") == [f"the path {path} is too long for a socket"]
    assert done.returncode == 1


def test_calls_that_failed_without_the_daemon_are_told(place: Place) -> None:
    env = world(place) | {"INTERCORE_MODE": "direct"}
    for _ in range(2):
        assert icctl("state", "set", "k", cwd=place.project, env=env).returncode == 3

    done = World().icctl(*DOCTOR, cwd=place.project, env=world(place))

    (sentence,) = said(done, "failures")
    assert sentence.startswith("calls failed without the daemon, the last at 20")
    assert sentence.endswith(": state.set 2")
    assert done.returncode == 0


def test_what_never_answers_does_not_hang_the_doctor(place: Place) -> None:
    with mounted() as mount:
        env = {"INTERCORE_SOCKET": str(mount.path / "icd.sock"), "INTERCORE_MODE": "direct"}
        mount.hang()
        done = World().icctl(*DOCTOR, cwd=place.project, env={**world(place), **env})

    assert said(done, "time") == [
        "checking the daemon's socket takes too long: its disk or its process does not answer"
    ]
    assert said(done, "integrity") == []
    assert [one["check"] for one in findings(done) if one["check"] == "integrity"]
    assert done.returncode == 1


def test_a_socket_of_another_kind_is_named(place: Place, door: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(place.socket))

        done = World().icctl(*DOCTOR, cwd=place.project, env=world(place))

    (sentence,) = said(done, "socket")
    assert sentence.startswith(f"cannot connect to {place.socket}: ")
    assert done.returncode == 1


def test_a_file_in_place_of_the_socket_is_named(place: Place, door: Path) -> None:
    place.socket.touch()

    done = World().icctl(*DOCTOR, cwd=place.project, env=world(place))

    assert said(done, "socket") == [f"{place.socket} is not a socket: no daemon starts there"]
    assert done.returncode == 1


def test_a_mode_that_needs_the_daemon_does_not_keep_the_doctor_away(place: Place) -> None:
    env = world(place) | {"INTERCORE_MODE": "daemon"}

    done = World().icctl("doctor", "--json", "--timeout=5s", cwd=place.project, env=env)

    assert len(said(done, "daemon")) == 1
    assert said(done, "integrity") == []
    assert done.returncode == 0
