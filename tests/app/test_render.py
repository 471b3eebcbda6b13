"""How results look."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from icd.app import render
from icd.app.invocation import Output

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda children: st.lists(children) | st.dictionaries(st.text(max_size=8), children),
    max_leaves=8,
)


def test_lines_end_with_a_line_break():
    assert render.text("a", "b") == Output(0, b"a\nb\n")


def test_no_lines_are_nothing():
    assert render.text(exit_code=1) == Output(1, b"")


def test_json_is_compact_and_its_keys_are_sorted():
    assert render.to_json({"b": 1, "a": [1, 2], "c": {"z": None, "y": True}}).stdout == (
        b'{"a":[1,2],"b":1,"c":{"y":true,"z":null}}\n'
    )


def test_html_is_escaped_as_the_original_does():
    assert render.to_json("<a>&</a>").stdout == rb'"\u003ca\u003e\u0026\u003c/a\u003e"' + b"\n"


def test_a_stored_payload_with_line_breaks_stays_on_one_line():
    payload = Raw(b'{\r\n "b": "<x>",\n "a": "1\\n2"\n}')

    shown = render.to_json({"payload": payload}).stdout

    assert shown.count(b"\n") == 1
    assert json.loads(shown) == {"payload": {"b": "<x>", "a": "1\n2"}}
    assert b"<" not in shown


def test_the_exit_code_is_the_callers_choice():
    assert render.to_json([], 1) == Output(1, b"[]\n")


@settings(max_examples=50, deadline=None)
@given(VALUES, st.sampled_from([None, 1]))
def test_json_means_the_same_on_one_line_whatever_it_holds(value, indent):
    stored = Raw(json.dumps(value, indent=indent, ensure_ascii=False).encode())

    shown = render.to_json([value, stored]).stdout

    assert json.loads(shown) == [value, value]
    assert shown.endswith(b"\n")
    assert not any(character in shown[:-1] for character in b"\n\r<>&")
