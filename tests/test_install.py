"""However it is installed, with or without a compiler, it behaves the same."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from icd.db import migrate
from tests.support.distributions import copy_of_checkout
from tests.support.processes import Daemon, icctl

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / ".venv" / "packages"
OFFLINE = ["--quiet", "--disable-pip-version-check", "--no-index", f"--find-links={PACKAGES}"]
HAS_COMPILER = bool(shutil.which("cc") or shutil.which("gcc"))

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_checkout(tmp_path_factory.mktemp("clone") / "intercore")


@pytest.fixture(scope="module")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel for what does not depend on how it was built: to build costs most."""
    return wheel(clone, tmp_path_factory.mktemp("dist"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty virtual environment."""
    place = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


def install(source: Path, home: Path, **environment: str) -> Path:
    """Where the commands are, once pip has installed them."""
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", *OFFLINE]
    run([*pip, "--no-compile", source], **environment)
    return home / "bin"


def wheel(source: Path, target: Path, **environment: str) -> Path:
    """With what builds it here; `install` has it fetched and built apart, as pip does by itself."""
    here = ["--no-deps", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "wheel", *OFFLINE, *here, "-w", target, source]
    run(pip, **environment)
    (found,) = target.glob("intercore-*.whl")
    return found


def run(command: list[object], **environment: str) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment}, capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")


def without_compiler(tmp_path: Path) -> dict[str, str]:
    """A PATH on which there is nothing at all."""
    empty = tmp_path / "empty"
    empty.mkdir()
    return {"PATH": str(empty), "CC": ""}


def behaves(commands: Path, project: Path) -> list[str]:
    """Use the installation as a hook would, with and without its daemon; the doors it went through."""
    daemon = Daemon(command=[str(commands / "icd")])
    doors = []
    try:
        daemon.start()
        for socket in (daemon.socket, "/nonexistent"):
            project.mkdir()
            (project / ".git").mkdir()
            doors.append(_use(commands, project, {"INTERCORE_SOCKET": socket}))
            shutil.rmtree(project)
        assert daemon.stop() == 0
    finally:
        daemon.close()
    return doors


def _use(commands: Path, project: Path, env: dict[str, str]) -> str:
    def call(*words: str, name: str = "icctl", stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        done = icctl(*words, cwd=project, env=env, stdin=stdin, program=commands / name)
        return done.returncode, done.stdout, done.stderr

    assert call("init") == (
        0,
        b"initialized .clavain/intercore.db (schema v%d)\n" % migrate.LATEST,
        b"",
    )
    assert call("sentinel", "check", "stop", "s", "--interval=0") == (0, b"allowed\n", b"")
    assert call("sentinel", "check", "stop", "s", "--interval=0", name="ic") == (
        1,
        b"throttled\n",
        b"",
    )
    assert call("state", "set", "k", "s", stdin=b'{"a": 1}') == (0, b"", b"")
    assert call("state", "get", "k", "s", name="icctl-python") == (0, b'{"a": 1}\n', b"")
    assert call("bogus", name="ic")[2] == b"ic: unknown command 'bogus'; see 'ic --help'\n"
    path = f"{commands}:/usr/bin:/bin"
    sourced = subprocess.run(
        ["bash", "-c", 'source "$(icctl lib-path)"; intercore_state_get k s'],
        cwd=project, env={**env, "PATH": path}, capture_output=True, check=True,
    )  # fmt: skip
    assert (sourced.stdout, sourced.stderr) == (b'{"a": 1}\n', b"")
    status, told, _ = call("version", "--verbose")
    assert status == 0
    return told.decode().splitlines()[2].removeprefix("door: ")


NATIVE = [
    "native keyhole, through the daemon",
    "native keyhole, handed over to the python client, without the daemon",
]
PYTHON = ["python client, through the daemon", "python client, without the daemon"]


def test_a_clone_with_a_compiler(clone: Path, home: Path, tmp_path: Path) -> None:
    if not HAS_COMPILER:
        pytest.skip("no C compiler")
    commands = install(clone, home, INTERCORE_KEYHOLE="require")

    assert behaves(commands, tmp_path / "project") == NATIVE


def test_a_clone_without_a_compiler(clone: Path, home: Path, tmp_path: Path) -> None:
    commands = install(clone, home, **without_compiler(tmp_path))

    assert behaves(commands, tmp_path / "project") == PYTHON


def test_numpy_is_an_extra(built: Path, home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "v").write_bytes(b"\0\0\x80\x3f")

    def search() -> tuple[int, bool]:
        direct = {"INTERCORE_MODE": "direct"}
        words = ["discovery", "search", "--embedding=@v"]
        done = icctl(*words, cwd=project, env=direct, program=home / "bin" / "icctl-python")
        return done.returncode, b"pip install 'intercore[vectors]'" in done.stderr

    install(built, home)
    run([home / "bin" / "icctl-python", "--db", project / ".clavain" / "intercore.db", "init"])
    without = search()
    install(Path(f"{built}[vectors]"), home)

    assert (without, search()) == ((2, True), (0, False))


def test_an_editable_installation(clone: Path, home: Path, tmp_path: Path) -> None:
    if not HAS_COMPILER:
        pytest.skip("no C compiler")
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", *OFFLINE]
    run([*pip, "-e", clone])

    assert behaves(home / "bin", tmp_path / "project") == NATIVE


@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_wheel_says_which_it_is(kind: str, clone: Path, home: Path, tmp_path: Path) -> None:
    if kind == "native" and not HAS_COMPILER:
        pytest.skip("no C compiler")
    wish = "require" if kind == "native" else "off"
    built = wheel(clone, tmp_path / "dist", INTERCORE_KEYHOLE=wish)
    commands = install(built, home)

    with zipfile.ZipFile(built) as archive:
        (about,) = (archive.read(n).decode() for n in archive.namelist() if n.endswith("/WHEEL"))
        assert not [n for n in archive.namelist() if n.endswith((".c", ".h", "build.py"))]
        assert {"icd/systemd/icd.socket", "icd/systemd/icd.service"} <= set(archive.namelist())
    manual = home / "share" / "man"
    assert (manual / "man1" / "icctl.1").read_text().startswith(".TH ICCTL 1")
    assert (manual / "man8" / "icd.8").exists()
    assert built.name.endswith("-py3-none-any.whl") == (kind == "python")
    assert ("Root-Is-Purelib: true" in about) == (kind == "python")
    assert behaves(commands, tmp_path / "project") == (NATIVE if kind == "native" else PYTHON)


def test_a_compiler_that_fails_is_told_and_the_python_client_installed(
    clone: Path, tmp_path: Path
) -> None:
    for number, compiler in enumerate(("false", "/nonexistent/cc")):
        built = wheel(clone, tmp_path / f"dist-{number}", CC=compiler)

        assert built.name.endswith("-py3-none-any.whl")
    with pytest.raises(AssertionError, match="the native client cannot be built"):
        wheel(clone, tmp_path / "other", CC="false", INTERCORE_KEYHOLE="require")


def test_pipx(built: Path, tmp_path: Path) -> None:
    where = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    pipx = [sys.executable, "-m", "pipx", "install", "--pip-args", " ".join(OFFLINE), built]

    run(pipx, **where)

    commands = tmp_path / "bin"
    assert (commands / "icctl").is_symlink()
    assert behaves(commands, tmp_path / "project") == (NATIVE if HAS_COMPILER else PYTHON)
