"""The units of systemd, without one."""

import os

import pytest

from icd.admin.service import systemd as units
from icd.errors import IcError, Misconfigured


@pytest.fixture
def look(tmp_path):
    def found(python="/usr/bin/python3"):
        return units.look({"XDG_CONFIG_HOME": str(tmp_path)}, python)

    return found


def test_the_directory_is_that_of_the_users_own_units():
    assert units.directory({"HOME": "/home/me"}) == "/home/me/.config/systemd/user"
    assert units.directory({"HOME": "/home/me", "XDG_CONFIG_HOME": "/c"}) == "/c/systemd/user"
    assert units.directory({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}).startswith("/h/")


def test_without_a_home_there_is_no_directory():
    with pytest.raises(Misconfigured, match="HOME is not set"):
        units.directory({"HOME": ""})


@pytest.mark.parametrize(
    "path, word",
    [
        ("/usr/bin/python3", '"/usr/bin/python3"'),
        ("/with spaces/é", '"/with spaces/é"'),
        ("/100%/$x", '"/100%%/$x"'),
    ],
)
def test_a_path_becomes_one_word(path, word):
    assert units.quoted(path) == word


@pytest.mark.parametrize("odd", ['"', "'", "\\", "\n", "\t", "\x7f", "\udcff"])
def test_a_path_that_systemd_refuses_is_told_before_systemd_does(odd):
    with pytest.raises(Misconfigured, match="systemd cannot start a program"):
        units.quoted(f"/a{odd}b")


def test_what_was_written_is_current_until_it_is_changed(look):
    assert {unit.found for unit in look()} == {"missing"}

    for unit in look():
        units.write(unit)

    assert {unit.found for unit in look()} == {"current"}
    assert [unit.found for unit in look("/elsewhere/python")] == ["current", "outdated", "current"]


def test_no_placeholder_is_left(look):
    assert not [unit.name for unit in look() if "@" in unit.text]


def test_every_unit_starts_with_the_mark_by_which_it_is_known(look):
    assert all(unit.text.startswith(units.MARK) for unit in look())


def test_the_sandbox_is_chosen_if_wanted_or_there(look):
    def names(**options):
        return [unit.name for unit in units.chosen(look(), **options)]

    assert names(sandbox=False) == [units.SOCKET, units.SERVICE]
    assert names(sandbox=True) == [units.SOCKET, units.SERVICE, units.SANDBOX]
    units.write(look()[2])
    assert names(sandbox=False) == [units.SOCKET, units.SERVICE, units.SANDBOX]


def test_a_file_is_replaced_as_a_whole_and_readable_by_all(look):
    old = os.umask(0o077)
    try:
        units.write(look()[0])
    finally:
        os.umask(old)

    path = look()[0].path
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert os.listdir(os.path.dirname(path)) == ["icd.socket"]


def test_a_file_that_is_gone_already_is_as_good_as_removed(look):
    units.remove(look()[0])

    assert look()[0].found == "missing"


def test_a_directory_in_the_way_is_told(look):
    os.makedirs(look()[0].path)

    with pytest.raises(IcError, match=r"cannot read .*icd\.socket: Is a directory"):
        look()


def test_a_pipe_in_the_way_is_of_somebody_else_and_not_waited_for(look):
    path = look()[0].path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.mkfifo(path)

    assert look()[0].found == "foreign"
