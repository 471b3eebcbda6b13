"""The mirror in a real daemon: files follow rows, and nothing waits for files."""

import json
import os
import sqlite3
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from icd import trust
from icd.server import limits
from icd.server.workers.mirror import ASK_SECONDS
from icd.server.workers.mirror_files import FILES
from tests.support import mirrors
from tests.support.mirrors import Band
from tests.support.processes import Daemon, icctl, running, until, vanish

DIRECT = {"INTERCORE_MODE": "direct"}


@pytest.fixture
def band(daemon: Daemon) -> Band:
    return Band(daemon)


@pytest.fixture
def put(daemon: Daemon, initialized: Path):
    mirrors.want(daemon.home)
    mirrors.accept(daemon.home, initialized)

    def row(key, scope, payload, **params):
        where = {"cwd": str(initialized)} | params
        return daemon.call("state.set", key=key, scope_id=scope, payload=payload, **where)

    return row


def files(band: Band) -> list[str]:
    return sorted(str(file.relative_to(band.root)) for file in band.root.rglob("*.json"))


def mirror(daemon: Daemon):
    return daemon.call("icd.status")["mirror"]


def test_a_mirrored_row_becomes_an_envelope(put, band, initialized: Path) -> None:
    put("dispatch", "4711", {"name": "n"}, session="writer")

    band.shows("clavain/dispatch", "4711", {"name": "n"})

    envelope = json.loads(band.file("clavain/dispatch", "4711").read_text())
    assert envelope["source"] == "intercore"
    assert envelope["origin"] == str(initialized / ".clavain" / "intercore.db")
    assert envelope["session_id"] == "writer"
    assert envelope["version"].startswith("1.")


def test_other_keys_are_not_mirrored(put, band) -> None:
    put("secret.note", "s1", {"a": 1})
    put("bead", "s1", {"id": "x"})

    band.shows("interphase/bead", "s1", {"id": "x"})

    assert len(list(band.root.rglob("*.json"))) == 1


def test_a_deleted_row_takes_its_file_along(put, band, daemon: Daemon, initialized: Path) -> None:
    put("bead", "s1", {"id": "x"})
    put("bead", "s2", {"id": "y"})
    band.shows("interphase/bead", "s1", {"id": "x"})
    band.shows("interphase/bead", "s2", {"id": "y"})

    daemon.call("state.delete", cwd=str(initialized), key="bead", scope_id="s1")
    band.shows("interphase/bead", "s1", None)
    daemon.call("state.delete_all", cwd=str(initialized), key="bead")
    band.shows("interphase/bead", "s2", None)

    assert mirror(daemon)["removed"] == 2


def test_an_expired_row_takes_its_file_along(put, band) -> None:
    began = time.monotonic()
    write = partial(put, "bead", "s1", {"id": "x"}, ttl_ms=3000)
    band.shows_soon("interphase/bead", "s1", {"id": "x"}, write)

    band.shows("interphase/bead", "s1", None)

    assert time.monotonic() - began > 2.8


def test_an_expired_row_takes_its_file_along_after_a_reload(put, band, daemon: Daemon) -> None:
    write = partial(put, "bead", "s1", {"id": "x"}, ttl_ms=5000)
    band.shows_soon("interphase/bead", "s1", {"id": "x"}, write)

    assert daemon.call("icd.reload")["pid"] == daemon.pid
    until(lambda: daemon.log.read_text().count('"listening"') == 2)

    band.shows("interphase/bead", "s1", None)


def test_a_row_that_nobody_writes_loses_its_file_after_the_retention(
    put, band, initialized: Path
) -> None:
    settings = "[mirror.channels.bead]\nretention_seconds = 4\n"  # a busy machine must see it
    (initialized / ".clavain" / "intercore.toml").write_text(settings)
    for payload in ({"id": "x"}, {"id": "again"}):
        band.shows_soon("interphase/bead", "s1", payload, partial(put, "bead", "s1", payload))

        band.shows("interphase/bead", "s1", None)


def test_ten_thousand_writes_at_full_speed_are_a_few_files_and_the_last_value_is_there(
    put, band, daemon: Daemon, initialized: Path
) -> None:
    put("bead", "s1", {"n": -1})
    band.shows("interphase/bead", "s1", {"n": -1})
    file, count = band.file("interphase/bead", "s1"), 10_000
    params = {"cwd": str(initialized), "key": "bead", "scope_id": "s1"}
    requests = [
        {
            "jsonrpc": "2.0",
            "id": n,
            "method": "state.set",
            "params": {**params, "payload": {"n": n}},
        }
        for n in range(count)
    ]
    data = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    read = 0
    began = time.monotonic()

    with daemon.connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        while count:
            count -= sock.recv(1 << 16).count(b"\n")
            assert json.loads(file.read_text())["source"] == "intercore"  # it always parses
            read += 1
        sender.join()

    took = time.monotonic() - began
    band.shows("interphase/bead", "s1", {"n": 9_999})
    assert read > 10
    # One write in GAP_SECONDS, the one before the first of them, and the last value.
    assert 2 <= mirror(daemon)["written"] <= took / limits.GAP_SECONDS + 4


def test_a_direct_write_is_mirrored_when_the_daemon_next_looks(
    put, band, daemon: Daemon, initialized: Path
) -> None:
    put("bead", "s1", {"id": "x"})
    band.shows("interphase/bead", "s1", {"id": "x"})
    value = '{"id":"direct"}'

    icctl("state", "set", "bead", "s1", "--value", value, cwd=initialized, env=DIRECT)
    icctl("state", "set", "lane", "s1", "--value", value, cwd=initialized, env=DIRECT)
    daemon.call("state.list", cwd=str(initialized), key="k")  # the next batch notices

    band.shows("interphase/bead", "s1", {"id": "direct"})
    band.shows("interphase/lane", "s1", {"id": "direct"})


def test_a_direct_write_is_mirrored_also_if_nobody_asks_anything(
    put, band, initialized: Path
) -> None:
    put("bead", "s1", {"id": "x"})
    band.shows("interphase/bead", "s1", {"id": "x"})

    icctl("state", "delete", "bead", "s1", cwd=initialized, env=DIRECT)

    band.shows("interphase/bead", "s1", None)


def test_opening_a_database_brings_its_files_up_to_date(initialized: Path) -> None:
    with running() as daemon:
        mirrors.want(daemon.home)
        mirrors.accept(daemon.home, initialized)
        band = Band(daemon)
        for scope in ("stays", "goes"):
            daemon.call(
                "state.set", cwd=str(initialized), key="bead", scope_id=scope, payload={"n": 1}
            )
        band.shows("interphase/bead", "goes", {"n": 1})
        band.shows("interphase/bead", "stays", {"n": 1})
        daemon.stop()
        before = band.file("interphase/bead", "stays").stat()
        icctl("state", "delete", "bead", "goes", cwd=initialized, env=DIRECT)
        icctl("state", "set", "bead", "comes", "--value={}", cwd=initialized, env=DIRECT)

        daemon.start()
        daemon.call("state.list", cwd=str(initialized), key="k")

        band.shows("interphase/bead", "goes", None)
        band.shows("interphase/bead", "comes", {})
        after = band.file("interphase/bead", "stays").stat()
        assert (after.st_ino, after.st_mtime) == (before.st_ino, before.st_mtime)


def test_a_stop_writes_what_is_still_to_be_written(initialized: Path) -> None:
    with running() as daemon:
        mirrors.want(daemon.home)
        mirrors.accept(daemon.home, initialized)
        band = Band(daemon)
        for n in range(50):
            daemon.call(
                "state.set", cwd=str(initialized), key="bead", scope_id="s1", payload={"n": n}
            )

        assert daemon.stop() == 0

        assert band.payload("interphase/bead", "s1") == {"n": 49}


def test_a_mirror_that_fails_fails_no_write_and_shows_in_status(
    put, band, daemon: Daemon, initialized: Path
) -> None:
    obstacle = band.root / "interphase"
    obstacle.write_text("not a directory")

    written = put("bead", "s1", {"id": "x"})

    assert written["version"] == 1
    until(lambda: mirror(daemon)["failed"] > 0)
    assert mirror(daemon)["last_error"].startswith("bead s1: ")
    assert mirror(daemon)["waiting"] == 1
    shown = icctl("status", cwd=initialized, env={"INTERCORE_SOCKET": daemon.socket}).stdout
    assert b"1 waiting, " in shown
    assert b"last error: bead s1: " in shown

    obstacle.unlink()
    band.shows("interphase/bead", "s1", {"id": "x"})  # it was tried again
    until(lambda: mirror(daemon)["waiting"] == 0)


def test_a_deleted_database_takes_its_files_along(put, band, initialized: Path) -> None:
    put("bead", "s1", {"id": "x"})
    band.shows("interphase/bead", "s1", {"id": "x"})

    vanish(initialized / ".clavain")

    band.shows("interphase/bead", "s1", None)


def test_a_deleted_database_takes_its_files_along_if_the_mirror_sees_it_first(
    put, band, daemon: Daemon, initialized: Path
) -> None:
    """The row's end wakes the mirror before the idle store looks for its database."""
    (initialized / ".clavain" / "intercore.toml").write_text("idle_seconds = 5\n")
    write = partial(put, "bead", "s1", {"id": "x"}, ttl_ms=2000)
    band.shows_soon("interphase/bead", "s1", {"id": "x"}, write)
    until(lambda: mirror(daemon)["waiting"] == 0)

    vanish(initialized / ".clavain")

    band.shows("interphase/bead", "s1", None)


def test_a_replaced_database_is_mirrored_anew(put, band, daemon: Daemon, initialized: Path) -> None:
    put("bead", "old", {"n": 1})
    band.shows("interphase/bead", "old", {"n": 1})
    other = initialized / "other" / ".clavain" / "new.db"
    icctl("init", "--db", str(other), cwd=initialized, env=DIRECT)
    icctl(
        "state", "set", "bead", "new", "--value={}", "--db", str(other), cwd=initialized, env=DIRECT
    )
    os.replace(other, initialized / ".clavain" / "intercore.db")
    mirrors.accept(daemon.home, initialized)

    told = daemon.respond("state.list", cwd=str(initialized), key="k")
    assert told["error"]["data"]["name"] == "log_lost"
    daemon.call("state.list", cwd=str(initialized), key="k")

    band.shows("interphase/bead", "new", {})
    band.shows("interphase/bead", "old", None)


def test_a_program_that_knows_no_lock_is_noticed_as_well(
    put, band, daemon: Daemon, initialized: Path
) -> None:
    put("bead", "s1", {"n": 1})
    band.shows("interphase/bead", "s1", {"n": 1})

    conn = sqlite3.connect(initialized / ".clavain" / "intercore.db")
    with conn:
        conn.execute("DELETE FROM state WHERE key = 'bead'")
    conn.close()
    daemon.call("state.list", cwd=str(initialized), key="k")

    band.shows("interphase/bead", "s1", None)


def test_the_root_comes_from_the_environment_of_the_daemon(
    initialized: Path, tmp_path: Path
) -> None:
    with running(env={"INTERBAND_ROOT": str(tmp_path / "band")}) as daemon:
        mirrors.accept(daemon.home, initialized)
        daemon.call("state.set", cwd=str(initialized), key="lane", scope_id="s", payload={})

        until((tmp_path / "band" / "interphase" / "lane" / "s.json").exists)


def test_the_settings_name_other_keys_other_places_or_nothing(
    initialized: Path, tmp_path: Path
) -> None:
    with running(env={"INTERBAND_ROOT": "/nonexistent"}) as daemon:
        mirrors.accept(daemon.home, initialized)
        user = daemon.home / ".config" / "intercore" / "config.toml"
        user.parent.mkdir(parents=True)
        user.write_text(
            f'[mirror]\nroot = "{tmp_path}/band"\n'
            '[mirror.channels.note]\npath = "mine/notes"\n[mirror.channels.lane]\nenabled = false\n'
        )
        for key in ("lane", "note"):
            daemon.call("state.set", cwd=str(initialized), key=key, scope_id="s", payload={})

        until((tmp_path / "band" / "mine" / "notes" / "s.json").exists)

        assert not (tmp_path / "band" / "interphase").exists()


def test_a_project_may_switch_its_mirror_off(put, band, daemon: Daemon, initialized: Path) -> None:
    (initialized / ".clavain" / "intercore.toml").write_text("[mirror]\nenabled = false\n")
    put("bead", "s1", {"id": "x"})

    daemon.stop()

    assert files(band) == []


def test_a_watching_mirror_does_not_keep_a_database_from_being_idle(
    put, band, initialized: Path
) -> None:
    (initialized / ".clavain" / "intercore.toml").write_text("idle_seconds = 0.3\n")
    wal = initialized / ".clavain" / "intercore.db-wal"
    put("bead", "s1", {"id": "x"})

    until(lambda: wal.stat().st_size == 0)


def test_a_row_that_cannot_be_read_does_not_hold_up_the_others(
    put, band, daemon: Daemon, initialized: Path
) -> None:
    conn = sqlite3.connect(initialized / ".clavain" / "intercore.db")
    with conn:
        conn.execute(
            "INSERT INTO state (key, scope_id, payload, version, updated_at)"
            " VALUES ('bead', 'broken', CAST(x'22ff22' AS TEXT), 99, unixepoch())"
        )
    conn.close()

    for number in range(5):
        put("bead", f"s{number}", {"n": number})

    for number in range(5):
        band.shows("interphase/bead", f"s{number}", {"n": number})
    assert mirror(daemon)["last_error"].startswith("bead broken: ")
    assert mirror(daemon)["waiting"] == 1


def test_a_file_that_cannot_be_removed_is_not_tried_all_the_time(
    put, band, daemon: Daemon, tmp_path: Path
) -> None:
    write = partial(put, "bead", "s1", {"id": "x"}, ttl_ms=4000)
    band.shows_soon("interphase/bead", "s1", {"id": "x"}, write)
    channel = band.file("interphase/bead", "s1").parent
    channel.rename(tmp_path / "moved")
    channel.symlink_to(tmp_path / "moved")

    until(lambda: mirror(daemon)["failed"])
    time.sleep(0.5)

    assert mirror(daemon)["failed"] == 1
    assert (tmp_path / "moved" / "s1.json").exists()


def test_a_database_that_was_held_is_read_later(put, band, initialized: Path) -> None:
    write = partial(put, "bead", "s1", {"id": "x"}, ttl_ms=4000)
    band.shows_soon("interphase/bead", "s1", {"id": "x"}, write)
    lock = initialized / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(
        ["flock", lock, "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    holder.stdout.readline()
    time.sleep(4 + ASK_SECONDS + 0.5)  # the row has expired, and nobody could tell

    assert band.payload("interphase/bead", "s1") == {"id": "x"}
    holder.communicate()

    band.shows("interphase/bead", "s1", None)


# --- whether the user wants it, and trusts the database ---


def state(daemon: Daemon, project: Path, scope: str = "s", **params) -> None:
    where = {"cwd": str(project), "key": "bead", "scope_id": scope}
    daemon.call("state.set", **where, payload=params or {"n": 1})


def settle(daemon: Daemon) -> None:
    """Whatever is to be written has been written when a daemon has stopped."""
    assert daemon.stop() == 0


def test_a_home_without_a_directory_for_files_gets_none(
    daemon: Daemon, band: Band, initialized: Path
) -> None:
    mirrors.accept(daemon.home, initialized)
    for number in range(20):
        state(daemon, initialized, f"s{number}")

    settle(daemon)

    assert not band.root.exists()


def test_a_directory_that_is_made_later_gets_all_files_with_the_next_write(
    daemon: Daemon, band: Band, initialized: Path
) -> None:
    mirrors.accept(daemon.home, initialized)
    state(daemon, initialized, "before")
    daemon.call("state.list", cwd=str(initialized), key="k")
    time.sleep(2 * limits.GAP_SECONDS)  # it has looked for the directory by then, most likely

    mirrors.want(daemon.home)
    state(daemon, initialized, "after")

    band.shows("interphase/bead", "before", {"n": 1})
    band.shows("interphase/bead", "after", {"n": 1})


def test_a_user_who_switches_it_on_gets_a_directory(initialized: Path) -> None:
    with running() as daemon:
        user = daemon.home / ".config" / "intercore" / "config.toml"
        user.parent.mkdir(parents=True)
        user.write_text("mirror.enabled = true\n")
        mirrors.accept(daemon.home, initialized)

        state(daemon, initialized)

        Band(daemon).shows("interphase/bead", "s", {"n": 1})


def test_a_stranger_removes_and_replaces_no_file_of_another_project(
    put, band: Band, daemon: Daemon, tmp_path: Path
) -> None:
    """Neither by its settings nor by its rows; also not under the name that the other one uses."""
    put("bead", "shared", {"whose": "mine"})
    band.shows("interphase/bead", "shared", {"whose": "mine"})
    file = band.file("interphase/bead", "shared")
    os.utime(file, (1_000_000_000, 1_000_000_000))
    clone = tmp_path / "clone"
    (clone / ".git").mkdir(parents=True)
    icctl("init", cwd=clone, env=DIRECT)
    (clone / ".clavain" / "intercore.toml").write_text(
        "idle_seconds = 0.05\n"
        "[mirror]\nenabled = true\n"
        "[mirror.channels.bead]\nretention_seconds = 1\n"
        '[mirror.channels.note]\npath = "interphase/bead"\nretention_seconds = 1\n'
    )
    for key in ("bead", "note"):
        argv = ("state", "set", key, "shared", '--value={"whose":"theirs"}')
        icctl(*argv, cwd=clone, env=DIRECT)

    shown = icctl("statusline", cwd=clone, env={"INTERCORE_SOCKET": daemon.socket})
    for key in ("bead", "note"):
        where = {"cwd": str(clone), "key": key, "scope_id": "shared"}
        daemon.call("state.set", **where, payload={"whose": "theirs"})
    settle(daemon)

    assert shown.returncode == 0
    assert files(band) == ["interphase/bead/shared.json"]
    assert band.payload("interphase/bead", "shared") == {"whose": "mine"}


def test_a_trusted_project_with_a_short_retention_removes_its_own_files_only(
    put, band: Band, daemon: Daemon, initialized: Path, tmp_path: Path
) -> None:
    put("bead", "mine", {"n": 1})
    band.shows("interphase/bead", "mine", {"n": 1})
    file = band.file("interphase/bead", "mine")
    os.utime(file, (1_000_000_000, 1_000_000_000))
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    icctl("init", cwd=other, env=DIRECT)
    mirrors.accept(daemon.home, other)
    (other / ".clavain" / "intercore.toml").write_text(
        "[mirror.channels.bead]\nretention_seconds = 1\n"
    )

    write = partial(state, daemon, other, "theirs")
    band.shows_soon("interphase/bead", "theirs", {"n": 1}, write)
    band.shows("interphase/bead", "theirs", None)

    assert files(band) == ["interphase/bead/mine.json"]


def test_a_database_that_is_not_trusted_is_told_once_and_mirrored_when_it_is_accepted(
    band: Band, daemon: Daemon, initialized: Path
) -> None:
    mirrors.want(daemon.home)
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(daemon.home)}
    state(daemon, initialized)
    until(lambda: mirror(daemon).get("untrusted"))

    told = [icctl("state", "list", "bead", cwd=initialized, env=env) for _ in range(5)]
    shown = icctl("status", cwd=initialized, env=env).stdout.decode()
    judged = icctl("doctor", cwd=initialized, env=env).stdout.decode()

    assert {each.returncode for each in told} == {0}
    assert {each.stdout for each in told} == {told[0].stdout}
    warned = [each.stderr.decode() for each in told if each.stderr]
    assert len(warned) == 1
    assert "not trusted; to accept it, run 'icctl trust'" in warned[0]
    database = str(initialized / ".clavain" / "intercore.db")
    assert mirror(daemon)["untrusted"] == [database]
    assert f"! mirror: {database} is not trusted" in shown
    assert f"{database} is not trusted" in judged
    assert daemon.log.read_text().count("is not trusted") == 1
    assert files(band) == []

    mirrors.accept(daemon.home, initialized)
    band.shows("interphase/bead", "s", {"n": 1})  # without another write
    assert "untrusted" not in mirror(daemon)


def test_what_the_user_was_told_is_not_told_by_the_next_daemon(
    daemon: Daemon, initialized: Path
) -> None:
    mirrors.want(daemon.home)
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(daemon.home)}
    state(daemon, initialized)
    until(lambda: mirror(daemon).get("untrusted"))
    until(lambda: icctl("state", "list", "bead", cwd=initialized, env=env).stderr)
    until((daemon.home / ".local/share/intercore/told").exists)

    daemon.stop()
    daemon.start()
    state(daemon, initialized)
    until(lambda: mirror(daemon).get("untrusted"))

    assert icctl("state", "list", "bead", cwd=initialized, env=env).stderr == b""


def test_trust_that_is_taken_back_ends_the_mirror_and_leaves_the_files(
    put, band: Band, daemon: Daemon, initialized: Path
) -> None:
    put("bead", "s1", {"n": 1})
    band.shows("interphase/bead", "s1", {"n": 1})

    trust.revoke(str(daemon.home), str(initialized / ".clavain" / "intercore.db"))
    put("bead", "s1", {"n": 2})
    put("bead", "s2", {"n": 2})
    daemon.call("state.delete", cwd=str(initialized), key="bead", scope_id="s1")
    settle(daemon)

    assert files(band) == ["interphase/bead/s1.json"]
    assert band.payload("interphase/bead", "s1") == {"n": 1}


@pytest.mark.long
def test_a_key_with_many_rows_gets_files_for_the_newest(
    put, band: Band, daemon: Daemon, initialized: Path
) -> None:
    count = FILES + 200
    with daemon.connect() as sock:
        for number in range(count):
            where = {"cwd": str(initialized), "key": "dispatch", "scope_id": f"s{number}"}
            request = {"jsonrpc": "2.0", "id": number, "method": "state.set"}
            params = {"params": {**where, "payload": {"n": number}}}
            sock.sendall(json.dumps(request | params).encode() + b"\n")
        left = count
        while left:
            left -= sock.recv(1 << 16).count(b"\n")

    newest = {f"clavain/dispatch/s{number}.json" for number in range(200, count)}
    until(lambda: set(files(band)) == newest)
    shown = icctl("status", cwd=initialized, env={"INTERCORE_SOCKET": daemon.socket}).stdout
    assert mirror(daemon)["left_out"] >= 200
    assert b"! mirror: only the newest rows have files" in shown
    assert daemon.log.read_text().count("only the newest rows are mirrored") == 1

    daemon.stop()
    daemon.start()  # which has no idea what was left out
    put("bead", "s", {"n": 1})
    band.shows("interphase/bead", "s", {"n": 1})
    assert set(files(band)) == newest | {"interphase/bead/s.json"}
    assert mirror(daemon)["left_out"] == 200

    where = {"cwd": str(initialized), "key": "dispatch", "scope_id": f"s{count - 1}"}
    daemon.call("state.delete", **where)
    until(lambda: "clavain/dispatch/s199.json" in files(band))  # there is room for one more

    for number in range(count - 2, 500, -1):  # most of those that have files
        where = {"cwd": str(initialized), "key": "dispatch", "scope_id": f"s{number}"}
        daemon.call("state.delete", **where)
    rest = {f"clavain/dispatch/s{number}.json" for number in range(501)}
    until(lambda: set(files(band)) == rest | {"interphase/bead/s.json"})


def test_what_is_ignored_of_a_projects_settings_is_one_line_in_the_log(
    daemon: Daemon, initialized: Path
) -> None:
    settings = initialized / ".clavain" / "intercore.toml"
    settings.write_text(
        'idle_seconds = 0.05\nclose_idle_seconds = 0.15\nmirror.channels.bead.path = "a/b"\n'
    )

    for _ in range(3):
        daemon.call("db.health", cwd=str(initialized))
        until(lambda: not daemon.call("icd.status")["databases"])

    told = f"{settings}:3: ignored: mirror.channels.bead.path, because "
    assert daemon.log.read_text().count(told) == 1


def test_a_file_that_takes_the_place_of_a_trusted_database_is_not_mirrored(
    put, band: Band, daemon: Daemon, initialized: Path, tmp_path: Path
) -> None:
    put("bead", "mine", {"n": 1})
    band.shows("interphase/bead", "mine", {"n": 1})
    other = tmp_path / "clone" / ".clavain" / "intercore.db"
    for argv in (["init"], ["state", "set", "bead", "theirs", "--value={}"]):
        icctl(*argv, "--db", str(other), cwd=tmp_path, env=DIRECT)

    os.replace(other, initialized / ".clavain" / "intercore.db")
    told = daemon.respond("state.list", cwd=str(initialized), key="bead")
    assert told["error"]["data"]["name"] == "log_lost"
    daemon.call("state.list", cwd=str(initialized), key="bead")

    until(lambda: mirror(daemon).get("untrusted"))
    settle(daemon)
    assert files(band) == ["interphase/bead/mine.json"]
