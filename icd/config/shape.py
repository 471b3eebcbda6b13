"""The shape of a TOML document, judged before it is parsed, and on which lines its values start.

tomllib takes quadratic time for some documents, and holds Python's lock meanwhile: a minute for
64 KiB of dotted names.  A project may come from anywhere, so its file of settings may be made for
that.  Here one pass over the text, in linear time, counts what makes parsing slow.

tomllib does not tell lines, either.  But a document is a sequence of statements, headers and
assignments, and tomllib reads each of them alone as well.

The scanner knows strings, comments and brackets, and nothing else of TOML.  It agrees with tomllib
up to the first mistake in a document, which is where tomllib stops.
"""

import re
import tomllib
from collections.abc import Iterator

from msgspec import Struct

# Without comments and blanks.  Every setting there is, and two hundred channels, take less.
CONTENT_CHARACTERS = 16_384
# The longest line names a directory, and a path has at most 4096 bytes.
LINE_CHARACTERS = 4_608
# Headers and assignments.  Every setting, and a hundred channels with six lines each, are fewer.
STATEMENTS = 700
# Brackets, commas, dots and equals signs: each of them is work for the parser.
MARKS = 3_000
# Of one header or assignment; the longest name of a setting has four parts.
DOTS = 16
# `[[x]]` and a table within a table are 2.
DEPTH = 8

# What a name that is not quoted, a number or a date may be long.
WORD_CHARACTERS = 256
# The name of a setting has at most so many parts; a hostile file may have thousands.
PARTS = 4

Path = tuple[str, ...]

_PIECE = re.compile(
    r"""
    (?P<gap> (?: [ \t\r\n] | \#[^\n]*+ )++ )
    | (?P<string> "{3} (?: [^"\\] | \\. | "{1,2}(?!") )*+ "{3,5}
                | '{3} (?: [^'] | '{1,2}(?!') )*+ '{3,5}
                | " (?: [^"\\\n] | \\[^\n] )*+ "?
                | ' [^'\n]*+ '? )
    | (?P<mark> [][{}=.,] )
    | (?P<word> [^][{}=.,\s"'\#]++ | . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Excess(ValueError):
    """What there is too much of, and on which line."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


class Statement(Struct):
    """A header or an assignment, with all lines of its value and without comments."""

    line: int
    text: str = ""
    dots: int = 0


def check(text: str) -> None:
    """Refuse what would take long to parse."""
    for at, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_CHARACTERS:
            raise Excess(at, f"the line has more than {LINE_CHARACTERS} characters")
    for _ in statements(text):
        pass


def statements(text: str) -> Iterator[Statement]:
    """Every header and assignment, in order; Excess where there is too much of something."""
    scan = _Scan()
    for found in _PIECE.finditer(text):
        kind, piece = found.lastgroup, found[0]
        if kind != "gap":
            scan.take(kind or "", piece)
        elif ended := scan.end(piece):
            yield ended
        scan.line += piece.count("\n")
    if scan.statement is not None:
        yield scan.statement


class _Scan:
    """What was counted so far, and the statement that is being read."""

    def __init__(self) -> None:
        self.line = 1
        self.statement: Statement | None = None
        self._depth = 0
        self._characters = 0
        self._marks = 0
        self._statements = 0

    def end(self, gap: str) -> Statement | None:
        """The statement, if it ends here: with a line, unless a bracket is open."""
        found = self.statement
        if found is not None and "\n" in gap and not self._depth:
            self.statement = None
            return found
        if found is not None:
            found.text += "\n" if "\n" in gap else " "
        return None

    def take(self, kind: str, piece: str) -> None:
        if self.statement is None:
            self.statement = Statement(self.line)
            self._statements += 1
            self._limit(self._statements, STATEMENTS, "settings and tables")
        self.statement.text += piece
        self._characters += len(piece)
        self._limit(self._characters, CONTENT_CHARACTERS, "characters, comments not counted")
        if kind == "mark":
            self._mark(piece, self.statement)
        elif kind == "word":
            self._limit(len(piece), WORD_CHARACTERS, "characters in a name or a number")

    def _mark(self, piece: str, statement: Statement) -> None:
        self._marks += 1
        self._limit(self._marks, MARKS, "brackets, commas, dots and equals signs")
        if piece == ".":
            statement.dots += 1
            self._limit(statement.dots, DOTS, "dots in one setting")
        elif piece in "[{":
            self._depth += 1
            self._limit(self._depth, DEPTH, "nested brackets")
        elif piece in "]}":
            self._depth = max(0, self._depth - 1)

    def _limit(self, count: int, most: int, what: str) -> None:
        if count > most:
            raise Excess(self.line, f"it has more than {most} {what}")


def locate(text: str) -> dict[Path, int]:
    """The lines in a valid document whose shape was judged, from 1 on."""
    found: dict[Path, int] = {}
    table: Path = ()
    for statement in statements(text):
        header = statement.text.startswith("[")
        values = tomllib.loads(statement.text)
        named = [path if header else (*table, *path) for path in paths(values)]
        for path in named:
            found.setdefault(path, statement.line)
        if header:
            table = max(named, key=len)
    return found


def paths(values: dict[str, object], at: Path = ()) -> Iterator[Path]:
    """Every table and value, a table before what it holds."""
    for name, value in values.items():
        path = (*at, name)
        yield path
        if isinstance(value, dict) and len(path) < PARTS:
            yield from paths(value, path)
