"""The library's own locks, where there is no program: the same rules, in a shell."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from icd import procfs
from icd.features.locks import owners, store
from icd.features.locks.directory import Place
from icd.features.locks.owners import Owner
from tests.support.processes import CLEAN, PATIENCE, until

ROOT = Path(__file__).parents[3]
HERE = owners.here()
OURS = owners.of_process(os.getpid(), HERE, 1)


def shell(place: Place, script: str, **env: str) -> "subprocess.CompletedProcess[str]":
    given = {**CLEAN, "INTERCORE_LOCK_DIR": place.base, "INTERCORE_BIN": "/nonexistent", **env}
    return subprocess.run(
        ["bash", "-c", f"source {ROOT}/lib-intercore.sh\n{script}"],
        env=given, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def write(place: Place, owner: Owner) -> None:
    place.make("n")
    Path(place.lock("n", "s")).mkdir(mode=0o700)
    Path(place.lock("n", "s"), "owner.json").write_bytes(msgspec.json.encode(owner))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"start": OURS.start - 1},
        {"boot": "another"},
        {"boot": "another", "host": "elsewhere"},
        {"pidns": "pid:[1]"},
        {"pidns": ""},
        {"host": "elsewhere"},
        {"host": "elsewhere", "boot": ""},
        {"host": "elsewhere", "pidns": ""},
        {"host": "elsewhere", "start": 1},
        {"host": f"{HERE.host.partition('.')[0]}.example.org"},
        {"start": 0, "boot": "", "pidns": ""},
        {"pid": 0},
        {"pid": 0, "start": 0, "boot": "", "pidns": ""},
        {"pid": 4194304},
        {"pid": -1},
        {"owner": "a word"},
        {"owner": 'a "word" \\ and: more'},
    ],
)
def test_the_library_judges_an_owner_as_the_program_does(place: Place, changes: dict) -> None:
    write(place, msgspec.structs.replace(OURS, **changes))
    expected = store.look(place, "n", "s", HERE)

    told = shell(place, '_intercore_late here begin n s; _intercore_look "$lock"; echo "$liveness"')

    assert expected is not None
    assert told.stdout.strip() == expected.liveness


def test_a_process_whose_first_thread_alone_has_ended_keeps_its_lock(place: Place) -> None:
    script = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        until(lambda: procfs.stat(process.pid).state == "Z")
        write(place, owners.of_process(process.pid, HERE, 1))

        refused = shell(place, "intercore_lock n s 10ms")
        process.kill()

    assert refused.returncode == 1
    assert "liveness: alive" in refused.stderr
    assert shell(place, "intercore_lock n s 10ms").returncode == 0


def test_directories_that_are_not_ours_alone_are_refused(place: Place, unfit: Path) -> None:
    refused = shell(place, "intercore_lock n s 10ms; echo $?; intercore_unlock n s; echo $?")

    assert refused.stdout == "2\n0\n"
    assert refused.stderr.count(str(unfit)) == 2


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_an_owner_that_is_no_plain_file_is_none(place: Place, tmp_path: Path, kind: str) -> None:
    write(place, msgspec.structs.replace(OURS, start=1))
    record = Path(place.lock("n", "s"), "owner.json")
    record.rename(tmp_path / "record")
    if kind == "link":
        record.symlink_to(tmp_path / "record")
    elif kind == "pipe":
        os.mkfifo(record)
    else:
        record.mkdir()

    refused = shell(place, "intercore_lock n s 10ms")

    assert refused.returncode == 1
    assert "owner unknown" in refused.stderr


def test_a_decider_that_is_stopped_keeps_nobody_beyond_the_timeout(place: Place) -> None:
    write(place, msgspec.structs.replace(OURS, start=1))
    fd = os.open(place.name("n"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)

    refused = shell(place, "intercore_lock n s 50ms; echo $?; intercore_lock n free; echo $?")
    kept = shell(place, "intercore_lock n mine && intercore_unlock n mine; echo $?")
    os.close(fd)

    assert refused.stdout == "1\n0\n"
    assert "liveness: dead" in refused.stderr
    assert (kept.stdout, kept.stderr.count("could not be released")) == ("0\n", 1)
    assert shell(place, "intercore_lock n s 50ms").returncode == 0


def test_without_flock_a_lock_ends_with_the_shell_and_that_is_told(
    place: Place, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("mkdir", "mv", "rm", "stat", "readlink"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}" if Path(f"/usr/bin/{tool}").exists()
                                  else f"/bin/{tool}")  # fmt: skip

    kept = shell(place, f"PATH={tools}; intercore_lock n s && intercore_unlock n s; echo $?")

    assert (kept.stdout, kept.stderr.count("could not be released")) == ("0\n", 1)
    assert shell(place, "intercore_lock n s 10ms").returncode == 0


def test_what_the_shell_writes_is_what_the_program_reads(place: Place) -> None:
    script = "intercore_lock n s && cat $INTERCORE_LOCK_DIR/n/s/owner.json; echo; echo $$"

    record, pid = shell(place, script).stdout.splitlines()

    found = owners.decode(record.encode())
    assert found is not None
    assert json.loads(record).keys() == set(Owner.__struct_fields__) - {"request"}  # it has no id
    assert (found.pid, found.boot, found.pidns) == (int(pid), HERE.boot, HERE.pidns)
    assert found.start > 0


def test_a_full_disk_is_told_and_leaves_neither_a_lock_nor_debris(place: Place) -> None:
    """The limit of a file's size stands for the disk: the owner's record cannot be written."""
    place.make("n")

    failed = shell(place, "trap '' XFSZ; ulimit -f 0; intercore_lock n s; echo $?")

    assert failed.stdout == "2\n"
    assert os.listdir(place.work) == os.listdir(place.name("n")) == []


def test_an_owner_in_quotes_is_somebody_and_keeps_its_lock(place: Place) -> None:
    write(place, msgspec.structs.replace(OURS, owner='a "word"'))

    cleaned = shell(place, "intercore_lock_clean 0s; intercore_lock n s 10ms; echo $?")

    assert cleaned.stdout == "1\n"
    assert "liveness: alive" in cleaned.stderr


STRICT = """
set -eEuo pipefail
IFS=$'\\n\\t'
trap 'echo trapped; exit 9' ERR
"""


def test_a_strict_script_waits_for_a_lock_and_gives_it_back(place: Place) -> None:
    write(place, OURS)
    script = (
        STRICT
        + """
(until [[ -e waiting ]]; do :; done; mv locks/n/s gone) &
intercore_unlock n s
: >waiting
intercore_lock n s 40s
intercore_unlock n s
intercore_lock_clean 0s
[[ ! -e locks/n/s && $IFS == $'\\n\\t' ]]
"""
    )

    done = shell(place, f"cd {Path(place.base).parent}\n{script}")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_that_was_killed_may_have_taken_the_lock(place: Place, tmp_path: Path) -> None:
    program = tmp_path / "icctl"
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    program.chmod(0o700)

    told = shell(place, "intercore_lock n s 10ms; echo $?", INTERCORE_BIN=str(program))

    assert told.stdout == "2\n"
    assert "ended with status 137; the lock may be held by now" in told.stderr


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 0\n", None])
def test_a_subshell_that_outlived_its_shell_takes_no_lock(
    place: Place, tmp_path: Path, program: str | None
) -> None:
    if program:
        (tmp_path / "icctl").write_text(program)
        (tmp_path / "icctl").chmod(0o700)
    script = "(while [[ -e /proc/$$/cwd ]]; do sleep 0.01; done; intercore_lock n s; echo $?) &"

    told = shell(place, script, INTERCORE_BIN=str(tmp_path / "icctl"))

    assert told.stdout == "2\n"
    assert "a shell that has not ended" in told.stderr


def test_a_shell_that_ends_while_its_subshell_waits_gets_no_lock(place: Place) -> None:
    write(place, OURS)
    script = """
cd "$INTERCORE_LOCK_DIR"
_intercore_read here; _intercore_known=" here "
_intercore_uptime() { # the first look at the clock: the wait begins
    uptime=0
    : >waiting
    while [[ -e /proc/$$/cwd ]]; do sleep 0.01; done
    [[ ! -e n/s ]] || mv n/s gone
}
(intercore_lock n s 40s; echo $?) &
until [[ -e waiting ]]; do sleep 0.01; done
"""

    told = shell(place, script)

    assert told.stdout == "2\n"
    assert shell(place, "intercore_lock n s 10ms").returncode == 0


def test_cleaning_touches_nothing_but_locks_whatever_they_are_called(
    place: Place, tmp_path: Path
) -> None:
    """A name with a newline in it, which the original accepts, is one name, and no path."""
    place.make("n", "precious")
    Path(place.lock("n", "a\nprecious")).mkdir()
    Path(place.lock("n", "file")).touch()
    (tmp_path / "precious").mkdir()
    for path in (tmp_path / "precious", *Path(place.name("n")).iterdir()):
        os.utime(path, (1, 1))

    done = shell(place, f"cd {tmp_path}; intercore_lock_clean")

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "precious").is_dir()
    assert os.listdir(place.name("n")) == []


def test_a_relative_directory_is_refused_as_the_program_does(place: Place, tmp_path: Path) -> None:
    script = f"cd {tmp_path}; intercore_lock n s; echo $?; (intercore_lock n s); echo $?"

    refused = shell(place, script, INTERCORE_LOCK_DIR="locks")

    assert refused.stdout == "3\n3\n"
    assert "not an absolute path: locks" in refused.stderr
    assert os.listdir(tmp_path) == []


def test_cleaning_leaves_what_is_being_made_alone(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "[a]*"))
    place.make()
    draft = Path(f"{place.work}/1.1.draft")
    draft.mkdir()
    os.utime(draft, (1, 1))

    for end in ("", "/", "//"):
        shell(place, "intercore_lock_clean", INTERCORE_LOCK_DIR=place.base + end)

    assert draft.exists()
