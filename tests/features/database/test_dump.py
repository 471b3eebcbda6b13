"""dump.*: files of JSON lines."""

import json
import os
import resource
import stat

import msgspec
import pytest
from msgspec import structs

from icd.app import line_files as lines
from icd.app import registry
from icd.app.invocation import Errand
from icd.db import migrate
from icd.errors import BadPath, DeadlineExceeded, InvalidName, SchemaTooNew, UnreadableInput
from tests.support.run_lines import AGENT, ALL, DISPATCH, RUN

MIGRATIONS = len(migrate.pending(0))
COUNTERS = 7
ROWS = MIGRATIONS + COUNTERS  # of an empty database
ROW = {"key": "k", "scope_id": "s"}


@pytest.fixture
def file(result, tmp_path):
    """An export of two rows, one of which is gone by now."""
    result("state.set", **ROW, payload='{"a": "é\\n"}')
    result("state.set", key="k", scope_id="gone", payload="1")
    path = tmp_path / "file"
    result("dump.export", file=str(path))
    result("state.delete", key="k", scope_id="gone")
    return path


def test_an_export_is_lines_of_json_in_a_private_file(file, result):
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    assert [line["kind"] for line in lines] == [
        "header", *["migrations"] * MIGRATIONS, *["counters"] * COUNTERS, "state", "state", "end",
    ]  # fmt: skip
    assert lines[ROWS + 1]["payload"] == '{"a": "é\\n"}'
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_an_export_tells_what_it_wrote(result, database, tmp_path):
    done = result("dump.export", file=str(tmp_path / "file"))

    assert (done.path, done.file, done.rows) == (database.path, str(tmp_path / "file"), ROWS)


def test_an_export_overwrites_nothing(ask, file):
    before = file.read_bytes()

    assert isinstance(ask("dump.export", file=str(file)).error, BadPath)
    assert file.read_bytes() == before


def test_an_export_that_fails_leaves_nothing_behind(ask, conn, tmp_path):
    conn.execute("DROP TABLE requests")

    assert ask("dump.export", file=str(tmp_path / "file")).error is not None
    assert not (tmp_path / "file").exists()


def test_an_import_brings_back_what_is_gone_and_leaves_the_rest(result, file, database):
    done = result("dump.import", file=str(file))

    assert (done.path, done.file, done.imported, done.skipped) == (database.path, str(file), 1, 1)
    assert bytes(result("state.get", key="k", scope_id="gone").payload) == b"1"


def test_an_import_is_all_or_nothing(ask, result, file):
    lines = file.read_text("utf-8").splitlines(keepends=True)
    bad = lines[-2].replace('"key":"k"', '"key":"Not a key"')
    file.write_text("".join([*lines[:-1], bad, lines[-1]]), "utf-8")

    error = ask("dump.import", file=str(file)).error

    assert isinstance(error, InvalidName)
    assert error.message.startswith(f"{file}:{ROWS + 4}: ")
    assert result("state.get", key="k", scope_id="gone") is None


@pytest.mark.parametrize(
    "line",
    [AGENT, structs.replace(RUN, status="paused"), structs.replace(DISPATCH, turns=-1)],
    ids=["an agent without its run", "a status that there is not", "a negative number"],
)
def test_a_hostile_line_about_a_run_is_refused_and_nothing_is_imported(ask, result, file, line):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:-1], msgspec.json.encode(line), b"\n", lines[-1]]))

    error = ask("dump.import", file=str(file)).error

    assert isinstance(error, UnreadableInput)
    assert error.message.startswith(f"{file}:{ROWS + 4}: ")
    assert error.hint
    assert result("state.get", key="k", scope_id="gone") is None


def test_a_run_and_all_that_belongs_to_it_come_back(result, conn, tmp_path):
    """With foreign keys in force, as in every database that is in use."""
    tables = [line.__struct_config__.tag for line in ALL]
    for line, table in zip(ALL, tables, strict=True):
        values = structs.astuple(line)
        conn.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    result("dump.export", file=str(tmp_path / "file"))
    conn.execute("UPDATE runs SET updated_ms = 0, goal = 'forgotten'")
    conn.execute("DELETE FROM run_skips")
    conn.execute("DELETE FROM dispatches")

    done = result("dump.import", file=str(tmp_path / "file"))

    assert (done.imported, done.skipped) == (3, 3)
    for line, table in zip(ALL, tables, strict=True):
        assert conn.execute(f"SELECT * FROM {table}").fetchall() == [structs.astuple(line)]
    assert conn.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert conn.execute("PRAGMA foreign_key_check").fetchall() == []


def cut(text):
    return text[: text.index('{"kind":"end"}')]


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda _: "", "is truncated after line 0"),
        (cut, f"is truncated after line {ROWS + 3}"),
        (lambda text: text[:-8], f":{ROWS + 4}: "),
        (lambda text: text + "{}", f":{ROWS + 5}: unexpected content after the end"),
        (lambda text: "text\n" + text, ":1: "),
        (lambda text: text.partition("\n")[2], ":1: the first line is not a header"),
        (lambda text: text.replace("intercore-export", "other"), ":1: "),
        (
            lambda text: text.replace(f'"schema":{migrate.LATEST}', '"schema":1000'),
            ":1: it has schema v1000",
        ),
        (lambda text: text.replace('"scope_id":"s"', '"scope":"s"'), f":{ROWS + 2}: "),
        (lambda text: text.replace('"version":1,', '"version":-1,'), f":{ROWS + 2}: "),
        (lambda text: text.replace('"kind":"counters"', '"kind":"tokens"'), f":{MIGRATIONS + 2}: "),
    ],
)
def test_what_is_no_complete_export_is_refused(ask, file, change, told):
    file.write_text(change(file.read_text("utf-8")), "utf-8")

    error = ask("dump.import", file=str(file)).error

    assert isinstance(error, UnreadableInput)
    assert error.message.startswith(f"{file}{told}" if told.startswith(":") else f"{file} {told}")
    assert error.hint


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(ask, file):
    file.write_bytes(b" " * (lines.LINE_BYTES + 1))

    error = ask("dump.import", file=str(file)).error

    assert error.message == f"{file}:1: longer than {lines.LINE_BYTES} bytes"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: None])
def test_what_is_no_regular_file_is_refused(ask, tmp_path, make):
    path = tmp_path / "given"
    make(path)

    error = ask("dump.import", file=str(path)).error

    assert isinstance(error, UnreadableInput)
    assert str(path) in error.message


@pytest.mark.parametrize(
    "title", ["a\tb\n\x00\x01\x7f", "T" * 100_000, "€" * 100_000, "ghp_" + "0" * 36, "x\u2028\x85"]
)
def test_whatever_can_be_submitted_can_be_imported(ask, result, conn, tmp_path, title):
    """The log quotes it, too."""
    texts = {"title": title, "summary": title, "url": title}
    found = result("discovery.submit", source="s", source_id="1", **texts)
    before = result("discovery.get", id=found.id)
    result("dump.export", file=str(tmp_path / "file"))
    for table in ("events", "discoveries"):
        conn.execute(f"DELETE FROM {table}")
    conn.execute("DELETE FROM sqlite_sequence")

    done = ask("dump.import", file=str(tmp_path / "file"))

    assert (done.error, done.result and done.result.imported) == (None, 2)
    assert result("discovery.get", id=found.id) == before


def test_the_largest_payload_survives(result, tmp_path):
    payload = json.dumps(["\\" * 100_000] * 5, ensure_ascii=False)
    result("state.set", **ROW, payload=payload)
    result("dump.export", file=str(tmp_path / "file"))
    result("state.delete", **ROW)

    assert result("dump.import", file=str(tmp_path / "file")).imported == 1
    assert bytes(result("state.get", **ROW).payload).decode() == payload


def test_a_header_of_a_later_intercore_is_told_from_nonsense(ask, file):
    text = file.read_text("utf-8").replace(
        f'"schema":{migrate.LATEST}', '"schema":9999,"compressed":false'
    )
    file.write_text(text, "utf-8")

    assert isinstance(ask("dump.import", file=str(file)).error, SchemaTooNew)


def test_an_export_ends_at_its_deadline_and_leaves_nothing_behind(ask, still, tmp_path):
    error = ask("dump.export", file=str(tmp_path / "x"), deadline=still.seconds + 1e-6).error

    assert isinstance(error, DeadlineExceeded)
    assert not (tmp_path / "x").exists()


def test_an_import_ends_at_its_deadline_with_nothing_imported(ask, result, still, file):
    error = ask("dump.import", file=str(file), deadline=still.seconds + 1e-6).error

    assert isinstance(error, DeadlineExceeded)
    assert result("state.get", key="k", scope_id="gone") is None


def test_a_full_disk_is_told_with_the_file_that_does_not_fit(ask, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # Python ignores SIGXFSZ
    try:
        error = ask("dump.export", file=str(tmp_path / "x")).error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert error.message.startswith(f"cannot write {tmp_path / 'x'}: ")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["dump.export", "dump.import"])
def test_files_that_a_caller_names_are_for_its_own_process(name, call):
    assert registry.find(name).runs.local
    with pytest.raises(BadPath, match="absolute"):
        call(name, file="relative")


# --- `icctl export`, `icctl import` ---------------------------------------------------------------


def test_what_was_exported_can_be_imported(stdout):
    stdout("state", "set", "k", "s", "--value=1")

    assert stdout("export", "file") == f"exported {ROWS + 1} rows\n"
    stdout("state", "delete", "k", "s")
    assert stdout("import", "file") == "imported 1 rows, skipped 0\n"
    assert stdout("state", "get", "k", "s") == "1\n"
    assert stdout("import", "file") == "imported 0 rows, skipped 1\n"


def test_as_json(stdout, project, database):
    file = {"path": database.path, "file": str(project / "file")}

    assert json.loads(stdout("export", "file", "--json")) == file | {"rows": ROWS}
    assert json.loads(stdout("import", "file", "--json")) == file | {"imported": 0, "skipped": 0}


@pytest.mark.parametrize("verb", ["export", "import"])
def test_files_are_handled_by_the_callers_own_process(invoke, verb):
    assert isinstance(invoke(verb, "file"), Errand)


@pytest.mark.parametrize("verb", ["export", "import"])
def test_an_empty_name_is_a_mistake(ic, verb):
    assert ic(verb, "").exit == 3


def test_a_line_that_is_wrong_is_named(ic, project):
    (project / "file").write_text("text\n")

    output = ic("import", "file")

    assert output.exit == 2
    assert output.stderr.startswith(f"icctl: import: {project / 'file'}:1: ".encode())
    assert output.stderr.endswith(b"nothing was imported\n")
