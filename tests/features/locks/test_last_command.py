"""A shell runs its last command in its own place: the lock that it took is still its own."""

import subprocess
from pathlib import Path

import pytest

from icd.features.shell import PATH as LIBRARY
from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon

pytestmark = pytest.mark.usefixtures("door")


@pytest.fixture(params=["daemon", "direct"])
def env(request: pytest.FixtureRequest, tmp_path: Path, any_daemon: Daemon) -> dict[str, str]:
    return {
        **CLEAN,
        "PATH": f"{processes.door}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "INTERCORE_LOCK_DIR": str(tmp_path / "locks"),
        "INTERCORE_SOCKET": any_daemon.socket if request.param == "daemon" else "/nonexistent/s",
    }


def run(
    script: str, env: dict[str, str], shell: str = "bash"
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [shell, "-c", script], cwd=env["HOME"], env=env, capture_output=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_release_as_last_command_gives_back_what_the_shell_took(
    shell: str, env: dict[str, str]
) -> None:
    done = run("icctl lock acquire n s; icctl lock release n s", env, shell)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert run("icctl lock list", env).stdout == b""


def test_an_explicit_exec_is_the_same(env: dict[str, str]) -> None:
    done = run("icctl lock acquire n s; exec icctl lock release n s", env)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_shell_that_is_not_the_parent_releases_nothing(env: dict[str, str]) -> None:
    script = (
        "icctl lock acquire n s; bash -c 'bash -c \"icctl lock release n s; true\"; exit $?; :'"
    )

    done = run(script + "; exit 0", env)

    assert b"only its owner can release it" in done.stderr


def test_the_librarys_last_command_agrees_with_its_first(env: dict[str, str]) -> None:
    script = f'source "{LIBRARY}"; intercore_lock n s && intercore_unlock n s'

    done = run(script, env)

    assert (done.returncode, done.stderr) == (0, b"")
    assert run("icctl lock list", env).stdout == b""
