"""What a peer may send, and what it gets for it."""

import contextlib
import json
import os
import select
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

from icd import __version__
from icd.server import limits
from icd.server.net import jsonrpc
from icd.server.net.handler import Handler
from icd.server.net.jsonrpc_batch import lone_call
from tests.support.processes import PATIENCE, Daemon, read_all, read_line, running, until


@pytest.fixture(scope="module")
def daemon():
    with running() as found:
        yield found
        assert found.call("icd.ping"), "it must have survived everything"
        assert "session failed" not in found.log.read_text()


def exchange(daemon: Daemon, data: bytes, *, half_close: bool = True) -> bytes:
    with daemon.connect() as sock:
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def replies(daemon: Daemon, data: bytes) -> list[Any]:
    return [json.loads(line) for line in exchange(daemon, data).splitlines()]


def line(method: str, request_id: Any = 1, **params: Any) -> bytes:
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return json.dumps(request).encode() + b"\n"


# --- JSON-RPC 2.0 as specified ---


@pytest.mark.parametrize("request_id", [1, -7, 2.5, "text", "", None])
def test_a_reply_carries_the_id_of_its_request(daemon: Daemon, request_id: Any) -> None:
    (reply,) = replies(daemon, line("icd.ping", request_id))

    assert reply["id"] == request_id
    assert reply["jsonrpc"] == "2.0"
    assert reply["result"]["pid"] == daemon.pid


def test_a_notification_gets_no_reply_and_is_carried_out(daemon: Daemon, initialized: Path) -> None:
    notify = {
        "jsonrpc": "2.0", "method": "state.set",
        "params": {"cwd": str(initialized), "key": "k", "scope_id": "s", "payload": {"a": 1}},
    }  # fmt: skip
    broken = {"jsonrpc": "2.0", "method": "no.such.method"}
    data = json.dumps(notify).encode() + b"\n" + json.dumps(broken).encode() + b"\n"

    (reply,) = replies(
        daemon, data + line("state.get", cwd=str(initialized), key="k", scope_id="s")
    )

    assert reply["result"]["payload"] == {"a": 1}


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]\n', [-32700]),
        (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}\n', [-32600]),
        (b'{"method": "icd.ping", "id": 1}\n', [-32600]),
        (b'{"jsonrpc": "1.0", "method": "icd.ping", "id": 1}\n', [-32600]),
        (b"[]\n", [-32600]),
        (b"1\n", [-32600]),
        (b"null\n", [-32600]),
        (b'"x"\n', [-32600]),
        (b"\xff\xfe\n", [-32700]),
        (b'{"jsonrpc": "2.0", "method": "no.such", "id": 1}\n', [-32601]),
        (b'{"jsonrpc": "2.0", "method": "state.bogus", "id": 1}\n', [-32601]),
        (b'{"jsonrpc": "2.0", "method": "state.get", "id": 1, "params": {}}\n', [-32602]),
        (b'{"jsonrpc": "2.0", "method": "state.get", "id": 1, "params": 7}\n', [-32602]),
        (b'{"jsonrpc": "2.0", "method": "icd.ping", "id": 1, "params": {"x": 1}}\n', [-32602]),
        (b'{"jsonrpc": "2.0", "method": "icd.ping", "id": 1, "params": [1,2,3,4,5,6]}\n', [-32602]),
        (b"\n\n  \n", []),
        (b'{"jsonrpc": "2.0", "method": "icd.ping", "id": 1}', []),
    ],
)
def test_what_is_not_a_request_earns_the_code_of_the_specification(
    daemon: Daemon, data: bytes, codes: list[int]
) -> None:
    found = replies(daemon, data)

    assert [reply["error"]["code"] for reply in found] == codes
    for reply in found:
        assert reply["error"]["data"]["name"]
        assert reply["error"]["data"]["exit"] == 3


@pytest.mark.parametrize(
    "method, params",
    [
        ("run.create", b'"goal":"g","gates":["\xff"]'),
        ("run.create", b'"goal":"g","actions":{"a":"\xff"}'),
        ("state.set", b'"key":"k","scope_id":"s","payload":"\xff"'),
    ],
)
def test_a_line_that_is_not_utf8_is_answered(
    daemon: Daemon, initialized: Path, method: str, params: bytes
) -> None:
    here = b'"cwd":"%b",' % os.fsencode(initialized)
    line = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{%b}}\n' % (
        method.encode(),
        here + params,
    )

    with daemon.connect() as sock:
        sock.sendall(line)
        answer = json.loads(read_line(sock))

    assert answer["error"]["data"]["name"] == "parse_error"
    assert "session failed" not in daemon.log.read_text()


def test_a_batch_is_answered_as_a_batch(daemon: Daemon) -> None:
    requests: list[Any] = [
        {"jsonrpc": "2.0", "method": "icd.ping", "id": 1},
        {"jsonrpc": "2.0", "method": "icd.ping"},
        1,
        {"jsonrpc": "2.0", "method": "no.such", "id": "x"},
    ]

    (batch,) = replies(daemon, json.dumps(requests).encode() + b"\n")

    assert [reply["id"] for reply in batch] == [1, None, "x"]
    assert batch[1]["error"]["code"] == -32600
    assert batch[2]["error"]["code"] == -32601


def test_a_batch_of_notifications_gets_no_reply(daemon: Daemon) -> None:
    requests = [{"jsonrpc": "2.0", "method": "icd.ping"}] * 2

    found = replies(daemon, json.dumps(requests).encode() + b"\n")

    assert found == []


def test_parameters_may_be_given_by_position(daemon: Daemon, initialized: Path) -> None:
    data = line("state.set").replace(
        b"{}", b'["k","s",{"a":1},0,null,0,null,"%b"]' % str(initialized).encode()
    )

    (reply,) = replies(daemon, data)

    assert reply["result"]["version"] == 1


def test_requests_of_one_connection_are_carried_out_in_their_order(
    daemon: Daemon, initialized: Path
) -> None:
    where = {"cwd": str(initialized)}
    data = (
        line("state.incr", 1, **where, key="n", scope_id="s")
        + line("cli.run", 2, **where, argv=["state", "get", "n", "s"])
        + line("state.incr", 3, **where, key="n", scope_id="s")
        + line("state.get", 4, **where, key="n", scope_id="s")
    )

    found = replies(daemon, data)

    assert [reply["id"] for reply in found] == [1, 2, 3, 4]
    assert found[1]["result"]["stdout"] == "1\n"
    assert found[3]["result"]["payload"] == 2


def test_a_payload_with_line_breaks_comes_back_on_one_line(
    daemon: Daemon, initialized: Path
) -> None:
    where = {"cwd": str(initialized)}
    text = '{\n "a": 1,\n "b": "x\\ny"\n}'
    ran = daemon.call("cli.run", **where, argv=["state", "set", "k", "s"], stdin=text)

    found = daemon.call("state.get", **where, key="k", scope_id="s")

    assert ran["exit"] == 0
    assert found["payload"] == {"a": 1, "b": "x\ny"}


# --- the daemon's own methods ---


def test_hello_negotiates_the_protocol(daemon: Daemon) -> None:
    welcome = daemon.call("icd.hello", protocols=[7, 1])
    refused = daemon.respond("icd.hello", protocols=[7])

    assert welcome["protocol"] == 1
    assert "keyhole" in welcome["capabilities"]
    assert welcome["unknown_capabilities"] == []
    assert refused["error"]["data"]["name"] == "no_common_protocol"
    assert refused["error"]["message"] == (
        f"icd {__version__} supports protocol 1, the client supports 7"
    )


def test_hello_names_the_capabilities_that_this_daemon_does_not_know(daemon: Daemon) -> None:
    welcome = daemon.call("icd.hello", capabilities=["state", "telepathy", "levitation"])

    assert welcome["unknown_capabilities"] == ["telepathy", "levitation"]


def test_a_client_that_speaks_many_unknown_protocols_gets_a_short_answer(daemon: Daemon) -> None:
    refused = daemon.respond("icd.hello", protocols=list(range(2, 10_000)))
    silent = daemon.respond("icd.hello", protocols=[])

    assert refused["error"]["message"].endswith("the client supports 2, 3, 4, 5, 6, 7, 8, 9")
    assert silent["error"]["message"].endswith("the client supports none")


def test_discover_describes_every_method(daemon: Daemon) -> None:
    document = daemon.call("rpc.discover")

    names = {method["name"] for method in document["methods"]}
    assert {"state.get", "sentinel.check_many", "db.init", "cli.run", "rpc.discover"} <= names


def test_status_counts_calls_and_failures(
    daemon: Daemon, initialized: Path, tmp_path: Path
) -> None:
    before = daemon.call("icd.status")
    daemon.call("state.list", cwd=str(initialized), key="k")
    daemon.respond("state.list", cwd="/nonexistent", key="k")

    after = daemon.call("icd.status")

    assert after["calls"]["state.list"] == before["calls"].get("state.list", 0) + 2
    assert after["failures"]["state.list"] == before["failures"].get("state.list", 0) + 1
    assert str(initialized / ".clavain" / "intercore.db") in [
        db["path"] for db in after["databases"]
    ]


def test_a_command_says_which_input_it_needs(daemon: Daemon, initialized: Path) -> None:
    where = {"cwd": str(initialized)}

    stdin = daemon.call("cli.run", **where, argv=["state", "set", "k", "s"])
    file = daemon.call("cli.run", **where, argv=["state", "set", "k", "s", "@x.json"])
    done = daemon.call("cli.run", **where, argv=["state", "set", "k", "s", "@x"], files={"x": "[]"})

    assert stdin == {"need": "stdin"}
    assert file == {"need": "file", "path": "x.json"}
    assert done == {"exit": 0}


def test_a_command_that_looks_at_files_is_left_to_the_caller(
    daemon: Daemon, initialized: Path
) -> None:
    frame = f"ic1 3\0d{initialized}\0acompat\0aimport\0".encode()

    by_keyhole = exchange(daemon, frame)
    by_rpc = daemon.call("cli.run", cwd=str(initialized), argv=["compat", "import"])

    assert by_keyhole == b"! local\n"
    assert by_rpc == {"need": "local"}


@pytest.mark.parametrize("cwd", ["", ".", "relative/path"])
def test_a_directory_must_be_absolute(daemon: Daemon, cwd: str) -> None:
    for db in (None, "/nonexistent/intercore.db"):
        refused = daemon.respond("state.list", cwd=cwd, db=db, key="k")

        assert refused["error"]["data"]["name"] == "invalid_params"


# --- deadlines ---


def test_a_call_past_its_deadline_is_not_executed(daemon: Daemon, initialized: Path) -> None:
    where = {"cwd": str(initialized)}

    late = daemon.respond("state.set", **where, key="k", scope_id="s", payload=1, deadline_ms=0)

    assert late["error"]["data"]["name"] == "deadline_exceeded"
    assert daemon.call("state.get", **where, key="k", scope_id="s") is None


# --- hostile and unlucky peers ---


@pytest.mark.parametrize(
    "data",
    [
        b"ic1 0\0",
        b"ic1 x\0",
        b"ic 1\0aping\0",
        b"icx 1\0aping\0",
        b"i" * 100,
        b"ic1 99999999\0",
        b"ic1 1\0s99999999:\0",
        b"ic1 1\0sx:\0",
        b"ic1 2\0drelative\0aping\0",
        b"ic1 1\0t-5\0",
    ],
)
def test_a_malformed_frame_is_refused_with_a_sentence(daemon: Daemon, data: bytes) -> None:
    reply = exchange(daemon, data)

    head, _, text = reply.partition(b"\n")
    assert head.split()[0] == b"3"
    assert text.startswith(b"icctl: ")


@pytest.mark.parametrize(
    "data", [b"ic2 1\0aping\0", b"ic2 ", b"ic2 x", b"ic10 " + b"\xff" * 2_000_000]
)
def test_a_frame_of_another_protocol_is_told_which_one_is_spoken(
    daemon: Daemon, data: bytes
) -> None:
    """In a reply that whoever speaks such a protocol can read, however much it has sent."""
    with daemon.connect() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        reply = read_all(sock)

    head, _, text = reply.partition(b"\n")
    theirs = b"10" if data.startswith(b"ic10") else b"2"
    assert head == b"2 0 %d" % len(text)
    assert text == (
        b"icctl: icd %b supports protocol 1, the client supports %b; upgrade the older of the two;"
        b" 'icctl service reload' reloads the daemon with the installed version\n"
        % (__version__.encode(), theirs)
    )


def test_unknown_fields_of_newer_clients_are_ignored(daemon: Daemon) -> None:
    reply = exchange(daemon, b"ic1 3\0zfuture\0d/\0aping\0")

    assert reply == b"0 5 0\npong\n"


def test_two_frames_on_one_connection_are_answered_in_turn(daemon: Daemon) -> None:
    frame = b"ic1 2\0d/\0aping\0"

    assert exchange(daemon, frame + frame) == b"0 5 0\npong\n" * 2


def test_a_hundred_megabytes_without_a_line_break_are_refused(daemon: Daemon) -> None:
    before = _memory(daemon)
    with daemon.connect() as sock:
        chunk = b"x" * (1 << 20)
        with pytest.raises(ConnectionError):
            for _ in range(100):
                sock.sendall(chunk)
        reply = json.loads(read_all(sock))

    assert reply["error"]["message"] == f"a message is at most {limits.MESSAGE_BYTES} bytes"
    assert _memory(daemon) < before + 50_000


def test_a_peer_that_leaves_without_reading_ends_only_its_own_session(
    daemon: Daemon, initialized: Path
) -> None:
    """The naive server dies of the broken pipe, or never notices it."""
    request = line("state.list", cwd=str(initialized), key="k")
    for _ in range(5):
        with daemon.connect() as sock:
            sock.sendall(request * 200)

    assert daemon.call("icd.ping")
    _eventually_alone(daemon)


def test_a_peer_that_never_reads_is_not_read_from_either(daemon: Daemon) -> None:
    with daemon.connect() as sock:
        sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200_000_000:
                sent += sock.send(line("rpc.discover") * 20)

        assert sent < 20_000_000
        assert daemon.call("icd.ping")


def test_a_slow_peer_gets_its_answer(daemon: Daemon) -> None:
    with daemon.connect() as sock:
        for byte in line("icd.ping"):
            sock.sendall(bytes([byte]))

        assert json.loads(read_line(sock))["result"]


def test_a_thousand_idle_connections_hurt_nobody(daemon: Daemon) -> None:
    before = _memory(daemon)
    idle = [daemon.connect() for _ in range(1000)]
    try:
        assert daemon.call("icd.status")["sessions"] >= 1000
        assert _memory(daemon) < before + 50_000
    finally:
        for sock in idle:
            sock.close()
    _eventually_alone(daemon)


def test_incomplete_messages_are_limited_all_together(daemon: Daemon) -> None:
    each = limits.MESSAGE_BYTES - 10
    waiting = [daemon.connect() for _ in range(limits.PARTIAL_BYTES // each + 3)]
    try:
        for sock in waiting:
            with contextlib.suppress(ConnectionError):  # it was refused half way
                sock.sendall(b"x" * each)
        told, _, _ = select.select(waiting, [], [], PATIENCE)
        refused = 0
        for sock in told:
            try:
                refused += b"too many incomplete" in sock.recv(4096)
            except ConnectionError:
                refused += 1

        assert 1 <= refused < len(waiting)
        assert daemon.call("icd.ping")
    finally:
        for sock in waiting:
            sock.close()
    _eventually_alone(daemon)


def _memory(daemon: Daemon) -> int:
    """Resident kilobytes."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def _eventually_alone(daemon: Daemon) -> None:
    until(lambda: daemon.call("icd.status")["sessions"] == 1)


def test_a_batch_has_a_limit(daemon: Daemon) -> None:
    request = {"jsonrpc": "2.0", "method": "icd.ping", "id": 1}

    (most,) = replies(daemon, json.dumps([request] * limits.REQUESTS).encode() + b"\n")
    (more,) = replies(daemon, b"[" + b"1," * 300_000 + b"1]\n")

    assert len(most) == limits.REQUESTS
    assert more["error"]["message"] == f"a batch has at most {limits.REQUESTS} requests"


def test_more_lines_than_are_answered_in_one_go_are_all_answered(daemon: Daemon) -> None:
    count = limits.REQUESTS * 3 + 1

    found = replies(daemon, b"".join(line("icd.ping", number) for number in range(count)))

    assert [reply["id"] for reply in found] == list(range(count))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000 + b"\n",
        b'{"jsonrpc":"2.0","id":1,"method":"state.set","params":'
        + b"[" * 5000
        + b"]" * 5000
        + b"}\n",
    ],
)
def test_json_that_is_nested_too_deeply_is_answered(daemon: Daemon, data: bytes) -> None:
    (reply,) = replies(daemon, data)

    assert reply["error"]["code"] in {-32700, -32602}


def test_requests_that_came_before_the_end_are_all_answered(
    daemon: Daemon, initialized: Path
) -> None:
    request = line("state.list", cwd=str(initialized), key="k")
    for _ in range(50):
        with daemon.connect() as sock:
            sock.sendall(request)
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)

            assert read_all(sock).count(b"\n") == 2


def test_large_payloads_are_not_remembered(daemon: Daemon, initialized: Path) -> None:
    before = _memory(daemon)
    payload = ["x" * 99_000] * 10

    for number in range(60):
        daemon.call(
            "state.set",
            cwd=str(initialized),
            key="k",
            scope_id=f"s{number}",
            payload=payload,
            debounce_ms=60_000,
        )

    assert _memory(daemon) < before + 45_000


def test_a_peer_that_has_said_all_and_reads_late_leaves_no_traceback(
    daemon: Daemon, initialized: Path
) -> None:
    """Its last reply was read, and the connection was ended twice, the second time in vain."""
    for number in range(30):
        payload = {"n": number, "text": "x" * 60_000}
        daemon.call("events.record", cwd=str(initialized), source="s", type="t", payload=payload)
    words = [b"d" + bytes(initialized), b"aevents", b"atail"]
    request = b"ic1 3\0" + b"".join(word + b"\0" for word in words)
    with daemon.connect() as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        first = sock.recv(1000)  # by now the kernel is full, and the daemon waits

        rest = read_all(sock)

    assert len(first + rest) > 1_000_000
    assert daemon.call("icd.ping")
    assert "Traceback" not in daemon.log.read_text()


def test_a_large_line_is_decoded_once_and_not_while_it_is_looked_at() -> None:
    """A client that waits for its replies has its line read at once, and a megabyte takes long."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"state.get","params":{"key":"%b","scope_id":"s"}}'
    decoded = []

    def look(frame: FrameType, what: str, _about: object) -> None:
        if what == "call" and frame.f_code is jsonrpc.decode_line.__code__:
            decoded.append(len(frame.f_locals["line"]))

    handler = cast("Handler", None)  # neither line is a call that it would be asked for
    sys.setprofile(look)
    try:
        found = lone_call(handler, line % (b"k" * limits.LARGE_BYTES))
        lone_call(handler, b"[]")
    finally:
        sys.setprofile(None)

    assert found is None  # it is left to the burst, which decodes it
    assert decoded == [2]
