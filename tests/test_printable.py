"""What is printed commands no terminal, and keeps every other byte."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd import printable
from icd.server.logs import _Json, _Text

UNSAFE = [*range(9), 0xB, 0xC, *range(0xE, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)]
UNSAFE += range(0x2066, 0x206A)


@given(st.text())
def test_no_unsafe_character_is_left_and_the_others_stay(text):
    shown = printable.printable(text.encode("utf-8", "surrogatepass"))

    expected = "".join(rf"\u{ord(c):04x}" if ord(c) in UNSAFE else c for c in text)
    assert shown == expected.encode("utf-8", "surrogatepass")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_has_the_same_value(text):
    data = json.dumps(text, ensure_ascii=False).encode()

    assert json.loads(printable.printable(data)) == text


def test_each_is_spelled_out():
    for code in UNSAFE:
        assert printable.printable(f"a{chr(code)}b".encode()) == rb"a\u%04xb" % code, code


def test_bytes_that_are_no_text_stay():
    assert printable.printable(b"/tmp/\xff\xe2\x80 \xc2") == b"/tmp/\xff\xe2\x80 \xc2"


@pytest.mark.parametrize("form", [_Text, _Json])
def test_a_line_of_the_log_is_one_line_and_commands_no_terminal(form):
    record = logging.makeLogRecord({"msg": "read \x1b[31m\x9b", "path": "a\nb\u202e\x7f"})

    line = form().format(record)

    assert not {*line} & {*map(chr, UNSAFE), "\n"}
