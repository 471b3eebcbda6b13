"""The way over from legacy files, with real processes: what wins, what is refused, what is left."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import BIN, CLEAN, Daemon, icctl

MIGRATION = Path(__file__).parents[3] / "docs" / "migration.md"
ENVELOPE = b'{"version":"1.0.0","namespace":"n","type":"t","session_id":"s1","timestamp":"now","payload":%b}'

VALID = {
    "clavain-dispatch-4711.json": b'{"name":"codex"}',
    "clavain-bead-s1.json": b'{"id":"B-1","phase":"planned"}',
    "clavain-discovery-brief-_home_me.cache": b'{"open":5}',
    "clavain-stop-s1": b"",
    "clavain-compound-last-s1": b"",
    "clavain-drift-last-s1": b"",
    "clavain-handoff-s1": b"",
    "clavain-autopub.lock": b"",
    "clavain-catalog-remind-s1.lock": b"",
}
CHANNELS = ["clavain/dispatch", "interphase/bead", "interphase/lane", "interlock/coordination", "intercheck/pressure", "interstat/budget"]  # fmt: skip
GARBAGE = {
    b"clavain-dispatch-broken.json": b"{",
    b"clavain-dispatch-secret.json": b'{"k":"ghp_0123456789abcdefghijklmnopqrstuvwxyz"}',
    b"clavain-dispatch-huge.json": b'"' + b"x" * 2_000_000 + b'"',
    b"clavain-discovery-brief-text.cache": b"5 open beads",
    b"clavain-stop-a\tb": b"",
    b"clavain-stop-a\nskipped\tstop\tfake\tnothing": b"",
    b"clavain-stop-\xff\xfe": b"",
    b"clavain-stop-\x1b[2J": b"",
}


@pytest.fixture
def world(initialized: Path, tmp_path: Path) -> dict[str, str]:
    legacy = tmp_path / "legacy"
    legacy.mkdir()
    return {
        "PATH": CLEAN["PATH"],
        "HOME": str(tmp_path),
        "INTERCORE_LEGACY_DIR": str(legacy),
        "INTERCORE_MODE": "direct",
    }


def compat(project: Path, world: dict[str, str], *argv: str) -> dict[str, list[dict[str, str]]]:
    done = icctl("compat", *argv, "--json", cwd=project, env=world)
    assert (done.returncode, done.stderr) == (0, b"")
    found: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return found


def plant(world: dict[str, str]) -> None:
    """Every pattern, every channel, and whatever else may lie around in /tmp."""
    legacy = os.fsencode(world["INTERCORE_LEGACY_DIR"])
    for name, content in {**{os.fsencode(n): c for n, c in VALID.items()}, **GARBAGE}.items():
        Path(os.fsdecode(os.path.join(legacy, name))).write_bytes(content)
    os.mkdir(os.path.join(legacy, b"clavain-stop-by-mkdir"))
    os.mkdir(os.path.join(legacy, b"clavain-dispatch-folder.json"))
    os.mkfifo(os.path.join(legacy, b"clavain-dispatch-pipe.json"))
    os.symlink("/etc/passwd", os.path.join(legacy, b"clavain-dispatch-link.json"))
    os.symlink("/etc/passwd", os.path.join(legacy, b"clavain-stop-link"))
    for channel in CHANNELS:
        place = Path(world["HOME"], ".interband", channel)
        place.mkdir(parents=True)
        (place / "session.json").write_bytes(ENVELOPE % b'{"of":"us"}')
        (place / "broken.json").write_bytes(b"[]")
        (place / "mirrored.json").write_bytes(
            b'{"version":"1.0.0","source":"intercore","payload":{}}'
        )


@pytest.mark.parametrize("mode", ["direct", "daemon"])
def test_of_a_wild_directory_the_valid_is_imported_once_and_the_rest_refused(
    initialized: Path, world: dict[str, str], daemon: Daemon, mode: str
) -> None:
    world |= {"INTERCORE_MODE": mode, "INTERCORE_SOCKET": daemon.socket}
    plant(world)

    first = compat(initialized, world, "import")
    second = compat(initialized, world, "import")

    assert len(first["imported"]) == len(VALID) + 1 + len(CHANNELS)
    assert len(first["skipped"]) == len(GARBAGE) + 4 + 2 * len(CHANNELS)
    assert all(skipped["reason"] for skipped in first["skipped"])
    assert second["imported"] == []
    assert len(second["skipped"]) == len(first["imported"]) + len(first["skipped"])
    assert "0123456789" not in json.dumps([first, second])


def test_what_was_skipped_is_told_on_one_line_each(
    initialized: Path, world: dict[str, str]
) -> None:
    plant(world)

    done = icctl("compat", "import", cwd=initialized, env=world)

    lines = done.stdout.decode().splitlines()
    rows = [line.split("\t") for line in lines[:-1]]
    assert {len(row) for row in rows} == {4}
    assert lines[-1] == f"{sum(r[0] == 'imported' for r in rows)} imported, {sum(r[0] == 'skipped' for r in rows)} skipped"  # fmt: skip
    assert lines[-1].startswith("16 imported, ")


def test_cleanup_leaves_exactly_what_was_not_imported(
    initialized: Path, world: dict[str, str]
) -> None:
    plant(world)
    imported = compat(initialized, world, "import")["imported"]

    cleaned = compat(initialized, world, "cleanup", "--apply")

    assert [file["path"] for file in cleaned["removed"]] == [file["path"] for file in imported]
    assert compat(initialized, world, "import")["imported"] == []
    assert len(os.listdir(world["INTERCORE_LEGACY_DIR"])) == len(GARBAGE) + 4


# --- during the migration -------------------------------------------------------------------


def read(project: Path, world: dict[str, str]) -> str:
    """What the reader of the documentation shows."""
    after = MIGRATION.read_text(encoding="utf-8").split("\n## A reader\n")[1]
    script = after.split("```bash\n")[1].split("```")[0]
    assert "/tmp/clavain-dispatch-" in script
    ran = subprocess.run(
        ["bash", "-c", script.replace("/tmp", "$INTERCORE_LEGACY_DIR")],
        cwd=project, env={**world, "SESSION": "s1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ran.stdout


def write(world: dict[str, str], content: str, *, name: str = "clavain-dispatch-s1.json") -> Path:
    path = Path(world["INTERCORE_LEGACY_DIR"], name)
    path.write_text(content)
    return path


def test_the_database_wins_over_a_file(initialized: Path, world: dict[str, str]) -> None:
    write(world, '"of the file"')
    icctl("state", "set", "dispatch", "s1", "--value", '"of the database"', cwd=initialized, env=world)  # fmt: skip

    compat(initialized, world, "import")

    assert read(initialized, world) == '"of the database"'


def test_while_the_database_is_unavailable_the_file_is_read(project: Path, tmp_path: Path) -> None:
    world = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "INTERCORE_MODE": "direct"}
    world["INTERCORE_LEGACY_DIR"] = str(tmp_path)
    write(world, '"of the file"')

    status = icctl("compat", "status", cwd=project, env=world)

    assert read(project, world) == '"of the file"'
    assert status.returncode == 0
    assert b"dispatch            \tyes\tn/a\t1\tn/a\tn/a\t" in status.stdout


def test_a_broken_database_is_told_and_the_files_still_shown(
    initialized: Path, world: dict[str, str]
) -> None:
    write(world, "1")
    (initialized / ".clavain" / "intercore.db").write_bytes(b"no database at all" * 1000)

    status = icctl("compat", "status", cwd=initialized, env=world)
    check = icctl("compat", "check", "dispatch", cwd=initialized, env=world)
    imported = icctl("compat", "import", cwd=initialized, env=world)

    assert (status.returncode, check.returncode, imported.returncode) == (0, 1, 2)
    assert b"dispatch            \tyes\tn/a\t" in status.stdout
    assert b"not a SQLite database" in status.stderr
    assert b"not a SQLite database" in check.stderr


def test_after_the_pre_migration_clean_up_a_stale_file_gates_nobody(
    initialized: Path, world: dict[str, str]
) -> None:
    stale = write(world, "", name="clavain-stop-s1")
    check = ("sentinel", "check", "stop", "s1", "--interval=0")
    compat(initialized, world, "import")
    compat(initialized, world, "cleanup", "--apply")

    guarded = icctl(*check, cwd=initialized, env=world)
    icctl("sentinel", "reset", "stop", "s1", cwd=initialized, env=world)
    again = icctl(*check, cwd=initialized, env=world)

    assert not stale.exists()
    assert guarded.stdout == b"throttled\n"
    assert again.stdout == b"allowed\n"


def test_two_imports_at_once_import_every_file_once(
    initialized: Path, world: dict[str, str]
) -> None:
    for number in range(50):
        write(world, "", name=f"clavain-stop-{number}")

    importers = [
        subprocess.Popen(
            [BIN / "icctl", "compat", "import", "--json"],
            cwd=initialized, env=world, stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    outputs = [json.loads(importer.communicate(timeout=60)[0]) for importer in importers]

    assert sum(len(output["imported"]) for output in outputs) == 50
