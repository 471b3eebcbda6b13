"""The library, in every bash that there is."""

import subprocess
from pathlib import Path

import pytest

from tests.support.processes import CLEAN, PATIENCE

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lib-intercore.sh"
OLD_BASH = ROOT / ".venv" / "old-bash"
# The old one where tests/old-bash.sh could build it: everything again, so it is in the longer matrix.
OLD = [pytest.param(str(OLD_BASH), marks=pytest.mark.long)] if OLD_BASH.exists() else []
BASHES = ["bash", *OLD]


class Place:
    """A project, a way to reach it, and a bash."""

    def __init__(self, project: Path, env: dict[str, str], bash: str) -> None:
        self.project = project
        self.env = {**CLEAN, "HOME": str(project), "TMPDIR": str(project), "LEGACY": "",
                    "INTERCORE_LOCK_DIR": str(project / "locks"), **env}  # fmt: skip
        self.bash = bash

    def run(self, script: str, **options) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [self.bash, "-c", f"source {LIBRARY}\n{script}"],
            cwd=self.project, env=self.env, capture_output=True, timeout=PATIENCE * 3, check=False, **options,
        )  # fmt: skip

    def say(self, script: str, **options) -> list[str]:
        done = self.run(script, **options)
        assert done.stderr == b"", done.stderr.decode()
        return done.stdout.decode().splitlines()
