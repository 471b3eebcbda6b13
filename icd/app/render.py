"""How results look: plain lines for scripts, or the original's JSON style.

What people see on a terminal is made by `icd.app.human`, which only they pay for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from icd import printable
from icd.app.invocation import Output, Terminal, World

if TYPE_CHECKING:
    from icd.app.verb import Typed

_CONTROL = r"[\x00-\x1f\x7f-\x9f]+"


def rendering(world: World, row: Typed, typed: Any) -> Callable[[Any], Output]:
    """What is made of the result of a command, by its row."""
    if world.json:
        return partial(_json, row, typed)
    if world.terminal is not None and row.human is not None:
        return partial(_human, world.terminal, row, typed)
    return partial(_text, row, typed)


def _text(row: Typed, typed: Any, result: Any) -> Output:
    if result is None or row.show is None:
        return Output(1)
    shown = row.show(result, typed)
    if isinstance(shown, Output):
        return shown
    return text(*shown, exit_code=row.exit(result) if row.exit else 0)


def _json(row: Typed, typed: Any, result: Any) -> Output:
    if row.json:
        return row.json(result, typed)
    if result is None:
        return Output(1)
    return to_json(result, row.exit(result) if row.exit else 0)


def _human(terminal: Terminal, row: Typed, typed: Any, result: Any) -> Output:
    from icd.app.human import screen

    code = row.exit(result) if row.exit and result is not None else 0
    return screen.output(terminal, row.human, result, typed, code, row=row)


def text(*lines: str, exit_code: int = 0) -> Output:
    text = "".join([f"{line.translate(printable.LINE_BREAKS)}\n" for line in lines])
    return Output(exit_code, text.encode("utf-8", "surrogateescape"))  # paths as they are


def shown(
    world: World, result: Any, lines: Callable[[], Iterable[str]], human: Any, exit_code: int = 0
) -> Output:
    """For commands that render in the caller's own process: JSON, for people, or lines."""
    if world.json:
        return to_json(result, exit_code)
    if world.terminal is not None:
        from icd.app.human import screen

        return screen.output(world.terminal, human, result, None, exit_code)
    return text(*lines(), exit_code=exit_code)


def columns(*fields: object) -> str:
    """A line of columns with tabs between them."""
    return "\t".join(printable.field(str(field)) for field in fields)


def payload(document: Raw) -> Output:
    """As it was stored, with one line break at its end."""
    return Output(0, bytes(document) + b"\n")


def one_line(text: str) -> str:
    """What may have several lines, or tabs, in a column; everything else as it was written."""
    if text.isprintable():
        return text
    import re  # few calls print such things, and a hook pays for every import

    return re.sub(_CONTROL, " ", text)


def relative(path: str, cwd: str) -> str:
    """As the original: a path right here is shown as it would be typed."""
    return path.removeprefix(os.path.join(cwd, ""))


def to_json(value: object, exit_code: int = 0) -> Output:
    """Compact, keys sorted, `<`, `>` and `&` escaped, one line."""
    try:
        data = msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        data = msgspec.json.encode(_readable(msgspec.to_builtins(value)), order="sorted")
    # Line breaks stand only between the tokens of a stored payload.
    return Output(exit_code, _escaped(data).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")


def in_order(value: object) -> Output:
    """Like `to_json`, but with the fields in the order in which they are declared."""
    return Output(0, _escaped(msgspec.json.encode(value)) + b"\n")


def lines(values: Sequence[object]) -> Output:
    """JSON lines, with the fields in the order in which they are declared."""
    encoded = (msgspec.json.encode(value).replace(b"\n", b" ") for value in values)
    data = b"".join(line.replace(b"\r", b" ") + b"\n" for line in encoded)
    return Output(0, _escaped(data))


def _escaped(data: bytes) -> bytes:
    """Escape three characters, which stand only inside strings."""
    return data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _readable(value: object) -> object:
    """JSON has no room for a path that is not text: its odd bytes are spelled out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value
