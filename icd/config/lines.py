"""On which line of a TOML document each table and value starts.

tomllib does not tell.  But a document is a sequence of statements, headers and assignments, and
tomllib reads each of them alone as well.
"""

import tomllib
from collections.abc import Iterator

Path = tuple[str, ...]

# The name of a setting has at most so many parts; a hostile file may have thousands.
PARTS = 4
# A value that spans more lines is no setting of ours, and trying line after line takes its time.
VALUE_LINES = 50


def locate(text: str) -> dict[Path, int]:
    """The lines in a valid document, from 1 on; what comes after an endless value is left out."""
    found: dict[Path, int] = {}
    lines = text.split("\n")
    table: Path = ()
    start = 0
    while start < len(lines):
        statement, length = _statement(lines[start : start + VALUE_LINES])
        if not length:
            break
        header = lines[start].lstrip(" \t").startswith("[")
        named = [path if header else (*table, *path) for path in paths(statement)]
        for path in named:
            found.setdefault(path, start + 1)
        if header:
            table = max(named, key=len)
        start += length
    return found


def paths(values: dict[str, object], at: Path = ()) -> Iterator[Path]:
    """Every table and value, a table before what it holds."""
    for name, value in values.items():
        path = (*at, name)
        yield path
        if isinstance(value, dict) and len(path) < PARTS:
            yield from paths(value, path)


def _statement(lines: list[str]) -> tuple[dict[str, object], int]:
    """The statement that starts here, and how many lines it takes; 0: too many."""
    for length in range(1, len(lines) + 1):
        try:
            return tomllib.loads("\n".join(lines[:length])), length
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
    return {}, 0
