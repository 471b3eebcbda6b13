"""Files of settings: what they say, on which line, and everything that is wrong with them.

A project may come from anywhere, so its file may be anything: it is read without waiting, up to a
limit, and nothing that it holds is an exception here.

It says what holds for its own database.  It names no place, starts nothing, and decides nothing for
the daemon of all projects.  About the mirror, whose files lie outside the project, it may only say
less: that nothing, or not this key, is mirrored, and for how long its own files stay.

What another version of intercore honoured is ignored and told; what never held is a mistake.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import get_args, get_origin

import msgspec
from msgspec import structs

from icd import files
from icd.config import CHANNELS, OF_THE_DAEMON, USER_FILE, Pattern, Settings, shape
from icd.config.shape import Path, locate
from icd.printable import escaped

FILE_BYTES = 65_536
LINK = "it is a symbolic link; use a regular file"

Complaint = tuple[Path, str]  # about which setting, and a sentence
Rules = Callable[[dict[str, object]], Iterator[Complaint]]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Problem(msgspec.Struct, frozen=True):
    """Something that a person has to correct; `line` is None where the whole file is wrong."""

    file: str
    line: int | None
    sentence: str

    def __str__(self) -> str:
        return escaped(f"{place(self.file, self.line)}: {self.sentence}")


class File(msgspec.Struct, frozen=True):
    path: str
    values: dict[str, object] = {}
    lines: dict[Path, int] = {}
    problems: list[Problem] = []
    ignored: list[Problem] = []  # what a project said and may not say


def read_file(
    path: str, kind: type[msgspec.Struct], rules: Rules, *, may_be_link: bool = True
) -> File:
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


def place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def dotted(path: Path) -> str:
    """As one would write it in TOML."""
    parts = (part if _BARE.fullmatch(part) else msgspec.json.encode(part).decode() for part in path)
    return ".".join(parts)


def _text(path: str, *, may_be_link: bool) -> str:
    if not may_be_link and os.path.islink(path):  # the errno of O_NOFOLLOW tells that to few
        raise OSError(LINK)
    data = files.read(path, FILE_BYTES + 1, may_be_link=may_be_link)
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
        return
    for pattern in _patterns(kind):
        if isinstance(value, str) and not re.search(pattern, value):
            yield at, f"{dotted(at)}: Expected `str` matching regex {pattern!r}"


def _patterns(kind: object) -> list[str]:
    marks = [*getattr(kind, "__metadata__", ())]
    for part in get_args(kind):
        marks += getattr(part, "__metadata__", ())
    return [mark.regex for mark in marks if isinstance(mark, Pattern)]


def line(lines: dict[Path, int], at: Path) -> int:
    """The line of a setting, or of the table that it stands in."""
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)


# --- what a project may say -----------------------------------------------------------------------

# A database that is open keeps descriptors and the daemon, and one that is never idle is not looked
# after: so long, and no longer, a stranger's project may ask for that.
MOST_SECONDS = {"idle_seconds": 3600.0, "close_idle_seconds": 86_400.0}

OTHER_KEYS = f"because mirrored keys are set in ~/{USER_FILE}"
ONLY_OFF = f"because a project can only disable it; enable it in ~/{USER_FILE}"
OF_THE_USER = {
    "path": f"because the destination of files is set in ~/{USER_FILE}",
    "type": f"because the content of files is set in ~/{USER_FILE}",
    "session": f"because the content of files is set in ~/{USER_FILE}",
}


def read(user: str | None, project: str | None) -> Iterator[File]:
    """Both files, if there are such paths; of the project's, what may hold."""
    keys = {*CHANNELS}
    if user is not None:
        found = read_file(user, Settings, _rules)
        keys |= _channels(found.values).keys()
        yield found
    if project is not None:
        found = read_file(project, Settings, _rules_of_a_project, may_be_link=False)
        yield found if found.problems else _restricted(found, keys)


def _rules(values: dict[str, object]) -> Iterator[Complaint]:
    """What the types of single settings cannot say."""
    for key, channel in _channels(values).items():
        if key not in CHANNELS and isinstance(channel, dict) and "path" not in channel:
            yield ("mirror", "channels", key), f"the channel `{key}` needs a path"


def _rules_of_a_project(values: dict[str, object]) -> Iterator[Complaint]:
    """What no project has ever been allowed to set."""
    for name in OF_THE_DAEMON & values.keys():
        yield (name,), f"{name} can only be set for all projects, in ~/{USER_FILE}"
    if "root" in _table(values, "mirror"):
        sentence = f"mirror.root can only be set for all projects, in ~/{USER_FILE}"
        yield ("mirror", "root"), sentence
    yield from _rules(values)


def _restricted(file: File, keys: set[str]) -> File:
    """What of a valid file holds; `keys` can be mirrored."""
    kept, ignored = dict(file.values), list[Complaint]()
    for name, most in MOST_SECONDS.items():
        given = kept.get(name)
        if isinstance(given, int | float) and given > most:
            kept[name] = most
            why = f"because a project may set at most {most:g}; using {most:g}"
            ignored.append(((name,), why))
    if "mirror" in kept:
        kept["mirror"] = _mirror(_table(kept, "mirror"), keys, ignored)
    told = [
        Problem(file.path, line(file.lines, at), f"ignored: {dotted(at)}, {why}")
        for at, why in ignored
    ]
    return structs.replace(file, values=kept, ignored=told)


def _mirror(
    given: dict[str, object], keys: set[str], ignored: list[Complaint]
) -> dict[str, object]:
    kept = _only_less(given, ("mirror",), ignored)
    channels: dict[str, object] = {}
    for key, channel in _table(given, "channels").items():
        at = ("mirror", "channels", key)
        if key not in keys:
            ignored.append((at, OTHER_KEYS))
        elif isinstance(channel, dict):
            channels[key] = _only_less(channel, at, ignored)
    return {**kept, "channels": channels}


def _only_less(given: dict[str, object], at: Path, ignored: list[Complaint]) -> dict[str, object]:
    kept: dict[str, object] = {}
    for name, value in given.items():
        if name in OF_THE_USER:
            ignored.append(((*at, name), OF_THE_USER[name]))
        elif name == "enabled" and value is not False:
            ignored.append(((*at, name), ONLY_OFF))
        elif name != "channels":
            kept[name] = value
    return kept


def _channels(values: dict[str, object]) -> dict[str, object]:
    return _table(_table(values, "mirror"), "channels")


def _table(values: dict[str, object], name: str) -> dict[str, object]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}
