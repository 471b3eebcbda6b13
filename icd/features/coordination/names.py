"""Which files a caller's pattern means, as it is stored: one spelling for one file.

A pattern is stored relative to the directory that has the database, so a project may be moved.
A relative one is seen from the top of the caller's checkout, wherever below it the caller stands:
a worktree that shares the database has files of its own, and they are stored as such.  What lies
outside of the project is stored as an absolute path.

A project and a checkout may be known by other names, such as a link to them or above them: a path
that leads through one is seen from the project all the same.  Below, no links are followed, unless
a caller wants it: a name is reserved, not what it leads to.

A named lock is no file: its name is the same in all worktrees.
"""

import os
import re
from collections.abc import Iterable

from msgspec import Struct

from icd.db import paths
from icd.errors import InvalidPattern
from icd.features.coordination import globs
from icd.features.coordination.globs import Glob
from icd.values.validation import shown

# The scope of everything that names no other: the project's files.
FILES = "."

# Control characters, and bytes that are no UTF-8.
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")  # a file may have a line break in its name


class Place(Struct, frozen=True):
    """Where patterns are seen from: `root` has the database, `base` is the caller's checkout.

    `known`: which of the directories that were looked at is one of the two.
    """

    root: str
    base: str
    known: dict[str, str] = {}

    @property
    def of_names(self) -> "Place":
        """Where named locks are seen from: from everywhere alike."""
        return self if self.base == self.root else Place(self.root, self.root, self.known)


def place(database: str, cwd: str | None) -> Place:
    directory = os.path.dirname(database)
    is_usual = os.path.basename(directory) == paths.DIRECTORY
    root = os.path.dirname(directory) if is_usual else directory
    # Most callers stand there, and are spared a look at the file system.
    base = root if cwd is None or cwd == root else paths.project_identity(cwd)
    return Place(_text(root), _text(base))


def _text(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def scope_of(given: str, here: Place) -> str:
    """The project's own directory is what other programs call the scope of its files."""
    if not given or given[0] != "/":
        return given or FILES
    directory = given.rstrip("/")
    return FILES if _proper(directory, here) in (here.root, here.base) else given


def pattern(text: str, here: Place) -> Glob:
    """A pattern as a caller writes it; a slash at its end means all that is below."""
    if not text:
        raise InvalidPattern("the pattern is empty", hint="is the variable that holds it unset?")
    if _UNFIT.search(text):
        hint = "write ? for such a character"
        raise InvalidPattern(f"{shown(text)} contains characters that are no text", hint=hint)
    if len(text) > globs.PATH_BYTES:
        raise InvalidPattern(f"the pattern is longer than {globs.PATH_BYTES} characters")
    return _placed(globs.parse(_seen(text, here)), here)


def path(name: str, here: Place) -> Glob:
    """A path in which no character is a wildcard."""
    if len(name) > globs.PATH_BYTES or "\0" in name or not name:
        raise InvalidPattern(f"{shown(name)} is not a path")
    return _placed(globs.parse(_seen(globs.escape(_text(name)), here)), here)


def followed(paths: Iterable[str], here: Place) -> list[str]:
    """Paths, and what they lead to: an edit of a link changes that."""
    found = []
    for path in paths:
        end = "/" if path.endswith("/") else ""
        found += [path, _text(os.path.realpath(os.path.join(here.base, path))) + end]
    return found


def _placed(found: Glob, here: Place) -> Glob:
    """Nothing outside that is also inside: the two are never compared."""
    if not {".", ".."}.isdisjoint(x for x in found.segments if isinstance(x, str)):
        raise InvalidPattern(f"{shown(found.text)} has an escaped . or ..")
    if found.text[:1] != "/":
        return found
    root = here.root.rstrip("/") + "/"
    if found.path is not None and f"{found.path}/".startswith(root):  # with needless escapes
        return globs.parse(globs.escape(found.path[len(root) :]) or "**")
    if found.path is None and _reaches(found, here):
        raise InvalidPattern(
            f"{shown(found.text)} covers files inside and outside of the project",
            hint="reserve what is inside and what is outside apart",
        )
    return found


def check_stored(text: str) -> None:
    """Refuse a pattern that is not as this module would have written it."""
    bare = text.removeprefix("/")
    if _UNSTORABLE.search(text) or not bare or "/".join(_resolved(bare)) != bare:
        raise InvalidPattern(f"{shown(text)} is not a normalised pattern")
    globs.parse(text)


def _seen(text: str, here: Place) -> str:
    """The normalised pattern: relative to the root, or absolute outside of it."""
    root = globs.escape(here.root)
    if here.root != root and text.startswith(here.root + "/"):  # a path that is not escaped
        text = root + text[len(here.root) :]
    if text[:1] != "/":
        text = f"{globs.escape(here.base)}/{text}"
    segments = _resolved(text)
    inside = _inside(segments, root)
    if inside is None and _inside(segments, globs.escape(here.base)) is None:
        segments = _by_proper_name(segments, here)
        inside = _inside(segments, root)
    return "/" + "/".join(segments) if inside is None else "/".join(inside) or "**"


def _inside(segments: list[str], root: str) -> list[str] | None:
    above = [name for name in root.split("/") if name]
    return segments[len(above) :] if segments[: len(above)] == above else None


def _by_proper_name(segments: list[str], here: Place) -> list[str]:
    """Without a link that leads to the project or the checkout, or above it."""
    path = ""
    for count, name in enumerate(segments, 1):
        literal = globs.literal(name)
        if literal is None:
            break
        path += f"/{literal}"
        proper = _proper(path, here)
        if proper != path:
            return [*filter(None, globs.escape(proper).split("/")), *segments[count:]]
    return segments


def _proper(directory: str, here: Place) -> str:
    """The root or the checkout, if the directory is one of them; else the directory itself."""
    found = here.known.get(directory)
    if found is None:
        found = next((own for own in (here.root, here.base) if _is_same(directory, own)), directory)
        here.known[directory] = found
    return found


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _resolved(text: str) -> list[str]:
    found: list[str] = []
    for name in text.split("/"):
        if name == "..":
            if found and set(found[-1]) & {"*", "?", "["}:
                raise InvalidPattern(f"{shown(text)} has .. behind a wildcard")
            found = found[:-1]
        elif name not in ("", ".") and not (name == "**" and found[-1:] == ["**"]):
            found.append(name)
    if text.endswith(("/", "/.")) and found[-1:] != ["**"]:
        found.append("**")
    return found


def _reaches(found: Glob, here: Place) -> bool:
    below = globs.parse(f"{globs.escape(here.root)}/**")
    return globs.overlap(found, below, globs.Budget())
