"""`Client`: results, errors, retries and threads, with a real daemon, a dead one and none."""

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from icctl.api import Client, Error, NoDatabase, Refused, UnknownOutcome
from icctl.api.requests import ms, whole_seconds
from icd.app.invocation import SESSION_VARIABLES
from icd.db.lock import FileLock, poll
from icd.db.wal import open_files
from tests.support.between import Between
from tests.support.breakages import STRANGER
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, running, until
from tests.support.restarts import Restarts, reload


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a daemon calls run here, with what this process has."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("INTERCORE_SOCKET", "INTERCORE_MODE", "INTERCORE_DB", *SESSION_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def served(initialized: Path, shared_daemon: Daemon) -> Iterator[Client]:
    with Client(initialized, socket=shared_daemon.socket, mode="daemon", timeout=PATIENCE) as made:
        yield made


@pytest.fixture
def alone(initialized: Path) -> Iterator[Client]:
    with Client(initialized, mode="direct", timeout=PATIENCE) as made:
        yield made


@pytest.fixture(params=["served", "alone"])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as made:
        yield Path(made)


def together(*functions: Callable[[], object]) -> None:
    """Run them at once; what one raises is raised."""
    raised: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as exc:  # noqa: BLE001
            raised.append(exc)

    threads = [threading.Thread(target=guarded, args=[each]) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * PATIENCE)
    assert raised == []


# --- results and errors ---------------------------------------------------------------------------


def test_a_result_is_typed_and_its_payload_is_kept_byte_for_byte(client: Client) -> None:
    client.state.set("k", "s", {"a": [1, None]})
    client.state.set("k", "raw", Raw(b'{"b":  1.0}'))
    client.state.set("k", "null", None)

    found, raw, null = (client.state.get("k", scope) for scope in ("s", "raw", "null"))

    assert found is not None
    assert found.value == {"a": [1, None]}
    assert raw is not None
    assert bytes(raw.payload) == b'{"b":  1.0}'
    assert null is not None
    assert null.value is None
    assert client.state.get("k", "absent") is None


def test_writes_are_recorded_with_this_process_and_the_session(
    client: Client, initialized: Path
) -> None:
    client.state.set("k", "s", 1)
    row = client.state.get("k", "s")

    assert row is not None
    assert (row.writer_pid, row.writer_session) == (os.getpid(), None)


def test_an_expected_no_is_refused_and_names_the_facts(client: Client) -> None:
    client.lease.acquire("build", "repo", owner="a", ttl="1m")

    with pytest.raises(Refused, match="build repo is held by a") as told:
        client.lease.acquire("build", "repo", owner="b", ttl="1m")

    assert told.value.name == "lease_held"
    assert told.value.code == -32064
    assert told.value.data["owner"] == "a"
    assert told.value.hint.startswith("wait until it expires")
    assert not told.value.is_retryable
    assert pickle.loads(pickle.dumps(told.value)).data == told.value.data


def test_a_mistake_is_told_in_the_same_words_by_both_hosts(served: Client, alone: Client) -> None:
    told = []
    for client in (served, alone):
        with pytest.raises(Error) as refused:
            client.state.set("", "s", 1)
        told.append((str(refused.value), refused.value.code, refused.value.data))
        with pytest.raises(Error) as refused:
            client.events.tail(limit=0)
        told.append((str(refused.value), refused.value.code, refused.value.data))

    assert told[:2] == told[2:]


def test_a_missing_database_has_a_class_of_its_own(project: Path) -> None:
    with Client(project, mode="direct") as client:
        with pytest.raises(NoDatabase, match="no_database"):
            client.state.get("k", "s")

        made = client.db.init()

        assert made.path == str(project / ".clavain" / "intercore.db")
        assert client.state.get("k", "s") is None


def test_spans_are_seconds_texts_or_timedeltas_and_are_rounded_up() -> None:
    assert [ms(span) for span in (5, 0.0015, "5m", "250ms", "7", timedelta(microseconds=1), None)] == [
        5000, 2, 300_000, 250, 7000, 1, None,
    ]  # fmt: skip
    assert [whole_seconds(span) for span in (0, 1.2, "1500ms")] == [0, 2, 2]
    for span in ("soon", math.inf, -math.inf, math.nan, object()):
        with pytest.raises(Error, match="invalid duration") as refused:
            ms(span)  # type: ignore[arg-type]
        assert refused.value.name == "invalid_params"


class Reading(msgspec.Struct):
    value: object


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "payload",
    [
        math.nan, {"x": [1, None, -math.inf]}, {math.nan: 1}, Reading(math.inf), (1, math.nan),
        b"abc", [{"a": {"b": bytearray(b"abc")}}], {b"key": 1}, Reading(b"abc"), (1, (b"abc",)),
        "\ud800", object(), ENDLESS,
    ],
)  # fmt: skip
def test_what_json_cannot_say_is_refused(alone: Client, payload: object) -> None:
    with pytest.raises(Error) as refused:
        alone.state.set("k", "s", payload)

    assert refused.value.name == "invalid_params"
    assert refused.value.message.startswith("state.set: ")
    assert alone.state.get("k", "s") is None


def test_other_words_that_json_cannot_say_are_refused_as_well(alone: Client) -> None:
    for call in (
        lambda: alone.state.set("\ud800", "s", 1),
        lambda: alone.state.set("k", "s", 1, request_id="\ud800"),
        lambda: alone.state.set("k", "s", 1, ttl=math.inf),
        lambda: alone.state.set("k", "s", 1, timeout=math.inf),
    ):
        with pytest.raises(Error, match="invalid_params"):
            call()


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ({"null": None, "x": [1.5, {"y": (1, 2.5)}]}, {"null": None, "x": [1.5, {"y": [1, 2.5]}]}),
        (Reading([None, {1: Raw(b"2")}]), {"value": [None, {"1": 2}]}),
        ([timedelta(seconds=1), {2.5: None}], ["PT1S", {"2.5": None}]),
    ],
)
def test_whatever_json_can_say_is_stored(client: Client, payload: object, value: object) -> None:
    client.state.set("k", "s", payload)
    row = client.state.get("k", "s")

    assert row is not None
    assert row.value == value


def test_the_mode_and_the_project_are_those_of_the_environment(
    initialized: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (initialized / "sub").mkdir()
    monkeypatch.chdir(initialized / "sub")
    monkeypatch.setenv("INTERCORE_MODE", "direct")
    monkeypatch.setenv("CLAUDE_SESSION_ID", "mine")

    with Client() as client:
        client.state.set("k", "s", 1)
        row = client.state.get("k", "s")

    assert row is not None
    assert row.writer_session == "mine"
    monkeypatch.setenv("INTERCORE_MODE", "sometimes")
    with pytest.raises(Error, match="misconfigured"):
        Client()


@pytest.mark.parametrize(
    ("given", "kept"), [("s" * 300, "s" * 200), (os.fsdecode(b"\xff"), r"\udcff")]
)
def test_the_session_is_kept_as_icctl_keeps_it(
    initialized: Path, monkeypatch: pytest.MonkeyPatch, given: str, kept: str
) -> None:
    monkeypatch.setenv("INTERCORE_SESSION", given)
    icctl(
        "state", "set", "k", "icctl", "--value=1", cwd=initialized, env={"INTERCORE_SESSION": given}
    )

    with Client(initialized, mode="direct") as client:
        client.state.set("k", "client", 1)
        rows = [client.state.get("k", scope) for scope in ("icctl", "client")]

    assert [row and row.writer_session for row in rows] == [kept, kept]


def test_a_path_that_json_cannot_say_is_refused_at_once(tmp_path: Path) -> None:
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")

    with pytest.raises(Error, match="bad_path"):
        Client(strange)


def test_files_that_the_caller_names_are_touched_by_the_caller(
    served: Client, initialized: Path
) -> None:
    """A daemon refuses these methods; the command runs them in its own process, and so do we."""
    served.state.set("k", "s", 1)

    made = served.backup.write(str(initialized / "copy.db"))

    assert Path(made.path).is_file()


def test_root_does_not_become_the_owner_of_a_project(initialized: Path) -> None:
    """`icctl` does, for good, which would be the end of what else the program does."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for path in (initialized, initialized / ".clavain", *(initialized / ".clavain").iterdir()):
        os.chown(path, STRANGER, STRANGER)

    with Client(initialized, mode="direct") as client, pytest.raises(Error, match="other_owner"):
        client.state.get("k", "s")

    assert os.geteuid() == 0


def test_what_is_more_than_a_daemon_reads_is_refused_in_the_same_words(client: Client) -> None:
    with pytest.raises(Error, match="payload_too_large"):
        client.state.set("k", "s", "x" * 5_000_000)

    assert client.state.get("k", "s") is None


# --- pipelines ------------------------------------------------------------------------------------


def test_calls_of_a_pipeline_fail_alone_and_in_order(client: Client) -> None:
    with client.pipeline() as calls:
        first = calls.state.incr("n", "s")
        wrong = calls.state.incr("", "s")
        second = calls.state.incr("n", "s")
        with pytest.raises(RuntimeError, match="has not been sent"):
            first.result()

    assert (first.result().value, second.result().value) == (1, 2)
    assert wrong.error is not None
    assert wrong.error.name == "invalid_name"
    with pytest.raises(Error, match="invalid_name"):
        wrong.result()


def test_a_pipeline_that_is_left_by_an_exception_sends_nothing(client: Client) -> None:
    with pytest.raises(KeyError), client.pipeline() as calls:
        calls.state.incr("n", "s")
        raise KeyError

    assert client.state.get("n", "s") is None


def test_a_pipeline_larger_than_both_sockets_does_not_stop(served: Client) -> None:
    """The daemon writes before it reads on: who only writes would wait for ever."""
    large = "x" * 50_000
    with served.pipeline() as calls:
        for number in range(100):
            calls.state.set("large", str(number), large)
            calls.state.get("large", str(number))
        last = calls.state.get("large", "99")

    found = last.result()
    assert found is not None
    assert found.value == large


# --- one client, many threads and processes -------------------------------------------------------


def test_threads_share_a_client(client: Client) -> None:
    def count() -> None:
        for _ in range(8):
            client.state.incr("n", "s")

    together(*[count] * 8)

    row = client.state.get("n", "s")
    assert row is not None
    assert row.value == 64


def test_clients_without_a_daemon_share_a_database_in_one_process(initialized: Path) -> None:
    """SQLite's locks are the process's: a second connection that closes would give them up."""

    def count() -> None:
        with Client(initialized, mode="direct", timeout=PATIENCE) as client:
            for _ in range(6):
                client.state.incr("n", "s")

    together(*[count] * 4)

    with Client(initialized, mode="direct") as client:
        row = client.state.get("n", "s")
        assert row is not None
        assert row.value == 24
        assert client.db.check().ok


def test_a_forked_child_has_a_connection_of_its_own(served: Client) -> None:
    served.state.incr("n", "s")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            served.state.incr("n", "s")
            status = 0
        finally:
            os._exit(status)
    found = served.state.incr("other", "s")
    _, status = os.waitpid(child, 0)

    row = served.state.get("n", "s")
    assert (status, found.value) == (0, 1)
    assert row is not None
    assert row.value == 2


@pytest.fixture
def held(initialized: Path) -> Iterator[FileLock]:
    """The lock of the project, as another process would have it."""
    found = FileLock(str(initialized / ".clavain" / "intercore.db.lock"), poll)
    found.acquire(time.monotonic() + PATIENCE)
    yield found
    found.close()


def calls_under_way(held: FileLock) -> int:
    """How many calls of this process have the lock's file open."""
    return [*open_files(os.getpid()).values()].count(held.path) - 1


# What Python 3.12 says of a fork in a process with threads is what this is about.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_for_the_call_of_another_thread(alone: Client, held: FileLock) -> None:
    """Its child would have the lock, and would not know it."""
    calling = threading.Thread(target=lambda: alone.state.incr("n", "s"))
    calling.start()
    until(lambda: calls_under_way(held) == 1)
    releasing = threading.Timer(0.2, held.release)
    releasing.start()
    child = os.fork()
    if child == 0:
        os._exit(calls_under_way(held))
    _, status = os.waitpid(child, 0)
    calling.join(PATIENCE)
    releasing.join(PATIENCE)

    assert status == 0
    assert alone.state.incr("n", "s").value == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_in_the_middle_of_a_call_its_thread_may_fork_but_not_call(
    alone: Client, initialized: Path, held: FileLock
) -> None:
    """As a handler of signals could: a second connection would give up SQLite's locks."""
    told: list[object] = []

    def interrupt(_number: int, _frame: object) -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        told.append(os.waitpid(child, 0)[1])
        with Client(initialized, mode="direct", timeout=PATIENCE) as another:
            with pytest.raises(Error, match="in the middle of another call") as refused:
                another.state.get("n", "s")
            told.append(refused.value.name)
        held.release()

    def wait_and_interrupt() -> None:
        until(lambda: calls_under_way(held) == 1)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        interrupting = threading.Thread(target=wait_and_interrupt)
        interrupting.start()
        assert alone.state.incr("n", "s").value == 1
        interrupting.join(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert told == [0, "locked"]
    assert alone.state.incr("n", "s").value == 2


def test_direct_mode_leaves_the_process_as_it_was(initialized: Path) -> None:
    """`icctl` has no garbage collected and puts modules aside; a library must not."""
    code = f"""
import gc, signal, sys
from icctl.api import Client
with Client({str(initialized)!r}, mode="direct", timeout=60) as client:
    client.state.set("k", "s", 1)
import datetime, platform, textwrap
print(gc.isenabled(), gc.get_freeze_count(), datetime.__file__ is not None,
      platform.python_version() != "", textwrap.dedent(" a"), signal.getsignal(signal.SIGALRM))
print("anyio" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**CLEAN, "HOME": str(initialized)},
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip

    assert done.stdout == "True 0 True True a 0\nFalse\n"


# --- a daemon that dies, stops, reloads -----------------------------------------------------------


def test_a_client_reconnects_after_its_daemon_was_killed(initialized: Path) -> None:
    with running() as daemon:
        client = Client(initialized, socket=daemon.socket, mode="daemon", timeout=PATIENCE)
        client.state.incr("n", "s")

        daemon.kill()
        daemon.start()

        assert client.state.incr("n", "s").value == 2
        client.close()


def test_without_its_daemon_a_client_goes_on_alone_and_finds_the_next_one(
    initialized: Path,
) -> None:
    with running() as daemon, Client(initialized, socket=daemon.socket, timeout=PATIENCE) as client:
        client.state.incr("n", "s")
        daemon.kill()

        assert client.state.incr("n", "s").value == 2
        with pytest.raises(Error, match="no_daemon"):
            client.icd.ping()

        daemon.start()
        assert client.icd.ping().pid == daemon.pid
        assert client.state.incr("n", "s").value == 3


def test_no_write_is_lost_or_doubled_while_daemons_are_killed(initialized: Path) -> None:
    counted = [0] * 4
    with running() as daemon:

        def count(number: int) -> None:
            with Client(initialized, socket=daemon.socket, timeout=PATIENCE) as client:
                while restarts.count < 4 or counted[number] < 20:
                    client.state.incr("n", str(number))
                    counted[number] += 1

        with Restarts(daemon) as restarts:
            together(*[lambda number=number: count(number) for number in range(4)])  # type: ignore[misc]

    with Client(initialized, mode="direct", timeout=PATIENCE) as client:
        rows = [client.state.get("n", str(number)) for number in range(4)]
    assert [row.value for row in rows if row] == counted


@pytest.mark.long
def test_no_write_is_lost_or_doubled_while_the_daemon_is_reloaded(initialized: Path) -> None:
    counted = [0] * 3
    over = threading.Event()
    with running() as daemon:

        def count(number: int) -> None:
            with Client(
                initialized, socket=daemon.socket, mode="daemon", timeout=PATIENCE
            ) as client:
                while not over.is_set():
                    with client.pipeline() as calls:
                        made = [calls.state.incr("n", str(number)) for _ in range(5)]
                    counted[number] += len([one.result() for one in made])

        def reloads() -> None:
            try:
                for _ in range(3):
                    seen = sum(counted)
                    until(lambda seen=seen: sum(counted) > seen + 20)
                    reload(daemon)
            finally:
                over.set()

        together(reloads, *[lambda number=number: count(number) for number in range(3)])  # type: ignore[misc]
        rows = [
            daemon.call("state.get", cwd=str(initialized), key="n", scope_id=str(number))
            for number in range(3)
        ]

    assert [row["payload"] for row in rows] == counted


def test_a_daemon_that_hangs_costs_the_timeout_and_nothing_after_it(initialized: Path) -> None:
    with (
        running() as daemon,
        Client(initialized, socket=daemon.socket, mode="daemon") as client,
    ):
        client.state.incr("n", "s")
        os.kill(daemon.pid, signal.SIGSTOP)

        with pytest.raises(UnknownOutcome, match=r"state\.incr was not answered within 0\.3 s"):
            client.state.incr("n", "s", timeout=0.3, request_id="mine")
        with pytest.raises(Error, match="deadline_exceeded") as told:
            client.state.get("n", "s", timeout=0.2)
        assert told.value.is_retryable

        os.kill(daemon.pid, signal.SIGCONT)
        again = client.state.incr("n", "s", timeout=PATIENCE, request_id="mine")
        after = client.state.incr("n", "s", timeout=PATIENCE)
        assert (again.value, after.value) == (2, 3)


def test_a_call_that_is_interrupted_leaves_no_reply_to_the_next(initialized: Path) -> None:
    class Stop(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stop

    with running() as daemon:
        client = Client(initialized, socket=daemon.socket, mode="daemon", timeout=PATIENCE)
        client.state.set("k", "a", "a")
        client.state.set("k", "b", "b")
        os.kill(daemon.pid, signal.SIGSTOP)
        before = signal.signal(signal.SIGALRM, stop)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Stop):
                client.state.get("k", "a")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            os.kill(daemon.pid, signal.SIGCONT)

        row = client.state.get("k", "b")
        assert row is not None
        assert row.value == "b"
        client.close()


# --- what lies between the two --------------------------------------------------------------------


def test_a_reply_that_was_lost_is_asked_for_again_under_the_same_id(
    initialized: Path, shared_daemon: Daemon, place: Path
) -> None:
    def forward(sock: socket.socket) -> None:
        """The daemon answers, and the first two replies never arrive."""
        with shared_daemon.connect() as beyond:
            beyond.sendall(sock.recv(1 << 20))
            answer = beyond.recv(1 << 20)
            if between.served > 2:
                sock.sendall(answer)

    with (
        Between(place / "s", forward) as between,
        Client(initialized, socket=place / "s", mode="daemon", timeout=PATIENCE) as client,
    ):
        assert client.state.incr("n", "s").value == 1
        assert between.served == 3


def test_what_follows_a_lost_reply_does_not_make_a_write_retryable(
    initialized: Path, place: Path
) -> None:
    """The second attempt was refused; what became of the first is not known."""
    refused = {"code": -32040, "message": "held", "data": {"name": "locked", "retryable": True}}

    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 20)
        if between.served > 1:
            sock.sendall(msgspec.json.encode({"id": 1, "error": refused}) + b"\n")

    with (
        Between(place / "s", answer) as between,
        Client(initialized, socket=place / "s", mode="daemon", timeout=PATIENCE) as client,
    ):
        with pytest.raises(UnknownOutcome, match="and then: held"):
            client.state.incr("n", "s")
        with pytest.raises(Error, match="locked") as told:
            client.state.incr("n", "s")
        assert told.value.is_retryable


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400\r\n\n", b'{"id":77,"result":null}\n', b'{"id":1,"result":[]}\n', b'{"id":1}\n'],
)
def test_what_speaks_another_protocol_is_not_asked_twice(
    initialized: Path, place: Path, said: bytes
) -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 20)
        sock.sendall(said)

    with (
        Between(place / "s", answer) as between,
        Client(initialized, socket=place / "s", mode="daemon", timeout=PATIENCE) as client,
    ):
        with pytest.raises(UnknownOutcome, match="another protocol"):
            client.state.incr("n", "s")
        assert between.served == 1


def test_a_daemon_that_never_answers_leaves_a_write_unknown(initialized: Path, place: Path) -> None:
    with (
        Between(place / "s", lambda sock: sock.recv(1 << 20)),
        Client(initialized, socket=place / "s", mode="daemon") as client,
        pytest.raises(UnknownOutcome),
    ):
        client.state.incr("n", "s", timeout=0.3)


def test_a_socket_that_others_could_have_put_there_is_not_used(
    initialized: Path, place: Path, shared_daemon: Daemon
) -> None:
    (place / "s").symlink_to(shared_daemon.socket)
    told = "ignoring the socket .* it is a symbolic link"
    with (
        Client(initialized, socket=place / "s", timeout=PATIENCE) as client,
        pytest.warns(RuntimeWarning, match=told),
    ):
        assert client.state.incr("n", "s").value == 1


def test_no_daemon_is_waited_for_where_one_is_demanded(initialized: Path, place: Path) -> None:
    client = Client(initialized, socket=place / "none", mode="daemon")
    began = time.monotonic()

    with pytest.raises(Error, match="no_daemon"):
        client.state.incr("n", "s", timeout=0.2)

    assert time.monotonic() - began >= 0.2
    with pytest.raises(Error, match="too long"):
        Client(initialized, socket="/tmp/" + "x" * 200).state.get("k", "s")
