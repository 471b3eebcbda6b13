"""`icctl compat …`: what is printed, and the exit codes that scripts rely on."""

import json
import os

import pytest

from icd.app.call import Answer
from icd.app.invocation import Errand, Need, Output
from icd.app.planner import run_errand
from icd.errors import Corrupt, Locked, NoDatabase, SchemaTooNew
from icd.features.compat import import_ as legacy
from icd.features.compat.files import KEYS
from icd.features.compat.import_ import MANY, Verdicts
from tests.conftest import NOW_MS

AGE_MS = 100_000


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "legacy"
    found.mkdir()
    return found


@pytest.fixture
def write(folder):
    """Write a legacy file, some time ago."""

    def written(name, content="", *, mtime_ms=NOW_MS - AGE_MS):
        (folder / name).write_text(content)
        os.utime(folder / name, ns=(0, mtime_ms * 1_000_000))
        return folder / name

    return written


@pytest.fixture
def compat(ic, folder):
    """Run a compat command; `words` of its output line by line."""

    def lines(*argv):
        env = {"INTERCORE_LEGACY_DIR": str(folder), "HOME": str(folder)}
        output = ic("compat", *argv, env=env)
        assert (output.exit, output.stderr) == (0, b"")
        if "--json" in argv:
            return json.loads(output.stdout)
        return [line.split("\t") for line in output.stdout.decode().splitlines()]

    return lines


# --- import ---------------------------------------------------------------------------------


def test_import_puts_json_into_state_and_guards_into_sentinels(compat, ic, write, folder):
    write("clavain-dispatch-7.json", '{"name":"x"}')
    write("clavain-stop-s1")

    lines = compat("import")

    assert lines == [
        ["imported", "dispatch", f"{folder}/clavain-dispatch-7.json", "state"],
        ["imported", "stop", f"{folder}/clavain-stop-s1", "sentinels"],
        ["2 imported, 0 skipped"],
    ]
    assert ic("state", "get", "dispatch", "7") == Output(0, b'{"name":"x"}\n')
    assert ic("sentinel", "check", "stop", "s1", "--interval=0").exit == 1


def test_a_second_import_imports_nothing(compat, write, folder):
    write("clavain-dispatch-7.json", "1")
    compat("import")

    assert compat("import") == [
        ["skipped", "dispatch", f"{folder}/clavain-dispatch-7.json", "already imported"],
        ["0 imported, 1 skipped"],
    ]


def test_an_imported_throttle_ends_when_the_files_would_have(compat, ic, write, clock):
    write("clavain-compound-last-s1")
    compat("import")
    check = ("sentinel", "check", "compound_throttle", "s1", "--interval=300")

    clock.wall_ms += 300_000 - AGE_MS - 1
    early = ic(*check)
    clock.wall_ms += 1
    due = ic(*check)

    assert (early.exit, due.exit) == (1, 0)


def test_a_dry_run_says_what_would_be_imported_and_imports_nothing(compat, write, folder):
    write("clavain-stop-s1")

    assert compat("import", "--dry-run") == [
        ["would import", "stop", f"{folder}/clavain-stop-s1", "sentinels"],
        ["1 would import, 0 skipped"],
    ]
    assert compat("import")[-1] == ["1 imported, 0 skipped"]


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_of_two_files_for_one_row_the_newer_is_imported(compat, write, folder, dry_run):
    place = folder / ".interband" / "interphase" / "bead"
    place.mkdir(parents=True)
    (place / "s1.json").write_text('{"version":"1.0.0","payload":{"id":"newer"}}')
    os.utime(place / "s1.json", ns=(0, (NOW_MS - 1000) * 1_000_000))
    older = write("clavain-bead-s1.json", '{"id":"older"}')

    lines = compat("import", *dry_run)

    assert lines[0][1:3] == ["bead", str(place / "s1.json")]
    assert lines[1] == [
        "skipped", "bead", str(older), "the database has other data that is as new or newer"
    ]  # fmt: skip
    assert lines[2][0].startswith("1 ")


def test_one_key_may_be_imported_alone(compat, write):
    write("clavain-stop-s1")
    write("clavain-handoff-s1")

    assert compat("import", "handoff")[-1] == ["1 imported, 0 skipped"]
    assert compat("import")[-1] == ["1 imported, 1 skipped"]


def test_more_files_than_fit_into_one_call_are_all_imported(compat, write):
    for number in range(MANY + 1):
        write(f"clavain-stop-{number}")

    assert compat("import")[-1] == [f"{MANY + 1} imported, 0 skipped"]


def test_large_files_are_imported_in_portions(compat, write, monkeypatch):
    monkeypatch.setattr(legacy, "PORTION_BYTES", 100)
    for number in range(5):
        write(f"clavain-dispatch-{number}.json", json.dumps("x" * 60))

    assert compat("import")[-1] == ["5 imported, 0 skipped"]


def test_import_as_json(compat, write, folder):
    write("clavain-stop-s1")
    write("clavain-dispatch-7.json", "{")

    assert compat("import", "--json") == {
        "dry_run": False,
        "imported": [
            {
                "key": "stop",
                "scope_id": "s1",
                "path": f"{folder}/clavain-stop-s1",
                "table": "sentinels",
            }
        ],
        "skipped": [
            {
                "key": "dispatch",
                "path": f"{folder}/clavain-dispatch-7.json",
                "reason": "invalid JSON payload: Expecting property name enclosed in double quotes"
                " at byte 1",
            }
        ],
    }


# --- cleanup --------------------------------------------------------------------------------


def test_cleanup_shows_what_it_would_remove_and_removes_it_when_told_to(compat, write):
    path = write("clavain-stop-s1")
    compat("import")

    assert compat("cleanup") == [
        ["would remove", "stop", str(path), "sentinels"],
        ["1 would remove, 0 left"],
    ]
    assert path.exists()
    assert compat("cleanup", "--apply") == [
        ["removed", "stop", str(path), "sentinels"],
        ["1 removed, 0 left"],
    ]
    assert not path.exists()


def test_cleanup_leaves_what_was_not_imported(compat, write):
    path = write("clavain-dispatch-7.json", "1")
    compat("import")
    write("clavain-dispatch-7.json", "2", mtime_ms=NOW_MS - 1000)

    lines = compat("cleanup", "--apply")

    assert lines[0] == ["left", "dispatch", str(path), "not imported yet"]
    assert path.read_text() == "2"


def test_cleanup_leaves_what_the_database_has_newer_unless_it_is_told_to(compat, ic, write):
    path = write("clavain-dispatch-7.json", "1")
    ic("state", "set", "dispatch", "7", "--value=2")

    left = compat("cleanup", "--apply")
    removed = compat("cleanup", "--apply", "--superseded")

    assert left[0][3] == "the database has other data that is as new or newer"
    assert removed[-1] == ["1 removed, 0 left"]
    assert not path.exists()


def test_cleanup_leaves_a_guard_with_content_that_nobody_imported(compat, write):
    path = write("clavain-handoff-s1", "notes")
    compat("import")

    lines = compat("cleanup", "--apply", "--superseded")

    assert lines[0][3] == "a guard file with 5 bytes of content, which were not imported"
    assert path.exists()


def test_cleanup_leaves_a_cache_past_its_time(compat, write):
    write("clavain-discovery-brief-p.cache", "[]")

    assert compat("cleanup", "--apply")[0][3] == "an expired cache"


def test_cleanup_leaves_what_is_refused(compat, folder):
    (folder / "clavain-stop-s1").symlink_to("/etc/passwd")

    lines = compat("cleanup", "--apply", "--superseded")

    assert lines[0][3] == "is a symbolic link"
    assert (folder / "clavain-stop-s1").is_symlink()


def test_cleanup_removes_nothing_before_all_questions_are_answered(
    invoke, write, monkeypatch, folder
):
    monkeypatch.setattr(legacy, "PORTION_BYTES", 1)
    paths = [write(f"clavain-dispatch-{number}.json", "11") for number in range(3)]
    errand = invoke("compat", "cleanup", "--apply", env={"INTERCORE_LEGACY_DIR": str(folder)})
    answers = [Answer(result=Verdicts(["same"], [])), Answer(error=Locked("held"))]

    output = run_errand(errand, lambda _: answers.pop(0))

    assert output.exit == 2
    assert all(path.exists() for path in paths)


def test_cleanup_as_json(compat, write):
    path = str(write("clavain-stop-s1"))
    compat("import")

    assert compat("cleanup", "--json") == {
        "applied": False,
        "removed": [{"key": "stop", "scope_id": "s1", "path": path, "table": "sentinels"}],
        "left": [],
    }


def test_a_file_that_appears_between_import_and_cleanup_is_left(compat, write):
    write("clavain-stop-s1")
    compat("import")
    late = write("clavain-stop-s2")

    assert compat("cleanup", "--apply")[-1] == ["1 removed, 1 left"]
    assert late.exists()


# --- status ---------------------------------------------------------------------------------


def test_status_keeps_the_originals_columns_and_sorts_the_keys(compat, ic, write):
    write("clavain-stop-s1")
    ic("state", "set", "dispatch", "7", "--value=2")
    ic("sentinel", "check", "dispatch", "8", "--interval=0")

    header, *rows = compat("status")

    assert "\t".join(header).startswith("KEY\t\t\tLEGACY\tDB\t")
    assert [row[0].rstrip() for row in rows] == KEYS == sorted(KEYS)
    assert all(len(row[0]) == 20 for row in rows)
    assert ["dispatch", "no", "yes", "0", "1", "1", "-", "2027-01-15T08:00:00Z"] in stripped(rows)
    assert ["stop", "yes", "no", "1", "0", "0", "2027-01-15T07:58:20Z", "-"] in stripped(rows)


def stripped(rows):
    return [[cell.strip() for cell in row] for row in rows]


def test_status_counts_files_that_import_would_refuse(compat, folder):
    (folder / "clavain-stop-s1").symlink_to("/etc/passwd")

    assert ["stop", "yes"] in [row[:2] for row in stripped(compat("status"))]


def test_status_does_not_count_what_our_mirror_wrote(compat, folder):
    place = folder / ".interband" / "interphase" / "lane"
    place.mkdir(parents=True)
    (place / "s1.json").write_text('{"version":"1.0.0","source":"intercore","payload":{}}')
    (place / "s2.json").write_text('{"version":"1.0.0","payload":{}}')

    (lane,) = [line for line in compat("status", "--json") if line["key"] == "lane"]

    assert (lane["legacy"], lane["files"]) == (True, 1)


def test_status_as_json_tells_times_twice(compat, write):
    write("clavain-stop-s1")
    compat("import")

    (stop,) = [line for line in compat("status", "--json") if line["key"] == "stop"]

    assert stop == {
        "key": "stop",
        "legacy": True,
        "db": True,
        "files": 1,
        "state": 0,
        "sentinels": 1,
        "legacy_at": (NOW_MS - AGE_MS) // 1000,
        "legacy_at_iso": "2027-01-15T07:58:20Z",
        "db_at": (NOW_MS - AGE_MS) // 1000,
        "db_at_iso": "2027-01-15T07:58:20Z",
    }


def test_status_without_a_usable_database_shows_the_files_and_says_why(invoke, write, folder):
    write("clavain-stop-s1")
    errand = invoke("compat", "status", env={"INTERCORE_LEGACY_DIR": str(folder)})

    output = run_errand(errand, lambda _: Answer(error=Corrupt("it is broken", hint="mend it")))

    rows = stripped(line.split("\t") for line in output.stdout.decode().splitlines())
    assert output.exit == 0
    assert output.stderr == b"icctl: compat status: it is broken; mend it\n"
    assert ["stop", "yes", "n/a", "1", "n/a", "n/a", "2027-01-15T07:58:20Z", "n/a"] in rows


def test_status_without_a_readable_directory_shows_the_database_and_says_why(ic, tmp_path):
    ic("sentinel", "check", "stop", "s1", "--interval=0")

    output = ic("compat", "status", env={"INTERCORE_LEGACY_DIR": str(tmp_path / "missing")})

    rows = stripped(line.split("\t") for line in output.stdout.decode().splitlines())
    assert output.exit == 0
    assert b"cannot read the directory" in output.stderr
    assert ["stop", "n/a", "yes", "n/a", "0", "1", "n/a", "2027-01-15T08:00:00Z"] in rows


# --- check ----------------------------------------------------------------------------------


def test_check_says_in_how_many_scopes_a_key_is_known(ic):
    ic("state", "set", "dispatch", "s1", "--value=1")
    ic("sentinel", "check", "dispatch", "s2", "--interval=0")

    assert ic("compat", "check", "dispatch") == Output(0, b"dispatch: 2 scope(s) in DB\n")
    assert ic("compat", "check", "stop") == Output(1, b"stop: not in DB\n")
    assert ic("compat", "check", "stop", "--json") == Output(1, b'{"key":"stop","scopes":0}\n')


@pytest.mark.parametrize(
    "key, shown", [("", ""), ("UPPER case", "UPPER case"), ("a\tb\n", "a\\tb\\n")]
)
def test_check_takes_any_key_and_prints_one_line(ic, key, shown):
    assert ic("compat", "check", key) == Output(1, f"{shown}: not in DB\n".encode())


@pytest.mark.parametrize(
    "error, exit_code",
    [
        (NoDatabase("there is none"), 1),
        (SchemaTooNew("too new"), 1),
        (Corrupt("broken"), 1),
        (Locked("held"), 2),
    ],
)
def test_check_without_a_usable_database_is_a_no_with_a_reason(shown, error, exit_code):
    output = shown("compat", "check", "stop", error=error)

    assert (output.exit, output.stdout) == (exit_code, b"")
    assert output.stderr.startswith(b"icctl: compat check: ")


# --- mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ["import", "nothing"],
        ["import", "stop", "handoff"],
        ["import", "--apply"],
        ["cleanup", "STOP"],
        ["cleanup", "--dry-run"],
        ["status", "stop"],
        ["check"],
        ["check", "a", "b"],
    ],
)
def test_mistakes_in_the_command_line_exit_with_3(ic, argv):
    output = ic("compat", *argv)

    assert (output.exit, output.stdout) == (3, b"")
    assert output.stderr.startswith(b"icctl: compat ")


@pytest.mark.parametrize("verb", ["import", "cleanup"])
def test_without_a_database_nothing_is_done_whatever_files_there_are(invoke, folder, verb):
    errand = invoke("compat", verb, env={"INTERCORE_LEGACY_DIR": str(folder)})

    output = run_errand(errand, lambda _: Answer(error=NoDatabase("there is none")))

    assert output.exit == 2
    assert output.stderr.startswith(f"icctl: compat {verb}: there is none; ".encode())


@pytest.mark.parametrize("verb", ["import", "cleanup"])
def test_a_directory_that_cannot_be_read_is_an_error(ic, tmp_path, verb):
    output = ic("compat", verb, env={"INTERCORE_LEGACY_DIR": str(tmp_path / "missing")})

    assert output.exit == 2
    assert b"cannot read the directory" in output.stderr


# --- errands --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["status", "import", "cleanup"])
def test_what_looks_at_files_is_an_errand_for_the_callers_own_process(invoke, verb):
    assert isinstance(invoke("compat", verb), Errand)


def test_planning_an_errand_looks_at_nothing(invoke):
    assert not isinstance(invoke("compat", "import", env={"INTERCORE_LEGACY_DIR": "/x"}), Need)


def test_an_errand_passes_warnings_and_traces_on(invoke, folder):
    errand = invoke("compat", "import", env={"INTERCORE_LEGACY_DIR": str(folder)})
    error = NoDatabase("there is none", hint="make one")

    output = run_errand(errand, lambda _: Answer(error=error, warnings=["w"], trace=["t"]))

    assert output.stderr == (
        b"icctl: compat import: warning: w\nicctl: t\n"
        b"icctl: compat import: there is none; make one\n"
    )


def test_a_bug_in_an_errand_is_told_and_logged(invoke, folder):
    errand = invoke("compat", "import", env={"INTERCORE_LEGACY_DIR": str(folder)})

    def fail(_call):
        raise ZeroDivisionError

    output = run_errand(errand, fail)

    assert output.exit == 2
    assert b"internal error, reference" in output.stderr
    assert isinstance(output.bug.__cause__, ZeroDivisionError)


def test_the_calls_of_an_errand_carry_the_callers_world(invoke, folder):
    errand = invoke(
        "compat", "import", "--db", "x.db", "--verbose",
        env={"INTERCORE_LEGACY_DIR": str(folder), "CLAUDE_SESSION_ID": "me"}, request_id="r",
    )  # fmt: skip
    calls = []

    run_errand(errand, lambda call: calls.append(call) or Answer(error=NoDatabase("none")))

    (call,) = calls
    assert (call.where.db, call.writer.pid, call.writer.session) == ("x.db", 41, "me")
    assert call.verbose
    assert call.request_id is None
