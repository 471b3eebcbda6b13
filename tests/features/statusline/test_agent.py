"""`icctl statusline --from=claude`: the agent's own figures, and what is known of its session."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from icd.db.paths import Where
from icd.errors import Corrupt, NoDatabase
from icd.features.statusline import agent
from icd.features.statusline.store import Budget, Pressure, Run, Statusline

EVENT = {
    "session_id": "s1",
    "workspace": {"current_dir": "/tmp"},
    "model": {"display_name": "Opus"},
    "cost": {"total_cost_usd": 1.234},
    "context_window": {"used_percentage": 42.4},
    "rate_limits": {"five_hour": {"used_percentage": 61}, "seven_day": {"used_percentage": 90}},
}
KNOWN = Statusline(
    session="s1",
    run=Run("run1", "planned", None, 0),
    budget=Budget(70, None, 0),
    pressure=Pressure("red", None, None, 0),
)
WHOLE = "Opus | ctx 42% | $1.23 | 5h 61% | 7d 90% | run run1 planned | budget 70% | pressure red"


def line(event, known=KNOWN, *, width=200, colour=False):
    figures = agent.read(json.dumps(event).encode())
    return agent.show(figures, known, width=width, colour=colour).stdout.decode()


def test_a_line_has_the_models_figures_and_what_is_known():
    assert line(EVENT) == WHOLE + "\n"


def test_colours_say_how_urgent_it_is():
    shown = line(EVENT, colour=True)

    assert "\x1b[32mctx 42%\x1b[0m" in shown
    assert "\x1b[33m5h 61%\x1b[0m" in shown
    assert "\x1b[31m7d 90%\x1b[0m" in shown
    assert "\x1b[31mpressure red\x1b[0m" in shown
    assert re.sub(r"\x1b\[[0-9]+m", "", shown) == WHOLE + "\n"


def test_what_the_session_has_reserved_is_in_the_line():
    assert " 2 reserved " in line(EVENT, structs.replace(KNOWN, reservations=2))


@pytest.mark.parametrize("width", range(20, 100))
def test_a_line_fits_and_loses_the_least_important_first(width):
    shown = line(EVENT, width=width).rstrip("\n")

    assert len(shown) <= width
    assert shown.startswith("Opus")
    if "pressure" in shown:
        assert "run run1" in shown


def test_what_is_too_wide_alone_is_cut_in_columns():
    shown = line({"model": {"display_name": "模型" * 50}}, Statusline("s"), width=21)

    assert shown == "模型" * 5 + "…\n"


HOSTILE = ["\x1b]0;x\x07", "\x9b31m", "a\nb\rc", "\u202eabc", "\x1b[31m", "\ud800", "\x7f"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_character_of_an_event_commands_the_terminal(ic, database, text):
    event = {**EVENT, "model": {"display_name": text + "x"}, "session_id": text}

    output = ic("statusline", "--from=claude", stdin=json.dumps(event).encode())

    plain = re.sub(rb"\x1b\[(0|2|3[1-6])m", b"", output.stdout).decode()
    assert output.exit == 0
    assert plain.endswith("\n")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain)
    assert plain.count("\n") == 1


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        [*EVENT, "used_percentage", "display_name", "current_dir", "total_cost_usd", "five_hour"]
    ), inner, max_size=5),
)  # fmt: skip


@given(ANY)
def test_any_json_is_taken(event):
    assert line(event, Statusline("s")).count("\n") <= 1


@pytest.mark.parametrize("data", [b"", b"no json", b"[" * 60_000, b"\xff", b" " * 70_000])
def test_what_is_no_json_tells_nothing(data):
    assert agent.read(data) == agent.Figures()


@pytest.mark.parametrize(
    ("given", "width"),
    [("100", 100), ("", 80), ("x", 80), ("-5", 80), ("1", 20), ("9999", 1000), ("²", 80), ("1" * 99, 80)],
)  # fmt: skip
def test_the_width_is_that_of_the_callers_terminal(given, width):
    assert agent.width_of(given) == width


# --- the command ---


@pytest.fixture
def asked(ic, project):
    def ask(*words, env=None, **event):
        sent = {**EVENT, "workspace": {"current_dir": str(project)}, **event}
        return ic("statusline", "--from=claude", *words, stdin=json.dumps(sent).encode(),
                  env=env or {})  # fmt: skip

    return ask


def test_session_and_directory_are_those_of_the_event(asked, ic, invoke):
    ic("state", "set", "budget", "s1", "--value", '{"pct_consumed": 70}')

    found = json.loads(asked("--format=json", env={"CLAUDE_SESSION_ID": "of-the-shell"}).stdout)

    assert (found["session"], found["budget"]["pct_consumed"]) == ("s1", 70)
    assert json.loads(asked("--format=json", "--session=x").stdout)["session"] == "x"
    own = asked("--format=json", session_id=None, env={"CLAUDE_SESSION_ID": "mine"})
    assert json.loads(own.stdout)["session"] == "mine"
    sent = json.dumps({"workspace": {"current_dir": "/a/b"}}).encode()
    env = {"INTERCORE_DB": "x.db"}
    call = invoke("statusline", "--from=claude", stdin=sent, env=env).call
    assert (call.where, call.params.cwd) == (Where("/a/b", None, "x.db"), "/a/b")
    hostile = invoke("statusline", "--from=claude", stdin=b'{"cwd": "/a\\u0000b"}').call
    assert hostile.where.cwd == hostile.params.cwd


def test_columns_and_no_color_are_the_callers(asked):
    assert b"\x1b" in asked().stdout
    assert b"\x1b" in asked(env={"NO_COLOR": ""}).stdout
    narrow = asked(env={"NO_COLOR": "1", "COLUMNS": "20"})
    assert narrow.stdout == b"Opus | ctx 42%\n"


def test_it_cannot_be_watched(asked):
    assert asked("--watch").exit == 3


def test_without_a_database_there_is_the_models_part(shown):
    sent = json.dumps({**EVENT, "rate_limits": None}).encode()

    output = shown("statusline", "--from=claude", stdin=sent, error=NoDatabase("there is none"))

    told = b"\x1b[36mOpus\x1b[0m | \x1b[32mctx 42%\x1b[0m | \x1b[2m$1.23\x1b[0m\n"
    assert (output.exit, output.stdout, output.stderr) == (0, told, b"")


def test_a_database_that_cannot_be_used_is_told_beside_the_models_part(shown):
    sent = json.dumps(EVENT).encode()

    output = shown("statusline", "--from=claude", stdin=sent, error=Corrupt("it is damaged"))

    assert (output.exit, output.stderr.count(b"\n")) == (0, 1)
    assert output.stdout.startswith(b"\x1b[36mOpus")
