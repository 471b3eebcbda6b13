"""The two doors, `icctl` in C and in Python, side by side: what they send, what they make of it."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from icctl import messages
from icd import __version__
from tests.support import processes
from tests.support.processes import CLEAN, DOORS, PATIENCE, Daemon, icctl, until
from tests.support.scripted import fields, scripted, through

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "HOME": "/home/nobody",
    "INTERCORE_DB": "/some/where.db",
    "CLAUDE_SESSION_ID": "session \xff".encode("latin-1").decode("utf-8", "surrogateescape"),
    "IC_TRACE_ID": "trace",
    "IC_SPAN_ID": "",
    "INTERCORE_OTHER": "never sent",
}


AUTO = {"INTERCORE_MODE": "auto"}


# --- whom they ask ---

ASKED = [
    "lock list",
    "hold n s -- true",
    "--json lock list",
    "--db=x.db lock list",
    "--db lock lock list",
    "--db --timeout lock list",
    "--timeout 5s --if-database lock list",
    "--timeout=5s lock list",
    "--unknown lock list",
    "state get lock hold",
    "--db lock state get k s",
    "--timeout 5s ping",
    "--json --verbose ping",
    "-- lock list",
    "ping -- lock",
    "locks list",
    "",
]
# Also with a mode that makes no sense elsewhere: locks need no daemon.
NOT_ASKED = [
    ("lock list --no-daemon", "daemon"),
    ("hold --no-daemon n s -- true", "daemon"),
    ("--no-daemon ping", "daemon"),
    ("lock list", "direct"),
    ("hold n s -- true", "direct"),
    ("lock list", "nonsense"),
    ("hold n s -- true", "nonsense"),
]


@pytest.mark.parametrize("line", ASKED)
def test_the_daemon_is_asked(line: str, tmp_path: Path, door: Path) -> None:
    env = {**through(tmp_path), "INTERCORE_LOCK_DIR": str(tmp_path / "locks")}
    if line.startswith("hold") and door.name == "python":
        # Python holds in its own process, in which nothing is native.
        assert icctl(*line.split(), cwd=tmp_path, env=env).returncode == 0
        return
    with scripted(tmp_path, b"0 5 0\nasked"):
        assert icctl(*line.split(), cwd=tmp_path, env=env).stdout == b"asked"


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("line", ["lock list", "hold n s -- true"])
def test_locks_need_no_daemon_even_if_only_that_is_to_be_asked(line: str, tmp_path: Path) -> None:
    env = {**through(tmp_path), "INTERCORE_LOCK_DIR": str(tmp_path / "locks")}

    assert icctl(*line.split(), cwd=tmp_path, env=env).returncode == 0


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(("line", "mode"), NOT_ASKED)
def test_the_daemon_is_not_asked(line: str, mode: str, tmp_path: Path) -> None:
    locks = {"INTERCORE_LOCK_DIR": str(tmp_path / "locks")}
    env = {**through(tmp_path), **locks, "INTERCORE_MODE": mode}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(env["INTERCORE_SOCKET"])
        listener.listen()
        listener.settimeout(0)

        icctl(*line.split(), cwd=tmp_path, env=env)

        with pytest.raises(BlockingIOError):
            listener.accept()


# --- what they send ---


def test_both_doors_send_the_same_frame(tmp_path: Path) -> None:
    if not (DOORS / "native" / "icctl").exists():
        pytest.skip("no C compiler: the native client was not built")
    argv = ("state", "set", "k", b"\xff\n\t'\"\\", "--", "--timeout=1ms", "x" * 100_000, "")
    sent = []
    for door in ("python", "native"):
        with scripted(tmp_path, b"? stdin 10\n", b"0 0 0\n") as server:
            icctl(*argv, cwd=tmp_path, program=DOORS / door / "ic", stdin=b"\0stdin that is long",
                  env={**ENVIRONMENT, **through(tmp_path)})  # fmt: skip
        sent.append([_comparable(frame) for frame in server.frames])

    assert sent[0] == sent[1]
    assert b"s11:" in sent[0][1]
    assert sent[0][1][-1] == b"\0stdin that"


def _comparable(frame: bytes) -> list[bytes]:
    """Without what differs between two calls, and with the arguments and the rest in their order."""
    found = fields(frame)
    own = sorted(f for f in found[:-1] if f[:1] not in (b"i", b"t", b"b", b"v", b"a"))
    assert len(found[0]) or found
    ids = [f for f in found if f[:1] == b"i" and len(f) == 25]
    assert len(ids) == 1
    return [*own, *(f for f in found[:-1] if f[:1] == b"a"), found[-1]]


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    ("argument", "limit"), [("--timeout=2s", 2000), ("--timeout=250ms", 250), ("--timeout=1m", 60_000),
                            ("--timeout=1.5s", 1500), ("--timeout=9h", 300_000), ("--timeout=0", 5000),
                            ("--timeout=x", 5000), ("--verbose", 5000)]
)  # fmt: skip
def test_the_deadline_is_the_one_that_was_asked_for(
    argument: str, limit: int, tmp_path: Path
) -> None:
    before = _monotonic_ms()
    with scripted(tmp_path, b"0 0 0\n") as server:
        icctl("state", "list", "k", argument, cwd=tmp_path, env=through(tmp_path))
    after = _monotonic_ms()

    (deadline,) = (int(f[1:]) for f in fields(server.frames[0]) if f[:1] == b"t")
    margin = min(500, limit // 10)
    assert before + limit - margin - 1 <= deadline <= after + limit - margin + 1


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    ("line", "limit"),
    [("discovery search --like=d", 10_000), ("--json discovery search", 10_000),
     ("discovery search --timeout=3s", 3000), ("discovery search --timeout=0", 10_000),
     ("discovery list search", 5000), ("state get discovery -- discovery search", 5000),
     ("lock acquire n s", 6000), ("lock acquire n s --timeout=2s", 7000),
     ("--timeout=10m lock list", 605_000), ("lock release n s --timeout=1h30m", 5_405_000)],
)  # fmt: skip
def test_a_search_and_a_lock_may_take_longer(line: str, limit: int, tmp_path: Path) -> None:
    before = _monotonic_ms()
    with scripted(tmp_path, b"0 0 0\n") as server:
        icctl(*line.split(), cwd=tmp_path, env=through(tmp_path))
    after = _monotonic_ms()

    (deadline,) = (int(f[1:]) for f in fields(server.frames[0]) if f[:1] == b"t")
    told = limit - min(500, limit // 10)
    assert before + told - 1 <= deadline <= after + told + 1


def _monotonic_ms() -> float:
    import time

    return time.monotonic() * 1000


# --- what they make of the answers ---


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("code", [0, 1, 2, 3, 130, 255])
def test_the_exit_status_and_both_outputs_arrive(code: int, tmp_path: Path) -> None:
    out, err = bytes(range(256)) * 5000, b"\xff\0warning\n"
    reply = b"%d %d %d\n" % (code, len(out), len(err)) + out + err

    with scripted(tmp_path, reply):
        done = icctl("version", cwd=tmp_path, env=through(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


@pytest.mark.usefixtures("door")
def test_a_file_that_is_asked_for_is_sent_or_said_to_be_unreadable(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"content")

    with scripted(tmp_path, b"? file 100 6\nx.json", b"? file 100 4\nnope", b"0 0 0\n") as server:
        done = icctl("state", "set", "k", "s", cwd=tmp_path, env=through(tmp_path))

    last = fields(server.frames[-1])
    assert done.returncode == 0
    assert b"f7:x.json" in last
    assert b"x2:nope" in last
    assert last[-1] == b"content"


@pytest.mark.usefixtures("door")
def test_a_stream_is_printed_as_it_comes_and_may_be_silent_beyond_the_deadline(
    tmp_path: Path,
) -> None:
    seen, go_on = threading.Event(), threading.Event()

    def reply(connection: socket.socket) -> None:
        connection.sendall(b"+ 4 0\none\n")
        assert seen.wait(PATIENCE)
        assert go_on.wait(PATIENCE)
        connection.sendall(b"+ 0 4\nerr\n" + b"1 4 0\ntwo\n")

    with scripted(tmp_path, reply):
        process = popen("statusline", "--timeout=5s", where=tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        seen.set()
        until(lambda: _waits_without_limit(process.pid))
        go_on.set()
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, err) == (1, b"two\n", b"err\n")


def _waits_without_limit(pid: int) -> bool:
    """Whether the process is in poll(2) or recv(2) with no timeout: 7 and 45 on x86_64."""
    words = Path(f"/proc/{pid}/syscall").read_text().split()
    if words[0] == "7":
        return words[3] == hex(0xFFFFFFFF) or int(words[3], 16) >= 0xFFFFFFFF
    return words[0] == "45"


@pytest.mark.usefixtures("door")
def test_a_stream_whose_reader_left_ends_quietly(tmp_path: Path) -> None:
    read = threading.Event()

    def reply(connection: socket.socket) -> None:
        connection.sendall(b"+ 4 0\none\n")
        assert read.wait(PATIENCE)
        while True:
            try:
                connection.sendall(b"+ 5 0\nmore\n")
            except OSError:
                return

    with scripted(tmp_path, reply):
        process = popen("statusline", where=tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        read.set()
        status = process.wait(PATIENCE)

    assert process.stderr is not None
    assert (status, process.stderr.read()) == (0, b"")
    process.stderr.close()


@pytest.mark.usefixtures("door")
def test_a_stream_that_breaks_says_so_and_is_not_started_again(tmp_path: Path) -> None:
    with scripted(tmp_path, b"+ 4 0\none\n"):
        done = icctl("statusline", cwd=tmp_path, env=through(tmp_path))

    assert (done.returncode, done.stdout) == (2, b"one\n")
    assert (
        done.stderr
        == b"icctl: statusline: the daemon stopped in the middle of its output; run the command again\n"
    )


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    "reply", [b"hello\n", b"0 1\n", b"0 x 0\n", b"-1 0 0\n", b"? socks 5\n", b"? stdin x\n", b"9" * 100, b"256 0 0\n", b"1234 5\n123456789", b"? stdin -2\n", b"0 0 0 \n", b" 0 0 0\n",
              b"0 999999999999 0\n", b"0000000000256 0 0\n", b"0 0000000000999999999 0\n", b"+ 0\n", b"\n", b"! elsewhere\n", b"!\n", b"! local x\n",
              b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}\n', b"ic2 0 0 0\n"]
)  # fmt: skip
def test_a_reply_that_is_none_is_an_unknown_outcome_and_nothing_is_tried_elsewhere(
    reply: bytes, initialized: Path, tmp_path: Path
) -> None:
    with scripted(tmp_path, reply) as server:
        done = icctl("state", "incr", "n", "s", cwd=initialized, env={**through(tmp_path), **AUTO})

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        f"icctl: state incr: unknown_outcome: what listens at {tmp_path}/s speaks another protocol"
        f" than icctl {__version__}; if it is icd, upgrade the older of the two,"
        " and read the state before you repeat a write\n"
    )
    assert len(server.frames) == 1
    assert icctl("state", "get", "n", "s", cwd=initialized, env=AUTO).returncode == 1


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("kept", range(len(b"0 8 0\nallowed\n")))
def test_a_daemon_that_dies_at_any_byte_of_its_reply_is_asked_again_under_the_same_id(
    kept: int, tmp_path: Path
) -> None:
    whole = b"0 8 0\nallowed\n"

    with scripted(tmp_path, whole[:kept], whole) as server:
        done = icctl("sentinel", "check", "a", "b", "--interval=1", cwd=tmp_path,
                     env=through(tmp_path))  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"allowed\n", b"")
    ids = [
        next(f for f in fields(frame) if f[:1] == b"i" and len(f) == 25) for frame in server.frames
    ]
    assert ids[0] == ids[1]


@pytest.mark.usefixtures("door")
def test_input_that_was_read_is_not_lost_when_the_daemon_dies_before_it_gets_it(
    initialized: Path, tmp_path: Path
) -> None:
    """stdin, and a file that can be read only once, are handed on to whoever runs the command."""
    env = {"INTERCORE_SOCKET": str(tmp_path / "s")}
    with scripted(tmp_path, b"? stdin 1000\n"):
        done = icctl("state", "set", "k", "s", cwd=initialized, env=env, stdin=b'{"x":1}')
    assert (done.returncode, done.stderr) == (0, b"")
    env["PATH"] = CLEAN["PATH"]
    with scripted(tmp_path, lambda c: c.sendall(b"? file 1000 10\n/dev/fd/63")):
        script = "icctl state set k2 s @/dev/fd/63 63< <(echo [2])"
        done = subprocess.run(["bash", "-c", script], cwd=initialized, env=env, check=False, capture_output=True)  # fmt: skip

    assert (done.returncode, done.stderr) == (0, b"")
    found = [
        icctl("state", "get", key, "s", cwd=initialized, env=env).stdout for key in ("k", "k2")
    ]
    assert found == [b'{"x":1}\n', b"[2]\n"]


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("stage", ["before the answer", "in the middle of it"])
def test_a_slow_daemon_is_left_at_the_deadline(stage: str, tmp_path: Path) -> None:
    left = threading.Event()

    def reply(connection: socket.socket) -> None:
        if stage == "in the middle of it":
            connection.sendall(b"0 1000 0\nallo")
        while connection.recv(65_536):
            pass
        left.set()

    with scripted(tmp_path, reply):
        done = icctl("state", "set", "k", "s", "--timeout=200ms", cwd=tmp_path, env=through(tmp_path), stdin=b"1")  # fmt: skip
        assert left.wait(PATIENCE)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"icctl: state set: unknown_outcome: the daemon did not answer within 0.2 s;"
        b" read the state before you repeat a write\n"
    )


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    "words",
    [
        ["state", "get", "k", "s"],
        ["state", "list", "k", "--json"],
        ["events", "tail", "--all"],
        ["status"],
        ["statusline"],
        ["no-such-command"],
    ],
)
def test_the_outcome_of_a_read_that_was_left_at_the_deadline_is_not_unknown(
    words: list[str], tmp_path: Path
) -> None:
    with scripted(tmp_path, _hear_out):
        done = icctl(*words, "--timeout=200ms", cwd=tmp_path, env=through(tmp_path))

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.endswith(
        b": deadline_exceeded: the daemon did not answer within 0.2 s;"
        b" nothing was changed; retry, or raise --timeout\n"
    )


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    "words",
    [
        ["db", "vacuum"],
        ["events", "tail", "--all", "--consumer=c"],
        ["sentinel", "check", "a", "b", "--interval=1"],
    ],
)
def test_what_is_more_than_a_read_has_an_unknown_outcome(words: list[str], tmp_path: Path) -> None:
    with scripted(tmp_path, _hear_out):
        done = icctl(*words, "--timeout=200ms", cwd=tmp_path, env=through(tmp_path))

    assert done.returncode == 2
    assert b": unknown_outcome: the daemon did not answer within 0.2 s;" in done.stderr


@pytest.mark.usefixtures("door")
def test_a_write_that_follows_a_read_has_an_unknown_outcome(tmp_path: Path) -> None:
    """What a consumer has read is acknowledged by a request of its own."""
    words = b"state\0incr\0k\0s\0--timeout=200ms\0"

    def follow(connection: socket.socket) -> None:
        connection.sendall(b"& 3 0 %d\n{}\n" % len(words) + words)
        _hear_out(connection)

    with scripted(tmp_path, follow, _hear_out):
        done = icctl("events", "tail", "--all", "--timeout=200ms", cwd=tmp_path,
                     env=through(tmp_path))  # fmt: skip
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as second:
            second.connect(str(tmp_path / "s"))  # unless the client itself came twice
            second.sendall(b"ic1 1\0ax\0")

    assert done.stdout == b"{}\n"
    assert b"unknown_outcome" in done.stderr


def _hear_out(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass


@pytest.mark.usefixtures("door")
def test_a_full_backlog_is_waited_for_and_not_taken_for_absence(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as caller:
        deaf.bind(str(tmp_path / "s"))
        deaf.listen(0)
        caller.connect(str(tmp_path / "s"))
        done = icctl("health", "--timeout=200ms", cwd=tmp_path, env={"INTERCORE_SOCKET": str(tmp_path / "s")})  # fmt: skip

    assert done.returncode == 2
    assert (
        done.stderr == b"icctl: health: the daemon did not accept the call within 0.2 s; "
        b"nothing was done; retry, or raise --timeout\n"
    )


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_call_at_once_and_is_seen_by_the_shell(number: int, tmp_path: Path) -> None:
    asked = threading.Event()

    def reply(connection: socket.socket) -> None:
        asked.set()
        while connection.recv(65_536):
            pass

    with scripted(tmp_path, reply):
        process = popen("state", "get", "k", "s", where=tmp_path)
        assert asked.wait(PATIENCE)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, err) == (-number, b"", b"")


def popen(*arguments: str, where: Path) -> "subprocess.Popen[bytes]":
    env = {**CLEAN, "HOME": str(where), **through(where)}
    command = [processes.door / "icctl", *arguments]
    return subprocess.Popen(command, cwd=where, env=env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


# --- handing over ---


def test_version_tells_which_door_was_used(initialized: Path, daemon: Daemon) -> None:
    served = {"INTERCORE_SOCKET": daemon.socket}
    absent = {"INTERCORE_SOCKET": "/nonexistent"}

    def door(client: str, env: dict[str, str]) -> str:
        program = DOORS / client / "icctl"
        done = icctl("version", "--verbose", cwd=initialized, env=env, program=program)
        return done.stdout.decode().splitlines()[2]

    assert door("python", served) == "door: python client, through the daemon"
    assert door("python", absent) == "door: python client, without the daemon"
    if not (DOORS / "native" / "icctl").exists():
        pytest.skip("no C compiler: the native client was not built")
    assert door("native", served) == "door: native keyhole, through the daemon"
    assert door("native", absent) == (
        "door: native keyhole, handed over to the python client, without the daemon"
    )


@pytest.mark.parametrize(
    "word",
    [
        "",
        "x",
        "- id 5 5 -1",
        "? id 5000 0 -1 d icctl",
        "a id x 0 -1 d icctl",
        "a id 1 1 99 d icctl",
        "a id 1 1 9999999999999999999999 d icctl",
    ],
)
def test_a_handover_that_is_none_is_ignored(word: str, initialized: Path) -> None:
    env = {"INTERCORE_HANDOVER": word, "INTERCORE_MODE": "direct"}

    done = icctl("health", cwd=initialized, env=env)

    assert (done.returncode, done.stdout) == (0, b"ok\n")


def test_what_was_handed_over_is_not_done_twice(initialized: Path, daemon: Daemon) -> None:
    """The id that came along is the one that counts, with and without the daemon."""
    late = "9" * 15
    env = {"INTERCORE_HANDOVER": f"l 0123456789abcdef01234567 5000 {late} -1 door ic"}

    for mode in ({"INTERCORE_SOCKET": daemon.socket}, {"INTERCORE_SOCKET": "/nonexistent"}):
        done = icctl("state", "incr", "n", "s", cwd=initialized, env={**env, **mode})

        assert (done.returncode, done.stdout) == (0, b"1\n")


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("name", [b"ic", b"ic\xff", "ïc".encode(), b"i c"])
def test_a_lost_request_keeps_its_id_whatever_the_program_is_called(
    name: bytes, tmp_path: Path
) -> None:
    with scripted(tmp_path, b"", b"0 0 0\n") as server:
        program = os.fsencode(processes.door / "icctl")
        env = {**CLEAN, **through(tmp_path)}
        subprocess.run(["bash", "-c", 'exec -a "$0" "$1" state incr n s', name, program],
                       env=env, cwd=tmp_path, check=True)  # fmt: skip

    assert (
        len({f for frame in server.frames for f in fields(frame) if f[:1] == b"i" and len(f) == 25})
        == 1
    )


@pytest.mark.usefixtures("door")
def test_a_file_that_may_not_grow_is_an_output_that_cannot_be_written(
    tmp_path: Path, daemon: Daemon
) -> None:
    env = {**CLEAN, "INTERCORE_SOCKET": daemon.socket}

    done = subprocess.run(["bash", "-c", "ulimit -f 0; icctl help >file"], cwd=tmp_path, env=env,
                          capture_output=True, check=False)  # fmt: skip

    assert done.returncode == 2
    assert b"cannot write to stdout" in done.stderr


def test_a_native_client_without_its_python_says_so(tmp_path: Path) -> None:
    import shutil

    if not (DOORS / "native" / "icctl").exists():
        pytest.skip("no C compiler: the native client was not built")
    shutil.copy(DOORS / "native" / "icctl", tmp_path / "icctl")

    done = icctl("ping", cwd=tmp_path, program=tmp_path / "icctl", env={"INTERCORE_SOCKET": "/no"})

    assert done.returncode == 2
    assert b"icctl-python: No such file or directory; if it stays so, reinstall" in done.stderr


def test_every_sentence_of_the_client_is_used() -> None:
    """And every name that is used has a sentence."""
    import re

    sources = [p.read_text() for p in (ROOT / "icctl").glob("*.py")]
    used = set(re.findall(r'GiveUp\(\s*"([^"]+)"', "".join(sources)))
    from icctl.handover import ENDINGS

    used |= set(re.findall(r'name = "([^"]+)"', Path(messages.__file__).read_text()))
    used |= set(ENDINGS.values()) | {"late", "unknown"}
    assert used == set(messages.SENTENCES)


# --- replies that nobody thought of ---


@pytest.mark.long
def test_fuzzing_finds_no_reply_that_breaks_the_native_client(tmp_path: Path) -> None:
    fuzz = DOORS / "fuzz"
    if not fuzz.exists():
        pytest.skip("no clang: the fuzz target was not built; install Debian's clang")
    corpus = [tmp_path, ROOT / "tests" / "data" / "replies"]

    done = subprocess.run(
        [fuzz, "-close_fd_mask=3", "-runs=50000", "-max_len=512", "-timeout=10", *corpus],
        cwd=tmp_path, capture_output=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    assert b"Done 50000 runs" in done.stderr
