"""Work in other threads."""

import _thread

import pytest

from icd.server.workers.threads import Worker


@pytest.mark.anyio
async def test_a_worker_does_one_thing_after_the_other_in_one_thread() -> None:
    worker = Worker()

    pieces = [worker.start(_thread.get_ident) for _ in range(5)]
    found = [await piece for piece in pieces]

    assert len(set(found)) == 1
    assert found[0] != _thread.get_ident()


@pytest.mark.anyio
async def test_a_worker_goes_on_after_a_failure() -> None:
    worker = Worker()
    failing = worker.start(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        await failing

    assert await worker.start(lambda: 7) == 7


@pytest.mark.anyio
async def test_a_worker_outlives_whoever_does_not_wait() -> None:
    worker = Worker()
    worker.start(lambda: 1).cancel()

    assert await worker.start(lambda: 7) == 7
