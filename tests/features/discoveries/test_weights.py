"""Weights: which are stored, and what they count."""

import pytest

from icd.errors import InvalidPayload, InvalidWeights, PayloadTooLarge
from icd.features.discoveries import profile as profiles


@pytest.mark.parametrize(
    "text, counted",
    [
        ("{}", {}),
        ('{"rust": 0.5}', {"rust": 500_000}),
        ('{"a": 1, "b": -2, "c": 0}', {"a": 1_000_000, "b": -2_000_000, "c": 0}),
        ('{"a": 1e-7, "b": 0.1234567}', {"a": 0, "b": 123_457}),
        ('{"a": 1000000, "b": -1e6}', {"a": 10**12, "b": -(10**12)}),
        ('{"a": 1, "a": 2}', {"a": 2_000_000}),
    ],
)
def test_weights_are_stored_as_written_and_counted_in_millionths(text, counted):
    stored = profiles.check_weights(f" {text}\n".encode())

    assert stored == text
    assert profiles.parse_weights(stored) == counted


def test_weights_stand_in_one_line():
    assert profiles.check_weights(b'{\r\n "a\\n": 1\n}'.replace(b"\\n", b" ")) == '{   "a ": 1 }'


@pytest.mark.parametrize(
    "text",
    ["[]", "1", "null", '"a"', '{"a": "1"}', '{"a": true}', '{"a": null}', '{"a": [1]}',
     '{"a": 1e999}', '{"a": 1000000.1}', '{"a": -1000001}', '{"": 1}', '{"a\\tb": 1}',
     '{"a\\nb": 1}', '{"\\ud800": 1}', '{"a": 1' + "0" * 400 + "}"],
)  # fmt: skip
def test_what_is_no_object_of_numbers_is_refused(text):
    with pytest.raises(InvalidWeights):
        profiles.check_weights(text.encode())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a": NaN}', b'{"a": Infinity}'])
def test_what_is_no_json_is_refused(data):
    with pytest.raises(InvalidPayload, match="invalid JSON"):
        profiles.check_weights(data)


@pytest.mark.parametrize("number, is_fine", [(1000, True), (1001, False)])
def test_there_may_be_a_thousand_of_them(number, is_fine):
    text = "{" + ",".join(f'"k{n}": 1' for n in range(number)) + "}"

    if is_fine:
        assert len(profiles.parse_weights(profiles.check_weights(text.encode()))) == number
    else:
        with pytest.raises(InvalidWeights, match="1001 weights, at most 1000"):
            profiles.check_weights(text.encode())


def test_their_text_has_the_limits_of_every_payload():
    with pytest.raises(PayloadTooLarge):
        profiles.check_weights(b"{" + b" " * 1_100_000 + b"}")


@pytest.mark.parametrize("keyword", ["!!!", "—", " ", "..."])
def test_a_keyword_without_a_word_is_refused(keyword):
    with pytest.raises(InvalidWeights, match="has no letter or digit"):
        profiles.check_keywords(f'{{"rust": 1, "{keyword}": 1}}'.encode())


@pytest.mark.parametrize(
    "text, words",
    [
        ("Rust, C++ and C#!", ["rust", "c++", "and", "c#"]),
        ("node.js gpt-4", ["node", "js", "gpt", "4"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("cafe\u0301 café ｃａｆé", ["café"] * 3),
        ("snake_case", ["snake_case"]),
        ("日本語 text", ["日本語", "text"]),
        ("…", []),
    ],
)
def test_words_are_told_by_letters_and_digits(text, words):
    assert profiles.words(text) == words
