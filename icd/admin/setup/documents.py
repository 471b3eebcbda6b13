"""Our entries in an agent's configuration: how they are found, added and removed.

An entry is ours by what it runs: a program called `icctl` with the words that we give it, wherever
it stands and however the file is formatted.  One that runs it in another way, or has other fields,
was edited by its user: it counts as there, and is left alone.

`Json` and `Toml` are the two kinds of documents, with the same three questions: what is there,
what is the text with our entries, and what is it without them.
"""

import io
import json
import os
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from icd.admin.setup import jsonc
from icd.admin.setup.jsonc import Malformed, Node, Path

PROGRAM = "icctl"
SERVER = "intercore"  # our name among the MCP servers

# ours: as we write it, maybe with another path of the program; stale: that program is gone;
# edited: ours, changed by the user; foreign: the user has another one in its place; unread: ours,
# in a member that agents do not read, because another of its name follows.
State = Literal["missing", "ours", "stale", "edited", "foreign", "unread"]
Kind = Literal["nested", "flat", "member", "server"]
REMOVABLE = ("ours", "stale", "unread")

# The length of a path to the member of a group that lists its handlers.
_IN_GROUP = 4


class Entry(Struct, frozen=True):
    """A command that an agent runs.

    `names` lead to the list of an event's hooks, where `nested` groups hold the handlers, or to a
    member of its own: the status line, an MCP server, whose command has `args`.
    """

    what: str
    names: tuple[str, ...]
    program: str
    words: str
    fields: dict[str, Any] = {}
    kind: Kind = "nested"

    @property
    def value(self) -> dict[str, Any]:
        if self.kind == "server":
            return {**self.fields, "command": self.program, "args": self.words.split()}
        # Where `fields` names it, too, it keeps that place.
        return {**self.fields, "command": f"{shlex.quote(self.program)} {self.words}"}

    @property
    def is_hook(self) -> bool:
        return self.kind in ("nested", "flat")


class Found(Struct):
    """An entry in a document; `path` is of child numbers."""

    entry: Entry
    state: State
    path: Path = ()


# --- JSON -----------------------------------------------------------------------------------------


class Json(Struct, frozen=True):
    """`needs` are members that the agent wants beside our entries."""

    entries: list[Entry]
    needs: dict[str, Any] = {}

    def found(self, text: str) -> list[Found]:
        """Each entry at least once; `Malformed` if the document is not what an agent reads."""
        root = jsonc.parse(text)
        if root is None:
            return [Found(entry, "missing") for entry in self.entries]
        if root.kind != "{":
            raise Malformed("the document is not an object")
        return [one for entry in self.entries for one in _all(entry, root)]

    def added(self, text: str) -> str:
        missing = [one.entry for one in self.found(text) if one.state == "missing"]
        for name, value in self.needs.items():
            root = jsonc.parse(text)
            if missing and (root is None or root.last(name) is None):
                text = jsonc.put(text, (name,), value)
        for entry in missing:
            value = {"hooks": [entry.value]} if entry.kind == "nested" else entry.value
            text = jsonc.put(text, entry.names, value, append=entry.is_hook)
        return self._refreshed(text)

    def _refreshed(self, text: str) -> str:
        """With the program as it is called now, where the one that was called is gone."""
        changes: list[tuple[Node, Any]] = []
        root = jsonc.parse(text)
        for one in self.found(text):
            if one.state == "stale" and root is not None:
                command = jsonc.at_path(root, one.path).last("command")
                assert command is not None
                changes.append((command, one.entry.value["command"]))
        return jsonc.replaced(text, changes)

    def removed(self, text: str) -> str:
        """Without the entries that are as we wrote them."""
        ours = {one.path for one in self.found(text) if one.state in REMOVABLE}
        root = jsonc.parse(text)
        return text if root is None else jsonc.dropped(text, root, _highest(text, root, ours))

    def is_empty(self, text: str) -> bool:
        """Whether nothing but what the agent wants beside entries is left."""
        root = jsonc.parse(text)
        bare = root is None or root.plain().items() <= self.needs.items()
        return bare and not (root and jsonc.has_comments(text, root))


def _all(entry: Entry, root: Node) -> list[Found]:
    if entry.is_hook:
        spots = _handlers(root, flat=entry.kind == "flat")
    else:
        spots = _members(Spot((), root), entry.names)
    found = [one for spot in spots if (one := _judged(entry, spot)).state != "missing"]
    is_read = any(one.state != "unread" for one in found)
    return found if is_read else [*found, Found(entry, "missing")]


def _judged(entry: Entry, spot: "Spot") -> Found:
    state = _state(spot.node.plain(), entry)
    if not spot.is_read:
        state = "unread" if state in REMOVABLE else "missing"
    elif not entry.is_hook:
        state = _in_place(state)
    return Found(entry, state, spot.path)


class Spot(Struct, frozen=True):
    """A node and its path; of members of one name, agents read only the last."""

    path: Path
    node: Node
    is_read: bool = True

    def children(self) -> "Iterator[Spot]":
        counts = _last_of_names(self.node) if self.node.kind == "{" else {}
        for number, child in enumerate(self.node.children):
            is_read = self.is_read and counts.get(child.name, number) == number
            yield Spot((*self.path, number), child, is_read)


def _last_of_names(node: Node) -> dict[str, int]:
    return {child.name: number for number, child in enumerate(node.children)}


def _handlers(root: Node, *, flat: bool) -> Iterator[Spot]:
    """Every handler of every event: a user may have moved ours."""
    for event in _events(root):
        for group in event.children():
            if flat:
                yield group
            else:
                yield from _of_group(group)


def _events(root: Node) -> Iterator[Spot]:
    for hooks in _members(Spot((), root), ("hooks",)):
        if hooks.node.kind != "{":
            raise Malformed("'hooks' is not an object")
        yield from (event for event in hooks.children() if event.node.kind == "[")


def _of_group(group: Spot) -> Iterator[Spot]:
    for member in group.children():
        if member.node.name == "hooks" and member.node.kind == "[":
            yield from member.children()


def _members(spot: Spot, names: tuple[str, ...]) -> Iterator[Spot]:
    """All members of that path; a name may occur more than once."""
    if not names:
        yield spot
        return
    for child in spot.children() if spot.node.kind == "{" else ():
        if child.node.name == names[0]:
            yield from _members(child, names[1:])


def _highest(text: str, root: Node, paths: set[Path]) -> set[Path]:
    """The paths of all that goes with some entries: the containers that hold nothing else.

    A group goes with its last handler, also if it has a matcher: agents refuse an empty one.
    Of two members of one name, the one that counts stays: the other must not come to life.
    """
    goes, doubles = set(paths), _Doubles(root)
    for length in range(max(map(len, paths), default=1), 1, -1):
        for above in {path[:-1] for path in goes if len(path) == length}:
            parent = jsonc.at_path(root, above)
            numbers = range(len(parent.children))
            is_spent = length == _IN_GROUP or all((*above, number) in goes for number in numbers)
            if is_spent and not jsonc.has_comments(text, parent) and above not in doubles:
                goes.difference_update([(*above, number) for number in numbers])
                goes.add(above)
    return goes


class _Doubles:
    """The paths of members that share their name with another; counted once per object."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.counts: dict[Path, Counter[str]] = {}

    def __contains__(self, path: Path) -> bool:
        parent, number = jsonc.at_path(self.root, path[:-1]), path[-1]
        assert isinstance(number, int)
        if parent.kind != "{":
            return False
        if path[:-1] not in self.counts:
            self.counts[path[:-1]] = Counter(child.name for child in parent.children)
        return self.counts[path[:-1]][parent.children[number].name] > 1


# --- recognising ----------------------------------------------------------------------------------


def _state(found: Any, entry: Entry) -> State:
    """What an object is, compared with the entry that we would write."""
    program, words = _called(found)
    is_ours = os.path.basename(program) == PROGRAM and words == entry.words
    if not is_ours:
        return "edited" if _mentions(f"{program} {words}", entry) else "missing"
    if {**found, "command": ""} != {**entry.value, "command": ""}:
        return "edited"
    is_gone = program.startswith("/") and not os.access(program, os.X_OK)
    return "stale" if is_gone else "ours"


def _in_place(state: State) -> State:
    """What is not ours, but has its name, is the user's."""
    return "foreign" if state == "missing" else state


def _mentions(line: str, entry: Entry) -> bool:
    """Whether a command runs ours in another way: with more words, or after others."""
    first = [w for w in entry.words.partition(";")[0].split() if not w.startswith("--timeout")]
    words = r"\s+".join(map(re.escape, first))
    called = rf"(?:^|[\s/'\"]){PROGRAM}['\"]?(?:\s+--timeout\S+)?\s+{words}(?![\w-])"
    return re.search(called, line) is not None


def _called(found: Any) -> tuple[str, str]:
    """The program that an object runs, and the rest of its words; empty if it runs none."""
    command = found.get("command") if isinstance(found, dict) else None
    if not isinstance(command, str):
        return "", ""
    if isinstance(found.get("args"), list):
        return command, " ".join(map(str, found["args"]))
    return _split(command) if PROGRAM in command else ("", command)


@lru_cache(maxsize=16)  # many entries run the same
def _split(command: str) -> tuple[str, str]:
    rest = io.StringIO(command)  # it is read one character at a time, so what is left is the rest
    reader = shlex.shlex(rest, posix=True)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        return reader.get_token() or "", rest.read().strip()
    except ValueError:  # a quote is not closed
        return "", command


# --- TOML -----------------------------------------------------------------------------------------


class Toml(Struct, frozen=True):
    """Codex's config.toml, with the MCP server as a table at its end.

    The text is only appended to and cut; every change is checked by what it means.
    """

    entry: Entry

    def found(self, text: str) -> list[Found]:
        servers = _toml(text).get(self.entry.names[0], {})
        server = servers.get(SERVER) if isinstance(servers, dict) else None
        if server is None:
            return [Found(self.entry, "missing")]
        return [Found(self.entry, _in_place(_state(server, self.entry)))]

    def added(self, text: str) -> str:
        if self.found(text)[0].state == "stale":
            text = self.removed(text)
        if self.found(text)[0].state != "missing":
            return text
        newline = "\r\n" if "\r\n" in text else "\n"
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        made = text + gap + self._block().replace("\n", newline)
        wanted = _toml(text)
        try:
            wanted.setdefault(self.entry.names[0], {})[SERVER] = self.entry.value
            is_right = _toml(made) == wanted
        except (Malformed, TypeError):
            is_right = False
        if not is_right:
            raise Malformed("no table can be added behind what is there")
        return made

    def _block(self) -> str:
        value = self.entry.value
        lines = [_COMMENT_LINE, _HEADER, *(f"{k} = {json.dumps(v)}" for k, v in value.items())]
        return "\n".join(lines) + "\n"

    def removed(self, text: str) -> str:
        """Without the table, if it is as we wrote it; the gap before it goes, too."""
        if self.found(text)[0].state not in REMOVABLE:
            return text
        wanted = _toml(text)
        del wanted[self.entry.names[0]][SERVER]
        for match in _BLOCK.finditer(text):
            made = text[: match.start()] + text[match.end() :]
            # Without its last table, the list of servers is gone, unless it has a heading.
            if self._listed(_means(made)) == wanted:
                return made
        raise Malformed(f"the table {_HEADER} is written in a way that icctl does not understand")

    def _listed(self, found: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if found is None else {self.entry.names[0]: {}} | found

    def is_empty(self, text: str) -> bool:
        return not text.strip()


_HEADER = f"[mcp_servers.{SERVER}]"
_COMMENT_LINE = "# Added by 'icctl setup codex --mcp'; 'icctl setup codex --remove' removes it."
# From the line break that we put before it to the next line that is not one of its own.
_BLOCK = re.compile(
    r"(?:(?<=\n)\r?\n)?(?:^# Added by 'icctl setup[^\r\n]*\r?\n)?"
    rf"^{re.escape(_HEADER)}[ \t]*\r?\n(?:^[a-z_]+[ \t]*=[^\r\n]*(?:\r?\n|\Z))+",
    re.MULTILINE,
)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise Malformed(str(exc) or "nested too deeply") from exc


def _means(text: str) -> dict[str, Any] | None:
    try:
        return _toml(text)
    except Malformed:
        return None


Document = Json | Toml
