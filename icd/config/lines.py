"""On which line of a TOML document each table and value starts.

tomllib does not tell.  But a document is a sequence of statements, headers and assignments, and
tomllib reads each of them alone as well.
"""

import tomllib
from collections.abc import Iterator

from icd.config import shape

Path = tuple[str, ...]

# The name of a setting has at most so many parts; a hostile file may have thousands.
PARTS = 4


def locate(text: str) -> dict[Path, int]:
    """The lines in a valid document whose shape was judged, from 1 on."""
    found: dict[Path, int] = {}
    table: Path = ()
    for statement in shape.statements(text):
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
