"""Effects kept under request ids: replayed, bound to one call, and kept long enough."""

import pytest

from icd.app import idempotency as requests
from icd.app.idempotency import (
    DRIFT_MS,
    HELD_MOST,
    HOLD_MS,
    KEEP_MS,
    MAX_DEADLINE_MS,
    NOTE_MS,
    PRUNED_PER_WRITE,
)
from icd.errors import RequestMismatch

NOW = 1_800_000_000_000


class Clocks:
    """The clock on the wall, which can be set, and the one that only goes on."""

    def __init__(self):
        self.wall_ms, self.monotonic_ms = NOW, 5_000_000

    def pass_(self, ms):
        self.wall_ms += ms
        self.monotonic_ms += ms

    def step(self, ms):
        self.wall_ms += ms


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def settled(conn, clocks):
    """A database whose clock has been steady for long: what is old is forgotten."""
    record(conn, "first", clocks)
    clocks.pass_(HOLD_MS)
    conn.execute("DELETE FROM requests")
    return clocks


def record(conn, request_id="r1", clocks=None):
    clocks = clocks or Clocks()
    requests.record(
        conn,
        request_id,
        method="state.set",
        digest=7,
        effect="{}",
        now_ms=clocks.wall_ms,
        monotonic_ms=clocks.monotonic_ms,
    )


def find(conn, request_id="r1", *, method="state.set", digest=7):
    return requests.find(conn, request_id, method=method, digest=digest)


def known(conn):
    return [id_ for (id_,) in conn.execute("SELECT id FROM requests ORDER BY id")]


def test_an_unknown_id_has_no_effect(conn):
    assert find(conn) is None


def test_the_effect_of_a_known_id_is_found(conn):
    record(conn)

    assert find(conn) == "{}"


@pytest.mark.parametrize("other", [{"method": "state.incr"}, {"digest": 8}])
def test_an_id_that_stood_for_another_call_is_a_mismatch(conn, other):
    record(conn)

    with pytest.raises(RequestMismatch):
        find(conn, **other)


def test_an_id_outlives_ten_of_the_longest_deadlines():
    assert KEEP_MS >= 10 * MAX_DEADLINE_MS


def test_recording_forgets_only_ids_older_than_they_must_be_kept(conn, settled):
    record(conn, "old", settled)
    settled.pass_(1)
    record(conn, "just kept", settled)
    settled.pass_(KEEP_MS)

    record(conn, "new", settled)

    assert known(conn) == ["just kept", "new"]


def test_recording_forgets_a_few_of_the_oldest_only(conn, settled):
    for number in range(PRUNED_PER_WRITE + 2):
        record(conn, f"old{number}", settled)
        settled.pass_(1)
    settled.pass_(KEEP_MS)

    record(conn, "new", settled)

    assert known(conn) == ["new", f"old{PRUNED_PER_WRITE}", f"old{PRUNED_PER_WRITE + 1}"]


def test_a_prune_is_bounded_and_counts(conn, settled):
    for number in range(PRUNED_PER_WRITE + 5):
        record(conn, f"r{number}", settled)
    settled.pass_(KEEP_MS + 10)
    record(conn, "new", settled)

    counts = [requests.prune(conn, limit=3, now_ms=settled.wall_ms) for _ in range(3)]

    assert counts == [3, 2, 0]
    assert known(conn) == ["new"]


def test_a_prune_keeps_ids_younger_than_they_must_be_kept(conn, settled):
    record(conn, "r1", settled)
    settled.pass_(KEEP_MS)
    record(conn, "r2", settled)

    assert requests.prune(conn, limit=100, now_ms=settled.wall_ms) == 0
    assert find(conn) == "{}"


# --- a clock that is set --------------------------------------------------------------------

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def busy(conn, clocks, name, writes=50):
    """Others write, and upkeep comes by."""
    conn.execute("BEGIN")
    for number in range(writes):
        record(conn, f"{name} {number}", clocks)
        requests.prune(conn, limit=1000, now_ms=clocks.wall_ms)
    conn.execute("COMMIT")


@pytest.mark.parametrize("writes_before", [0, 3])
@pytest.mark.parametrize(
    "steps",
    [
        [DAY_MS],
        [400 * DAY_MS],
        [-DAY_MS],
        [DAY_MS, DAY_MS],
        [-DAY_MS, DAY_MS],
        [DAY_MS, -2 * DAY_MS, 3 * DAY_MS],
        [DRIFT_MS, DRIFT_MS],
        [-DRIFT_MS, DRIFT_MS, DRIFT_MS],
        [HOUR_MS] * 10,
    ],
    ids=str,
)
def test_an_id_survives_steps_of_the_clock_for_as_long_as_it_must(
    conn, settled, steps, writes_before
):
    busy(conn, settled, "before", writes_before)
    record(conn, "mine", settled)

    for number, step in enumerate(steps):
        settled.step(step)
        busy(conn, settled, f"after {number}")
        settled.pass_(2 * MAX_DEADLINE_MS // len(steps))
    busy(conn, settled, "at the end")

    assert find(conn, "mine") == "{}"


def test_an_id_of_a_database_of_an_older_version_survives_a_step(conn, clocks):
    conn.execute("INSERT INTO requests VALUES ('mine', 'state.set', 7, '{}', ?)", (NOW,))

    clocks.step(DAY_MS)
    busy(conn, clocks, "others")

    assert find(conn, "mine") == "{}"


def test_upkeep_alone_forgets_nothing_because_of_a_step(conn, settled):
    record(conn, "mine", settled)

    settled.step(DAY_MS)

    assert requests.prune(conn, limit=1000, now_ms=settled.wall_ms) == 0


def test_ids_are_forgotten_again_after_a_step(conn, settled):
    busy(conn, settled, "before")
    settled.step(400 * DAY_MS)
    busy(conn, settled, "after")
    settled.pass_(KEEP_MS + HOLD_MS)

    busy(conn, settled, "much later")

    assert not [name for name in known(conn) if not name.startswith("much later")]


def test_a_machine_that_was_started_anew_forgets_again(conn, settled):
    busy(conn, settled, "before")
    settled.pass_(HOUR_MS)
    settled.monotonic_ms = 10_000
    busy(conn, settled, "after")
    settled.pass_(KEEP_MS + HOLD_MS)

    busy(conn, settled, "much later")

    assert not [name for name in known(conn) if not name.startswith("much later")]


def test_the_table_stays_bounded_over_a_hundred_thousand_writes(conn, settled):
    per_keep = 1000
    most = 0
    conn.execute("BEGIN")

    for number in range(100_000):
        record(conn, str(number), settled)
        settled.pass_(KEEP_MS // per_keep)
        if number % 1000 == 0:
            (count,) = conn.execute("SELECT count(*) FROM requests").fetchone()
            most = max(most, count)

    assert most <= per_keep + PRUNED_PER_WRITE


def test_the_table_stays_bounded_under_a_clock_that_never_stands_still(conn, settled):
    conn.execute("BEGIN")

    for number in range(HELD_MOST + 2000):
        record(conn, str(number), settled)
        settled.step(DAY_MS if number % 2 else -HOUR_MS)
        settled.pass_(1000)

    (count,) = conn.execute("SELECT count(*) FROM requests").fetchone()
    assert count <= HELD_MOST + 1
    assert find(conn, str(number)) == "{}"


def test_the_notes_about_the_clocks_cost_a_write_once_a_minute_at_most(conn, settled):
    record(conn, "first again", settled)
    before = list(conn.execute("SELECT name, value FROM counters"))

    for number in range(100):
        record(conn, str(number), settled)
        settled.pass_(NOTE_MS // 200)

    assert list(conn.execute("SELECT name, value FROM counters")) == before


def test_an_id_lives_twice_the_longest_deadline_whatever_the_clocks_drift():
    assert KEEP_MS - 2 * DRIFT_MS >= 2 * MAX_DEADLINE_MS
