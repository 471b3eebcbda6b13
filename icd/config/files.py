"""A file of settings: what it says, on which line, and everything that is wrong with it.

A project may come from anywhere, so its file may be anything: it is read without waiting, up to a
limit, and nothing that it holds is an exception here.
"""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from typing import get_args, get_origin

import msgspec

from icd.config import shape
from icd.config.shape import Path, locate
from icd.files import CAREFULLY

FILE_BYTES = 65_536
LINK = "it is a symbolic link; put the file itself there"

Complaint = tuple[Path, str]  # about which setting, and a sentence
Rules = Callable[[dict[str, object]], Iterator[Complaint]]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Problem(msgspec.Struct, frozen=True):
    """Something that a person has to correct; `line` is None where the whole file is wrong."""

    file: str
    line: int | None
    sentence: str

    def __str__(self) -> str:
        return printable(f"{place(self.file, self.line)}: {self.sentence}")


class File(msgspec.Struct, frozen=True):
    path: str
    values: dict[str, object] = {}
    lines: dict[Path, int] = {}
    problems: list[Problem] = []
    ignored: list[Problem] = []  # what a project said and may not say


def read(path: str, kind: type[msgspec.Struct], rules: Rules, *, may_be_link: bool = True) -> File:
    """Judge a file by the types of its settings, and by rules about several of them."""
    at = None
    try:
        text = _text(path, may_be_link=may_be_link)
        at = 1
        shape.check(text)
        values = tomllib.loads(text)
    except shape.Excess as exc:
        return File(path, problems=[Problem(path, exc.line, str(exc))])
    except tomllib.TOMLDecodeError as exc:
        named = re.search(r"at line (\d+)", str(exc))
        at = int(named[1]) if named else text.count("\n") + 1
        return File(path, problems=[Problem(path, at, f"broken TOML: {exc}")])
    except UnicodeDecodeError as exc:
        at = exc.object[: exc.start].count(b"\n") + 1
        return File(path, problems=[Problem(path, at, "it is not UTF-8")])
    except (OSError, ValueError, RecursionError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        return File(path, problems=[Problem(path, at, why)])
    lines = locate(text)
    complaints = [*_unfit(values, kind, ()), *rules(values)]
    problems = [Problem(path, line(lines, about), sentence) for about, sentence in complaints]
    return File(path, values, lines, sorted(problems, key=lambda problem: problem.line or 0))


def printable(text: str) -> str:
    """What a file says may be a stranger's words to a terminal: they are spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def dotted(path: Path) -> str:
    """As one would write it in TOML."""
    parts = (part if _BARE.fullmatch(part) else msgspec.json.encode(part).decode() for part in path)
    return ".".join(parts)


def _text(path: str, *, may_be_link: bool) -> str:
    if not may_be_link and os.path.islink(path):  # the errno of O_NOFOLLOW tells that to few
        raise OSError(LINK)
    flags = CAREFULLY & ~os.O_NOFOLLOW if may_be_link else CAREFULLY
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError("it is not a regular file")
        data = stream.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise ValueError(f"it is longer than {FILE_BYTES} bytes")
    # Some editors begin a file with a mark of its encoding, and some end lines with two characters.
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def _unfit(values: dict[str, object], kind: type[msgspec.Struct], at: Path) -> Iterator[Complaint]:
    """Every value that the struct would refuse, where `msgspec.convert` names the first only."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        path = (*at, name)
        if name in types:
            yield from _unfit_for(value, types[name], path)
        else:
            yield path, f"{dotted(path)} is not a setting"


def _unfit_for(value: object, kind: object, at: Path) -> Iterator[Complaint]:
    if isinstance(value, dict):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _unfit(value, kind, at)
            return
        if get_origin(kind) is dict:
            for name, item in value.items():
                yield from _unfit_for(item, get_args(kind)[1], (*at, name))
            return
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        yield at, f"{dotted(at)}: {str(exc).partition(' - at ')[0]}"


def line(lines: dict[Path, int], at: Path) -> int:
    """The line of a setting, or of the table that it stands in."""
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)
