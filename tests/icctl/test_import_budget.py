"""What the installed command loads, and from how many kinds of installation it works."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from icd import __version__
from tests.support.processes import CLEAN, WHEEL_BIN, Daemon

pytestmark = pytest.mark.long

# Runs the very file that pip installed, and prints what was loaded when it leaves.
OBSERVE = """
import posix, sys
before, leave = set(sys.modules), posix._exit
def report(status):
    posix.write(1, repr(sorted(set(sys.modules) - before)).encode())
    leave(status)
posix._exit = report
sys.argv = [{script!r}, *{arguments!r}]
exec(compile(open({script!r}).read(), {script!r}, "exec"))
"""


def test_a_call_through_the_daemon_loads_itself_and_c_modules_only(
    daemon: Daemon, initialized: Path
) -> None:
    arguments = ["sentinel", "check", "a", "b", "--interval=5"]
    code = OBSERVE.format(script=str(WHEEL_BIN / "icctl-python"), arguments=arguments)
    command = [WHEEL_BIN / "python", "-E", "-P", "-S", "-c", code]
    env = {**CLEAN, "INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}

    done = subprocess.run(command, capture_output=True, cwd=initialized, env=env, check=True)

    verdict, _, loaded = done.stdout.decode().partition("\n")
    assert verdict == "allowed"
    assert set(ast.literal_eval(loaded)) == {"_socket", "icctl", "icctl.client", "icd"}


def test_a_direct_call_loads_no_expressions_no_syntax_trees_and_no_click(initialized: Path) -> None:
    """What takes longer to load than the call to run; the real modules are there when asked for."""
    site = WHEEL_BIN.parent / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    code = f"""
import sys
sys.path.append({str(site)!r})
from icctl.client import main
assert main(["sentinel", "check", "a", "b", "--interval=5"], "icctl") == 0
dear = {{"re", "json", "inspect", "ast", "dis", "tokenize", "click", "typing_extensions", "platform",
        "textwrap", "dataclasses", "msgspec.inspect", "msgspec.toml", "hashlib", "socket"}}
print(sorted(dear & sys.modules.keys()))
print([kind for kind in object.__subclasses__() if kind.__name__ == "AST"])
import msgspec, re, typing
assert typing.Pattern[str].__origin__ is re.Pattern and re.compile("a").match("a")
assert msgspec.toml.decode(b"a = 1") == {{"a": 1}} and msgspec.inspect.type_info(int)
assert msgspec.json.schema(list[int])["items"] == {{"type": "integer"}}
assert msgspec.msgpack.decode(b"\\x01") == 1 and typing.ForwardRef("int").__forward_arg__
"""
    env = {**CLEAN, "INTERCORE_MODE": "direct"}
    command = [WHEEL_BIN / "python", "-E", "-P", "-S", "-c", code]

    done = subprocess.run(command, capture_output=True, cwd=initialized, env=env, check=False)

    assert (done.stdout, done.stderr) == (b"allowed\n[]\n[]\n", b"")


def test_the_packages_that_every_call_imports_hold_prose_and_the_version() -> None:
    root = Path(__file__).parents[2]

    (told,) = ast.parse((root / "icctl" / "__init__.py").read_text()).body
    about, version = ast.parse((root / "icd" / "__init__.py").read_text()).body
    assert isinstance(told, ast.Expr)
    assert isinstance(about, ast.Expr)
    assert ast.unparse(version) == f"__version__ = {__version__!r}"


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = (WHEEL_BIN.parents[1] / "dist").glob("intercore-*.whl")
    return found


def test_the_command_works_through_a_lone_symlink(initialized: Path, tmp_path: Path) -> None:
    link = tmp_path / "bin"
    link.mkdir()
    for name in ("icctl", "icctl-python"):
        (link / name).symlink_to(WHEEL_BIN / name)

        assert _health(link / name, initialized) == (0, b"ok\n")


def test_the_command_works_when_both_names_are_linked_as_pipx_does(
    initialized: Path, tmp_path: Path
) -> None:
    link = tmp_path / "bin"
    link.mkdir()
    for name in ("icctl", "ic", "icd"):
        (link / name).symlink_to(WHEEL_BIN / name)

    assert _health(link / "ic", initialized) == (0, b"ok\n")


def test_the_command_works_from_a_path_with_spaces(
    initialized: Path, tmp_path: Path, wheel: Path
) -> None:
    """pip then writes another first line, which is not an interpreter."""
    home = tmp_path / "a place with spaces"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    install = ["-m", "pip", "--python", home / "bin" / "python", "install", "--quiet", "--no-deps"]
    subprocess.run([WHEEL_BIN / "python", *install, wheel], check=True, capture_output=True)
    site = WHEEL_BIN.parent / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    target = home / "lib" / site.relative_to(WHEEL_BIN.parent / "lib")
    for package in ("click", "msgspec"):
        shutil.copytree(site / package, target / package)

    for name in ("icctl", "ic", "icctl-python"):
        assert _health(home / "bin" / name, initialized) == (0, b"ok\n")


@pytest.mark.parametrize("package", ["click", "msgspec"])
def test_the_command_works_where_a_library_lies_elsewhere(
    package: str, initialized: Path, tmp_path: Path, wheel: Path
) -> None:
    """As with a system's packages, which only `site` finds; click is wanted by help and mistakes."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    install = ["-m", "pip", "--python", home / "bin" / "python", "install", "--quiet", "--no-deps"]
    subprocess.run([WHEEL_BIN / "python", *install, wheel], check=True, capture_output=True)
    site = WHEEL_BIN.parent / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    target = home / "lib" / site.relative_to(WHEEL_BIN.parent / "lib")
    for name in ("click", "msgspec"):
        place = elsewhere if name == package else target
        shutil.copytree(site / name, place / name)
    (target / "elsewhere.pth").write_text(f"{elsewhere}\n")
    env = {**CLEAN, "HOME": str(initialized), "INTERCORE_MODE": "direct"}

    def status(*words: str) -> int:
        program = home / "bin" / "icctl-python"
        return subprocess.run(
            [program, *words], capture_output=True, cwd=initialized, env=env, check=False
        ).returncode

    assert status("health") == 0
    assert status("state", "set", "k", "s", "--value", "-5") == 0
    assert status("state", "--help") == 0
    assert status("state", "get", "--bogus") == 3


@pytest.mark.parametrize(
    "wish",
    [
        "import platform; platform.python_implementation()",
        "from textwrap import dedent",
        "from typing_extensions import TypeAliasType",
    ],
)
def test_another_msgspec_may_want_more_of_what_is_left_out(wish: str, tmp_path: Path) -> None:
    import msgspec

    shutil.copytree(Path(msgspec.__file__).parent, tmp_path / "msgspec")
    about = tmp_path / "msgspec" / "_utils.py"
    about.write_text(f"{wish}\n{about.read_text()}")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import icctl.imports, msgspec; "
        f"assert msgspec.__file__.startswith({str(tmp_path)!r}); "
        "import platform, textwrap, typing_extensions; "
        "assert textwrap.dedent and platform.machine(); "
        "assert msgspec.json.decode(b'1', type=int) == 1"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_without_its_python_says_so(tmp_path: Path) -> None:
    program = tmp_path / "icctl"
    shutil.copy(WHEEL_BIN / "icctl-python", program)

    done = subprocess.run([program, "ping"], capture_output=True, env=CLEAN, check=False)

    assert done.returncode == 2
    assert b"reinstall intercore" in done.stderr


def _health(program: Path, project: Path) -> tuple[int, bytes]:
    env = {**CLEAN, "HOME": str(project), "INTERCORE_MODE": "direct"}
    done = subprocess.run(
        [program, "health"], capture_output=True, cwd=project, env=env, check=False
    )
    return done.returncode, done.stdout or done.stderr
