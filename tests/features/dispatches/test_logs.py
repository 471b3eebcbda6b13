"""`dispatch logs`: what an agent printed, also while it goes on, and never a stranger's choice."""

import json
import os
import subprocess
import time

import pytest

from icd import trust
from icd.features.dispatches import logs
from icd.features.dispatches import store as dispatches
from icd.values.processes import Writer
from tests.conftest import NOW_MS
from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE


@pytest.fixture
def made(conn, database, tmp_path):
    """A dispatch of a trusted database; its output file, and a way to ask for the logs of it."""
    path = tmp_path / "out.md"
    row = dispatches.create(
        conn, agent_type="codex", project_dir="/p", output_file=str(path), actor=Writer(pid=41),
        now_ms=NOW_MS,
    )  # fmt: skip
    trust.grant(str(tmp_path), database.path, scripts={})
    return row.id, path


@pytest.fixture
def printed(ic, made, tmp_path):
    def ask(*flags, home=str(tmp_path)):
        return ic("dispatch", "logs", made[0], *flags, env={"HOME": home})

    return ask


def test_the_last_lines_are_printed_however_long_the_file_is(printed, made):
    _, path = made
    lines = [f"line {number} {'x' * 90}" for number in range(3000)]
    path.write_text("\n".join(lines))  # its last line has no end yet

    assert printed("-n", "2").stdout.decode().splitlines() == lines[-2:]
    assert printed("--lines=2500").stdout.decode().splitlines() == lines[-2500:]
    assert len(printed().stdout.splitlines()) == logs.LINES
    assert printed("-n", "0").stdout == b""
    path.write_text("one\ntwo\n")
    assert printed("-n", "1").stdout == b"two\n"
    assert json.loads(printed("--json").stdout)["lines"] == ["one", "two"]


def test_what_a_script_prints_is_in_the_file_beside_it(printed, made):
    _, path = made
    path.write_text("the result\n")
    path.with_name("out.md.log").write_text("what it does\n")

    assert printed().stdout == b"what it does\n"


def test_nothing_in_it_commands_a_terminal(printed, made):
    _, path = made
    path.write_bytes(
        b"\x1b[1;32mgreen\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\r\n"
        b"10%\r50%\r100%\n\x9b31mraw \xc2\x9b31m c1 \xe2\x80\xae\x00\x1b[\n"
    )

    assert printed().stdout.decode() == (
        "green link\n100%\n\ufffd31mraw \\u009b31m c1 \\u202e\\u0000\\u001b[\n"
    )


def test_what_is_not_there_yet_is_empty_and_what_is_no_plain_file_is_refused(printed, made):
    _, path = made
    assert (printed().exit, printed().stdout) == (0, b"")

    secret = path.with_name("secret")
    secret.write_text("key\n")
    os.symlink(secret, path)
    assert (printed().exit, printed().stdout) == (2, b"")
    path.unlink()
    os.mkfifo(path)
    assert b"is not a plain file of yours" in printed().stderr


def test_a_strangers_database_names_no_file_to_be_read(printed, made, tmp_path):
    _, path = made
    path.write_text("key\n")
    stranger = tmp_path / "home"
    stranger.mkdir()

    refused = printed(home=str(stranger))
    assert (refused.exit, refused.stdout) == (2, b"")
    assert b"is not trusted" in refused.stderr


def test_an_unknown_dispatch_and_two_ways_to_print_are_refused(ic, printed):
    assert ic("dispatch", "logs", "nobody00").exit == 1
    assert printed("-f", "--json").exit == 3


@pytest.mark.usefixtures("door")
def test_what_is_added_is_printed_until_the_agent_ends(agents):
    os.mkfifo(agents.project / "gate")
    dispatch = agents.sh("echo one; read word < gate; echo $word; printf last; exit 3")
    env = {**CLEAN, "HOME": str(agents.project), **agents.env}
    with subprocess.Popen(
        [processes.door / "icctl", "dispatch", "logs", dispatch, "-f"], cwd=agents.project,
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as following:  # fmt: skip
        assert following.stdout is not None
        assert following.stdout.readline() == b"one\n"
        (agents.project / "gate").write_text("two\n")
        rest, told = following.communicate(timeout=PATIENCE)

    assert (rest, told, following.returncode) == (b"two\nlast", b"", 0)


def test_a_line_of_a_megabyte_is_shown_in_one_pass(printed, made):
    _, path = made
    line = "x" * 1_000_000
    path.write_text(f"{line}\nold\rnew\n")
    began = time.process_time()

    assert printed("-n", "2").stdout.decode().splitlines() == [line, "new"]
    assert json.loads(printed("--json").stdout)["lines"] == [line, "new"]

    assert time.process_time() - began < 5
