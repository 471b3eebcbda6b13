"""Which payloads are stored: every limit at its edge, and the order in which they are checked."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.errors import InvalidPayload, PayloadTooLarge, SecretRefused
from icd.values import payloads, secrets
from icd.values.payloads import (
    ARRAY_ELEMENTS,
    DEPTH,
    KEY_CHARACTERS,
    PAYLOAD_BYTES,
    STRING_BYTES,
)

SECRET = "gh" + "p_" + "Abcdefghij0123456789ABCDEFGHIJ"


def refusal(raw):
    with pytest.raises(InvalidPayload) as refused:
        payloads.check(raw)
    return refused.value


def in_array(count, element=b"0"):
    return b"[" + b",".join([element] * count) + b"]"


def nested(depth, inner=b""):
    return b"[" * depth + inner + b"]" * depth


# --- what is JSON ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", [b"{}", b"[]", b'""', b'"x"', b"0", b"-1.5e+7", b"true", b"false", b"null"]
)
def test_every_kind_of_json_is_taken(raw):
    assert payloads.check(raw) == raw.decode()


def test_a_payload_is_kept_as_written_without_the_white_space_around_it():
    assert payloads.check(b' \n{ "b" : 1,\t"a":2 }\r\n') == '{ "b" : 1,\t"a":2 }'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"  ",
        b"{",
        b"[1,]",
        b"{'a':1}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"tru",
        b"1 2",
        b'"a',
        b"\xef\xbb\xbf1",
    ],
)
def test_what_is_not_json_is_refused(raw):
    assert refusal(raw).message.startswith("invalid JSON payload: ")


@pytest.mark.parametrize("raw", [b"NaN", b"Infinity", b"-Infinity", b'{"a":[NaN]}'])
def test_numbers_that_json_does_not_have_are_refused(raw):
    assert "is not JSON" in refusal(raw).message


@pytest.mark.parametrize("raw", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc3"', b'{"\xff":1}'])
def test_what_is_not_utf_8_is_refused_with_the_place(raw):
    assert refusal(raw).message.startswith("invalid JSON payload: not UTF-8 at byte ")


def test_the_place_of_a_mistake_is_counted_in_bytes():
    assert refusal('["é", x]'.encode()).message.endswith("at byte 7")


@pytest.mark.parametrize("digits", [b"9" * 5000, b"-" + b"9" * 5000, b"0." + b"1" * 5000, b"1e999"])
def test_numbers_have_no_limit(digits):
    assert payloads.check(digits) == digits.decode()


@pytest.mark.parametrize("raw", [rb'"\ud800"', rb'"\udc00x"', rb'{"\ud83d":1}'])
def test_lone_surrogates_in_escapes_are_taken_as_written(raw):
    assert payloads.check(raw) == raw.decode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children) | st.dictionaries(st.text(max_size=8), children),
    max_leaves=8,
)
NEARLY_JSON = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")),
    st.text(alphabet='{}[]",:0123456789.eE+-truefalsnNaIity \\u\t\n', max_size=30).map(str.encode),
    st.binary(max_size=20),
)


def _refuse(name):
    raise ValueError(name)


def is_json(raw):
    """What Python itself says, without its three additions to JSON and its trust in white space."""
    try:
        json.loads(raw.strip().decode(), parse_constant=_refuse)
    except ValueError:
        return False
    return True


def strings_of(value):
    """All strings, keys included; objects are tuples of pairs, so that no duplicate is hidden."""
    if isinstance(value, str):
        return [value]
    return (
        [s for child in value for s in strings_of(child)] if isinstance(value, list | tuple) else []
    )


@settings(max_examples=150, deadline=None)
@given(NEARLY_JSON)
def test_a_small_payload_is_taken_exactly_when_it_is_json_without_control_characters(raw):
    fits = is_json(raw)
    if fits:
        strings = strings_of(json.loads(raw.strip().decode(), object_pairs_hook=tuple))
        fits = not any(payloads._CONTROL.search(s) or secrets.looks_like(s) for s in strings)

    try:
        taken = payloads.check(raw)
    except InvalidPayload:
        assert not fits
    else:
        assert fits
        assert taken == raw.strip().decode()


# --- limits ---------------------------------------------------------------------------------


def test_a_payload_of_exactly_one_mebibyte_is_taken():
    raw = b'"' + b"x" * 60_000 + b'"'
    raw = b"[" + raw + b" " * (PAYLOAD_BYTES - len(raw) - 2) + b"]"

    assert len(payloads.check(raw)) == PAYLOAD_BYTES


def test_a_payload_of_one_byte_more_is_too_large():
    error = refusal(b"[" + b" " * (PAYLOAD_BYTES - 1) + b"]")

    assert isinstance(error, PayloadTooLarge)
    assert error.message.startswith(f"payload too large: {PAYLOAD_BYTES + 1} bytes")


def test_white_space_around_a_payload_does_not_count():
    assert payloads.check(b" " * PAYLOAD_BYTES + b"1") == "1"


def test_bytes_are_counted_and_not_characters():
    error = refusal('"é"'.encode() + b" " * PAYLOAD_BYTES + "é".encode())

    assert isinstance(error, PayloadTooLarge)


@pytest.mark.parametrize("inner", [b"", b"1", b'"x"'])
def test_twenty_levels_are_taken(inner):
    payloads.check(nested(DEPTH, inner))


@pytest.mark.parametrize(
    "raw",
    [nested(DEPTH + 1), nested(DEPTH, b"{}"), b'{"a":' * 20 + b"[]" + b"}" * 20, nested(100_000)],
    ids=["arrays", "an object inside", "objects", "very deep"],
)
def test_one_level_more_is_too_deep(raw):
    assert refusal(raw).message == "JSON nesting too deep: >20 levels"


@pytest.mark.parametrize("character", ["k", "é", "😀"])
def test_a_key_of_a_thousand_characters_is_taken(character):
    payloads.check(json.dumps({character * KEY_CHARACTERS: 1}).encode())


@pytest.mark.parametrize("character", ["k", "é"])
@pytest.mark.parametrize("wrap", ["{%s}", '[{"a":1},{"b":2,%s}]', '{"a":{%s}}'])
def test_a_key_of_one_character_more_is_too_long(character, wrap):
    pair = f'"{character * (KEY_CHARACTERS + 1)}":1'

    assert refusal((wrap % pair).encode()).message == (
        "JSON object key too long: 1001 characters (max 1000)"
    )


@pytest.mark.parametrize("character, size", [("x", 1), ("é", 2), ("€", 3), ("😀", 4)])
def test_a_string_of_100_kib_is_taken_and_one_character_more_is_not(character, size):
    fits = character * (STRING_BYTES // size)

    payloads.check(f'["{fits}"]'.encode())
    error = refusal(f'["{fits}{character}"]'.encode())

    assert error.message.startswith("JSON string value too long: ")
    assert error.message.endswith(f"bytes (max {STRING_BYTES})")


def test_the_bytes_of_a_string_are_those_of_its_value_and_not_of_its_escapes():
    payloads.check(b'"' + rb"\u0041" * STRING_BYTES + b'"')
    assert "too long" in refusal(b'"' + rb"\u0041" * (STRING_BYTES + 1) + b'"').message


@pytest.mark.parametrize("element", [b"0", b'"x"', b"null", b"{}", b'{"a":1}', b"[]"])
def test_an_array_of_ten_thousand_elements_of_any_kind_is_taken_and_one_more_is_not(element):
    payloads.check(in_array(ARRAY_ELEMENTS, element))
    error = refusal(in_array(ARRAY_ELEMENTS + 1, element))

    assert error.message == "JSON array too long: >10000 elements"


def test_an_array_inside_counts_too():
    assert "array too long" in refusal(b'{"a":[1,' + in_array(ARRAY_ELEMENTS + 1) + b"]}").message


def test_an_object_may_have_more_members_than_an_array_elements():
    payloads.check(json.dumps({str(n): n for n in range(ARRAY_ELEMENTS + 1)}).encode())


HINTS = {
    "depth": (nested(DEPTH + 1), "flatten"),
    "great depth": (nested(100_000), "flatten"),
    "array": (in_array(ARRAY_ELEMENTS + 1), "split"),
    "key": (json.dumps({"k" * (KEY_CHARACTERS + 1): 1}).encode(), "short name"),
    "string": (json.dumps("x" * (STRING_BYTES + 1)).encode(), "path or a digest"),
    "control character": (rb'"\u0001"', "remove it"),
    "size": (b"[" + b" " * PAYLOAD_BYTES + b"]", "path or a digest"),
    "no JSON": (b"{", "send one JSON value"),
}


@pytest.mark.parametrize("raw, hint", HINTS.values(), ids=HINTS)
def test_the_hint_fits_the_limit_that_was_hit(raw, hint):
    assert hint in refusal(raw).hint


# --- control characters ---------------------------------------------------------------------


@pytest.mark.parametrize("escape", [r"\b", r"\f", r"\n", r"\r", r"\t", r"\u0009", r"\u007f"])
def test_harmless_control_characters_are_taken_when_escaped(escape):
    payloads.check(f'"a{escape}b"'.encode())


@pytest.mark.parametrize("code", [0x00, 0x01, 0x07, 0x0B, 0x0E, 0x1B, 0x1F])
@pytest.mark.parametrize("wrap", ['"%s"', '{"%s":1}', '[{"a":["%s"]}]'])
def test_other_control_characters_are_refused_even_when_escaped(code, wrap):
    raw = (wrap % f"\\u{code:04x}").encode()

    assert refusal(raw).message == "JSON string contains a control character"


@pytest.mark.parametrize("code", [0x00, 0x09, 0x0A, 0x1F])
def test_a_control_character_as_it_is_is_not_json(code):
    assert "invalid JSON payload" in refusal(b'"' + bytes([code]) + b'"').message


# --- secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    ['"%s"', '["%s"]', '{"a":"%s"}', '{"a":1,"b":[{"c":"%s"}]}', '{"a":"%s","a":1}'],
    ids=["scalar", "array", "object", "nested", "overwritten by a duplicate key"],
)
def test_a_secret_is_refused_wherever_it_stands(wrap):
    assert isinstance(refusal((wrap % SECRET).encode()), SecretRefused)


def test_a_secret_written_in_escapes_is_refused():
    escaped = "".join(f"\\u{ord(c):04x}" for c in SECRET)

    assert isinstance(refusal(f'"{escaped}"'.encode()), SecretRefused)


def test_nothing_of_a_secret_is_told():
    error = refusal(f'"{SECRET}"'.encode())

    told = error.message + error.hint + repr(error.data)
    assert not any(SECRET[start : start + 5] in told for start in range(len(SECRET) - 5))


@pytest.mark.parametrize("raw", ['{"%s":1}', '{"a":1,"%s":2}', '[{"a":{"b":1,"%s":2}}]'])
def test_a_secret_as_a_key_is_refused(raw):
    assert isinstance(refusal((raw % SECRET).encode()), SecretRefused)


@pytest.mark.parametrize(
    "raw",
    [b'["password=","abcd1234"]', b'{"token":["a1b2c3d4"],"b":"a1b2c3d4"}', b'["Bearer ","a1"]'],
)
def test_neighbours_are_not_read_as_one_text(raw):
    payloads.check(raw)


# --- order ----------------------------------------------------------------------------------

TOO_DEEP = nested(DEPTH + 1)
CONTROL = rb'"\u0001"'


def test_size_is_judged_before_json():
    assert isinstance(refusal(b"x" * (PAYLOAD_BYTES + 1)), PayloadTooLarge)


def test_json_is_judged_before_secrets():
    assert "invalid JSON" in refusal(f'["{SECRET}"'.encode()).message


def test_secrets_are_judged_before_depth():
    assert isinstance(refusal(b'["%b",%b]' % (SECRET.encode(), TOO_DEEP)), SecretRefused)


def test_depth_is_judged_before_lengths():
    assert "too deep" in refusal(b"[%b,%b]" % (TOO_DEEP, in_array(ARRAY_ELEMENTS + 1))).message


def test_lengths_are_judged_before_control_characters():
    assert "too long" in refusal(b"[%b,%b]" % (CONTROL, in_array(ARRAY_ELEMENTS + 1))).message


@pytest.mark.parametrize("there, given, both", [
    ("{}", '{"a":null}', '{"a":null}'),
    ('{"a":1,"b":1.50}', '{"a":{"x":1}}', '{"a":{"x":1},"b":1.50}'),
    ('{"a":{"x":1,"y":[1]}}', '{"a":{"y":[2]}}', '{"a":{"x":1,"y":[2]}}'),
])  # fmt: skip
def test_objects_are_merged_member_by_member(there, given, both):
    assert payloads.merged(there, given, "lane l") == both


@pytest.mark.parametrize("there", ["[]", '{"a":' * 3000 + "1" + "}" * 3000])
def test_what_cannot_be_merged_into_is_named(there):
    with pytest.raises(InvalidPayload):
        payloads.merged(there, there if there != "[]" else "{}", "lane l")
