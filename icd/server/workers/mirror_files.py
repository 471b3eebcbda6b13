"""The envelope files of one database: whether there may be any, what was mirrored, keeping it so.

Invariants
    - the database is the only source of truth: a file of ours never lives longer than its row;
    - a file is removed only if its `origin` says that we wrote it for this database;
    - a file of another program or database, also of ours, is replaced only by a row that is
      not older than it: the last writer wins, by the file's time, and what comes from the future
      counts as written now;
    - of several rows that come to the same file, the one written last is there;
    - of one key there are at most `FILES` rows with files, those written last;
    - a reader finds the old content or the new one, never a part: temporary file and rename;
    - files are made with mode 0600, directories with 0700;
    - no symbolic link below the root is followed, neither of a directory nor of a file; a link in
      the place of a file is replaced by the file;
    - nothing but a regular file is ever read, and never more of it than `READ_BYTES`.

Synchronous: the mirror uses it in a thread of its own, one call at a time.
"""

import enum
import hashlib
import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec import Struct, field

from icd import trust
from icd.features import interband
from icd.features.interband import Channel
from icd.features.state.store import Row
from icd.server.logs import log

Name = tuple[str, str]  # key and scope

# Of one key.  Readers list whole channels, for as many sessions or agents as a person has; a script
# that stores ten thousand rows under the name of a channel must not fill a home directory.
FILES = 1000
# A file from a future further away than this says nothing about who wrote last.
FUTURE_SECONDS = 60
# The largest payload with its envelope; what is larger is not ours.
READ_BYTES = 1024 * 1024 + 64 * 1024
TEMPORARY = ".intercore-"
TEMPORARY_END = ".tmp"  # a row's own file ends in .json
# A temporary file that is older was left behind by a crash.
TEMPORARY_SECONDS = 60.0

# Where it is noted, by the digest of its path, that the user was told that it is not trusted.
TOLD = ".local/share/intercore/told"
UNTRUSTED = "not mirrored to files: this database is not trusted; to accept it, run 'icctl trust'"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_numbers = itertools.count()


# --- whether --------------------------------------------------------------------------------------


class Root(NamedTuple):
    """A directory for envelopes; `is_named`: by the user, so it is made if it is not there."""

    path: str
    is_named: bool


def root() -> Root | None:
    """Where this process's user keeps interband files; it must be an absolute path."""
    given = os.environ.get("INTERBAND_ROOT")
    found = given or os.path.join(os.environ.get("HOME", ""), ".interband")
    if os.path.isabs(found):
        return Root(found, is_named=bool(given))
    log.warning("mirror disabled: neither INTERBAND_ROOT nor HOME is an absolute path")
    return None


class Refusal(enum.Enum):
    UNWANTED = "there is no directory for mirrored files"
    UNTRUSTED = "the database is not trusted"
    GONE = "the database is not there"


class Permit(Struct, frozen=True):
    """Whether the rows of a database may become files: the user wants it, and trusts the database.

    Both lie outside the project, which may be a stranger's: a directory that the user named or
    made, and a record in the home directory (see `icd.trust`).  A root that `must_exist` is the
    default one, so it is used only if it is there.  Files are looked at, so it runs in a thread.
    """

    root: str
    must_exist: bool
    home: str | None
    path: str

    def refusal(self) -> Refusal | None:
        if self.must_exist and not os.path.isdir(self.root):
            return Refusal.UNWANTED
        if not os.path.lexists(self.path):
            return Refusal.GONE
        return None if trust.allows(self.home, self.path) else Refusal.UNTRUSTED

    def was_told(self) -> bool:
        """Whether the user has heard, ever since, that the database is not trusted."""
        return self.home is None or os.path.lexists(self._mark(self.home))

    def note_told(self) -> None:
        """Where that cannot be noted, the next daemon tells it again."""
        if self.home is not None:
            mark = self._mark(self.home)
            with suppress(OSError):
                os.makedirs(os.path.dirname(mark), mode=0o700, exist_ok=True)
                os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _mark(self, home: str) -> str:
        return os.path.join(home, TOLD, hashlib.sha256(os.fsencode(self.path)).hexdigest())


# --- files ----------------------------------------------------------------------------------------


class Copy(Struct):
    """A row that has a file, or shares one; `until_ms`: when the file must be gone."""

    version: int
    until_ms: int | None
    expires: bool


class Outcome(Struct):
    written: int = 0
    removed: int = 0
    displaced: int = 0  # of these, by newer rows
    kept: int = 0  # files of others that were newer than our row
    failed: dict[Name, str] = field(default_factory=dict)  # rows to try again, and why
    errors: list[str] = field(default_factory=list)  # of what is not tried again
    again: set[Name] = field(default_factory=set)  # rows that come to a file that became free


class Files:
    def __init__(self, root: str, mapping: dict[str, Channel], *, origin: str) -> None:
        self._root = root
        self._mapping = mapping
        self._origin = origin
        self._rows: dict[str, dict[Name, Copy]] = {}  # that come to each file
        self.left_out: Counter[str] = Counter()  # rows of each key that are beyond the limit

    @property
    def copies(self) -> dict[Name, Copy]:
        return {name: copy for rows in self._rows.values() for name, copy in rows.items()}

    def disown(self) -> None:
        """Forget what was written; the files stay as they are."""
        self._rows.clear()
        self.left_out.clear()

    def update(self, rows: dict[Name, Row | None], *, now_ms: int) -> Outcome:
        """Make the files of these rows what the rows are; None: there is no such row."""
        outcome = Outcome()
        displaced = self._displaced(rows)
        outcome.displaced = len(self.copies.keys() & set(displaced))
        rows = rows | dict.fromkeys(displaced)
        for name in sorted(rows, key=lambda name: row.version if (row := rows[name]) else 0):
            try:
                self._update(name, rows[name], outcome, now_ms)
            except OSError as exc:
                outcome.failed[name] = f"{name[0]} {name[1]}: {exc.strerror or exc}"
        return outcome

    def forget_all(self) -> Outcome:
        """The database is gone, and every row with it."""
        return self.update(dict.fromkeys(self.copies), now_ms=0)

    def sweep(self, *, now_ms: int) -> Outcome:
        """Remove files that an earlier daemon left, for this database and no other."""
        outcome = Outcome()
        for channel in self._mapping.values():
            try:
                with opened(self._root, channel, create=False) as directory:
                    for file in os.listdir(directory):
                        if file.startswith(TEMPORARY) and file.endswith(TEMPORARY_END):
                            _remove_leftover(directory, file, now=now_ms / 1000)
                        elif file.endswith(".json") and f"{channel.path}/{file}" not in self._rows:
                            self._remove_ours(directory, file, outcome)
            except (FileNotFoundError, NotADirectoryError):
                continue  # nothing of ours can be there
            except OSError as exc:
                outcome.errors.append(f"{channel.path}: {exc.strerror or exc}")
        return outcome

    def _displaced(self, rows: dict[Name, Row | None]) -> list[Name]:
        """The oldest rows that have files, or would get them, where there would be too many."""
        versions = {name: copy.version for name, copy in self.copies.items()}
        versions |= {name: row.version for name, row in rows.items() if row}
        found: list[Name] = []
        for key in {name[0] for name, row in rows.items() if row}:
            names = sorted((n for n in versions if n[0] == key), key=versions.__getitem__)
            if oldest := names[:-FILES]:
                self.left_out[key] += len(oldest)
                found += oldest
        return found

    def _update(self, name: Name, row: Row | None, outcome: Outcome, now_ms: int) -> None:
        channel = self._mapping[name[0]]
        file = interband.file_name(name[1])
        if file is None:
            return
        place = f"{channel.path}/{file}"
        rows = self._rows.get(place, {})
        until_ms = None if row is None else interband.until_ms(row, channel)
        if row is None or (until_ms is not None and until_ms <= now_ms):
            others = rows.keys() - {name}
            if not others:
                self._remove(channel, file, outcome)
            outcome.again |= others  # as if they had none yet
            self._rows.pop(place, None)
        else:
            if all(copy.version <= row.version for copy in rows.values()):
                self._write(row, channel, file, outcome, now_ms)
            rows[name] = Copy(row.version, until_ms, row.expires_ms is not None)
            self._rows[place] = rows

    def _write(self, row: Row, channel: Channel, file: str, outcome: Outcome, now_ms: int) -> None:
        content = interband.envelope(row, channel, origin=self._origin)
        # A row from the future is no younger than one that is written now.
        written_at = min(row.updated_at, now_ms // 1000)
        with opened(self._root, channel, create=True) as directory:
            there, modified = read(directory, file)
            if there == content:
                return
            is_newer = written_at < modified <= now_ms // 1000 + FUTURE_SECONDS
            if is_newer and there is not None and not interband.is_from(there, self._origin):
                outcome.kept += 1
                return
            write(directory, file, content, modified=written_at)
        outcome.written += 1

    def _remove(self, channel: Channel, file: str, outcome: Outcome) -> None:
        with suppress(FileNotFoundError), opened(self._root, channel, create=False) as directory:
            self._remove_ours(directory, file, outcome)

    def _remove_ours(self, directory: int, file: str, outcome: Outcome) -> None:
        there, _ = read(directory, file)
        if there is not None and interband.is_from(there, self._origin):
            remove(directory, file)
            outcome.removed += 1


# --- in one directory -----------------------------------------------------------------------------


def read(directory: int, name: str) -> tuple[bytes | None, int]:
    """Content and unix time; None for what is absent, and for what is not a file to be read."""
    try:
        fd = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None, 0
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        content = file.read(READ_BYTES) if stat.S_ISREG(facts.st_mode) else None
        return content, int(facts.st_mtime)


def write(directory: int, name: str, content: bytes, *, modified: int) -> None:
    temporary = f"{TEMPORARY}{os.getpid()}-{next(_numbers)}{TEMPORARY_END}"
    fd = os.open(temporary, _WRITE, 0o600, dir_fd=directory)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            # Readers take the age from here: a row that is mirrored late is not young again.
            os.utime(fd, (modified, modified))
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def remove(directory: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _remove_leftover(directory: int, name: str, *, now: float) -> None:
    """The temporary file of a daemon that did not live to rename it."""
    with suppress(OSError):
        facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if now - facts.st_mtime > TEMPORARY_SECONDS:
            remove(directory, name)


@contextmanager
def opened(root: str, channel: Channel, *, create: bool) -> Iterator[int]:
    """Open a channel below the root: names are looked up in this very directory from then on.

    Without `create`, a missing one is FileNotFoundError.
    """
    if create:
        os.makedirs(root, mode=0o700, exist_ok=True)
    above = os.open(root, _DIRECTORY)  # the root itself may be a link: the user said where it is
    try:
        for name in (channel.namespace, channel.name):
            below = _enter(above, name, create=create)
            os.close(above)
            above = below
        yield above
    finally:
        os.close(above)


def _enter(above: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, mode=0o700, dir_fd=above)
    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        raise PermissionError(f"the directory {name} belongs to another user")
    return fd
