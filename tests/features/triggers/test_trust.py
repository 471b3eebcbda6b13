"""Only what the user trusts runs, and only as it was trusted."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from icd.errors import HookRefused, Locked, NoHook
from icd.features.triggers import files
from icd.features.triggers.files import Trust

SCRIPT = "#!/bin/sh\necho hello\n"


@pytest.fixture
def hooks(project: Path) -> Path:
    found = project / ".clavain" / "hooks"
    found.mkdir(parents=True)
    found.chmod(0o755)
    return found


@pytest.fixture
def hook(hooks: Path) -> Path:
    return write(hooks / "on-event", SCRIPT)


def write(path: Path, text: str = SCRIPT, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def trust(project: Path, tmp_path: Path) -> Trust:
    return Trust(str(tmp_path / "home"), str(project))


def states(trust: Trust) -> dict[str, str]:
    return {found.name: trust.state(found) for found in trust.looks.look()}


def problem(trust: Trust) -> str:
    (found,) = trust.looks.look()
    return found.problem


def output(program: str) -> bytes:
    return subprocess.run([program], capture_output=True, check=True).stdout


def test_a_project_without_hooks_has_none(trust):
    assert trust.looks.look() == []
    assert trust.runnable() == {}


def test_a_hook_is_not_trusted_until_somebody_says_so(trust, hook):
    assert states(trust) == {"on-event": "untrusted"}
    assert trust.runnable() == {}


def test_what_runs_is_a_copy_outside_the_project(trust, hook, project):
    found = trust.grant("on-event")

    copy = trust.runnable()["on-event"]
    assert states(trust) == {"on-event": "trusted"}
    assert found.sha256 in copy
    assert not copy.startswith(str(project))
    assert output(copy) == b"hello\n"


def test_the_trust_is_known_to_whoever_looks_for_it(trust, hook, project, tmp_path):
    trust.grant("on-event")

    assert Trust(str(tmp_path / "home"), str(project)).runnable().keys() == {"on-event"}
    assert Trust(str(tmp_path / "elsewhere"), str(project)).runnable() == {}


def test_the_same_hook_in_another_project_is_another_hook(trust, hook, tmp_path):
    trust.grant("on-event")
    clone = tmp_path / "clone"
    subprocess.run(["cp", "-a", trust.project, clone], check=True)

    other = Trust(str(tmp_path / "home"), str(clone))

    assert states(other) == {"on-event": "untrusted"}
    assert other.runnable() == {}


def test_a_changed_hook_asks_again(trust, hook):
    trust.grant("on-event")

    write(hook, "#!/bin/sh\necho other\n")

    assert states(trust) == {"on-event": "changed"}
    assert trust.runnable() == {}


def test_a_hook_that_is_changed_back_is_trusted_again(trust, hook):
    trust.grant("on-event")
    write(hook, "#!/bin/sh\necho other\n")
    assert trust.runnable() == {}

    write(hook)

    assert states(trust) == {"on-event": "trusted"}


def test_what_was_trusted_before_the_last_time_is_no_longer(trust, hook):
    trust.grant("on-event")
    write(hook, "#!/bin/sh\necho other\n")
    trust.grant("on-event")
    assert output(trust.runnable()["on-event"]) == b"other\n"

    write(hook)

    assert states(trust) == {"on-event": "changed"}


def test_what_is_changed_after_the_look_does_not_run(trust, hook):
    trust.grant("on-event")
    program = trust.runnable()["on-event"]

    write(hook, "#!/bin/sh\necho other\n")

    assert output(program) == b"hello\n"


def test_two_hooks_of_the_same_content_are_trusted_one_by_one(trust, hook, hooks):
    write(hooks / "on-discovery")
    trust.grant("on-event")
    assert states(trust) == {"on-discovery": "untrusted", "on-event": "trusted"}

    trust.grant("on-discovery")
    assert trust.revoke("on-event")

    assert states(trust) == {"on-discovery": "trusted", "on-event": "untrusted"}


def test_trust_can_be_taken_back(trust, hook):
    trust.grant("on-event")

    assert trust.revoke("on-event")

    assert states(trust) == {"on-event": "untrusted"}
    assert not trust.revoke("on-event")


def test_other_files_are_no_hooks(trust, hooks):
    write(hooks / "on-something")
    write(hooks / "on-event.sample")

    assert trust.looks.look() == []


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_hook_that_others_can_write_to_is_refused(trust, hook, mode):
    trust.grant("on-event")

    hook.chmod(mode)

    assert problem(trust) == "it is writable by other users; run chmod go-w"
    assert trust.runnable() == {}


def test_a_hook_in_a_directory_that_others_can_write_to_is_refused(trust, hook, hooks):
    trust.grant("on-event")

    hooks.chmod(0o775)

    assert problem(trust) == "its directory is writable by other users; run chmod go-w"
    assert trust.runnable() == {}
    with pytest.raises(HookRefused, match="its directory is writable by other users"):
        trust.grant("on-event")


def test_a_hook_of_another_user_is_refused(trust, hook):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    trust.grant("on-event")

    os.chown(hook, 12345, -1)

    assert problem(trust) == "it belongs to another user"
    assert trust.runnable() == {}


def test_a_link_in_the_place_of_a_trusted_hook_is_refused(trust, hook, tmp_path):
    trust.grant("on-event")
    hook.rename(tmp_path / "moved")

    hook.symlink_to(tmp_path / "moved")

    assert problem(trust) == "it is a symbolic link"
    assert trust.runnable() == {}
    with pytest.raises(HookRefused, match="symbolic link"):
        trust.grant("on-event")


def test_a_link_in_the_place_of_the_directory_is_refused(trust, hook, hooks, tmp_path):
    trust.grant("on-event")
    hooks.rename(tmp_path / "moved")

    hooks.symlink_to(tmp_path / "moved")

    assert problem(trust) == "its directory is unusable: it is a symbolic link"
    assert trust.runnable() == {}


def test_a_pipe_in_the_place_of_a_hook_keeps_nobody_waiting(trust, hooks):
    os.mkfifo(hooks / "on-event", 0o700)

    assert problem(trust) == "it is not a regular file"


def test_a_file_that_is_not_executable_is_refused(trust, hook):
    hook.chmod(0o644)

    assert problem(trust) == "it is not executable; run chmod u+x"


def test_a_file_that_is_too_large_is_refused(trust, hook):
    os.truncate(hook, files.HOOK_BYTES + 1)

    assert problem(trust) == f"it is larger than {files.HOOK_BYTES} bytes"


def test_what_is_not_there_cannot_be_trusted(trust, hooks):
    with pytest.raises(NoHook, match="there is no trigger on-event in "):
        trust.grant("on-event")


def test_a_copy_that_others_can_write_to_does_not_run(trust, hook):
    trust.grant("on-event")

    Path(trust.runnable()["on-event"]).chmod(0o777)

    assert trust.runnable() == {}


def test_hooks_of_a_project_are_run_by_one_at_a_time(trust, hook, project, tmp_path):
    trust.grant("on-event")
    other = Trust(str(tmp_path / "home"), str(project))

    trust.acquire(time.monotonic())

    with pytest.raises(Locked):
        other.acquire(time.monotonic())

    trust.release()
    other.acquire(time.monotonic())
    other.release()


def test_only_a_database_of_a_project_has_hooks():
    assert files.project("/home/me/project/.clavain/intercore.db") == "/home/me/project"
    assert files.project("/home/me/project/other.db") is None
