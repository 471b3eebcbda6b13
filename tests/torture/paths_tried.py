"""Paths that lead where they must not: in every argument that takes one.

The commands come from the table of commands, so that a new one is tried, too.  A command that has
no database must be named here.
"""

import json
import os

import click

from icd.app import registry
from icd.app.parser import Leaf
from tests.torture.suite import Broken
from tests.torture.target import SECRET, Reply, Target, refused, unrevealing

# These have no database; `service` would change the machine.
WITHOUT_DATABASE = {
    "lock acquire", "lock release", "lock list", "lock stale", "lock clean", "hold",
    "hook run", "hook context", "hook block", "hook allow", "hook reserve", "hook release",
    "setup", "service start", "service stop", "service ensure",
    "guard install", "guard uninstall", "guard check",
    "config show", "config check", "service install", "service uninstall", "service status",
    "service logs", "service reload", "version", "ping", "status", "metrics", "doctor", "lib-path",
    "completion", "gate rules", "mcp",
}  # fmt: skip
# What these can say without a database they say, and of one that is not theirs nothing.
INDULGENT = {"statusline", "compat status", "compat check"}
# Words that are accepted where one that stands for nothing is not.
WORDS = {
    "--interval": "1", "--older-than": "1d", "--ttl": "1d", "--rate": "0.1", "--min-age": "1d",
    "--since": "1", "--score": "0.5", "SEQ": "1", "GUARDS": "n:s:1", "WORD": "update",
}  # fmt: skip
LOCAL_AT_ONCE = 2


def databases(target: Target) -> None:
    """Every command with a database that is not the caller's to name."""
    rng, outside = target.run.rng, target.outside
    places = [
        "../outside/planted.db", f"{outside}/planted.db", "sub/../../outside/planted.db",
        "link.db", "linked/planted.db", ".clavain/../../outside/planted.db",
        "/etc/passwd", "plain.txt", "", f"{outside}/new.db", ".clavain/pipe.db", "\n.db",
    ]  # fmt: skip
    local = []
    for name, command in registry.commands().items():
        if name in WITHOUT_DATABASE:
            continue
        argv = [*name.split(), *_words(command)]
        place = rng.choice(places)
        if rng.random() < 0.5 or not place:  # an empty variable is none
            asked = {"flags": (f"--db={place}",), "env": {}}
        else:
            asked = {"flags": (), "env": {"INTERCORE_DB": place}}
        reply = target.ask(*asked["flags"], *argv, env=asked["env"])
        if reply.what in ("local", "file", "stdin"):
            local.append((name, argv, asked))
        else:
            _turned_away(name, f"{name} with {asked}", reply)
        target.run.figures["commands tried"] += 1
    for name, argv, asked in rng.sample(local, LOCAL_AT_ONCE):
        reply = target.icctl(*asked["flags"], *argv, env=asked["env"])
        _turned_away(name, f"{name} with {asked}, run by the client", reply)


def _turned_away(name: str, what: str, reply: Reply) -> None:
    if name in INDULGENT:
        unrevealing(what, reply)
    else:
        refused(what, reply)


def _words(command: Leaf) -> list[str]:
    """Just enough for a command to be understood."""
    found: list[str] = []
    for parameter in command.click.params:
        if not parameter.required:
            continue
        option = parameter.opts[0]
        word = WORDS.get(option) or WORDS.get(str(parameter.name).upper()) or "x"
        if isinstance(parameter.type, click.Choice):
            word = str(parameter.type.choices[0])
        found += [f"{option}={word}" if isinstance(parameter, click.Option) else word]
    return found


# Commands that read a file of the caller's; the path goes where the None is.
READERS: list[list[str | None]] = [
    ["state", "set", "k", "stolen", None],
    [
        "discovery",
        "submit",
        "--source=s",
        "--title=t",
        "--score=0.5",
        "--source-id=1",
        "--embedding",
        None,
    ],
    ["discovery", "search", "--embedding", None],
    ["discovery", "profile", "update", "--topic-vector", None],
    ["discovery", "submit", "--from", None],
    ["run", "artifact", "add", "x", "--phase=p", "--path", None],
    ["restore", None],
    ["import", None],
]
# An agent may be given any prompt: here it is only seen that the daemon keeps out of it.
STARTERS: list[list[str | None]] = [
    ["dispatch", "spawn", "--prompt-file", None],
    ["dispatch", "spawn", "--dispatch-sh", None],
    ["dispatch", "record", "x", "--end", None],
]  # fmt: skip
MARKED = {"state", "--embedding", "--topic-vector"}  # their files are marked with an @


def read_by_the_daemon(target: Target) -> None:
    """What a caller names is read by the caller: the daemon asks for it, or sends it away."""
    victims = [
        "../outside/secret",
        f"{target.outside}/secret",
        "linked/secret",
        "/proc/self/environ",
    ]
    for argv in READERS + STARTERS:
        words = _with(argv, target.run.rng.choice(victims))
        reply = target.ask(*words)
        if reply.what in ("file", "local") and SECRET.encode() not in reply.stdout:
            continue
        refused(f"{words}, by the daemon", reply)


def read_by_the_client(target: Target) -> None:
    """What is no sensible file ends neither in a hang nor in a change.

    A pipe is sensible: a shell gives one for `@<(command)`.
    """
    victims = ["../outside/secret", "../outside", "/dev/zero", "loop", "../no"]
    for argv in target.run.rng.sample(READERS, 3):
        words = _with(argv, target.run.rng.choice(victims))
        refused(f"{words}, by the client", target.icctl(*words, "--timeout=10s"))


def _with(argv: list[str | None], path: str) -> list[str]:
    marked = "@" if MARKED & set(argv) else ""
    return [f"{marked}{path}" if word is None else word for word in argv]


def written(target: Target) -> None:
    """Nothing that is there is written over, and no link is written through."""
    victims = [
        "../outside/secret", "../outside/pipe", "dangling", "link.db", "../outside", "../no/file",
        ".clavain/intercore.db", ".clavain/intercore.db.lock", "loop",
    ]  # fmt: skip
    for victim in target.run.rng.sample(victims, 2):
        for verb in ("backup", "export"):
            refused(f"{verb} {victim}", target.icctl(verb, victim))


def local_methods(target: Target) -> None:
    """What touches files of a caller's choice is no method of the daemon's."""
    for method in registry.every():
        if not method.runs.local:
            continue
        params = {"cwd": str(target.project), "file": f"{target.outside}/secret"}
        answer = target.daemon.respond(method.name, **params)
        if answer.get("error", {}).get("data", {}).get("name") != "method_not_found":
            raise Broken(f"{method.name} is served: {json.dumps(answer)[:500]}")


def names_of_files(target: Target) -> None:
    """Names from which files or directories are made."""
    bad = target.run.rng.choice(["../../x", "..", "/etc", "a/b", ".", "a\tb", "x" * 300])
    for argv in (
        ["lock", "acquire", bad, "s", "--owner=1:h"],
        ["lock", "acquire", "n", bad, "--owner=1:h"],
        ["hooks", "trust", f"../{bad}"],
    ):
        refused(" ".join(argv), target.icctl(*argv))
    made = sorted(os.listdir(target.daemon.home))
    if {"x", "b", "a"} & set(made):
        raise Broken(f"a name became a path: {made}")
