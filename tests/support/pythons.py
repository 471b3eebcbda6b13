"""The Pythons of this machine that run intercore, one of each minor version: for `make check`."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

MINORS = range(11, 30)
_WHAT_WE_NEED = "import ensurepip, sqlite3, venv; assert sqlite3.sqlite_version_info >= (3, 37)"


def found() -> dict[str, Path]:
    """By version: those on the PATH, and those that pyenv has, which are often on none."""
    home = pwd.getpwuid(os.getuid()).pw_dir  # tests have a HOME of their own
    versions = Path(os.environ.get("PYENV_ROOT") or f"{home}/.pyenv") / "versions"
    places = [os.environ.get("PATH", os.defpath), *map(str, versions.glob("*/bin"))]
    usable = {}
    for minor in MINORS:
        for place in places:
            program = shutil.which(f"python3.{minor}", path=place)
            if program and _works(program):
                usable[f"3.{minor}"] = Path(program)
                break
    return usable


def _works(program: str) -> bool:
    """Pyenv puts programs on the PATH that only say which version to choose."""
    try:
        done = subprocess.run([program, "-c", _WHAT_WE_NEED], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    print(*found())
