"""What can happen to a database's files while they are in use, and who must be told of it.

A story is a sequence of writes, damages and answers.  Its rule: whatever was acknowledged and is
not there in the end was lost by a damage that came later, and the first call after that damage was
an error that says so.  No call may ever answer as if an acknowledged write had not been made, unless
that was told before.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

MAIN, LOG, INDEX, LOCK = "", "-wal", "-shm", ".lock"
FILES = (MAIN, LOG, INDEX)
# A process that closes a database removes its log and its index at any moment.
_GONE = suppress(FileNotFoundError)

# How a call may say that something is lost; anything else is a bug, or about something else.
TELLING = frozenset(
    {
        "log_lost", "database_lost", "corrupt", "io_error", "no_database",
        "not_an_intercore_database", "untrusted_database",
    }
)  # fmt: skip
# They say what is there now; should the file come back, what it lacks then was not told.
OF_NOW = frozenset({"no_database", "not_an_intercore_database"})
KEY = "k"


class Untrue(AssertionError):
    """An acknowledged write was lost, or denied, and no call said so."""


class Said(NamedTuple):
    """What a call was answered: an error's name, or empty and the result."""

    error: str
    result: Any = None
    message: str = ""


class Teller(Protocol):
    """A way to the database; a call is answered, or refused by name."""

    def ask(self, method: str, **params: Any) -> Said: ...


# --- damages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """The files of one database; `aside` holds copies of them from earlier, and what is moved away.

    Nothing here is done under the lock: those who delete files do not ask.
    """

    database: Path
    aside: Path

    def path(self, end: str) -> Path:
        return self.database.with_name(self.database.name + end)

    def keep(self) -> None:
        """Copies of now; they are old ones later."""
        for end in (*FILES, LOCK):
            with _GONE:
                shutil.copyfile(self.path(end), self.aside / f"old{end}")

    def remove(self, *ends: str) -> None:
        for end in ends:
            with _GONE:
                self.path(end).unlink()

    def empty(self, *ends: str) -> None:
        for end in ends:
            with _GONE:
                os.truncate(self.path(end), 0)

    def halve(self, *ends: str) -> None:
        for end in ends:
            with _GONE:
                os.truncate(self.path(end), self.path(end).stat().st_size // 8192 * 4096)

    def replace_by_a_copy(self, *ends: str) -> None:
        """Another file with the same content, as an editor or rsync leaves it."""
        for end in ends:
            with _GONE:
                fresh = self.aside / f"copy{end}"
                shutil.copyfile(self.path(end), fresh)
                os.replace(fresh, self.path(end))

    def replace_by_an_old_copy(self, *ends: str) -> None:
        for end in ends:
            if (self.aside / f"old{end}").exists():
                shutil.copyfile(self.aside / f"old{end}", self.aside / f"fresh{end}")
                os.replace(self.aside / f"fresh{end}", self.path(end))

    def overwrite_with_an_old_copy(self, *ends: str) -> None:
        """In place, as `cp` does: the file stays the same one."""
        for end in ends:
            if (self.aside / f"old{end}").exists():
                shutil.copyfile(self.aside / f"old{end}", self.path(end))

    def overwrite_with(self, file: Path) -> None:
        shutil.copyfile(file, self.database)

    def move_away(self, *ends: str) -> None:
        for end in ends:
            with _GONE:
                self.path(end).rename(self.aside / f"moved{end}")

    def move_back(self, *ends: str) -> None:
        """Over what has taken its place meanwhile."""
        for end in ends:
            if (self.aside / f"moved{end}").exists():
                (self.aside / f"moved{end}").rename(self.path(end))

    def move_directory_away(self) -> None:
        self.database.parent.rename(self.aside / "directory")

    def move_directory_back(self) -> None:
        """What was made in its place goes to another name, as a person would do it."""
        if self.database.parent.exists():
            shutil.rmtree(self.aside / "made-meanwhile", ignore_errors=True)
            self.database.parent.rename(self.aside / "made-meanwhile")
        (self.aside / "directory").rename(self.database.parent)

    def git_clean(self) -> None:
        """Really: everything that git ignores, where the database itself is tracked."""
        self._git("clean", "-q", "-fdX")

    def track(self) -> None:
        """A repository that the database was added to."""
        shutil.rmtree(self.database.parents[1] / ".git", ignore_errors=True)
        self._git("init", "-q")
        self._git("add", "-f", str(self.database))
        self._git("commit", "-q", "-m", "with the database in it")

    def git_restore(self) -> None:
        """As `git checkout .` and `git stash` do: the file of the last commit is there again."""
        self._git("checkout", "-q", "-f", "--", str(self.database))

    def _git(self, *argv: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(
            ["git", *who, *argv], cwd=self.database.parents[1], check=True, capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.aside), "GIT_CONFIG_NOSYSTEM": "1"},
        )  # fmt: skip


Act = Callable[[Files], None]


@dataclass(frozen=True)
class Damage:
    """What is done, and what is done after some calls more.

    `goes_on`: what is left is a database, so that a call that was told of it may be repeated;
    `loses_main`: the file itself is another one, which a call that comes later cannot know;
    `is_quiet`: nor can a process that has nothing open, since the lock and its note are gone, too.
    """

    strike: Act
    then: Act | None = None
    goes_on: bool = True
    loses_main: bool = False
    tracked: bool = False
    is_quiet: bool = False


def _names() -> dict[str, tuple[str, ...]]:
    return {
        "the log": (LOG,),
        "the index": (INDEX,),
        "the log and the index": (LOG, INDEX),
    }


def _single() -> dict[str, Damage]:
    """Of the companions, which leave the file itself alone."""
    found: dict[str, Damage] = {}
    for name, ends in _names().items():
        is_are = "are" if len(ends) > 1 else "is"
        found |= {
            f"{name} {is_are} removed": Damage(lambda f, e=ends: f.remove(*e)),
            f"{name} {is_are} emptied": Damage(lambda f, e=ends: f.empty(*e)),
            f"{name} {is_are} cut in half": Damage(lambda f, e=ends: f.halve(*e)),
            f"{name} {is_are} replaced by a copy": Damage(
                lambda f, e=ends: f.replace_by_a_copy(*e)
            ),
            f"{name} {is_are} replaced by an old copy": Damage(
                lambda f, e=ends: f.replace_by_an_old_copy(*e)
            ),
            f"{name} {is_are} overwritten with an old copy": Damage(
                lambda f, e=ends: f.overwrite_with_an_old_copy(*e)
            ),
            f"{name} {is_are} moved away and back": Damage(
                lambda f, e=ends: f.move_away(*e), lambda f, e=ends: f.move_back(*e)
            ),
        }
    return found


def _whole() -> dict[str, Damage]:
    """Of the file itself, alone and with its companions."""
    both, every = (MAIN, LOG), FILES
    return {
        "the database is removed": Damage(lambda f: f.remove(MAIN), goes_on=False, loses_main=True),
        "the database and the log are removed": Damage(
            lambda f: f.remove(*both), goes_on=False, loses_main=True
        ),
        "the database and the index are removed": Damage(
            lambda f: f.remove(MAIN, INDEX), goes_on=False, loses_main=True
        ),
        "the database, the log and the index are removed": Damage(
            lambda f: f.remove(*every), goes_on=False, loses_main=True
        ),
        "everything is removed, the lock too": Damage(
            lambda f: f.remove(*every, LOCK), goes_on=False, loses_main=True
        ),
        "the database is emptied": Damage(lambda f: f.empty(MAIN), goes_on=False, loses_main=True),
        "the database and the log are emptied": Damage(
            lambda f: f.empty(*both), goes_on=False, loses_main=True
        ),
        "the database is cut in half": Damage(
            lambda f: f.halve(MAIN), goes_on=False, loses_main=True
        ),
        "the database is replaced by a copy": Damage(lambda f: f.replace_by_a_copy(MAIN)),
        "the database and the log are replaced by copies": Damage(
            lambda f: f.replace_by_a_copy(*both)
        ),
        "all three are replaced by copies": Damage(lambda f: f.replace_by_a_copy(*every)),
        "the database is replaced by an old copy": Damage(
            lambda f: f.replace_by_an_old_copy(MAIN), loses_main=True
        ),
        "the database and the log are replaced by old copies": Damage(
            lambda f: f.replace_by_an_old_copy(*both), loses_main=True
        ),
        "all three are replaced by old copies": Damage(
            lambda f: f.replace_by_an_old_copy(*every), loses_main=True
        ),
        "the database is overwritten with an old copy": Damage(
            lambda f: f.overwrite_with_an_old_copy(MAIN), loses_main=True
        ),
        "the database and the log are overwritten with old copies": Damage(
            lambda f: f.overwrite_with_an_old_copy(*both), loses_main=True
        ),
        "all is removed and an old copy put there": Damage(_put_an_old_copy, loses_main=True),
        "the database is moved away and back": Damage(
            lambda f: f.move_away(MAIN), lambda f: f.move_back(MAIN)
        ),
        "the database and the log are moved away and back": Damage(
            lambda f: f.move_away(*both), lambda f: f.move_back(*both)
        ),
        "all three are moved away and back": Damage(
            lambda f: f.move_away(*every), lambda f: f.move_back(*every)
        ),
        "all three are moved away, and the database comes back": Damage(
            lambda f: f.move_away(*every), lambda f: f.move_back(MAIN)
        ),
        "the log is moved away, the database too, and they come back one by one": Damage(
            lambda f: (f.move_away(LOG), f.move_away(MAIN))[0],
            lambda f: (f.move_back(MAIN), f.move_back(LOG))[0],
        ),
        "the directory is moved away and back": Damage(
            Files.move_directory_away, Files.move_directory_back
        ),
        "git clean removes what it ignores": Damage(Files.git_clean, tracked=True),
        "git restores the database of the last commit": Damage(
            Files.git_restore, loses_main=True, tracked=True
        ),
        "git cleans, and restores the database": Damage(
            lambda f: (f.git_clean(), f.git_restore())[0],
            loses_main=True,
            tracked=True,
            is_quiet=True,
        ),
    }


def _lock() -> dict[str, Damage]:
    """Nothing is in it, so nothing may be lost with it."""
    return {
        "the lock is removed": Damage(lambda f: f.remove(LOCK)),
        "the lock is emptied": Damage(lambda f: f.empty(LOCK)),
        "the lock is replaced by a copy": Damage(lambda f: f.replace_by_a_copy(LOCK)),
        "the lock is moved away and back": Damage(
            lambda f: f.move_away(LOCK), lambda f: f.move_back(LOCK)
        ),
        "the lock and the log are removed": Damage(lambda f: f.remove(LOCK, LOG)),
        "the lock, the log and the index are removed": Damage(lambda f: f.remove(LOCK, LOG, INDEX)),
    }


def _put_an_old_copy(files: Files) -> None:
    files.remove(*FILES)
    files.replace_by_an_old_copy(MAIN)


COMPANIONS = _single()
LOCKS = _lock()
WHOLE = _whole()
DAMAGES = {**COMPANIONS, **LOCKS, **WHOLE}


# --- stories --------------------------------------------------------------------------------


class Step(NamedTuple):
    """`kind`: acknowledged, refused, answered or damaged; `what`: the write, error or damage."""

    kind: str
    what: str
    where: str = ""


@dataclass
class Story:
    """Told by one caller, one call after the other."""

    files: Files
    steps: list[Step] = field(default_factory=list)
    _count: int = 0

    def write(self, where: str, teller: Teller) -> Said:
        """A row of its own: if it is lost, it is not there."""
        scope, self._count = f"w{self._count}", self._count + 1
        said = teller.ask("state.set", key=KEY, scope_id=scope, payload=1)
        self._note(said, scope, where)
        return said

    def read(self, where: str, teller: Teller, scope: str) -> Said:
        said = teller.ask("state.get", key=KEY, scope_id=scope)
        if said.error:
            self._note(said, "", where)
        elif said.result is None:
            self._deny(scope, where)
        else:
            self.steps.append(Step("answered", scope, where))
        return said

    def guard(self, where: str, teller: Teller, name: str) -> Said:
        """A guard that lets one caller through, ever."""
        said = teller.ask("sentinel.check", name=name, scope_id="s", interval=0)
        fired = f"guard {name}"
        if said.error:
            self._note(said, "", where)
        elif not said.result["allowed"]:
            self.steps.append(Step("answered", fired, where))
        else:
            self._deny(fired, where)
            self.steps.append(Step("acknowledged", fired, where))
        return said

    def damage(self, name: str, act: Act) -> None:
        act(self.files)
        self.steps.append(Step("damaged", name))

    def judge(self, present: set[str], where: str) -> None:
        """`present`: the writes that are there in the end."""
        for number, step in enumerate(self.steps):
            is_write = step.kind == "acknowledged" and not step.what.startswith("guard ")
            if is_write and step.what not in present and not self._was_told(number):
                raise Untrue(
                    f"{step.what} was acknowledged and is not there, as {where} sees it, "
                    f"and no call said so:\n{self}"
                )

    def _note(self, said: Said, what: str, where: str) -> None:
        if not said.error:
            self.steps.append(Step("acknowledged", what, where))
            return
        self.steps.append(Step("refused", said.error, where))
        if said.error not in TELLING:
            raise Untrue(f"{said.error} is no answer to that: {said.message}\n{self}")

    def _deny(self, what: str, where: str) -> None:
        """Something is answered as if `what` had never been."""
        done = [n for n, step in enumerate(self.steps) if step[:2] == ("acknowledged", what)]
        if done and not self._was_told(done[-1]):
            self.steps.append(Step("denied", what, where))
            raise Untrue(f"{what} was acknowledged and is denied, and no call said so:\n{self}")

    def _was_told(self, number: int) -> bool:
        """Whether a damage after this step was the answer to the first call that came after it."""
        later = self.steps[number + 1 :]
        for place, step in enumerate(later):
            if step.kind != "damaged":
                continue
            rest = later[place + 1 :]
            is_last = all(found.kind != "damaged" for found in rest)
            telling = TELLING if is_last else TELLING - OF_NOW
            if rest and rest[0].kind == "refused" and rest[0].what in telling:
                return True
        return False

    def __str__(self) -> str:
        return "\n".join(
            f"  {number}. {step.kind}: {step.what}{f' ({step.where})' if step.where else ''}"
            for number, step in enumerate(self.steps)
        )
