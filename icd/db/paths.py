"""Which database a caller means.

Order: `--db`, else `$INTERCORE_DB`, else the nearest `.clavain/intercore.db` above the caller's
directory, else the one of the main checkout when the caller sits in a git worktree.

Promises
    - nothing here creates or opens a file: identity is `stat` only (see ADR 4);
    - every answer is judged in the *caller's* directory, never in this process's;
    - an explicit path names a `.db` file inside the caller's project or inside a `.clavain`
      directory, and never passes through a symbolic link to get there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from icd import files
from icd.errors import BadPath, IcError, NoDatabase, PermissionRefused, SymlinkRefused

DIRECTORY = ".clavain"
FILE = "intercore.db"
POINTER_BYTES = 4096  # of a file in which git names a directory: the longest path of Linux
EMPTY_BYTES = 4096  # one page, which says "WAL" and nothing else
# So that a daemon opens a file once.
canonical = files.canonical


class Where(Struct, frozen=True):
    """The caller's words about which database it means; `cwd` is empty if it did not say."""

    cwd: str
    db: str | None = None
    env_db: str | None = None

    @property
    def explicit(self) -> str | None:
        return self.db if self.db is not None else self.env_db or None


def resolve(where: Where) -> str:
    """The path of an existing database, or an error that says how to get one."""
    _require_absolute(where.cwd)
    if where.explicit is not None:
        path = explicit(where)
        if not _is_file(path):
            raise NoDatabase(f"no database at {path}")
        return path
    found = discover(where.cwd) if where.cwd else None
    if found is None:
        raise _none(where.cwd)
    if _is_strangers(refuse_links(found)):
        raise _strangers(found, where.cwd)
    return found


def _none(cwd: str) -> IcError:
    """The error for a missing database; a file that lost its content is told apart."""
    for directory in upward(cwd) if cwd else ():
        path = os.path.join(directory, DIRECTORY, FILE)
        if _is_file(path):
            hint = "restore a backup with 'icctl restore FILE', or start over with 'icctl init'"
            if os.path.getsize(path) and not _begins_like_one(path):
                hint = f"move it away, then {hint}"
                return NoDatabase(f"{path} is not a database", hint=hint)
            return NoDatabase(f"{path} is empty", hint=hint)
    return NoDatabase(f"no {DIRECTORY}/{FILE} in {cwd} or above it")


def _begins_like_one(path: str) -> bool:
    """As SQLite's files do; only of a file that is too small to be a database in use."""
    try:
        return files.read(path, 16, may_be_link=True) == b"SQLite format 3\0"
    except OSError:
        return True  # it cannot be told


def _strangers(path: str, cwd: str) -> IcError:
    here = path == os.path.join(cwd, DIRECTORY, FILE)
    what = "chown it to your user" if here else "run 'icctl init' here"
    hint = f"{what}, or pass it with --db if you trust it"
    return PermissionRefused(f"{path} belongs to another user", hint=hint)


def target(where: Where) -> str:
    """The path that `init` creates or completes."""
    _require_absolute(where.cwd)
    if where.explicit is not None:
        return _refuse_strange(explicit(where, create=True))
    if not where.cwd:
        raise BadPath("no directory given for the new database")
    here = os.path.join(where.cwd, DIRECTORY, FILE)
    try:
        found = discover(where.cwd) or here
    except PermissionRefused:
        found = here
    if os.path.exists(found) and _is_strangers(found):
        if found == here:
            raise _strangers(found, where.cwd)
        found = here
    return _refuse_strange(refuse_links(found))


def _refuse_strange(path: str) -> str:
    """A directory or a pipe is no place for a database, and no reason to blame the disk."""
    if os.path.lexists(path) and not _is_file(path):
        raise BadPath(f"{path} is not a regular file", hint="move it away, or choose another name")
    return path


def _require_absolute(cwd: str) -> None:
    """A relative directory would be judged in this process's own."""
    if "\0" in cwd or (cwd and not os.path.isabs(cwd)):
        raise BadPath(f"the caller's directory must be an absolute path, not {cwd!r}")


def identity(where: Where) -> tuple[int, int] | None:
    """(device, inode) of what the caller's words name at first sight, without judging them."""
    given = where.explicit
    path = discover(where.cwd) if given is None else os.path.join(where.cwd, given)
    try:
        if not path or os.path.islink(os.path.dirname(path)):
            return None
        found = os.stat(path, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def discover(cwd: str) -> str | None:
    for directory in upward(cwd):
        path = os.path.join(directory, DIRECTORY, FILE)
        if _is_database_file(path):
            return path
    root = _main_checkout(cwd)
    if root is not None:
        path = os.path.join(root, DIRECTORY, FILE)
        if _is_database_file(path):
            return path
    # A shell says `$PWD`, which may be a link into the project: above the link, there is none.
    real = os.path.realpath(cwd)
    return None if real == cwd else discover(real)


def explicit(where: Where, *, create: bool = False) -> str:
    """Judge a path that the caller wrote down.

    A relative one that is not here may be meant from the project's root: `$INTERCORE_DB` is set
    once and used everywhere below.  What is to be created is created here.
    """
    given = where.explicit or ""
    cleaned = os.path.normpath(given)
    if "\0" in given:
        raise BadPath("db path must not contain NUL")
    if not cleaned.endswith(".db"):
        raise BadPath(f"db path must have .db extension: {given}")
    name = os.path.basename(cleaned)
    if any(character < " " for character in name):
        raise BadPath(f"db path must not end in a name with control characters: {given!r}")
    if ".." in cleaned.split(os.sep):
        raise BadPath(f"db path must not contain '..': {given}")
    if not where.cwd and not os.path.isabs(cleaned):
        raise BadPath(f"db path must be absolute when no directory is given: {given}")
    root = project_root(where.cwd) if where.cwd else ""
    path = os.path.join(where.cwd, cleaned)
    elsewhere = os.path.join(root, cleaned)
    if not (create or os.path.isabs(cleaned) or _is_file(path)) and _is_file(elsewhere):
        path = elsewhere
    refuse_links(path)
    parent = os.path.realpath(os.path.dirname(path))
    ours = root and _contains(os.path.realpath(root), parent)
    if not ours and DIRECTORY not in parent.split(os.sep):
        place = f"the project {root} or " if root else ""
        raise BadPath(f"db path must be inside {place}a {DIRECTORY} directory: {path}")
    return path


def refuse_links(path: str) -> str:
    """A link planted at `.clavain` or at the file could point a write anywhere."""
    parent = os.path.dirname(path)
    above = [d for d in upward(parent) if os.path.basename(d) == DIRECTORY]
    for suspect in (path, parent, *above):
        if os.path.islink(suspect):
            raise SymlinkRefused(f"{suspect} is a symlink (refusing to use it)")
    return path


def _is_strangers(path: str) -> bool:
    """Another user may have planted a database in a directory above ours, such as /tmp.

    Root may use those of all users, and SQLite gives what it creates to the owner of the file.
    """
    euid = os.geteuid()
    return euid != 0 and os.stat(path).st_uid != euid


def project_root(cwd: str) -> str:
    """The git top level, else the nearest directory with a `.clavain`, else `cwd` itself."""
    marked: str | None = None
    for directory in upward(cwd):
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        if marked is None and os.path.isdir(os.path.join(directory, DIRECTORY)):
            marked = directory
    return marked or cwd


def project_identity(directory: str) -> str:
    """Which project a directory belongs to: one spelling for it and for all below it."""
    return project_root(os.path.realpath(directory))


def upward(cwd: str) -> Iterator[str]:
    while True:
        yield cwd
        parent = os.path.dirname(cwd)
        if parent == cwd:
            return
        cwd = parent


def _main_checkout(cwd: str) -> str | None:
    """Follow a worktree's `.git` file to the main checkout's root."""
    for directory in upward(cwd):
        pointer = os.path.join(directory, ".git")
        if os.path.isdir(pointer):
            return None
        if _is_file(pointer):
            return _root_behind(directory, pointer)
    return None


def _root_behind(directory: str, pointer: str) -> str | None:
    """The main checkout, if it knows the worktree, too: a clone could name any other project."""
    try:
        gitdir = os.path.join(directory, _line(pointer).removeprefix("gitdir:").strip())
        common = os.path.join(gitdir, _line(os.path.join(gitdir, "commondir")).strip())
        back = os.path.join(gitdir, _line(os.path.join(gitdir, "gitdir")).strip())
    except (OSError, ValueError):
        return None
    inside = os.path.join(os.path.realpath(common), "worktrees")
    if os.path.dirname(os.path.realpath(gitdir)) != inside:
        return None
    if os.path.realpath(back) != os.path.realpath(pointer):
        return None
    return os.path.dirname(os.path.normpath(common))


def _line(path: str) -> str:
    """What a file of git holds; a pipe in its place must not keep us waiting for its other end."""
    return files.read(path, POINTER_BYTES, may_be_link=True).decode()


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) or os.path.islink(path)
    except (OSError, ValueError):
        return False


def _is_database_file(path: str) -> bool:
    """The original left empty databases behind by accident: they must not shadow a real one.

    One that we may not look at is refused, and so is a link that leads nowhere or to itself:
    another one, further up, would be the wrong one.
    """
    try:
        size = os.stat(path).st_size
        return size > EMPTY_BYTES or (size > 0 and os.path.exists(path + "-wal"))
    except PermissionError as exc:
        directory = os.path.dirname(path)
        if os.path.lexists(directory):  # else it is a directory above that we may not look into
            hint = f"check its owner and its mode: ls -ld {directory}"
            raise PermissionRefused(f"{directory} cannot be entered", hint=hint) from exc
        return False
    except OSError:
        return os.path.islink(path) or os.path.islink(os.path.dirname(path))
    except ValueError:
        return False


def _contains(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
