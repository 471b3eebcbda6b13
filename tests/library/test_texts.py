"""What lib-intercore.sh reads when it is used: nobody can tell, except by the time."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.bash import BASHES, LIBRARY, Place
from tests.support.library import MARK, PARTS, made, parts
from tests.support.processes import PATIENCE, Daemon

# The door makes no difference to what bash does.
NATIVE = pytest.mark.parametrize("door", ["native"], indirect=True)

# Answers 1, the token of the claim, as often as it is asked.
CALL = "intercore_lease_acquire work s 1h me"

SOURCED = {
    "by its path": f"source {LIBRARY}",
    "the way of POSIX": f". {LIBRARY}",
    "by a relative path": f"cd {LIBRARY.parent}; source ./{LIBRARY.name}; cd - >/dev/null",
    "in a function": f"take() {{ local IFS=_; source {LIBRARY}; }}; take",
    "twice": f"source {LIBRARY}; {CALL} >/dev/null; source {LIBRARY}",
    "from a pipe": f"source <(cat {LIBRARY})",
    "from stdin": f"source /dev/stdin <{LIBRARY}",
    "from a file that is gone": f"cp {LIBRARY} mine; source ./mine; rm mine",
    "from a file that is replaced": f"cp {LIBRARY} mine; source ./mine; echo exit 9 >mine",
    "in POSIX mode": f"set -o posix; source {LIBRARY}; set +o posix",
    "under set -a": f"set -a; source {LIBRARY}; set +a",
}

# {call} is the first of its kind.
CALLED = {
    "plainly": "{call}",
    "strictly": "set -euo pipefail; {call}; if intercore_gate_check x 2>/dev/null; then exit 9; fi",
    "with -v": "{call_v}; echo $value",
    "with -v, into a local": "ask() {{ local value=; {call_v}; echo $value; }}; ask; [[ -z ${{value-}} ]]",
    "with odd settings": "IFS=_x-; set -fC; shopt -s nocasematch nullglob failglob extglob; {call}",
    "in POSIX mode": "set -o posix; {call}",
    "in a subshell": "( {call} )",
    "in a pipeline": "{call} | cat",
    "in a substitution": 'echo "$({call})"',
    "in a job": "{call} & wait $!",
    "in a trap": "trap '{call}' EXIT; exit 0",
    "without stdin": "exec 0<&-; {call}",
    "with documents in files": "BASH_COMPAT=50; {call}",
    "without parameters": "set --; set -u; intercore_lease_list | cut -f1 | grep -v .; {call}",
    "among aliases": "shopt -s expand_aliases; alias local='echo no' eval=false read=false; {call}",
    "where stdin has no name": "enable -n source; {call}",
    "by a copy of the function": 'eval "my_$(declare -f intercore_lease_acquire)"; my_{call}',
}  # fmt: skip


@pytest.fixture(params=BASHES)
def bash(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(initialized: Path, any_daemon: Daemon, door: Path, bash: str) -> Place:
    env = {"INTERCORE_SOCKET": any_daemon.socket, "INTERCORE_TIMEOUT": "30s"}
    return Place(initialized, env, bash)


def run(place: Place, script: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [place.bash, "-c", script],
        cwd=place.project, env=place.env, capture_output=True, timeout=PATIENCE * 3, check=False,
    )  # fmt: skip


def say(place: Place, script: str) -> list[str]:
    done = run(place, script)
    assert done.stderr == b"", done.stderr.decode()
    return done.stdout.decode().splitlines()


@NATIVE
@pytest.mark.parametrize("way", SOURCED)
def test_what_is_text_is_there_however_the_library_was_sourced(place: Place, way: str) -> None:
    assert say(place, f"{SOURCED[way]}; {CALL}; ( {CALL} ); {CALL}") == ["1"] * 3


@NATIVE
@pytest.mark.parametrize("way", CALLED)
def test_what_is_text_is_there_however_it_is_called(place: Place, way: str) -> None:
    script = CALLED[way].format(call=CALL, call_v=CALL.replace("acquire", "acquire -v value"))

    assert say(place, f"source {LIBRARY}; {script}") == ["1"]


@NATIVE
def test_a_shell_that_was_handed_the_functions_has_the_texts_too(place: Place) -> None:
    """Under `set -a`, before and after the first call of the shell that sourced it."""
    child = f"{place.bash} -c '{CALL}'"

    said = say(place, f"set -a; source {LIBRARY}; set +a; {child}; {CALL}; {child}")

    assert said == ["1"] * 3


def test_all_functions_are_there_before_anything_is_used(bash: str) -> None:
    probe = "declare -F intercore_run_advance intercore_lock; type -t intercore_gate_check"

    said = subprocess.check_output([bash, "-c", f"source {LIBRARY}; {probe}"], text=True)

    assert said.split() == ["intercore_run_advance", "intercore_lock", "function"]


@NATIVE
def test_functions_that_the_caller_has_replaced_or_protected_stay_what_they_are(
    place: Place,
) -> None:
    said = say(
        place,
        f"""
    source {LIBRARY}
    intercore_lease_list() {{ echo mine; }}
    readonly -f intercore_lease_acquire
    {CALL}; {CALL}; intercore_lease_list
    """,
    )

    assert said == ["1", "1", "mine"]


@NATIVE
def test_another_version_that_is_sourced_later_brings_its_own_texts(place: Place) -> None:
    newer = LIBRARY.read_text().replace("_intercore_answer 1 lease acquire", "echo newer")
    (place.project / "newer").write_text(newer)

    said = say(place, f"source {LIBRARY}; {CALL}; source ./newer; {CALL}")

    assert said[0] == "1"
    assert said[1].startswith("newer ")


@NATIVE
def test_the_first_use_leaves_stdin_descriptors_options_and_parameters_alone(place: Place) -> None:
    script = f"""
    source {LIBRARY}; set -- one two; trap 'true' RETURN
    state() {{ set +o; shopt; trap; echo "$*"; set -- /proc/$BASHPID/fd/*; echo $#; }}
    state "$@" >before; read -r first; {CALL} >/dev/null; read -r second; state "$@" >after
    echo "$first $second"
    """

    said = say(place, f"printf 'a\nb\n' | {{ {script} }}")

    assert said == ["a b"]
    assert (place.project / "before").read_text() == (place.project / "after").read_text()


@NATIVE
def test_a_text_that_cannot_be_read_is_told_and_the_next_call_tries_again(place: Place) -> None:
    done = run(place, f"source {LIBRARY}; ( ulimit -n 5; {CALL}; echo $? ); {CALL}")

    assert done.stdout.split() == [b"2", b"1"]
    assert re.fullmatch(rb"intercore: bash cannot read lib-intercore/lease.sh; .*\n", done.stderr)


@NATIVE
def test_what_is_0_always_is_so_even_if_its_text_cannot_be_read(place: Place) -> None:
    place.env["INTERCORE_BIN"] = "/bin/false"
    calls = (
        "intercore_unlock n s; intercore_lock_clean; intercore_dispatch_kill d; "
        "intercore_state_delete_all k 'x*'; intercore_sentinel_reset_all n 'x*'; "
        "intercore_sentinel_reset_or_legacy n s 'x*'; intercore_cleanup_stale"
    )

    said = run(place, f"source {LIBRARY}; set -e; ulimit -n 5; {calls}; echo on").stdout

    assert said == b"on\n"


def test_the_end_of_the_library_is_made_from_its_parts() -> None:
    library = LIBRARY.read_text(encoding="utf-8")

    assert made(library) == library, "run make docs"
    called = set(re.findall(r"_intercore_late ([a-z]+) ", library))
    assert called == {part.stem for part in parts()}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The library and its parts, in a directory where they can be replaced."""
    shutil.copy(LIBRARY, tmp_path)
    shutil.copytree(PARTS, tmp_path / PARTS.name)
    return tmp_path


@NATIVE
def test_parts_of_another_version_come_with_all_of_that_version(place: Place, copied: Path) -> None:
    """As when an upgrade replaces the files under a script that has sourced them."""
    upgrade = "sed -i 's/_intercore_core=1/_intercore_core=2/; s/_intercore_core-} == 1/_intercore_core-} == 2/; "
    upgrade += f"s/_intercore_answer 1 lease acquire/echo newer/' {copied}/*.sh {copied}/*/*.sh"

    said = say(place, f"source {copied}/{LIBRARY.name}; {upgrade}; {CALL}; intercore_lock_clean")

    assert len(said) == 1
    assert said[0].startswith("newer ")


@NATIVE
def test_parts_that_were_removed_are_told(place: Place, copied: Path) -> None:
    done = run(place, f"source {copied}/{LIBRARY.name}; rm -r {copied}/lib*; {CALL}; echo $?")

    assert done.stdout == b"2\n"
    assert re.fullmatch(rb"intercore: bash cannot read lib-intercore/lease.sh; .*\n", done.stderr)


@NATIVE
def test_a_copy_that_is_alone_has_every_function_of_every_part(
    place: Place, tmp_path: Path
) -> None:
    alone = shutil.copy(LIBRARY, tmp_path / "alone.sh")
    names = r"^(_intercore_\w+)\(\)"
    wanted = {n for part in parts() for n in re.findall(names, part.read_text(), re.MULTILINE)}

    every = " ".join(part.stem for part in parts())
    said = say(place, f"source {alone}; for p in {every}; do _intercore_read $p; done; declare -F")

    assert wanted <= {line.removeprefix("declare -f ") for line in said}


def test_sourcing_reads_no_part_and_costs_less_than_half_of_what_all_of_it_would(
    bash: str, tmp_path: Path
) -> None:
    """In instructions, which are the same on a busy machine."""
    if shutil.which("valgrind") is None:
        pytest.skip("not installed: valgrind")
    alone = shutil.copy(LIBRARY, tmp_path / "alone.sh")
    opened = tmp_path / "opened.sh"
    opened.write_text(
        LIBRARY.read_text().partition(MARK)[0] + "\n".join(part.read_text() for part in parts())
    )

    bare, whole, texts, sourced = (
        instructions(bash, script)
        for script in (":", f"source {opened}", f"source {alone}", f"source {LIBRARY}")
    )

    assert sourced - bare < 0.4 * (whole - bare)
    assert texts - bare < 0.55 * (whole - bare)


def instructions(bash: str, script: str) -> int:
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    told = subprocess.run(
        [*tool, bash, "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    found = re.search(rb"Collected : (\d+)", told.stderr)
    assert found, told.stderr
    return int(found[1])
