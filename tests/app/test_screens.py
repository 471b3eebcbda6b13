"""What people see on a terminal: compared with the files of tests/data/screens, and attacked."""

import re
import time
import xml.dom.minidom
from unicodedata import category

import pytest
from msgspec import Raw, Struct, structs

from icd.app import registry
from icd.app.human import kinds, text
from icd.app.human.screen import Screen
from icd.app.invocation import Output, Terminal
from icd.app.planner import _harmless
from icd.app.verb import Card, Column, Table
from icd.features.runs import timeline
from icd.server.net import argv_frame
from tests.support import screens

HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07\u202e\u2066日本語 👩‍👩‍👧 e\u0301\r\n\x9b31mx\x00\x7f\u200b\ufeff",
    "x" * 300,
    "日本" * 100,
    "\udcff\ud800",
    "",
    "👩\u200d" * 50,
]
SHOWS = r"list|status|show|get|stale|snapshot|query|search|rank|rules|current|profile|budget"


@pytest.mark.parametrize("command", screens.SAMPLES)
def test_a_screen_is_the_golden_one(command):
    expected = screens.path(command).read_text(encoding="utf-8")

    assert screens.golden(command) == expected, "look at it, then: make screens"


def test_every_command_that_lists_or_shows_has_a_screen_and_a_sample():
    rows = {name: leaf.row for name, leaf in registry.commands().items()}
    people = {name for name, row in rows.items() if row.human is not None}

    assert people == set(screens.SAMPLES)
    assert {name for name in rows if re.search(rf"\b({SHOWS})$", name)} <= people
    kept = set(screens.SCREENS.iterdir()) - {screens.PICTURE, screens.TOP}
    assert kept == {screens.path(name) for name in people}


def test_every_list_says_what_to_do_when_it_is_empty():
    lists = [name for name, (sample, _) in screens.SAMPLES.items() if isinstance(sample, list)]
    never_empty = {"compat status", "config show", "gate rules", "sentinel check-many"}

    for name in set(lists) - never_empty:
        assert screens.shown(name, screens.terminal(80), []).strip(), name


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("run list --status=failed --limit=3", "--status. See all: icctl run list"),
        ("run list --active --scope=x", "--active and --scope. See all: icctl run list"),
        ("run artifact list R --phase=plan", "--phase. See all: icctl run artifact list RUN"),
        ("state list k", "KEY. See all: icctl state list"),
        ("discovery list --tier=high", "--tier. See all: icctl discovery list"),
        ("session list --active-only", "--active-only. See all: icctl session list"),
        ("dispatch list --run=r", "--run. See all: icctl dispatch list"),
        ("coordination list --owner=o", "--owner. See all: icctl coordination list"),
    ],
)
def test_a_list_that_filters_leave_empty_does_not_say_that_there_is_nothing(invoke, argv, told):
    planned = invoke(*argv.split(), terminal=Terminal())

    assert planned.render([]).stdout.decode() == f"Nothing matches {told}\n"


@pytest.mark.parametrize("argv", ["run list --all-projects", "dispatch list --limit=1"])
def test_what_filters_nothing_is_not_blamed_for_an_empty_list(invoke, argv):
    planned = invoke(*argv.split(), terminal=Terminal())

    assert planned.render([]).stdout.decode().startswith("No ")


def test_colours_are_those_that_a_person_has_chosen_for_a_light_or_a_dark_background():
    """Of the palette, and none that one of the two hides: no black, no white, no background."""
    codes = {
        code
        for command in screens.SAMPLES
        for style in screens.STYLES.findall(
            screens.shown(command, screens.terminal(120, colour=True))
        )
        for code in style[2:-1].split(";")
    }

    assert codes == {"0", "1", "2", "31", "32", "33", "36"}


@pytest.mark.parametrize("command", screens.SAMPLES)
def test_no_data_commands_a_terminal_or_leaves_its_line(command):
    sample, _ = screens.SAMPLES[command]
    for word in HOSTILE:
        result = poisoned(sample, word)
        for width in (40, 80, 200):
            plain = screens.shown(command, screens.terminal(width), result)
            coloured = screens.shown(command, screens.terminal(width, colour=True), result)

            stripped = screens.STYLES.sub("", coloured)
            assert [line.rstrip() for line in stripped.split("\n")] == plain.split("\n")
            for line in plain.split("\n"):
                assert all(category(c) not in ("Cc", "Cs") for c in line)
                assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]", line)
                # A document is printed as it is, and may be wider than any terminal.
                assert command == "state get" or text.width(line) <= width, line
            data = coloured.encode()
            assert _harmless(Output(0, data, styled=True)).stdout == data


def poisoned(value, word):
    """The same with another word in place of every text."""
    if isinstance(value, Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__}
        return structs.replace(
            value, **{name: poisoned(each, word) for name, each in found.items() if name != "path"}
        )
    if isinstance(value, list):
        return [poisoned(each, word) for each in value]
    if isinstance(value, dict):
        return {key: poisoned(each, word) for key, each in value.items()}
    if isinstance(value, Raw):
        return value
    if isinstance(value, str):
        return value if re.fullmatch(r"[\d-]{10}T.*Z|error|warning|note|ok", value) else word
    return value


def test_a_timeline_is_a_picture_whatever_its_words_are():
    sample, _ = screens.SAMPLES["run snapshot"]

    assert screens.picture() == screens.PICTURE.read_text(encoding="utf-8")
    for word in [*HOSTILE, "</text><script>alert(1)</script>&\ufffe\"'"]:
        drawn = screens.picture(poisoned(sample, word))

        # Whatever stands there is text: a parser finds the elements that we wrote.
        assert set(re.findall(r"<(\w+)", drawn)) == {"svg", "style", "text", "line", "rect"}
        xml.dom.minidom.parseString(drawn.encode())


def test_a_phase_that_was_entered_again_counts_all_its_time():
    sample, _ = screens.SAMPLES["run snapshot"]
    moves = [
        screens.moved(1, "brainstorm", "planned", 200),
        screens.moved(2, "planned", "brainstorm", 150, event_type="rollback"),
        screens.moved(3, "brainstorm", "executing", 90),
    ]
    found = {
        p.name: p for p in timeline.phases_of(structs.replace(sample, events=moves), screens.NOW)
    }

    assert {name: (p.state, p.seconds / 60, p.visits) for name, p in found.items() if p.visits} == {
        "brainstorm": ("past", 100 + 60, 2),
        "planned": ("past", 50, 1),
        "executing": ("now", 90, 1),
    }
    assert found["strategized"].state == "skipped"
    assert found["review"].state == "ahead"


@pytest.mark.parametrize(
    ("given", "cells"),
    [
        ("abc", 3), ("日本語", 6), ("e\u0301", 1), ("é", 1), ("한국", 4),
        ("\u1112\u1161\u11ab", 2), ("👩‍👩‍👧", 2), ("❤\ufe0f", 2), ("❤", 1), ("🇩🇪", 2),
        ("👍🏽", 2), ("…", 1), ("\uff46\uff55", 4), ("a\u200bb", len("a\\u200bb")),
    ],
)  # fmt: skip
def test_text_is_as_wide_as_a_terminal_draws_it(given, cells):
    assert text.width(text.clean(given)) == cells


@pytest.mark.parametrize("room", range(12))
@pytest.mark.parametrize(
    "given", ["日本語のログ", "plain text", "e\u0301" * 9, "👩‍👩‍👧👍🏽🇩🇪❤\ufe0fx"]
)
def test_what_is_cut_fits_and_is_cut_only_then(given, room):
    for cut in (text.cut, text.cut_middle):
        found = cut(given, room)

        assert text.width(found) <= room
        assert found == given if text.width(given) <= room else text.ELLIPSIS in found or not room
    for line in text.wrapped(given, max(room, 2)):
        assert text.width(line) <= max(room, 2)


@pytest.mark.parametrize(
    ("past", "told"),
    [
        (0, "now"), (0.9, "now"), (59, "59s ago"), (60, "1m ago"), (3599, "59m ago"),
        (47 * 3600, "47h ago"), (48 * 3600, "2d ago"), (60 * 86400, "8w ago"),
        (400 * 86400, "13mo ago"), (900 * 86400, "2y ago"), (-90, "in 1m"),
        (-(10**12), "in 31709y"),
    ],
)  # fmt: skip
def test_an_age_is_told_in_one_unit(past, told):
    assert kinds.moment(1e9 - past, kinds.Clock(1e9)) == told


def test_dates_are_those_of_the_callers_zone_which_the_heading_names():
    form = Table(Column("AT", "at", "age"))
    rows = [{"at": 0}, {"at": 10**18}, {"at": None}]

    def shown(offset):
        return Screen(Terminal(80, offset, absolute=True, now=1e9)).table(form, rows)

    assert shown(0) == ["AT (UTC)", "1970-01-01 00:00:00", "?", "-"]
    assert shown(-12_600)[:2] == ["AT (UTC-3:30)", "1969-12-31 20:30:00"]


def test_columns_are_cut_then_left_out_and_a_line_never_wraps():
    form = Table(
        Column("ID", "id", "id"), Column("SPARE", "spare", spare=True), Column("TEXT", "text")
    )
    rows = [{"id": "abcdefgh", "spare": "s" * 20, "text": "t" * 50}]

    def shown(width):
        return Screen(Terminal(width, now=1e9)).table(form, rows)[1]

    assert shown(100) == f"abcdefgh  {'s' * 20}  {'t' * 50}"
    assert shown(60) == f"abcdefgh  {'s' * 20}  {'t' * 27}…"
    assert shown(36) == f"abcdefgh  {'s' * 11}…  {'t' * 11}…"
    assert shown(30) == f"abcdefgh  {'t' * 19}…"
    assert shown(12) == "abcd…  ttt…" or text.width(shown(12)) <= 12
    assert shown(1) == "…"


@pytest.mark.parametrize("columns", [12, 20, 30])
def test_a_narrow_window_wraps_no_line(columns):
    wide = {}
    for command in screens.SAMPLES:
        lines = screens.shown(command, screens.terminal(columns)).split("\n")
        most = max(map(text.width, lines))
        if most > columns and command != "state get":  # a document is printed as it is
            wide[command] = most

    # Its phases have a sign, a name and a time.
    assert wide == ({"run snapshot": 20} if columns < 20 else {})


def test_what_says_nothing_is_left_out():
    card = Card(Column("A", "a"), Column("B", "b"))
    table = Table(Column("A", "a"), Column("B", "b", spare=True))
    row = {"a": 1, "b": None}
    screen = Screen(Terminal(80, now=1e9))

    assert list(screen.card(card, row)) == ["A  1"]
    assert screen.table(table, [row]) == ["A", "1"]


# --- who is asked for, by the words and the caller's world ---


def at(width=100, **more):
    return Terminal(width, 0, **{"colour": True, "now": 1e9, **more})


def test_the_callers_world_decides_what_a_terminal_gets(ic):
    piped = ic("lease", "list", "--json").stdout
    empty = b"No lease is held. Take one: icctl lease acquire NAME SCOPE --ttl=30m\n"

    assert ic("lease", "list", terminal=at()).stdout == b"\x1b[2m" + empty[:-1] + b"\x1b[0m\n"
    assert ic("lease", "list", terminal=at(), env={"NO_COLOR": "1"}).stdout == empty
    assert ic("lease", "list", terminal=at(), env={"NO_COLOR": ""}).stdout != empty
    assert ic("lease", "list", "--plain", terminal=at()).stdout == b""
    assert ic("lease", "list", "--json", terminal=at()).stdout == piped
    assert ic("lease", "list").stdout == b""


@pytest.mark.parametrize(
    ("columns", "width"),
    [("40", 40), ("0", 100), ("", 100), ("x", 100), ("-3", 100), ("9" * 30, 100), ("١٢", 100)],
)
def test_an_exported_width_counts_more_than_the_kernels_if_it_is_one(ic, columns, width):
    terminal = at(colour=False)
    ic("lease", "list", terminal=terminal, env={"COLUMNS": columns})

    assert terminal.width == width


@pytest.mark.parametrize(
    ("field", "terminal"),
    [
        (b"120 3600 1", Terminal(120, 3600, True)),
        (b"0 -12600 0", Terminal(80, -12_600, False)),
        (b"65535 0 0", Terminal(1000, 0, False)),
        (b"", None), (b"80", None), (b"80 0", None), (b"80 0 1 2", None), (b"x 0 1", None),
        (b"-1 0 1", None), (b"80 99999999 1", None), (b"9" * 5000 + b" 0 1", None),
    ],
)  # fmt: skip
def test_a_daemon_believes_in_a_terminal_only_if_it_makes_sense(field, terminal):
    frame = argv_frame.Frame(b"", [b"w" + field], b"")

    assert argv_frame.world(frame).terminal == terminal


def test_nothing_found_is_said_to_a_person_and_the_exit_status_is_the_same(ic):
    for terminal in (None, at(colour=False)):
        found = ic("state", "get", "k", "s", terminal=terminal)

        assert found.exit == 1
        assert found.stdout == (b"There is no such thing.\n" if terminal else b"")


def test_a_word_of_a_megabyte_is_wrapped_in_one_pass():
    """Measured again for each line, it took minutes of everybody's daemon."""
    began = time.process_time()

    lines = text.wrapped("字" * 200_000, 80)

    assert "".join(lines) == "字" * 200_000
    assert max(map(text.width, lines)) <= 80
    assert time.process_time() - began < 5
