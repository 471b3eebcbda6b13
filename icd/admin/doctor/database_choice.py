"""Which database a caller means, why, and what lies in the way of another one."""

import glob
import os
from collections.abc import Iterator

from icd.admin.doctor.context import Finding, error, from_error, note, ok, warning
from icd.db import paths
from icd.db.paths import Where
from icd.errors import IcError, NoDatabase

_BACK = (
    "run 'icctl restore FILE' with a backup (they lie beside the database and are named after it), "
    "or 'icctl init' to start anew"
)

SHOWN = 3  # names on one line


def choose(where: Where) -> tuple[str | None, list[Finding]]:
    """The path, if it can be used, and what there is to say about it."""
    try:
        path = paths.canonical(paths.resolve(where))
    except NoDatabase as exc:
        lost = None if where.explicit is not None else _lost(where.cwd)
        return None, [lost or _missing(where, exc)]
    except IcError as exc:
        return None, [from_error("database", exc)]
    return path, [ok("database", f"{path}, {_reason(where, path)}"), *_others(where, path)]


def _missing(where: Where, exc: IcError) -> Finding:
    if where.explicit is None:
        return warning("database", exc.message, exc.hint)
    variable = "--db" if where.db is not None else "INTERCORE_DB"
    told = f"{variable} names a database that is not there: {exc.message}"
    return error("database", told, f"correct {variable}, or run 'icctl init'")


def _lost(cwd: str) -> Finding | None:
    """What is left of a database that used to be here."""
    for directory in map(_directory, paths.upward(cwd)):
        path = os.path.join(directory, paths.FILE)
        try:
            size = os.lstat(path).st_size
        except FileNotFoundError:
            left = sorted(map(os.path.basename, glob.glob(f"{glob.escape(path)}*")))
            if left:
                told = f"{path} is gone; what lay beside it is left: {', '.join(left[:SHOWN])}"
                return error("database", told, _BACK)
        except NotADirectoryError:
            continue
        except OSError as exc:
            hint = "check its owner and mode with 'ls -ld', and correct them"
            return error("permissions", f"cannot look into {directory}: {exc.strerror}", hint)
        else:
            told = f"{path} holds nothing ({size} bytes): it was emptied, or never initialized"
            return error("database", told, _BACK)
    return None


def _reason(where: Where, path: str) -> str:
    if where.explicit is not None:
        return "named by --db" if where.db is not None else "named by INTERCORE_DB"
    project, cwd = os.path.dirname(os.path.dirname(path)), os.path.realpath(where.cwd)
    if project == cwd:
        return "in the current directory"
    if cwd.startswith(os.path.join(project, "")):
        return "the nearest one above the current directory"
    return "that of the main checkout, since this is a git worktree without one"


def _others(where: Where, path: str) -> Iterator[Finding]:
    """Databases that a person may have meant instead."""
    if where.explicit is not None:
        near = paths.discover(where.cwd) if where.cwd else None
        if near is not None and paths.canonical(near) != path:
            hint = "unset INTERCORE_DB and leave out --db to use it"
            yield note("shadow", f"{near} lies nearer, and is not used here", hint)
        return
    yield from _passed_over(where.cwd, path)
    project = os.path.dirname(os.path.dirname(path))
    further = paths.discover(os.path.dirname(project))
    if further is None or paths.canonical(further) == path:
        return
    root = os.path.realpath(paths.project_root(where.cwd))
    same = os.path.realpath(further).startswith(os.path.join(root, ""))
    told = f"it hides {further} from everything below {project}"
    hint = (
        "if only one of the two is meant, move the other away; 'icctl export' saves what it holds"
    )
    yield (warning if same else note)("shadow", told, hint)


def _passed_over(cwd: str, path: str) -> Iterator[Finding]:
    for directory in map(_directory, paths.upward(cwd)):
        empty = os.path.join(directory, paths.FILE)
        if os.path.realpath(empty) == path:
            return
        if os.path.lexists(empty):
            yield note("shadow", f"{empty} has no tables and is passed over", f"remove {empty}")


def _directory(project: str) -> str:
    return os.path.join(project, paths.DIRECTORY)
