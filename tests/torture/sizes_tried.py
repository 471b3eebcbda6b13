"""Too much of everything: the daemon says no, remembers nothing, and answers the next."""

import json

from icd.server import limits
from tests.torture import frames
from tests.torture.suite import Broken
from tests.torture.target import Target, refused

MIB = 1024 * 1024
LONG = "x" * 5000
DEEP = "[" * 10_000 + "]" * 10_000


def commands(target: Target) -> None:
    for argv in (
        ["state", "set", "k" * 201, "s", "--value=1"],
        ["state", "set", "k", LONG, "--value=1"],
        ["state", "set", "k", "s", f'--value="{"x" * 102_401}"'],
        ["state", "set", "k", "s", f"--value=[{'1,' * MIB}1]"],
        ["state", "set", "k", "s", f"--value={DEEP}"],
        ["state", "set", "k", "s", f'--value={{"{"x" * 1001}":1}}'],
        ["state", "set", "k", "s", "--value=1", f"--ttl={'9' * 30}h"],
        ["state", "set", "k", "s", "--value=1", f"--if-version={'9' * 30}"],
        ["state", "incr", "k", "n", f"--by={'9' * 30}"],
        ["sentinel", "check", LONG, "s", "--interval=1"],
        ["sentinel", "check", "n", LONG, "--interval=1"],
        ["sentinel", "check", "n", "s", f"--interval={'9' * 30}"],
        ["lease", "acquire", LONG, "s", "--ttl=1s", "--owner=o"],
        ["lease", "acquire", "n", "s", f"--ttl={'9' * 12}h", "--owner=o"],
        ["lease", "acquire", "n", "s", "--ttl=1s", f"--owner={LONG}"],
        ["events", "record", "--source=review", f"--type={LONG}"],
        ["events", "record", f"--source={LONG}", "--type=t"],
        ["events", "record", "--source=review", "--type=t", f"--payload={DEEP}"],
        ["events", "cursor", "register", LONG],
        ["events", "cursor", "set", "c", "9" * 30],
        ["run", "create", "--goal=g", f"--phases={json.dumps([str(n) for n in range(10_000)])}"],
        ["run", "create", "--goal=g", f"--phases={json.dumps(['x' * 200, 'y'])}"],
        ["run", "create", "--goal=g", f"--gates={DEEP}"],
        ["run", "create", "--goal=g", f"--token-budget={'9' * 30}"],
        ["run", "status", "x" * MIB],
        ["discovery", "submit", "--source=s", "--source-id=1", "--title=t", "--score=1e999"],
        ["discovery", "submit", "--source=s", "--source-id=1", f"--title={'x' * 2 * MIB}", "--score=0.5"],
        ["discovery", "profile", "update", f"--keyword-weights={json.dumps({str(n): 1 for n in range(1001)})}"],
        ["x" * MIB],
        ["state", "get", "k", "s", f"--timeout={'9' * 40}h"],
    ):  # fmt: skip
        reply = target.ask(*argv)
        if reply.what == "exit" and argv == ["x" * MIB]:
            reply = reply._replace(stdout=b"")  # the usage text
        refused(" ".join(argv)[:100], reply)
        target.run.figures["sizes tried"] += 1


def messages(target: Target) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "state.set"}
    params = {"cwd": str(target.project), "key": "k", "scope_id": "s", "payload": 1}
    for data in (
        f"ic1 {limits.FIELDS + 1}\0".encode() + b"ax\0" * 10,
        b"ic1 99999999999999999999\0",
        b"ic1 -1\0",
        b"ic1 0\0",
        b"ic1 1\0s99999999999999:\0",
        b"ic1 1\0" + b"s" + b"9" * 1000 + b":\0",
        b"ic1 2\0astate\0" + b"a" + b"x" * (limits.MESSAGE_BYTES + 1),
        b"ic1 2\0dnot/absolute\0aping\0",
        b"ic99 1\0aping\0",
        b"{" * (limits.MESSAGE_BYTES + 1),
        b"[" * 100_000 + b"\n",
        json.dumps([{**request, "params": params}] * (limits.REQUESTS + 1)).encode() + b"\n",
        json.dumps({**request, "params": {**params, "payload": "x" * 2 * MIB}}).encode() + b"\n",
        json.dumps({**request, "params": {**params, "env": {"LD_PRELOAD": "x"}}}).encode() + b"\n",
        json.dumps({**request, "params": {**params, "request_id": "i" * 100_000}}).encode() + b"\n",
        json.dumps({**request, "method": "x" * MIB, "params": params}).encode() + b"\n",
        b"\xff\xfe\0\0" * 1000 + b"\n",
    ):
        said = frames.send(target.daemon, data)
        shown = f"{data[:60]!r}… ({len(data)} bytes)"
        if b'"result"' in said or said.startswith(b"0 "):
            raise Broken(f"{shown} was accepted: {said[:500]!r}")
        if b"internal" in said:
            raise Broken(f"{shown} was a surprise: {said[:500]!r}")
        target.run.figures["sizes tried"] += 1
    if not target.daemon.call("icd.ping"):
        raise Broken("the daemon does not answer any more")
