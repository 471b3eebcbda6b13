"""The code that is tried: ours, or a copy of it that was broken on purpose.

A suite starts its daemons and its clients from here only, so that a test can show that the suite
notices a broken promise.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import CLEAN, PATIENCE, Daemon

ROOT = Path(__file__).parents[2]
# The Python client as it is, but from the directory that PYTHONPATH names.
CLIENT = "import sys; from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"


@dataclass(frozen=True)
class Code:
    root: Path = ROOT

    @property
    def env(self) -> dict[str, str]:
        return {**CLEAN, "PYTHONPATH": str(self.root)}

    def daemon(self, *, env: dict[str, str] | None = None, module: str = "icd") -> Daemon:
        """One that is not started yet; `module` is run with its arguments."""
        return Daemon(env={**self.env, **(env or {})}, command=[sys.executable, "-m", module])

    def client(self, *arguments: str) -> list[str]:
        """The command line of a client; run it with our `env`."""
        return [sys.executable, "-c", CLIENT, *arguments]

    def icctl(
        self,
        *arguments: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float = PATIENCE,
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.client(*arguments),
            cwd=cwd,
            env={**self.env, "HOME": str(cwd), **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
        )


# A file, what stands in it exactly once, and what stands there then.
Change = tuple[str, str, str]


def broken(directory: Path, file: str, old: str, new: str) -> Code:
    """A copy in which `old`, which stands exactly once in the file, reads `new`."""
    return broken_by(directory, (file, old, new))


def broken_by(directory: Path, *changes: Change) -> Code:
    """A copy that is broken in several places: each of them alone may be harmless."""
    root = directory / "broken"
    for package in ("icd", "icctl"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "lib-intercore.sh", root)
    shutil.copytree(ROOT / "lib-intercore", root / "lib-intercore")
    for file, old, new in changes:
        text = (root / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} of what is to be broken: {old}"
        (root / file).write_text(text.replace(old, new))
    return Code(root)
