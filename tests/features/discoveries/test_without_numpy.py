"""Without the extra `intercore[vectors]`: what compares embeddings says so, all else works."""

import json
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import icd
from tests.support.discovered import Elsewhere, discover, packed
from tests.support.processes import CLEAN, PATIENCE, running

Call = Callable[..., "subprocess.CompletedProcess[bytes]"]

WITHOUT = "import sys; sys.modules['numpy'] = None; "
DAEMON = [sys.executable, "-c", f"{WITHOUT} from icd.__main__ import main; main()"]
CLIENT = f"{WITHOUT} from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"

REFUSED = (
    "comparing embeddings needs numpy, which is not installed;"
    " install the extra with: pip install 'intercore[vectors]',"
    " or: pipx inject intercore numpy\n"
)


@pytest.fixture
def several(project: Path) -> Path:
    with Elsewhere(project) as conn:
        discover(conn, "d1", packed(1.0, 0.0))
        discover(conn, "d2", packed(0.0, 1.0))
    (project / "v").write_bytes(packed(1.0, 0.5))
    return project


@pytest.fixture(params=["daemon", "direct"])
def call(request: pytest.FixtureRequest, several: Path) -> Iterator[Call]:
    """A command in either host, neither of which finds numpy."""

    def called(*words: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [sys.executable, "-c", CLIENT, *words],
            cwd=several, env={**CLEAN, "HOME": str(several), **env}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    if request.param == "direct":
        env = {"INTERCORE_MODE": "direct"}
        yield called
        return
    with running(command=DAEMON) as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}
        yield called


SUBMIT = ["discovery", "submit", "--source=s", "--source-id=3", "--title=t", "--embedding=@v"]


def test_a_search_names_the_extra_and_how_to_install_it(call: Call) -> None:
    done = call("discovery", "search", "--embedding=@v")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"icctl: discovery search: {REFUSED}"


def test_the_error_has_a_name_of_its_own(several: Path) -> None:
    with running(command=DAEMON) as daemon:
        said = daemon.respond("discovery.search", cwd=str(several), like="d1")

    assert said["error"]["data"]["name"] == "vectors_not_installed"
    assert said["error"]["data"]["exit"] == 2


def test_a_submission_is_refused_only_if_it_is_to_be_compared(call: Call) -> None:
    compared = call(*SUBMIT, "--dedup-threshold=0.9")
    stored = call(*SUBMIT)

    assert (compared.returncode, compared.stderr.decode()) == (
        2,
        f"icctl: discovery submit: {REFUSED}",
    )
    assert (stored.returncode, stored.stderr) == (0, b"")


def test_a_file_of_submissions_is_refused_for_the_same_reason(call: Call, several: Path) -> None:
    line = {"source": "new", "source_id": "1", "title": "t", "embedding": [1.0, 2.0]}
    (several / "lines").write_text(json.dumps(line))
    (several / "plain").write_text(json.dumps(line | {"embedding": None}))

    compared = call("discovery", "submit", "--from=lines", "--dedup-threshold=0.9")
    plain = call("discovery", "submit", "--from=plain", "--dedup-threshold=0.9")

    assert (compared.returncode, compared.stderr.decode()) == (
        2,
        f"icctl: discovery submit: {REFUSED}",
    )
    assert (plain.returncode, plain.stderr) == (0, b"")


def test_a_ranking_is_refused_once_there_is_a_topic_to_compare_with(call: Call) -> None:
    before = call("discovery", "rank")
    topic = call("discovery", "profile", "update", "--topic-vector=@v")
    after = call("discovery", "rank")

    assert (before.returncode, topic.returncode) == (0, 0)
    assert (after.returncode, after.stderr.decode()) == (2, f"icctl: discovery rank: {REFUSED}")


def test_everything_else_about_discoveries_works(call: Call) -> None:
    said = [
        call("discovery", "list").returncode,
        call("discovery", "score", "d1", "--score=0.9").returncode,
        call("discovery", "promote", "d1", "--bead-id=b").returncode,
        call("discovery", "dismiss", "d2").returncode,
        call("discovery", "decay", "--rate=0.1").returncode,
        call("discovery", "profile").returncode,
        call("export", "dump").returncode,
        call("health").returncode,
    ]

    assert said == [0] * 8


def test_every_module_loads_without_numpy() -> None:
    names = [module.name for module in pkgutil.walk_packages(icd.__path__, "icd.")]
    code = f"{WITHOUT} import importlib; [importlib.import_module(n) for n in {names!r}]"

    subprocess.run([sys.executable, "-c", code], env=CLEAN, check=True, timeout=PATIENCE)


def test_what_tests_compare_with_is_installed_here() -> None:
    assert find_spec("numpy") is not None
