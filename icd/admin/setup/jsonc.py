"""Change a JSON document by a few entries, and leave every other byte as it is.

The document may have comments and trailing commas, as agents' configurations do.  It is read into
nodes that know where they stand in the text; a change cuts text out, or puts text in, in the
document's own indentation and line ends.

Promises
    - nothing but the entry itself, and the comma that belongs to it, is added or removed: order,
      comments, duplicate and unknown keys, line ends and a byte order mark stay;
    - to remove what was inserted gives the former text again, unless a container on its way was
      there and empty before: nothing in the text then tells whose white space it is;
    - text that is not JSON is `Malformed`, with its line.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct

# Configurations have five levels or so.  Python's own stack has a thousand.
DEPTH = 100

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
    r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
    r"|true|false|null"
)
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_INDENT = re.compile("\ufeff?([ \t]*)")
_BLANK = " \t\r\n"
_MARK = "\ufeff"

Path = tuple[str | int, ...]


class Malformed(Exception):
    """Why a text is not the JSON that we read."""


class Node(Struct):
    """A value and its place, from `start` up to `end`.

    `kind` is the first character of a container, or empty.  `commas` has the place of the comma
    behind each child, -1 where there is none.  `name_at` is where the name of a member begins.
    """

    kind: str
    start: int
    end: int
    value: Any = None
    name: str = ""
    name_at: int = -1
    children: list["Node"] = []
    commas: list[int] = []

    @property
    def begin(self) -> int:
        """Where it begins as a child: a member begins with its name."""
        return self.start if self.name_at < 0 else self.name_at

    def last(self, name: str) -> "Node | None":
        """The member of that name that counts: parsers take the last of several."""
        return next((c for c in reversed(self.children) if c.name == name), None)

    def plain(self) -> Any:
        """As Python's own values."""
        if self.kind == "{":
            return {child.name: child.plain() for child in self.children}
        return [child.plain() for child in self.children] if self.kind else self.value


# --- reading --------------------------------------------------------------------------------------


@lru_cache(maxsize=2)  # a change asks for the same text several times
def parse(text: str) -> Node | None:
    """The document, not to be changed; None if there is nothing but white space and comments."""
    at = _skipped(text, 1 if text.startswith(_MARK) else 0)
    if at == len(text):
        return None
    node = _value(text, at, 0)
    end = _skipped(text, node.end)
    if end != len(text):
        raise _malformed(text, end, "more text after the end of the document")
    return node


def _skipped(text: str, at: int) -> int:
    match = _TRIVIA.match(text, at)
    assert match is not None  # it also matches nothing
    return match.end()


def _malformed(text: str, at: int, told: str) -> Malformed:
    line = text.count("\n", 0, at) + 1
    return Malformed(f"line {line}: {told}")


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEPTH:
        raise _malformed(text, at, f"nested more than {DEPTH} levels deep")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, depth)
    match = _SCALAR.match(text, at)
    if match is None:
        raise _malformed(text, at, "a value is missing or malformed")
    return Node("", at, match.end(), _scalar(text, match))


def _scalar(text: str, match: re.Match[str]) -> Any:
    try:
        return json.loads(match[0])
    except ValueError as exc:  # thousands of digits
        raise _malformed(text, match.start(), "a value is malformed") from exc


def _container(text: str, at: int, depth: int) -> Node:
    node = Node(text[at], at, at, children=[], commas=[])
    close = "}" if node.kind == "{" else "]"
    here = _skipped(text, at + 1)
    while text[here : here + 1] != close:
        child = _member(text, here, depth) if node.kind == "{" else _value(text, here, depth + 1)
        node.children.append(child)
        here = _skipped(text, child.end)
        found = text[here : here + 1]
        node.commas.append(here if found == "," else -1)
        if found == ",":
            here = _skipped(text, here + 1)
        elif found != close:
            raise _malformed(text, here, f"expected ',' or '{close}'")
    node.end = here + 1
    return node


def _member(text: str, at: int, depth: int) -> Node:
    match = _SCALAR.match(text, at)
    if match is None or not match[0].startswith('"'):
        raise _malformed(text, at, "the name of a member is missing or malformed")
    colon = _skipped(text, match.end())
    if text[colon : colon + 1] != ":":
        raise _malformed(text, colon, "expected ':'")
    node = _value(text, _skipped(text, colon + 1), depth + 1)
    node.name, node.name_at = _scalar(text, match), at
    return node


def at_path(root: Node, path: Path) -> Node:
    """The node that a path of child numbers leads to."""
    for number in path:
        assert isinstance(number, int)
        root = root.children[number]
    return root


# --- inserting ------------------------------------------------------------------------------------


def put(text: str, names: tuple[str, ...], value: Any, *, append: bool = False) -> str:
    """Add a member of that path, or append to the array there; what is missing is made.

    `Malformed` if something else is in the way.
    """
    whole = [value] if append else value
    node = parse(text)
    if node is None:
        return _fresh(text, _nested(names, whole))
    for place, name in enumerate(names):
        if node.kind != "{":
            raise Malformed(f"{_spelled(names[:place])} is not an object")
        below = node.last(name)
        if below is None:
            return _inserted(text, node, name, _nested(names[place + 1 :], whole))
        node = below
    if node.kind != "[" or not append:
        raise Malformed(f"{_spelled(names)} is not an array")
    return _inserted(text, node, None, value)


def _nested(names: tuple[str, ...], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


def _spelled(names: tuple[str, ...]) -> str:
    return repr(".".join(names)) if names else "the document"


def _fresh(text: str, value: Any) -> str:
    """A document of its own, behind the white space and comments that are there."""
    newline = _newline(text)
    between = newline if text.strip(_MARK + _BLANK) and not text.endswith(("\n", "\r")) else ""
    body = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", newline)
    return text + between + body + newline


def _inserted(text: str, parent: Node, name: str | None, value: Any) -> str:
    style = _Style(text, parent)
    label = "" if name is None else json.dumps(name, ensure_ascii=False) + style.colon
    entry = label + style.rendered(value)
    if not parent.children:
        return _only(text, parent, style, entry)
    last, comma = parent.children[-1].end, parent.commas[-1]
    behind = _after_comments(text, last if comma < 0 else comma + 1)
    lead = style.lead
    if _ends_in_line_comment(text, last, behind):
        lead = style.newline + style.indent
    if comma >= 0:  # the document's own way to end a list
        return text[:behind] + lead + entry + "," + text[behind:]
    return text[:last] + "," + text[last:behind] + lead + entry + text[behind:]


def _only(text: str, parent: Node, style: "_Style", entry: str) -> str:
    """The first child; comments stay before it."""
    behind = _after_comments(text, parent.start + 1)
    is_broken = style.is_broken or _ends_in_line_comment(text, parent.start + 1, behind)
    lead, tail = "", ""
    if is_broken:
        lead, tail = style.newline + style.indent, style.newline + style.outer
    return text[:behind] + lead + entry + tail + text[parent.end - 1 :]


def _after_comments(text: str, at: int) -> int:
    """Behind the last comment of what follows, before the white space."""
    for comment in _COMMENT.finditer(text, at, _skipped(text, at)):
        at = comment.end()
    return at


def _ends_in_line_comment(text: str, at: int, end: int) -> bool:
    """Whether the white space and comments between the places end in a comment `// …`."""
    pieces = _COMMENT.findall(text, at, end)
    return bool(pieces) and pieces[-1].startswith("//") and text[at:end].endswith(pieces[-1])


def _newline(text: str) -> str:
    match = re.search(r"\r\n|\n|\r", text)
    return match[0] if match else "\n"


class _Style:
    """How the children of a container are written: whether each has its line, and where."""

    def __init__(self, text: str, parent: Node) -> None:
        root = parse(text)
        assert root is not None
        self.newline = _newline(text)
        self.outer = _indent_of(text, parent.begin)
        self.step = _step(text, root)
        self.is_broken, self.indent = self._lines(text, parent, root)
        self.is_tight = not self.is_broken and _is_tight(text, root)
        self.colon = ":" if self.is_tight else ": "

    def _lines(self, text: str, parent: Node, root: Node) -> tuple[bool, str]:
        inner = self.outer + ("  " if self.step is None else self.step)
        if not parent.children:
            return self.step is not None or not root.children, inner
        last = parent.children[-1]
        is_broken = _is_on_own_line(text, last)
        return is_broken, _indent_of(text, last.begin) if is_broken else inner

    @property
    def lead(self) -> str:
        if self.is_broken:
            return self.newline + self.indent
        return "" if self.is_tight else " "

    def rendered(self, value: Any) -> str:
        if not self.is_broken:
            separators = (",", ":") if self.is_tight else (", ", ": ")
            return json.dumps(value, ensure_ascii=False, separators=separators)
        step = "  " if self.step is None else self.step
        body = json.dumps(value, ensure_ascii=False, indent=step)
        return body.replace("\n", self.newline + self.indent)


def _is_on_own_line(text: str, node: Node) -> bool:
    start = node.begin
    while text[start - 1 : start] in (" ", "\t"):
        start -= 1
    return text[start - 1 : start] in ("\n", "\r")


def _indent_of(text: str, at: int) -> str:
    """The white space that the line begins with."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    match = _INDENT.match(text, start, at)
    return match[1] if match else ""


def _step(text: str, root: Node) -> str | None:
    """One level of indentation; None if the document is written on one line."""
    for child in root.children:
        if _is_on_own_line(text, child):
            return _indent_of(text, child.begin).removeprefix(_indent_of(text, root.start))
    return None


def _is_tight(text: str, root: Node) -> bool:
    """Whether no space follows the colons."""
    first = next((child for child in root.children if child.name_at >= 0), None)
    return first is not None and text[first.start - 1] == ":"


# --- removing -------------------------------------------------------------------------------------


def replaced(text: str, changes: list[tuple[Node, Any]]) -> str:
    """With other values in the place of some nodes."""
    pieces: list[str] = []
    at = 0
    for node, value in sorted(changes, key=lambda change: change[0].start):
        pieces += text[at : node.start], json.dumps(value, ensure_ascii=False)
        at = node.end
    return "".join([*pieces, text[at:]])


def dropped(text: str, root: Node, paths: Iterable[Path]) -> str:
    """Without the children that paths of numbers lead to, and their commas; all in one go."""
    doomed: dict[Path, set[int]] = {}
    for path in paths:
        number = path[-1]
        assert isinstance(number, int)
        doomed.setdefault(path[:-1], set()).add(number)
    cuts: list[tuple[int, int]] = []
    for above, numbers in doomed.items():
        cuts += _cuts(text, at_path(root, above), numbers)
    return _without(text, cuts)


def _cuts(text: str, parent: Node, numbers: set[int]) -> Iterator[tuple[int, int]]:
    if len(numbers) == len(parent.children) and not has_comments(text, parent):
        yield parent.start + 1, parent.end - 1
        return
    stays = -1  # the last child that does
    is_first_at_once = _before_blank(text, parent, 0, numbers) == parent.children[0].begin
    for number, node in enumerate(parent.children):
        comma = parent.commas[number]
        if number not in numbers:
            stays = number
            continue
        yield _before_blank(text, parent, number, numbers), node.end
        if comma >= 0:
            yield comma, comma + 1
        elif stays >= 0:
            yield parent.commas[stays], parent.commas[stays] + 1
        if stays < 0 and comma >= 0 and is_first_at_once:
            yield comma + 1, _end_of_spaces(text, comma + 1)


def _before_blank(text: str, parent: Node, number: int, numbers: set[int]) -> int:
    """Where the white space before a child begins; kept if a comment needs its line end."""
    node = parent.children[number]
    opens = parent.start + 1 if number == 0 else parent.commas[number - 1] + 1
    start = _after_comments(text, opens)
    follows = _behind(parent, number)
    while number + 1 in numbers and _after_comments(text, follows) == follows:
        number += 1  # it goes, too, with the white space before it
        follows = _behind(parent, number)
    is_followed = text[follows : follows + 1] not in ("\r", "\n")
    if is_followed and _ends_in_line_comment(text, opens, start):
        return node.begin
    return start


def _behind(parent: Node, number: int) -> int:
    comma = parent.commas[number]
    return comma + 1 if comma >= 0 else parent.children[number].end


def _end_of_spaces(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _without(text: str, cuts: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in sorted(cuts):
        pieces.append(text[at:start])
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def has_comments(text: str, parent: Node) -> bool:
    """Whether a container has comments outside of its children."""
    return any(piece.strip(_BLANK + ",") for piece in _between(text, parent))


def _between(text: str, parent: Node) -> Iterator[str]:
    at = parent.start + 1
    for child in parent.children:
        yield text[at : child.begin]
        at = child.end
    yield text[at : parent.end - 1]
