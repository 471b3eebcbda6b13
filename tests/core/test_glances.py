"""A glance says yes only where the careful reader has nothing to refuse, and mostly it does."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.core import glances, payloads, secrets
from icd.errors import InvalidPayload

LIMITS = glances.Limits(
    depth=payloads.DEPTH,
    elements=payloads.ARRAY_ELEMENTS,
    key_characters=payloads.KEY_CHARACTERS,
    string_bytes=payloads.STRING_BYTES,
)
SMALL = glances.Limits(depth=3, elements=3, key_characters=4, string_bytes=24)
ALNUM = "Abcdefghij0123456789ABCDEFGHIJ"

# Built from pieces, so that no scanner of repositories takes this file for a leak.
_SECRET = ["s" + "k-", "gh" + "p_", "xox" + "b-", "ey" + "J", "AK" + "IA", ".", " ", ALNUM]
_NAMED = ["-----BEGIN ", "PRIVATE KEY", "to" + "ken", "TOKEN", "sec" + "ret", "api-" + "key"]
_ODD = ["\u212a", "\u017f", "\u0131", "\u0130", "to\u212aen", "\u017fecret"]
_OTHERS = [*':="\\[]{},', "\n", "\t", "\\u", "\0", "\x1f", "é", "😀", "x"]
PARTS = st.sampled_from([*_SECRET, *_NAMED, *_ODD, *_OTHERS])
STRINGS = st.lists(PARTS, max_size=6).map("".join)
JSON = st.recursive(
    st.none() | st.integers() | STRINGS,
    lambda children: (
        st.lists(children, max_size=5)
        | st.lists(st.tuples(STRINGS, children), max_size=5).map(tuple)
    ),
    max_leaves=12,
)
# How text that holds JSON may be spoilt, or spoil what looks at it.
SPOILT = st.sampled_from(["", "", "", "]", '"', ",", "\\", "[", " ", "0", "\x01"])


def written(value, *, ascii_only: bool) -> str:
    """Objects are tuples of pairs here, so that keys may come twice."""
    if isinstance(value, tuple):
        pairs = (f"{written(k, ascii_only=ascii_only)}:{written(v, ascii_only=ascii_only)}"
                 for k, v in value)  # fmt: skip
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(each, ascii_only=ascii_only) for each in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def is_refused(text: str) -> bool:
    try:
        payloads._examine(text)
    except InvalidPayload:
        return True
    return False


@pytest.mark.parametrize("limits", [LIMITS, SMALL], ids=["the limits", "small limits"])
@settings(max_examples=int(os.environ.get("GLANCES", "400")), deadline=None)
@given(value=JSON, ascii_only=st.booleans(), spoilt=SPOILT, place=st.integers(0, 200))
def test_what_is_harmless_at_a_glance_is_not_refused(limits, value, ascii_only, spoilt, place):
    text = written(value, ascii_only=ascii_only)
    text = text[:place] + spoilt + text[place:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payloads, "DEPTH", limits.depth)
        patch.setattr(payloads, "ARRAY_ELEMENTS", limits.elements)
        patch.setattr(payloads, "KEY_CHARACTERS", limits.key_characters)
        patch.setattr(payloads, "STRING_BYTES", limits.string_bytes)

        refused = is_refused(text)

    assert not (refused and glances.is_harmless(text, limits))


@settings(max_examples=400, deadline=None)
@given(STRINGS)
def test_every_secret_is_a_suspect(string):
    text = json.dumps([string], ensure_ascii=False).replace("\\\\", "\0\0").replace('\\"', "\0\0")

    if secrets.looks_like(string) is not None:
        assert list(secrets.suspects(text))


@pytest.mark.parametrize(
    "text",
    [
        "1",
        '""',
        "[]",
        '{"phase": "executing", "tokens": 1200, "list": [1, [2, {}], "x:y"]}',
        r'{"path": "C:\\temp", "said": "\"yes\"\n"}',
        '{"note": "the password is in the vault"}',
        '{"note": "pass' + 'word=short"}',
        '"' + "x" * payloads.STRING_BYTES + '"',
        '"' + "é" * (payloads.STRING_BYTES // 4) + '"',
        "[" + "0," * (payloads.ARRAY_ELEMENTS - 1) + "0]",
        "[" * payloads.DEPTH + "]" * payloads.DEPTH,
        "{" + ",".join(f'"{n}":[{n},[]]' for n in range(20_000)) + "}",
    ],
)
def test_usual_payloads_are_harmless_at_a_glance(text):
    assert glances.is_harmless(text, LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1,]",
        r'"\u0001"',
        '"' + "x" * (payloads.STRING_BYTES + 1) + '"',
        '{"' + "k" * (payloads.KEY_CHARACTERS + 1) + '" : 1}',
        "[[" + "0," * payloads.ARRAY_ELEMENTS + "0]]",
        "[" + "[[]]," * payloads.ARRAY_ELEMENTS + "0]",
        "[" * (payloads.DEPTH + 1) + "]" * (payloads.DEPTH + 1),
        "[" * 100_000,
        '{"a":["gh' + "p_" + ALNUM + '"]}',
        '"to' + r"ken \n = \n abcdefgh" + '"',
    ],
)
def test_what_may_be_refused_is_not_harmless_at_a_glance(text):
    assert not glances.is_harmless(text, LIMITS)
