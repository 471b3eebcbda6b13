"""Which methods are tools.

A method that only reads is a tool.  A method that writes is one if it is listed here as harmless,
or if the user allows it.  A verb that is not listed is kept back, and said to be destructive: that
is right for those that delete, end, undo or override something, and safe for a new one.
"""

from typing import Any

from icd.app import registry
from icd.app.verb import Method
from icd.errors import Usage

Row = Method[Any, Any]

# Their first words are the nouns that `--allow` knows.
NOUNS = (
    "state",
    "sentinel",
    "lease",
    "coordination",
    "session",
    "lane",
    "events",
    "run",
    "agent",
    "artifact",
    "action",
    "gate",
    "discovery",
)
ALL = "all"
# Streams, which the protocol has as a subscription; and what only commands ask for.
LEFT_OUT = frozenset({"state.watch", "events.watch", "artifact.origins", "discovery.submit_file"})
# Writes that agents need: nothing is lost that was not named, and no process is started but the
# triggers that the user trusts, after an event; without a daemon the server runs them itself.
HARMLESS = frozenset(
    {
        "state.set",
        "state.incr",
        "sentinel.check",
        "sentinel.check_many",
        "lease.acquire",
        "lease.renew",
        "lease.release",
        "coordination.reserve",
        "coordination.renew",
        "coordination.release",
        "session.start",
        "session.attribute",
        "events.record",
        "artifact.add",
        "action.add",
        "lane.create",
        "discovery.submit",
        "discovery.feedback",
    }
)
# They need --allow, and yet delete nothing: a run whose phase changes may start agents.
GUARDED = frozenset(
    {
        "events.consume",
        "run.create",
        "run.advance",
        "run.set",
        "agent.add",
        "agent.update",
        "discovery.score",
        "discovery.promote",
        "discovery.decay",
        "discovery.update_profile",
    }
)
# Called again with the same arguments, they change nothing more.
IDEMPOTENT = frozenset(
    {
        "state.delete",
        "state.delete_all",
        "sentinel.reset",
        "sentinel.reset_all",
        "lease.release",
        "coordination.release",
        "coordination.sweep",
        "run.cancel",
        "run.abandon",
        "agent.update",
        "discovery.score",
        "discovery.dismiss",
    }
)


def candidates() -> list[Row]:
    """All methods that can be tools, in the order of their nouns."""
    found = [row for noun in NOUNS for row in registry.table(noun).values()]
    return [row for row in found if row.name not in LEFT_OUT]


def is_default(row: Row) -> bool:
    return row.writes is None or row.name in HARMLESS


def is_destructive(row: Row) -> bool:
    return row.writes is not None and row.name not in HARMLESS | GUARDED


def offered(allowed: frozenset[str]) -> list[Row]:
    """The tools of a server: the default ones, and what was allowed by name, noun or `all`."""

    def is_allowed(row: Row) -> bool:
        return not allowed.isdisjoint({row.name, row.name.partition(".")[0], ALL})

    return [row for row in candidates() if is_default(row) or is_allowed(row)]


def read_allowed(words: str) -> frozenset[str]:
    """The value of --allow: names of methods, nouns or `all`, separated by commas."""
    given = frozenset(word.strip() for word in words.split(",")) - {""}
    known = {row.name for row in candidates()} | {*NOUNS, ALL}
    for word in sorted(given - known):
        hint = f"pass {ALL}, a noun ({', '.join(NOUNS)}) or a method such as state.delete"
        raise Usage(f"--allow: there is no tool {word}", hint=hint)
    return given
