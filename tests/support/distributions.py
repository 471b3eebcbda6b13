"""What a release consists of: `make dist`.

A source distribution, and from what is in it three wheels: for each processor one with the native
client, and one with the Python client for everything else.  The same sources, built by the pinned
packages, give the same bytes, wherever and by whom.

A client that Zig links with musl needs no library of the system, so one wheel per processor serves
every Linux.  Its tags are the oldest that installers of Python 3.11 look for: manylinux_2_17 is the
first that knows both processors, musllinux_1_1 the first of musl that is in use.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where Zig keeps the libraries that it has compiled, half a minute's work for each processor.
CACHE = ROOT / ".venv" / "zig"
PROCESSORS = ("x86_64", "aarch64")


def build(source: Path, target: Path) -> list[Path]:
    """Build the distributions in `target`, with the packages of this Python."""
    target.mkdir(parents=True, exist_ok=True)
    _hatchling(source, target, "sdist")
    (sdist,) = target.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="intercore-dist-") as place:
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        (inside,) = Path(place).iterdir()
        for processor in PROCESSORS:
            _hatchling(inside, target, "wheel", **_compiled_for(processor))
        _hatchling(inside, target, "wheel", INTERCORE_KEYHOLE="off")
    return sorted(target.iterdir())


def _compiled_for(processor: str) -> dict[str, str]:
    zig = shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-musl"])
    return {
        "CC": zig,
        "INTERCORE_KEYHOLE": "require",
        "INTERCORE_PLATFORM": f"manylinux_2_17_{processor}.musllinux_1_1_{processor}",
    }


def _hatchling(source: Path, target: Path, kind: str, **settings: str) -> None:
    """Nothing of the caller's environment gets in, except the moment that files are dated with."""
    environment = {
        "PATH": os.defpath,
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH") or moment(),
        "ZIG_GLOBAL_CACHE_DIR": str(CACHE),
        "ZIG_LOCAL_CACHE_DIR": str(CACHE),
        **settings,
    }
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, env=environment, stdout=subprocess.DEVNULL, check=True)


def moment() -> str:
    """When the last commit was made, in seconds."""
    return _git("log", "-1", "--format=%ct").strip()


def copy_of_checkout(target: Path) -> Path:
    """The project's own files, as a user who cloned it has them."""
    for name in _git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
        if name and (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def checked(built: Iterable[Path]) -> None:
    """Have `twine` look at the metadata, as an index would."""
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=True)


def main(target: str) -> None:
    if changed := _git("status", "--porcelain"):
        sys.exit(f"a release is a commit; commit or remove what git status shows:\n{changed}")
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="intercore-dist-") as place:
        checked(build(copy_of_checkout(Path(place) / "intercore"), Path(target).resolve()))


if __name__ == "__main__":
    main(*sys.argv[1:])
