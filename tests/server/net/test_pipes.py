"""What stands where the daemon looks for files of a project: it never waits for any of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import Daemon, running


def _link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = {"pipe": os.mkfifo, "link to a pipe": _link_to_a_pipe, "zeros": _link_to_zeros}
PLACES = {
    ".clavain/intercore.db-journal": {"bad_path"},
    ".clavain/intercore.db-wal": {"bad_path"},
    ".clavain/intercore.db-shm": {"bad_path"},
    ".clavain/intercore.db.lock": {"bad_path", "io_error"},
    ".clavain/intercore.toml": {"misconfigured"},
    ".clavain/hooks": {None},
    ".clavain/hooks/on-event": {None},
    ".git": {None},
}


def answered(daemon: Daemon, project: Path) -> str | None:
    """The name of the error, if it is one."""
    params = {"source": "ci", "type": "t", "cwd": str(project)}
    response = daemon.respond("events.record", **params)
    return response["error"]["data"]["name"] if "error" in response else None


@pytest.mark.parametrize("make", [os.mkfifo, _link_to_zeros], ids=["pipe", "zeros"])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_in_a_project_keeps_nobody_waiting(
    place: str, make: Callable[[Path], None], initialized: Path
) -> None:
    path = initialized / place
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    make(path)

    with running() as daemon:
        error = answered(daemon, initialized)
        stopped = daemon.stop()

    assert error in PLACES[place]
    assert stopped == 0


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("place", [".git", "tree/commondir"])
def test_what_git_never_made_keeps_nobody_waiting(
    place: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    """A caller without a database: git is asked for the main checkout."""
    (tmp_path / "tree").mkdir()
    if place != ".git":
        (tmp_path / ".git").write_text("gitdir: tree\n")
    make(tmp_path / place)

    with running() as daemon:
        error = answered(daemon, tmp_path)
        stopped = daemon.stop()

    assert error == "no_database"
    assert stopped == 0


@pytest.mark.parametrize("make", [os.mkfifo, _link_to_zeros], ids=["pipe", "zeros"])
def test_settings_of_the_user_that_are_no_file_keep_nobody_waiting(
    make: Callable[[Path], None], initialized: Path
) -> None:
    with running() as daemon:
        directory = daemon.home / ".config" / "intercore"
        directory.mkdir(parents=True)
        make(directory / "config.toml")

        error = answered(daemon, initialized)
        stopped = daemon.stop()

    assert error == "misconfigured"
    assert stopped == 0
