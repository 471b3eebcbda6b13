"""`icctl mcp` as a process: what it writes where, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icd.db import lock
from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, running, until
from tests.support.tool_client import hosted

pytestmark = pytest.mark.long  # each test starts a server, which loads the SDK

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Server:
    def __init__(self, project: Path, *words: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [processes.door / "icctl", "mcp", *words],
            cwd=project, env={**CLEAN, "HOME": str(project), **env},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None
        self.stdin = self.process.stdin

    def send(self, *messages: object) -> None:
        for message in messages:
            self.stdin.write(
                message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            )
        self.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def begin(self) -> None:
        self.send(HELLO)
        self.receive()
        self.send(INITIALIZED)

    def children(self) -> str:
        pid = self.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text()

    def has_open(self, path: Path) -> bool:
        return lock.has_open(self.process.pid, str(path)) is True

    def end(self) -> tuple[bytes, bytes]:
        found: tuple[bytes, bytes] = self.process.communicate(timeout=PATIENCE)
        return found


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    with hosted("direct") as found:
        yield found


@pytest.fixture
def server(project: Path, env: dict[str, str], database: Any) -> Iterator[Server]:
    made = Server(project, env=env)
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.communicate()


def test_it_ends_with_stdin_and_leaves_nothing_behind(door, project, env, database):
    server = Server(project, env=env)
    server.begin()
    server.send(call(2, "state_incr", key="k", scope_id="s"))
    assert server.receive()["result"]["structuredContent"]["value"] == 1
    assert server.children() == ""

    out, err = server.end()

    assert (out, err, server.process.returncode) == (b"", b"", 0)


def test_it_ends_with_stdin_also_if_it_was_never_used(server):
    assert (*server.end(), server.process.returncode) == (b"", b"", 0)


def test_it_ends_with_stdin_also_in_the_middle_of_calls(server):
    server.begin()
    server.send(*(call(number, "state_incr", key="k", scope_id="s") for number in range(2, 12)))

    out, err = server.end()

    assert {json.loads(line)["id"] for line in out.splitlines()} <= set(range(2, 12))
    assert (err, server.process.returncode) == (b"", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(server, number):
    server.begin()

    server.process.send_signal(number)

    assert server.process.wait(PATIENCE) != 0
    assert server.process.stdout.read() == b""
    assert b"Traceback" not in server.process.stderr.read()


def test_it_ends_when_nobody_reads_its_answers(server):
    server.begin()
    server.process.stdout.close()
    server.process.stdout = None

    server.send(call(2, "state_incr", key="k", scope_id="s"))
    server.stdin.close()
    server.process.stdin = None

    assert server.process.wait(PATIENCE) in (0, 2)
    assert b"Traceback" not in server.process.stderr.read()


def test_lines_that_are_no_requests_do_not_end_it(server):
    server.begin()

    server.send(
        b"\n",
        b"not JSON\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b"[" * 100_000 + b"\n",
        b'{"jsonrpc":"1.0","id":2,"method":"tools/call"}\n',
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": "nothing"},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": 5}},
        {"jsonrpc": "2.0", "id": 5, "method": "no/such/method"},
        call(6, "state_incr", key="k", scope_id="s"),
    )
    answers: dict[Any, Any] = {}
    while not answers.keys() >= {4, 5, 6}:
        found = server.receive()
        answers[found.get("id")] = found

    assert all("error" in answers[number] for number in (4, 5))
    assert answers[6]["result"]["structuredContent"]["value"] == 1


def test_a_call_waits_for_another_process_that_has_the_database(server, database, project):
    server.begin()
    path = project / ".clavain" / "intercore.db.lock"
    with database.hold(processes.time.monotonic() + PATIENCE):
        server.send(call(2, "state_incr", key="k", scope_id="s"))
        until(lambda: server.has_open(path))
    answer = server.receive()["result"]

    assert answer["structuredContent"]["value"] == 1


def test_a_cancelled_call_does_not_end_it(server, database, project):
    server.begin()
    lock = project / ".clavain" / "intercore.db.lock"
    assert lock.exists()
    with database.hold(processes.time.monotonic() + PATIENCE):
        server.send(call(2, "state_incr", key="k", scope_id="s"))
        cancel = {"requestId": 2, "reason": "the user has changed their mind"}
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
    server.send(call(3, "state_incr", key="k", scope_id="s"))

    found = server.receive()
    while found.get("id") != 3:
        found = server.receive()

    assert found["result"]["structuredContent"]["value"] in (1, 2)


def test_what_a_hook_of_the_project_prints_does_not_reach_the_client(project, env, database):
    hook = project / ".clavain" / "hooks" / "on-event"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\ncat >/dev/null; echo noise; echo noise >&2; touch ran\n")
    hook.chmod(0o700)
    trusted = {**CLEAN, "HOME": str(project), **env}
    subprocess.run(
        [processes.door / "icctl", "hooks", "trust", "on-event"],
        cwd=project,
        env=trusted,
        check=True,
    )
    server = Server(project, env=env)
    server.begin()

    server.send(call(2, "events_record", source="deploy", type="done"))

    assert server.receive()["id"] == 2
    out, _ = server.end()
    assert out == b""
    assert [*project.rglob("ran")] != []


def test_a_daemon_that_is_there_is_used(project, database):
    with running() as daemon:
        server = Server(project, env={"INTERCORE_SOCKET": daemon.socket})
        server.begin()
        server.send(call(2, "state_incr", key="k", scope_id="s"))
        server.receive()
        server.end()

        methods = daemon.call("icd.status")["methods"]

    assert methods["state.incr"]["calls"] == 1


def test_with_no_daemon_none_is_asked(project, database):
    with running() as daemon:
        server = Server(project, "--no-daemon", env={"INTERCORE_SOCKET": daemon.socket})
        server.begin()
        server.send(call(2, "state_incr", key="k", scope_id="s"))
        assert server.receive()["result"]["structuredContent"]["value"] == 1
        server.end()

        assert "state.incr" not in daemon.call("icd.status")["methods"]


def test_where_only_the_daemon_may_be_asked_its_absence_is_an_error(project, database):
    env = {"INTERCORE_SOCKET": "/nowhere/icd.sock", "INTERCORE_MODE": "daemon"}
    found = subprocess.run(
        [processes.door / "icctl", "mcp", "--timeout=100ms"],
        cwd=project, env={**CLEAN, **env}, stdin=subprocess.DEVNULL, capture_output=True,
        check=False,
    )  # fmt: skip

    assert found.returncode == 2
    assert b"no daemon is running" in found.stderr


@pytest.mark.parametrize("words", [["--allow=everything"], ["--project=nowhere"]])
def test_a_wrong_command_line_is_told_on_stderr(project, env, words):
    server = Server(project, *words, env=env)

    out, err = server.end()

    assert out == b""
    assert b"icctl: mcp: " in err
    assert server.process.returncode in (2, 3)


WITHOUT = (
    "import sys; sys.modules['mcp'] = None; from icctl.client import main;"
    " sys.exit(main(sys.argv[1:], 'icctl'))"
)


def test_without_the_sdk_it_says_what_to_install(project, env):
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT, "mcp"],
        cwd=project, env={**CLEAN, **env}, stdin=subprocess.DEVNULL, capture_output=True,
        check=False,
    )  # fmt: skip

    assert found.returncode == 2
    assert found.stdout == b""
    assert found.stderr == (
        b"icctl: mcp: the server needs the package mcp, which is not installed;"
        b" install the extra with: pip install 'intercore[mcp]', or: pipx inject intercore mcp\n"
    )


def test_without_the_sdk_all_else_works(project, env):
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT, "mcp", "--help"],
        cwd=project, env={**CLEAN, **env}, capture_output=True, check=True,
    )  # fmt: skip

    assert b"--allow" in found.stdout


def test_without_the_sdk_a_daemon_starts(project):
    code = (
        "import sys; sys.modules |= dict.fromkeys(('mcp', 'mcp_types', 'pydantic'));"
        "from icd.__main__ import main; main()"
    )
    with running(command=[sys.executable, "-c", code]) as daemon:
        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_the_daemon_and_the_client_never_load_the_sdk():
    code = (
        "import sys; import icd.server.main, icctl.direct; from icd.app import registry;"
        "list(icd.server.main._loading()); registry.commands();"
        "sys.exit(bool({'mcp', 'mcp_types', 'pydantic'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_root_does_not_write_to_the_project_of_another_user(project, env, database, tmp_path):
    database.close()
    for place in (project, *project.rglob("*")):
        os.chown(place, 4321, 4321)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    server = Server(elsewhere, f"--project={project}", env=env)
    server.begin()

    server.send(call(2, "state_incr", key="k", scope_id="s"))
    told = server.receive()["result"]
    server.end()
    for place in (project, *project.rglob("*")):
        os.chown(place, 0, 0)

    assert (told["isError"], told["structuredContent"]["name"]) == (True, "other_owner")
