"""Which command lines are tried in a stranger's repository: from the table of commands.

A command that only reads, as its method says, is tried by itself.  A command of the caller's own
process says nothing about itself: it is taken for one that reads, and the suite shows what it does,
unless it stands in `LOCAL_WRITES`.  Where words of our own do not suit a command, its example does.
"""

import functools
import time
from dataclasses import dataclass

import click

from icd.app import registry
from icd.app.invocation import Ask, Errand, Need, Output, World
from icd.app.parser import Leaf
from icd.app.planner import plan
from tests.support import examples

# Rows that are in the databases of tests/data/databases; others are as good as none.
WORDS = {
    "run_id": "run00001", "run": "run00001", "dispatch id": "disp0001", "ids": "disp0001",
    "id_": "disc00000001", "key": "dispatch", "scope": "s1", "scope_id": "s1", "name": "stop",
    "consumer": "reader", "interval": "60", "older_than": "1d", "older_than_ms": "1d", "ttl": "1d",
    "ttl_ms": "1d", "guards": "n:s:1", "seq": "5", "shell": "bash", "file": "-", "score": "0.5",
    "rate": "0.1", "since": "1", "min_age": "1d",
}  # fmt: skip
# What a command wants beside what click calls required.
MORE = {
    "events tail": ["--all"],
    "state list": ["dispatch"],
    "run snapshot": ["run00001"],
    "discovery search": ["--like=disc00000001"],
    "wait": ["--state", "dispatch", "s1"],
    "state set": ["--value=1"],
    "lease acquire": ["--owner=me"],
    "coordination check": ["--pattern=**"],
    "coordination reserve": ["--owner=me", "--pattern=a"],
    "coordination renew": ["--owner=me"],
    "coordination release": ["--owner=me"],
    "trust": ["--list"],
}
# Also without changing anything a person would notice, though their methods may write.
READS_TOO = {"events cursor list", "events cursor get"}
LOCAL_WRITES = {
    "dispatch retry", "dispatch auto-spawn", "dispatch kill", "lock acquire", "lock release",
    "lock clean", "compat import", "compat cleanup", "triggers trust", "triggers untrust",
    "service install", "service uninstall", "service status", "service logs", "service start",
    "service stop", "service ensure", "setup", "restore", "import",
    "hold", "hook run", "guard install", "guard uninstall", "dispatch spawn", "backup", "service reload", "mcp",
}  # fmt: skip
# They go on until they are stopped: the first lines are enough.
ENDLESS = {"state watch"}
# What a hook or a person does next in a clone.
MOVES = [
    ["run", "create", "--goal=g"],
    ["run", "advance", "{created}"],
    ["run", "advance", "run00001"],
]
WRITES = [
    ["state", "set", "dispatch", "s9", "--value=1"],
    ["sentinel", "check", "n", "s", "--interval=60"],
    ["events", "record", "--source=ci", "--type=t"],
]
# What would signal a process, or start one, because of what a row says.
SIGNALS = [
    ["dispatch", "poll", "disp0001"],
    ["dispatch", "wait", "disp0001"],
    ["dispatch", "kill", "disp0001", "--if-running"],
    ["run", "rollback", "run00001", "--to-phase=a"],
    ["dispatch", "auto-spawn", "run00001"],
]
# In every repository, whatever else is tried there: a prompt shows it, a hook asks it, and a person
# who wonders runs it.
ALWAYS = [["health"], ["run", "list"], ["db", "check"], ["state", "list", "dispatch"]]
# Which commands show what is in a table.
SHOWN_BY = {
    "cursors": ["events cursor list", "events cursor get"],
    "discoveries": ["discovery list", "discovery status", "discovery rank"],
    "dispatches": ["dispatch list", "dispatch status", "dispatch poll", "run snapshot"],
    "embedding_sources": ["discovery search"],
    "embeddings": ["discovery search"],
    "events": ["events tail", "run events", "interspect query"],
    "feedback_signals": ["discovery status"],
    "hook_positions": ["triggers list"],
    "interest_profile": ["discovery profile", "discovery rank"],
    "leases": ["lease list"],
    "reservations": ["coordination list"],
    "sessions": ["session list"],
    "attributions": ["session current"],
    "lanes": ["lane list", "lane status"],
    "lane_members": ["lane members", "lane velocity"],
    "migrations": ["version", "doctor", "health"],
    "run_actions": ["run action list"],
    "run_agents": ["run agent list", "run snapshot"],
    "run_artifacts": ["run artifact list", "run snapshot"],
    "run_skips": ["run status", "run snapshot", "gate check"],
    "runs": ["run list", "run status", "run snapshot", "run current"],
    "sentinels": ["sentinel list"],
    "state": ["state get", "state list", "compat check"],
}
DEADLINE = 1.0  # what every call is told, by --timeout
# Has patience of its own, for machines that hang; `--timeout` is for what it asks.
PATIENT = {"doctor": 10.0, "dispatch kill": 20.0, "run rollback": 20.0}


@dataclass(frozen=True)
class Read:
    """A command line that only reads; `is_local`: only the caller's own process runs it."""

    argv: tuple[str, ...]
    is_local: bool = False


@functools.cache
def reads() -> list[Read]:
    found = []
    for name in registry.commands():
        argv = argv_of(name)
        planned = planned_as(argv)
        if isinstance(planned, Errand) and name not in LOCAL_WRITES:
            found.append(Read(argv, is_local=True))
        elif isinstance(planned, Ask) and _only_reads(name, planned):
            found.append(Read(argv))
    return found


def about(repository: str) -> list[list[str]]:
    """What shows the rows of the table that the name of a repository ends with."""
    names = SHOWN_BY.get(repository.rsplit(maxsplit=1)[-1], [])
    return [list(read.argv) for read in reads() if " ".join(read.argv).startswith(tuple(names))]


def misunderstood() -> list[str]:
    """Commands that want other words than they get here."""
    planned = {name: planned_as(argv_of(name)) for name in registry.commands()}
    return [name for name, found in planned.items() if _is_usage(found)]


def _only_reads(name: str, planned: Ask) -> bool:
    method = planned.call.method
    is_asked = method.run is not None and not (
        method.runs.creates or method.runs.whole or method.runs.local
    )
    return is_asked and name not in ENDLESS and (not method.writes or name in READS_TOO)


def planned_as(argv: tuple[str, ...]) -> Ask | Errand | Need | Output:
    env = {"HOME": "/nonexistent", "CLAUDE_SESSION_ID": "session"}
    return plan(World(list(argv), "/project", time.monotonic() + 5, env=env))


def argv_of(name: str) -> tuple[str, ...]:
    """Its words and those that it requires; or its example, if it wants still others."""
    command = registry.commands()[name]
    argv = (*name.split(), *_words(name, command))
    if _is_usage(planned_as(argv)) and isinstance(command, Leaf):
        step = next(examples.steps(command.row.examples[0]))
        argv = tuple(map(str, step.argv))
    return argv


def _is_usage(planned: Ask | Errand | Need | Output) -> bool:
    return isinstance(planned, Output) and planned.exit == 3


def _words(name: str, command: Leaf) -> list[str]:
    found: list[str] = []
    noun = name.partition(" ")[0]
    for parameter in command.click.params:
        if not parameter.required:
            continue
        field = str(parameter.name)
        word = WORDS.get(f"{noun} {field}") or WORDS.get(field, "x")
        if isinstance(parameter.type, click.Choice):
            word = str(parameter.type.choices[0])
        option = parameter.opts[0]
        found += [f"{option}={word}" if isinstance(parameter, click.Option) else word]
    return found + MORE.get(name, [])


def patience(argv: list[str]) -> float:
    """The seconds that a call may take by its deadline."""
    words = " ".join(argv)
    return next((given for name, given in PATIENT.items() if words.startswith(name)), DEADLINE)
