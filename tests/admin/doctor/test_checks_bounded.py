"""A look at what never answers ends all the same."""

import os
import time

from icd.admin.doctor.checks import bounded
from icd.admin.doctor.context import Repair, note, ok
from tests.support.processes import PATIENCE, until

SOON = 0.3


def later() -> float:
    return time.monotonic() + PATIENCE


def test_findings_come_back_as_they_were_made():
    made = [ok("a", "fine"), note("b", "odd \udcff byte", "do", Repair("chmod", "/x\udcff", 0o600))]

    found = bounded(lambda: iter(["a place", *made]), later())

    assert (found.findings, found.stuck, found.bug) == (made, None, None)


def test_what_hangs_is_named_and_what_was_found_before_is_kept(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    children = tmp_path / "children"

    def steps():
        children.write_text(str(os.getpid()))
        yield "a place"
        yield ok("a", "fine")
        yield "a pipe"
        pipe.open("rb")  # until somebody writes: never

    found = bounded(steps, time.monotonic() + SOON)

    assert (found.findings, found.stuck) == ([ok("a", "fine")], "a pipe")
    until(lambda: not _runs(int(children.read_text())))


def _runs(pid: int) -> bool:
    with_status, _status = os.waitpid(pid, os.WNOHANG) if _is_child(pid) else (pid, 0)
    return with_status != pid


def _is_child(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[1]) == os.getpid()
    except FileNotFoundError:
        return False


def test_a_bug_is_told_with_its_traceback():
    def steps():
        yield "a place"
        raise RuntimeError("oh")

    found = bounded(steps, later())

    assert found.stuck is None
    assert found.bug is not None
    assert "RuntimeError: oh" in found.bug


def test_what_the_child_prints_reaches_nobody(capfd):
    def steps():
        os.write(1, b"out")
        os.write(2, b"err")
        yield ok("a", "fine")

    found = bounded(steps, later())

    assert found.findings == [ok("a", "fine")]
    assert capfd.readouterr() == ("", "")


def test_many_findings_do_not_fill_the_pipe_for_good():
    found = bounded(lambda: (ok("a", "x" * 1000) for _ in range(1000)), later())

    assert len(found.findings) == 1000
