"""A statement as SQLite takes it, for PostgreSQL: other placeholders, and nothing else.

What stands for itself in both, stands; so a statement is written once, in words that both take.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

# As many as the product has statements, and those that are made from structs.
STATEMENTS = 2048

_TOKEN = re.compile(
    r"""
      (?P<kept> '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | :: )
    | \?(?P<number>\d*)
    | (?<![\w:]):(?P<name>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)
_BEGINS = re.compile(r"(?:\s|--[^\n]*\n)*(\w+)")
_ASKS = {"SELECT", "WITH", "VALUES"}
# Tables whose rows are numbered: an INSERT is asked for the number, which is its `lastrowid`.
NUMBERED = {"events": "seq", "feedback_signals": "id"}
_INSERT = re.compile(r"\s*INSERT\s+INTO\s+(\w+)\b", re.IGNORECASE)
_RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)


class Plan(Struct, frozen=True):
    """`given`: what each `$n` stands for, a position or a name.  `answers`: it has rows to read."""

    text: str
    given: tuple[int | str, ...]
    verb: str
    answers: bool
    numbered: bool = False

    def values(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        if isinstance(parameters, Mapping):
            return [parameters[str(name)] for name in self.given]
        return parameters


@lru_cache(maxsize=STATEMENTS)
def plan(sql: str) -> Plan:
    """How to send a statement; raises ValueError for one that mixes kinds of placeholders."""
    given: list[int | str] = []

    def renamed(found: re.Match[str]) -> str:
        if found["kept"]:
            return found["kept"]
        key = found["name"] or (int(found["number"]) if found["number"] else None)
        if key is None:
            given.append(len(given) + 1)
            return f"${len(given)}"
        if isinstance(key, int):
            given.extend(range(len(given) + 1, key + 1))
            return f"${key}"
        if key not in given:
            given.append(key)
        return f"${given.index(key) + 1}"

    text = _TOKEN.sub(renamed, sql)
    if len({type(each) for each in given}) > 1:
        raise ValueError(f"names and numbers are mixed in {sql!r}")
    begins = _BEGINS.match(sql)
    verb = begins[1].upper() if begins else ""
    inserts = _INSERT.match(sql)
    returns = bool(_RETURNING.search(sql))
    numbered = bool(inserts and inserts[1] in NUMBERED and not returns)
    if inserts and numbered:
        text = f"{text.rstrip().rstrip(';')} RETURNING {NUMBERED[inserts[1]]}"
    return Plan(text, tuple(given), verb, verb in _ASKS or returns, numbered)
