"""Lines that others can cause as often as they like."""

import logging

import pytest

from icd.server.logs import Rarely


def test_one_line_in_a_while_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("icd"), "propagate", True)
    now = [0.0]
    rarely = Rarely(60.0, lambda: now[0])

    for _ in range(1000):
        rarely.warning("refused", uid=7)
    now[0] = 60.0
    rarely.warning("refused", uid=8)
    rarely.warning("refused", uid=9)
    now[0] = 120.0
    rarely.warning("refused", uid=10)

    told = [(record.uid, getattr(record, "left_out", 0)) for record in caplog.records]
    assert told == [(7, 0), (8, 999), (10, 1)]
