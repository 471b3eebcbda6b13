"""The editor of JSON documents: what it adds, it can take away again, and it touches nothing else."""

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from icd.admin.setup import jsonc
from icd.admin.setup.documents import Entry, Json
from icd.admin.setup.jsonc import Malformed
from tests.support.agent_configurations import CLAUDE, REFUSED

FIELDS = {"type": "command", "command": "", "timeout": 10}
HOOK = Entry("a hook", ("hooks", "SessionStart"), "icctl", "service ensure", FIELDS)
LINE = Entry("a line", ("statusLine",), "icctl", "statusline --from=claude", {}, "member")
SERVER = Entry("a server", ("mcpServers", "intercore"), "icctl", "mcp", {}, "server")
OURS = Json([HOOK, LINE, SERVER])


# --- documents of any form ------------------------------------------------------------------


class Pairs(list):  # type: ignore[type-arg]
    """An object whose names may occur twice."""


NAMES = st.sampled_from(["hooks", "SessionStart", "Stop", "mcpServers", "a", "b", "é", "a"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8), st.sampled_from(["//", "/*", "*/", "{", '"']),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(st.tuples(NAMES, inner), max_size=3).map(Pairs)
    ),
    max_leaves=8,
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["SessionStart", "Stop"]), st.lists(VALUES, max_size=3))
)
MEMBERS = st.one_of(
    st.tuples(st.sampled_from(["a", "b", "é", "c d"]), VALUES),
    st.tuples(st.just("hooks"), EVENTS.map(Pairs)),
    st.tuples(st.just("mcpServers"), st.lists(st.tuples(st.just("x"), VALUES)).map(Pairs)),
)
BLANKS = st.text(" \t\n", max_size=4)
COMMENTS = st.sampled_from(["// c\n", "/* c */", "/* // */", "// /* \n", '// "hooks": {}\n'])


@st.composite
def documents(draw: st.DrawFn, *, comments: bool) -> str:
    """An object in any layout."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    trivia = st.one_of(st.just(""), BLANKS, st.tuples(BLANKS, COMMENTS, BLANKS).map("".join))
    gap = trivia if comments else BLANKS

    def shown(value: object) -> str:
        if not isinstance(value, list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        is_object = isinstance(value, Pairs)
        parts = [
            f"{json.dumps(v[0])}{draw(gap)}:{draw(gap)}{shown(v[1])}" if is_object else shown(v)
            for v in value
        ]
        body = ",".join(f"{draw(gap)}{part}{draw(gap)}" for part in parts) or draw(gap)
        end = f",{draw(gap)}" if parts and comments and draw(st.booleans()) else ""
        return f"{{{body}{end}}}" if is_object else f"[{body}{end}]"

    mark = draw(st.sampled_from(["", "\ufeff"])) if comments else ""
    members = Pairs(draw(st.lists(MEMBERS, max_size=4)))
    text = f"{draw(gap)}{shown(members)}{draw(gap)}"
    return mark + text.replace("\n", newline)


def accepted(text: str) -> str:
    """With our entries, unless something is in the way."""
    try:
        return OURS.added(text)
    except Malformed:
        assume(False)
        raise


def containers(text: str) -> list[jsonc.Node]:
    """The containers that our entries go into, as far as they are there."""
    root = jsonc.parse(text)
    assert root is not None
    found = [root]
    for names in (("hooks", "SessionStart"), ("mcpServers",)):
        node: jsonc.Node | None = root
        for name in names:
            node = node and node.last(name)
            found += [node] if node else []
    return found


@given(documents(comments=True))
def test_what_is_added_can_be_removed_to_the_byte(text):
    assume(all(node.children for node in containers(text)))

    with_ours = accepted(text)

    assert OURS.removed(with_ours) == text


@given(documents(comments=True))
def test_what_is_added_changes_nothing_else(text):
    with_ours = accepted(text)

    assert [found.state for found in OURS.found(with_ours)].count("ours") >= 3
    assert OURS.added(with_ours) == with_ours
    left = jsonc.parse(OURS.removed(with_ours))
    assert left is not None
    assert pruned(left.plain()) == pruned(jsonc.parse(text).plain())  # type: ignore[union-attr]
    # Every piece of the former text is still there, in its order.
    assert is_within(text, with_ours)


def pruned(value):
    """Without the containers that are empty, and could be ours."""
    value = dict(value)
    for outer, inner in (("hooks", "SessionStart"), ("mcpServers", None)):
        if isinstance(value.get(outer), dict):
            rest = {k: v for k, v in value[outer].items() if not (k == inner and v == [])}
            value[outer] = rest
            if not rest:
                del value[outer]
    return value


def is_within(text, longer):
    """Whether a text without its white space is what a longer one is after cuts."""
    rest = iter(re.sub(r"\s", "", longer))
    return all(char in rest for char in re.sub(r"\s", "", text))


@given(documents(comments=False))
def test_plain_json_stays_plain_json(text):
    with_ours = accepted(text)

    found = json.loads(with_ours)
    assert found["statusLine"] == LINE.value
    assert found["mcpServers"]["intercore"] == SERVER.value
    assert {"hooks": [HOOK.value]} in found["hooks"]["SessionStart"]


@given(st.text(alphabet='{}[]:,"\\/* \n\r\t01eE.-truefalsn\ufeff', max_size=60))
def test_what_a_strict_parser_reads_is_read_alike_and_nothing_hangs(text):
    try:
        node = jsonc.parse(text)
    except Malformed:
        node = None
        read = False
    else:
        read = True
    try:
        wanted = json.loads(text)
    except ValueError:
        return
    assert read
    assert node is not None
    assert node.plain() == wanted


# --- examples -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, found in CLAUDE.items() if found])
def test_a_configuration_is_extended_in_its_own_style(name):
    text = CLAUDE[name].decode()

    with_ours = OURS.added(text)

    newlines = set(re.findall(r"\r\n|\n|\r", text))
    assert set(re.findall(r"\r\n|\n|\r", with_ours)) <= (newlines or {"\n"})
    if "\t" in text:
        assert "\n  " not in with_ours


def test_a_document_on_one_line_stays_on_one_line():
    assert OURS.added('{"a":1}').count("\n") == 0
    assert ', "hooks": {' in OURS.added('{"a": 1}')


def test_a_comment_behind_the_last_member_stays_with_it():
    text = '{\n  "a": 1 // one\n}\n'

    assert OURS.added(text).startswith('{\n  "a": 1, // one\n  "hooks": {\n')


def test_a_comment_before_the_last_members_keeps_the_end_of_its_line():
    text = '{"a":1,// c\n"hooks":{}}'

    assert OURS.removed(accepted(text)) == '{"a":1// c\n}'


def test_a_trailing_comma_is_kept():
    assert OURS.added('{\n  "a": 1,\n}\n').endswith("},\n}\n")


def test_what_others_added_behind_ours_stays():
    text = OURS.added('{\n  "a": 1\n}\n')
    changed = text.replace('"statusLine"', '"b": 2, // two\n  "statusLine"')

    assert OURS.removed(changed) == '{\n  "a": 1,\n  "b": 2 // two\n}\n'


def test_the_comment_of_a_container_keeps_it():
    text = OURS.added('{\n  "a": 1\n}\n').replace('"hooks": {\n', '"hooks": { // mine\n', 1)

    assert OURS.removed(text) == '{\n  "a": 1,\n  "hooks": { // mine\n  }\n}\n'


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in ("not UTF-8", "UTF-16")])
def test_a_text_that_is_not_understood_is_refused(name):
    with pytest.raises(Malformed):
        OURS.added(REFUSED[name].decode())


def test_a_refusal_names_the_line():
    with pytest.raises(Malformed, match="line 3"):
        jsonc.parse('{\n  "a": 1\n  "b": 2\n}')
