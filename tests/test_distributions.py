"""What `make dist` builds is what a stranger installs: from the files alone, without a compiler."""

import fcntl
import os
import platform
import shutil
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import icd
from tests.support import pythons
from tests.support.distributions import ROOT, copy_of_checkout, moment
from tests.test_install import NATIVE, PACKAGES, PYTHON, behaves, install, run

RELEASE = ROOT / ".venv" / "release" / "bin"
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
NAME = f"intercore-{icd.__version__}"
WHEELS = {
    "x86_64": f"{NAME}-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl",
    "aarch64": f"{NAME}-py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64.whl",
    "pure": f"{NAME}-py3-none-any.whl",
}
HERE = platform.machine()
# What the ELF header calls them.
MACHINES = {"x86_64": 62, "aarch64": 183}
PT_DYNAMIC_LINKER = 3

# At first, Zig compiles its libraries.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str, worker_id: str) -> Path:
    """Built once, by the first worker that needs it."""
    if not (RELEASE.parent / ".installed").exists():
        pytest.skip("run: make .venv/release/.installed")
    own = tmp_path_factory.getbasetemp()
    place = (own if worker_id == "master" else own.parent) / f"distributions-{testrun_uid}"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return place / "dist" if (place / "dist").exists() else build(place)


def build(place: Path, **environment: str) -> Path:
    """As `make dist`, of what is in the checkout now."""
    source = copy_of_checkout(place / "intercore")
    program = (
        "import sys; from pathlib import Path; from tests.support import distributions as it; "
    )
    program += "it.checked(it.build(*map(Path, sys.argv[1:])))"
    run([RELEASE / "python", "-c", program, source, place / "dist"], PYTHONPATH=str(ROOT), **environment)  # fmt: skip
    return place / "dist"


def test_the_same_sources_give_the_same_bytes_wherever_they_lie(
    built: Path, tmp_path: Path
) -> None:
    umask = os.umask(0o077)
    try:
        again = build(
            tmp_path / "elsewhere", TZ="Asia/Tokyo", LC_ALL="C", SOURCE_DATE_EPOCH=moment()
        )
    finally:
        os.umask(umask)

    assert sorted(os.listdir(built)) == sorted([*WHEELS.values(), f"{NAME}.tar.gz"])
    for name in os.listdir(built):
        assert (built / name).read_bytes() == (again / name).read_bytes(), name


def test_a_native_client_needs_no_library_of_the_system(built: Path) -> None:
    for processor, machine in MACHINES.items():
        with zipfile.ZipFile(built / WHEELS[processor]) as wheel:
            tags = wheel.read(f"{NAME}.dist-info/WHEEL").decode().splitlines()
            client = wheel.read(f"{NAME}.data/scripts/icctl")
            assert client == wheel.read(f"{NAME}.data/scripts/ic")

        assert {line for line in tags if line.startswith("Tag: ")} == {
            f"Tag: py3-none-manylinux_2_17_{processor}",
            f"Tag: py3-none-musllinux_1_1_{processor}",
        }
        assert client[:5] == b"\x7fELF\x02"
        assert struct.unpack_from("<H", client, 18) == (machine,)
        assert PT_DYNAMIC_LINKER not in segments(client)


def virtual_environment(home: Path, python: str | Path) -> Path:
    run([python, "-m", "venv", "--without-pip", home])
    return home


def segments(program: bytes) -> list[int]:
    """The types of the segments of a 64-bit ELF program."""
    (start,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    return [struct.unpack_from("<I", program, start + size * n)[0] for n in range(count)]


def test_the_sources_are_complete_and_nothing_else(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}

    assert {"icctl/client.c", "icctl/build.py", "Makefile", "tests/conftest.py"} <= names
    assert not [n for n in names if n.startswith((".ci", ".git/", ".venv")) or "__pycache__" in n]


def test_each_installer_takes_the_wheel_of_this_machine(built: Path, tmp_path: Path) -> None:
    files = f"--no-index --find-links={built} --find-links={PACKAGES}"
    bare = {"PATH": f"{tmp_path}:/usr/bin", "CC": "false"}  # pipx asks for the PATH
    virtual_environment(tmp_path / "pip", sys.executable)
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "pip" / "bin" / "python", "install"]
    pipx = [sys.executable, "-m", "pipx", "install", "--pip-args", files, "intercore"]
    uv = [RELEASE / "uv", "tool", "install", "--offline", f"--python={sys.executable}"]
    here = {"PIPX_HOME": f"{tmp_path}/x", "PIPX_BIN_DIR": f"{tmp_path}/pipx/bin"}
    here |= {"UV_TOOL_DIR": f"{tmp_path}/u", "UV_TOOL_BIN_DIR": f"{tmp_path}/uv/bin"}
    here |= {"UV_CACHE_DIR": f"{tmp_path}/cache", "UV_NO_CONFIG": "1"}

    for tool, command in {
        "pip": [*pip, *files.split(), "intercore"],
        "pipx": pipx,
        "uv": [*uv, *files.split(), "intercore"],
    }.items():
        run(command, **bare, **here)

        assert behaves(tmp_path / tool / "bin", tmp_path / "project") == NATIVE, tool


def test_every_python_here_runs_the_same_wheels(built: Path, tmp_path: Path) -> None:
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    cases = {(this, "pure"): (sys.executable, PYTHON)}
    for version, python in pythons.found().items():
        if version != this:  # whose native client is what the installers above took
            cases[version, HERE] = (python, NATIVE)
    for (version, kind), (python, doors) in cases.items():
        home = tmp_path / f"{version}-{kind}"

        install(built / WHEELS[kind], virtual_environment(home, python))

        assert behaves(home / "bin", tmp_path / "project") == doors, version


def test_the_client_for_aarch64_does_the_same_in_an_emulator(built: Path, tmp_path: Path) -> None:
    if QEMU is None:
        pytest.skip("no qemu-aarch64: install Debian's qemu-user-static")
    home = tmp_path / "home"
    install(built / WHEELS[HERE], virtual_environment(home, sys.executable))
    emulated = home / "aarch64"
    emulated.mkdir()
    with zipfile.ZipFile(built / WHEELS["aarch64"]) as wheel:
        (emulated / "icctl").write_bytes(wheel.read(f"{NAME}.data/scripts/icctl"))
    (emulated / "icctl").chmod(0o755)
    (emulated / "icctl-python").symlink_to(home / "bin" / "icctl-python")
    for name in ("icctl", "ic"):
        (home / "bin" / name).unlink()
        (home / "bin" / name).write_text(
            f'#!/bin/sh\nexec {QEMU} -0 {name} {emulated}/icctl "$@"\n'
        )
        (home / "bin" / name).chmod(0o755)

    assert behaves(home / "bin", tmp_path / "project") == NATIVE
