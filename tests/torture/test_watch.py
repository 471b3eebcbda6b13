"""The suite for a few seconds, and in code that was broken on purpose."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.torture import watch
from tests.torture.code import Change, broken_by
from tests.torture.shown import Shown, in_order
from tests.torture.suite import SHORT_SEED, Broken, Run
from tests.torture.witness import Witness

SECONDS = 3
# A broken promise shows within a round or two; on a machine that does little at once, later.
BROKEN_SECONDS = 60

MUTATIONS: dict[str, list[Change]] = {
    "a cursor moves before anything was delivered": [
        (
            "icd/features/events/tail.py",
            "    return store.batch(ctx.conn, _wanted(ctx, _from(p, cursor.seq if cursor else 0)))\n",
            """    batch = store.batch(ctx.conn, _wanted(ctx, _from(p, cursor.seq if cursor else 0)))
    if batch.events:
        cursors.advance(ctx.conn, *place, batch.events[-1].seq, now_ms=ctx.now_ms)
    return batch
""",
        )
    ],
    "a subscription goes on after an event that it has not seen": [
        (
            "icd/server/subscriptions/event_fanout.py",
            "self._position = news.seq\n",
            "self._position = news.seq + 1\n",
        )
    ],
    # The lock is kept as long as the transaction is open: nobody waits for anybody in a circle.
    "an event is shown before it is committed": [
        (
            "icd/app/dispatch.py",
            "found, strict=False))\n            self._commit()\n",
            "found, strict=False))\n",
        ),
        (
            "icd/db/database.py",
            "            self.lock.release()\n\n    def connection",
            """            if self._conn is None or not self._conn.in_transaction:
                self.lock.release()

    def connection""",
        ),
        (
            "icd/server/stores/store.py",
            "        self._queue.hand_out(answers)\n",
            """        self._queue.hand_out(answers)
        def commit():
            if self.database._conn is not None and self.database._conn.in_transaction:
                self.database._conn.execute("COMMIT")
                self.database.lock.release()
        await asyncio.sleep(0.05)
        await self._hop(thread, commit)
""",
        ),
    ],
}


@pytest.mark.long
def test_whoever_follows_sees_everything_in_order(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"seed {run.seed}")

    watch.run(run)

    assert run.figures["events"] > 0


@pytest.mark.long
@pytest.mark.parametrize("changes", MUTATIONS.values(), ids=MUTATIONS)
def test_it_is_noticed_if(changes: list[Change], tmp_path: Path) -> None:
    code = broken_by(tmp_path, *changes)
    run = Run(tmp_path / "tried", BROKEN_SECONDS, SHORT_SEED, code)
    print(f"seed {run.seed}")

    with pytest.raises(Broken) as found:
        watch.run(run)
    print(found.value)


LOG = [(1, "a"), (2, "b"), (4, "c")]


def shown(*events: tuple[int, str]) -> Shown:
    found = Shown("reader", {})
    for seq, key in events:
        found.take({"seq": seq, "idempotency_key": key})
    return found


@pytest.mark.parametrize(
    "events", [[], LOG[:2], LOG, [*LOG[:2], *LOG], [LOG[0], LOG[0], LOG[1]]],
    ids=["nothing yet", "a beginning", "all", "twice", "one twice"],
)  # fmt: skip
def test_a_reader_may_be_behind_and_see_events_again(events: list[tuple[int, str]]) -> None:
    shown(*events).compare(LOG)


@pytest.mark.parametrize(
    "events", [LOG[1:], [LOG[0], LOG[2]], [(1, "a"), (2, "z")], [*LOG, (5, "d")], [LOG[1], LOG[0]]],
    ids=["no beginning", "a gap", "another event", "one that is not there", "the wrong order"],
)  # fmt: skip
def test_a_reader_that_was_shown_anything_else_is_noticed(events: list[tuple[int, str]]) -> None:
    with pytest.raises(Broken):
        shown(*events).compare(LOG)


def test_a_reader_that_missed_an_acknowledged_event_is_noticed_at_once() -> None:
    reader = Shown("reader", {"b": 2})
    reader.take({"seq": 1, "idempotency_key": "a"})

    with pytest.raises(Broken):
        reader.take({"seq": 3, "idempotency_key": "c"})


@pytest.mark.parametrize("seqs", [[2, 1], [1, 1]])
def test_one_answer_that_goes_back_is_noticed(seqs: list[int]) -> None:
    with pytest.raises(Broken):
        in_order([{"seq": seq} for seq in seqs], "reader")


def test_a_witness_confirms_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "intercore.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY)")
        conn.execute("INSERT INTO events VALUES (1)")
        conn.execute("BEGIN")
        conn.execute("INSERT INTO events VALUES (2)")
        witness = Witness(Run(tmp_path, 0, SHORT_SEED), file)
        witness.confirm(1, "reader")

        with pytest.raises(Broken, match="reader was shown event 2, and the last committed is 1"):
            witness.confirm(2, "reader")

        conn.execute("COMMIT")
        witness.confirm(2, "reader")
