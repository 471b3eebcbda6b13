"""Work in other threads."""

import _thread

import anyio
import pytest

from icd.server.workers.threads import Worker


def test_a_worker_does_one_thing_after_the_other_in_one_thread() -> None:
    async def act() -> list[int]:
        worker = Worker()
        pieces = [worker.start(_thread.get_ident) for _ in range(5)]
        return [await piece for piece in pieces]

    found = anyio.run(act)

    assert len(set(found)) == 1
    assert found[0] != _thread.get_ident()


def test_a_worker_goes_on_after_a_failure() -> None:
    async def act() -> int:
        worker = Worker()
        failing = worker.start(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await failing
        return await worker.start(lambda: 7)

    assert anyio.run(act) == 7


def test_a_worker_outlives_whoever_does_not_wait() -> None:
    async def act() -> int:
        worker = Worker()
        worker.start(lambda: 1).cancel()
        return await worker.start(lambda: 7)

    assert anyio.run(act) == 7
