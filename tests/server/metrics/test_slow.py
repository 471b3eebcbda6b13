"""One line per slow call, and no flood of them."""

import logging

import pytest

from icd.app import registry
from icd.app.call import Call
from icd.db.paths import Where
from icd.features.state.verbs import Set
from icd.server.logs import log
from icd.server.metrics.slow import LINES, WINDOW_SECONDS, Slow
from icd.values.processes import Writer

NOW = 1000.0


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(vars(record))


@pytest.fixture
def lines():
    handler = Lines()
    level = log.level
    log.addHandler(handler)
    log.setLevel("INFO")
    yield handler.records
    log.removeHandler(handler)
    log.setLevel(level)


def call(**fields):
    method = registry.find("state.set")
    params = Set(key="k", scope_id="s", payload=b'"sesam"')
    world = {"where": Where("/p"), "writer": Writer(41, "s1"), "deadline": NOW}
    return Call(method=method, params=params, **(world | fields))


def test_a_line_tells_who_asked_for_what_and_where_the_time_went(lines):
    Slow(250).note(call(ran_at=NOW - 0.1), 0.75, "locked", now=NOW)

    (line,) = lines
    assert line["msg"] == "slow call"
    assert (line["method"], line["database"], line["error"]) == ("state.set", "/p", "locked")
    assert (line["ms"], line["waited_ms"], line["ran_ms"]) == (750, 650, 100)
    assert (line["pid"], line["session"]) == (41, "s1")
    assert "sesam" not in str(line)


def test_a_call_that_never_ran_only_has_its_time(lines):
    Slow(250).note(call(), 5.25, "deadline_exceeded", now=NOW)

    assert "ran_ms" not in lines[0]
    assert lines[0]["ms"] == 5250


def test_what_callers_call_things_is_made_fit_for_a_line(lines):
    odd = call(where=Where("/p/\udcff\n" + "x" * 5000), writer=Writer(41, "\x1b[2J" * 500))

    Slow(1).note(odd, 1.0, "", now=NOW)

    assert len(lines[0]["database"]) == len(lines[0]["session"]) == 300
    assert lines[0]["database"].isprintable()
    assert lines[0]["session"].isprintable()


def test_a_storm_is_a_few_lines_and_then_the_number_of_the_others(lines):
    slow = Slow(250)
    for number in range(LINES + 30):
        slow.note(call(), 1.0, "", now=NOW + number * 0.001)
    assert len(lines) == LINES

    slow.note(call(), 1.0, "", now=NOW + WINDOW_SECONDS)
    slow.note(call(), 1.0, "", now=NOW + WINDOW_SECONDS)

    assert len(lines) == LINES + 2
    assert lines[LINES]["left_out"] == 30
    assert "left_out" not in lines[LINES + 1]
    assert slow.count == LINES + 32
