"""Sessions: one row in a project, attributions that forget nothing, and tokens that only grow."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.errors import UnknownSession
from icd.features.events import store as events
from icd.features.sessions import store as sessions
from icd.values.processes import Writer

NOW = 1_800_000_000_123
ME = Writer(pid=41, session="s1")


def start(conn, session="s1", project="/p", *, now_ms=NOW, **told):
    known = {"agent_type": "", "model": None, "metadata": None} | told
    return sessions.start(conn, session, project, actor=ME, now_ms=now_ms, **known)


def attribute(conn, session="s1", project="/p", *, now_ms=NOW, **told):
    known = {"bead_id": None, "run_id": None, "phase": None} | told
    return sessions.attribute(conn, session, project, actor=ME, now_ms=now_ms, **known)[1]


def listed(conn, **asked):
    wanted = {"project_dir": None, "session_id": None, "since": 0, "active_only": False}
    return sessions.newest(conn, **wanted | {"limit": 100} | asked)


def test_a_session_that_starts_again_goes_on_with_what_is_known_of_it(conn):
    first = start(conn, agent_type="codex", model="m", metadata='{"a":1}')
    sessions.add_tokens(conn, "s1", "/p", (1, 2, 3, 4))
    sessions.end(conn, "s1", actor=ME, now_ms=NOW + 5000)

    again = start(conn, model="n", now_ms=NOW + 9000)

    assert (again.id, again.agent_type, again.model, again.metadata) == (
        first.id,
        "codex",
        "n",
        '{"a":1}',
    )
    assert (again.started_at, again.ended_at) == (NOW // 1000, None)
    assert listed(conn) == [again]
    assert again.cache_read_tokens == 4


def test_a_session_ends_in_every_project_and_once(conn):
    start(conn, project="/p")
    start(conn, project="/q")
    start(conn, "s2")

    assert sessions.end(conn, "s1", actor=ME, now_ms=NOW) == 2

    assert [each.session_id for each in listed(conn, active_only=True)] == ["s2"]
    with pytest.raises(UnknownSession, match="no session s1 is active"):
        sessions.end(conn, "s1", actor=ME, now_ms=NOW)


def test_tokens_of_an_unknown_session_are_refused(conn):
    start(conn, project="/q")

    with pytest.raises(UnknownSession, match="no session s1 in /p"):
        sessions.add_tokens(conn, "s1", "/p", (1, 1, 1, 1))


def test_tokens_beyond_all_numbers_stay_at_the_largest(conn):
    start(conn)
    for _ in range(2):
        sessions.add_tokens(conn, "s1", "/p", (2**63 - 1, 1, 0, 0))

    (found,) = listed(conn)
    assert (found.input_tokens, found.output_tokens) == (2**63 - 1, 2)


def test_the_newest_come_first_and_within_what_is_asked(conn):
    for number in range(4):
        start(conn, f"s{number}", "/p" if number % 2 else "/q", now_ms=NOW + number * 1000)

    def ids(**asked):
        return [each.session_id for each in listed(conn, **asked)]

    assert ids() == ["s3", "s2", "s1", "s0"]
    assert ids(project_dir="/p", limit=1) == ["s3"]
    assert ids(since=NOW // 1000 + 2) == ["s3", "s2"]
    assert ids(session_id="s0") == ["s0"]


def test_a_new_run_forgets_the_phase_of_the_old_one_and_nothing_else(conn):
    attribute(conn, bead_id="b", run_id="r1", phase="plan")

    assert attribute(conn, bead_id="b2").run_id == "r1"
    assert attribute(conn, run_id="r1").phase == "plan"
    told = attribute(conn, run_id="r2")

    assert (told.bead_id, told.run_id, told.phase) == ("b2", "r2", None)


def test_every_change_is_an_event(conn):
    start(conn, agent_type="codex")
    attribute(conn, run_id="r1")
    sessions.end(conn, "s1", actor=ME, now_ms=NOW)

    found = events.read(conn, limit=10, source="session")

    assert [(e.type, e.run_id, e.subject_id, e.project_dir) for e in found] == [
        ("started", "", "s1", "/p"),
        ("attributed", "r1", "s1", "/p"),
        ("ended", "", "s1", "/p"),
    ]
    assert json.loads(bytes(found[1].payload)) == {"run_id": "r1"}


# --- against a model ---

NAMES = st.sampled_from(["a", "b"])
SOME = st.sampled_from([None, "x", "y"])
STEPS = st.one_of(
    st.tuples(st.just("start"), NAMES, NAMES, SOME),
    st.tuples(st.just("end"), NAMES, NAMES, SOME),
    st.tuples(st.just("tokens"), NAMES, NAMES, st.integers(0, 9)),
    st.tuples(st.just("attribute"), NAMES, NAMES, st.tuples(SOME, SOME, SOME)),
)


class Model:
    """What is said of sessions, in a few lines of Python."""

    def __init__(self):
        self.rows = {}  # (model, is active, tokens) by session and project
        self.told = {}

    def play(self, what, session, project, word):
        key = session, project
        if what == "start":
            model, _, tokens = self.rows.get(key, (None, True, 0))
            self.rows[key] = (word or model, True, tokens)
        elif what == "end":
            active = [k for k, row in self.rows.items() if k[0] == session and row[1]]
            self.rows |= {k: (self.rows[k][0], False, self.rows[k][2]) for k in active}
            return bool(active)
        elif what == "tokens":
            if key not in self.rows:
                return False
            model, active, tokens = self.rows[key]
            self.rows[key] = (model, active, tokens + word)
        else:
            bead, run, phase = word
            before = self.told.get(key, (None, None, None))
            kept = before[2] if run in (None, before[1]) else None
            self.told[key] = (bead or before[0], run or before[1], phase or kept)
        return True


def play(conn, what, session, project, word):
    try:
        if what == "start":
            start(conn, session, project, model=word)
        elif what == "end":
            sessions.end(conn, session, actor=ME, now_ms=NOW)
        elif what == "tokens":
            sessions.add_tokens(conn, session, project, (word, 0, 0, 0))
        else:
            bead, run, phase = word
            attribute(conn, session, project, bead_id=bead, run_id=run, phase=phase)
    except UnknownSession:
        return False
    return True


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_any_sequence_does_what_the_model_does(scratch, steps):
    model = Model()
    with scratch() as conn:
        for step in steps:
            assert play(conn, *step) == model.play(*step)
        rows = {
            (each.session_id, each.project_dir): (
                each.model,
                each.ended_at is None,
                each.input_tokens,
            )
            for each in listed(conn)
        }
        told = {
            key: (found.bead_id, found.run_id, found.phase)
            for key in [(s, p) for s in "ab" for p in "ab"]
            if (found := sessions.current(conn, *key))
        }

    assert rows == model.rows
    assert told == model.told
