"""The command line of each call of the models, and what its answer is.

An answer is what the model compares; a reply that is neither yes nor no is an error, which nobody
should ever see, however many others work on the same key.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.torture.suite import Broken


class Reply(NamedTuple):
    """What a client printed, and its exit status."""

    exit: int
    stdout: str
    stderr: str = ""


def words(kind: str, key: str, call: tuple[Any, ...]) -> list[str]:
    """`key` is the key of state, the name of a sentinel, lease or lane, a scope, or a run's id."""
    verb, *given = call
    if kind == "run":
        expected = [f"--if-phase=p{number}" for number in given]
        return ["run", verb, key, *expected, *(["--json"] if verb == "advance" else [])]
    if kind == "lease":
        owner, *ttl = given
        return ["lease", verb, key, "s", f"--owner={owner}", *(f"--ttl={each}ms" for each in ttl)]
    if kind == "reservations":
        return ["coordination", *_coordination(verb, given), f"--scope={key}"]
    if kind == "lane":
        beads = [f"--bead-ids={','.join(given)}"] if verb == "sync" else []
        return ["lane", verb, key, *beads, "--json"]
    if kind == "actions":
        command = [f"--command={each}" for each in given]
        return ["run", "action", verb, key, "--phase=p0", *command, "--json"]
    if kind == "sentinel":
        interval = [f"--interval={given[0]}"] if verb == "check" else []
        return ["sentinel", verb, key, "s", *interval]
    if verb == "set":
        return ["state", "set", key, "s", f"--value={json.dumps(given[0])}", "--json"]
    if verb == "swap":
        value, version = json.dumps(given[1]), given[0]
        return ["state", "set", key, "s", f"--value={value}", f"--if-version={version}", "--json"]
    return ["state", verb, key, "s", *(["--json"] if verb == "get" else [])]


def _coordination(verb: str, given: list[Any]) -> list[str]:
    if verb == "holders":
        return ["check", f"--pattern={given[0]}", "--json"]
    owner, pattern, *exclusive = given
    mode = [f"--exclusive={str(each).lower()}" for each in exclusive]
    return [verb, f"--owner={owner}", f"--pattern={pattern}", *mode]


def answer(kind: str, call: tuple[Any, ...], reply: Reply) -> Any:
    if reply.exit not in (0, 1):
        raise Broken(f"{kind} {call} became an error, exit {reply.exit}: {reply.stderr.strip()}")
    return _READ[kind](call[0], reply)


def _register(verb: str, reply: Reply) -> Any:
    if verb == "get":
        return json.loads(reply.stdout)["payload"] if reply.exit == 0 else "absent"
    return reply.stdout == "deleted\n" if verb == "delete" else True


def _versions(verb: str, reply: Reply) -> Any:
    if verb == "delete":
        return reply.stdout == "deleted\n"
    found = json.loads(reply.stdout) if reply.exit == 0 else {"version": 0, "payload": None}
    return (found["payload"], found["version"]) if verb == "get" else found["version"]


def _counter(verb: str, reply: Reply) -> Any:
    if verb == "get":
        return json.loads(reply.stdout)["payload"] if reply.exit == 0 else 0
    return int(reply.stdout)


def _sentinel(verb: str, reply: Reply) -> Any:
    return reply.exit == 0 if verb == "check" else reply.stdout == "reset\n"


def _lease(verb: str, reply: Reply) -> Any:
    if reply.exit:
        return 0
    return reply.stdout.strip() if verb == "release" else int(reply.stdout)


def _reservations(verb: str, reply: Reply) -> Any:
    if verb == "reserve":
        return reply.exit == 0
    if verb == "release":
        return int(reply.stdout.split()[0])
    return tuple(sorted({each["owner"] for each in json.loads(reply.stdout)}))


def _lane(verb: str, reply: Reply) -> Any:
    found = json.loads(reply.stdout)
    return (sorted(found["added"]), sorted(found["removed"])) if verb == "sync" else sorted(found)


def _actions(verb: str, reply: Reply) -> Any:
    if verb == "list":
        return [each["command"] for each in json.loads(reply.stdout)]
    return reply.exit == 0


def _run(verb: str, reply: Reply) -> Any:
    if verb == "phase":
        return int(reply.stdout.strip()[1:])
    return int(json.loads(reply.stdout)["to_phase"][1:]) if reply.exit == 0 else -1


_READ: dict[str, Callable[[str, Reply], Any]] = {
    "register": _register,
    "versions": _versions,
    "counter": _counter,
    "sentinel": _sentinel,
    "lease": _lease,
    "reservations": _reservations,
    "lane": _lane,
    "actions": _actions,
    "run": _run,
}
