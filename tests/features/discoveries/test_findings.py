"""What a review found wrong in the original's design of discoveries: each finding has its test.

Numbers are those of the review.  5 is about migrations, 6 and 8 about searches and the profile;
they are tested with these.
"""

import fcntl
import json
import multiprocessing
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from icd import config
from icd.app import registry
from icd.app.call import Call
from icd.app.dispatch import Clock, run_batch
from icd.db.database import Database
from icd.db.paths import Where
from icd.errors import DiscoveryRefused
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.store import ONE, Wanted
from icd.features.events import store as events
from icd.values.processes import Writer
from tests.support.processes import Daemon, icctl, until
from tests.support.submitted import DAY_MS, NOW_MS, submit, told, vector

FORK = multiprocessing.get_context("fork")
HALF = ONE // 2
DIRECT = {"INTERCORE_MODE": "direct"}


def connect(project: Path) -> sqlite3.Connection:
    """Each statement commits by itself: whatever is decided in two of them can be torn apart."""
    path = project / ".clavain" / "intercore.db"
    conn = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    conn.execute("PRAGMA synchronous = OFF")
    conn.execute("PRAGMA foreign_keys = ON")
    return conn


def at_once(count: int, project: Path, envs: list[dict[str, str]], *argv: str) -> list[str]:
    """What so many processes say that all want the database at once; {} is the number of each.

    Nobody gets it before everybody asks for it: whatever is looked up earlier is out of date.
    """
    lock = project / ".clavain" / "intercore.db.lock"
    numbers = range(count)
    hosts = [envs[number % len(envs)] for number in numbers]
    waiting = {number if env is DIRECT else -1 for number, env in enumerate(hosts)}

    def run(number: int) -> str:
        words = [word.format(number) for word in argv]
        done = icctl(*words, "--timeout=40s", cwd=project, env=hosts[number])
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode().strip()

    with lock.open("rb") as held, ThreadPoolExecutor(count) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = pool.map(run, numbers)
        until(lambda: len(holders(lock)) == len(waiting))
        fcntl.flock(held, fcntl.LOCK_UN)
        return list(said)


def holders(file: Path) -> set[str]:
    """Other processes that have this file open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            links = {os.readlink(link) for link in (process / "fd").iterdir()}
            if str(file) in links and int(process.name) != os.getpid():
                found.add(process.name)
    return found


def hosts(mode: str, daemon: Daemon) -> list[dict[str, str]]:
    served = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": daemon.socket}
    return {"daemon": [served], "direct": [DIRECT], "mixed": [served, DIRECT]}[mode]


# --- 1: the search for something similar, and the insertion -----------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["daemon", "direct", "mixed"])
def test_finding_1_of_16_processes_with_near_duplicates_one_inserts(
    mode: str, initialized: Path, shared_daemon: Daemon
) -> None:
    for number in range(16):
        near = vector(1.0, 0.5, number / 1000)
        (initialized / f"{number}.f32").write_bytes(near)

    said = at_once(
        16, initialized, hosts(mode, shared_daemon),
        "discovery", "submit", "--source=exa", "--source-id={}", "--title=t",
        "--embedding=@{}.f32", "--dedup-threshold=0.99",
    )  # fmt: skip

    with closing(connect(initialized)) as conn:
        assert {row.id for row in discoveries.listed(conn, Wanted(limit=99))} == set(said)
        kinds = [event.type for event in events.read(conn, limit=99)]
    assert len(set(said)) == 1
    assert kinds == ["discovery.submitted"] + ["discovery.deduped"] * 15


def test_finding_1_nobody_inserts_between_the_search_and_the_insertion(
    project: Path, database: Database
) -> None:
    intruder = connect(project)
    intruder.execute("PRAGMA busy_timeout = 0")
    refused = []

    def interfere(statement: str) -> None:
        if statement.lstrip().startswith("UPDATE"):  # the first that takes the lock by itself
            conn.set_trace_callback(None)
            try:
                submit(intruder, "2", embedding=vector(1.0, 0.5))
            except sqlite3.OperationalError as exc:
                refused.append(str(exc))

    method = registry.find("discovery.submit")
    params = method.params("exa", "1", "t", embedding=vector(1.0, 0.5), dedup_threshold=0.9)
    call = Call(method, params, Where(str(project)), Writer(), time.monotonic() + 60)
    conn = database.connection()
    conn.set_trace_callback(interfere)

    with closing(intruder):
        (answer,) = run_batch(database, [call], clock=Clock())

    assert refused == ["database is locked"]
    assert [row.id for row in discoveries.listed(conn, Wanted(limit=9))] == [answer.result.id]


@pytest.mark.parametrize("verb", ["submit", "search"])
def test_finding_6_nobody_waits_for_the_lock_while_numpy_is_loaded(
    verb: str, initialized: Path
) -> None:
    (initialized / "v").write_bytes(vector(1.0, 0.5))
    submitted = ["--source=s", "--source-id=1", "--title=t", "--dedup-threshold=0.9"]
    words = ["discovery", verb, "--embedding=@v", *(submitted if verb == "submit" else [])]
    lock = initialized / ".clavain" / "intercore.db.lock"

    def loaded() -> bool:
        maps = [Path("/proc", pid, "maps") for pid in holders(lock)]
        return any("_multiarray_umath" in text.read_text() for text in maps)

    with lock.open("rb") as held, ThreadPoolExecutor(1) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = pool.submit(icctl, *words, "--timeout=40s", cwd=initialized, env=DIRECT)
        try:
            until(loaded)
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)

    assert done.result().returncode == 0


# --- 2: the gate of a promotion, and the promotion --------------------------------------------


def test_finding_2_a_score_between_gate_and_promotion_is_seen(initialized: Path) -> None:
    with closing(connect(initialized)) as conn, closing(connect(initialized)) as other:
        name = submit(conn, score=0.72)

        def interfere(statement: str) -> None:
            if statement.lstrip().startswith("UPDATE discoveries"):
                conn.set_trace_callback(None)
                reviews.score(other, name, 300_000, settings=config.DEFAULTS, told=told())

        conn.set_trace_callback(interfere)

        with pytest.raises(DiscoveryRefused, match=r"confidence 0\.30 below"):
            reviews.promote(conn, name, "b", threshold=HALF, told=told())
        assert discoveries.require(conn, name).status == "scored"


@pytest.mark.timeout(120)
def test_finding_2_of_1000_races_with_a_score_none_promotes_what_is_below_the_threshold(
    initialized: Path,
) -> None:
    with closing(connect(initialized)) as conn:
        names = [submit(conn, str(number), score=0.9) for number in range(1000)]
    barrier = FORK.Barrier(2)
    scorer = FORK.Process(target=_score_all, args=(initialized, names, barrier))
    scorer.start()

    with closing(connect(initialized)) as conn:
        for name in names:
            barrier.wait(60)
            with suppress(DiscoveryRefused):
                reviews.promote(conn, name, "b", threshold=HALF, told=told())
        scorer.join(60)
        rows = discoveries.listed(conn, Wanted(limit=1000))

    assert scorer.exitcode == 0
    outcomes = {(row.status, row.effective) for row in rows}
    assert outcomes <= {("promoted", 900_000), ("scored", 100_000)}


def _score_all(project: Path, names: list[str], barrier) -> None:
    with closing(connect(project)) as conn:
        for name in names:
            barrier.wait(60)
            with suppress(DiscoveryRefused):
                reviews.score(conn, name, 100_000, settings=config.DEFAULTS, told=told())


# --- 3: decay ---------------------------------------------------------------------------------


def decay(conn, day: int, *, rate: float = 0.1, floor: float = 0.05) -> int:
    return reviews.decay(
        conn,
        rate=discoveries.millionths(rate),
        floor=discoveries.millionths(floor),
        min_age_ms=DAY_MS,
        every_ms=DAY_MS,
        told=told(NOW_MS + day * DAY_MS),
    )


def test_finding_3a_what_decays_to_a_threshold_is_not_pushed_below_it_by_rounding(conn) -> None:
    name = submit(conn, score=0.9375)

    decay(conn, 2, rate=0.68)

    assert 0.9375 * (1 - 0.68) < 0.3  # as floats have it
    found = discoveries.require(conn, name)
    assert found.effective == 300_000
    assert discoveries.tier_of(found.effective, config.DEFAULTS) == "low"


def test_finding_3a_a_hundred_decays_drift_by_a_few_millionths_at_most(conn) -> None:
    name = submit(conn, score=1.0)

    for day in range(2, 102):
        assert decay(conn, day, floor=0.0) == 1
        exact = 9 ** (day - 1) * ONE // 10 ** (day - 1)
        assert exact - 10 <= discoveries.require(conn, name).decay <= exact


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["daemon", "direct", "mixed"])
def test_finding_3b_decays_at_once_decay_once(
    mode: str, initialized: Path, shared_daemon: Daemon
) -> None:
    with closing(connect(initialized)) as conn:
        for number in range(50):
            submit(conn, str(number), now_ms=1)

    said = at_once(
        8, initialized, hosts(mode, shared_daemon), "discovery", "decay", "--rate=0.1", "--json"
    )

    with closing(connect(initialized)) as conn:
        factors = {row.decay for row in discoveries.listed(conn, Wanted(limit=99))}
        told_of = [event.type for event in events.read(conn, since=50, limit=99)]
    assert sorted(said) == ['{"decayed":0}'] * 7 + ['{"decayed":50}']
    assert factors == {900_000}
    assert told_of == ["discovery.decayed"]


def test_finding_3b_the_next_period_decays_again(conn) -> None:
    submit(conn)

    assert [decay(conn, day) for day in (2, 2, 3, 3, 4)] == [1, 0, 1, 0, 1]


def test_finding_3c_nothing_decays_below_the_floor(conn) -> None:
    name = submit(conn, score=0.85)

    counts = [decay(conn, day, rate=0.5, floor=0.2) for day in range(2, 30)]

    assert counts == [1, 1, 1] + [0] * 25
    assert discoveries.require(conn, name).effective == 170_000


def test_finding_3c_a_higher_floor_lifts_nothing(conn) -> None:
    name = submit(conn)
    decay(conn, 2, rate=0.9)

    assert decay(conn, 3, floor=0.5) == 0
    assert discoveries.require(conn, name).decay == 100_000


# --- 7: the log and the rows it tells of ------------------------------------------------------


def test_finding_7_a_discovery_can_be_deleted_and_its_history_stays(initialized: Path) -> None:
    with closing(connect(initialized)) as conn:
        name = submit(conn, embedding=vector(1.0, 2.0))
        reviews.feedback(
            conn, name, "boost", data="{}", actor="me", settings=config.DEFAULTS, told=told()
        )
        reviews.dismiss(conn, name, told=told())

        conn.execute("DELETE FROM discoveries WHERE id = ?", (name,))

        kept = [(event.type, event.subject_id) for event in events.read(conn, limit=9)]
        signals = conn.execute("SELECT discovery_id FROM feedback_signals").fetchall()
        vectors_left = conn.execute("SELECT count(*) FROM embeddings").fetchone()
    kinds = ["discovery.submitted", "feedback.recorded", "discovery.dismissed"]
    assert kept == [(kind, name) for kind in kinds]
    assert signals == [(name,)]
    assert vectors_left == (0,)


# --- 4: one cursor for all sources ------------------------------------------------------------


def test_finding_4_a_consumer_that_reads_in_pages_gets_every_source_once_in_order(
    initialized: Path,
) -> None:
    def run(*argv: str) -> str:
        done = icctl(*argv, cwd=initialized, env=DIRECT)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def consumed() -> list[str]:
        lines = run("events", "tail", "--all", "--consumer=c", "--limit=3").splitlines()
        return [json.loads(line)["type"] for line in lines]

    with closing(connect(initialized)) as conn:
        for number in range(2):
            run("interspect", "record", "--agent=a", f"--type=i{number}")
            discoveries.tell(conn, f"discovery.{number}", "d", {}, told())

    pages = [consumed(), consumed(), consumed()]
    assert pages == [["i0", "discovery.0", "i1"], ["discovery.1"], []]


# --- 9: a cursor knows all sources ------------------------------------------------------------


def test_finding_9_a_cursor_of_discoveries_keeps_those_of_other_sources(initialized: Path) -> None:
    def run(*argv: str) -> str:
        done = icctl(*argv, cwd=initialized, env=DIRECT)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def found(number: int) -> str:
        return run("discovery", "submit", "--source=s", f"--source-id={number}", "--title=t")

    def consumed() -> list[str]:
        lines = run("events", "tail", "--all", "--consumer=c").splitlines()
        return [json.loads(line)["type"] for line in lines]

    def cursor() -> dict[str, int]:
        place = json.loads(run("events", "cursor", "list").partition("\t")[2])
        return {source: place[source] for source in ("interspect", "discovery")}

    run("interspect", "record", "--agent=a", "--type=override")
    found(1)

    assert consumed() == ["override", "discovery.submitted"]
    assert cursor() == {"interspect": 1, "discovery": 2}
    found(2)
    assert consumed() == ["discovery.submitted"]
    assert cursor() == {"interspect": 1, "discovery": 3}
    assert consumed() == []


# --- 10: what proposes, and what acts ---------------------------------------------------------


def test_finding_10_retire_proposes_until_it_is_told_to_apply(initialized: Path) -> None:
    def run(*argv: str) -> str:
        done = icctl("discovery", *argv, cwd=initialized, env=DIRECT)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def dismissed() -> int:
        return len(run("list", "--status=dismissed").splitlines())

    for number in range(3):
        run("submit", "--source=s", f"--source-id={number}", "--title=t")
    open_ones = run("list")

    assert run("retire", "--source=s", "--since=0") == open_ones
    assert run("retire", "--source=s", "--since=0", "--dry-run") == open_ones
    assert dismissed() == 0
    assert run("retire", "--source=s", "--since=0", "--apply") == "3 dismissed\n"
    assert dismissed() == 3


@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_finding_10_rollback_proposes_until_it_is_told_to_apply(
    mode: str, initialized: Path, shared_daemon: Daemon
) -> None:
    with closing(connect(initialized)) as conn:
        name = submit(conn, source="s")

    def rollback(*more: str) -> tuple[bytes, bytes, str]:
        done = icctl(
            "discovery", "rollback", "--source=s", f"--since={NOW_MS // 1000}", *more,
            cwd=initialized, env=hosts(mode, shared_daemon)[0],
        )  # fmt: skip
        assert done.returncode == 0
        with closing(connect(initialized)) as conn:
            return done.stdout, done.stderr, discoveries.require(conn, name).status

    told = b"icctl: discovery rollback: nothing was changed; add --apply to dismiss them\n"

    assert rollback() == (b"1\n", told, "new")
    assert rollback("--dry-run") == (b"1\n", told, "new")
    assert rollback("--apply") == (b"1\n", b"", "dismissed")
