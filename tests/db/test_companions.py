"""Files of a database that are removed, emptied, replaced or moved while they are in use.

Whatever was acknowledged is there afterwards, or the first call after the damage says that it is
not; `tests/support/companions.py` has the damages and the rule.  Tried through a daemon that has the
database open, without one, with both in turn, and after a daemon was killed.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.companions import (
    COMPANIONS,
    DAMAGES,
    INDEX,
    KEY,
    LOCKS,
    LOG,
    MAIN,
    TELLING,
    WHOLE,
    Damage,
    Files,
    Said,
    Story,
    Untrue,
)
from tests.support.processes import PATIENCE, Daemon
from tests.torture import hosts
from tests.torture.code import Code, broken

DEADLINE_MS = int(PATIENCE * 1000)


class Through:
    """A daemon, which is started again if it died."""

    def __init__(self) -> None:
        # A look while nobody asks might come upon the moment in which git has removed a file that it
        # is about to write: the database is gone then, and the daemon lets go of it.
        self.daemon = Daemon(env={"INTERCORE_IDLE_SECONDS": "60"})
        self.project = Path("/")

    def ask(self, method: str, **params: Any) -> Said:
        given = {"cwd": str(self.project), "deadline_ms": DEADLINE_MS, **params}
        try:
            answer = self.daemon.respond(method, **given)
        except (OSError, json.JSONDecodeError) as exc:
            return Said("daemon_died", message=f"{exc!r}; {self.daemon.log.read_text()[-500:]}")
        if "error" in answer:
            error = answer["error"]
            return Said(error["data"]["name"], None, error["message"])
        return Said("", answer["result"])

    def ready(self) -> None:
        process = self.daemon.process
        if process is None or process.poll() is not None:
            with suppress(FileNotFoundError):
                Path(self.daemon.socket).unlink()
            self.daemon.start()


class Without:
    """The other host: it opens, locks, calls and closes."""

    def __init__(self, host: hosts.Host) -> None:
        self.host = host

    def ask(self, method: str, **params: Any) -> Said:
        found = self.host.ask(method, **params)
        return Said(found.error, found.result, found.message)


@pytest.fixture(scope="module")
def through() -> Iterator[Through]:
    found = Through()
    with closing(found.daemon):
        yield found


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Without]:
    with hosts.opened(Code(), tmp_path_factory.mktemp("direct"), ("direct",)) as (host,):
        yield Without(host)


@pytest.fixture
def tellers(through: Through, without: Without, initialized: Path) -> dict[str, Any]:
    through.ready()
    through.project = without.host.project = initialized
    return {"the daemon": through, "a direct call": without}


@pytest.fixture
def files(initialized: Path, tmp_path: Path) -> Files:
    aside = tmp_path / "aside"
    aside.mkdir()
    return Files(initialized / ".clavain" / "intercore.db", aside)


# Who writes before the damage, and who calls after it, in turn.
DAEMON, DIRECT = "the daemon", "a direct call"
ALONE = "without a daemon"
TURNS = {
    "through the daemon": ((DAEMON,), (DAEMON,)),
    ALONE: ((DIRECT,), (DIRECT,)),
    "with both, the daemon first": ((DAEMON, DIRECT), (DAEMON, DIRECT)),
    "with both, a direct call first": ((DAEMON, DIRECT), (DIRECT, DAEMON)),
}
CALLS = 4  # of each part of a story


def begin(tellers: dict[str, Any], files: Files, before: tuple[str, ...], damage: Damage) -> Story:
    """Some writes, of which there are copies, and some more."""
    story = Story(files)
    if damage.tracked:
        story.write(before[0], tellers[before[0]])
        files.track()
    write(story, tellers, (DAEMON,))  # a log is there for as long as a daemon has it open
    files.keep()
    if DAEMON not in before:
        tellers[DAEMON].daemon.stop()
    write(story, tellers, before)
    if damage.loses_main:  # what is lost with it has to be in it
        assert not tellers[before[0]].ask("db.vacuum").error
        write(story, tellers, before)
    story.guard(before[0], tellers[before[0]], "once")
    return story


def tell(
    tellers: dict[str, Any], files: Files, turns: tuple[tuple[str, ...], ...], name: str
) -> Story:
    """After that the damage, calls, its second half if there is one, and calls."""
    damage, (before, after) = DAMAGES[name], turns
    story = begin(tellers, files, before, damage)
    story.damage(name, damage.strike)
    call(story, tellers, after)
    if damage.then is not None:
        story.damage(f"{name}, the second half", damage.then)
        call(story, tellers, after)
    return story


def write(story: Story, tellers: dict[str, Any], turns: tuple[str, ...]) -> None:
    for number in range(CALLS):
        where = turns[number % len(turns)]
        story.write(where, tellers[where])


def acknowledged(story: Story, teller: Any, count: int = CALLS) -> None:
    for _ in range(count):
        said = story.write(DAEMON, teller)
        assert not said.error, said


def call(story: Story, tellers: dict[str, Any], turns: tuple[str, ...]) -> None:
    write(story, tellers, turns)
    for where in turns:
        story.guard(where, tellers[where], "once")
        story.read(where, tellers[where], "w1")


def conclude(story: Story, tellers: dict[str, Any], name: str) -> None:
    """What every host finds in the end."""
    goes_on = DAMAGES[name].goes_on
    tellers[DAEMON].ready()
    for where, teller in tellers.items():
        said = teller.ask("state.list", key=KEY)
        if said.error and goes_on:
            raise Untrue(f"{where} goes on saying {said.error}: {said.message}\n{story}")
        if not said.error:
            story.judge({row["scope_id"] for row in said.result}, where)
    if goes_on:
        assert not story.write(DIRECT, tellers[DIRECT]).error
        assert tellers[DIRECT].ask("db.check").result["ok"]


@pytest.mark.parametrize("turns", [turns for turns in TURNS if turns != ALONE])
@pytest.mark.parametrize("name", [*COMPANIONS, *LOCKS])
def test_what_was_acknowledged_is_there_or_said_to_be_lost_when(
    name: str, turns: str, tellers: dict[str, Any], files: Files
) -> None:
    story = tell(tellers, files, TURNS[turns], name)

    conclude(story, tellers, name)


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        (name, turns)
        for name, damage in WHOLE.items()
        for turns, (_, after) in TURNS.items()
        if turns != ALONE and not (damage.is_quiet and after[0] == DIRECT)
    ],
)
def test_what_was_acknowledged_is_there_or_said_to_be_lost_if_in_use_when(
    name: str, turns: str, tellers: dict[str, Any], files: Files
) -> None:
    story = tell(tellers, files, TURNS[turns], name)

    conclude(story, tellers, name)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *(name for name, damage in WHOLE.items() if not (damage.loses_main and damage.goes_on)),
        *LOCKS,
    ],
)
def test_without_a_daemon_what_was_acknowledged_is_there_or_said_to_be_lost_when(
    name: str, tellers: dict[str, Any], files: Files
) -> None:
    """Not if another database or log was put there: what nobody has open is what is there."""
    story = tell(tellers, files, TURNS[ALONE], name)

    conclude(story, tellers, name)


# --- after a crash --------------------------------------------------------------------------


# The log, and all that knew how much was in it: no call that comes later can tell.
WITHOUT_WITNESS = {
    "the lock, the log and the index are removed",
    "the log and the index are emptied",
    "the log and the index are replaced by an old copy",
    "the log and the index are overwritten with an old copy",
}


@pytest.mark.parametrize("name", [name for name, damage in WHOLE.items() if damage.is_quiet])
def test_a_daemon_says_that_its_database_is_another_one_though_a_direct_call_came_first(
    name: str, tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """Only the daemon can know; what the direct call noted must not pass for a restore of ours."""
    story = begin(tellers, files, (DAEMON,), DAMAGES[name])

    story.damage(name, DAMAGES[name].strike)
    direct = tellers[DIRECT].ask("state.set", key=KEY, scope_id="direct", payload=1)
    first = story.write(DAEMON, through)
    second = story.write(DAEMON, through)

    # The daemon may have looked by itself before the direct call, which is then told instead.
    told = [said.error for said in (direct, first) if said.error]
    assert told, (direct, first)
    assert set(told) <= set(TELLING), told
    assert not second.error, second


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "next_one"),
    [
        *((name, DIRECT) for name in (*COMPANIONS, *LOCKS) if name not in WITHOUT_WITNESS),
        *((f"the log is {damaged}", DAEMON) for damaged in ("removed", "emptied", "cut in half")),
    ],
)
def test_what_a_killed_daemon_acknowledged_is_there_or_said_to_be_lost_when(
    name: str, next_one: str, tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """Its log is the only copy, and no process has it open."""
    damage = DAMAGES[name]
    story = begin(tellers, files, (DAEMON,), damage)
    through.daemon.kill()
    story.damage(name, damage.strike)
    if next_one == DAEMON:
        through.ready()

    call(story, tellers, (next_one,))
    if damage.then is not None:
        story.damage(f"{name}, the second half", damage.then)
        call(story, tellers, (next_one,))

    conclude(story, tellers, name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "where"),
    [
        (name, where)
        for name, damage in DAMAGES.items()
        for where in (DAEMON, DIRECT)
        if not (damage.is_quiet and where == DIRECT)
    ],
)
def test_db_check_finds_out_that_something_is_lost_when(
    name: str, where: str, tellers: dict[str, Any], files: Files
) -> None:
    """As the first call; a direct one while the daemon has the database open."""
    damage = DAMAGES[name]
    story = begin(tellers, files, (DAEMON,), damage)

    story.damage(name, damage.strike)
    said = tellers[where].ask("db.check")

    if said.error:
        assert said.error in TELLING, said
    elif said.result["ok"]:
        there = tellers[where].ask("state.list", key=KEY)
        assert not there.error, there
        story.judge({row["scope_id"] for row in there.result}, where)


@pytest.mark.parametrize(
    "name",
    [
        "the log is removed",
        "the log and the index are removed",
        "git clean removes what it ignores",
    ],
)
def test_what_a_daemon_acknowledged_after_the_damage_survives_its_end_by_kill_when(
    name: str, tellers: dict[str, Any], files: Files, through: Through
) -> None:
    story = tell(tellers, files, TURNS["through the daemon"], name)

    through.daemon.kill()

    conclude(story, tellers, name)


# --- overwritten in place -------------------------------------------------------------------

ASKS: dict[str, dict[str, Any]] = {
    "state.get": {"key": KEY, "scope_id": "w5"},
    "state.list": {"key": KEY},
    "state.set": {"key": KEY, "scope_id": "later", "payload": 1},
    "sentinel.check": {"name": "once", "scope_id": "s", "interval": 0},
    "db.health": {},
    "db.check": {},
}


def garbage(files: Files) -> Path:
    found = files.aside / "garbage"
    found.write_bytes(b"This is not a database.\n" * (files.database.stat().st_size // 24 + 1))
    return found


def another(files: Files) -> Path:
    """A sound one, of our kind, with nothing in it."""
    found = files.aside / "another"
    with closing(sqlite3.connect(f"file:{files.aside / 'old'}?immutable=1", uri=True)) as source:
        script = "".join(f"{sql};" for (sql,) in source.execute(_SCHEMA).fetchall())
        marks = [source.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
    with closing(sqlite3.connect(found)) as conn:
        conn.executescript(script)
        for name, value in zip(_MARKS, marks, strict=True):
            conn.execute(f"PRAGMA {name} = {value}")
        conn.executescript("INSERT INTO counters VALUES ('state', 0); PRAGMA journal_mode = WAL")
    return found


_SCHEMA = (
    "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
)
_MARKS = ("application_id", "user_version")
OVERWRITTEN = {
    "garbage": garbage,
    "another database": another,
    "an old copy": lambda files: files.aside / "old",
}


@pytest.mark.parametrize("method", ASKS)
@pytest.mark.parametrize("what", OVERWRITTEN)
def test_a_daemon_notices_at_once_that_its_database_was_overwritten(
    what: str, method: str, tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """The file is the same one, with other content: what the daemon remembers of it is void."""
    story = Story(files)
    write(story, tellers, (DAEMON,))
    assert not through.ask("db.vacuum").error  # all of it is in the file by now
    files.keep()
    write(story, tellers, (DAEMON,))
    story.guard(DAEMON, through, "once")
    assert not through.ask("db.vacuum").error
    source = OVERWRITTEN[what](files)

    files.overwrite_with(source)
    said = through.ask(method, **ASKS[method])

    is_ok = method == "db.check" and not said.error and not said.result["ok"]
    assert is_ok or (said.error and said.error != "internal"), said


def test_a_moved_database_that_came_back_has_all_its_writes(
    tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """What was acknowledged before is in the log, which nobody may have removed meanwhile."""
    story = Story(files)
    write(story, tellers, (DAEMON,))

    files.move_away(MAIN)
    assert through.ask("state.list", key=KEY).error
    files.move_back(MAIN)

    said = through.ask("state.list", key=KEY)
    if said.error:
        assert said.error == "log_lost", said
        assert any("intercore.db-wal" in name.name for name in files.database.parent.iterdir())
    else:
        assert len(said.result) == CALLS


# --- only touched ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [False, True], ids=["it goes on", "it is killed"])
@pytest.mark.parametrize("next_one", [DAEMON, DIRECT])
def test_a_database_that_is_touched_under_a_daemon_loses_nothing(
    next_one: str, is_killed: bool, tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """Its time is another one, and the commits are in the log still."""
    story = Story(files)
    acknowledged(story, through)
    assert files.path(LOG).stat().st_size > 0

    os.utime(files.database)
    if is_killed:
        through.daemon.kill()
        through.ready()

    assert not tellers[next_one].ask("state.list", key=KEY).error
    assert not story.write(next_one, tellers[next_one]).error
    for teller in tellers.values():
        assert len(teller.ask("state.list", key=KEY).result) == CALLS + 1
    assert tellers[DIRECT].ask("db.check").result["ok"]


# --- old logs -------------------------------------------------------------------------------

LONG = 12  # writes: a log that is longer than the one that follows it


def old_log(files: Files, through: Through) -> Story:
    """A copy of a long log, of which the database has all, and a short one in its place."""
    story = Story(files)
    acknowledged(story, through, LONG)
    files.keep()
    through.daemon.stop()
    through.ready()
    acknowledged(story, through)
    old = files.aside / f"old{LOG}"
    assert 0 < files.path(LOG).stat().st_size < old.stat().st_size
    return story


@pytest.mark.parametrize("ends", [(LOG,), (LOG, INDEX)], ids=["alone", "with its index"])
@pytest.mark.parametrize("first", [DAEMON, DIRECT])
def test_an_old_log_that_is_longer_is_noticed_and_never_used(
    first: str, ends: tuple[str, ...], tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """Every frame of it is valid: SQLite would read it over the newer database, and copy it."""
    story = old_log(files, through)

    story.damage("overwritten", lambda files: files.overwrite_with_an_old_copy(*ends))
    call(story, tellers, (first, DAEMON))

    conclude(story, tellers, "the log is overwritten with an old copy")
    there = {row["scope_id"] for row in through.ask("state.list", key=KEY).result}
    assert {f"w{number}" for number in range(LONG)} <= there  # they were in the database itself
    assert list(files.database.parent.glob("intercore.db-wal.lost-*"))


def test_an_old_log_is_not_copied_when_its_name_is_removed_as_well(
    tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """The names are gone, and what is open is no longer what the daemon wrote."""
    story = old_log(files, through)

    story.damage(
        "overwritten and removed",
        lambda files: (files.overwrite_with_an_old_copy(LOG, INDEX), files.remove(LOG, INDEX))[0],
    )
    call(story, tellers, (DAEMON,))

    conclude(story, tellers, "the log is overwritten with an old copy")


def test_an_old_log_that_a_killed_daemon_finds_in_place_of_its_own_is_never_used(
    tellers: dict[str, Any], files: Files, through: Through
) -> None:
    story = old_log(files, through)

    through.daemon.kill()
    story.damage("overwritten", lambda files: files.overwrite_with_an_old_copy(LOG, INDEX))
    call(story, tellers, (DIRECT,))

    conclude(story, tellers, "the log is overwritten with an old copy")
    assert list(files.database.parent.glob("intercore.db-wal.lost-*"))


def test_a_daemon_that_stops_does_not_copy_an_old_log(
    tellers: dict[str, Any], files: Files, through: Through
) -> None:
    """The last look is before the database is closed, and the next caller is told."""
    story = old_log(files, through)

    story.damage("overwritten", lambda files: files.overwrite_with_an_old_copy(LOG, INDEX))
    through.daemon.stop()
    call(story, tellers, (DIRECT,))

    conclude(story, tellers, "the log is overwritten with an old copy")


# --- a log without a database ---------------------------------------------------------------


def orphan(code: Code, directory: Path) -> None:
    """Raise unless the log of a killed daemon whose database is gone is kept, byte by byte."""
    project = directory / "project"
    database = project / ".clavain" / "intercore.db"
    (project / ".git").mkdir(parents=True)
    direct = {"INTERCORE_MODE": "direct"}
    assert code.icctl("init", cwd=project, env=direct).returncode == 0
    with closing(code.daemon()) as daemon:
        daemon.start()
        daemon.call("state.set", cwd=str(project), key=KEY, scope_id="s", payload=1)
        daemon.kill()
    log = database.with_name(f"{database.name}-wal").read_bytes()
    assert log
    database.unlink()

    made = code.icctl("init", cwd=project, env=direct)

    assert made.returncode == 0, made
    kept = [found.read_bytes() for found in database.parent.glob(f"{database.name}-wal.lost-*")]
    if kept != [log]:
        raise Untrue(f"{len(kept)} logs are kept, and not the one that was there")


def test_the_log_of_a_database_that_is_gone_is_kept(tmp_path: Path) -> None:
    orphan(Code(), tmp_path)


def test_a_log_that_is_unlinked_in_place_of_kept_is_noticed(tmp_path: Path) -> None:
    code = broken(tmp_path, "icd/db/lost.py", "os.rename(name, kept)", "os.unlink(name)")

    with pytest.raises(Untrue, match="0 logs are kept"):
        orphan(code, tmp_path)


# --- the rule itself ------------------------------------------------------------------------


class Script:
    """Answers as it is told to."""

    def __init__(self, *said: Said) -> None:
        self._said = list(said)

    def ask(self, method: str, **params: Any) -> Said:
        del method, params
        return self._said.pop(0)


OK, LOST = Said("", {"allowed": True}), Said("log_lost")
GONE = Said("no_database")


def told(files: Files, *said: Said | str) -> Story:
    """Writes, with a damage wherever there is a word."""
    story = Story(files)
    for one in said:
        if isinstance(one, str):
            story.damage(one, lambda _files: None)
        else:
            story.write("a script", Script(one))
    return story


def test_a_loss_is_fine_if_the_first_call_after_it_says_so(files: Files) -> None:
    told(files, OK, "damage", LOST, OK).judge({"w2"}, "all")
    told(files, OK, "damage", OK).judge({"w0", "w1"}, "all")
    told(files, OK, "damage", GONE).judge(set(), "all")


@pytest.mark.parametrize(
    ("said", "present"),
    [
        ((OK,), set()),
        ((OK, "damage", OK), {"w1"}),
        ((OK, "damage", OK, LOST), {"w1"}),
        ((OK, "damage", LOST, OK), {"w0"}),
        ((OK, "away", GONE, "back", OK), {"w2"}),
    ],
)
def test_a_loss_that_is_told_late_or_never_is_noticed(
    said: tuple[Said | str, ...], present: set[str], files: Files
) -> None:
    story = told(files, *said)

    with pytest.raises(Untrue):
        story.judge(present, "all")


def test_a_guard_that_fires_twice_is_noticed_unless_it_was_told(files: Files) -> None:
    silent = told(files)
    silent.guard("a script", Script(OK), "once")
    silent.damage("damage", lambda _files: None)
    honest = told(files)
    honest.guard("a script", Script(OK), "once")
    honest.damage("damage", lambda _files: None)
    honest.guard("a script", Script(LOST), "once")

    honest.guard("a script", Script(OK), "once")
    with pytest.raises(Untrue, match="denied"):
        silent.guard("a script", Script(OK), "once")
