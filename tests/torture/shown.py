"""What a reader of the log was shown, and whether that is what it was promised."""

from collections.abc import Callable
from typing import Any

from tests.torture.suite import Broken


class Shown:
    """`acked` are events that must be in the log, by their key; it grows meanwhile.

    `confirm` is told of each event that is new to the reader, and of who that is.
    """

    def __init__(
        self,
        name: str,
        acked: dict[str, int],
        confirm: Callable[[int, str], None] = lambda _seq, _reader: None,
    ) -> None:
        self.name = name
        self._acked = acked
        self._confirm = confirm
        self.last = 0  # the greatest that it has seen
        self.first_time: list[tuple[int, str]] = []
        self.again = 0

    def take(self, event: dict[str, Any]) -> None:
        seq = event["seq"]
        if seq <= self.last:
            self.again += 1
            return
        self._confirm(seq, self.name)
        if missed := self._between(seq):
            raise Broken(f"{self.name} was shown {seq} after {self.last}, but not {missed[:9]}")
        self.last = seq
        self.first_time.append((seq, event["idempotency_key"]))

    def _between(self, seq: int) -> list[int]:
        """What it must have been shown first; usually there is no number in between at all."""
        if seq == self.last + 1:
            return []
        return [each for each in self._acked.copy().values() if self.last < each < seq]

    def compare(self, log: list[tuple[int, str]]) -> None:
        """Up to where it has read, it was shown what the log has."""
        if self.first_time == log[: len(self.first_time)]:
            return
        pairs = zip([*self.first_time, None], log, strict=False)
        shown, there = next(((a, b) for a, b in pairs if a != b), (self.first_time[-1], None))
        raise Broken(
            f"{self.name} was shown {shown} where the log has {there}, of {len(log)} events"
        )


def in_order(events: list[dict[str, Any]], name: str, after: int = 0) -> None:
    """One answer, or one process, never goes back."""
    for event in events:
        if event["seq"] <= after:
            raise Broken(f"{name} was shown {event['seq']} after {after}")
        after = event["seq"]
