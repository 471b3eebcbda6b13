"""The envelope files of one database: what was mirrored, and keeping it so.

Invariants
    - the database is the only source of truth: a file of ours never lives longer than its row;
    - a file is removed only if its `origin` says that we wrote it for this database;
    - a file of anybody else, another database of ours included, is replaced only by a row that is
      not older than it: the last writer wins, by the file's time, and what comes from the future
      counts as written now;
    - of several rows that come to the same file, the one written last is there;
    - of one key there are at most `FILES` rows with files, those written last.

Synchronous: the mirror uses it in a thread of its own, one call at a time.
"""

from collections import Counter
from contextlib import AbstractContextManager

from msgspec import Struct, field

from icd.features.mirror import interband
from icd.features.mirror.interband import Channel
from icd.features.state.store import Row
from icd.server.logs import log
from icd.server.workers.mirror import channel as channels
from icd.server.workers.mirror.channel import Directory, Found

Name = tuple[str, str]  # key and scope
File = tuple[str, str, str]  # namespace, channel and file

# Of one key.  Readers list whole channels, for as many sessions or agents as a person has; a script
# that stores ten thousand rows under the name of a channel must not fill a home directory.
FILES = 1000
# A file from a future further away than this says nothing about who wrote last.
FUTURE_SECONDS = 60


class Outcome(Struct):
    written: int = 0
    removed: int = 0
    kept: int = 0  # files of others that were newer than our row
    failed: dict[Name, str] = field(default_factory=dict)  # rows to try again, and why
    errors: list[str] = field(default_factory=list)  # of what is not tried again
    again: set[Name] = field(default_factory=set)  # rows that come to a file that became free


class Tally(Struct):
    """What all mirrors of the daemon did since its start."""

    written: int = 0
    removed: int = 0
    kept: int = 0
    failed: int = 0
    last_error: str = ""

    def add(self, outcome: Outcome) -> None:
        self.written += outcome.written
        self.removed += outcome.removed
        self.kept += outcome.kept
        for told in [*outcome.failed.values(), *outcome.errors]:
            self.fail(told)

    def fail(self, told: str) -> None:
        if told != self.last_error:  # a full disk is worth one line, not ten a second
            log.warning("a mirror failed: %s", told)
        self.failed += 1
        self.last_error = told


class _Copy(Struct):
    version: int
    file: File
    until_ms: int | None
    expires: bool


class Copies:
    def __init__(self, root: str, mapping: dict[str, Channel], *, origin: str) -> None:
        self._root = root
        self._mapping = mapping
        self._origin = origin
        self._copies: dict[Name, _Copy] = {}
        self._claims: dict[File, set[Name]] = {}
        self.left_out: Counter[str] = Counter()  # rows of each key that are beyond the limit

    def versions(self) -> dict[Name, int]:
        return {name: copy.version for name, copy in self._copies.items()}

    def ends(self) -> dict[Name, int]:
        """Until when a file has its time, for those that are not meant to stay."""
        return {n: c.until_ms for n, c in self._copies.items() if c.until_ms is not None}

    def expire(self) -> bool:
        """Whether a row that has a file will expire: the file must go at that moment."""
        return any(copy.expires for copy in self._copies.values())

    def update(self, rows: dict[Name, Row | None], *, now_ms: int) -> Outcome:
        """Make the files of these rows what the rows are; None: there is no such row."""
        outcome = Outcome()
        rows = {**rows, **self._displaced(rows)}
        by_version = sorted(rows, key=lambda name: row.version if (row := rows[name]) else 0)
        for name in by_version:
            try:
                self._update_one(name, rows[name], outcome, now_ms)
            except OSError as exc:
                outcome.failed[name] = f"{name[0]} {name[1]}: {exc.strerror or exc}"
        return outcome

    @property
    def is_thin(self) -> bool:
        """Whether there is room by now for many rows that were left out."""
        counts = Counter(key for key, _ in self._copies)
        return any(count and counts[key] < FILES // 2 for key, count in self.left_out.items())

    def _displaced(self, rows: dict[Name, Row | None]) -> dict[Name, None]:
        """The oldest rows that have files, or would get them, where there would be too many."""
        found: dict[Name, None] = {}
        for key in {name[0] for name, row in rows.items() if row is not None}:
            versions = {name: c.version for name, c in self._copies.items() if name[0] == key}
            versions |= {name: row.version for name, row in rows.items() if row and name[0] == key}
            excess = len(versions) - FILES
            if excess > 0:
                self.left_out[key] += excess
                found |= dict.fromkeys(sorted(versions, key=versions.__getitem__)[:excess])
        return found

    def disown(self) -> None:
        """Forget what was written; the files stay as they are."""
        self._copies.clear()
        self._claims.clear()
        self.left_out.clear()

    def forget_all(self) -> Outcome:
        """The database is gone, and every row with it."""
        return self.update(dict.fromkeys(self._copies), now_ms=0)

    def sweep(self, *, now_ms: int) -> Outcome:
        """Remove what we left behind in an earlier life, for this database and no other."""
        outcome = Outcome()
        for channel in self._mapping.values():
            try:
                with self._open(channel, create=False) as directory:
                    self._sweep_one(directory, channel, outcome, now_ms)
            except (FileNotFoundError, NotADirectoryError):
                continue  # nothing of ours can be there
            except OSError as exc:
                told = f"{channel.namespace}/{channel.name}: {exc.strerror or exc}"
                outcome.errors.append(told)
        return outcome

    def _open(self, channel: Channel, *, create: bool) -> AbstractContextManager[Directory]:
        return channels.opened(self._root, channel.namespace, channel.name, create=create)

    def _update_one(self, name: Name, row: Row | None, outcome: Outcome, now_ms: int) -> None:
        channel = self._mapping[name[0]]
        file = interband.file_name(name[1])
        if file is None:
            return
        until_ms = None if row is None else interband.until_ms(row, channel)
        if row is None or (until_ms is not None and until_ms <= now_ms):
            self._remove(name, channel, file, outcome)
            return
        target = (channel.namespace, channel.name, file)
        copy = _Copy(row.version, target, until_ms, row.expires_ms is not None)
        claims = self._claims.setdefault(copy.file, set())
        if all(self._copies[other].version <= row.version for other in claims):
            self._write(row, channel, file, outcome, now_ms)
        claims.add(name)
        self._copies[name] = copy

    def _write(self, row: Row, channel: Channel, file: str, outcome: Outcome, now_ms: int) -> None:
        content = interband.envelope(row, channel, origin=self._origin)
        with self._open(channel, create=True) as directory:
            there = directory.read(file)
            if there is not None and there.content == content:
                return
            if there is not None and self._is_newer(there, row, now_ms):
                outcome.kept += 1
                return
            directory.write(file, content, modified=_written_at(row, now_ms))
        outcome.written += 1

    def _is_newer(self, there: Found, row: Row, now_ms: int) -> bool:
        """Whether somebody else wrote this file after our row was written."""
        newer = _written_at(row, now_ms) < there.modified <= now_ms // 1000 + FUTURE_SECONDS
        return newer and not interband.is_from(there.content, self._origin)

    def _remove(self, name: Name, channel: Channel, file: str, outcome: Outcome) -> None:
        target = (channel.namespace, channel.name, file)
        others = self._claims.get(target, set()) - {name}
        if others:
            outcome.again |= others
        else:
            self._remove_file(channel, file, outcome)
        self._copies.pop(name, None)
        if others:
            self._claims[target] = others
        else:
            self._claims.pop(target, None)

    def _remove_file(self, channel: Channel, file: str, outcome: Outcome) -> None:
        try:
            with self._open(channel, create=False) as directory:
                there = directory.read(file)
                if there is not None and interband.is_from(there.content, self._origin):
                    directory.remove(file)
                    outcome.removed += 1
        except FileNotFoundError:
            pass  # and so is the file

    def _sweep_one(
        self, directory: Directory, channel: Channel, outcome: Outcome, now_ms: int
    ) -> None:
        directory.remove_leftovers(now=now_ms / 1000)
        for file in directory.names():
            if not file.endswith(".json"):
                continue
            if (channel.namespace, channel.name, file) in self._claims:
                continue
            there = directory.read(file)
            if there is not None and interband.is_from(there.content, self._origin):
                directory.remove(file)
                outcome.removed += 1


def _written_at(row: Row, now_ms: int) -> int:
    """A row from the future is no younger than one that is written now."""
    return min(row.updated_at, now_ms // 1000)
