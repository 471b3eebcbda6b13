"""The table of checks, the safe repairs, and what they leave alone."""

import os
import stat

import pytest

from icd.admin.doctor import checks
from icd.admin.doctor.checks import carry_out
from icd.admin.doctor.context import Repair, Sight, ok, warning
from icd.admin.doctor.project import permissions
from icd.db.database import GITIGNORE


def test_where_a_look_finds_nothing_the_table_says_what_is_fine(scene, database):
    fine = "the directory and its files are private, with the right owner"

    (found,) = checks._findings(permissions, scene(uid=os.geteuid()), database.path)

    assert found == ok("permissions", fine)


def test_where_a_look_finds_something_nothing_else_is_said(scene, database):
    os.chmod(database.path, 0o644)

    (found,) = checks._findings(permissions, scene(uid=os.geteuid()), database.path)

    assert found.severity == "warning"


def test_what_goes_wrong_while_looking_is_a_finding(scene):
    (found,) = checks._findings(permissions, scene(uid=0), "/nonexistent/intercore.db")

    assert (found.check, found.severity) == ("permissions", "error")
    assert "look at /nonexistent/intercore.db" in found.message


# --- repairs --------------------------------------------------------------------------------------


@pytest.fixture
def repair(scene):
    """Carry a repair out; how it ended, and what is said about it."""

    def ended(*given, **facts):
        finding = warning("check", "it is broken", "do", Repair(*given))
        (found,) = carry_out(scene(**{"uid": os.geteuid()} | facts), [finding])
        return found.severity, found.message

    return ended


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_mode_is_set(repair, tmp_path):
    file = tmp_path / "file"
    file.touch(mode=0o000)

    ended = repair("chmod", str(file), 0o600)

    assert ended == ("fixed", f"set the mode of {file} to 0600")
    assert mode(file) == 0o600


def test_a_mode_is_not_set_through_a_link(repair, tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch(mode=0o644)
    link.symlink_to(file)

    ended = repair("chmod", str(link), 0o600)

    assert ended == ("error", "not repaired: it is broken: it is a symlink")
    assert mode(file) == 0o644


def test_a_file_of_another_user_is_left_alone(repair, tmp_path):
    file = tmp_path / "file"
    file.touch(mode=0o644)

    ended = repair("chmod", str(file), 0o600, uid=os.geteuid() + 1)

    assert ended == ("error", "not repaired: it is broken: it belongs to another user")
    assert mode(file) == 0o644


def test_a_leftover_is_removed(repair, tmp_path):
    file = tmp_path / "file"
    file.touch()

    assert repair("remove", str(file)) == ("fixed", f"removed {file}")
    assert not file.exists()


def test_what_is_gone_already_is_said(repair, tmp_path):
    severity, message = repair("remove", str(tmp_path / "file"))

    assert severity == "error"
    assert message.endswith("No such file or directory")


def test_a_gitignore_is_written_but_never_over_another(repair, tmp_path):
    file = tmp_path / ".gitignore"

    assert repair("write gitignore", str(file)) == ("fixed", f"wrote {file}")
    assert file.read_text() == GITIGNORE
    file.write_text("mine")
    assert repair("write gitignore", str(file))[0] == "error"
    assert file.read_text() == "mine"


def test_a_socket_is_removed_by_whoever_can_look_at_sockets(repair):
    cleared = []
    sight = Sight(look=lambda _deadline: [], clear=lambda path: cleared.append(path) or "")
    busy = Sight(look=lambda _deadline: [], clear=lambda _path: "another process listens there now")

    assert repair("remove socket", "/a", sight=sight) == ("fixed", "removed the socket /a")
    assert cleared == ["/a"]
    assert repair("remove socket", "/a", sight=busy)[1].endswith(
        "another process listens there now"
    )
