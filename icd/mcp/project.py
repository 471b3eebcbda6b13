"""Which project the tools are about.

The user's own words come first (--db, INTERCORE_DB, --project), then the first root of the client
that has a database, then the directory in which the client has started this process.  A root is a
place to look, and nothing in it is believed: the database is found and judged as for any call.
"""

import os
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes, urlsplit

from icd.db import paths
from icd.db.paths import Where
from icd.errors import IcError, NoDatabase

ROOTS = 64  # that are looked at: a client that lists more has made a mistake


class Project:
    """`known` is None until it is settled: a project may get its database later."""

    def __init__(self, where: Where, directory: str | None) -> None:
        self._default = where
        self.known: Where | None = None
        if directory is not None:
            self.known = Where(directory, where.db, where.env_db)
        elif where.explicit is not None:
            self.known = where
        self._is_fixed = self.known is not None

    @property
    def current(self) -> Where:
        return self.known or self._default

    def choose(self, roots: Iterable[str]) -> Where:
        """The first of the roots, given as URIs, that has a database; else the default."""
        for uri in [*roots][:ROOTS]:
            directory = directory_of(uri)
            if directory is not None and _has_database(directory):
                self.known = Where(directory)
                return self.known
        return self._default

    def forget(self) -> None:
        """The roots have changed."""
        if not self._is_fixed:
            self.known = None


def directory_of(uri: str) -> str | None:
    """The directory that a file URI names; None if it is another URI, or not a directory."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if "\0" in path or not os.path.isabs(path) or not os.path.isdir(path):
        return None
    return path


def _has_database(directory: str) -> bool:
    try:
        paths.resolve(Where(directory))
    except NoDatabase:
        return False
    except IcError:
        return True  # there is one, and calls will say what is wrong with it
    return True
