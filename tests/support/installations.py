"""Installations beside each other: of this code, and of releases that people still have.

`tests/data/releases` keeps what each release consisted of, so that no test needs the history:

    git archive COMMIT icd icctl lib-intercore.sh lib-intercore | xz -9e >tests/data/releases/VERSION.tar.xz

An installation here looks like one of pip's: programs in `bin`, packages in `lib`, and the packages
that ours needs are those that the tests run with.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import Daemon

ROOT = Path(__file__).parents[2]
RELEASES = Path(__file__).parents[1] / "data" / "releases"
PACKAGES = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# What an editable installation of this code leaves among the packages.
_OURS = re.compile(r"_?_?(editable|intercore).*|.*\.pth|icd|icctl|__pycache__")
_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Installation:
    """`native` and `python` are its clients, by the same name in two directories."""

    place: Path
    version: str

    @property
    def packages(self) -> Path:
        return self.place / PACKAGES

    @property
    def clients(self) -> dict[str, Path]:
        return {kind: self.place / kind / "icctl" for kind in ("native", "python")}


def released(place: Path, version: str) -> Installation:
    """A release, as it was."""
    source = place / "source"
    with tarfile.open(RELEASES / f"{version}.tar.xz") as archive:
        archive.extractall(source, filter="data")
    return _install(place, source, version)


def current(place: Path, version: str) -> Installation:
    """This code, which says that it is of this version."""
    return _install(place, ROOT, version)


def daemon(link: Path) -> Daemon:
    """Not started yet; it runs what the link leads to, and after a reload what it leads to then."""
    return Daemon(env={"PYTHONPATH": str(link / PACKAGES)})


def switch(link: Path, installation: Installation) -> None:
    """At once: no program finds half an installation."""
    fresh = link.with_name(f"{link.name}.fresh")
    fresh.symlink_to(installation.place)
    fresh.replace(link)


def _install(place: Path, source: Path, version: str) -> Installation:
    found = Installation(place, version)
    found.packages.mkdir(parents=True)
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not _OURS.fullmatch(package.name):
            (found.packages / package.name).symlink_to(package)
    for package in ("icd", "icctl"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / package, found.packages / package, ignore=ignored)
    shutil.copy(source / "lib-intercore.sh", found.packages / "icd")
    if (source / "lib-intercore").exists():  # old releases have one file
        shutil.copytree(source / "lib-intercore", found.packages / "icd" / "lib-intercore")
    about = found.packages / "icd" / "__init__.py"
    about.write_text(_VERSION.sub(f'__version__ = "{version}"', about.read_text()))
    for kind in found.clients:
        _programs(found, source, place / kind)
    shutil.copy(place / "python" / "icctl-python", found.clients["python"])
    _compile(source, found.clients["native"], version)
    return found


def _programs(found: Installation, source: Path, directory: Path) -> None:
    """The client looks for packages beside the directory that it lies in."""
    directory.mkdir()
    service = directory / "icd"
    service.write_text(
        f"#!{sys.executable}\n# as pip writes it\nfrom icd.__main__ import main\nmain()\n"
    )
    shutil.copy(source / "icctl" / "bin" / "icctl-python", directory)
    for program in (service, directory / "icctl-python"):
        program.chmod(0o755)
    assert (directory.parent / PACKAGES / "icctl").is_dir(), found


def _compile(source: Path, target: Path, version: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: the native client cannot be built")
    files = sorted((source / "icctl").glob("*.c"))  # other versions call them otherwise
    about = f'-DINTERCORE_VERSION="{version}"'
    subprocess.run([compiler, "-std=c11", "-O0", about, *files, "-o", target], check=True)
