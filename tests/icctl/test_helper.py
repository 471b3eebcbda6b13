"""The helper that serves a shell, driven by a real bash."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import BIN, CLEAN, DOORS, PATIENCE, Daemon, icctl, running, until
from tests.support.scripted import fields, scripted

# Python has none: see the last test.
pytestmark = [
    pytest.mark.usefixtures("door"),
    pytest.mark.parametrize("door", ["native"], indirect=True),
]

# What lib-intercore.sh does, as short as it can be.
CALL = r"""
start() { local owner=$BASHPID; read -r pid dir <<<"$(icctl --helper "$owner")"; }
call() {
    local words=$(( $# + 1 ))
    {
        printf 'ic1 %d\0d%s\0' "$words" "$PWD" >&8
        printf 'a%s\0' "$@" >&8
        IFS= read -r -d '' status <&9
        case $status in
            *@) status=${status%@} out=$(<"$dir/stdout") err=$(<"$dir/stderr");;
            !*) out= err=;;
            *) IFS= read -r -d '' out <&9; IFS= read -r -d '' err <&9;;
        esac
    } 8<>"$dir/in" 9<>"$dir/out"
}
start
"""


def bash(script: str, cwd: Path, daemon: str, **options) -> "subprocess.CompletedProcess[bytes]":
    env = {**CLEAN, "HOME": str(cwd), "INTERCORE_SOCKET": daemon, "TMPDIR": str(cwd)}
    return subprocess.run(
        ["bash", "-c", CALL + script],
        cwd=cwd, env=env, capture_output=True, check=False, **{"timeout": PATIENCE, **options},
    )  # fmt: skip


def leftovers(project: Path) -> list[str]:
    return [p.name for p in project.glob("intercore-helper-*")]


def test_a_helper_answers_as_the_command_does(initialized: Path, shared_daemon: Daemon) -> None:
    script = """
    show() { printf '%s|%s|%s\\n' "$status" "$out" "$err"; }
    call sentinel check stop s --interval=0; show
    call sentinel check stop s --interval=0; show
    call state get nothing s; show
    call state set k s '--value={"a":"b c"}'; show
    call state get k s; show
    call state set k s word; show
    call bogus; printf '%s|%s\\n' "$status" "$err"
    """

    done = bash(script, initialized, shared_daemon.socket)

    assert done.stderr == b""
    assert done.stdout.decode() == (
        "0|allowed\n|\n1|throttled\n|\n1||\n0||\n"
        '0|{"a":"b c"}\n|\n'
        "3||icctl: state set: unexpected argument 'word': use @FILE, or --value for inline JSON\n\n"
        "3|icctl: unknown command: bogus\n"
    )


def test_any_bytes_that_a_shell_can_hold_pass_both_ways(
    initialized: Path, shared_daemon: Daemon
) -> None:
    script = r"""
    odd=$'quotes \' " back\\slash \t tab \n line é € 😀 $HOME `x` * ; '
    json=$(python3 -c 'import json,sys; print(json.dumps([sys.argv[1]] + ["y"*100000]*10))' "$odd")
    call state set k s "--value=$json"; echo "$status"
    call state get k s; echo "$status"
    [[ $out == "$json" ]] && echo same
    call state set k s '--value=["'$'\xff''"]'; echo "$status $err"
    """

    done = bash(script, initialized, shared_daemon.socket)

    first, second, third, last = done.stdout.split(b"\n", 3)
    assert [first, second, third] == [b"0", b"0", b"same"]
    assert last.startswith(b"3 icctl: argument 5 is not valid UTF-8")


def test_a_helper_uses_the_directory_and_environment_of_each_call(
    initialized: Path, shared_daemon: Daemon, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    icctl("init", cwd=other, env={"INTERCORE_MODE": "direct"})
    script = f"""
    call state set k s --value=1
    cd {other}; call state get k s; echo "$status"
    call state set k s --value=[7]; echo "$status"
    call state get k s; echo "$out"
    call state get k s --json; echo "${{out##*writer_pid}}"; echo $$
    """

    done = bash(script, initialized, shared_daemon.socket)

    missing, wrote, value, writer, shell = done.stdout.split()
    assert [missing, wrote, value] == [b"1", b"0", b"[7]"]
    assert writer.startswith(b'":' + shell)


def test_a_helper_survives_restarts_of_the_daemon_and_says_when_there_is_none(
    initialized: Path,
) -> None:
    with running() as daemon:
        script = f"""
        call state incr n s; echo "$status $out"
        kill -9 {daemon.pid}; read -r
        call state incr n s; echo "$status"
        echo restart >&3; read -r
        call state incr n s; echo "$status $out"
        """
        env = {**CLEAN, "HOME": str(initialized), "INTERCORE_SOCKET": daemon.socket}
        reader, writer = os.pipe()
        process = subprocess.Popen(
            ["bash", "-c", CALL + script.replace(">&3", f">&{writer}")],
            cwd=initialized, env=env, pass_fds=[writer], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert daemon.process is not None
        assert daemon.process.wait(PATIENCE) == -signal.SIGKILL
        process.stdin.write(b"gone\n")
        process.stdin.flush()
        assert os.read(reader, 10) == b"restart\n"
        daemon.start()
        out, _ = process.communicate(b"there\n", timeout=PATIENCE)
        os.close(reader)
        os.close(writer)

    first, absent, last = [line for line in out.splitlines() if line]
    assert first == b"0 1"
    assert absent.startswith(b"!a ")
    assert last == b"0 2"


def test_what_a_helper_hands_over_the_command_goes_on_with(initialized: Path) -> None:
    script = """
    call state incr n s
    INTERCORE_HANDOVER=${status#!} icctl state incr n s
    call state list n --no-daemon; echo "${status%% *}"
    """

    done = bash(script, initialized, "/nonexistent")

    assert (done.stdout, done.stderr) == (b"1\n!-\n", b"")


@pytest.mark.parametrize("end", ["exit", "kill -9 $$", "kill -TERM $$", "exec true"])
def test_a_helper_ends_with_its_shell_and_leaves_nothing(
    end: str, initialized: Path, shared_daemon: Daemon
) -> None:
    done = bash(f"call ping; echo $pid; {end}", initialized, shared_daemon.socket)
    pid = int(done.stdout)

    until(lambda: not Path(f"/proc/{pid}").exists())
    assert leftovers(initialized) == []


def test_a_helper_that_is_told_to_end_leaves_nothing(
    initialized: Path, shared_daemon: Daemon
) -> None:
    done = bash(
        'kill $pid; while kill -0 $pid 2>&-; do read -t 0.01 <> <(:); done; ls "$dir"',
        initialized,
        shared_daemon.socket,
    )

    assert b"No such file" in done.stderr
    assert leftovers(initialized) == []


def test_a_helper_disturbs_neither_jobs_nor_descriptors_of_its_shell(
    initialized: Path, shared_daemon: Daemon
) -> None:
    script = r"""
    sleep 1 & mine=$!
    start
    call ping
    [[ $! == "$mine" ]] && echo "last job is mine"
    jobs -p | wc -l
    wait; echo "waited $?"
    coproc cat; call ping; echo "coproc ${#COPROC[@]} $status"
    ls /proc/self/fd | wc -l
    [[ $(ps -o sid= -p $pid) -ne $(ps -o sid= -p $$) ]] && echo "own session"
    find /proc/$pid/fd -lname 'pipe:*' | wc -l
    """

    done = bash(script, initialized, shared_daemon.socket)

    assert done.stderr == b""
    job, jobs, waited, coproc, inherited, session, pipes = done.stdout.decode().splitlines()
    assert job == "last job is mine"
    assert jobs == "1"
    assert waited == "waited 0"
    assert coproc == "coproc 2 0"
    assert inherited == "4", "stdin, stdout, stderr, and the directory that ls reads"
    assert session == "own session"
    assert pipes == "0", "the helper holds no pipe of whoever started the shell"


def test_a_helper_without_a_shell_is_refused(tmp_path: Path) -> None:
    for argument in ("999999999", "x"):
        done = icctl("--helper", argument, cwd=tmp_path)

        assert done.returncode in (2, 3)
        assert done.stdout == b""
        assert done.stderr.startswith(b"icctl: ")
    assert leftovers(tmp_path) == []


def test_a_helper_does_not_grow(
    initialized: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers through files, which are the larger ones; memory is counted in pages by the kernel."""
    monkeypatch.setitem(CLEAN, "PATH", f"{BIN}:/usr/bin:/bin")  # sanitizers keep what was freed
    script = """
    memory() { read -r _ pages _ </proc/$pid/statm; }
    for ((i = 0; i < 200; i++)); do call help; done; memory; before=$pages
    for ((i = 0; i < 600; i++)); do call help; done; memory
    echo $(( pages - before ))
    """

    done = bash(script, initialized, daemon.socket, timeout=4 * PATIENCE)  # 800 calls

    assert int(done.stdout) < 256, "a megabyte"


# --- what it does not do itself ---


@pytest.mark.parametrize(
    "call",
    [
        "state set k s",
        "state set k s @file.json",
        "state set k s @/dev/stdin",
        "health --no-daemon",
    ],
)
def test_what_needs_the_shells_own_descriptors_is_left_to_the_shell(
    call: str, initialized: Path, shared_daemon: Daemon
) -> None:
    done = bash(f'call {call}; echo "${{status%% *}}"', initialized, shared_daemon.socket)

    assert done.stdout == b"!-\n"


def test_input_that_the_shell_left_is_used_once(initialized: Path, shared_daemon: Daemon) -> None:
    script = """
    echo '[1]' >"$dir/stdin"; call state set k s; echo "$status"
    call state get k s; echo "$out"
    call state set k s; echo "${status%% *}"
    """

    assert bash(script, initialized, shared_daemon.socket).stdout.split() == [b"0", b"[1]", b"!-"]


@pytest.mark.parametrize(("mode", "answer"), [("bogus", b"!-\n"), ("direct", b"!-\n")])
def test_a_mode_that_is_not_for_a_helper_is_handed_over(
    mode: str, answer: bytes, initialized: Path, shared_daemon: Daemon
) -> None:
    script = (
        f'INTERCORE_MODE={mode}; export INTERCORE_MODE; start; call ping; echo "${{status%% *}}"'
    )

    assert bash(script, initialized, shared_daemon.socket).stdout == answer


# --- a connection that was kept ---


def test_requests_on_a_kept_connection_are_judged_one_by_one(tmp_path: Path) -> None:
    """Answered, then: lost after it was read; answered by more than was asked; closed unread."""
    pong = b"0 5 0\npong\n"

    def first(connection) -> None:
        connection.sendall(pong)
        connection.recv(65_536)

    def second(connection) -> None:
        connection.sendall(pong + b"1 0 0\n")

    script = """
    call ping; echo "$status"
    call ping; echo "${status%% *}"
    call ping; echo "$status"
    call ping; echo "$status"
    """
    with scripted(tmp_path, first, second, pong) as server:
        done = bash(script, tmp_path, str(tmp_path / "s"))

    assert done.stdout.split() == [b"0", b"!l", b"0", b"0"]
    assert all(b"aping" in fields(frame) for frame in server.frames)


def test_a_stream_is_left_to_a_process_of_its_own(tmp_path: Path) -> None:
    with scripted(tmp_path, b"+ 2 0\nx\n"):
        done = bash('call statusline; echo "${status%% *}"', tmp_path, str(tmp_path / "s"))

    assert done.stdout == b"!l\n"


# --- where it lives ---


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "TMPDIR"])
@pytest.mark.parametrize("value", ["", "relative", "/nonexistent", "/dev/null", "/" + "x" * 300])
def test_a_directory_that_cannot_hold_pipes_is_passed_over(
    variable: str, value: str, initialized: Path, shared_daemon: Daemon
) -> None:
    (initialized / "relative").mkdir()
    script = f"export {variable}='{value}'; start; call ping; echo $status $dir"

    status, directory = bash(script, initialized, shared_daemon.socket).stdout.split()

    assert status == b"0"
    assert directory.startswith((b"/tmp/", bytes(initialized)))
    until(lambda: not Path(os.fsdecode(directory)).exists())
    assert list((initialized / "relative").iterdir()) == []


def test_a_directory_of_somebody_else_is_passed_over(
    initialized: Path, shared_daemon: Daemon
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of somebody else")
    theirs = initialized / "theirs"
    theirs.mkdir(mode=0o777)
    os.chown(theirs, 65_534, 65_534)

    done = bash(
        f"export XDG_RUNTIME_DIR={theirs}; start; echo $dir", initialized, shared_daemon.socket
    )

    assert not done.stdout.startswith(bytes(theirs))


def test_a_helper_that_leaves_under_a_call_leaves_no_files(
    initialized: Path, shared_daemon: Daemon
) -> None:
    """A shell that opens the pipes while they are removed would make plain files of their names."""
    script = """
    for ((i = 0; i < 20; i++)); do
        start; kill $pid
        while { : ; } 2>/dev/null 8<>"$dir/in" 9<>"$dir/out"; do :; done
    done
    """

    bash(script, initialized, shared_daemon.socket)

    until(lambda: leftovers(initialized) == [])


def test_an_interrupt_while_it_starts_leaves_nothing(initialized: Path) -> None:
    """As early as its directory can be seen, Ctrl-C reaches everybody in the foreground."""
    env = {**CLEAN, "HOME": str(initialized), "TMPDIR": str(initialized)}
    for _ in range(20):
        process = subprocess.Popen(
            ["bash", "-c", 'x=$(icctl --helper "$$")'], cwd=initialized, env=env,
            start_new_session=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(lambda process=process: process.poll() is not None or leftovers(initialized))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)

    until(lambda: leftovers(initialized) == [])


# --- the Python client ---


def test_the_python_client_is_no_helper_and_counts_no_failure(tmp_path: Path) -> None:
    """Other versions of the library ask it for one, and do without."""
    python = DOORS / "python" / "icctl"
    env = {"INTERCORE_SOCKET": str(tmp_path / "icd.sock")}

    done = icctl("--helper", str(os.getpid()), cwd=tmp_path, env=env, program=python)

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--helper needs the native client" in done.stderr
    assert list(tmp_path.iterdir()) == []
