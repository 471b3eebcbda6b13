"""A spawn that a daemon prepares and the native client starts; what is killed half way loses nothing.

Invariants
    - the row is there before the process, and a process that runs is in its row;
    - a spawn that fails is a row with its reason;
    - no caller is told of an agent before its start is committed, or its runner is about to;
    - a request that is repeated under its id makes no second row.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd import __version__
from icd.features.dispatches.calls import Create
from icd.features.dispatches.launch import Order, Program, order
from tests.features.dispatches.conftest import Agents, is_gone
from tests.support.processes import CLEAN, DOORS, PATIENCE, Daemon, icctl, running, until
from tests.support.scripted import Scripted, fields, read_frame

WAITS = ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 7"]


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> Path:
    found = DOORS / "native"
    if not (found / "icctl").exists():
        pytest.skip("no C compiler: the native client was not built")
    monkeypatch.setattr("tests.support.processes.door", found)
    monkeypatch.setitem(CLEAN, "PATH", f"{found}:/usr/bin:/bin")
    return found / "icctl"


@pytest.fixture
def daemon(agents: Agents, shared_daemon: Daemon) -> Daemon:
    agents.env |= {"INTERCORE_SOCKET": shared_daemon.socket}
    return shared_daemon


# Of a test whose dispatch has this process as its runner: it would be observed for ever.
@pytest.fixture
def own_daemon(agents: Agents) -> Iterator[Daemon]:
    with running() as found:
        agents.env |= {"INTERCORE_SOCKET": found.socket}
        yield found


def frame(project: Path, *argv: str, version: str = __version__, **more: str) -> bytes:
    """What the native client sends first, had this process started it."""
    deadline = int((time.monotonic() + PATIENCE) * 1000)
    told = {"p": os.getppid(), "d": project, "r": version, "t": deadline, "i": "0123abcd", "l": ""}
    told |= more
    words = [f"{letter}{value}" for letter, value in told.items() if value is not None]
    words += [f"eTMPDIR={project}", *(f"a{word}" for word in argv)]
    return b"".join(os.fsencode(word) + b"\0" for word in (f"ic1 {len(words)}", *words))


def ask(daemon: Daemon, sent: bytes) -> bytes:
    with daemon.connect() as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while chunk := sock.recv(65_536):
            data += chunk
    return data


# --- who prepares ---------------------------------------------------------------------------------


def test_no_python_but_the_runner_starts_and_the_row_names_it(agents, daemon, tmp_path):
    """Where there is no Python client to hand over to, a spawn through the daemon succeeds."""
    alone = tmp_path / "bin"
    alone.mkdir()
    (alone / "icctl").write_bytes((DOORS / "native" / "icctl").read_bytes())
    (alone / "icctl").chmod(0o755)

    done = icctl(
        "dispatch", "spawn", "--json", "--", *WAITS,
        cwd=agents.project, env=agents.env, program=alone / "icctl",
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, b"")
    (row,) = agents.every()
    assert done.stdout.decode() == f'{{"id":"{row["id"]}","pid":{row["pid"]}}}\n'
    assert (row["status"], is_gone(row["pid"]), is_gone(row["runner_pid"])) == (
        "running", False, False,
    )  # fmt: skip
    (agents.project / "go").touch()
    assert agents.ended(row["id"])["exit_code"] == 7


def test_a_retry_is_prepared_as_well(agents, daemon):
    first = agents.sh("exit 3")
    agents.ended(first)

    done = agents.run("retry", first, "--", "sh", "-c", "exit 4")

    assert (done.returncode, done.stderr) == (0, b"")
    again = agents.ended(done.stdout.decode().strip())
    assert (again["exit_code"], again["parent_id"]) == (4, first)


@pytest.mark.parametrize(
    "more",
    [
        {"l": None},  # a client that cannot launch
        {"r": "0.4.0"},  # of another version: the runner on the disk may be, too
        {"p": "1"},  # not the parent of the peer, so the peer is not the client
    ],
)
def test_other_clients_do_all_of_it_themselves(agents, daemon, more):
    assert ask(daemon, frame(agents.project, "dispatch", "spawn", "--", "true", **more)) == (
        b"! local\n"
    )
    assert agents.every() == []


def test_a_caller_in_a_sandbox_does_all_of_it_itself(agents, daemon):
    code = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )  # PR_SET_NO_NEW_PRIVS, as every sandbox has it
    found = subprocess.run(
        [sys.executable, "-c", code, DOORS / "native" / "icctl", "dispatch", "spawn", "--",
         "grep", "NoNewPrivs", "/proc/self/status"],
        cwd=agents.project, env={**CLEAN, "HOME": str(agents.project), **agents.env},
        capture_output=True, check=True,
    )  # fmt: skip

    row = agents.ended(found.stdout.decode().strip())
    assert Path(row["output_file"]).read_text().split() == ["NoNewPrivs:", "1"]


def test_a_daemon_from_before_says_local_and_the_client_goes_on(agents, tmp_path):
    old = Scripted(str(tmp_path / "s"), [b"! local\n", b"! local\n"])
    old.start()
    agents.env |= {"INTERCORE_SOCKET": str(tmp_path / "s")}

    dispatch_id = agents.sh("exit 5")

    assert agents.ended(dispatch_id)["exit_code"] == 5


# --- a request that is repeated -------------------------------------------------------------------


def test_a_request_that_is_repeated_makes_one_row(agents, own_daemon):
    sent = frame(agents.project, "dispatch", "spawn", "--", "true")

    replies = [ask(own_daemon, sent) for _ in range(2)]

    assert replies[0].startswith(b"@ ")
    assert replies[0] == replies[1]
    (row,) = agents.every()
    assert (row["status"], row["runner_pid"]) == ("spawned", os.getpid())


def test_a_lost_reply_is_asked_for_again_and_one_agent_runs(agents, own_daemon, native):
    """The daemon commits the row, and is killed before its reply is read."""
    sent = frame(agents.project, "dispatch", "spawn", "--", *WAITS)
    code = (
        "import os, socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX); sock.connect(os.environ['INTERCORE_SOCKET'])\n"
        "sent = sys.stdin.buffer.read().replace(b'\\0p%d\\0' % int(sys.argv[1]),"
        " b'\\0p%d\\0' % os.getppid())\n"
        "sock.sendall(sent); assert sock.recv(1) == b'@'; print(flush=True)\n"
        "os.read(int(sys.argv[2]), 1); os.execv(sys.argv[3], sys.argv[3:])\n"
    )
    gate, go = os.pipe()
    given, to = os.pipe()
    deadline = int((time.monotonic() + PATIENCE) * 1000)
    env = {**CLEAN, "HOME": str(agents.project), **agents.env}
    env["INTERCORE_HANDOVER"] = f"l 0123abcd 45000 {deadline} -1 native-keyhole icctl"
    client = subprocess.Popen(
        [sys.executable, "-c", code, str(os.getppid()), str(gate),
         str(native.with_name("icctl-python")), "dispatch", "spawn", "--", *WAITS],
        cwd=agents.project, env=env, stdin=given, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, pass_fds=[gate],
    )  # fmt: skip
    assert client.stdout
    os.write(to, sent)
    os.close(to)
    client.stdout.readline()
    own_daemon.kill()
    os.write(go, b"!")
    out, err = client.communicate()
    for fd in (gate, go, given):
        os.close(fd)
    said = out.decode().strip()
    assert (client.returncode, err) == (0, b"")

    (row,) = agents.every()
    assert (row["id"], row["status"]) == (said, "running")
    (agents.project / "go").touch()
    assert agents.ended(said)["exit_code"] == 7


# --- killed half way ------------------------------------------------------------------------------


class Staged:
    """A daemon whose replies to a spawn are held back, and the row that it has made."""

    def __init__(self, agents: Agents, daemon: Daemon, path: Path) -> None:
        self.connection: socket.socket | None = None
        self.agents, self.daemon = agents, daemon
        output = str(agents.project / "out.md")
        project = str(agents.project)
        made = daemon.call(
            "dispatch.create", cwd=project, project_dir=project, runner={"pid": 2**22, "start": 1}
        )
        self.row = made["id"]
        program = Program(WAITS, project, output)
        database = str(agents.project / ".clavain" / "intercore.db")
        wanted = Create(project, output_file=output)
        self.order = order(self.row, wanted, program, output, database, peer=os.getpid())
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(PATIENCE)
        self.path = str(path)

    def client(self) -> "subprocess.Popen[bytes]":
        env = {**CLEAN, "HOME": str(self.agents.project), **self.agents.env}
        return subprocess.Popen(
            [DOORS / "native" / "icctl", "dispatch", "spawn", "--", "true"],
            cwd=self.agents.project, env={**env, "INTERCORE_SOCKET": self.path},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def ordered(self, changed: Order | None = None) -> socket.socket:
        """Answer the first request, and no other but the second one of this client."""
        self.connection = connection = self.listener.accept()[0]
        os.unlink(self.path)
        self.listener.close()
        connection.settimeout(PATIENCE)
        assert b"l" in fields(read_frame(connection))
        told = changed or self.order
        words = b"".join(os.fsencode(word) + b"\0" for word in told.argv)
        connection.sendall(b"@ %d %d 0\n" % (len(words), len(told.job)) + words + told.job)
        return connection

    def report(self, connection: socket.socket) -> str:
        (found,) = [each for each in fields(read_frame(connection)) if each[:1] == b"l"]
        return found[1:].decode()

    def running(self) -> dict:
        until(lambda: self.agents.show(self.row)["status"] == "running")
        return self.agents.show(self.row)


@pytest.fixture
def staged(agents: Agents, daemon: Daemon, tmp_path: Path) -> Iterator[Staged]:
    found = Staged(agents, daemon, tmp_path / "staged")
    yield found
    for each in (found.listener, found.connection):
        if each is not None:
            each.close()


def test_a_client_that_is_killed_with_its_order_leaves_a_row_that_says_so(staged):
    client = staged.client()
    with staged.listener.accept()[0] as connection:
        read_frame(connection)
    client.kill()
    client.communicate()

    found = staged.agents.show(staged.row)

    assert (found["status"], "pid" in found) == ("spawned", False)


def test_a_client_that_is_killed_before_the_start_is_recorded(staged):
    client = staged.client()
    connection = staged.ordered()
    said, word, pid, *_ = staged.report(connection).split(" ")
    assert (said, word) == (staged.row, "ok")

    client.kill()

    assert staged.running()["pid"] == int(pid)
    assert client.communicate()[0] == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_group_of_the_client_does_not_concern_its_agent(staged, number):
    client = staged.client()
    connection = staged.ordered()
    staged.report(connection)

    client.send_signal(number)

    client.communicate()
    assert client.returncode == -number
    assert not is_gone(staged.running()["pid"])


@pytest.mark.parametrize("reply", [b"", b"! local\n", b"nonsense\n"])
def test_a_daemon_that_is_gone_when_the_start_is_told(staged, reply):
    client = staged.client()
    connection = staged.ordered()
    staged.report(connection)
    connection.sendall(reply)
    connection.close()

    out, err = client.communicate()

    assert (out.decode(), err, client.returncode) == (f"{staged.row}\n", b"", 0)
    assert staged.running()["status"] == "running"
    assert len(staged.agents.every()) == 1


def test_a_dispatch_that_was_cancelled_meanwhile_is_ended_and_told(staged):
    client = staged.client()
    connection = staged.ordered()
    pid = int(staged.report(connection).split(" ")[2])
    assert staged.agents.run("kill", staged.row).stdout == b"killed\n"
    connection.sendall(b"1 0 5\nover\n")

    assert client.communicate() == (b"", b"over\n")
    assert client.returncode == 1
    assert is_gone(pid)


def test_a_runner_that_cannot_be_started_is_reported(staged):
    client = staged.client()
    connection = staged.ordered(Order(["/nonexistent/python", staged.row], b""))

    assert staged.report(connection) == (
        f"{staged.row} no cannot start a process: No such file or directory"
    )
    client.kill()
    client.communicate()


def test_a_runner_that_is_killed_before_it_reports_is_a_row_that_says_so(staged):
    client = staged.client()
    connection = staged.ordered(Order(["/bin/sh", "-c", "kill -9 $$", staged.row], b"x" * 200_000))
    reported = staged.report(connection)
    assert reported == f"{staged.row} "
    words = ("dispatch", "spawn", "--", "true")

    told = ask(staged.daemon, frame(staged.agents.project, *words, l=reported))

    head, _, rest = told.partition(b"\n")
    assert (head.split()[0], rest) == (
        b"2",
        b"icctl: dispatch spawn: its runner died; see 'icctl dispatch status'\n",
    )
    found = staged.agents.show(staged.row)
    assert (found["status"], found["error_message"]) == ("failed", "its runner died")
    client.kill()
    client.communicate()


def test_a_runner_that_is_killed_after_its_report_leaves_an_agent_that_is_known(staged):
    client = staged.client()
    connection = staged.ordered()
    runner = int(staged.report(connection).split(" ")[4])
    os.kill(runner, signal.SIGKILL)
    until(lambda: is_gone(runner))
    connection.sendall(b"! local\n")

    out, err = client.communicate()

    assert (out.decode(), err, client.returncode) == (f"{staged.row}\n", b"", 0)
    (staged.agents.project / "go").touch()
    until(
        lambda: (
            staged.agents.run("poll", staged.row)
            and staged.agents.show(staged.row)["status"] == "failed"
        )
    )


@pytest.mark.parametrize("said", ["ok", "ok 1 2 3", "ok a b c d", "what", "no"])
def test_a_report_that_makes_no_sense_is_no_agent(agents, daemon, said):
    row = daemon.call("dispatch.create", cwd=str(agents.project), project_dir=str(agents.project))[
        "id"
    ]

    told = ask(daemon, frame(agents.project, "dispatch", "spawn", "--", "true", l=f"{row} {said}"))

    assert told.startswith(b"2 0 ")
    assert agents.show(row)["status"] == "failed"


def test_spawns_go_on_while_the_daemon_is_reloaded(agents, own_daemon):
    clients = [
        subprocess.Popen(
            [DOORS / "native" / "icctl", "dispatch", "spawn", "--", "sh", "-c", f"exit {n}"],
            cwd=agents.project, env={**CLEAN, "HOME": str(agents.project), **agents.env},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for n in range(1, 9)
    ]  # fmt: skip
    for _ in range(3):
        own_daemon.call("icd.reload")
    said = [client.communicate() for client in clients]
    agents.env |= {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}  # a loaded machine is no failure

    assert [err for _, err in said] == [b""] * 8
    ends = [agents.ended(out.decode().strip()) for out, _ in said]
    assert sorted(end["exit_code"] for end in ends) == list(range(1, 9))
    assert len(agents.every()) == 8
