"""Root in a directory that another user controls: it acts as that user, or stays out of it."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.data import later
from tests.support.breakages import STRANGER
from tests.support.processes import CLEAN, PATIENCE, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

ROOT = Path(__file__).parents[1]
SITE = Path(msgspec.__file__).parents[1]
CODE = """
import sys
sys.path[:0] = sys.argv[1:3]
from icctl.client import main
sys.exit(main(sys.argv[3:], "icctl"))
"""
SECRET = b"root:$6$precious:\n"

# As the owner of the project: some time after root has made one of these files, puts a link in its
# place, and takes it away again.
SWAPPER = """
import os, random, stat, sys, time
uid, directory, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
os.chdir(directory)
due = {}
seen = False  # the backup that a restore makes, just before it puts its own file in place
print("ready", flush=True)
while True:
    for name in sys.argv[4:]:
        try:
            found = os.lstat(name)
        except OSError:
            due.pop(name, None)
            continue
        now = time.monotonic()
        if name.endswith(".restore") and stat.S_ISREG(found.st_mode):
            before, seen = seen, os.path.lexists("intercore.db.unfinished")
            if before and not seen:
                due[name] = now + random.uniform(0, 0.01)
        if name not in due:
            due[name] = now + random.choice([0, random.uniform(0, 0.005), random.uniform(0, 0.1)])
            if name.endswith(".restore"):
                due[name] = now + 60
        if now < due[name]:
            continue
        try:
            if stat.S_ISREG(found.st_mode):
                os.symlink(target, "link")
                os.rename("link", name)
                due[name] = now + 0.01
            else:
                os.unlink(name)
        except OSError:
            pass
"""


def readable_python() -> str:
    """An interpreter that every user can run: root's own may lie in root's home."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        command = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", python, "-I"]
        code = (
            f"import sys; sys.path.insert(0, {str(SITE)!r}); import msgspec, os; print(os.__file__)"
        )
        found = subprocess.run([*command, "-c", code], capture_output=True, text=True, check=False)
        as_root = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, check=False
        )
        if found.returncode == 0 and found.stdout == as_root.stdout:
            return python
    pytest.skip("only root can read the interpreter")


@pytest.fixture(scope="module")
def python() -> str:
    return readable_python()


@pytest.fixture
def project() -> Iterator[Path]:
    """A project of another user, in a directory that everybody can reach."""
    with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as made:
        os.chmod(made, 0o755)
        place = Path(made) / "theirs"
        place.mkdir(mode=0o755)
        (place / ".git").mkdir()
        os.chown(place, STRANGER, STRANGER)
        yield place


@pytest.fixture
def secret(project: Path) -> Path:
    """A file of root's that nobody else may read."""
    path = project.parent / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


class Root:
    """`icctl` as root runs it, in a process that every user could have started."""

    def __init__(self, python: str, project: Path) -> None:
        self.python, self.project = python, project

    def __call__(
        self, *words: str, code: Path = ROOT, **env: str
    ) -> "subprocess.CompletedProcess[bytes]":
        home = self.project.parent / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        return subprocess.run(
            [self.python, "-E", "-P", "-S", "-c", CODE, str(code), str(SITE), *words],
            cwd=self.project,
            env={**CLEAN, "HOME": str(home), "INTERCORE_MODE": "direct", **env},
            input=b"", capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip


@pytest.fixture
def root(python: str, project: Path) -> Root:
    return Root(python, project)


def fine(done: "subprocess.CompletedProcess[bytes]") -> bytes:
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout


def begin(root: Root, **env: str) -> None:
    """Make the owner's database; root cannot trust it for the owner, and says so."""
    done = root("init", **env)
    told = b"icctl: init: warning: the database is not trusted and may not start programs: "
    why = b"trust is recorded in the home directory, and HOME is not set\n"
    whose = b"icctl: this ran as user 12345, who owns the project\n"
    assert (done.returncode, done.stderr) == (0, told + why + whose), done
    assert not (root.project.parent / "home" / ".local").exists()


def owners(directory: Path) -> set[tuple[str, int]]:
    return {(path.name, path.lstat().st_uid) for path in directory.rglob("*")}


def test_whatever_root_makes_in_a_project_belongs_to_its_owner(root: Root, project: Path) -> None:
    begin(root)
    fine(root("state", "set", "k", "s", "--value=1"))
    made = fine(root("backup")).decode().strip()
    fine(root("restore", made))

    assert fine(root("state", "get", "k", "s")) == b"1\n"
    assert {uid for _, uid in owners(project / ".clavain")} == {STRANGER}
    assert {name for name, _ in owners(project / ".clavain")} >= {".gitignore", "intercore.db.lock"}


def prepare(root: Root, project: Path, verb: str) -> list[str]:
    database = project / ".clavain" / "intercore.db"
    if verb == "adopt":
        database.parent.mkdir(mode=0o700)
        later.write(str(database))
        for path in (database.parent, database):
            os.chown(path, STRANGER, STRANGER)
        return ["init", "--adopt"]
    if verb == "init":
        return ["init"]
    begin(root)
    fine(root("state", "set", "k", "s", "--value=1"))
    if verb == "backup":
        return ["backup"]
    copy = project / "copy.db"
    shutil.copy(database, copy)
    os.chown(copy, STRANGER, STRANGER)
    return ["restore", str(copy)]


# Before root acted as the owner, the fifth try or so gave the file away.
TRIES = 12


@pytest.mark.long
@pytest.mark.parametrize("verb", ["restore", "backup", "adopt", "init"])
def test_an_owner_who_swaps_files_for_links_gets_nothing_of_roots(
    verb: str, root: Root, project: Path, secret: Path
) -> None:
    words = prepare(root, project, verb)
    clavain = project / ".clavain"
    clavain.mkdir(mode=0o700, exist_ok=True)
    os.chown(clavain, STRANGER, STRANGER)
    ends = {"restore": [".restore"], "backup": [".unfinished"], "adopt": [".adopt"]}
    names = [f"intercore.db{end}" for end in ends.get(verb, ["-shm", ".lock"])]
    command = [sys.executable, "-I", "-S", "-c", SWAPPER, str(STRANGER), str(clavain), str(secret)]
    swapper = subprocess.Popen([*command, *names], stdout=subprocess.PIPE)
    try:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"ready\n"
        for _ in range(TRIES):
            told = root(*words)

            found = secret.lstat()
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 0, 0o600), told
            assert secret.read_bytes() == SECRET, told
            assert b"precious" not in told.stdout + told.stderr
    finally:
        swapper.kill()
        swapper.communicate(timeout=PATIENCE)


def test_a_link_out_of_the_project_is_not_read_for_its_owner(
    root: Root, project: Path, secret: Path
) -> None:
    begin(root)
    (project / ".clavain" / "intercore.toml").symlink_to(secret)

    for words in (["state", "list", "k"], ["config", "check"], ["config", "show"], ["doctor"]):
        done = root(*words)

        assert b"precious" not in done.stdout + done.stderr, done


def test_root_in_a_directory_of_its_own_inside_anothers_stays_out(
    root: Root, project: Path
) -> None:
    """Its owner could put another directory in its place at any moment."""
    (project / ".clavain").mkdir(mode=0o700)
    fine_before = owners(project / ".clavain")

    done = root("init")

    assert done.returncode == 2
    assert b"this ran as user 12345, who owns the project\n" in done.stderr
    assert owners(project / ".clavain") == fine_before == set()


@pytest.mark.parametrize(("mode", "gid"), [(0o777, 0), (0o775, STRANGER), (0o1777, 0)])
def test_root_stays_out_of_a_directory_that_others_may_write_to(
    mode: int, gid: int, root: Root, project: Path
) -> None:
    os.chown(project, 0, 0)
    fine(root("init"))
    os.chown(project / ".clavain", 0, gid)
    (project / ".clavain").chmod(mode)

    done = root("health")

    assert done.returncode == 2
    assert f"other users may write to {project / '.clavain'}".encode() in done.stderr
    assert f"run: chmod go-w {project / '.clavain'}\n".encode() in done.stderr


def test_the_group_root_is_root(root: Root, project: Path) -> None:
    os.chown(project, 0, 0)
    project.chmod(0o775)

    fine(root("init"))

    assert {uid for _, uid in owners(project / ".clavain")} == {0}


def test_roots_daemon_leaves_the_project_to_roots_client(root: Root, project: Path) -> None:
    with running() as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}
        begin(root, **env)
        fine(root("state", "set", "k", "s", "--value=1", **env))
        told = fine(root("statusline", **env))
        answer = daemon.respond("state.get", cwd=str(project), key="k", scope_id="s")
        status = daemon.call("icd.status")

    assert told == fine(root("statusline"))
    assert (answer["error"]["code"], answer["error"]["data"]["name"]) == (-32036, "other_owner")
    assert status["databases"] == []
    assert {uid for _, uid in owners(project / ".clavain")} == {STRANGER}


def test_no_hook_of_either_user_runs(root: Root, project: Path) -> None:
    begin(root)
    ran = project / "ran"
    hooks = project / ".clavain" / "hooks"
    hooks.mkdir(mode=0o700)
    hook = hooks / "on-event"
    hook.write_text(f"#!/bin/sh\nid -u >{ran}\n")
    hook.chmod(0o755)
    for path in (hooks, hook):
        os.chown(path, STRANGER, STRANGER)
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()
    content = hashlib.sha256(hook.read_bytes()).hexdigest()
    trusted = project.parent / "home/.local/share/intercore/hooks" / digest / content
    trusted.mkdir(parents=True)
    shutil.copy(hook, trusted / "on-event")

    fine(root("events", "record", "--source=phase", "--type=advance"))
    done = root("hooks", "trust")

    assert done.returncode == 2
    assert not ran.exists()


def test_root_starts_no_program_for_another_user(root: Root, project: Path) -> None:
    begin(root)

    done = root("dispatch", "spawn", "--", "touch", str(project / "ran"))

    assert b"root does not start programs for user 12345" in done.stderr
    assert not (project / "ran").exists()


def test_locks_and_the_commands_under_them_stay_roots_own(root: Root, project: Path) -> None:
    env = {"INTERCORE_LOCK_DIR": str(project.parent / "locks")}

    assert fine(root("hold", "n", "s", "--", "id", "-u", **env)) == b"0\n"


def test_a_file_that_the_owner_may_not_write_is_refused_and_root_told_why(
    root: Root, project: Path
) -> None:
    begin(root)
    fine(root("state", "set", "k", "s", "--value=1"))
    target = project.parent / "home" / "mine.db"

    done = root("backup", str(target))

    assert done.returncode == 2
    assert done.stderr.endswith(b"icctl: this ran as user 12345, who owns the project\n")
    assert not target.exists()


def test_a_program_that_the_owner_may_not_read_says_so(root: Root, project: Path) -> None:
    hidden = project.parent / "hidden"
    hidden.mkdir(mode=0o700)
    for name in ("icctl", "icd"):
        shutil.copytree(ROOT / name, hidden / name)

    done = root("init", code=hidden)

    assert done.returncode == 2
    assert b"may not read" in done.stderr
    assert b"install intercore where every user can read it" in done.stderr
    assert not (project / ".clavain").exists()
