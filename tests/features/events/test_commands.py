"""`icctl events …`, `icctl events cursor …`, `icctl interspect …`."""

import json

import pytest

from icd.app.dispatch import run_batch
from icd.app.invocation import Terminal
from icd.app.planner import advance, resume
from icd.features.events import store as events
from icd.features.state import store as state
from icd.values.processes import Writer


@pytest.fixture
def record(stdout):
    def recorded(*words, source="ci", kind="built"):
        return stdout("events", "record", f"--source={source}", f"--type={kind}", *words)

    return recorded


@pytest.fixture
def tail(stdout):
    def found(*words):
        return [json.loads(line)["seq"] for line in stdout("events", "tail", *words).splitlines()]

    return found


REVIEW = (
    '{"finding_id":"f","agents":{"a":"P1"},"resolution":"r","chosen_severity":"P1","impact":"i"}'
)


def test_record_prints_the_id(record):
    assert [record(), record(), record("--idempotency-key=k"), record("--idempotency-key=k")] == [
        "1\n", "2\n", "3\n", "3\n",
    ]  # fmt: skip


def test_record_prints_ok_where_the_original_does(record):
    lock = '--payload={"lock_id":"l","owner":"o","pattern":"*","scope":"s"}'
    intent = '--payload={"intent_type":"t","bead_id":"b","idempotency_key":"k"}'

    assert record(lock, source="coordination") == record(intent, source="intent") == "ok\n"


def test_record_takes_everything_about_an_event(stdout, conn, project):
    stdout(
        "events", "record", "--source=ci", "--type=t", "--run=r", "--subject=s", "--from=a",
        "--to=b", "--reason=why", "--session=me", "--project=sub", '--payload={"a": 1}',
        env={"IC_TRACE_ID": "t1", "IC_SPAN_ID": "s1"},
    )  # fmt: skip

    (event,) = events.read(conn, limit=1)

    assert (event.run_id, event.subject_id, event.from_state, event.to_state, event.reason) == (
        "r", "s", "a", "b", "why",
    )  # fmt: skip
    assert (event.session, event.trace_id, event.span_id) == ("me", "t1", "s1")
    assert (event.project_dir, event.pid) == (str(project / "sub"), 41)


def test_a_payload_may_come_from_a_file(ic, conn):
    output = ic(
        "events", "emit", "--type=execution_defect", "--payload=@f.json",
        files={"f.json": REVIEW.encode()},
    )  # fmt: skip

    (event,) = events.read(conn, limit=1)

    assert (output.stdout, event.source, event.subject_id) == (b"1\n", "review", "f")


def test_tail_prints_json_lines_in_the_order_of_the_contract(stdout, record):
    record("--run=r1", "--from=a", "--to=b", "--reason=<why>", '--payload={"x":\n1}')

    line = stdout("events", "tail", "r1")

    assert list(json.loads(line))[:10] == [
        "id", "run_id", "source", "type", "from_state", "to_state", "reason", "timestamp", "seq",
        "at_ms",
    ]  # fmt: skip
    assert line.count("\n") == 1
    assert '"reason":"\\u003cwhy\\u003e"' in line


@pytest.mark.parametrize(
    "words, found",
    [
        (["--all"], [1, 2, 3]),
        (["r1"], [2]),
        (["nobody"], []),
        (["--all", "--limit=2"], [1, 2]),
        (["--all", "--limit", "0"], [1, 2, 3]),
        (["--all", "--limit=99999999"], [1, 2, 3]),
        (["--all", "--since=2"], [3]),
        (["--all", "--source=phase"], [3]),
        (["--all", "--type=built", "--since", "1"], [2]),
        (["--all", "--since-phase=3"], [1, 2]),
        (["--all", "--since-dispatch=3", "--since-discovery=3", "--poll-interval=1s"], [1, 2, 3]),
    ],
)
def test_tail_finds_what_was_asked_for(record, tail, words, found):
    record()
    record("--run=r1")
    record(source="phase", kind="advance")

    assert tail(*words) == found


@pytest.mark.parametrize(
    "words",
    [["-f", "--until=1h"], ["-n", "x"], ["--since=soon"], ["--consumer=c", "-n", "5"],
     ["--consumer=c", "--since=1h"], ["--consumer=c", "--session=s"], ["--all", "--ack=manual"], ["--all", "--acked=1"], ["--all", "--since=-1"],
     ["a", "b"], ["--all", "--limit=x"], ["--all", "--bogus"], ["--all", "--ack=never"]],
)  # fmt: skip
def test_mistakes_are_mistakes(ic, words):
    assert ic("events", "tail", *words).exit == 3


# --- what follows once the lines are written ------------------------------------------------


def test_a_consumer_acknowledges_after_it_has_written(ic, record):
    record()
    record("--run=r1")

    assert ic("events", "tail", "--all", "--consumer=c").then == [
        "events", "cursor", "ack", "--", "c", "2",
    ]  # fmt: skip
    chosen = ["--db=.clavain/intercore.db", "--timeout=2s"]
    assert ic("events", "tail", "r1", "--consumer=-c", *chosen).then == [
        "--db", ".clavain/intercore.db", "--timeout=2000ms", "events", "cursor", "ack", "--run=r1", "--", "-c", "2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words", [["--all"], ["--all", "--consumer=c", "--ack=manual"], ["none", "--consumer=c"]]
)
def test_whoever_has_nothing_to_acknowledge_is_done(ic, record, words):
    record()

    assert ic("events", "tail", *words).then == []


@pytest.mark.parametrize(
    "words, goes_on",
    [
        (["--all", "--consumer=c"], "--limit=2 --consumer=c --acked=2 --all"),
        (["--all", "--consumer=c", "--source=ci", "--type=built"], "--limit=2 --source=ci --type=built --consumer=c --acked=2 --all"),
        (["--all", "--consumer=c", "--since=0"], "--limit=2 --consumer=c --acked=2 --since=2 --all"),
        (["--all", "--consumer=c", "--ack=manual"], "--limit=2 --consumer=c --ack=manual --since=2 --all"),
        (["--all", "--consumer=c", "--since-phase=7"], "--limit=2 --since-phase=7 --consumer=c --acked=2 --since=2 --all"),
        (["r1", "--consumer=c", "--since=0"], "--limit=2 --consumer=c --acked=2 --since=2 -- r1"),
    ],
)  # fmt: skip
def test_a_consumer_that_follows_goes_on_after_what_it_has_written(ic, record, words, goes_on):
    for _ in range(3):
        record("--run=r1")

    output = ic("events", "tail", "-f", "--limit=2", *words)

    assert output.then == ["events", "tail", "--follow", *goes_on.split()]


@pytest.fixture
def ask(database, clock):
    """Have a planned question answered: what is printed, and what is asked next."""

    def answered(planned):
        (answer,) = run_batch(database, [planned.call], clock=clock)
        return advance(planned, answer)

    return answered


@pytest.mark.parametrize(
    "words, same",
    [
        (["--all"], {}),
        (["r1"], {"run_id": "r1"}),
        (["--all", "--source=ci", "--type=built"], {"source": "ci", "type": "built"}),
        (["--all", "--since-phase=7"], {"marks": events.Marks(phase=7)}),
    ],
)
def test_a_plain_follow_asks_again_after_what_it_was_shown(invoke, ask, record, words, same):
    for _ in range(3):
        record("--run=r1")
    first = invoke("events", "tail", "-f", "--limit=2", *words)

    shown, second = ask(first)
    rest, third = ask(second)
    nothing, fourth = ask(third)

    assert [len(output.stdout.splitlines()) for output in (shown, rest, nothing)] == [2, 1, 0]
    assert [output.then for output in (shown, rest, nothing)] == [[], [], []]
    asked = [plan.call.params for plan in (first, second, third, fourth)]
    assert [params.since for params in asked] == [0, 2, 3, 3]
    assert {name: [getattr(params, name) for params in asked] for name in same} == {
        name: [value] * 4 for name, value in same.items()
    }
    # There is more after the first answer: nobody has to write for the second question.
    assert [plan.patience for plan in (second, third, fourth)] == [0.0, None, None]


def test_a_plain_follow_goes_on_from_its_place_in_the_next_daemon(invoke, ask, record):
    for _ in range(3):
        record()
    words = ["events", "tail", "-f", "--all", "--since=1", "--limit=1"]
    _, left = ask(invoke(*words))

    shown, _ = ask(resume(invoke(*words), left.place))
    again, _ = ask(resume(invoke(*words), b""))

    assert [json.loads(line)["seq"] for line in shown.stdout.splitlines()] == [3]
    assert [json.loads(line)["seq"] for line in again.stdout.splitlines()] == [2]


def test_a_plain_follow_that_was_overtaken_by_pruning_is_told_so(invoke, ask, record, stdout):
    record()
    _, following = ask(invoke("events", "tail", "-f", "--all"))
    for _ in range(3):
        record()
    stdout("events", "prune", "--keep=1")

    output, last = ask(following)

    assert (output.exit, output.stdout, last) == (2, b"", None)
    assert b"events after 1 have been pruned; the oldest is 4" in output.stderr


def test_an_old_client_that_cannot_tell_what_it_has_written_is_refused(ic, record):
    record()

    for words in (["--consumer=c"], ["-f", "--consumer=c", "--ack=manual"]):
        output = ic("events", "tail", "--all", *words, continues=False)
        assert (output.exit, output.stdout) == (2, b"")
        assert b"upgrade icctl" in output.stderr
    for words in ([], ["-f"]):  # which acknowledge nothing
        assert ic("events", "tail", "--all", *words, continues=False).exit == 0
    assert ic("events", "tail", "--all", "--consumer=c", "--ack=manual", continues=False).exit == 0


# --- cursors --------------------------------------------------------------------------------


def test_cursors_are_listed_as_the_original_lists_them(stdout, record, conn):
    record(source="phase", kind="advance")
    record()
    stdout("events", "cursor", "ack", "b", "1")
    stdout("events", "cursor", "ack", "a", "2", "--run=r1")

    lines = [line.split("\t") for line in stdout("events", "cursor", "list").splitlines()]

    assert [name for name, _ in lines] == ["a:r1", "b"]
    assert lines[1][1].startswith(
        '{"phase":1,"dispatch":0,"interspect":0,"discovery":0,"seq":1,"lag":1,'
    )
    assert stdout("events", "cursor", "get", "b") == lines[1][1] + "\n"


def test_registering_tells_what_the_cursor_is_now(stdout):
    words = [["c"], ["c", "--durable"], ["c"]]

    assert [stdout("events", "cursor", "register", *w) for w in words] == [
        "registered c (ttl: 24h)\n", "registered c (durable)\n", "registered c (durable)\n",
    ]  # fmt: skip


def test_set_reset_and_get(ic, stdout, record):
    record()
    stdout("events", "cursor", "set", "c", "1")

    assert json.loads(stdout("events", "cursor", "get", "c"))["seq"] == 1
    assert stdout("events", "cursor", "reset", "c") == "reset\n"
    assert stdout("events", "cursor", "reset", "c") == "not found\n"
    assert ic("events", "cursor", "get", "c").exit == 1


@pytest.mark.parametrize(
    "words", [["set", "c"], ["set", "c", "1", "--phase=1"], ["ack", "c"], ["ack", "c", "x"], ["get"],
              ["bogus"], []],
)  # fmt: skip
def test_mistakes_with_cursors(ic, words):
    assert ic("events", "cursor", *words).exit == 3


def test_a_cursor_of_the_original_goes_on_where_it_was(stdout, record, tail, conn, clock):
    for source in ("phase", "dispatch", "phase"):
        record(source=source)
    old = '{"phase":1,"dispatch":2,"interspect":0,"discovery":0}'
    state.set(conn, "cursor", "c", old, writer=Writer(), now_ms=clock.now_ms())

    assert tail("--all", "--consumer=c") == [3]


# --- prune ----------------------------------------------------------------------------------


def test_prune_tells_what_waits_for_durable_cursors(ic, stdout, record):
    for _ in range(3):
        record()
    stdout("events", "cursor", "register", "c", "--durable")

    output = ic("events", "prune", "--keep=1")

    assert (output.exit, output.stdout) == (0, b"0 pruned\n")
    assert b"2 more wait for durable cursors or hooks; --force" in output.stderr
    assert stdout("events", "prune", "--keep=1", "--force") == "2 pruned\n"
    assert stdout("events", "prune", "--older-than=1h") == "0 pruned\n"
    assert ic("events", "prune").exit == 3


def test_a_consumer_behind_is_told_the_oldest_event(ic, stdout, record):
    for _ in range(3):
        record()
    stdout("events", "cursor", "ack", "c", "1")
    stdout("events", "prune", "--keep=1")

    output = ic("events", "tail", "--all", "--consumer=c")

    assert (output.exit, output.stdout, output.then) == (2, b"", [])
    assert b"events after 1 have been pruned; the oldest is 3; 'icctl events cursor reset c'" in (
        output.stderr
    )


# --- interspect -----------------------------------------------------------------------------


def test_interspect_looks_as_it_always_has(stdout):
    first = stdout(
        "interspect", "record", "--agent=a", "--type=override", "--run=r", "--reason=why",
        "--context=not { json", "--session=s", "--project=/p",
    )  # fmt: skip
    stdout("interspect", "record", "--agent=b", "--type=ok", "--project=/p")

    lines = stdout("interspect", "query").splitlines()

    assert first == "1\n"
    assert lines[0] == (
        '{"id":1,"run_id":"r","agent_name":"a","event_type":"override","override_reason":"why",'
        '"context_json":"not { json","session_id":"s","project_dir":"/p",'
        '"timestamp":"2027-01-15T08:00:00Z"}'
    )
    assert lines[1:] == [
        '{"id":2,"agent_name":"b","event_type":"ok","project_dir":"/p","timestamp":"2027-01-15T08:00:00Z"}'
    ]  # fmt: skip
    assert stdout("interspect", "query", "--agent=b").splitlines() == lines[1:]
    assert stdout("interspect", "query", "--since=1", "--limit=5").splitlines() == lines[1:]
    assert stdout("interspect", "query", "--limit=1").splitlines() == lines[:1]


@pytest.mark.parametrize(
    "payload, agent",
    [
        ('{"agent_name":"a","n":1e999}', "a"),
        ('{"agent_name":1e999}', "1e999"),
        ('{"agent_name":"\\ud800"}', "\\ud800"),
    ],
)
def test_what_an_event_says_may_be_beyond_our_own_types(stdout, payload, agent):
    stdout("events", "record", "--source=interspect", "--type=t", f"--payload={payload}")

    (line,) = stdout("interspect", "query").splitlines()

    assert json.loads(line)["agent_name"] == agent


@pytest.mark.parametrize(
    "payload, context",
    [
        ('{"context_json":"x","n":1e999}', "x"),
        ('{"context_json":{"n":1e999}}', '{"n":1e999}'),
        ('{"context_json":"\\ud800"}', ""),
        ("[1]", ""),
        ("[" * 900 + "]" * 900, ""),
    ],
)
def test_events_about_agents_that_were_imported_may_say_anything(stdout, conn, payload, context):
    stdout("interspect", "record", "--agent=a", "--type=t")
    with conn:
        conn.execute("UPDATE events SET payload = ?", (payload,))

    (line,) = stdout("interspect", "query").splitlines()

    assert json.loads(line).get("context_json", "") == context


@pytest.mark.parametrize("words", [["record", "--agent=a"], ["record", "--type=t"], ["query", "x"]])
def test_mistakes_about_agents(ic, words):
    assert ic("interspect", *words).exit == 3


# --- the newest, and those of a time --------------------------------------------------------------


def test_the_newest_are_printed_in_the_order_of_the_log(record, tail):
    for _ in range(5):
        record()
    record(source="other")

    assert tail("-n", "2") == tail("--all", "--lines=2") == [5, 6]
    assert tail("-n", "2", "--source=ci") == [4, 5]
    assert tail("-n", "9", "--since=4") == [5, 6]
    assert tail("-n0") == []


def test_what_says_nothing_new_starts_where_it_always_did(record, tail):
    for _ in range(105):
        record()

    assert tail("--all") == tail() == list(range(1, 101))
    assert tail("--all", "--limit=0") == tail("--since=1s") == list(range(1, 106))


def test_a_person_sees_the_newest_and_a_line_for_each(record, stdout):
    for number in range(25):
        record(f"--reason=no {number}")
    terminal = Terminal(width=60)

    shown = stdout("events", "tail", terminal=terminal).splitlines()
    named = stdout("events", "tail", "--since=3", "--limit=2", terminal=terminal).splitlines()
    piped = stdout("events", "tail", "--plain", terminal=terminal)

    assert [line.split("no ")[1].split()[0] for line in shown] == [str(n) for n in range(5, 25)]
    assert [line.split("no ")[1].split()[0] for line in named] == ["3", "4"]
    assert piped == stdout("events", "tail")
    assert "No such events" in stdout("events", "tail", "--source=none", terminal=terminal)


def test_a_follower_on_a_terminal_is_told_lines_and_no_hint(invoke, database, clock, record):
    planned = invoke("events", "tail", "-f", terminal=Terminal(width=60))
    nothing, following = advance(planned, _answer(database, planned, clock))
    record("--reason=why")

    output, _ = advance(following, _answer(database, following, clock))

    assert nothing.stdout == b""
    assert output.stdout.split()[2:] == [b"ci", b"built", b"why", b"pid", b"41"]


def test_events_are_those_of_a_session_and_of_a_run(record, tail):
    record("--session=one", "--run=r")
    record("--session=two", "--run=r")
    record("--session=one", "--run=s")

    assert tail("--session=one") == [1, 3]
    assert tail("r", "--session=one") == tail("-n", "1", "--session=one", "r") == [1]
    assert tail("r", "-n", "1") == [2]


def test_a_time_is_an_age_a_date_or_a_place_in_the_log(record, tail, clock):
    for _ in range(3):
        record()
        clock.wall_ms += 3_600_000

    assert tail("--since=90m") == [3]
    assert tail("--since=2h") == [2, 3]
    assert tail("--until=2h") == [1, 2]
    assert tail("--since=2h", "--until=2h") == [2]
    assert tail("--until=2") == [1, 2]
    assert tail("--since=1", "--until=2") == [2]
    assert tail("--since=2000-01-01") == tail("--until=9999-12-31T23:59Z") == [1, 2, 3]
    assert tail("--since=9999-12-31") == tail("--until=1970-01-01") == []


def test_a_time_of_day_is_that_of_its_zone_and_else_of_greenwich(record, tail, stdout, clock):
    record()
    first = json.loads(stdout("events", "tail"))["timestamp"]  # ends in Z
    clock.wall_ms += 3_600_000
    record()
    later = json.loads(stdout("events", "tail", "-n", "1"))["timestamp"]

    assert tail(f"--since={later}") == tail(f"--since={later.removesuffix('Z')}") == [2]
    assert tail(f"--until={first.replace('Z', '.999Z')}") == [1]
    assert tail(f"--since={later.replace('Z', '+02:00')}") == [1, 2]


def test_a_clock_that_went_back_hides_nothing_from_a_follower(invoke, database, clock, record):
    """Where to start is a question of time once; from there, the log decides."""
    record()
    planned = invoke("events", "tail", "-f", "--since=1h")
    _, following = advance(planned, _answer(database, planned, clock))
    clock.wall_ms -= 7_200_000
    record()

    output, _ = advance(following, _answer(database, following, clock))

    assert [json.loads(line)["seq"] for line in output.stdout.splitlines()] == [2]


def test_the_newest_of_large_payloads_are_the_last_ones(conn):
    big = json.dumps("x" * 1000)
    fact = events.Fact("ci", "t", payload=big)
    for _ in range(4):
        events.append(conn, fact, actor=Writer(None, None, None, None), now_ms=0)
    before, events.BATCH_CHARACTERS = events.BATCH_CHARACTERS, 2000
    try:
        found, more = events.page(conn, events.Wanted(limit=4, newest=True))
    finally:
        events.BATCH_CHARACTERS = before

    assert ([event.seq for event in found], more) == ([3, 4], False)


def _answer(database, asked, clock):
    (answer,) = run_batch(database, [asked.call], clock=clock)
    return answer
